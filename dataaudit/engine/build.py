"""The build, start to end: discover, probe, plan, scan, link, publish.

Whatever happens in between (kills, other orders, other numbers of workers, a rerun that finds half of the
work done) the same input gives the same manifest id.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit import __version__
from dataaudit.config import AuditConfig
from dataaudit.corpus.loss import Reason
from dataaudit.corpus.shards import Discovery, Shard, discover
from dataaudit.corpus.tokens import Risks, TokenizerFile, inspect_risks, resolve_tokenizer
from dataaudit.engine.cluster import ClusterChoice, open_cluster
from dataaudit.engine.gather import (
    DamagedEntryError,
    GatheredShard,
    fold_sources,
    gather_partials,
    gather_readings,
    kept_sources,
)
from dataaudit.engine.index import StatIndex
from dataaudit.engine.keys import library_versions, tokenizer_value
from dataaudit.engine.linking import (
    Linked,
    add_duplicates,
    clusters_table,
    link_exact_duplicates,
    rows_digests,
)
from dataaudit.engine.plan import PlannedShard, missing_units, plan_shard
from dataaudit.engine.probing import probe_shards, resolve_columns
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.store import PartialStore
from dataaudit.engine.tables import (
    headline,
    ledger_record,
    ledger_table,
    metric_records,
    shards_table,
    source_tables,
    totals,
)
from dataaudit.engine.work import Outcome, Probe, ScanSettings, scan_part
from dataaudit.errors import BuildInterrupted, ClusterError, ConfigError, ExitCode
from dataaudit.link.exact import COUNTS, MEMBERS
from dataaudit.manifest.core import (
    Core,
    CountedBy,
    Named,
    Run,
    StageRecord,
    TokenizerRecord,
    UpstreamFilterRecord,
)
from dataaudit.manifest.load import load_manifest, metrics_table
from dataaudit.manifest.publish import check_target, prepare_tables, publish, table_records
from dataaudit.stages import make_stages
from dataaudit.stages.base import Stage, parameters
from dataaudit.stages.exact_dup import ExactDup

STATE_FOLDER = ".dataaudit"
_SCANS = 8
"""Scans of one build: damage may come to light at every step after one, and the encoder may change once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How to run a build; nothing here changes a number."""

    target: Path
    """Folder of the manifest."""
    state: Path | None = None
    """Folder of partials and indexes; ``.dataaudit`` beside the manifest when None."""
    cluster: ClusterChoice = field(default_factory=ClusterChoice)
    """Workers."""
    fresh: bool = False
    """Compute everything anew."""
    rehash: bool = False
    """Hash every file, changed or not."""
    unit_seconds: float = 1800.0
    """Time a sub-shard may take before it counts as stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What a build published."""

    id: str
    exit_code: ExitCode
    scanned: int
    """Sub-shards read in this run."""
    planned: int
    """Sub-shards in the plan."""
    unread: tuple[tuple[str, str], ...]
    """(uri, reason) of shards that are not in the metrics."""


@dataclass(slots=True, kw_only=True)
class _Build:
    config: AuditConfig
    options: BuildOptions
    progress: Progress
    stages: tuple[Stage, ...]
    discovery: Discovery
    tokenizer: TokenizerFile
    risks: Risks
    parents: tuple[str, ...]
    store: PartialStore
    runner: Runner
    scanned: int = 0
    planned_parts: int = 0
    encoder_reason: str = "ok"


@dataclass(slots=True, kw_only=True)
class _Gathered:
    shards: list[GatheredShard]
    linked: Linked
    digests: dict[int, str]


def build(
    config: AuditConfig, base: Path, *, root_at_base: bool, options: BuildOptions, progress: Progress
) -> BuildResult:
    """Build and publish a manifest.

    Args:
        config: What to audit.
        base: Folder that relative paths start from.
        root_at_base: Whether URIs are relative to ``base`` when it holds every shard.
        options: How to run.
        progress: Where to report.

    Raises:
        DataAuditError: See the error tree; nothing was published.
    """
    started = _now()
    check_target(options.target)
    stages = make_stages(config.stages)
    discovery = discover(config.splits, base, root_at_base=root_at_base, follow_symlinks=config.reader.follow_symlinks)
    _tell_discovery(discovery, progress)
    state = _state_folder(options)
    tokenizer = resolve_tokenizer(config.tokenizer, base_dir=base, cache_dir=state / "tokenizers")
    risks = inspect_risks(tokenizer, cache_dir=state / "tokenizers")
    parents = () if config.reference is None else (load_manifest(base / config.reference).id,)
    with open_cluster(options.cluster, state) as cluster:
        plural = "s" if cluster.num_workers != 1 else ""
        dashboard = f", dashboard {cluster.dashboard}" if cluster.dashboard else ""
        progress.note(f"workers: {cluster.num_workers} worker{plural} on {', '.join(cluster.hosts)}{dashboard}")
        runner = Runner(cluster=cluster, unit_seconds=options.unit_seconds)
        try:
            probes, failures = _probe(config, options, discovery, state, runner, progress)
            config = resolve_columns(config, discovery.shards, runner, progress)
            work = _Build(
                config=config, options=options, progress=progress, stages=stages, discovery=discovery,
                tokenizer=tokenizer, risks=risks, parents=parents, store=PartialStore(state), runner=runner,
            )  # fmt: skip
            gathered = _scan_and_link(work, probes, failures)
        except KeyboardInterrupt:
            raise BuildInterrupted(
                "interrupted; what was finished is kept",
                "Run the same command again and it goes on from here.",
            ) from None
        hosts, workers = cluster.hosts, cluster.num_workers
    return _publish(work, gathered, started, hosts, workers)


def _scan_and_link(work: _Build, probes: dict[str, Probe], failures: dict[str, tuple[Reason, str]]) -> _Gathered:
    """Scan until nothing is missing and no encoder was found to differ, then link.

    Whether the fast encoder differs is decided by the shards that are read, all of them: a decision by what
    came first, or by this run alone, would give a rerun another identity.
    """
    force_reference = not work.risks.supported
    work.encoder_reason = work.risks.reason
    fresh = work.options.fresh
    for _ in range(_SCANS):
        planned = _plan(work, probes, failures, force_reference=force_reference)
        lost = _scan(work, planned, force_reference=force_reference, fresh=fresh)
        try:
            shards = gather_readings(planned, lost, work.store, max_bad=work.config.reader.max_bad_records)
            gather_partials(shards, work.stages, work.store)
            if not force_reference and _differing(shards):
                work.progress.note("the fast encoder differs on a sampled document: all is counted by the reference")
                force_reference, work.encoder_reason = True, "sample_difference"
                continue
            return _link(work, shards, fresh=fresh)
        except DamagedEntryError as error:
            fresh = False
            work.runner.notes.append(f"{len(error.names)} damaged partial(s) computed again: {error}")
    raise ClusterError("stored partials keep being damaged", f"Check the disk of {work.store.root}.")


def _probe(
    config: AuditConfig,
    options: BuildOptions,
    discovery: Discovery,
    state: Path,
    runner: Runner,
    progress: Progress,
) -> tuple[dict[str, Probe], dict[str, tuple[Reason, str]]]:
    index = StatIndex(state / "files.sqlite")
    try:
        return probe_shards(
            discovery.shards, index, runner, progress,
            part_bytes=config.reader.part_bytes, rehash=options.rehash or options.fresh,
        )  # fmt: skip
    finally:
        index.close()


def _plan(
    work: _Build,
    probes: dict[str, Probe],
    failures: dict[str, tuple[Reason, str]],
    *,
    force_reference: bool,
) -> list[PlannedShard]:
    value = tokenizer_value(work.tokenizer, work.risks, force_reference=force_reference, seed=work.config.seed)
    return [
        plan_shard(shard, probes.get(shard.path), failures.get(shard.path), work.config, work.stages, value)
        for shard in work.discovery.shards
    ]


def _scan(
    work: _Build, planned: Sequence[PlannedShard], *, force_reference: bool, fresh: bool
) -> dict[str, tuple[Reason, str]]:
    """Scan what is missing; return the parts that could not be read."""
    units = missing_units(planned, work.store, fresh=fresh)
    work.planned_parts = len({part.reading_key for item in planned for part in item.parts})
    settings = ScanSettings(
        state=work.store.root, stages=work.stages, tokenizer=work.tokenizer, risks=work.risks,
        force_reference=force_reference, seed=work.config.seed,
    )  # fmt: skip
    lost: dict[str, tuple[Reason, str]] = {}
    if len(units) < work.planned_parts:
        work.progress.note(f"scan: {work.planned_parts - len(units):,} of {work.planned_parts:,} parts are known")
    work.progress.begin("scan", len(units), sum(unit.size for unit in units))

    def done(index: int, outcome: Outcome) -> bool:
        unit = units[index]
        work.scanned += 1
        if outcome.reason is not None:
            lost[unit.reading_key] = (outcome.reason, outcome.place)
        work.progress.advance(unit.size, failed=outcome.reason is not None)
        return True

    work.runner.run("scan", partial(scan_part, settings=settings), units, done)
    work.progress.end()
    return lost


def _link(work: _Build, shards: list[GatheredShard], *, fresh: bool) -> _Gathered:
    linked = Linked(COUNTS.empty_table(), MEMBERS.empty_table())
    if any(stage.name == ExactDup.name for stage in work.stages):
        linked = link_exact_duplicates(shards, work.store, work.runner, work.progress, fresh=fresh)
    digests = rows_digests(shards, work.store, work.runner)
    kept = kept_sources(shards, work.config.max_sources)
    if kept is not None:
        fold_sources(shards, work.stages, kept)
    add_duplicates(shards, linked.counts, kept)
    return _Gathered(shards=shards, linked=linked, digests=digests)


def _publish(work: _Build, gathered: _Gathered, started: str, hosts: tuple[str, ...], workers: int) -> BuildResult:
    shards = gathered.shards
    table = shards_table(shards, work.stages, gathered.digests)
    metrics, merged = metric_records(shards, work.stages, work.config)
    tables = prepare_tables(
        {
            "shards": table,
            "metrics": metrics_table(metrics),
            "ledger": ledger_table(shards),
            "clusters": clusters_table(gathered.linked.members),
            **source_tables(merged),
        }
    )
    whole, splits = totals(table, work.config)
    core = Core(
        tool=Named(name="dataaudit", version=__version__),
        dataset=Named(name=work.config.dataset.name, version=work.config.dataset.version),
        parents=work.parents,
        config=work.config.semantic(),
        stages=tuple(
            StageRecord(name=stage.name, version=stage.version, parameters=parameters(stage)) for stage in work.stages
        ),
        libraries=library_versions(),
        tokenizer=_tokenizer_record(work, merged[""]["volume"]["encoding"]),
        upstream_filters=tuple(
            UpstreamFilterRecord.model_validate(entry.model_dump(by_alias=True))
            for entry in work.config.upstream_filters
        ),
        mixture={name: entry.model_dump() for name, entry in sorted(work.config.mixture.items())},
        splits=splits,
        totals=whole,
        headline=headline(metrics),
        ledger=ledger_record(shards, whole.documents),
        seeds={"sample": work.config.seed},
        tables=table_records(tables),
    )
    run = Run(
        roots=dict.fromkeys(sorted(work.config.splits), _printable(work.discovery.root)),
        started=started,
        finished=_now(),
        hosts=hosts,
        workers=workers,
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in ("dask", "distributed", "tokenizers")},
        },
        parts_planned=work.planned_parts,
        parts_scanned=work.scanned,
        notes=tuple(work.runner.notes[:100]),
    )
    identity = publish(work.options.target, core, run, tables)
    unread = tuple(
        (f"{shard.planned.shard.split}/{shard.planned.shard.uri}", str(shard.reason))
        for shard in shards
        if not shard.partials
    )
    code = ExitCode.NOT_EVALUATED if unread else ExitCode.PASS
    if whole.documents == 0:
        code = ExitCode.NOTHING_EVALUATED
    return BuildResult(id=identity, exit_code=code, scanned=work.scanned, planned=work.planned_parts, unread=unread)


def _tokenizer_record(work: _Build, encoding: pa.Table) -> TokenizerRecord:
    counted = {
        row["encoder"]: CountedBy(documents=row["documents"], bytes=row["bytes"]) for row in encoding.to_pylist()
    }
    return TokenizerRecord(
        name=work.tokenizer.name,
        format=work.tokenizer.format,
        sha256=work.tokenizer.sha256,
        vocab_size=work.tokenizer.vocab_size,
        special_ids=work.tokenizer.special_ids,
        encoder="gigatoken" if work.encoder_reason == "ok" else "reference",
        encoder_reason=work.encoder_reason,
        counted_by=counted,
        sampled=int(pc.sum(encoding["sampled"]).as_py() or 0),
    )


def _differing(shards: Sequence[GatheredShard]) -> int:
    tables = [shard.partials["volume"]["encoding"] for shard in shards if shard.partials]
    return sum(sum(table["differing"].to_pylist()) for table in tables)


def _state_folder(options: BuildOptions) -> Path:
    state = (options.state or options.target.absolute().parent / STATE_FOLDER).absolute()
    try:
        state.mkdir(parents=True, exist_ok=True)
        (state / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the state folder {state} cannot be written: {error.strerror}", "Name one with --state."
        ) from None
    return state


def _printable(path: Path) -> str:
    """Return a path as text that JSON can hold, also when its bytes are no UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _tell_discovery(discovery: Discovery, progress: Progress) -> None:
    by_split: dict[str, list[Shard]] = {}
    for shard in discovery.shards:
        by_split.setdefault(shard.split, []).append(shard)
    parts = [
        f"{name} {len(shards):,} shards, {sum(shard.size for shard in shards) / 1e6:,.1f} MB"
        for name, shards in by_split.items()
    ]
    progress.note(f"found: {'; '.join(parts)} (below {discovery.root})")
    copies = sum("#copy=" in shard.uri for shard in discovery.shards)
    if copies:
        progress.note(f"found: {copies} listings of a file that is listed before; each counts as a shard")
    if discovery.left_out:
        shown = ", ".join(discovery.left_out[:3])
        more = f" and {len(discovery.left_out) - 3:,} more" if len(discovery.left_out) > 3 else ""
        progress.note(f"found: {len(discovery.left_out):,} files that are no data left out: {shown}{more}")


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
