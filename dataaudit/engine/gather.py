"""Gathering: the stored partials of every part become one record a shard and one partial a split.

Order never matters here: partials are merged per shard and per split, and every merge is lossless.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from dataaudit.corpus.loss import MAX_PLACES, Loss, Reason
from dataaudit.corpus.readers.part import MAX_COLUMNS
from dataaudit.engine.partials import Damage, ShardPartials
from dataaudit.engine.plan import PlannedShard
from dataaudit.engine.store import PartialStore
from dataaudit.engine.units import READING
from dataaudit.stages.base import Stage
from dataaudit.stages.partial import Partial

_FIRST_ROWS = (0,)
"""Of a shard of one part, as most are: one object for all of them, like the fingerprint."""
_NO_PARTIALS: Mapping[str, Partial] = MappingProxyType({})


@dataclass(slots=True, kw_only=True)
class GatheredShard:
    """What is known of one shard."""

    planned: PlannedShard
    status: str = "ok"
    reason: str = ""
    records: int = 0
    bad_records: int = 0
    fingerprint: str | None = None
    first_rows: tuple[int, ...] = ()
    """Number of the first record of each part."""
    losses: Sequence[Loss] = ()
    partials: Mapping[str, Partial] = field(default_factory=lambda: _NO_PARTIALS)
    """By stage; empty when the shard is not read."""
    documents: int = 0
    """Documents that entered the metrics; known once partials were looked at, as is what follows."""
    text_bytes: int = 0
    """Bytes of their texts."""

    @property
    def ordinal(self) -> int:
        """Return its row in the table of shards."""
        return self.planned.shard.ordinal

    @property
    def split(self) -> str:
        """Return its split."""
        return self.planned.shard.split

    def part_key(self, stage: str, part: int) -> str:
        """Return the key of a stage's rows of a part in the store."""
        return self.planned.parts[part].stage_keys[stage]

    def keys(self, stage: str) -> Iterator[tuple[str, int]]:
        """Yield of each part the key of a stage's rows in the store, and the number of its first record."""
        for part, first_row in zip(self.planned.parts, self.first_rows, strict=True):
            yield part.stage_keys[stage], first_row

    @property
    def held_back(self) -> int:
        """Documents that the quarantine list holds back one by one."""
        if not any(part.request.without for part in self.planned.parts) or not self.partials:
            return 0
        return self.records - self.bad_records - self.documents

    @property
    def size(self) -> int:
        """Stored bytes, as far as the file system knew; of a streamed dataset the bytes of its texts."""
        if self.planned.shard.format == "datasets":
            return self.text_bytes
        return self.planned.probe.stat.size if self.planned.probe else self.planned.shard.size


def gather_readings(
    planned: Iterable[PlannedShard],
    failures: Mapping[str, tuple[Reason, str]],
    store: PartialStore,
    *,
    max_bad: float,
) -> list[GatheredShard]:
    """Decide what became of every shard.

    Args:
        planned: All shards in order.
        failures: Reason and place by reading key, for parts that could not be read in this run.
        store: Where the readings are.
        max_bad: Share of bad records above which a shard is quarantined.

    Raises:
        DamagedEntryError: Readings are absent or damaged.
    """
    damage = Damage(store)
    gathered = [_gather_reading(item, failures, damage, max_bad) for item in planned]
    damage.tell()
    return gathered


def _gather_reading(
    item: PlannedShard, failures: Mapping[str, tuple[Reason, str]], damage: Damage, max_bad: float
) -> GatheredShard:
    gathered = GatheredShard(planned=item)
    if item.reason is not None:
        meant = item.shard.skip is not None or item.reason == Reason.QUARANTINE_LIST
        status = "skipped" if meant else "quarantined"
        return _unread(gathered, status, item.reason, item.place)
    first_rows: list[int] = []
    columns: set[str] = set()
    bad: dict[str, tuple[int, int, list[tuple[int, int]]]] = {}
    for part in item.parts:
        failure = failures.get(part.reading_key)
        entry = None if failure is not None else damage.read(READING, part.reading_key)
        if entry is not None and entry.meta["reason"]:
            failure = (Reason(entry.meta["reason"]), entry.meta["place"])
        if failure is not None:  # how many records the parts before it hold depends on the cut, so it is not said
            gathered.records = 0
            return _unread(gathered, "quarantined", *failure)
        if entry is None:
            continue
        meta = entry.meta
        first_rows.append(gathered.records)
        for reason, (records, num_bytes, places) in meta["bad"].items():
            known = bad.setdefault(reason, (0, 0, []))
            listed = known[2] + [(row + gathered.records, size) for row, size in places]
            bad[reason] = (known[0] + records, known[1] + num_bytes, listed[:MAX_PLACES])
        gathered.records += meta["records"]
        columns.update(meta["columns"])
    gathered.first_rows = tuple(first_rows) if len(first_rows) > 1 else _FIRST_ROWS[: len(first_rows)]
    gathered.bad_records = sum(records for records, _, _ in bad.values())
    smallest = "\n".join(sorted(columns)[:MAX_COLUMNS])
    gathered.fingerprint = sys.intern(hashlib.sha256(smallest.encode()).hexdigest()) if columns else None
    gathered.losses = tuple(loss for reason, found in sorted(bad.items()) for loss in _losses(Reason(reason), *found))
    if gathered.bad_records and gathered.bad_records / gathered.records > max_bad:
        kept = gathered.losses
        place = f"{gathered.bad_records} of {gathered.records} records, limit {max_bad:.12g} of them"
        _unread(gathered, "quarantined", Reason.TOO_MANY_BAD, place)
        gathered.losses = (*gathered.losses, *kept)
    elif gathered.bad_records:
        gathered.status = "partial"
        gathered.reason = gathered.losses[0].reason
    return gathered


def _unread(gathered: GatheredShard, status: str, reason: Reason, place: str) -> GatheredShard:
    gathered.status, gathered.reason = status, reason
    gathered.losses = (Loss(reason=reason, place=place, records=-1, num_bytes=gathered.size),)
    return gathered


def _losses(reason: Reason, records: int, num_bytes: int, places: list[tuple[int, int]]) -> list[Loss]:
    """Return a loss for each listed place, and one for those that are no longer listed."""
    listed = [Loss(reason=reason, place=f"record {row}", records=1, num_bytes=size) for row, size in places]
    rest = records - len(places)
    if rest:
        size = num_bytes - sum(size for _, size in places)
        listed.append(Loss(reason=reason, place="further records", records=rest, num_bytes=size))
    return listed


def gather_partials(shards: Iterable[GatheredShard], stages: Sequence[Stage], store: PartialStore) -> None:
    """Give every shard that was read its ``partials``; none is read yet."""
    named = {stage.name: stage for stage in stages}
    for shard in shards:
        if shard.status not in ("quarantined", "skipped"):
            shard.partials = ShardPartials(shard.planned, named, store)
