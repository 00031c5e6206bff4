"""From gathered shards to the manifest's tables, metrics and core records.

The ledger: what became of all shards, counted in one look at each, since looking makes an object of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any, TypeGuard, cast

import pyarrow as pa

from dataaudit.config import AuditConfig
from dataaudit.engine.gather import UNREAD, GatheredShard
from dataaudit.manifest.core import Coverage, HeadlineMetric, LedgerRecord, SplitRecord, Totals
from dataaudit.manifest.metric import Metric, Scope, count, ratio, rounded
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.registry import FAMILIES, STATISTICS
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.stages.base import Comparing, Context, Stage, applies, merge, nothing
from dataaudit.scan.stages.partial import Partial, Reference

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
        return pa.table([list(item) for item in zip(*self._losses, strict=True)] or [[]] * len(_LOSSES), schema=_LOSSES)

    def record(self, documents: int) -> LedgerRecord:
        """Return the counts; each line balances."""
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
        groups = [(Scope(), self._whole), *((Scope(split=name), item) for name, item in sorted(self._splits.items()))]
        for scope, counts in groups:
            of = (("shards", counts.listed, counts.shards), ("documents", counts.held_back, counts.records))
            for stat, value, n in of:
                found.append(count("held_back_shards", stat, value, scope=scope, unit=stat, n=n, version="1"))
        return found if any(record.value for record in found) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What stages are told beside the documents."""

    reference: Reference | None = None
    """Token counts of the reference manifest."""
    vocab_size: int = 0
    """Of the tokenizer."""
    protects: frozenset[str] = frozenset()
    """Of ``held_out`` and ``items`` what the build protects."""
    trains: bool = True
    """Whether there is a training document."""
    folded: frozenset[str] = frozenset()
    """Stages in whose partials the source `other` stands for several."""

    def context(self, stage: Stage, split: str | None, mixture: Mapping[str, float] | None = None) -> Context:
        """Return the context of a stage in one split, or in all."""
        return Context(
            scope=Scope(split=split),
            mixture=mixture or {},
            reference=self.reference,
            vocab_size=self.vocab_size,
            folded=stage.name in self.folded,
            protects=self.protects,
            trains=self.trains,
        )


NOTHING_BESIDE = Setting()
SHARDS = TABLES["shards"].schema


def shard_row(shard: GatheredShard) -> dict[str, Any]:
    """Return the row of a shard in the table of shards; what stages fill is null."""
    planned, rows_digest = shard.planned, shard.rows_digest
    plan, probe = planned.shard, planned.probe
    streamed = plan.format == "datasets"
    row: dict[str, Any] = dict.fromkeys(SHARDS.names)
    row |= {
        "shard": plan.ordinal,
        "uri": plan.uri,
        "split": plan.split,
        "format": plan.format,
        "compression": plan.compression,
        "size": shard.size,
        "sha256": (rows_digest or "") if streamed else probe.sha256 if probe else "",
        "rows_digest": rows_digest,
        "schema_fingerprint": shard.fingerprint,
        "status": shard.status,
        "reason": str(shard.reason),
        "rows": shard.records,
        "bad_records": shard.bad_records,
    }
    if shard.status in UNREAD:
        row |= {"documents": 0, "bytes": 0, "tokens": 0, "sources": []}
    return row


def _compares(stage: Stage) -> TypeGuard[Comparing]:
    return _compare(type(stage))


@cache
def _compare(kind: type) -> bool:
    """Tell whether stages of a class compare shards: Python takes its time to find out, and is asked for each shard."""
    return issubclass(kind, Comparing)


def stage_columns(stage: Stage, partial: Partial, split: str, setting: Setting) -> dict[str, Any]:
    """Return the columns of the table of shards that a stage fills."""
    found: Mapping[str, Any] = {}
    if not _compares(stage):
        found = stage.shard_columns(partial)
    elif setting.reference is not None:
        found = stage.compare_shard(partial, setting.context(cast("Stage", stage), split))
    columns = {name: rounded(value) if isinstance(value, float) else value for name, value in found.items()}
    if stage.name == "volume":
        columns["sources"] = partial["volume"].drop_columns(["empty"]).to_pylist()
    return columns


