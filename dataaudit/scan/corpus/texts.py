"""Digests of texts, as they are and in normal form.

The normal form ``nfc_space`` (version 1): Unicode NFC, every run of white space (as ``str.split`` knows it) a single
space, none at either end. Case and punctuation stay: documents that differ in them are no *exact* duplicates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING
from unicodedata import is_normalized

import numpy as np
import pyarrow as pa

from dataaudit.scan.corpus.segments import text_buffers
from dataaudit.scan.kernels.normal import collapse_spaces, normalized

if TYPE_CHECKING:
    from typing_extensions import Buffer

NORMAL_FORM = "nfc_space"
NORMAL_FORM_VERSION = "1"
DIGEST_BYTES = 16


def normal_form(text: str) -> str:
    """Return the ``nfc_space`` form of a text."""
    return " ".join(normalized("NFC", text).split())


def normal_digests(texts: pa.LargeStringArray) -> np.ndarray:
    """Return uint8[n, 16]: the first 16 bytes of the sha256 of each normal form.

    128 bits keep the chance of a false duplicate among 10^10 documents below 10^-18. A compiled kernel collapses the
    white space of all documents at once; only those that are not in NFC are normalized in Python.
    """
    offsets, data, suspect = collapse_spaces(*text_buffers(texts))
    doubtful = ((row, texts[row].as_py()) for row in np.flatnonzero(suspect).tolist())
    changed = {row: text for row, text in doubtful if not is_normalized("NFC", text)}
    values, bounds = data.data, offsets.tolist()
    forms = (
        normal_form(changed[row]).encode() if row in changed else values[start:stop]
        for row, (start, stop) in enumerate(pairwise(bounds))
    )
    return _digests(forms)


def text_digests(texts: pa.LargeStringArray) -> np.ndarray:
    """Return uint8[n, 16]: the first 16 bytes of the sha256 of each text's UTF-8, as it is."""
    return _digests(text.as_buffer() for text in texts.cast(pa.large_binary()))


def row_digests(texts: np.ndarray, source_codes: np.ndarray, source_names: tuple[str, ...]) -> np.ndarray:
    """Return uint8[n, 16]: the digest of each decoded row, its text and its source."""
    sources = _digests(b"source\0" + name.encode() for name in source_names)
    rows: np.ndarray = np.bitwise_xor(texts, sources[source_codes])
    return rows


def _digests(values: Iterable[Buffer]) -> np.ndarray:
    sha256 = hashlib.sha256
    digests = b"".join(sha256(value).digest()[:DIGEST_BYTES] for value in values)
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
