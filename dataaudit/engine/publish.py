"""Publish a manifest: its tables, metrics, ledger, core and run, from the sums over all shards."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from importlib.metadata import version
from pkgutil import resolve_name

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit import __version__
from dataaudit.base.errors import ExitCode, NothingEvaluated
from dataaudit.base.redact import without_secrets
from dataaudit.config import AuditConfig
from dataaudit.engine.collect import UNREAD, CollectedShard, CollectedShards
from dataaudit.engine.job import BuildResult, Job
from dataaudit.engine.plan import library_versions
from dataaudit.engine.sums import NOTHING_BESIDE, Setting
from dataaudit.manifest.core import (
    Core,
    CountedBy,
    Coverage,
    DetectorRecord,
    HeadlineMetric,
    LedgerRecord,
    Named,
    ProtectedRecord,
    Run,
    SplitRecord,
    StageRecord,
    TokenizerRecord,
    Totals,
    UpstreamFilterRecord,
)
from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.publish import POINTER, prepare_tables, publish, table_records
from dataaudit.manifest.s3 import shown
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.peers import with_unusual_languages
from dataaudit.metrics.registry import FAMILIES, STATISTICS, by_stage
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.cross_shard.step import LinkResult
from dataaudit.scan.detectors import key_id
from dataaudit.scan.stages.base import Stage, applies, merge, nothing, parameters
from dataaudit.scan.stages.partial import Partial


@dataclass(slots=True, kw_only=True)
class BuildSums:
    """All that is known once the scan and the link step are done."""

    shards: CollectedShards
    results: dict[str, LinkResult]
    table: pa.Table
    merged: Mapping[str, Mapping[str, Partial]]
    setting: Setting


def result_tables(results: Mapping[str, LinkResult]) -> dict[str, pa.Table]:
    """Return the tables of all families; those of one name are joined."""
    pieces: dict[str, list[pa.Table]] = {}
    for link_result in results.values():
        for name, table in link_result.tables.items():
            pieces.setdefault(name, []).append(table)
    return {name: pa.concat_tables(tables) for name, tables in pieces.items()}


def publish_build(job: Job, gathered: BuildSums, started: str, hosts: tuple[str, ...], workers: int) -> BuildResult:
    """Finalise every stage, publish the manifest and say what it is."""
    shards, progress = gathered.shards, job.progress
    progress.begin("publish", 2, 0)
    setting, table, ledger = gathered.setting, with_unusual_languages(gathered.table), Ledger(shards)
    records, merged = metric_records(ledger, job.stages, job.config, gathered.merged, setting)
    metrics = MetricRows.joined([records, *(found.metrics for found in gathered.results.values())])
    tables = prepare_tables(
        {
            "shards": table,
            "ledger": ledger.table(),
            **result_tables(gathered.results),
            **source_tables(merged),
            **_finished(job, merged, setting),
        },
        metrics,
    )
    progress.advance(0)
    whole, splits = totals(table, job.config)
    core = Core(
        tool=Named(name="dataaudit", version=__version__),
        dataset=Named(name=job.config.dataset.name, version=without_secrets(job.config.dataset.version)),
        parents=job.parents,
        config=job.config.semantic(),
        stages=tuple(
            StageRecord(name=stage.name, version=stage.version, parameters=parameters(stage)) for stage in job.stages
        ),
        libraries=library_versions(),
        tokenizer=_tokenizer_record(job, merged[""]["volume"]["encoding"]),
        detectors=_detector_records(job),
        protected=tuple(
            ProtectedRecord(name=facts.name, items=len(facts.ids), sha256=facts.sha256)
            for facts in (job.protected.sets if job.protected else ())
        ),
        upstream_filters=tuple(
            UpstreamFilterRecord.model_validate(entry.model_dump(by_alias=True))
            for entry in job.config.upstream_filters
        ),
        mixture={name: entry.model_dump() for name, entry in sorted(job.config.mixture.items())},
        splits=splits,
        totals=whole,
        headline=headline(metrics),
        ledger=ledger.record(whole.documents),
        quarantine=() if job.exclusions is None else job.exclusions.identities(),
        seeds={"sample": job.config.seed},
        hmac_key=key_id(job.options.hmac_key),
        tables=table_records(tables),
    )
    progress.advance(0)
    run = Run(
        roots={  # as text that JSON can hold
            name: os.fsencode(root).decode("utf-8", "backslashreplace") for name, root in sorted(job.roots.items())
        },
        started=started,
        finished=now(),
        hosts=hosts,
        workers=workers,
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in ("dask", "distributed", "tokenizers")},
        },
        parts_planned=job.planned_parts,
        parts_scanned=job.scanned,
        notes=tuple(map(without_secrets, job.runner.notes[:100])),
        quarantine=None if job.exclusions is None else job.exclusions.record(),
    )
    if whole.documents == 0 and (job.options.target / POINTER).is_file():
        raise NothingEvaluated(
            f"no shard entered the numbers; the manifest at {shown(job.options.target)} was kept as it was",
            f"All {len(shards)} shard(s) are unread, the first for {shards[0].reason or 'holding no document'};"
            " build into a new folder to look at the ledger.",
        )
    folders = {name: fill for result in gathered.results.values() for name, fill in result.folders.items()}
    identity = publish(job.options.target, core, run, tables, folders)
    progress.end(tell_short=False)  # and nothing that an interrupt ends: what is published is published
    code = ExitCode.NOT_EVALUATED if ledger.unread else ExitCode.PASS
    if whole.documents == 0:
        code = ExitCode.NOTHING_EVALUATED
    return BuildResult(
        id=identity,
        exit_code=code,
        scanned=job.scanned,
        planned=job.planned_parts,
        unread=tuple(ledger.unread),
        held_back=ledger.whole.listed,
        held_back_documents=ledger.whole.held_back,
        paths=job.shards.paths(),
    )


def _tokenizer_record(job: Job, encoding: pa.Table) -> TokenizerRecord:
    counted = dict.fromkeys(("gigatoken", "reference"), CountedBy(documents=0, bytes=0))
    for row in encoding.to_pylist():
        counted[row["encoder"]] = CountedBy(documents=row["documents"], bytes=row["bytes"])
    return TokenizerRecord(
        name=job.tokenizer.name,
        format=job.tokenizer.format,
        sha256=job.tokenizer.sha256,
        vocab_size=job.tokenizer.vocab_size,
        special_ids=job.tokenizer.special_ids,
        encoder="gigatoken" if job.encoder_reason == "ok" else "reference",
        encoder_reason=job.encoder_reason,
        counted_by=counted,
        sampled=int(pc.sum(encoding["sampled"]).as_py() or 0),
    )


def _detector_records(job: Job) -> tuple[DetectorRecord, ...]:
    """Return what looked at documents, sorted by name; the config says which one's answer counts."""
    models = () if job.languages is None else job.languages.named
    records = [
        DetectorRecord(name=model.name, version=model.version, sha256=model.sha256, languages=model.languages)
        for model in models
    ]
    return tuple(
        sorted([*records, *job.content.records()], key=lambda record: (record.name, record.version, record.sha256))
    )


