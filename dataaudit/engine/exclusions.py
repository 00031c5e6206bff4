"""What a quarantine list leaves out of a build: whole shards, and single documents of the others.

A shard goes by the sha256 of its bytes, which the probe gives, or by the digest of its rows, which only reading it
gives: one that was packed anew is read once, and then left out as if it had not been there. A document goes by the
digests of its shard and its row, as the shard stands on disk; once the rows of a shard have changed, its row means
another document, so the entry leaves nothing out and is said to be stale.

What is left out enters no stage. It stays in the digest of the shard's rows and in its number of records: these are
what the list, and the next build, know the shard by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.base.text import plural
from dataaudit.decide.quarantine.list import Quarantine
from dataaudit.decide.quarantine.selection import digests_of, row_digests_of
from dataaudit.engine.gather import Damage, GatheredShard
from dataaudit.engine.plan import PartKeys, PlannedPart, PlannedShard
from dataaudit.engine.planned import Plan, ScanUnits, missing_units
from dataaudit.engine.progress import Progress
from dataaudit.engine.store import PartialStore
from dataaudit.engine.units import READING
from dataaudit.manifest.core import HeldBack, QuarantineRecord
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.stages.base import Stage


@dataclass(slots=True, kw_only=True)
class Holding:
    """The list of a build, and what is known of its shards."""

    quarantine: Quarantine
    """The entries in force."""
    store: PartialStore
    """Where readings are."""
    read: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    """Digest of the rows, documents and bad records of shards that were read, by ordinal."""

    def applied(self, planned: PlannedShard, stages: Sequence[Stage], identities: Mapping[str, str]) -> PlannedShard:
        """Return a shard as it is read under the list."""
        digests = digests_of(self._row(planned))
        if digests and self.quarantine.holds(**digests):
            return replace(planned, parts=(), reason=Reason.QUARANTINE_LIST, place="", stages=())
        rows = self._rows(planned)
        if not rows or planned.reason is not None:
            return planned
        looking = tuple(stage.name for stage in stages if stage.name in planned.stages)
        firsts, parts = self._first_rows(planned), []
        for part, first in zip(planned.parts, firsts, strict=True):
            stop = first + self._records(part)
            without = frozenset(row - first for row in rows if first <= row < stop)
            keys = PartKeys(part.reading_key, looking, identities, tuple(sorted(without)))
            parts.append(replace(part, request=replace(part.request, without=without), stage_keys=keys))
        return replace(planned, parts=tuple(parts))

    def uncounted(self, plan: Plan, progress: Progress) -> ScanUnits:
        """Return a unit for each part of which only reading says how many records it has, and that has to be known."""
        asked = [place for place in range(len(plan)) if plan.reason(place) is None and self._rows(plan[place])]
        return missing_units(plan, self.store, progress, fresh=False, of=np.array(asked, dtype=np.int64))

    def learn(self, shards: Iterable[GatheredShard]) -> bool:
        """Take what the scan showed of shards; tell whether more is held back than was known before."""
        more = False
        for shard in shards:
            if shard.rows_digest is None or shard.ordinal in self.read:
                continue
            planned = shard.planned
            rows = self._rows(planned)
            self.read[shard.ordinal] = shard.rows_digest, shard.records - shard.bad_records, shard.bad_records
            now = digests_of(self._row(planned))
            more = more or self.quarantine.holds(**now) or self._rows(planned) != rows
        return more

    def identities(self) -> tuple[HeldBack, ...]:
        """Return what is in force: a shard once, and the rows of one together."""
        found: dict[tuple[str, str], set[int | None]] = {}
        for target in (entry.target for entry in self.quarantine.entries):
            assert target is not None
            found.setdefault((target.sha256 or "", target.rows_digest or ""), set()).add(target.row)
        return tuple(
            HeldBack(
                sha256=stored or None,
                rows_digest=digest or None,
                rows=None if None in rows else tuple(sorted(row for row in rows if row is not None)),
            )
            for (stored, digest), rows in sorted(found.items())
        )

    def record(self) -> QuarantineRecord:
        """Return which list it was."""
        listed = self.quarantine
        return QuarantineRecord(digest=listed.digest, lines=listed.lines, on=listed.on.isoformat())

    def _row(self, planned: PlannedShard) -> dict[str, object]:
        """Return what the table of shards knows a shard by."""
        digest, documents, bad = self.read.get(planned.shard.ordinal, (None, 0, 0))
        stored = "" if planned.probe is None else planned.probe.sha256
        if planned.shard.format == "datasets":
            stored = digest or ""
        return {"sha256": stored, "rows_digest": digest, "documents": documents, "bad_records": bad}

    def _rows(self, planned: PlannedShard) -> frozenset[int]:
        digests = row_digests_of(self._row(planned))
        return self.quarantine.rows(**digests) if digests else frozenset()

    def _records(self, part: PlannedPart) -> int:
        """Return the records of a part, 0 for one that was not read."""
        if not self.store.has(READING, part.reading_key):
            return 0
        damage = Damage(self.store)
        entry = damage.read(READING, part.reading_key)
        damage.tell()
        return 0 if entry is None else int(entry.meta["records"])

    def _first_rows(self, planned: PlannedShard) -> list[int]:
        return [0, *accumulate(map(self._records, planned.parts[:-1]))]


def check_splits(shards: Iterable[PlannedShard]) -> None:
    """Refuse a list that leaves nothing of a split: its numbers would be gone without a word."""
    total: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for planned_shard in shards:
        total[planned_shard.shard.split] += 1
        gone[planned_shard.shard.split] += planned_shard.reason == Reason.QUARANTINE_LIST
    for split, number in gone.items():
        if number == total[split]:
            raise _vanished(split, plural(number, "shard"))


def check_documents(shards: Iterable[GatheredShard]) -> None:
    """Refuse a list that leaves no document of a split."""
    gone: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for shard in shards:
        gone[shard.split] += shard.held_back
        left[shard.split] += shard.documents
    for split, number in gone.items():
        if number and not left[split]:
            raise _vanished(split, plural(number, "document"))


def _vanished(split: str, what: str) -> ConfigError:
    return ConfigError(
        f"the split `{split}` would vanish: the quarantine list holds back all of it ({what})",
        "Take the split out of the config, or lift entries with `dataaudit quarantine lift`.",
    )
