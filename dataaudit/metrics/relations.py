"""A manifest compared with itself: a number that a table has and others determine has to be the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from dataaudit.base.errors import ManifestMismatch
from dataaudit.base.text import clean
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.verify import ALWAYS, Problem, check_core
from dataaudit.metrics.family import Family
from dataaudit.metrics.recomputed import Follows, ManifestTables, shapes_of
from dataaudit.metrics.registry import FAMILIES, STATISTICS

_NAMED = 5


def contradictions(manifest: Manifest, metrics: Collection[str] | None = None) -> list[Problem]:
    """Return every number that contradicts the tables that determine it."""
    ran = {stage.name for stage in manifest.core.stages}
    if ALWAYS not in ran:
        text = f"among {len(manifest.core.stages)} stages the core names no stage {ALWAYS}, which every build runs"
        return [Problem("contradiction", text)]
    headline = [Problem("headline", text) for text in _without_headline(manifest)]
    texts, tables = [*_left_over(manifest, ran)], ManifestTables(manifest)
    for family in FAMILIES:
        if not _runs(family, ran):
            texts += _without_stage(manifest, family, ran, metrics)
            continue
        every = {check.metric for check in family.checks if isinstance(check, Follows)}
        every |= {metric.name for metric in family.metrics}
        for check in family.checks:
            about = {check.metric} if isinstance(check, Follows) else every
            if metrics is None or not about.isdisjoint(metrics):
                texts += [text for claim in check.claims(tables) if (text := claim.text)]
    return headline + [Problem("contradiction", text) for text in texts]


def hold_together(manifest: Manifest, metrics: Collection[str] | None = None) -> None:
    """Refuse a manifest that contradicts itself; see :func:`contradictions`, and :func:`check_core`."""
    ran = {stage.name for stage in manifest.core.stages}
    problems = check_core(manifest) if ALWAYS in ran else []
    if problems := problems + contradictions(manifest, metrics):
        more = f"\n  and {len(problems) - _NAMED:,} more" if len(problems) > _NAMED else ""
        listed = "".join(f"\n  - {clean(problem.text, 300)}" for problem in problems[:_NAMED])
        raise ManifestMismatch(
            f"the manifest {manifest.place} contradicts itself:{listed}{more}",
            "A table was edited: restore it or build again; `dataaudit verify` lists all.",
        )


def load_consistent(folder: Path) -> Manifest:
    """Load a manifest and compare it with itself, for what passes on its numbers."""
    manifest = load_manifest(folder)
    hold_together(manifest)
    return manifest


def _left_over(manifest: Manifest, ran: Collection[str]) -> Iterator[str]:
    """Yield the tables that have rows although none of the stages that fill them ran."""
    made: dict[str, set[str]] = {}
    for family in FAMILIES:
        for name in family.checked_with:
            made.setdefault(name, set()).add(family.stage_name or ALWAYS)
    for name, stages in sorted(made.items()):
        if stages.isdisjoint(ran) and name in manifest.core.tables and manifest.table(name).num_rows:
            yield f"the table {name} has rows, but the core names no stage {' or '.join(sorted(stages))}"
    filled = {statistic.column for family in FAMILIES if _runs(family, ran) for statistic in family.shard_statistics}
    for family in (item for item in FAMILIES if not _runs(item, ran)):
        shards = manifest.table("shards")
        for column in sorted({statistic.column for statistic in family.shard_statistics} - filled):
            if shards[column].null_count < shards.num_rows:
                yield f"shards has values of {column}, but the core names no stage {family.stage_name}"
        if family.detector and family.detector in manifest.table("findings")["detector"].unique().to_pylist():
            yield f"findings has rows of {family.detector}, but the core names no stage {family.stage_name}"


def _runs(family: Family, ran: Collection[str]) -> bool:
    return (family.stage_name or ALWAYS) in ran


def _without_headline(manifest: Manifest) -> Iterator[str]:
    """Yield the statistics that are shown first and that the core does not have although there is a record."""
    shown = {(record.metric, record.stat) for record in manifest.core.headline}
    wanted = {key for key, known in STATISTICS.items() if known.headline} - shown
    for name in sorted({metric for metric, _ in wanted}):
        for record in manifest.metrics(name, scope=Scope()):
            if (name, record.stat) in wanted:
                yield f"the headline has no {name}.{record.stat}, which has a record"


def _without_stage(
    manifest: Manifest, family: Family, ran: Collection[str], metrics: Collection[str] | None
) -> Iterator[str]:
    """Yield the metrics with values of a family whose stage did not run, unless another gives them too."""
    for metric in family.metrics:
        if not metric.by_stage or (metrics is not None and metric.name not in metrics):
            continue
        values = {
            (record.stat, frozenset(record.scope.as_dict()))
            for record in manifest.metrics(metric.name)
            if record.value is not None
        }
        if values and not _given(metric.name, ran).issuperset(values):
            yield f"{metric.name} has values, but the core names no stage {family.stage_name}"


def _given(metric: str, ran: Collection[str]) -> set[tuple[str, frozenset[str]]]:
    """Return the statistics of a metric, and shapes of scopes, that follow from tables of stages which ran."""
    return {
        (check.stat, frozenset((*shape, *check.scope)))
        for family in FAMILIES
        if _runs(family, ran)
        for check in family.checks
        if isinstance(check, Follows) and check.metric == metric
        for shape in shapes_of(check.shapes)
    }
