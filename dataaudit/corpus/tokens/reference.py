"""The encoders whose answer counts: `tokenizers`, and `sentencepiece` for its own models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dataaudit.corpus.tokens.spec import TokenizerFile

Ids = npt.NDArray[np.uint32]


class ReferenceEncoder(Protocol):
    """Texts in, ids out, one array a text; special tokens are never added."""

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Encode each text by itself."""
        ...


class TokenizersReference:
    """`tokenizers`, on the calling thread."""

    def __init__(self, content: bytes) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        import tokenizers  # noqa: PLC0415 - heavy, and reads the variable above

        self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Encode each text by itself."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]


class SentencePieceReference:
    """`sentencepiece`, on the calling thread."""

    def __init__(self, content: bytes) -> None:
        import sentencepiece  # noqa: PLC0415 - heavy

        self._processor = sentencepiece.SentencePieceProcessor(model_proto=content)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Encode each text by itself."""
        return [np.array(self._processor.encode(text, out_type=int), dtype=np.uint32) for text in texts]


def load_reference(file: TokenizerFile) -> ReferenceEncoder:
    """Load the library that defines this format's ids."""
    content = file.path.read_bytes()
    return SentencePieceReference(content) if file.format == "sentencepiece" else TokenizersReference(content)
