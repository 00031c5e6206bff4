"""The index of held-out documents and evaluation items as a file: built once, mapped read-only by every worker.

The file has arrays and a JSON value, each with its sha256, and a seal of its head under its name.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import orjson

from dataaudit.base.files import DamagedFileError, replacing
from dataaudit.base.sealing import ALIGN, read_head, sealed_head
from dataaudit.scan.corpus.protected.eval_items import ItemIndex
from dataaudit.scan.corpus.protected.ngram_index import HeldOut

_MAGIC = b"dataaudit protected 6\n".ljust(24, b"\0")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> str:
    """Write arrays and a JSON value; the file appears whole or not at all. Return the sha256 of its content, hex."""
    bodies = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    described, position = [], 0
    for name, array in bodies.items():
        sha256 = hashlib.sha256(array.tobytes() if array.size == 0 else array.data.cast("B")).hexdigest()
        described.append([name, array.dtype.str, list(array.shape), position, sha256])
        position += array.nbytes + -array.nbytes % ALIGN
    head = orjson.dumps({"arrays": described, "meta": meta}, option=orjson.OPT_SORT_KEYS)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(sealed_head(_MAGIC, path.name, head))
        for array in bodies.values():
            file.write(array.tobytes() if array.size == 0 else array.data.cast("B"))
            file.write(bytes(-array.nbytes % ALIGN))
    return hashlib.sha256(head).hexdigest()


def map_arrays(path: Path, *, check: bool) -> tuple[dict[str, np.ndarray], dict[str, Any], str]:
    """Return the arrays (read-only, mapped), the JSON value and the digest of a file."""
    try:
        with path.open("rb") as handle:
            mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        raise DamagedFileError(str(path)) from None
    if (found := read_head(_MAGIC, path.name, mapped.read, len(mapped))) is None:
        raise DamagedFileError(str(path))
    (head, start), view = found, memoryview(mapped)
    value, arrays = orjson.loads(head), {}
    for name, kind, shape, position, expected in value["arrays"]:
        count = int(np.prod(shape, dtype=np.int64))
        size = count * np.dtype(kind).itemsize
        body = view[start + position : start + position + size]
        if len(body) != size or (check and hashlib.sha256(body).hexdigest() != expected):
            raise DamagedFileError(str(path))
        arrays[name] = np.frombuffer(body, dtype=kind, count=count).reshape(shape)
    return arrays, value["meta"], hashlib.sha256(head).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedIndex:
    """Held-out documents and evaluation items, indexed."""

    held_out: HeldOut
    items: ItemIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """An index on disk."""

    path: Path
    """On a file system that every worker sees."""
    sha256: str
    """Of its content, hex; part of the key of matches."""


def write_index(path: Path, index: ProtectedIndex) -> IndexFile:
    """Write an index."""
    parts = dict(_flat(index))
    arrays = {name: part for name, part in parts.items() if isinstance(part, np.ndarray)}
    meta = {name: part for name, part in parts.items() if name not in arrays}
    return IndexFile(path=path, sha256=write_arrays(path, arrays, meta))


def open_index(path: Path, *, check: bool = False) -> tuple[ProtectedIndex, str]:
    """Map an index; return it with its digest."""
    arrays, meta, sha256 = map_arrays(path, check=check)
    return _nested(ProtectedIndex, arrays | meta), sha256


def _flat(index: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a dataclass, and of dataclasses in it, by dotted name."""
    for field in fields(index):
        value, name = getattr(index, field.name), f"{prefix}{field.name}"
        if is_dataclass(value):
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _nested(kind: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    """Return the dataclass whose fields :func:`_flat` yields."""
    kinds = get_type_hints(kind)
    return kind(
        **{
            name: _nested(inner, values, f"{prefix}{name}.") if is_dataclass(inner) else values[f"{prefix}{name}"]
            for name, inner in kinds.items()
        }
    )
