"""A build, start to end: discover, probe, plan, scan, join, sum, publish.

Kills, other orders, other numbers of workers or a rerun that has half of the work already: the same input gives the
same manifest id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

import numpy as np

from dataaudit.base.errors import BuildInterrupted, ClusterError
from dataaudit.base.extras import require
from dataaudit.base.files import DamagedFileError
from dataaudit.base.process import give_memory_back
from dataaudit.base.text import plural, some_of
from dataaudit.config import AuditConfig
from dataaudit.engine.cluster import ClusterChoice
from dataaudit.engine.collect import CollectedShards, check_documents, survey
from dataaudit.engine.inputs import check_inputs
from dataaudit.engine.job import (
    BuildOptions,
    BuildResult,
    Job,
    finish_kernels,
    prepare_content,
    prepare_languages,
    prepare_reference,
    prepare_tokenizer,
    state_folder,
    tell_discovery,
    unused_kernels,
)
from dataaudit.engine.join import run_join, run_link_steps
from dataaudit.engine.plan import (
    ExclusionFilter,
    PlannedShard,
    check_splits,
    decisive_values,
    plan_shard,
    stage_identity,
)
from dataaudit.engine.plan_probe import probe_shards, resolve_columns
from dataaudit.engine.plan_protected import prepare_protected
from dataaudit.engine.plan_shards import Plan, ShardList, missing_units
from dataaudit.engine.progress import Progress
from dataaudit.engine.publish import BuildSums, now, publish_build
from dataaudit.engine.runner import Runner, ScanSettings, Services, run_units
from dataaudit.engine.scan import Scan
from dataaudit.engine.second_pass import PartsLostError, run_second_pass
from dataaudit.engine.state_folder import open_state
from dataaudit.engine.store import PartialStore
from dataaudit.engine.sums import Setting, SumTask, run_sums
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.publish import check_target
from dataaudit.metrics.registry import by_stage
from dataaudit.metrics.stages import make_stages
from dataaudit.scan.annotators import MATCHES
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.shards import discover, passed_over
from dataaudit.scan.corpus.storage.address import Access
from dataaudit.scan.cross_shard.step import (
    DamagedEntryError,
    LinkContext,
    LinkResult,
    Survey,
    folded_totals,
    largest_sources,
)
from dataaudit.scan.kernels.jit import compiling
from dataaudit.scan.stages.base import Limited, Stage

_SCANS = 8
"""Scans of one build. Damage costs one more, since all of it is looked for when some is met; more only when the disk
damages what was just written."""
_TRUST_KEYED = "state: only what is sealed under the state key is believed"
_TRUST_NOTHING = (
    "state: the build signs, so everything is computed anew and nothing is kept; --state-key FILE would keep it"
)
_NAMED = 3


def build(
    config: AuditConfig, base: Path, *, root_at_base: bool, options: BuildOptions, progress: Progress
) -> BuildResult:
    """Build and publish a manifest; when it raises, nothing was published.

    Relative paths start from ``base``; URIs are relative to it with ``root_at_base`` when it holds every shard.
    """
    require("build", "build")
    started = now()
    check_target(options.target)
    once = not options.trust_state
    if options.cluster.scheduler is not None and (once or options.state_key is not None):
        from dataaudit.engine.cluster import expect_closed

        expect_closed(options.cluster, [options.cluster.scheduler])
    stages, families = make_stages(config.stages), by_stage()
    links = {stage.name: resolve_name(path) for stage in stages if (path := families[stage.name].link)}
    with ExitStack() as stack:
        with compiling(unused_kernels(config, stages)) as work:
            reader = config.reader
            discovery = discover(
                config.splits,
                base,
                root_at_base=root_at_base,
                follow_symlinks=reader.follow_symlinks,
                root=config.root,
                listed_before=not root_at_base,
                access=Access(timeout_seconds=reader.timeout_seconds, retries=reader.retries),
            )
            check_inputs(discovery.shards)
            tell_discovery(discovery, progress)
            home = state_folder(options)
            state = stack.enter_context(open_state(home, key=options.state_key, once=once))
            if state != home:
                progress.note(_TRUST_KEYED if options.state_key is not None else _TRUST_NOTHING)
            shards = ShardList(discovery.shards, state)
            roots, notes = discovery.roots, passed_over(discovery.left_out)
            del discovery
            tokenizer, risks = prepare_tokenizer(config.tokenizer, base, state, progress, home)
            parents, reference = prepare_reference(config.reference, base, stages, tokenizer, progress)
            languages = prepare_languages(config, base, state, stages)
            content = prepare_content(config, base, stages, progress)
            finish_kernels(work, progress)
        with open_runner(options.cluster, state, unit_seconds=options.unit_seconds, notes=notes) as runner:
            progress.note(f"workers: {runner}")
            with _interruptible():
                services = Services(store=PartialStore(state), runner=runner, progress=progress)
                probed = probe_shards(shards, services, config.reader, rehash=options.rehash or options.fresh)
                config = resolve_columns(config, shards, runner, progress)
                job = Job(
                    config=config,
                    base=base,
                    options=options,
                    progress=progress,
                    stages=stages,
                    links=links,
                    roots=roots,
                    shards=shards,
                    probed=probed,
                    tokenizer=tokenizer,
                    risks=risks,
                    languages=languages,
                    parents=parents,
                    reference=reference,
                    older=None if config.reference is None else base / config.reference,
                    store=services.store,
                    runner=runner,
                    content=content,
                    exclusions=None
                    if options.quarantine is None
                    else ExclusionFilter(quarantine=options.quarantine, store=services.store),
                )
                sums = _sums(job, stages)
                hosts, workers = runner.hosts, runner.workers
        while True:
            try:
                return publish_build(job, sums, started, hosts, workers)
            except (DamagedEntryError, DamagedFileError) as error:
                _mend(job, error)
            limit = options.unit_seconds
            with open_runner(options.cluster, state, unit_seconds=limit, notes=notes) as runner, _interruptible():
                runner.notes = job.runner.notes
                job.runner = runner
                sums = _sums(job, stages)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn an interrupt into an error that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise BuildInterrupted(
            "interrupted; what was finished is kept",
            "Run the same command again and it goes on from here.",
        ) from None


def _sums(job: Job, stages: Sequence[Stage]) -> BuildSums:
    """Scan and link until nothing is missing or damaged, and no shard has shown that more is quarantined."""
    while True:
        try:
            _count(job)
            job.protected = prepare_protected(job, stages)
            job.stages = tuple(stage for stage in stages if job.protected is not None or MATCHES not in stage.needs)
            if (sums := _scan_and_link(job)) is not None:
                return sums
        except (DamagedEntryError, DamagedFileError) as error:
            _mend(job, error)
        except PartsLostError as error:  # each round has fewer shards
            job.lost |= error.lost
            job.runner.notes.append(f"{error}; quarantined")
            job.progress.note(f"{error}; quarantined, the other shards go on", important=True)


def _mend(job: Job, error: DamagedEntryError | DamagedFileError) -> None:
    """Remove whatever else in the state folder is damaged, and say what is computed again."""
    names = error.names if isinstance(error, DamagedEntryError) else list(map(job.store.remove_at, error.paths))
    paths = {job.store.file_of(*name.split("/")) for name in names}
    listed = sorted(paths.union(job.store.remove_damaged()))
    job.store.packs.refresh()
    job.mended += 1
    what = plural(len(listed), "absent or damaged file")
    note = f"{what} of the state folder, computed again: {some_of(listed, _NAMED)}"
    job.runner.notes.append(note)
    job.progress.note(note, important=True)
    if job.mended >= _SCANS:
        raise ClusterError(
            f"what is stored keeps being damaged, the last time {listed[0]}", f"Check the disk of {job.store.root}."
        )


def _count(job: Job) -> None:
    """Read the shards of which single documents are quarantined, where it is not known which part has these."""
    if job.exclusions is None:
        return
    plan = _planned(job, (), {})
    check_splits(job.exclusions.applied(planned_shard, (), {}) for planned_shard in plan)
    asked = [
        place for place in range(len(plan)) if plan.kind(place).reason is None and job.exclusions.rows(plan[place])
    ]
    if units := missing_units(plan, job.store, job.progress, fresh=False, of=np.array(asked, dtype=np.int64)):
        scan = Scan(ScanSettings(state=job.store.root, stages=(), annotators=()))
        run_units("count", scan, units, job, write_packs=True)


def _scan_and_link(job: Job) -> BuildSums | None:
    """Scan until nothing is missing and no encoder was found to differ, then link.

    Whether the fast encoder differs is decided by the shards that are read, all of them: a decision by what
    came first, or by this run alone, would give a rerun another identity.
    """
    job.force_reference = not job.risks.supported
    job.encoder_reason = job.risks.reason
    while True:
        decisive = decisive_values(job.annotators())
        identities = {stage.name: stage_identity(stage, decisive) for stage in job.stages}
        plan = _planned(job, job.stages, identities, job.exclusions)
        lost = _scan(job, plan) | job.lost
        give_memory_back()  # units of work and what they were sent as
        max_bad = job.config.reader.max_bad_records
        shards, surveyed = survey(plan, lost, job.stages, job, max_bad=max_bad)
        if job.force_reference or not surveyed.total("volume", "encoding", "differing"):
            break
        job.progress.note("the fast encoder differs on a sampled document: all is counted by the reference")
        job.force_reference, job.encoder_reason = True, "sample_difference"
    if job.exclusions is not None:
        learned = [
            job.exclusions.learn(shard.planned, shard.rows_digest, shard.records, shard.bad_records) for shard in shards
        ]
        if any(learned):
            return None
        check_documents(shards)
    return _link(job, shards, surveyed)


@contextmanager
def open_runner(choice: ClusterChoice, state: Path, *, unit_seconds: float, notes: list[str]) -> Iterator[Runner]:
    """Start what the user asked for, and stop on leaving what was started."""
    if choice.in_process:
        from dataaudit.engine.local_runner import open_process

        with open_process(choice, state, unit_seconds=unit_seconds, notes=notes) as here:
            yield here
        return
    from dataaudit.engine.cluster import open_cluster
    from dataaudit.engine.dask_runner import DaskRunner

    with open_cluster(choice, state) as cluster:
        yield DaskRunner(cluster=cluster, unit_seconds=unit_seconds, notes=notes)


def _planned(
    job: Job, stages: Sequence[Stage], identities: Mapping[str, str], exclusions: ExclusionFilter | None = None
) -> Plan:
    """Plan all shards, under the quarantine list when there is one."""

    def planned() -> Iterator[PlannedShard]:
        for shard in job.progress.over("plan", job.shards, len(job.shards)):
            planned_shard = plan_shard(shard, *job.probed.of(shard.ordinal), job.config, stages, identities)
            yield planned_shard if exclusions is None else exclusions.applied(planned_shard, stages, identities)

    return Plan(planned(), job.shards, job.probed.probe, identities, job.store.root)


def _scan(job: Job, plan: Plan) -> dict[str, tuple[Reason, str]]:
    """Scan what is missing; return the parts that could not be read, by reading key."""
    units = missing_units(plan, job.store, job.progress, fresh=job.fresh)
    job.planned_parts = len(np.unique(plan.firsts))
    if len(units) < job.planned_parts:
        job.progress.note(f"scan: {job.planned_parts - len(units):,} of {job.planned_parts:,} parts are known")
    failed, _ = run_units("scan", Scan(job.scan_settings()), units, job, write_packs=True)
    job.scanned += len(units)
    return {units.reading_key(index): why for index, why in failed.items()}


def _link_results(job: Job, shards: CollectedShards, surveyed: Survey) -> dict[str, LinkResult]:
    """Run the link step of each stage that has one."""
    context = partial(
        LinkContext,
        shards=shards,
        survey=surveyed,
        parts_of=shards.parts_of,
        store=job.store,
        run=lambda join: run_join(join, job, fresh=job.fresh),
        config=job.config,
        content=job.content,
        protected=job.protected,
        older=job.older,
        tokenizer=digest_json(job.tokens().decisive()),
    )
    steps = {stage.name: job.links[stage.name](context(stage=stage)) for stage in job.stages if stage.name in job.links}
    settings = job.scan_settings()
    results = run_link_steps(
        steps,
        lambda requests: run_second_pass(requests, shards, settings, job, fresh=job.fresh),
    )
    for warning in (line for result in results.values() for line in result.warnings):
        job.progress.note(f"warning: {warning}", important=True)
    return results


def _link(job: Job, shards: CollectedShards, surveyed: Survey) -> BuildSums:
    """Run the link steps, then sum over all shards."""
    results = _link_results(job, shards, surveyed)
    totals = surveyed.source_totals()
    kept = largest_sources(totals, job.config.max_sources)
    if kept is not None:
        totals = folded_totals(totals, kept)
    fewer = {
        stage.name: some
        for stage in job.stages
        if isinstance(stage, Limited) and (some := largest_sources(totals, stage.max_sources)) is not None
    }
    protected = {} if job.protected is None else {"held_out": job.protected.shards, "items": job.protected.sets}
    if job.protected is not None and job.protected.index.held_out.sample_bits:
        protected["held_out_sample"] = job.protected.shards
    splits = job.config.splits
    setting = Setting(
        reference=job.reference,
        vocab_size=job.tokenizer.vocab_size,
        folded=frozenset(fewer if kept is None else [stage.name for stage in job.stages]),
        protects=frozenset(name for name, there in protected.items() if there),
        trains=any(shard.documents > 0 for shard in shards if not splits[shard.split].held_out),
    )
    summing = SumTask(
        state=job.store.root,
        stages=job.stages,
        setting=setting,
        kept={} if kept is None else {stage.name: kept for stage in job.stages},
        fewer=fewer,
    )
    give_memory_back()
    table, merged = run_sums(shards, summing, results, job)
    return BuildSums(shards=shards, results=results, table=table, merged=merged, setting=setting)
