"""A manifest held against itself: what one table says and others determine has to be the same number."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from dataaudit.errors import ManifestMismatch
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.verify import ALWAYS, Problem, check_core
from dataaudit.metrics.family import Family, Relation
from dataaudit.metrics.recomputed import Recomputed
from dataaudit.metrics.records import records_in
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
            f"the manifest {manifest.place} contradicts itself:{listed}{more}",
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
    """Yield what is wrong with records: told are those of the manifest, all that are determined or ought to be."""
    expected = MetricRows.of({_key(one): one for one in made.records}.values())
    every = manifest.metric_rows()
    told = every.take(every.among("metric", expected.names("metric")))
    both = MetricRows.joined([told, expected])
    keys, kinds, edge = both.keys(), _kinds(both), len(told)
    closed = ~told.among("metric", sorted(made.open))
    held = np.isin(keys[:edge], keys[edge:]) | (closed & np.isin(kinds[:edge], kinds[edge:]))
    place = _places(keys[:edge], keys)  # of each row: where the manifest tells of the same, -1 where it does not
    values, denominators = both.numbers("value"), both.numbers("denominator")
    mine = np.arange(edge, len(both))
    own = place[mine]
    value = np.where(own < 0, np.nan, values[own])
    differs = ~_alike(value, values[mine])
    of_other = (own >= 0) & ~differs & (denominators[mine] != 0) & ~_alike(denominators[own], denominators[mine])
    alone = np.flatnonzero(held & ~np.isin(keys[:edge], keys[edge:]))
    differs_alone = ~_alike(values[alone], np.full(len(alone), np.nan))
    for row in np.flatnonzero(differs | of_other).tolist():
        name, told_value = _name(*_key(expected[row])), None if np.isnan(value[row]) else value[row]
        if differs[row]:
            yield f"{name} is {_shown(told_value)}, its tables determine {_shown(expected[row].value)}"
        else:
            one, other = denominators[own[row]], denominators[mine[row]]
            yield f"{name} is of {_shown(one)}, its tables determine {_shown(other)}"
    for row in alone[differs_alone].tolist():
        yield f"{_name(*_key(told[row]))} is {_shown(told[row].value)}, its tables determine absent"
    yield from _parts(told, made, own)


def _parts(told: MetricRows, made: Recomputed, determined: np.ndarray) -> Iterator[str]:
    """Yield the records that are determined and that their sources do not add up to.

    Args:
        told: Records of the manifest.
        made: What is determined.
        determined: int64[n] rows of records that are determined, -1 where there is none.
    """
    divided = ~told.among("stat", sorted(made.undivided)) & told.given("source")
    of_sources = told.take(divided)
    whole = MetricRows.joined([told, of_sources.without("source")]).keys()
    place = _places(whole[: len(told)], whole[len(told) :])
    sums, counted = np.zeros(len(told)), np.zeros(len(told), dtype=bool)
    np.add.at(sums, place[place >= 0], _numerators(of_sources)[place >= 0])
    counted[place[place >= 0]] = True
    rows = np.flatnonzero(counted & np.isin(np.arange(len(told)), determined))
    own = _numerators(told.take(rows))
    for row, part, numerator in zip(rows.tolist(), sums[rows].tolist(), own.tolist(), strict=True):
        if not _same(part, numerator):
            yield f"{_name(*_key(told[row]))} counts {_shown(numerator)}, its sources add up to {_shown(part)}"


def _kinds(rows: MetricRows) -> np.ndarray:
    """int64[n]: the same number for records of the same metric and statistic, whose scopes have the same fields."""
    stats = rows.column("stat")
    kinds: np.ndarray = rows.column("metric").codes.astype(np.int64) * len(stats.values) + stats.codes
    for name in Scope.__slots__:
        kinds = 2 * kinds + rows.given(name)
    return kinds


def _places(known: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return int64[n], where each number that is asked for stands among those that are known; -1 where it is not."""
    if len(known) == 0:
        return np.full(len(asked), -1)
    order = np.argsort(known, kind="stable")
    found = order[np.minimum(np.searchsorted(known[order], asked), len(known) - 1)]
    return np.asarray(np.where(known[found] == asked, found, -1))


def _alike(told: np.ndarray, value: np.ndarray) -> np.ndarray:
    """bool[n]: whether numbers are the same but for their last digits; one that is absent, NaN, is like 0."""
    told, value = (np.where(np.isnan(one), 0.0, one) for one in (told, value))
    return np.asarray(np.abs(told - value) <= _DIGITS * np.maximum(np.abs(told), np.abs(value)))


def _bounds(manifest: Manifest, made: Recomputed) -> Iterator[str]:
    """Yield the records that count less, or more, than the tables allow."""
    names = sorted({bound.metric for bound in made.bounds})
    shapes = {tuple(bound.scope.as_dict()) for bound in made.bounds}
    held = {_key(one): _numerator(one) for name in names for one in records_in(manifest, name, *shapes)}
    for bound in made.bounds:
        key = (bound.metric, bound.stat, bound.scope)
        counted = held.get(key, 0.0)
        if counted < bound.least:
            yield f"{_name(*key)} counts {_shown(counted)}, its tables determine {bound.least} at least"
        elif bound.most is not None and counted > bound.most:
            yield f"{_name(*key)} counts {_shown(counted)}, its tables determine {bound.most} at most"


def _numerators(rows: MetricRows) -> np.ndarray:
    """Return what records count, as :func:`_numerator` does."""
    values, denominators = np.nan_to_num(rows.numbers("value")), rows.numbers("denominator")
    share = rows.among("unit", ["bytes/token", "ratio"])
    factors = np.where(share, denominators, 1.0)
    factors = np.where(rows.among("unit", ["hits per million tokens"]), denominators / 1e6, factors)
    return np.asarray(np.rint(values * factors))


def _numerator(record: Metric) -> float:
    """Return what a record counts, also where it is shown as a share."""
    counted = {"ratio": record.denominator, "bytes/token": record.denominator}
    factor = record.denominator / 1e6 if record.unit == "hits per million tokens" else counted.get(record.unit, 1)
    return float(round((record.value or 0) * factor))


def _name(metric: str, stat: str, scope: Scope) -> str:
    of = ", ".join(f"{name} {value}" for name, value in scope.as_dict().items())
    return f"{metric}.{stat}" + (f" of {of}" if of else "")


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=_DIGITS, abs_tol=0.0)


def _shown(value: float | None) -> str:
    return "absent" if value is None else f"{value:.12g}"
