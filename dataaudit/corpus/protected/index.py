"""The index of everything that is protected, as one file: built once, mapped by every worker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dataaudit.corpus.protected.file import map_arrays, write_arrays
from dataaudit.corpus.protected.held_out import Grams, HeldOut
from dataaudit.corpus.protected.items import Items
from dataaudit.kernels.items import SeedIndex
from dataaudit.kernels.ngrams import GramTable

_GRAMS = ("grams", "spans", "wholes")
_TABLE = ("keys", "slots", "filter")
_OF_GRAMS = ("offsets", "entries", "owner_offsets", "owners", "crowded")
_OF_ITEMS = ("sets", "numbers", "texts", "judged", "holder_offsets", "holders", "long", "rest_offsets", "rests")
_OF_SEEDS = ("post_offsets", "post_texts", "post_places", "words", "offsets", "needs")
_OF_HELD_OUT = ("shards", "rows", "num_words")


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
    """Write an index.

    Raises:
        OSError: The file cannot be written.
    """
    held, items = index.held_out, index.items
    arrays: dict[str, np.ndarray] = {f"held_out.{name}": getattr(held, name) for name in _OF_HELD_OUT}
    for kind in _GRAMS:
        grams: Grams = getattr(held, kind)
        arrays |= {f"{kind}.{name}": getattr(grams.table, name) for name in _TABLE}
        arrays |= {f"{kind}.{name}": getattr(grams, name) for name in _OF_GRAMS}
    arrays |= {f"items.{name}": getattr(items, name) for name in _OF_ITEMS}
    arrays |= {f"seeds.{name}": getattr(items.seeds.table, name) for name in _TABLE}
    arrays |= {f"seeds.{name}": getattr(items.seeds, name) for name in _OF_SEEDS}
    return IndexFile(path=path, sha256=write_arrays(path, arrays, {"sample_bits": held.sample_bits}))


def open_index(path: Path, *, check: bool = False) -> tuple[ProtectedIndex, str]:
    """Map an index; return it with its digest.

    Args:
        path: What :func:`write_index` wrote.
        check: Whether all of it is compared with its digests.

    Raises:
        DamagedIndexError: It is not as it was written.
    """
    arrays, meta, sha256 = map_arrays(path, check=check)

    def table(kind: str) -> GramTable:
        return GramTable(*(arrays[f"{kind}.{name}"] for name in _TABLE))

    def grams(kind: str) -> Grams:
        return Grams(table=table(kind), **{name: arrays[f"{kind}.{name}"] for name in _OF_GRAMS})

    seeds = SeedIndex(table("seeds"), *(arrays[f"seeds.{name}"] for name in _OF_SEEDS))
    items = Items(**{name: arrays[f"items.{name}"] for name in _OF_ITEMS}, seeds=seeds)
    shards, rows, num_words = (arrays[f"held_out.{name}"] for name in _OF_HELD_OUT)
    held_out = HeldOut(
        shards=shards,
        rows=rows,
        num_words=num_words,
        grams=grams("grams"),
        spans=grams("spans"),
        wholes=grams("wholes"),
        sample_bits=meta["sample_bits"],
    )
    return ProtectedIndex(held_out=held_out, items=items), sha256
