"""Plan of all shards, in columns on disk: a shard or a unit of the scan becomes an object when it is asked for."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dataaudit.base.lazy import LazySequence
from dataaudit.engine.plan import PartKeys, PlannedPart, PlannedShard, keys_as_text
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import READING, Probe, ScanUnit
from dataaudit.engine.store import PartialStore
from dataaudit.engine.store_columns import Codes, RowWriter, TextWriter, Values, first_of_equal, packed
from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.readers import ReadRequest
from dataaudit.scan.corpus.shards import Shard
from dataaudit.scan.corpus.storage.address import Access, RemotePath, RemoteStat
from dataaudit.scan.corpus.storage.files import FileStat
from dataaudit.scan.corpus.storage.hub import RowsPath

_MOST_SUBSTITUTES = 2
_STORE_PARTS = 1024
_KEPT = 8
"""Shards that parts were asked of last."""
_SHARD = np.dtype([("ordinal", "<i8"), ("kind", "<u4"), ("size", "<i8"), ("parts", "<i8")])
_PART = np.dtype([("reading", "V32"), ("shard", "<i8")])


class ShardKind(NamedTuple):
    """What many shards of a plan have in common."""

    split: str
    reason: Reason | None
    meant: bool
    probed: bool
    streamed: bool
    """They are of a dataset that is streamed."""
    stages: tuple[str, ...]
    """Names of the stages that look at them."""
    fields: FieldRule | None
    batch_bytes: int


class Plan(LazySequence[PlannedShard]):
    """All shards as planned."""

    def __init__(
        self,
        planned: Iterable[PlannedShard],
        shards: Sequence[Shard],
        probe: Callable[[int], Probe | None],
        identities: Mapping[str, str],
        folder: Path,
    ) -> None:
        self._shards, self._probe, self._identities = shards, probe, identities
        self._kinds = Codes[ShardKind]()
        self._places: dict[int, str] = {}
        self._without: dict[int, frozenset[int]] = {}
        self._kept: dict[int, PlannedShard] = {}
        rows, parts, number = RowWriter(folder, _SHARD), RowWriter(folder, _PART), 0
        for place, planned_shard in enumerate(planned):
            shard, probed = planned_shard.shard, planned_shard.probe
            for part in planned_shard.parts:
                parts.append((bytes.fromhex(part.reading_key), place))
                if part.request.without:
                    self._without[number] = part.request.without
                number += 1
            if planned_shard.place:
                self._places[place] = planned_shard.place
            request = planned_shard.parts[-1].request if planned_shard.parts else None
            kind = ShardKind(
                split=shard.split,
                reason=planned_shard.reason,
                meant=shard.skip is not None or planned_shard.reason == Reason.QUARANTINE_LIST,
                probed=probed is not None,
                streamed=shard.format == "datasets",
                stages=planned_shard.stages,
                fields=request.fields if request else None,
                batch_bytes=request.batch_bytes if request else 0,
            )
            rows.append((shard.ordinal, self._kinds.of(kind), probed.stat.size if probed else shard.size, number))
        rows_, self.parts = rows.done(), parts.done()
        self._ordinals, self._kind, self._sizes, self._ends = (rows_[name] for name in _SHARD.names or ())
        self._readings = self.parts["reading"]

    def __len__(self) -> int:
        return len(self._kind)

    def item(self, place: int) -> PlannedShard:
        """Make an item."""
        kind, shard = self.kind(place), self._shards[place]
        probe = self._probe(place) if kind.probed else None
        parts = []
        for keys, without, part in zip(
            self.keys(place), self._without_of(place), probe.parts if probe else (), strict=False
        ):
            assert kind.fields is not None
            request = ReadRequest.of(shard, part, kind.fields, kind.batch_bytes, without=without)
            parts.append(PlannedPart(request=request, reading_key=keys.reading, stage_keys=keys))
        return PlannedShard(
            shard=shard,
            probe=probe,
            parts=tuple(parts),
            reason=kind.reason,
            place=self.where(place),
            stages=kind.stages,
        )

    def kind(self, place: int) -> ShardKind:
        """Return what a shard has in common with others."""
        return self._kinds.values[int(self._kind[place])]

    def ordinal(self, place: int) -> int:
        """Return a shard's row in the table of shards."""
        return int(self._ordinals[place])

    def size(self, place: int) -> int:
        """Return the stored bytes of a shard, as far as the file system knew."""
        return int(self._sizes[place])

    def where(self, place: int) -> str:
        """Return where the reason for which a shard is not read was seen."""
        return self._places.get(place, "")

    def excludes(self, place: int) -> bool:
        """Tell whether single documents of a shard are quarantined."""
        return bool(self._without) and any(self._without_of(place))

    def _without_of(self, place: int) -> list[frozenset[int]]:
        return [self._without.get(number, frozenset()) for number in range(*self.part_range(place))]

    def part_range(self, place: int) -> tuple[int, int]:
        """Return the numbers, in all shards, of a shard's first part and of the one after its last."""
        return int(self._ends[place - 1]) if place else 0, int(self._ends[place])

    def part_keys(self, number: int, stages: tuple[str, ...]) -> PartKeys:
        """Return the keys of a part, by its number in all shards."""
        without = tuple(sorted(self._without.get(number, ())))
        return PartKeys(self._readings[number].tobytes().hex(), stages, self._identities, without)

    def keys(self, place: int) -> list[PartKeys]:
        """Return the keys of each part of a shard."""
        stages = self.kind(place).stages
        return [self.part_keys(number, stages) for number in range(*self.part_range(place))]

    def reading_keys(self, place: int) -> list[str]:
        """Return, of each part of a shard, the key of what reading it gives."""
        start, stop = self.part_range(place)
        return keys_as_text(self._readings[start:stop])

    def part(self, number: int) -> tuple[PlannedShard, PlannedPart]:
        """Return a part with its shard, by its number in all shards."""
        place = int(self.parts["shard"][number])
        if place not in self._kept:  # all parts of a file are made at once, and asked for one after the other
            if len(self._kept) == _KEPT:
                self._kept.clear()
            self._kept[place] = self[place]
        return self._kept[place], self._kept[place].parts[number - self.part_range(place)[0]]

    def part_sizes(self, numbers: np.ndarray) -> np.ndarray:
        """Return int64[n] stored bytes of parts: those of a file are of about the same size."""
        shards = self.parts["shard"][numbers]
        counts = np.diff(self._ends, prepend=0)[shards]
        sizes: np.ndarray = self._sizes[shards] // np.maximum(counts, 1)
        return sizes

    def has_stage(self, numbers: np.ndarray, stage: str) -> np.ndarray:
        """Tell of some parts, by their numbers, int64[n], whether a stage looks at them, bool[n]."""
        having = np.array([stage in kind.stages for kind in self._kinds.values], dtype=bool)
        looking: np.ndarray = having[self._kind[self.parts["shard"][numbers]]]
        return looking

    def shards_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, of some parts, int64[n], the ordinals of their shards and the places of their splits in order."""
        shards, splits = self.parts["shard"][numbers], [kind.split for kind in self._kinds.values]
        order = {split: at for at, split in enumerate(sorted(set(splits)))}
        ranks = np.array([order[split] for split in splits], dtype=np.int64)
        return self._ordinals[shards], ranks[self._kind[shards]]

    @cached_property
    def firsts(self) -> np.ndarray:
        """int64[n]: of each part, the first one of equal content."""
        words = np.ascontiguousarray(self.parts["reading"]).view("<u8").reshape(-1, 4)
        return first_of_equal(words[:, :2])

    @cached_property
    def _copies(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the parts that are not the first of their content, in order of the first, and these."""
        copies = np.flatnonzero(self.firsts != np.arange(len(self.firsts)))
        copies = copies[np.argsort(self.firsts[copies], kind="stable")]
        return copies, self.firsts[copies]

    def substitutes(self, number: int) -> tuple[tuple[str, FileStat], ...]:
        """Return other files with the same bytes as a part that is the first of its content."""
        copies, firsts = self._copies
        start, stop = np.searchsorted(firsts, [number, number + 1]).tolist()
        path, substitutes = self.part(number)[1].request.path, dict[str, FileStat]()
        for copy in copies[start:stop].tolist():
            if len(substitutes) == _MOST_SUBSTITUTES:
                break
            planned, part = self.part(copy)
            if planned.probe is not None and part.request.path != path:
                substitutes[part.request.path] = planned.probe.stat
        return tuple(substitutes.items())


