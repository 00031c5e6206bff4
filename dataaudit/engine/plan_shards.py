"""Plan of all shards, in columns on disk: a shard or a unit of the scan becomes an object when it is asked for."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dataaudit.base.lazy import OnDemand
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

_TWINS = 2
_LOOKED_AT = 1024
"""Parts that are looked for in the store at a time."""
_KEPT = 8
"""Shards that units were made of last, and equal ones."""
_SHARD = np.dtype(
    [
        ("ordinal", "<i8"),
        ("split", "<u4"),
        ("reason", "u1"),
        ("meant", "?"),
        ("probed", "?"),
        ("streamed", "?"),
        ("stages", "<u4"),
        ("fields", "<u4"),
        ("size", "<i8"),
        ("parts", "<i8"),
    ]
)
_PART = np.dtype([("reading", "V32"), ("shard", "<i8")])


class Plan(OnDemand[PlannedShard]):
    """All shards as planned.

    Args:
        planned: Of each; made once and not held.
        shards: The shards themselves, at the same places.
        probe: Returns the probe of the shard at a place.
        identities: Of the stages by name, as of :func:`dataaudit.engine.plan.stage_identity`.
        folder: Where the plan is written, below the state folder.

    Raises:
        StateFolderError: The folder cannot be written.
    """

    def __init__(
        self,
        planned: Iterable[PlannedShard],
        shards: Sequence[Shard],
        probe: Callable[[int], Probe | None],
        identities: Mapping[str, str],
        folder: Path,
    ) -> None:
        self._shards, self._probe, self._identities = shards, probe, identities
        self._fields, self._stages = Codes[tuple[FieldRule, int]](), Codes[tuple[str, ...]]()
        self._reasons, self._splits = Codes[Reason | None]([None]), Codes[str]()
        self._places: dict[int, str] = {}
        self._without: dict[int, frozenset[int]] = {}
        rows, parts, number = RowWriter(folder, _SHARD), RowWriter(folder, _PART), 0
        for place, planned_shard in enumerate(planned):
            fields = 0
            for part in planned_shard.parts:
                fields = self._fields.of((part.request.fields, part.request.batch_bytes))
                parts.append((bytes.fromhex(part.reading_key), place))
                if part.request.without:
                    self._without[number] = part.request.without
                number += 1
            if planned_shard.place:
                self._places[place] = planned_shard.place
            rows.append(
                (
                    planned_shard.shard.ordinal,
                    self._splits.of(planned_shard.shard.split),
                    self._reasons.of(planned_shard.reason),
                    planned_shard.shard.skip is not None or planned_shard.reason == Reason.QUARANTINE_LIST,
                    planned_shard.probe is not None,
                    planned_shard.shard.format == "datasets",
                    self._stages.of(planned_shard.stages),
                    fields,
                    planned_shard.probe.stat.size if planned_shard.probe else planned_shard.shard.size,
                    number,
                )
            )
        self.rows, self.parts = rows.done(), parts.done()
        self._columns = {name: self.rows[name] for name in _SHARD.names or ()}
        self._readings = self.parts["reading"]

    def __len__(self) -> int:
        return len(self.rows)

    def item(self, place: int) -> PlannedShard:
        """Make one."""
        _, _, reason, _, probed, _, stages, fields, _, _ = self.rows[place].item()
        shard, probe = self._shards[place], self._probe(place) if probed else None
        start, stop = self.part_range(place)
        parts = []
        for number in range(start, stop):
            assert probe is not None
            rule, batch_bytes = self._fields.values[fields]
            request = ReadRequest(
                path=shard.path,
                format=shard.format,
                compression=shard.compression,
                part=probe.parts[number - start],
                fields=rule,
                batch_bytes=batch_bytes,
                without=self._without.get(number, frozenset()),
            )
            keys = self.part_keys(number, self._stages.values[stages])
            parts.append(PlannedPart(request=request, reading_key=keys.reading, stage_keys=keys))
        return PlannedShard(
            shard=shard,
            probe=probe,
            parts=tuple(parts),
            reason=self._reasons.values[reason],
            place=self._places.get(place, ""),
            stages=self._stages.values[stages],
        )

    def part_range(self, place: int) -> tuple[int, int]:
        """Return the numbers, in all shards, of a shard's first part and of the one after its last."""
        ends = self._columns["parts"]
        return int(ends[place - 1]) if place else 0, int(ends[place])

    def part_keys(self, number: int, stages: tuple[str, ...]) -> PartKeys:
        """Return the keys of a part, by its number in all shards."""
        without = tuple(sorted(self._without.get(number, ())))
        return PartKeys(self._readings[number].tobytes().hex(), stages, self._identities, without)

    def keys(self, place: int) -> list[PartKeys]:
        """Return the keys of each part of a shard."""
        stages = self.stages(place)
        return [self.part_keys(number, stages) for number in range(*self.part_range(place))]

    def reading_keys(self, place: int) -> list[str]:
        """Return, of each part of a shard, the key of what reading it gives."""
        start, stop = self.part_range(place)
        return keys_as_text(self._readings[start:stop])

    def has_stage(self, numbers: np.ndarray, stage: str) -> np.ndarray:
        """Tell of some parts, by their numbers, int64[n], whether a stage looks at them, bool[n]."""
        having = np.array([stage in names for names in self._stages.values], dtype=bool)
        found: np.ndarray = having[self._columns["stages"][self.parts["shard"][numbers]]]
        return found

    def shards_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, of some parts, int64[n], the ordinals of their shards and the places of their splits in order."""
        rows = self.rows[self.parts["shard"][numbers]]
        order = {split: at for at, split in enumerate(self.splits())}
        ranks = np.array([order[split] for split in self._splits.values], dtype=np.int64)
        return rows["ordinal"], ranks[rows["split"]]

    def place(self, ordinal: int) -> int:
        """Return where the shard of an ordinal is; they ascend."""
        return int(np.searchsorted(self.rows["ordinal"], ordinal))

    def ordinal(self, place: int) -> int:
        """Return a shard's row in the table of shards."""
        return int(self._columns["ordinal"][place])

    def split(self, place: int) -> str:
        """Return the split of a shard."""
        return self._splits.values[int(self._columns["split"][place])]

    def splits(self) -> list[str]:
        """Return the splits of all shards, sorted."""
        return sorted(self._splits.values)

    def size(self, place: int) -> int:
        """Return the stored bytes of a shard, as far as the file system knew."""
        return int(self._columns["size"][place])

    def is_streamed(self, place: int) -> bool:
        """Tell whether a shard is one of a dataset that is streamed."""
        return bool(self._columns["streamed"][place])

    def reason(self, place: int) -> Reason | None:
        """Return why a shard is not read; None when it is."""
        return self._reasons.values[int(self._columns["reason"][place])]

    def is_meant(self, place: int) -> bool:
        """Tell whether nobody wanted a shard to be read."""
        return bool(self._columns["meant"][place])

    def where(self, place: int) -> str:
        """Return where the reason for which a shard is not read was seen."""
        return self._places.get(place, "")

    def stages(self, place: int) -> tuple[str, ...]:
        """Return the names of the stages that look at a shard."""
        return self._stages.values[int(self._columns["stages"][place])]

    def holds_back(self, place: int) -> bool:
        """Tell whether single documents of a shard are held back."""
        return bool(self._without) and any(number in self._without for number in range(*self.part_range(place)))

    def distinct_parts(self) -> int:
        """Return how many parts differ in content."""
        firsts = self.equal_parts()
        return int((firsts == np.arange(len(firsts))).sum())

    def equal_parts(self) -> np.ndarray:
        """Return int64[n]: of each part, the first one of equal content."""
        words = np.ascontiguousarray(self.parts["reading"]).view("<u8").reshape(-1, 4)
        return first_of_equal(words[:, :2])


