"""The buffers of an Arrow array of texts, as kernels take them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Offsets = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def text_buffers(texts: pa.LargeStringArray) -> tuple[Offsets, Bytes]:
    """View int64[n + 1] offsets (from 0) and uint8[offsets[n]] bytes of an array without nulls, slices included."""
    if len(texts) == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64, count=len(texts) + 1, offset=8 * texts.offset)
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.zeros(0, dtype=np.uint8)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]
