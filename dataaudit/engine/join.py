"""Join of documents of different shards: link steps, and the partitions of the key space or of the shards they ask for.

Each link step is a generator: it yields requests for a second pass, gets the results, and returns what it found.

Each partition of a join reads the rows of its keys in every file. With a file a part that is parts times partitions,
and both grow with the corpus. So workers merge the rows of small parts first, each part's once. A partition then opens
at most :data:`MOST_FILES` files of each name, one more for each :data:`_GROUP_BYTES` of small parts, and those of
large parts.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from dataaudit.engine.plan import keys_as_text
from dataaudit.engine.runner import FILES, LinkUnit, ListedUnit, Outcome, Services, run_listed, run_stored
from dataaudit.engine.scan import as_outcome
from dataaudit.engine.store import Damage, Missing, PartialStore
from dataaudit.engine.store_entries import SMALL_BYTES, stream_of
from dataaudit.manifest.canonical import digest_json
from dataaudit.scan.cross_shard.joins import LINK_FILES, ROWS_PER_PARTITION, Join, JoinedParts, KeyedFiles, Numbered
from dataaudit.scan.cross_shard.keyed import MERGED, NUM_BYTES, PARTS, Stored, merge_rows, write_keyed
from dataaudit.scan.cross_shard.step import LinkResult, LinkStep, SecondPassRequest, SecondPassResult


def run_link_steps(
    steps: Mapping[str, LinkStep], read_again: Callable[[Sequence[SecondPassRequest]], list[SecondPassResult]]
) -> dict[str, LinkResult]:
    """Advance all link steps until each has returned, with one second read for all in every round."""
    results: dict[str, LinkResult] = {}
    asked: dict[str, Sequence[SecondPassRequest]] = {}
    for name, step in steps.items():
        _advance(name, partial(next, step), asked, results)
    while asked:
        answers = iter(read_again([request for requests in asked.values() for request in requests]))
        waiting, asked = asked, {}
        for name, requests in waiting.items():
            own = [next(answers) for _ in requests]
            _advance(name, partial(steps[name].send, own), asked, results)
    return {name: results[name] for name in steps}


def _advance(
    name: str,
    step: Callable[[], Sequence[SecondPassRequest]],
    asked: dict[str, Sequence[SecondPassRequest]],
    results: dict[str, LinkResult],
) -> None:
    try:
        asked[name] = step()
    except StopIteration as stop:
        results[name] = stop.value


MOST_FILES = 256
"""Files of one name that a partition reads before any are merged."""
_GROUP_PARTS = 1024
_GROUP_BYTES = 64 << 20
_LOCATED = 4096
_MERGED, _LISTS = "merged", "merged-of"
_VERSION = 2
_TABLE = "parts"
LISTED = pa.schema([*LINK_FILES, ("number", pa.int32())])
"""Of files of which some hold many parts: the number of the part of each, :data:`MERGED` for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """Merges the keyed rows of some parts, on a worker."""

    state: Path

    @as_outcome
    def __call__(self, unit: ListedUnit) -> Outcome:
        """Merge those of a unit and store the result."""
        missing, store = Missing(), PartialStore(self.state)
        listed = missing.read(unit.listed)
        if listed is None:
            return Outcome(damaged=tuple(missing.names))
        rows = merge_rows(listed.tables[_TABLE])
        with store.writing():
            write_keyed(store.side_path(_MERGED, unit.key, listed.meta["name"]), [rows], rows.schema)
        return Outcome()