def metric_records(
    ledger: Ledger,
    stages: Sequence[Stage],
    config: AuditConfig,
    merged: Mapping[str, Mapping[str, Partial]],
    setting: Setting = NOTHING_BESIDE,
) -> tuple[MetricRows, dict[str, dict[str, Partial]]]:
    """Finalise every stage for the dataset and each split."""
    mixture = {name: entry.weight for name, entry in config.mixture.items()}
    metrics: list[Sequence[Metric]] = []
    every: dict[str, dict[str, Partial]] = {}
    for split in sorted(config.splits):
        held_out = config.splits[split].held_out
        looking = [stage for stage in stages if applies(stage, held_out=held_out)]
        every[split] = {stage.name: merged.get(split, {}).get(stage.name, nothing(stage)) for stage in looking}
        for stage in looking:
            declared = {} if held_out else mixture
            metrics.append(stage.finalize(every[split][stage.name], setting.context(stage, split, declared)))
    every[""] = {
        stage.name: merge(stage, [found[stage.name] for found in every.values() if stage.name in found])
        for stage in stages
    }
    metrics += [stage.finalize(every[""][stage.name], setting.context(stage, None)) for stage in stages]
    return MetricRows.joined([*metrics, _upstream(config), ledger.metrics()]), every


def _upstream(config: AuditConfig) -> list[Metric]:
    return [
        ratio(
            "filter_upstream",
            "reject_rate",
            entry.documents_in - entry.documents_out,
            entry.documents_in,
            scope=Scope(rule=f"{entry.name}@{entry.version}" if entry.version else entry.name),
            unit="ratio",
            version="1",
        )
        for entry in config.upstream_filters
    ]


def headline(metrics: MetricRows) -> tuple[HeadlineMetric, ...]:
    """Return the dataset-wide metrics that are shown first."""
    found = {(record.metric, record.stat): record for record in metrics.where(**dict.fromkeys(Scope.__slots__))}
    return tuple(
        HeadlineMetric(
            metric=record.metric,
            stat=record.stat,
            scope={},
            unit=record.unit,
            value=record.value,
            status=record.status,
        )
        for key, known in STATISTICS.items()
        if known.headline and (record := found.get(key)) is not None
    )


def source_tables(merged: Mapping[str, Mapping[str, Partial]]) -> dict[str, pa.Table]:
    """Return the tables that are partials of a stage, by split."""
    tables = {table: (family.stage_name, partial) for family in FAMILIES for table, partial in family.tables.items()}
    filled = {}
    for table, (stage, part) in tables.items():
        schema = TABLES[table].schema
        pieces = [schema.empty_table()]
        for split, partials in merged.items():
            if split and stage in partials:
                rows = partials[stage][part]
                named = rows.append_column("split", pa.array([split] * rows.num_rows, pa.string()))
                pieces.append(named.select(schema.names).cast(schema))
        filled[table] = pa.concat_tables(pieces)
    return filled


def totals(table: pa.Table, config: AuditConfig) -> tuple[Totals, tuple[SplitRecord, ...]]:
    """Return the totals of the dataset and of its splits, from the table of shards."""
    counts = ("documents", "bytes", "tokens")
    by_split = (
        table.select(["split", "status", *counts])
        .group_by(["split", "status"], use_threads=False)
        .aggregate([("split", "count"), *((name, "sum") for name in counts)])
    )
    read = [row for row in by_split.to_pylist() if row["status"] not in UNREAD]

    def summed(rows: Sequence[Mapping[str, int]]) -> dict[str, int]:
        sums = {name: sum(row[f"{name}_sum"] or 0 for row in rows) for name in counts}
        return {"shards": sum(row["split_count"] for row in rows), **sums}

    splits = tuple(
        SplitRecord(name=name, held_out=split.held_out, **summed([row for row in read if row["split"] == name]))
        for name, split in sorted(config.splits.items())
    )
    return Totals(**summed(read)), splits
