"""ScreenBatch: how toxic the cheap screen takes every document of a batch to be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenBatch:
    """Scores of ``n`` documents."""

    raw: npt.NDArray[np.int64]
    """int64[n] score of the worst window, in fixed point: the same on every machine. 0 where not screened."""
    probability: npt.NDArray[np.float64]
    """float64[n] calibrated P(toxic), from a table that is looked up with ``raw``; 0 where not screened."""
    screened: npt.NDArray[np.bool_]
    """bool[n]: the document's language is one that the screen can judge, and it holds a word."""
