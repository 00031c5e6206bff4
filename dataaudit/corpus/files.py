"""How a shard's bytes are opened: the one place that knows what a path may be."""

from __future__ import annotations

import os
from typing import BinaryIO

import pyarrow as pa


def open_binary(path: str, *, buffer_bytes: int = 0) -> BinaryIO:
    """Open a file for reading; without a buffer, reads go straight to the file system.

    Raises:
        OSError: It cannot be opened.
    """
    return open(path, "rb", buffering=buffer_bytes)


def arrow_source(path: str) -> str | pa.NativeFile:
    """Return what Arrow opens: a path, or for a name that is no UTF-8 (Arrow takes none) an open file."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return pa.OSFile(os.fsencode(path))
    return path