class ScanUnits(LazySequence[ScanUnit]):
    """Parts of which something is missing in the store, each made a unit of work when it is asked for.

    ``numbers`` are the parts, each the first of its content; ``missing`` numbers in ``names`` the stages that miss.
    """

    def __init__(self, plan: Plan, numbers: np.ndarray, missing: np.ndarray, names: Sequence[tuple[str, ...]]) -> None:
        self._plan, self._numbers, self._missing, self._names = plan, numbers, missing, names
        self.sizes = plan.part_sizes(numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def item(self, place: int) -> ScanUnit:
        """Make an item."""
        number = int(self._numbers[place])
        planned, part = self._plan.part(number)
        assert planned.probe is not None
        keys, names = part.stage_keys, self._names[self._missing[place]]
        return ScanUnit(
            request=part.request,
            stat=planned.probe.stat,
            sha256=planned.probe.sha256,
            reading_key=part.reading_key,
            stage_keys=keys if len(names) == len(keys) else tuple((name, keys[name]) for name in names),
            size=int(self.sizes[place]),
            substitutes=self._plan.substitutes(number),
        )

    def reading_key(self, place: int) -> str:
        """Return the key of what reading the part of a unit gives."""
        return self._plan.part_keys(int(self._numbers[place]), ()).reading


def missing_units(
    plan: Plan, store: PartialStore, progress: Progress, *, fresh: bool, of: np.ndarray | None = None
) -> ScanUnits:
    """Return a unit for every part with something missing in the store; equal parts are read once."""
    firsts, names = plan.firsts, Codes[tuple[str, ...]]()
    wanted = firsts == np.arange(len(firsts))
    if of is not None:
        wanted = np.zeros(len(firsts), dtype=bool)
        wanted[firsts[np.isin(plan.parts["shard"], of)]] = True
    numbers, missing = array("q"), array("q")
    asked = np.flatnonzero(wanted)
    starts = range(0, len(asked), _STORE_PARTS)
    for start in progress.over("plan", starts, len(asked), each=_STORE_PARTS):
        some = asked[start : start + _STORE_PARTS].tolist()
        keys = [plan.part_keys(number, plan.kind(int(plan.parts["shard"][number])).stages) for number in some]
        read = [False] * len(some) if fresh else store.have(READING, [own.reading for own in keys])
        for number, own, absent, known in zip(some, keys, _absent(keys, store, fresh=fresh), read, strict=True):
            if absent and known and _known_unreadable(store, own.reading):
                continue
            if absent or not known:
                numbers.append(number)
                missing.append(names.of(absent))
    return ScanUnits(plan, np.array(numbers, dtype=np.int64), np.array(missing, dtype=np.int64), names.values)


def _absent(keys: Sequence[PartKeys], store: PartialStore, *, fresh: bool) -> list[tuple[str, ...]]:
    """Return the stages whose partials of each part are not in the store."""
    if fresh:
        return [own.stages for own in keys]
    missing: list[list[str]] = [[] for _ in keys]
    stages = dict.fromkeys(name for own in keys for name in own.stages)
    for name in stages:
        places = [place for place, own in enumerate(keys) if name in own]
        for place, has in zip(places, store.have(name, [keys[place][name] for place in places]), strict=True):
            if not has:
                missing[place].append(name)
    return [tuple(name for name in own.stages if name in absent) for own, absent in zip(keys, missing, strict=True)]


def _known_unreadable(store: PartialStore, key: str) -> bool:
    """Tell whether these very bytes were read before and are damaged; reading them again shows the same."""
    entry = store.read(READING, key)
    return entry is not None and bool(entry.meta["reason"])


_LIGHT = np.dtype([("split", "<u4"), ("size", "<i8"), ("read", "?"), ("file", "<u8", (2,))])
"""Number of its split, stored bytes, whether it is to be read, and the beginning of the digest of its path."""


class ShardList(LazySequence[Shard]):
    """Shards in order."""

    def __init__(self, shards: Iterable[Shard], folder: Path) -> None:
        self._access, self._rows, self._splits = Codes[Access](), Codes[RowsPath](), Codes[str]()
        self._secret = Codes[str]()  # addresses with secrets stay in memory: nothing of these goes to disk
        texts, light = TextWriter(folder), RowWriter(folder, _LIGHT)
        for shard in shards:
            texts.append(packed(self._plain(shard)))
            file = hashlib.blake2b(os.fsencode(shard.path), digest_size=16).digest()
            split = self._splits.of(shard.split)
            light.append((split, shard.size, shard.skip is None, (int.from_bytes(file[:8]), int.from_bytes(file[8:]))))
        self._shards = Values(texts.done(), self._made)
        self.light = light.done()
        """Of each, of a structured dtype, ``size`` int64 and ``read`` bool: nothing says that it is not to be read."""

    def __len__(self) -> int:
        return len(self._shards)

    def item(self, place: int) -> Shard:
        """Make an item."""
        return self._shards[place]

    def of_split(self, split: str) -> Iterator[Shard]:
        """Yield the shards of a split that are to be read."""
        wanted = self.light["read"] & (self.light["split"] == self._splits.of(split))
        return map(self._shards.__getitem__, np.flatnonzero(wanted).tolist())

    def of_splits(self, splits: Iterable[str]) -> list[Shard]:
        """Return all shards of some splits."""
        wanted = np.isin(self.light["split"], list(map(self._splits.of, splits)))
        return [self._shards[ordinal] for ordinal in np.flatnonzero(wanted).tolist()]

    def files(self) -> np.ndarray:
        """Return int64[n]: of each shard, the first one of the same file, before all others one that is to be read."""
        return first_of_equal(self.light["file"], ~self.light["read"])

    def paths(self) -> Sequence[str]:
        """Return where each shard is, by ordinal."""
        return _Paths(self)

    def _plain(self, shard: Shard) -> tuple[Any, ...]:
        path: Any = shard.path
        if isinstance(shard.path, RowsPath):
            path = self._rows.of(shard.path)
        elif isinstance(shard.path, RemotePath):
            stat = shard.path.seen
            seen = None if stat is None else (stat.size, stat.validator, str(stat.mtime_ns))
            public, full = str(shard.path), shard.path.full
            path = (public, None if full == public else self._secret.of(full), self._access.of(shard.path.access), seen)
        skip = None if shard.skip is None else str(shard.skip)
        return (shard.ordinal, shard.split, shard.uri, path, shard.format, shard.compression, skip, shard.size)

    def _made(self, plain: tuple[Any, ...]) -> Shard:
        ordinal, split, uri, path, format_, compression, skip, size = plain
        if isinstance(path, int):
            path = self._rows.values[path]
        elif isinstance(path, tuple):
            public, secret, access, seen = path
            full = public if secret is None else self._secret.values[secret]
            stat = None if seen is None else RemoteStat(size=seen[0], validator=seen[1], mtime_ns=int(seen[2]))
            path = RemotePath(public, full, self._access.values[access], stat)
        return Shard(
            ordinal=ordinal,
            split=split,
            uri=uri,
            path=path,
            format=format_,
            compression=compression,
            skip=None if skip is None else Reason(skip),
            size=size,
        )


class _Paths(LazySequence[str]):
    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    def __len__(self) -> int:
        return len(self._shards)

    def item(self, place: int) -> str:
        return self._shards[place].path
