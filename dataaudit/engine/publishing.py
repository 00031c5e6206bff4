"""From gathered shards to a published manifest: the core, the run, the tables."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pkgutil import resolve_name

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit import __version__
from dataaudit.base.errors import ExitCode, NothingEvaluated
from dataaudit.base.redact import without_secrets
from dataaudit.engine.job import BuildResult, Job
from dataaudit.engine.linking import Gathered, result_folders, result_tables
from dataaudit.engine.manifest_tables import (
    Ledger,
    Setting,
    headline,
    metric_records,
    source_tables,
    totals,
)
from dataaudit.engine.plan import library_versions
from dataaudit.manifest.core import (
    Core,
    CountedBy,
    DetectorRecord,
    Named,
    ProtectedRecord,
    Run,
    StageRecord,
    TokenizerRecord,
    UpstreamFilterRecord,
)
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.publish import POINTER, prepare_tables, publish, table_records
from dataaudit.manifest.s3 import shown
from dataaudit.metrics.peers import with_unusual_languages
from dataaudit.metrics.registry import by_stage
from dataaudit.scan.detectors import key_id
from dataaudit.scan.stages.base import parameters
from dataaudit.scan.stages.partial import Partial


def publish_build(job: Job, gathered: Gathered, started: str, hosts: tuple[str, ...], workers: int) -> BuildResult:
    """Finalise every stage, publish the manifest and say what it is."""
    shards, progress = gathered.shards, job.progress
    progress.begin("publish", 2, 0)
    setting, table, ledger = gathered.setting, with_unusual_languages(gathered.table), Ledger(shards)
    records, merged = metric_records(ledger, job.stages, job.config, gathered.merged, setting)
    metrics = MetricRows.joined([records, *(found.metrics for found in gathered.found.values())])
    tables = prepare_tables(
        {
            "shards": table,
            "ledger": ledger.table(),
            **result_tables(gathered.found),
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
        protected=_protected_records(job),
        upstream_filters=tuple(
            UpstreamFilterRecord.model_validate(entry.model_dump(by_alias=True))
            for entry in job.config.upstream_filters
        ),
        mixture={name: entry.model_dump() for name, entry in sorted(job.config.mixture.items())},
        splits=splits,
        totals=whole,
        headline=headline(metrics),
        ledger=ledger.record(whole.documents),
        quarantine=() if job.holding is None else job.holding.identities(),
        seeds={"sample": job.config.seed},
        hmac_key=key_id(job.options.hmac_key),
        tables=table_records(tables),
    )
    progress.advance(0)
    run = Run(
        roots={name: _printable(root) for name, root in sorted(job.roots.items())},
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
        quarantine=None if job.holding is None else job.holding.record(),
    )
    if whole.documents == 0 and (job.options.target / POINTER).is_file():
        raise NothingEvaluated(
            f"no shard entered the numbers; the manifest at {shown(job.options.target)} was kept as it was",
            f"All {len(shards)} shard(s) are unread, the first for {shards[0].reason or 'holding no document'};"
            " build into a new folder to look at the ledger.",
        )
    identity = publish(job.options.target, core, run, tables, result_folders(gathered.found))
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
        held_back=ledger.held_back_shards,
        held_back_documents=ledger.held_back_documents,
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
    families, found = by_stage(), dict[str, pa.Table]()
    for stage in job.stages:
        if path := families[stage.name].finish:
            found |= resolve_name(path)(
                stage, merged, partial(setting.context, stage), job.tokenizer, job.progress.note
            )
    return found


def _protected_records(job: Job) -> tuple[ProtectedRecord, ...]:
    """Return the evaluation sets by name; held-out splits are among the splits."""
    sets = () if job.protected is None else job.protected.sets
    return tuple(ProtectedRecord(name=facts.name, items=len(facts.ids), sha256=facts.sha256) for facts in sets)


def _printable(path: str) -> str:
    """Return a path as text that JSON can hold, also when its bytes are no UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def now() -> str:
    """Return the time, UTC, ISO 8601."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
