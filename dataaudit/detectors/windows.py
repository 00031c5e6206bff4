"""How much of a document is looked at: a few short windows first, more of it only when they leave a doubt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.corpus.texts import text_buffers
from dataaudit.detectors.base import Codes, Confidence

WINDOWS_VERSION = "1"
"""Changes whenever the same document may be shown to a detector in another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows of a document that are classified first, and those that a doubt asks for."""

    first: tuple[int, int] = (6, 64)
    """Windows of a document, and bytes of each."""
    second: tuple[int, int] = (12, 128)
    """The same, of documents that the first windows did not settle."""
    sure: float
    """Confidence at which the first windows settle a document that they do not hold as a whole."""


def identify(
    texts: pa.LargeStringArray, windows: Windows, classify: Callable[[str], tuple[int, float]]
) -> tuple[Codes, Confidence]:
    """Look at each text by itself; see :func:`dataaudit.kernels.windows.gather_windows` for what is seen of it.

    Args:
        texts: large_string[n], without nulls.
        windows: How much of a document is classified.
        classify: From words, some letter among them, to (code, confidence).

    Returns:
        ``codes`` int32[n] and ``confidence`` float32[n]; (0, 0) where no letter was seen.
    """
    codes, confidence = np.zeros(len(texts), dtype=np.int32), np.zeros(len(texts), dtype=np.float32)
    rows = np.arange(len(texts), dtype=np.int64)
    for size in (windows.first, windows.second):
        found, sure, whole = _classify(texts, rows, size, classify)
        codes[rows], confidence[rows] = found, sure
        rows = rows[~whole & (sure < windows.sure)]
    return codes, confidence


def _classify(
    texts: pa.LargeStringArray, rows: np.ndarray, size: tuple[int, int], classify: Callable[[str], tuple[int, float]]
) -> tuple[Codes, Confidence, np.ndarray]:
    """Look at some of the texts once; return codes, confidence, and which were seen as a whole."""
    from dataaudit.kernels.windows import gather_windows

    codes, confidence = np.zeros(len(rows), dtype=np.int32), np.zeros(len(rows), dtype=np.float32)
    if len(rows) == 0:
        return codes, confidence, np.zeros(0, dtype=np.bool_)
    offsets, values = text_buffers(texts)
    words, ends, whole = gather_windows(values, offsets, rows, windows=size[0], kept=size[1])
    data, places = words.tobytes(), ends.tolist()
    for index in range(len(rows)):
        text = data[places[index] : places[index + 1]].decode()
        if any(map(str.isalpha, text)):
            codes[index], confidence[index] = classify(text)
    return codes, confidence, whole
