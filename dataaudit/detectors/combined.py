"""CLD2 and lid.176 together: CLD2 classifies every text, lid.176 joins where CLD2 alone is often wrong.

Each candidate language has a score, a weighted sum of what both models report of it. Confidence is the softmax of the
scores, with a score of 0 for "none of them". The weights are a multinomial logistic regression, fitted with
lid.176.ftz on labelled sentences and program messages in 117 languages. Every second text is kept for measuring.
"""

from __future__ import annotations

import hashlib
from math import exp, log

import pyarrow as pa

from dataaudit.detectors import cld2
from dataaudit.detectors.base import Codes, Confidence, DetectorModel, known_languages
from dataaudit.detectors.cld2 import Cld2Detector
from dataaudit.detectors.languages import UND
from dataaudit.detectors.lid176 import FastTextDetector
from dataaudit.detectors.windows import identify
from dataaudit.manifest.canonical import canonical_json

NAME = "combined"
SHORT = 128
"""Characters below which CLD2 needs ``_SURE_SCORE`` to decide alone: there it takes French for English."""
_SURE_SCORE = 1000
_OWN_SCRIPT = "am bn chr dv el gu hy iu ja ka km kn ko lo ml my or pa si ta te th zh"
"""Languages that CLD2 knows by their script, at any length."""
_CONFUSED = "bs ms nn sr"
"""What CLD2 also takes Croatian, Indonesian, Bokmal and Macedonian for, at any length."""
_CANDIDATES = 5
"""Of lid.176; CLD2 adds its first language."""
_LEAST = 1e-3
"""Probability of what lid.176 does not list."""
_LOG, _FIRST, _CLAIMED, _SCORE, _UNKNOWN, _OFFSET = 0.38, 1.07, 2.19, 1.40, 2.90, 1.11
"""Weights: of lid.176's log probability and, for its first language, of its log odds; of being CLD2's first language
and of the log of its score there; of a language that lid.176 does not know; and of any candidate."""
_BIAS = (
    "an .4 ast .3 bg .4 bs .4 ca -.5 co .5 cs .4 da .7 de -.8 en -1.9 eo -.4 es .2 fr -.4 ga .3 gl -.4 gv .4 hi -.3"
    " hr 1.3 hu -.2 id 1 it -.2 ja -.6 ku .4 la .3 lg .4 li .4 mai .8 mi .3 mk .6 ms -.4 nds .2 nl -.1 nn -.9 no 1"
    " pl -.4 ro 1 ru -.2 sk -.3 sn .4 so .8 sr -.7 st .3 sw .2 tn .3 tr .2 ts .3 wa .4 yo 1.7 zh .9 zu .3"
)
"""Weight of a language itself, 0 where not listed. In the fit 30 large languages, Croatian and Serbian weigh eight
times as much as others, and Indonesian sixteen times: corpora of web pages have far more of it than of Malay."""


class CombinedDetector:
    """CLD2 and lid.176, on the calling thread."""

    def __init__(self, model: DetectorModel) -> None:
        first, second = model.parts
        self.model = model
        self.second = FastTextDetector(second)
        """lid.176, which also classifies a sample by itself."""
        self._cld2 = Cld2Detector(first)
        self._index = {name: index for index, name in enumerate(model.languages)}
        self._known = frozenset(second.languages)
        self._own_script, self._confused = frozenset(_OWN_SCRIPT.split()), frozenset(_CONFUSED.split())
        words = _BIAS.split()
        bias = dict(zip(words[::2], map(float, words[1::2]), strict=True))
        self._base = {name: _OFFSET + bias.get(name, 0.0) for name in model.languages}

    def detect(self, texts: pa.LargeStringArray) -> tuple[Codes, Confidence]:
        """Identify the language of each text by itself."""
        return identify(texts, cld2.LOOKS, self.classify)

    def classify(self, text: str) -> tuple[int, float]:
        """Return (code, confidence) of words on one line."""
        claim, confidence, score = self._cld2.claim(text)
        enough = claim not in self._confused and (len(text) >= SHORT or score >= _SURE_SCORE)
        if confidence < cld2.LOOKS.sure or not (enough or claim in self._own_script):
            claim, confidence = self._weigh(claim, score, self.second.candidates(text.lower(), _CANDIDATES))
        return self._index[claim], confidence

    def _weigh(self, claim: str, score: float, listed: list[tuple[str, float]]) -> tuple[str, float]:
        """Return the language with the highest score, and its confidence.

        Args:
            claim: CLD2's first language, or ``und``.
            score: Its score.
            listed: Languages of lid.176 with their probabilities, most probable first.
        """
        scores = {name: self._base[name] + _LOG * log(max(chance, _LEAST)) for name, chance in listed}
        if listed:
            name, chance = listed[0]
            scores[name] -= _FIRST * log(1.0 + _LEAST - chance)
        if claim != UND:
            unseen = self._base[claim] + _LOG * log(_LEAST)
            strength = _CLAIMED + _SCORE * log(max(score, 20.0) / cld2.FULL_SCORE)
            scores[claim] = scores.get(claim, unseen) + strength + (0.0 if claim in self._known else _UNKNOWN)
        if not scores:
            return UND, 0.0
        best = max(scores, key=scores.__getitem__)
        return best, 1.0 / (exp(-scores[best]) + sum(exp(value - scores[best]) for value in scores.values()))


def combine(first: DetectorModel, second: DetectorModel) -> DetectorModel:
    """Return what names CLD2 and lid.176 together."""
    weights = [_LOG, _FIRST, _CLAIMED, _SCORE, _UNKNOWN, _OFFSET, _BIAS, SHORT, _SURE_SCORE]
    digest_of = [first.sha256, second.sha256, weights, _OWN_SCRIPT, _CONFUSED]
    digest = hashlib.sha256(canonical_json(digest_of)).hexdigest()
    return DetectorModel(
        name=NAME,
        version=f"1+{first.name}.{first.version}+{second.name}.{second.version}",
        sha256=digest,
        languages=known_languages([*first.languages, *second.languages]),
        parts=(first, second),
    )