class ScanUnits(OnDemand[ScanUnit]):
    """Parts of which something is missing in the store, each made a unit of work when it is asked for.

    Args:
        plan: The plan.
        firsts: Of :meth:`Plan.equal_parts`.
        numbers: int64[k] the parts.
        missing: int64[k] number of what is missing of each.
        names: Stages that miss, by that number.
    """

    def __init__(
        self, plan: Plan, firsts: np.ndarray, numbers: np.ndarray, missing: np.ndarray, names: Sequence[tuple[str, ...]]
    ) -> None:
        self._plan, self._numbers, self._missing, self._names = plan, numbers, missing, names
        others = np.flatnonzero(firsts != np.arange(len(firsts)))
        self._others = others[np.argsort(firsts[others], kind="stable")]
        self._of = firsts[self._others]
        self._kept: dict[int, PlannedShard] = {}
        shards = plan.parts["shard"][numbers]
        counts = np.diff(plan.rows["parts"], prepend=0)[shards]
        self.sizes = plan.rows["size"][shards] // np.maximum(counts, 1)
        """int64[k] stored bytes of each: parts of a file are of about the same size, whatever they are counted in."""

    def __len__(self) -> int:
        return len(self._numbers)

    def item(self, place: int) -> ScanUnit:
        """Make one."""
        number = int(self._numbers[place])
        part, probe = self._part(number)
        keys, names = part.stage_keys, self._names[self._missing[place]]
        return ScanUnit(
            request=part.request,
            stat=probe.stat,
            sha256=probe.sha256,
            reading_key=part.reading_key,
            stage_keys=keys if len(names) == len(keys) else tuple((name, keys[name]) for name in names),
            size=int(self.sizes[place]),
            twins=self._twins(number, part.request.path),
        )

    def reading_key(self, place: int) -> str:
        """Return the key of what reading the part of a unit gives."""
        return self._plan.part_keys(int(self._numbers[place]), ()).reading

    def _part(self, number: int) -> tuple[PlannedPart, Probe]:
        place = int(self._plan.parts["shard"][number])
        if place not in self._kept:  # all parts of a file are made at once, and asked for one after the other
            if len(self._kept) == _KEPT:
                self._kept.clear()
            self._kept[place] = self._plan[place]
        planned = self._kept[place]
        assert planned.probe is not None
        return planned.parts[number - self._plan.part_range(place)[0]], planned.probe

    def _twins(self, number: int, path: str) -> tuple[tuple[str, FileStat], ...]:
        """Return other files with the same bytes."""
        start, stop = np.searchsorted(self._of, [number, number + 1]).tolist()
        found: list[tuple[str, FileStat]] = []
        for other in self._others[start:stop].tolist():
            if len(found) == _TWINS:
                break
            part, probe = self._part(other)
            if part.request.path != path:
                found.append((part.request.path, probe.stat))
        return tuple(found)


