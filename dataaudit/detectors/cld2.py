"""CLD2 by pycld2: naive Bayes over pieces of four letters; small scripts by the script alone.

The tables are compiled into the library. Their digest is of the version, the languages and the answers to
fixed sentences, so that the same tables have the same digest on every platform.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from dataaudit.detectors.base import Codes, Confidence, DetectorModel, known_languages, language_code
from dataaudit.detectors.languages import UND
from dataaudit.detectors.windows import WINDOWS_VERSION, Windows, identify
from dataaudit.manifest.canonical import canonical_json

NAME = "pycld2"
LOOKS = Windows(sure=0.7)
FULL_SCORE = 500
"""CLD2's score (log-probability per 1,024 bytes, above chance) from which on it is not doubted. Of labelled
sentences 97 % are right above it, 75 % between half of it and it, 47 % below half of it."""
_PROBES = (
    "All human beings are born free and equal in dignity and rights.",
    "Alle Menschen sind frei und mit gleichen Rechten geboren.",
    "Todos los seres humanos nacen libres e iguales en dignidad.",
    "Semua orang dilahirkan merdeka dan mempunyai martabat yang sama.",
    "Watu wote wamezaliwa huru, hadhi na haki zao ni sawa.",
    "Bonke abantu bazalwa bekhululekile belingana ngesithunzi.",
    "Tutti gli esseri umani nascono liberi ed eguali in diritti.",
    "Wszyscy ludzie rodz\u0105 si\u0119 wolni i r\u00f3wni pod wzgl\u0119dem swej godno\u015bci.",
    "\u0412\u0441\u0435 \u043b\u044e\u0434\u0438 \u0440\u043e\u0436\u0434\u0430\u044e\u0442\u0441\u044f.",
    "\u4eba\u4eba\u751f\u800c\u81ea\u7531\u5728\u5c0a\u4e25\u548c\u6743\u5229\u4e0a\u4e00\u5f8b\u5e73\u7b49",
)
_REFUSED = dict.fromkeys(
    [
        *range(0x20),
        *range(0x7F, 0xA0),
        *range(0xFDD0, 0xFDF0),
        *(plane + last for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF)),
    ],
    " ",
)
"""Code points that CLD2 does not take: controls and those that are no characters."""


class Cld2Detector:
    """CLD2, on the calling thread.

    Confidence is the share of the words' bytes that are in the first language, times the score of that language as a
    share of ``FULL_SCORE``, 1 at most.
    """

    def __init__(self, model: DetectorModel) -> None:
        self.model = model
        self._index = {name: index for index, name in enumerate(model.languages)}

    def detect(self, texts: pa.LargeStringArray) -> tuple[Codes, Confidence]:
        """Identify the language of each text by itself."""
        return identify(texts, LOOKS, self.classify)

    def classify(self, text: str) -> tuple[int, float]:
        """Return (code, confidence) of words on one line."""
        claim, confidence, _ = self.claim(text)
        return self._index[claim], confidence

    def claim(self, text: str) -> tuple[str, float, float]:
        """Return the first language, its confidence and its score; (``und``, 0, 0) without one."""
        label, percent, score = best_language(text)
        name = language_code(label)
        if name == UND or name not in self._index:
            return UND, 0.0, 0.0
        return name, percent / 100 * min(1.0, score / FULL_SCORE), score


def best_language(text: str) -> tuple[str, int, float]:
    """Return the code, the percentage of the bytes and the score of the first language; ``un`` when there is none.

    What CLD2 refuses is replaced by spaces; should it refuse the rest too, the language is unknown.
    """
    import pycld2

    try:
        found = pycld2.detect(text, isPlainText=True, bestEffort=True)[2][0]
    except pycld2.error:
        try:
            found = pycld2.detect(text.translate(_REFUSED), isPlainText=True, bestEffort=True)[2][0]
        except pycld2.error:
            return "un", 0, 0.0
    _, code, percent, score = found
    return code, percent, score


@cache
def find_model() -> DetectorModel:
    """Return what names this installation of CLD2.

    Raises:
        ImportError: pycld2 is not installed.
    """
    import pycld2

    codes: dict[str, str] = dict(pycld2.LANGUAGES)
    answers: list[Any] = [list(best_language(probe)) for probe in _PROBES]
    value = {"data": pycld2.VERSION, "languages": sorted(codes.items()), "answers": answers}
    return DetectorModel(
        name=NAME,
        version=f"{version('pycld2')}+looks.{WINDOWS_VERSION}",
        sha256=hashlib.sha256(canonical_json(value)).hexdigest(),
        languages=known_languages([codes[name] for name in pycld2.DETECTED_LANGUAGES if name in codes]),
    )
