"""Texts as kernels take them: one array of bytes, and where each text begins and ends."""

import numpy as np

from dataaudit.scan.kernels.words import split_words


def buffers(texts):
    """Return uint8[bytes of all texts] and int64[texts + 1]."""
    encoded = [text if isinstance(text, bytes) else text.encode() for text in texts]
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), np.cumsum([0, *map(len, encoded)], dtype=np.int64)


def words_of(documents):
    """Return the words of documents that are lists of words."""
    return split_words(*buffers([" ".join(words) for words in documents]))
