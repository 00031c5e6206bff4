"""Gathering: what the readings of its parts say of a shard, and all shards as they stand then, on disk.

Order never matters here: readings are put together by the places of the parts in the shard, and partials are merged
per shard and per split, and every merge is lossless.

The partials of one shard as the driver sees them: merged over its parts, and not held.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import limit_hint
from dataaudit.base.lazy import OnDemand
from dataaudit.base.text import plural
from dataaudit.engine.disk_columns import RowWriter, Texts, Values, packed
from dataaudit.engine.plan import PlannedShard
from dataaudit.engine.planned import Plan
from dataaudit.engine.state_folder import StateFolderError
from dataaudit.engine.store import Entry, PartialStore, entry_at, entry_of
from dataaudit.metrics.coverage.definition import bad_share
from dataaudit.scan.corpus.loss import MAX_PLACES, Loss, Reason
from dataaudit.scan.corpus.readers.part import MAX_COLUMNS
from dataaudit.scan.link.keyed import Stored
from dataaudit.scan.link.step import DamagedEntryError
from dataaudit.scan.stages.base import Stage, merge
from dataaudit.scan.stages.partial import Partial, fold_table, group


@contextmanager
def _reading(path: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateFolderError(
            f"{path()} cannot be read: {error.strerror or type(error).__name__}",
            limit_hint(error) or "Check the disk, or remove the file: what it holds is computed again.",
        ) from None


@dataclass(slots=True)
class Damage:
    """Reads entries; those that are absent or damaged are removed and told of together."""

    store: PartialStore
    """Where the entries are."""
    names: list[str] = field(default_factory=list)
    """``kind/key`` of what was removed."""

    def read(self, kind: str, key: str) -> Entry | None:
        """Return an entry, or None when it is absent or damaged."""
        with _reading(lambda: self.store.root / self.store.file_of(kind, key)):
            entry = self.store.read(kind, key)
        if entry is None:
            self.remove(kind, key)
        return entry

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry with its rows."""
        self.store.remove(kind, key)
        self.names.append(f"{kind}/{key}")

    def tell(self) -> None:
        """Raise when something was removed."""
        if self.names:
            raise DamagedEntryError(self.names)


@dataclass(slots=True)
class Missing:
    """Reads entries on a worker; notes those that are absent or damaged."""

    names: set[str] = field(default_factory=set)
    """``kind/key`` of each."""

    def read(self, address: str) -> Entry | None:
        """Return an entry, or None when it is absent or damaged."""
        with _reading(lambda: Stored.at(address).path):
            entry = entry_at(address)
        if entry is None:
            self.names.add(entry_of(address))
        return entry


class ShardPartials(Mapping[str, Partial]):
    """The merged partials of one shard by stage, read each time they are asked for: those of all are too much to hold.

    Args:
        plan: The plan.
        place: Where it holds the shard.
        stages: All stages, by name.
        store: Where the partials of its parts are.
    """

    __slots__ = ("_place", "_plan", "_stages", "_store")

    def __init__(self, plan: Plan, place: int, stages: Mapping[str, Stage], store: PartialStore) -> None:
        self._plan, self._place = plan, place
        self._stages, self._store = stages, store

    def __getitem__(self, name: str) -> Partial:
        if name not in self:
            raise KeyError(name)
        damage = Damage(self._store)
        entries = [damage.read(name, keys[name]) for keys in self._plan.keys(self._place)]
        damage.tell()
        return merge_parts(self._stages[name], entries)

    def __contains__(self, name: object) -> bool:
        return name in self._plan.stages(self._place)  # the default would read and merge the partial

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan.stages(self._place))

    def __len__(self) -> int:
        return len(self._plan.stages(self._place))


def merge_parts(stage: Stage, entries: Sequence[Entry | None]) -> Partial:
    """Return the partial of a shard from those of its parts; one alone is merged as it was written."""
    partials = [entry.tables for entry in entries if entry is not None]
    return partials[0] if len(partials) == 1 else merge(stage, partials)