def link_files(files: KeyedFiles, services: Services, *, fresh: bool) -> pa.Table:
    """Return what a join reads: of schema :data:`LINK_FILES`, or of :data:`LISTED` where small parts were merged."""
    numbered = Numbered.of(files)
    numbers, counts = numbered.numbers, np.bincount(files.of_name, minlength=len(files.names)).tolist()
    listing = _Listing(files, numbered, services.store, fresh)
    waiting: dict[int, list[int]] = {}
    addresses: dict[int, str] = {}
    sizes: Counter[int] = Counter()
    for places, stored in located(files, services):
        some = slice(places.start, places.stop)
        names, shards = files.of_name[some].tolist(), files.shards[some].tolist()
        for place, item, name, shard in zip(places, stored, names, shards, strict=True):
            size = item.num_bytes() if counts[name] > MOST_FILES and shard >= 0 else SMALL_BYTES
            if size >= SMALL_BYTES:
                listing.add(
                    str(item), shard, int(files.splits[place]), int(files.first_rows[place]), int(numbers[place])
                )
                continue
            group = waiting.setdefault(name, [])
            group.append(place)
            addresses[place] = str(item)
            sizes[name] += size
            if len(group) >= max(_GROUP_PARTS, -(-counts[name] // MOST_FILES)) or sizes[name] >= _GROUP_BYTES:
                listing.add_group(group, [addresses.pop(number) for number in group])
                del waiting[name], sizes[name]
    for group in waiting.values():
        listing.add_group(group, [addresses.pop(number) for number in group])
    if listing.units:
        run_listed("link-merge", Merging(state=services.store.root), listing.units, _LISTS, services)
    return listing.table()


def located(files: KeyedFiles, services: Services) -> Iterator[tuple[range, list[Stored]]]:
    """Yield the places of some files at a time, and where these lie."""
    starts = range(0, len(files), _LOCATED)
    for start in services.progress.over("lists", starts, len(files), each=_LOCATED):
        places = range(start, min(start + _LOCATED, len(files)))
        keys, of_name = keys_as_text(files.keys[start : places.stop]), files.of_name[start : places.stop]
        located_files: dict[int, Stored] = {}
        for number in np.unique(of_name).tolist():
            own = np.flatnonzero(of_name == number).tolist()
            kind, name = files.names[number]
            located_files |= zip(own, services.store.places(kind, [keys[item] for item in own], name), strict=True)
        yield places, [located_files[item] for item in range(len(places))]


class _Listing:
    """What a join reads, as it is put together."""

    def __init__(self, files: KeyedFiles, numbered: Numbered, store: PartialStore, fresh: bool) -> None:
        self._files, self._numbered, self._store, self._fresh = files, numbered, store, fresh
        self._rows: list[tuple[bytes, int, int, int, int]] = []
        self._merged = False
        self.units: list[ListedUnit] = []

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


_SHARD_BYTES = 64 << 20
"""Stored rows of the shards that a task has, if these are several."""


def run_join(join: Join, services: Services, *, fresh: bool = False) -> JoinedParts:
    """Join on the cluster what is not joined yet."""
    if not join.files:
        return JoinedParts(keys=(), tables=(), kind=join.kind)
    keys = (_join_shards if join.by_shard else _join_keys)(join, services, fresh=fresh)
    damage = Damage(services.store)
    entries = [entry.tables for key in keys if (entry := damage.read(join.kind, key)) is not None]
    damage.tell()
    return JoinedParts(keys=tuple(keys), tables=tuple(entries), kind=join.kind)


def _join_keys(join: Join, services: Services, *, fresh: bool) -> list[str]:
    """Join some keys of all files at a time; return the keys of the results."""
    store = services.store
    listed = KeyedFiles.of(join.files)
    files = listed.digest()
    partitions = min(NUM_BYTES, max(1, -(-join.rows // ROWS_PER_PARTITION)))
    bounds = [NUM_BYTES * index // partitions for index in range(partitions + 1)]
    units = [_unit(join, files, start, stop, store) for start, stop in pairwise(bounds)]
    todo = [unit for unit in units if fresh or not store.has(join.kind, unit.key)]
    if todo:
        read = link_files(listed, services, fresh=fresh)
        store.write_rows(join.kind, files, stream_of(read), FILES)
    run_stored(join.kind, link_partition, todo, "partition(s)", services)
    return [unit.key for unit in units]


def _join_shards(join: Join, services: Services, *, fresh: bool) -> list[str]:
    """Join all keys of some shards at a time; return the keys of the results."""
    listed = KeyedFiles.of(join.files)
    store, keys, todo = services.store, [], []
    for start, group in _by_shard(listed, services):
        some = listed.between(start, start + len(group))
        files = some.digest()
        unit = _unit(join, files, 0, NUM_BYTES, store)
        keys.append(unit.key)
        if fresh or not store.has(join.kind, unit.key):
            paths = [os.fsencode(str(stored)) for stored in group]
            table = pa.table([paths, some.shards, some.splits, some.first_rows], schema=LINK_FILES)
            store.write_rows(join.kind, files, stream_of(table), FILES)
            todo.append(unit)
    try:
        run_stored(join.kind, link_partition, todo, "task(s)", services)
    finally:
        for unit in todo:
            store.remove(join.kind, unit.files)
    return keys


def _by_shard(files: KeyedFiles, services: Services) -> Iterator[tuple[int, list[Stored]]]:
    """Yield where the files of some shards at a time lie, and the place of the first of these."""
    group: list[Stored] = []
    num_bytes = start = 0
    last = None
    for places, items in located(files, services):
        shards = files.shards[places.start : places.stop].tolist()
        for place, stored, shard in zip(places, items, shards, strict=True):
            size = stored.num_bytes()
            if group and last != shard and (len(group) >= MOST_FILES or num_bytes + size > _SHARD_BYTES):
                yield start, group
                group, num_bytes, start = [], 0, place
            group.append(stored)
            num_bytes, last = num_bytes + size, shard
    yield start, group


def _unit(join: Join, files: str, start: int, stop: int, store: PartialStore) -> LinkUnit:
    return LinkUnit(
        function=join.function,
        emits=dict(join.emits),
        files=files,
        start=start,
        stop=stop,
        state=store.root,
        kind=join.kind,
        key=digest_json([files, start, stop, join.identity]).removeprefix("sha256:"),
    )


@as_outcome
def link_partition(unit: LinkUnit) -> Outcome:
    """Join a partition of keyed rows and store the result."""
    store = PartialStore(unit.state)
    listed = store.read_rows(unit.kind, unit.files, FILES)
    if listed is None:
        return Outcome(damaged=(f"{unit.kind}/{unit.files}",))
    files = pa.ipc.open_stream(listed).read_all()
    joined = unit.function(files, unit.start, unit.stop)
    for name, schema in unit.emits.items():
        with store.writing():
            write_keyed(store.side_path(unit.kind, unit.key, name), [joined.keyed[name]], schema)
    for name, table in joined.rows.items():
        store.write_rows(unit.kind, unit.key, stream_of(table), name)
    store.write(unit.kind, unit.key, {}, joined.tables)
    return Outcome()
