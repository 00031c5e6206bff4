"""A manifest held against itself: what one table says and others determine has to be the same number."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from dataaudit.errors import ManifestMismatch
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.verify import ALWAYS, Problem, check_core
from dataaudit.metrics.family import Family, Relation
from dataaudit.metrics.recomputed import Recomputed
from dataaudit.metrics.registry import FAMILIES, STATISTICS
from dataaudit.text import clean

_DIGITS = 1e-11
"""Relative difference of two ways to compute a number that 12 digits are kept of."""
_NAMED = 5
_Key = tuple[str, str, Scope]


def contradictions(manifest: Manifest, metrics: Collection[str] | None = None) -> list[Problem]:
    """Return every number that contradicts the tables that determine it.

    Args:
        manifest: Any; one whose core does not name the stage that every build runs is a contradiction by itself.
        metrics: Names of metrics whose relations are held; all when None.

    Raises:
        ManifestError: A table is absent or damaged.
    """
    ran = {stage.name for stage in manifest.core.stages}
    if ALWAYS not in ran:
        return _without_stages(manifest)
    found = [Problem("headline", text) for text in _without_headline(manifest)]
    found += [Problem("contradiction", text) for text in _left_over(manifest, ran)]
    for family in FAMILIES:
        if family.stage_name and family.stage_name not in ran:
            found += [Problem("contradiction", text) for text in _without_stage(manifest, family, ran, metrics)]
            continue
        for relation in family.relations:
            if metrics is None or not {*relation.metrics}.isdisjoint(metrics):
                found += [Problem("contradiction", text) for text in _broken(manifest, relation)]
    return found


def hold_together(manifest: Manifest, metrics: Collection[str] | None = None) -> None:
    """Refuse a manifest that contradicts itself; see :func:`contradictions`, and :func:`check_core`.

    Raises:
        ManifestError: A table is absent or damaged.
        ManifestMismatch: A number is not what other tables determine.
    """
    ran = {stage.name for stage in manifest.core.stages}
    problems = check_core(manifest) if ALWAYS in ran else []
    if problems := problems + contradictions(manifest, metrics):
        more = f"\n  and {len(problems) - _NAMED:,} more" if len(problems) > _NAMED else ""
        listed = "".join(f"\n  - {clean(problem.text, 300)}" for problem in problems[:_NAMED])
        raise ManifestMismatch(
            f"the manifest {manifest.folder} contradicts itself:{listed}{more}",
            "A table was edited: restore it or build again; `dataaudit verify` lists all.",
        )


def load_consistent(folder: Path) -> Manifest:
    """Load a manifest and hold it against itself, for what passes on its numbers.

    Raises:
        ManifestError: It, or a table, is absent or damaged.
        ManifestMismatch: A table is not the one that was published, or a number not what other tables determine.
    """
    manifest = load_manifest(folder)
    hold_together(manifest)
    return manifest


def _without_stages(manifest: Manifest) -> list[Problem]:
    """Return what a core is told that does not name the stage of every build: nothing could be held against it."""
    text = f"among {len(manifest.core.stages)} stages the core names no stage {ALWAYS}, which every build runs"
    return [Problem("contradiction", text)]


def _left_over(manifest: Manifest, ran: Collection[str]) -> Iterator[str]:
    """Yield the tables that have rows although no stage is said to have run that they come from."""
    made: dict[str, set[str]] = {}
    for family in FAMILIES:
        for name in {table for relation in family.relations for table in relation.tables}:
            made.setdefault(name, set()).add(family.stage_name or ALWAYS)
    for name, stages in sorted(made.items()):
        if stages.isdisjoint(ran) and name in manifest.core.tables and manifest.table(name).num_rows:
            yield f"the table {name} has rows, but the core names no stage {' or '.join(sorted(stages))}"
    filled = {one.column for family in FAMILIES if _runs(family, ran) for one in family.shard_statistics}
    for family in (one for one in FAMILIES if not _runs(one, ran)):
        shards = manifest.table("shards")
        for column in sorted({one.column for one in family.shard_statistics} - filled):
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
    """Yield the metrics with values of a family whose stage is not said to have run, unless another gives them too."""
    for metric in family.metrics:
        if not metric.by_stage or (metrics is not None and metric.name not in metrics):
            continue
        records = [_key(record) for record in manifest.metrics(metric.name) if record.value is not None]
        if records and not _given(manifest, metric.name, ran).issuperset(records):
            yield f"{metric.name} has values, but the core names no stage {family.stage_name}"


def _given(manifest: Manifest, metric: str, ran: Collection[str]) -> set[_Key]:
    """Return the records of a metric that stages which ran determine, those of other families too."""
    relations = [
        relation
        for family in FAMILIES
        for relation in family.relations
        if metric in relation.metrics and (family.stage_name or ALWAYS) in ran
    ]
    made = [relation.recompute(manifest) for relation in relations]
    bounded = {(one.metric, one.stat, one.scope) for found in made for one in found.bounds}
    return bounded | {_key(record) for found in made for record in found.records}


def _key(record: Metric) -> _Key:
    return (record.metric, record.stat, record.scope)


def _broken(manifest: Manifest, relation: Relation) -> Iterator[str]:
    made = relation.recompute(manifest)
    tables = ", ".join(relation.tables)
    yield from (f"{text} ({tables})" for text in _records(manifest, made))
    for name, values in made.columns.items():
        held = manifest.table("shards", [name])[name].to_pylist()
        for shard, (told, value) in enumerate(zip(held, values, strict=True)):
            if value is not None and not _same(told, value):
                yield f"shard {shard}: {name} is {_shown(told)}, its tables determine {_shown(value)} ({tables})"
    yield from (f"{text} ({tables})" for text in _bounds(manifest, made))
    for words, one, other in made.sums:
        if not _same(one, other):
            yield f"{words}: {_shown(one)} and {_shown(other)}"


def _records(manifest: Manifest, made: Recomputed) -> Iterator[str]:
    expected = {_key(one): one for one in made.records}
    kinds = {(metric, stat, _shape(scope)) for metric, stat, scope in expected}
    held, parts = _held(manifest, made, expected.keys(), kinds)
    for key in {**expected, **held}:
        told, value = (found[key].value if key in found else None for found in (held, expected))
        nothing = not value and not told
        if not (nothing if value is None or told is None else _same(told, value)):
            yield f"{_name(*key)} is {_shown(told)}, its tables determine {_shown(value)}"
        elif key in held and key in expected and not _same(held[key].denominator, expected[key].denominator):
            one, other = held[key].denominator, expected[key].denominator
            if other:
                yield f"{_name(*key)} is of {_shown(one)}, its tables determine {_shown(other)}"
    for key in [key for key in parts if key in expected and key in held]:
        if not _same(parts[key], _numerator(held[key])):
            yield f"{_name(*key)} counts {_shown(_numerator(held[key]))}, its sources add up to {_shown(parts[key])}"


def _bounds(manifest: Manifest, made: Recomputed) -> Iterator[str]:
    """Yield the records that count less, or more, than the tables allow."""
    names = sorted({bound.metric for bound in made.bounds})
    held = {(name, one.stat, one.scope): _numerator(one) for name in names for one in manifest.metrics(name)}
    for bound in made.bounds:
        key = (bound.metric, bound.stat, bound.scope)
        counted = held.get(key, 0.0)
        if counted < bound.least:
            yield f"{_name(*key)} counts {_shown(counted)}, its tables determine {bound.least} at least"
        elif bound.most is not None and counted > bound.most:
            yield f"{_name(*key)} counts {_shown(counted)}, its tables determine {bound.most} at most"


def _held(
    manifest: Manifest, made: Recomputed, expected: Collection[_Key], kinds: Collection[tuple[str, str, frozenset[str]]]
) -> tuple[dict[_Key, Metric], dict[_Key, float]]:
    """Return the records that are determined, and what those of sources add up to, by the key of the whole."""
    held: dict[_Key, Metric] = {}
    parts: dict[_Key, float] = {}
    for metric in sorted({metric for metric, _, _ in expected}):
        for record in manifest.metrics(metric):
            key = (metric, record.stat, record.scope)
            if record.scope.source is not None and record.stat not in made.undivided:
                whole = (metric, record.stat, replace(record.scope, source=None))
                parts[whole] = parts.get(whole, 0) + _numerator(record)
            if key in expected or (metric not in made.open and (*key[:2], _shape(record.scope)) in kinds):
                held[key] = record
    return held, parts


def _numerator(record: Metric) -> float:
    """Return what a record counts, also where it is shown as a share."""
    counted = {"ratio": record.denominator, "bytes/token": record.denominator}
    factor = record.denominator / 1e6 if record.unit == "hits per million tokens" else counted.get(record.unit, 1)
    return float(round((record.value or 0) * factor))


def _shape(scope: Scope) -> frozenset[str]:
    return frozenset(scope.as_dict())


def _name(metric: str, stat: str, scope: Scope) -> str:
    of = ", ".join(f"{name} {value}" for name, value in scope.as_dict().items())
    return f"{metric}.{stat}" + (f" of {of}" if of else "")


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=_DIGITS, abs_tol=0.0)


def _shown(value: float | None) -> str:
    return "absent" if value is None else f"{value:.12g}"