def fold_partial(stage: Stage, partial: Partial, kept: pa.Array) -> Partial:
    """Return a partial with the sources that are not kept folded into ``other``."""
    shapes = stage.shapes()
    return {name: group(shapes[name], fold_table(table, kept)) for name, table in partial.items()}


UNREAD = ("quarantined", "skipped")
"""States of shards that enter no number."""
_LOOKED_AT = 4096
"""Parts that are looked at at a time."""
_PART = np.dtype([("number", "i8"), ("first_row", "i8")])
_NO_PARTIALS: Mapping[str, Partial] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What became of one shard by what reading its parts showed."""

    status: str = "ok"
    reason: str = ""
    records: int = 0
    bad_records: int = 0
    fingerprint: str | None = None
    first_rows: tuple[int, ...] = ()
    """Number of the first record of each part."""
    losses: Sequence[Loss] = ()
    rows_digest: str | None = None
    """Digest of its decoded rows, when it was read."""
    documents: int = 0
    """Documents that entered the metrics."""
    text_bytes: int = 0
    """Bytes of their texts."""

    def packed(self) -> bytes:
        """Return it as bytes."""
        losses = [(str(loss.reason), loss.place, loss.records, loss.num_bytes) for loss in self.losses]
        return packed((*(getattr(self, name) for name in _PLAIN), losses))


_PLAIN = tuple(item.name for item in fields(Reading) if item.name != "losses")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredShard(Reading):
    """What is known of one shard."""

    plan: Plan
    place: int
    """Where the plan holds it."""
    partials: Mapping[str, Partial] = field(default_factory=lambda: _NO_PARTIALS)
    """By stage; empty when the shard is not read."""

    @property
    def planned(self) -> PlannedShard:
        """Return what was planned; made each time."""
        return self.plan[self.place]

    @property
    def ordinal(self) -> int:
        """Return its row in the table of shards."""
        return self.plan.ordinal(self.place)

    @property
    def split(self) -> str:
        """Return its split."""
        return self.plan.split(self.place)

    @property
    def held_back(self) -> int:
        """Documents that the quarantine list holds back one by one."""
        if not self.partials or not self.plan.holds_back(self.place):
            return 0
        return self.records - self.bad_records - self.documents

    @property
    def size(self) -> int:
        """Stored bytes, as far as the file system knew; of a streamed dataset the bytes of its texts."""
        return self.text_bytes if self.plan.is_streamed(self.place) else self.plan.size(self.place)


class GatheredShards(OnDemand[GatheredShard]):
    """All shards of a plan as they were read, each made an object when it is asked for.

    Args:
        plan: The plan.
        readings: Of :meth:`Reading.packed`, at the same places.
        stages: All stages.
        store: Where partials are.
    """

    def __init__(self, plan: Plan, readings: Texts, stages: Sequence[Stage], store: PartialStore) -> None:
        self.plan, self._store = plan, store
        self._stages = {stage.name: stage for stage in stages}
        self._readings = Values(readings, tuple[Any, ...])

    def __len__(self) -> int:
        return len(self.plan)

    def parts_of(self, stage: str) -> Iterator[tuple[str, int, int, int]]:
        """Yield, of each part that a stage looked at, its key, shard, split (by place in order), and first record."""
        plan, parts = self.plan, self.parts
        for start in range(0, len(parts), _LOOKED_AT):
            some = parts[start : start + _LOOKED_AT]
            some = some[plan.has_stage(some["number"], stage)]
            keys = (plan.part_keys(number, (stage,))[stage] for number in some["number"].tolist())
            columns = (*plan.shards_of(some["number"]), some["first_row"])
            yield from zip(keys, *(column.tolist() for column in columns), strict=True)

    @cached_property
    def parts(self) -> np.ndarray:
        """Every part of a shard that was read, in order: its ``number`` in all shards, its ``first_row``."""
        writer, status, firsts = RowWriter(self._store.root, _PART), _PLAIN.index("status"), _PLAIN.index("first_rows")
        for place, reading in enumerate(self._readings):
            if reading[status] not in UNREAD:
                for row in zip(range(*self.plan.part_range(place)), reading[firsts], strict=True):
                    writer.append(row)
        return writer.done()

    def item(self, place: int) -> GatheredShard:
        """Make one."""
        *values, losses = self._readings[place]
        named = dict(zip(_PLAIN, values, strict=True))
        partials: Mapping[str, Partial] = _NO_PARTIALS
        if named["status"] not in UNREAD:
            partials = ShardPartials(self.plan, place, self._stages, self._store)
        found = tuple(
            Loss(reason=Reason(reason), place=where, records=records, num_bytes=num_bytes)
            for reason, where, records, num_bytes in losses
        )
        return GatheredShard(plan=self.plan, place=place, partials=partials, losses=found, **named)


def unread(reason: Reason, place: str, num_bytes: int, *, meant: bool = False) -> Reading:
    """Return what becomes of a shard that is not read."""
    losses = (Loss(reason=reason, place=place, records=-1, num_bytes=num_bytes),)
    return Reading(status="skipped" if meant else "quarantined", reason=reason, losses=losses)


def read_together(metas: Iterable[Mapping[str, Any]], num_bytes: int, max_bad: float) -> Reading:
    """Return what the readings of its parts, in order, say of a shard."""
    records, text_bytes, first_rows, columns = 0, 0, [], set[str]()
    remarks: dict[str, tuple[int, int]] = {}
    bad: dict[str, tuple[int, int, list[tuple[int, int]]]] = {}
    for meta in metas:
        if meta["reason"]:  # how many records the parts before it hold depends on the cut, so it is not said
            return unread(Reason(meta["reason"]), meta["place"], num_bytes)
        first_rows.append(records)
        for reason, (number, size, places) in meta["bad"].items():
            known = bad.setdefault(reason, (0, 0, []))
            listed = known[2] + [(row + records, own) for row, own in places]
            bad[reason] = (known[0] + number, known[1] + size, listed[:MAX_PLACES])
        for reason, (number, first) in meta["remarks"].items():
            before, earliest = remarks.get(reason, (0, first + records))
            remarks[reason] = (before + number, earliest)
        records += meta["records"]
        text_bytes += meta["text_bytes"]
        columns.update(meta["columns"])
    smallest = "\n".join(sorted(columns)[:MAX_COLUMNS])
    num_bad = sum(number for number, _, _ in bad.values())
    bad_bytes = sum(size for _, size, _ in bad.values())
    losses = [loss for reason, found in sorted(bad.items()) for loss in _losses(Reason(reason), *found)]
    said = [
        Loss(
            reason=Reason(reason),
            place=f"{plural(number, 'record')}, the first is record {first}",
            records=0,
            num_bytes=0,
        )
        for reason, (number, first) in sorted(remarks.items())
    ]
    reading = Reading(
        records=records,
        bad_records=num_bad,
        fingerprint=hashlib.sha256(smallest.encode()).hexdigest() if columns else None,
        first_rows=tuple(first_rows),
        losses=(*losses, *said),
    )
    if bad_share(num_bad, records, bad_bytes, text_bytes) > max_bad:
        whole = bad_bytes + text_bytes
        place = f"{num_bad} of {records} records, {bad_bytes} of {whole} bytes, limit {max_bad:.12g} of either"
        left = unread(Reason.TOO_MANY_BAD, place, num_bytes)
        return replace(reading, status=left.status, reason=left.reason, losses=(*left.losses, *reading.losses))
    return replace(reading, status="partial", reason=losses[0].reason) if num_bad else reading


def _losses(reason: Reason, records: int, num_bytes: int, places: list[tuple[int, int]]) -> list[Loss]:
    """Return a loss for each listed place, and one for those that are no longer listed."""
    listed = [Loss(reason=reason, place=f"record {row}", records=1, num_bytes=size) for row, size in places]
    rest = records - len(places)
    if rest:
        size = num_bytes - sum(size for _, size in places)
        listed.append(Loss(reason=reason, place="further records", records=rest, num_bytes=size))
    return listed
