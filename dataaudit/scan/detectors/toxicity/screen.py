"""The toxicity screen: a linear model of words, pairs of words and pieces of words, over every document.

It knows English. A document of another language is not screened; a document of unknown language is, when English words
are in it. The model file is an ``.npz`` that is read without pickle: arrays of integers, a table from score to
probability, and their origin. Every array is checked before any of it is used.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dataaudit.base.errors import DetectorError
from dataaudit.scan.detectors.base import UND, DetectorModel, LanguageBatch
from dataaudit.scan.kernels.toxic import ToxicWeights, toxic_scores
from dataaudit.scan.kernels.words import WordBatch, split_words


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenBatch:
    """Scores of ``n`` documents."""

    raw: npt.NDArray[np.int64]
    """int64[n] score of the worst window, in fixed point: the same on every machine. 0 where not screened."""
    probability: npt.NDArray[np.float64]
    """float64[n] calibrated P(toxic), from a table that is looked up with ``raw``; 0 where not screened."""
    screened: npt.NDArray[np.bool_]
    """bool[n]: the screen knows the document's language, and the document has a word."""


NAME = "dataaudit-screen"
ONE_IN = 12
"""A document of unknown language is English when so many of its words, or fewer, have a word of ``ENGLISH``."""
ENGLISH = (
    b"the and that you this with for have what your not are they which would from were been who will their about"
    b" there when can all how out my is it to of"
)


class ToxicityScreen:
    """The screen, loaded; the score of a document does not depend on the others of its batch."""

    def __init__(self, model: DetectorModel) -> None:
        assert model.path is not None
        data = _read(model.path)
        if sha256(data).hexdigest() != model.sha256:
            raise DetectorError(f"toxicity: {model.path} is not the model that was named", "Install dataaudit again.")
        self.model = model
        self.file: ScreenFile = read_screen(data, str(model.path))

    def score(
        self, values: np.ndarray, offsets: np.ndarray, words: WordBatch, languages: LanguageBatch | None
    ) -> ScreenBatch:
        """Score documents."""
        screened = self._screened(words, languages)
        raw = toxic_scores(values, offsets, words, screened, self.file.weights)
        raw[screened] += self.file.bias
        probability = np.where(
            screened, self.file.probabilities[np.searchsorted(self.file.steps, raw, side="right")], 0.0
        )
        return ScreenBatch(raw=raw, probability=probability, screened=screened)

    def threshold(self, probability: float = 0.5) -> int:
        """Return the least raw score of at least a probability; above all scores if none has it."""
        step = int(np.searchsorted(self.file.probabilities, probability, side="left"))
        if step == 0:
            return int(np.iinfo(np.int64).min)
        return int(self.file.steps[step - 1]) if step <= len(self.file.steps) else int(np.iinfo(np.int64).max)

    def _screened(self, words: WordBatch, languages: LanguageBatch | None) -> npt.NDArray[np.bool_]:
        """Tell which documents have words and are in a language of the model."""
        counts = words.num_words()
        if languages is None:
            english, unknown = np.zeros(len(counts), dtype=np.bool_), np.ones(len(counts), dtype=np.bool_)
        else:
            known = np.array([name in self.model.languages for name in languages.names], dtype=np.bool_)
            english = known[languages.codes]
            unknown = np.array([name == UND for name in languages.names], dtype=np.bool_)[languages.codes]
        screened: npt.NDArray[np.bool_] = english & (counts > 0)
        for document in np.flatnonzero(unknown & (counts > 0)).tolist():
            hashes = words.hashes[words.offsets[document] : words.offsets[document + 1]]
            screened[document] = int(np.isin(hashes, _english_words()).sum()) * ONE_IN >= len(hashes)
        return screened


@cache
def find_screen() -> DetectorModel:
    """Return the model of this package's screen."""
    path = Path(__file__).parent / "screen.npz"
    data = _read(path)
    about = read_screen(data, str(path)).about
    return DetectorModel(
        name=NAME,
        version=str(about["version"]),
        sha256=sha256(data).hexdigest(),
        languages=tuple(about["languages"]),
        path=path,
    )


