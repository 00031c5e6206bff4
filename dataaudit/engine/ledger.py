"""The ledger: what became of all shards, counted in one look at each, since looking makes an object of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

import pyarrow as pa

from dataaudit.corpus.loss import Reason
from dataaudit.engine.gather import UNREAD, GatheredShard
from dataaudit.manifest.core import Coverage, LedgerRecord
from dataaudit.manifest.metric import Metric, Scope, count
from dataaudit.manifest.tables import TABLES

_LOSSES = TABLES["ledger"].schema


@dataclass(slots=True)
class _Counts:
    """Of some shards."""

    shards: int = 0
    size: int = 0
    unread: int = 0
    """Stored bytes of shards that were not read, without those that the quarantine list holds back."""
    listed: int = 0
    """Shards that the quarantine list holds back."""
    listed_bytes: int = 0
    held_back: int = 0
    """Documents of other shards that it holds back."""
    records: int = 0

    def add(self, shard: GatheredShard) -> None:
        """Count one."""
        size, listed = shard.size, shard.reason == Reason.QUARANTINE_LIST
        self.shards += 1
        self.size += size
        self.unread += size if shard.status in UNREAD and not listed else 0
        self.listed += listed
        self.listed_bytes += size if listed else 0
        self.held_back += shard.held_back
        self.records += shard.records


class Ledger:
    """Counts of all shards, and every loss.

    Args:
        shards: What is known of each.
    """

    def __init__(self, shards: Iterable[GatheredShard]) -> None:
        self.unread: list[tuple[str, str]] = []
        """Name and reason of each shard that should have been read and could not be."""
        self._splits: dict[str, _Counts] = {}
        self._lost: dict[str, int] = {}
        self._losses: list[tuple[int, str, str, int, int]] = []
        self._numbers, self._sizes = (dict.fromkeys(("read", *UNREAD), 0) for _ in range(2))
        self._bad = self._known = self._uncounted = 0
        for shard in shards:
            self._add(shard)
        self._whole = _Counts(*(sum(column) for column in zip(*map(astuple, self._splits.values()), strict=True)))

    def _add(self, shard: GatheredShard) -> None:
        status = shard.status if shard.status in UNREAD else "read"
        listed = shard.reason == Reason.QUARANTINE_LIST
        self._splits.setdefault(shard.split, _Counts()).add(shard)
        self._numbers[status] += 1
        self._sizes[status] += shard.size
        self._bad += shard.bad_records if status == "read" else 0
        self._known += shard.records if status == "quarantined" else 0
        self._uncounted += status != "read" and shard.records == 0 and not listed
        if not shard.partials and not listed:
            self.unread.append((f"{shard.split}/{shard.planned.shard.uri}", str(shard.reason)))
        for loss in shard.losses:
            self._losses.append((shard.ordinal, str(loss.reason), loss.place, loss.records, loss.num_bytes))
        if not listed:
            for loss in shard.losses[:1] if status != "read" else shard.losses:
                self._lost[loss.reason] = self._lost.get(loss.reason, 0) + loss.num_bytes

    @property
    def held_back_shards(self) -> int:
        """Return how many shards the quarantine list holds back."""
        return self._whole.listed

    @property
    def held_back_documents(self) -> int:
        """Return how many documents of other shards it holds back."""
        return self._whole.held_back

    def table(self) -> pa.Table:
        """Return every loss."""
        return pa.table([list(one) for one in zip(*self._losses, strict=True)] or [[]] * len(_LOSSES), schema=_LOSSES)

    def record(self, documents: int) -> LedgerRecord:
        """Return the counts; each line balances.

        Args:
            documents: Those that entered the metrics.
        """
        bad, known, held_back = self._bad, self._known, self._whole.held_back
        return LedgerRecord(
            shards=Coverage(planned=self._whole.shards, **self._numbers),
            bytes=Coverage(planned=self._whole.size, **self._sizes),
            documents=Coverage(
                planned=documents + bad + known + held_back,
                read=documents,
                bad=bad,
                held_back=held_back,
                quarantined=known,
                skipped=0,
            ),
            uncounted_shards=self._uncounted,
            listed_shards=self._whole.listed,
            listed_bytes=self._whole.listed_bytes,
        )

    def metrics(self) -> list[Metric]:
        """Return the records of both families."""
        return [*self._coverage(), *self._held_back()]

    def _coverage(self) -> list[Metric]:
        """Return the bytes that were planned and not read, in all and by reason; what is held back was not planned."""
        values = [("bytes", Scope(), sum(self._lost.values())), ("shard_bytes", Scope(), self._whole.unread)]
        values += [("bytes", Scope(rule=reason), value) for reason, value in sorted(self._lost.items())]
        planned = {name: counts for name, counts in sorted(self._splits.items()) if counts.shards > counts.listed}
        values += [("shard_bytes", Scope(split=name), counts.unread) for name, counts in planned.items()]
        num_bytes = self._whole.size - self._whole.listed_bytes
        return [
            count("coverage_unread_bytes", stat, value, scope=scope, unit="bytes", n=num_bytes, version="1")
            for stat, scope, value in values
        ]

    def _held_back(self) -> list[Metric]:
        """Return what the quarantine list held back, in all and by split; no record where that is nothing."""
        found = []
        groups = [(Scope(), self._whole), *((Scope(split=name), one) for name, one in sorted(self._splits.items()))]
        for scope, counts in groups:
            of = (("shards", counts.listed, counts.shards), ("documents", counts.held_back, counts.records))
            for stat, value, n in of:
                found.append(count("held_back_shards", stat, value, scope=scope, unit=stat, n=n, version="1"))
        return found if any(record.value for record in found) else []