def missing_units(
    plan: Plan, store: PartialStore, progress: Progress, *, fresh: bool, of: np.ndarray | None = None
) -> ScanUnits:
    """Return a unit for every part with something missing in the store; equal parts are read once."""
    firsts, names = plan.equal_parts(), Codes[tuple[str, ...]]()
    wanted = firsts == np.arange(len(firsts))
    if of is not None:
        wanted = np.zeros(len(firsts), dtype=bool)
        wanted[firsts[np.isin(plan.parts["shard"], of)]] = True
    numbers, missing = array("q"), array("q")
    looked = np.flatnonzero(wanted)
    starts = range(0, len(looked), _LOOKED_AT)
    for start in progress.over("plan", starts, len(looked), each=_LOOKED_AT):
        some = looked[start : start + _LOOKED_AT].tolist()
        keys = [plan.part_keys(number, plan.stages(int(plan.parts["shard"][number]))) for number in some]
        read = [False] * len(some) if fresh else store.have(READING, [own.reading for own in keys])
        for number, own, absent, known in zip(some, keys, _absent(keys, store, fresh=fresh), read, strict=True):
            if absent and known and _known_unreadable(store, own.reading):
                continue
            if absent or not known:
                numbers.append(number)
                missing.append(names.of(absent))
    return ScanUnits(plan, firsts, np.array(numbers, dtype=np.int64), np.array(missing, dtype=np.int64), names.values)


def _absent(keys: Sequence[PartKeys], store: PartialStore, *, fresh: bool) -> list[tuple[str, ...]]:
    """Return the stages whose partials of each part are not in the store."""
    if fresh:
        return [own.stages for own in keys]
    found: list[list[str]] = [[] for _ in keys]
    stages = dict.fromkeys(name for own in keys for name in own.stages)
    for name in stages:
        places = [place for place, own in enumerate(keys) if name in own]
        for place, has in zip(places, store.have(name, [keys[place][name] for place in places]), strict=True):
            if not has:
                found[place].append(name)
    return [tuple(name for name in own.stages if name in absent) for own, absent in zip(keys, found, strict=True)]


def _known_unreadable(store: PartialStore, key: str) -> bool:
    """Tell whether these very bytes were read before and are damaged; reading them again shows the same."""
    entry = store.read(READING, key)
    return entry is not None and bool(entry.meta["reason"])


_LIGHT = np.dtype([("split", "<u4"), ("size", "<i8"), ("read", "?"), ("file", "<u8", (2,))])
"""Number of its split, stored bytes, whether it is to be read, and the beginning of the digest of its path."""


class ShardList(OnDemand[Shard]):
    """Shards in order.

    Args:
        shards: Their places are their ordinals.
        folder: Where they are written, below the state folder.

    Raises:
        StateFolderError: The folder cannot be written.
    """

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
        """Make one."""
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

    def paths(self) -> Mapping[int, str]:
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


class _Paths(Mapping[int, str]):
    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    def __getitem__(self, ordinal: int) -> str:
        if not 0 <= ordinal < len(self._shards):
            raise KeyError(ordinal)
        return self._shards[ordinal].path

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._shards)))

    def __len__(self) -> int:
        return len(self._shards)