@cache
def _english_words() -> np.ndarray:
    """uint64[k] hashes of ``ENGLISH``."""
    return split_words(np.frombuffer(ENGLISH, dtype=np.uint8), np.array([0, len(ENGLISH)], dtype=np.int64)).hashes


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DetectorError(f"toxicity: {path} cannot be read ({error.strerror})", "Install dataaudit again.") from None


FORMAT = "dataaudit toxicity screen 2"
_DTYPES = {
    **dict.fromkeys(("words", "pairs", "grams"), np.int8),
    "keys": np.uint64,
    "disguised": np.int16,
    **dict.fromkeys(("norms", "passage", "bias", "steps"), np.int64),
    "about": np.uint8,
    "probabilities": np.float64,
}


@dataclass(frozen=True, slots=True, eq=False)
class ScreenFile:
    """The contents of a model file."""

    weights: ToxicWeights
    bias: int
    """Added to the kernel's score; ``raw`` is the sum, in 2^-16 of a logit before calibration."""
    steps: np.ndarray
    """int64[k] ascending scores at which the probability rises."""
    probabilities: np.ndarray
    """float64[k + 1] of P(toxic) below the first step, between two, above the last; ascending."""
    about: dict[str, Any]
    """Name, version, languages, data with licences, and measurements of its training."""


def write_screen(file: ScreenFile) -> bytes:
    """Return a model file; the same bytes for the same model."""
    weights = {name: getattr(file.weights, name) for name in ("words", "pairs", "grams", "keys", "disguised", "norms")}
    passage = np.array([file.weights.passage, file.weights.margin], dtype=np.int64)
    about = np.frombuffer(json.dumps({"format": FORMAT, **file.about}, sort_keys=True).encode(), dtype=np.uint8)
    out = io.BytesIO()
    np.savez_compressed(
        out,
        **weights,
        passage=passage,
        bias=np.array([file.bias], dtype=np.int64),
        steps=file.steps,
        probabilities=file.probabilities,
        about=about,
    )
    return out.getvalue()


def read_screen(data: bytes, origin: str) -> ScreenFile:
    """Read a model file."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: np.ascontiguousarray(archive[name]) for name in _DTYPES}
        about = json.loads(arrays["about"].tobytes())
        fault = _fault(arrays, about)
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        fault = f"{type(error).__name__}"
    if fault:
        raise DetectorError(
            f"toxicity: expected the screen's model in {origin}, found: {fault}", "Install dataaudit again."
        )
    passage, margin = arrays["passage"].tolist()
    weights = ToxicWeights(
        **{name: arrays[name] for name in ("words", "pairs", "grams", "keys", "disguised", "norms")},
        passage=passage,
        margin=margin,
    )
    return ScreenFile(
        weights=weights,
        bias=int(arrays["bias"][0]),
        steps=arrays["steps"],
        probabilities=arrays["probabilities"],
        about=about,
    )


def _fault(arrays: dict[str, np.ndarray], about: Any) -> str | None:
    """Return the fault of a model; None if it can be used."""
    for name, array in arrays.items():
        if array.dtype != _DTYPES[name] or array.ndim != 1:
            return f"`{name}` of {array.dtype}, {array.ndim} dimensions"
    sizes = [len(arrays[name]) for name in ("words", "pairs", "grams", "keys")]
    steps, chances = arrays["steps"], arrays["probabilities"]
    faults = {
        "another format": not isinstance(about, dict) or about.get("format") != FORMAT,
        "tables whose sizes are no powers of two": any(size < 2 or size & (size - 1) for size in sizes),
        "keys without weights": len(arrays["disguised"]) != len(arrays["keys"]),
        "a table of keys without a free slot": bool(np.all(arrays["keys"])),  # looking a key up would not end
        "no windows": len(arrays["passage"]) != 2
        or not 0 < int(arrays["passage"][0]) < len(arrays["norms"]) - 1
        or len(arrays["bias"]) != 1,
        "a calibration whose steps do not rise": bool(np.any(np.diff(steps) <= 0)) or len(chances) != len(steps) + 1,
        "a calibration that is no rising probability": not bool(np.all((chances >= 0) & (chances <= 1)))
        or bool(np.any(np.diff(chances) < 0)),
    }
    return next((fault for fault, present in faults.items() if present), None)