def _finished(job: Job, merged: Mapping[str, Mapping[str, Partial]], setting: Setting) -> dict[str, pa.Table]:
    """Return the tables that families make of merged partials."""
    families, tables = by_stage(), dict[str, pa.Table]()
    for stage in job.stages:
        if path := families[stage.name].finish:
            tables |= resolve_name(path)(
                stage, merged, partial(setting.context, stage), job.tokenizer, job.progress.note
            )
    return tables


def now() -> str:
    """Return the time, UTC, ISO 8601."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


_LOSSES = TABLES["ledger"].schema


@dataclass(slots=True)
class _Counts:
    """Of some shards."""

    shards: int = 0
    size: int = 0
    unread: int = 0
    """Stored bytes of shards that were not read, without quarantined ones."""
    listed: int = 0
    """Shards that the quarantine list holds back."""
    listed_bytes: int = 0
    held_back: int = 0
    """Documents of other shards that it holds back."""
    records: int = 0

    def add(self, shard: CollectedShard) -> None:
        """Count a shard."""
        size, listed = shard.size, shard.reason == Reason.QUARANTINE_LIST
        self.shards += 1
        self.size += size
        self.unread += size if shard.status in UNREAD and not listed else 0
        self.listed += listed
        self.listed_bytes += size if listed else 0
        self.held_back += shard.held_back
        self.records += shard.records


class Ledger:
    """Counts of all shards, and every loss."""

    def __init__(self, shards: Iterable[CollectedShard]) -> None:
        self.unread: list[tuple[str, str]] = []
        """Name and reason of each shard that should have been read and could not be."""
        self._splits: dict[str, _Counts] = {}
        self._lost: dict[str, int] = {}
        self._losses: list[tuple[int, str, str, int, int]] = []
        self._numbers, self._sizes = (dict.fromkeys(("read", *UNREAD), 0) for _ in range(2))
        self._bad = self._known = self._uncounted = 0
        for shard in shards:
            self._add(shard)
        self.whole = _Counts(*(sum(column) for column in zip(*map(astuple, self._splits.values()), strict=True)))

    def _add(self, shard: CollectedShard) -> None:
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

    def table(self) -> pa.Table:
        """Return every loss."""
        return pa.table([list(item) for item in zip(*self._losses, strict=True)] or [[]] * len(_LOSSES), schema=_LOSSES)

    def record(self, documents: int) -> LedgerRecord:
        """Return the counts; each line balances."""
        bad, known, held_back = self._bad, self._known, self.whole.held_back
        return LedgerRecord(
            shards=Coverage(planned=self.whole.shards, **self._numbers),
            bytes=Coverage(planned=self.whole.size, **self._sizes),
            documents=Coverage(
                planned=documents + bad + known + held_back,
                read=documents,
                bad=bad,
                held_back=held_back,
                quarantined=known,
                skipped=0,
            ),
            uncounted_shards=self._uncounted,
            listed_shards=self.whole.listed,
            listed_bytes=self.whole.listed_bytes,
        )

    def metrics(self) -> list[Metric]:
        """Return the records of both families."""
        return [*self._coverage(), *self._held_back()]

    def _coverage(self) -> list[Metric]:
        """Return the bytes that were planned and not read, in all and by reason; quarantined ones were not planned."""
        values = [("bytes", Scope(), sum(self._lost.values())), ("shard_bytes", Scope(), self.whole.unread)]
        values += [("bytes", Scope(rule=reason), value) for reason, value in sorted(self._lost.items())]
        planned = {name: counts for name, counts in sorted(self._splits.items()) if counts.shards > counts.listed}
        values += [("shard_bytes", Scope(split=name), counts.unread) for name, counts in planned.items()]
        num_bytes = self.whole.size - self.whole.listed_bytes
        return [
            count("coverage_unread_bytes", stat, value, scope=scope, unit="bytes", n=num_bytes, version="1")
            for stat, scope, value in values
        ]

    def _held_back(self) -> list[Metric]:
        """Return what the quarantine list left out, in all and by split; no record where that is nothing."""
        records = []
        groups = [(Scope(), self.whole), *((Scope(split=name), item) for name, item in sorted(self._splits.items()))]
        for scope, counts in groups:
            of = (("shards", counts.listed, counts.shards), ("documents", counts.held_back, counts.records))
            for stat, value, n in of:
                records.append(count("held_back_shards", stat, value, scope=scope, unit=stat, n=n, version="1"))
        return records if any(record.value for record in records) else []


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
    by_key = {(record.metric, record.stat): record for record in metrics.where(**dict.fromkeys(Scope.__slots__))}
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
        if known.headline and (record := by_key.get(key)) is not None
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
