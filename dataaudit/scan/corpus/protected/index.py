"""The index of everything that is protected, as one file: built once, mapped by every worker.

Arrays in one file that many processes map read-only, named and vouched for by the digest of their content.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from dataaudit.base.files import DamagedFileError, replacing
from dataaudit.base.sealing import seal
from dataaudit.scan.corpus.protected.held_out import Grams, HeldOut
from dataaudit.scan.corpus.protected.items import Items
from dataaudit.scan.kernels.items import SeedIndex
from dataaudit.scan.kernels.ngrams import GramTable
from dataaudit.scan.kernels.overlap import Owners

_MAGIC = b"dataaudit protected 5\n".ljust(24, b"\0")
_ALIGN = 64
_FIXED = _ALIGN
"""Bytes before the head: magic, length of the head (8 bytes), seal of the name and the head."""


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> str:
    """Write arrays and a JSON value; the file appears whole or not at all. Return the sha256 of its content, hex."""
    bodies = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    described, position = [], 0
    for name, array in bodies.items():
        sha256 = hashlib.sha256(array.tobytes() if array.size == 0 else array.data.cast("B")).hexdigest()
        described.append([name, array.dtype.str, list(array.shape), position, sha256])
        position += array.nbytes + -array.nbytes % _ALIGN
    head = orjson.dumps({"arrays": described, "meta": meta}, option=orjson.OPT_SORT_KEYS)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(_MAGIC + len(head).to_bytes(8, "little") + _head_digest(path, head))
        file.write(head + bytes(-len(head) % _ALIGN))
        for array in bodies.values():
            file.write(array.tobytes() if array.size == 0 else array.data.cast("B"))
            file.write(bytes(-array.nbytes % _ALIGN))
    return hashlib.sha256(head).hexdigest()


def map_arrays(path: Path, *, check: bool) -> tuple[dict[str, np.ndarray], dict[str, Any], str]:
    """Return the arrays (read-only, mapped), the JSON value and the digest of a file."""
    try:
        with path.open("rb") as handle:
            view = memoryview(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        raise DamagedFileError(str(path)) from None
    length = int.from_bytes(view[len(_MAGIC) : len(_MAGIC) + 8], "little")
    head = bytes(view[_FIXED : _FIXED + length])
    if bytes(view[: len(_MAGIC)]) != _MAGIC or _head_digest(path, head) != view[len(_MAGIC) + 8 : _FIXED]:
        raise DamagedFileError(str(path))
    value = orjson.loads(head)
    start = _FIXED + length + -length % _ALIGN
    arrays = {}
    for name, kind, shape, position, expected in value["arrays"]:
        count = int(np.prod(shape, dtype=np.int64))
        size = count * np.dtype(kind).itemsize
        body = view[start + position : start + position + size]
        if len(body) != size or (check and hashlib.sha256(body).hexdigest() != expected):
            raise DamagedFileError(str(path))
        arrays[name] = np.frombuffer(body, dtype=kind, count=count).reshape(shape)
    return arrays, value["meta"], hashlib.sha256(head).hexdigest()


def _head_digest(path: Path, head: bytes) -> bytes:
    """Return the digest of a head under its name: an index of other sets and documents is not this index."""
    return seal(os.fsencode(f"{path.name}\n") + head).digest()


_GRAMS = ("grams", "spans", "wholes")
_TABLE = ("keys", "slots", "filter")
_OF_GRAMS = ("offsets", "entries", "is_first", "sizes", "owner_offsets", "owner_places", "owners", "crowded")
_OF_ITEMS = tuple(field.name for field in fields(Items) if field.name != "seeds")
_OF_SEEDS = ("post_offsets", "post_texts", "post_places", "words", "offsets", "needs")
_OF_HELD_OUT = ("shards", "rows", "num_words", "places", "telling")
_OF_PHRASES = ("owner_offsets", "owners", "owner_places", "offsets", "sizes", "needs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedIndex:
    """Held-out documents and evaluation items, as they are looked for."""

    held_out: HeldOut
    """Documents of held-out splits."""
    items: Items
    """Items of evaluation sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """Where an index lies, and what it is."""

    path: Path
    """On a file system that every worker sees."""
    sha256: str
    """Of its content, hex; part of the key of what is found with it."""


def write_index(path: Path, index: ProtectedIndex) -> IndexFile:
    """Write an index."""
    held, items = index.held_out, index.items
    arrays: dict[str, np.ndarray] = {f"held_out.{name}": getattr(held, name) for name in _OF_HELD_OUT}
    for kind in _GRAMS:
        grams: Grams = getattr(held, kind)
        arrays |= {f"{kind}.{name}": getattr(grams.table, name) for name in _TABLE}
        arrays |= {f"{kind}.{name}": getattr(grams, name) for name in _OF_GRAMS}
    arrays |= {f"phrases.{name}": getattr(held.phrases.table, name) for name in _TABLE}
    arrays |= {f"phrases.{name}": getattr(held.phrases, name) for name in _OF_PHRASES}
    arrays |= {f"items.{name}": getattr(items, name) for name in _OF_ITEMS}
    arrays |= {f"seeds.{name}": getattr(items.seeds.table, name) for name in _TABLE}
    arrays |= {f"seeds.{name}": getattr(items.seeds, name) for name in _OF_SEEDS}
    return IndexFile(path=path, sha256=write_arrays(path, arrays, {"sample_bits": held.sample_bits}))


def open_index(path: Path, *, check: bool = False) -> tuple[ProtectedIndex, str]:
    """Map an index; return it with its digest."""
    arrays, meta, sha256 = map_arrays(path, check=check)

    def table(kind: str) -> GramTable:
        return GramTable(*(arrays[f"{kind}.{name}"] for name in _TABLE))

    def grams(kind: str) -> Grams:
        return Grams(table=table(kind), **{name: arrays[f"{kind}.{name}"] for name in _OF_GRAMS})

    seeds = SeedIndex(table("seeds"), *(arrays[f"seeds.{name}"] for name in _OF_SEEDS))
    items = Items(**{name: arrays[f"items.{name}"] for name in _OF_ITEMS}, seeds=seeds)
    held_out = HeldOut(
        **{name: arrays[f"held_out.{name}"] for name in _OF_HELD_OUT},
        grams=grams("grams"),
        spans=grams("spans"),
        wholes=grams("wholes"),
        phrases=Owners(table=table("phrases"), **{name: arrays[f"phrases.{name}"] for name in _OF_PHRASES}),
        sample_bits=meta["sample_bits"],
    )
    return ProtectedIndex(held_out=held_out, items=items), sha256
