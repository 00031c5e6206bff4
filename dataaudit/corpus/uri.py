"""URIs of shards: relative to a root, printable, reversible, the same on every machine.

A file name may hold any byte but ``/`` and NUL. In a URI, ``%``, ``#``, ``?``, control characters, bidirectional
controls and bytes that are not UTF-8 are percent-encoded; everything else stays readable. A file that is
listed more than once is that many shards, told apart by ``#copy=2``, ``#copy=3``, ...
"""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from urllib.parse import unquote_to_bytes

_COPY = "#copy="
_ALWAYS = frozenset("%#?")
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def encode_path(relative: str) -> str:
    """Return the URI of a relative path (``os.fsdecode`` form)."""
    return "".join(_encode(character) for character in relative)


def decode_path(uri: str) -> str:
    """Return the relative path (``os.fsdecode`` form) of a URI, its copy number dropped."""
    return os.fsdecode(unquote_to_bytes(uri.partition(_COPY)[0]))


def with_copy(uri: str, copy: int) -> str:
    """Return the URI of the ``copy``-th listing of a file, counted from 1."""
    return uri if copy == 1 else f"{uri}{_COPY}{copy}"


def path_of(root: Path, uri: str) -> Path:
    """Return the file of a URI below a root."""
    return root / decode_path(uri)


def _encode(character: str) -> str:
    if character in _ALWAYS or unicodedata.category(character) in _UNSAFE_CATEGORIES:
        return "".join(f"%{byte:02X}" for byte in os.fsencode(character))
    return character
