"""Before a join: the keyed rows of many small parts are merged into few files, so that no partition opens them all.

Each partition of a join reads the rows of its keys in every file. With a file a part that is parts times partitions,
and both grow with the corpus. So the rows of small parts that follow each other are merged on the workers first, each
part's once, and what a partition opens is bounded: at most :data:`MOST_FILES` files of each name, one more for each
:data:`_GROUP_BYTES` of small parts, and the parts that are large.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from dataaudit.engine.keys import keys_as_text
from dataaudit.engine.listed import ListedUnit, run_listed
from dataaudit.engine.packs import SMALL_BYTES
from dataaudit.engine.partials import Missing
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.store import PartialStore
from dataaudit.engine.units import Outcome
from dataaudit.engine.work import as_value
from dataaudit.link.joins import LINK_FILES, KeyedFiles, Numbered
from dataaudit.link.keyed import write_keyed
from dataaudit.link.merged import MERGED, PARTS, merge_rows
from dataaudit.link.stored import Stored

MOST_FILES = 256
"""Files of one name that a partition reads before any are merged."""
_GROUP_PARTS = 1024
_GROUP_BYTES = 64 << 20
_LOCATED = 4096
"""Files that are looked up at a time."""
_MERGED, _LISTS = "merged", "merged-of"
_VERSION = 2
"""Changes with what is stored."""
_TABLE = "parts"
LISTED = pa.schema([*LINK_FILES, ("number", pa.int32())])
"""Of files of which some hold many parts: the number of the part of each, :data:`MERGED` for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """Merges the keyed rows of some parts, on a worker."""

    state: Path

    def __call__(self, unit: ListedUnit) -> Outcome:
        """Merge those of one unit and store the result."""
        return as_value(lambda: self._merge(unit))

    def _merge(self, unit: ListedUnit) -> Outcome:
        missing, store = Missing(), PartialStore(self.state)
        listed = missing.read(unit.listed)
        if listed is None:
            return Outcome(damaged=tuple(missing.names))
        rows = merge_rows(listed.tables[_TABLE])
        with store.writing():
            write_keyed(store.side_path(_MERGED, unit.key, listed.meta["name"]), [rows], rows.schema)
        return Outcome()


def link_files(files: KeyedFiles, store: PartialStore, runner: Runner, progress: Progress, *, fresh: bool) -> pa.Table:
    """Return what a join reads: of schema :data:`LINK_FILES`, or of :data:`LISTED` where small parts were merged.

    Args:
        files: What is joined.
        store: Where keyed rows are, and merged ones go.
        runner: Where to merge.
        progress: Where to report.
        fresh: Merge again what was merged before.

    Raises:
        ClusterError: The work cannot be done on these workers.
        DamagedEntryError: Keyed rows are absent or damaged.
    """
    numbered = Numbered.of(files)
    numbers, counts = numbered.numbers, np.bincount(files.of_name, minlength=len(files.names)).tolist()
    listing = _Listing(files, numbered, store, fresh)
    held: dict[int, list[int]] = {}
    addresses: dict[int, str] = {}
    sizes: Counter[int] = Counter()
    for places, stored in located(files, store, progress):
        some = slice(places.start, places.stop)
        names, shards = files.of_name[some].tolist(), files.shards[some].tolist()
        for place, one, name, shard in zip(places, stored, names, shards, strict=True):
            size = one.num_bytes() if counts[name] > MOST_FILES and shard >= 0 else SMALL_BYTES
            if size >= SMALL_BYTES:
                listing.add(
                    str(one), shard, int(files.splits[place]), int(files.first_rows[place]), int(numbers[place])
                )
                continue
            group = held.setdefault(name, [])
            group.append(place)
            addresses[place] = str(one)
            sizes[name] += size
            if len(group) >= max(_GROUP_PARTS, -(-counts[name] // MOST_FILES)) or sizes[name] >= _GROUP_BYTES:
                listing.add_group(group, [addresses.pop(one) for one in group])
                del held[name], sizes[name]
    for group in held.values():
        listing.add_group(group, [addresses.pop(one) for one in group])
    if listing.units:
        run_listed("link-merge", Merging(state=store.root), listing.units, _LISTS, store, runner, progress)
    return listing.table()


def located(files: KeyedFiles, store: PartialStore, progress: Progress) -> Iterator[tuple[range, list[Stored]]]:
    """Yield the places of some files at a time, and where these lie."""
    starts = range(0, len(files), _LOCATED)
    for start in progress.over("lists", starts, len(files), each=_LOCATED):
        places = range(start, min(start + _LOCATED, len(files)))
        keys, of_name = keys_as_text(files.keys[start : places.stop]), files.of_name[start : places.stop]
        found: dict[int, Stored] = {}
        for number in np.unique(of_name).tolist():
            own = np.flatnonzero(of_name == number).tolist()
            kind, name = files.names[number]
            found |= zip(own, store.places(kind, [keys[one] for one in own], name), strict=True)
        yield places, [found[one] for one in range(len(places))]


class _Listing:
    """What a join reads, as it is put together."""

    def __init__(self, files: KeyedFiles, numbered: Numbered, store: PartialStore, fresh: bool) -> None:
        self._files, self._numbered, self._store, self._fresh = files, numbered, store, fresh
        self._rows: list[tuple[bytes, int, int, int, int]] = []
        self._merged = False
        self.units: list[ListedUnit] = []
        """What is not merged yet."""

    def add(self, address: str, shard: int, split: int, first_row: int, number: int) -> None:
        """List a file."""
        self._rows.append((os.fsencode(address), shard, split, first_row, number))

    def add_group(self, group: list[int], addresses: list[str]) -> None:
        """List the file that files are merged into."""
        key, name, columns = self._key(group)
        merged = self._store.side_path(_MERGED, key, name)
        if self._fresh or not merged.exists():
            parts = {"path": [os.fsencode(address) for address in addresses]}
            parts |= dict(zip(PARTS.names, columns, strict=True))
            table = pa.table(parts, schema=pa.schema([LINK_FILES.field("path"), *PARTS]))
            self._store.write(_LISTS, key, {"name": name}, {_TABLE: table})
            self.units.append(ListedUnit(key=key, listed=self._store.address(_LISTS, key)))
        self.add(str(merged), MERGED, MERGED, 0, MERGED)
        self._merged = True

    def _key(self, group: list[int]) -> tuple[str, str, list[np.ndarray]]:
        """Return the digest of all that decides the merged rows of some parts, their name, and what is said of them."""
        first, columns = self._files[group[0]], self._numbered.columns(self._files, group)
        state = hashlib.sha256(orjson.dumps([_VERSION, first.kind, first.name]))
        state.update(self._files.keys[group].tobytes())
        for column in columns:
            state.update(column.astype("<i8").tobytes())
        return state.hexdigest(), first.name, columns

    def table(self) -> pa.Table:
        """Return all of it."""
        schema = LISTED if self._merged else LINK_FILES
        columns = [list(column) for column in zip(*self._rows, strict=True)] or [[]] * len(LISTED)
        return pa.table(columns[: len(schema)], schema=schema)
