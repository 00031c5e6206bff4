"""The toxicity screen: a linear model of words, pairs of words and pieces of words, over every document.

It judges English. A document of another language is not screened; one whose language nobody could tell is, when
English words are in it.

The screen's model file: arrays of integers, a table from score to probability, and what they were made from.

It is an ``.npz`` that is read without pickle. Every array is checked before any of it is used.

ScreenBatch: how toxic the cheap screen takes every document of a batch to be.
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
    """bool[n]: the document's language is one that the screen can judge, and it holds a word."""


NAME = "dataaudit-screen"
ONE_IN = 12
"""A document of unknown language is English when so many of its words, or fewer, hold one of ``ENGLISH``."""
ENGLISH = (
    b"the and that you this with for have what your not are they which would from were been who will their about"
    b" there when can all how out my is it to of"
)


class ToxicityScreen:
    """The screen, loaded; it says the same of a document whatever stands beside it in a batch.

    Raises:
        DetectorError: The model is gone, or is not the one that was named.
    """

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
        places = np.searchsorted(self.file.steps, raw, side="right")
        probability = np.where(screened, self.file.probabilities[places], 0.0)
        return ScreenBatch(raw=raw, probability=probability, screened=screened)

    def threshold(self, probability: float = 0.5) -> int:
        """Return the least raw score whose probability is at least so much; above all scores if none is."""
        place = int(np.searchsorted(self.file.probabilities, probability, side="left"))
        if place == 0:
            return int(np.iinfo(np.int64).min)
        return int(self.file.steps[place - 1]) if place <= len(self.file.steps) else int(np.iinfo(np.int64).max)

    def _screened(self, words: WordBatch, languages: LanguageBatch | None) -> npt.NDArray[np.bool_]:
        """Tell which documents hold words and are in a language of the model."""
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
    """Return what names the screen of this package."""
    path = packaged_screen()
    data = _read(path)
    about = read_screen(data, str(path)).about
    return DetectorModel(
        name=NAME,
        version=str(about["version"]),
        sha256=sha256(data).hexdigest(),
        languages=tuple(about["languages"]),
        path=path,
    )


def packaged_screen() -> Path:
    """Return where the model lies."""
    return Path(__file__).parent / "screen.npz"


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
    """What a model file holds."""

    weights: ToxicWeights
    """Of the kernel."""
    bias: int
    """Added to the kernel's score; ``raw`` is the sum, in 2^-16 of a logit before calibration."""
    steps: np.ndarray
    """int64[k] ascending scores at which the probability rises."""
    probabilities: np.ndarray
    """float64[k + 1] of P(toxic) below the first step, between two, above the last; ascending."""
    about: dict[str, Any]
    """Name, version, languages, data with licences, and what was measured while it was trained."""


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
    """Say what is wrong with a model; None if it can be used."""
    for name, array in arrays.items():
        if array.dtype != _DTYPES[name] or array.ndim != 1:
            return f"`{name}` of {array.dtype}, {array.ndim} dimensions"
    sizes = [len(arrays[name]) for name in ("words", "pairs", "grams", "keys")]
    steps, chances = arrays["steps"], arrays["probabilities"]
    faults = {
        "another format": not isinstance(about, dict) or about.get("format") != FORMAT,
        "tables whose sizes are no powers of two": any(size < 2 or size & (size - 1) for size in sizes),
        "keys without weights": len(arrays["disguised"]) != len(arrays["keys"]),
        "a table of keys without a free place": bool(np.all(arrays["keys"])),  # looking a key up would not end
        "no windows": len(arrays["passage"]) != 2
        or not 0 < int(arrays["passage"][0]) < len(arrays["norms"]) - 1
        or len(arrays["bias"]) != 1,
        "a calibration whose steps do not rise": bool(np.any(np.diff(steps) <= 0)) or len(chances) != len(steps) + 1,
        "a calibration that is no rising probability": not bool(np.all((chances >= 0) & (chances <= 1)))
        or bool(np.any(np.diff(chances) < 0)),
    }
    return next((fault for fault, found in faults.items() if found), None)
