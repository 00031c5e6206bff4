"""The screen's model file: arrays of integers, a table from score to probability, and what they were made from.

It is an ``.npz`` that is read without pickle. Every array is checked before any of it is used.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataaudit.errors import DetectorError
from dataaudit.kernels.toxic import ToxicWeights

FORMAT = "dataaudit toxicity screen 1"
_DTYPES = {
    **dict.fromkeys(("words", "pairs", "grams"), np.int8),
    "keys": np.uint64,
    "disguised": np.int16,
    **dict.fromkeys(("norms", "passage", "bias", "steps"), np.int64),
    "about": np.uint8,
    **dict.fromkeys(("probabilities", "low", "high"), np.float64),
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
    low: np.ndarray
    """float64[k + 1] lower 95 % bound of each, from the number of labelled texts that it rests on."""
    high: np.ndarray
    """float64[k + 1] upper bound."""
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
        low=file.low,
        high=file.high,
        about=about,
    )
    return out.getvalue()


def read_screen(data: bytes, origin: str) -> ScreenFile:
    """Read a model file.

    Args:
        data: Its bytes.
        origin: Where they come from, for messages.

    Raises:
        DetectorError: It is not one, or not a whole one.
    """
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
        low=arrays["low"],
        high=arrays["high"],
        about=about,
    )


def _fault(arrays: dict[str, np.ndarray], about: Any) -> str | None:
    """Say what is wrong with a model; None if it can be used."""
    for name, array in arrays.items():
        if array.dtype != _DTYPES[name] or array.ndim != 1:
            return f"`{name}` of {array.dtype}, {array.ndim} dimensions"
    sizes = [len(arrays[name]) for name in ("words", "pairs", "grams", "keys")]
    steps, chances, low, high = (arrays[name] for name in ("steps", "probabilities", "low", "high"))
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
        "a calibration outside its bounds": not len(low) == len(chances) == len(high)
        or not bool(np.all((low >= 0) & (low <= chances) & (chances <= high) & (high <= 1))),
    }
    return next((fault for fault, found in faults.items() if found), None)
