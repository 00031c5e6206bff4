"""gigatoken over Arrow buffers: no copy in, no copy out, one thread, bounded memory.

gigatoken keeps every piece of text it has met, about 80 bytes each, for as long as the tokenizer lives.
Natural text meets few new ones after a while; text of random words meets new ones for ever. So the growth
of the process during its calls is added up, and the tokenizer is built anew when that passes a limit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.corpus.texts import text_buffers
from dataaudit.corpus.tokens.spec import TokenizerFile

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]

_SLICE_BYTES = 2 * 2**20
_GROWTH_LIMIT_BYTES = 224 * 2**20
_GROWTH_PER_BYTE = 4
"""Taken for the growth where the system does not tell a process its size: half of the worst case seen."""

_STATM = Path("/proc/self/statm")


class UnsupportedModelError(Exception):
    """gigatoken cannot load this model."""


class FastEncoderFailed(Exception):
    """gigatoken gave up on a text that it should have encoded."""


class FastEncoder:
    """One gigatoken tokenizer, rebuilt when its caches have grown too far."""

    def __init__(self, file: TokenizerFile, *, growth_limit_bytes: int = _GROWTH_LIMIT_BYTES) -> None:
        self._content = file.path.read_bytes()
        self._is_sentencepiece = file.format == "sentencepiece"
        self._growth_limit_bytes = growth_limit_bytes
        self._grown_bytes = 0
        self.num_builds = 0
        self._tokenizer: Any = None
        self._build()

    def encode(self, texts: pa.LargeStringArray) -> tuple[Offsets, Ids]:
        """Encode each text by itself; returns offsets[n + 1] and ids[offsets[n]].

        Raises:
            FastEncoderFailed: gigatoken stopped in the middle.
        """
        offsets, data = text_buffers(texts)
        parts = [self._encode_slice(offsets[low : high + 1], data) for low, high in slices(offsets, _SLICE_BYTES)]
        if not parts:
            return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint32)
        if len(parts) == 1:
            return parts[0]
        counts = np.concatenate([np.diff(starts) for starts, _ in parts])
        return np.concatenate(([0], np.cumsum(counts))), np.concatenate([ids for _, ids in parts])

    def _encode_slice(self, offsets: Offsets, data: npt.NDArray[np.uint8]) -> tuple[Offsets, Ids]:
        """Encode a few megabytes and keep an eye on the memory that stays behind."""
        import awkward as ak

        if self._grown_bytes > self._growth_limit_bytes:
            self._build()
        before = _resident_bytes()
        content = ak.contents.NumpyArray(data[: offsets[-1]], parameters={"__array__": "char"})
        layout = ak.contents.ListOffsetArray(ak.index.Index64(offsets), content, parameters={"__array__": "string"})
        try:
            result = self._tokenizer.encode_batch(ak.Array(layout), parallel=False).layout
        except BaseException as error:
            if not _is_of_the_library(error):
                raise
            raise FastEncoderFailed(type(error).__name__) from error
        starts = np.asarray(result.offsets.data, dtype=np.int64)
        ids = np.asarray(result.content.data[starts[0] : starts[-1]])
        num_bytes = int(offsets[-1] - offsets[0])
        left = _resident_bytes() - before - ids.nbytes if before else _GROWTH_PER_BYTE * num_bytes
        self._grown_bytes += max(left, 0)
        return starts - starts[0], ids

    def _build(self) -> None:
        """Load the model; the old tokenizer and its caches are freed first."""
        import gigatoken

        self._tokenizer = None
        kind = gigatoken.Tokenizer
        load = kind.from_sentencepiece if self._is_sentencepiece else kind.from_json
        try:
            self._tokenizer = load(self._content)
        except BaseException as error:
            if not _is_of_the_library(error):
                raise
            raise UnsupportedModelError(type(error).__name__) from error
        self._grown_bytes = 0
        self.num_builds += 1


def _is_of_the_library(error: BaseException) -> bool:
    """Tell a failure of the library from what is not its own: Rust panics derive from BaseException, as Ctrl-C does.

    A lack of memory says nothing about the model: taken for a failure it would move a whole build to the
    reference encoder on a small machine only, and be remembered.
    """
    failed = isinstance(error, Exception) and not isinstance(error, MemoryError)
    return failed or type(error).__name__ == "PanicException"


def _resident_bytes() -> int:
    """Read the size of this process; 0 where the system does not tell."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        return 0


def slices(offsets: Offsets, max_bytes: int) -> list[tuple[int, int]]:
    """Cut rows into half-open runs of at most `max_bytes`, one row at least."""
    runs, low, num_rows = [], 0, len(offsets) - 1
    while low < num_rows:
        fits = int(np.searchsorted(offsets, offsets[low] + max_bytes, side="right")) - 1
        high = min(max(fits, low + 1), num_rows)
        runs.append((low, high))
        low = high
    return runs
