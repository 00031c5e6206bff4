"""The encoders whose answer counts: `tokenizers`, and `sentencepiece` for its own models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dataaudit.corpus.tokens.spec import TokenizerFile

Ids = npt.NDArray[np.uint32]

_BATCH_CHARS = 2**18
_LONG_CHARS = 2**19
_WINDOW_CHARS = 2**18
_OVERLAP_CHARS = 2**13
_MAX_CUTS = 8


class ReferenceEncoder(Protocol):
    """Texts in, ids out, one array a text; special tokens are never added."""

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Encode each text by itself."""
        ...


class TokenizersReference:
    """`tokenizers`, on the calling thread.

    It holds over 100 bytes a token while it works, so texts go in small batches and a very long one in
    windows, see `_encode_long`.
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
        """Encode a very long text window by window, or as a whole where no cut can be shown to be safe.

        A cut is made after a newline where the window begins a new word; it is accepted when the words after
        it come out the same seen from the window before it and from a window that begins with it.
        """
        parts, start = [], 0
        while len(text) - start > self._long_chars:
            found = self._cut(text, start)
            if found is None:
                break
            ids, start = found
            parts.append(ids)
        rest = self._tokenizer.encode_batch_fast([text[start:]], add_special_tokens=False)[0].ids
        return np.concatenate([*parts, np.array(rest, dtype=np.uint32)])

    def _cut(self, text: str, start: int) -> tuple[Ids, int] | None:
        """Find a safe cut in the window that begins at `start`: the ids before it and its place."""
        window = text[start : start + self._window_chars]
        encoding = self._tokenizer.encode(window, add_special_tokens=False)
        ids = np.array(encoding.ids, dtype=np.uint32)
        starts = np.array([low for low, _ in encoding.offsets], dtype=np.int64)
        words = np.array([-1 if word is None else word for word in encoding.word_ids], dtype=np.int64)
        first_of_word = np.concatenate(([False], np.diff(words) != 0))
        places = np.flatnonzero(first_of_word & (starts < len(window) - self._overlap_chars))[::-1]
        tried = 0
        for place in places.tolist():
            at = int(starts[place])
            if at == 0 or window[at - 1] != "\n" or window[at].isspace():
                continue
            ahead = window[at : at + self._overlap_chars]
            seen = self._tokenizer.encode_batch_fast([ahead], add_special_tokens=False)[0].ids
            # The last words of a window may be cut short, so its last eighth is not compared.
            compared = max(len(seen) * 7 // 8, 1)
            if np.array_equal(ids[place : place + compared], seen[:compared]):
                return ids[:place], start + at
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
    """Return what gives the text of tokens that are all in the vocabulary; special tokens are written out."""
    content = file.path.read_bytes()
    if file.format == "sentencepiece":
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        return lambda ids: str(processor.decode(ids))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_buffer(content)
    return lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False))


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Group texts to about a million characters, at least one text a group."""
    batch: list[str] = []
    num_chars = 0
    for text in texts:
        if batch and num_chars + len(text) > _BATCH_CHARS:
            yield batch
            batch, num_chars = [], 0
        batch.append(text)
        num_chars += len(text)
    if batch:
        yield batch
