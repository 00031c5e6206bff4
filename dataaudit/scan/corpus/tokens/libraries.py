"""The encoders: gigatoken over Arrow buffers, and the references `tokenizers` and `sentencepiece`.

gigatoken works without copies, on one thread. It keeps every distinct piece of text, about 80 bytes each, as long as
the tokenizer lives: few in natural text, ever more in text of random words. So the growth of the process during its
calls is added up, and the tokenizer is built anew when that exceeds a limit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.scan.corpus.segments import Offsets, bounds_of, runs, text_buffers
from dataaudit.scan.corpus.tokens.spec import TokenizerFile

Ids = npt.NDArray[np.uint32]
_SLICE_BYTES = 2 * 2**20
_GROWTH_LIMIT_BYTES = 224 * 2**20
_GROWTH_PER_BYTE = 4
"""Assumed growth where the system does not report the size of a process: half of the worst case seen."""

_STATM = Path("/proc/self/statm")


class UnsupportedModelError(Exception):
    """gigatoken cannot load this model."""


class FastEncoderFailed(Exception):
    """gigatoken failed on a text."""


class FastEncoder:
    """A gigatoken tokenizer, rebuilt when its caches have grown too far."""

    def __init__(self, file: TokenizerFile, *, growth_limit_bytes: int = _GROWTH_LIMIT_BYTES) -> None:
        self._content = file.path.read_bytes()
        self._is_sentencepiece = file.format == "sentencepiece"
        self._growth_limit_bytes = growth_limit_bytes
        self._grown_bytes = 0
        self.num_builds = 0
        self._tokenizer: Any = None
        self._build()

    def encode(self, texts: pa.LargeStringArray) -> tuple[Offsets, Ids]:
        """Encode each text by itself; returns offsets[n + 1] and ids[offsets[n]]."""
        offsets, data = text_buffers(texts)
        parts = [self._encode_slice(offsets[low : high + 1], data) for low, high in runs(offsets, _SLICE_BYTES)]
        if not parts:
            return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint32)
        if len(parts) == 1:
            return parts[0]
        counts = np.concatenate([np.diff(starts) for starts, _ in parts])
        return bounds_of(counts), np.concatenate([ids for _, ids in parts])

    def _encode_slice(self, offsets: Offsets, data: npt.NDArray[np.uint8]) -> tuple[Offsets, Ids]:
        """Encode a few megabytes, and add up the memory that stays behind."""
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
    """Tell a failure of the library from others: Rust panics derive from BaseException, as Ctrl-C does.

    A lack of memory is no failure of the model: on a small machine it would move a build to the reference encoder.
    """
    failed = isinstance(error, Exception) and not isinstance(error, MemoryError)
    return failed or type(error).__name__ == "PanicException"


def _resident_bytes() -> int:
    """Read the size of this process; 0 where the system does not report it."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        return 0


_BATCH_CHARS = 2**18
_LONG_CHARS = 2**19
_WINDOW_CHARS = 2**18
_OVERLAP_CHARS = 2**13
_MAX_CUTS = 8


class ReferenceEncoder(Protocol):
    """Texts in, ids out, an array a text; special tokens are never added."""

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Encode each text by itself."""


class TokenizersReference:
    """`tokenizers`, on the calling thread.

    It needs over 100 bytes a token, so texts go in small batches, and a very long text in windows.
    """

    def __init__(self, content: bytes, *, long_chars: int = _LONG_CHARS, window_chars: int = _WINDOW_CHARS) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        import tokenizers

        self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._long_chars = long_chars
        self._window_chars = window_chars
        self._overlap_chars = min(_OVERLAP_CHARS, window_chars // 4)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Encode each text by itself."""
        answers: list[Ids] = []
        for batch in _batches(texts):
            if len(batch) == 1 and len(batch[0]) > self._long_chars:
                answers.append(self._encode_long(batch[0]))
                continue
            encodings = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            answers += [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]
        return answers

    def _encode_long(self, text: str) -> Ids:
        """Encode a very long text window by window, or as a whole where no cut is shown to be safe.

        A cut is made after a newline where the window begins a new word. It is safe when the words after it are the
        same seen from the window before it and from a window that begins with it.
        """
        parts, start = [], 0
        while len(text) - start > self._long_chars and (cut := self._cut(text, start)) is not None:
            ids, start = cut
            parts.append(ids)
        rest = self._tokenizer.encode_batch_fast([text[start:]], add_special_tokens=False)[0].ids
        return np.concatenate([*parts, np.array(rest, dtype=np.uint32)])

    def _cut(self, text: str, start: int) -> tuple[Ids, int] | None:
        """Return the ids before a safe cut in the window that begins at ``start``, and its position."""
        window = text[start : start + self._window_chars]
        encoding = self._tokenizer.encode(window, add_special_tokens=False)
        ids = np.array(encoding.ids, dtype=np.uint32)
        starts = np.array([low for low, _ in encoding.offsets], dtype=np.int64)
        words = np.array([-1 if word is None else word for word in encoding.word_ids], dtype=np.int64)
        first_of_word = np.concatenate(([False], np.diff(words) != 0))
        indices = np.flatnonzero(first_of_word & (starts < len(window) - self._overlap_chars))[::-1]
        tried = 0
        for index in indices.tolist():
            at = int(starts[index])
            if at == 0 or window[at - 1] != "\n" or window[at].isspace():
                continue
            ahead = window[at : at + self._overlap_chars]
            seen = self._tokenizer.encode_batch_fast([ahead], add_special_tokens=False)[0].ids
            # The last words of a window may be cut short, so its last eighth is not compared.
            compared = max(len(seen) * 7 // 8, 1)
            if np.array_equal(ids[index : index + compared], seen[:compared]):
                return ids[:index], start + at
            tried += 1
            if tried == _MAX_CUTS:
                break
        return None


class SentencePieceReference:
    """`sentencepiece`, on the calling thread."""

    def __init__(self, content: bytes) -> None:
        import sentencepiece

        self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Encode each text by itself."""
        answers: list[Ids] = []
        for batch in _batches(texts):
            rows = self._processor.encode(batch, out_type=int, num_threads=1)
            answers += [np.array(row, dtype=np.uint32) for row in rows]
        return answers


def load_reference(file: TokenizerFile) -> ReferenceEncoder:
    """Load the library that defines this format's ids."""
    content = file.path.read_bytes()
    return SentencePieceReference(content) if file.format == "sentencepiece" else TokenizersReference(content)


def load_decoder(file: TokenizerFile) -> Callable[[list[int]], str]:
    """Return a function from ids of the vocabulary to their text; special tokens are written out."""
    content = file.path.read_bytes()
    if file.format == "sentencepiece":
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        return lambda ids: str(processor.decode(ids))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_buffer(content)
    return lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False))


def _batches(texts: Sequence[str]) -> list[list[str]]:
    """Group texts to about a quarter of a million characters, or a single text."""
    return [list(texts[low:high]) for low, high in runs(bounds_of([len(text) for text in texts]), _BATCH_CHARS)]
