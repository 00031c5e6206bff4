"""Arrays in one file that many processes map read-only, named and vouched for by the digest of their content."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from dataaudit.atomic import replacing

_MAGIC = b"dataaudit protected 1\n".ljust(24, b"\0")
_ALIGN = 64
_FIXED = _ALIGN
"""Bytes before the head: magic, length of the head (8 bytes), sha256 of the head."""


class DamagedIndexError(Exception):
    """The file is absent, cut short or changed.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> str:
    """Write arrays and a JSON value; the file appears whole or not at all. Return the sha256 of its content, hex.

    Raises:
        OSError: The file cannot be written.
    """
    bodies = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    described, position = [], 0
    for name, array in bodies.items():
        sha256 = hashlib.sha256(array.tobytes() if array.size == 0 else array.data.cast("B")).hexdigest()
        described.append([name, array.dtype.str, list(array.shape), position, sha256])
        position += array.nbytes + -array.nbytes % _ALIGN
    head = orjson.dumps({"arrays": described, "meta": meta}, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(head)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(_MAGIC + len(head).to_bytes(8, "little") + digest.digest())
        file.write(head + bytes(-len(head) % _ALIGN))
        for array in bodies.values():
            file.write(array.tobytes() if array.size == 0 else array.data.cast("B"))
            file.write(bytes(-array.nbytes % _ALIGN))
    return digest.hexdigest()


def map_arrays(path: Path, *, check: bool) -> tuple[dict[str, np.ndarray], dict[str, Any], str]:
    """Return the arrays (read-only, mapped), the JSON value and the digest of a file.

    Args:
        path: What :func:`write_arrays` wrote.
        check: Whether every array is compared with its digest, which reads the whole file.

    Raises:
        DamagedIndexError: It is not as it was written.
    """
    try:
        with path.open("rb") as handle:
            view = memoryview(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        raise DamagedIndexError(str(path)) from None
    length = int.from_bytes(view[len(_MAGIC) : len(_MAGIC) + 8], "little")
    head = bytes(view[_FIXED : _FIXED + length])
    digest = hashlib.sha256(head)
    if bytes(view[: len(_MAGIC)]) != _MAGIC or digest.digest() != view[len(_MAGIC) + 8 : _FIXED]:
        raise DamagedIndexError(str(path))
    value = orjson.loads(head)
    start = _FIXED + length + -length % _ALIGN
    arrays = {}
    for name, kind, shape, position, expected in value["arrays"]:
        count = int(np.prod(shape, dtype=np.int64))
        size = count * np.dtype(kind).itemsize
        body = view[start + position : start + position + size]
        if len(body) != size or (check and hashlib.sha256(body).hexdigest() != expected):
            raise DamagedIndexError(str(path))
        arrays[name] = np.frombuffer(body, dtype=kind, count=count).reshape(shape)
    return arrays, value["meta"], digest.hexdigest()
