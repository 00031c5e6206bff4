"""gigatoken over Arrow buffers: no copy in, no copy out, one thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.corpus.tokens.spec import TokenizerFile

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]


class UnsupportedModelError(Exception):
    """gigatoken cannot load this model."""


class FastEncoder:
    """One gigatoken tokenizer."""

    def __init__(self, file: TokenizerFile) -> None:
        import gigatoken  # noqa: PLC0415 - heavy

        content = file.path.read_bytes()
        kind = gigatoken.Tokenizer
        try:
            self._tokenizer = (
                kind.from_sentencepiece(content)
                if file.format == "sentencepiece"
                else kind.from_json(content)
            )
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise UnsupportedModelError(str(error)) from None

    def encode(self, texts: pa.LargeStringArray) -> tuple[Offsets, Ids]:
        """Encode each text by itself; returns offsets[n + 1] and ids[offsets[-1]]."""
        import awkward as ak  # noqa: PLC0415 - heavy

        if len(texts) == 0:
            return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint32)
        offsets, data = text_buffers(texts)
        content = ak.contents.NumpyArray(data, parameters={"__array__": "char"})
        layout = ak.contents.ListOffsetArray(
            ak.index.Index64(offsets), content, parameters={"__array__": "string"}
        )
        result = self._tokenizer.encode_batch(ak.Array(layout), parallel=False).layout
        starts = np.asarray(result.offsets.data, dtype=np.int64)
        ids = np.asarray(result.content.data[starts[0] : starts[-1]])
        return starts - starts[0], ids


def text_buffers(texts: pa.LargeStringArray) -> tuple[Offsets, npt.NDArray[np.uint8]]:
    """View the offsets[n + 1] (from 0) and bytes of an Arrow array, slices included."""
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64, count=len(texts) + 1, offset=8 * texts.offset)
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else np.zeros(0, dtype=np.uint8)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]
