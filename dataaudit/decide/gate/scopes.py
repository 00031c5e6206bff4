"""The cases of a rule: every scope that ought to have a number, whether it has or not; and rules over shards.

Scopes come from other parts of the manifest than the records (splits and evaluation sets of the core, tables of sources
and languages), so a missing record is a case that cannot be judged, and never a case less. Rules over shards judge all
shards at once on the columns of the manifest's table; only cases that do not pass, and the nearest to the limit, are
made into records.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.divergence import CONFIDENCE, NULL_FACTOR
from dataaudit.base.errors import ConfigError
from dataaudit.base.yamlfile import nearest
from dataaudit.decide.gate.facts import MIXTURE, UNREAD_STATES, Facts, splits_of
from dataaudit.decide.gate.judge import FEW_SHARDS, Compared, case_of, excess, judge_record
from dataaudit.decide.gate.policy import COVERAGE, Policy, Rule
from dataaudit.decide.gate.verdict import Case, State
from dataaudit.manifest.metric import SCREEN_ALONE, Metric, Scope
from dataaudit.manifest.tables import HELD_BACK
from dataaudit.metrics.family import MetricDefinition, Shape, ShardStatistic, Statistic
from dataaudit.metrics.peers import COLUMNS, Peers
from dataaudit.metrics.registry import METRICS, SHARD_STATISTICS, statistic, stats_of
from dataaudit.metrics.shown import REASONS, floats

_RATE_FLOOR = 0.02
"""Least robust sd of a ratio: that of a small shard moves by chance alone."""


def shard_statistics(rule: Rule) -> tuple[ShardStatistic, ...]:
    """Return the statistics kept per shard that a rule speaks of."""
    return tuple(item for item in SHARD_STATISTICS if item.metric == rule.metric and fnmatchcase(item.stat, rule.stat))


def judge_shards(
    rule: Rule, statistic: ShardStatistic, shards: pa.Table, held_out: dict[str, bool]
) -> tuple[list[Case], dict[State, int]]:
    """Judge a statistic of every shard that was read; of coverage, of every shard.

    Return the cases that do not pass, or the nearest to the limit, without fingerprints; and how many have each state.
    """
    chosen = _chosen(rule, statistic, shards, held_out)
    values, denominators = _values_of_shards(statistic, chosen)
    splits = np.asarray(chosen["split"].to_pylist(), dtype=object)
    is_of_documents = rule.unit == "ratio" and statistic.of != "tokens"  # a share that moves with each of them
    largest = floats(chosen[statistic.longest]) / np.maximum(denominators, 1) if statistic.longest else None
    medians, spreads = Peers.of(chosen).usual(values, denominators if is_of_documents else None, largest)
    spreads = np.maximum(spreads, _RATE_FLOOR if rule.unit == "ratio" else 0.0)
    lowest, highest = bounds = _bounds(statistic, chosen, values, denominators)
    suspects = _suspects(rule, bounds, medians, spreads)
    cases: list[Case] = []
    counts: dict[State, int] = {State.PASSED: len(values) - len(suspects)}
    for index in suspects:
        shard, uri = (chosen[name][int(index)].as_py() for name in ("shard", "uri"))
        numbers = float(values[index]), float(lowest[index]), float(highest[index]), int(denominators[index])
        record = _record(rule, statistic, shard, *numbers)
        case = _case(rule, statistic, record, medians[index], spreads[index], f"{splits[index]}/{uri}")
        counts[case.state] = counts.get(case.state, 0) + 1
        cases.append(case)
    bad = [case for case in cases if case.state not in {State.PASSED, State.NOT_APPLICABLE}]
    passing = [case for case in cases if case.state == State.PASSED]
    nearest = sorted(passing, key=lambda case: -excess(rule, case.judged or 0))[:1]
    return bad or nearest or cases[:1], {state: number for state, number in counts.items() if number}


def _chosen(rule: Rule, statistic: ShardStatistic, shards: pa.Table, held_out: dict[str, bool]) -> pa.Table:
    splits = rule.scope.split or splits_of(held_out, statistic.population)
    kept = pc.is_in(shards["split"], pa.array(sorted(splits), pa.string()))
    if statistic.metric != COVERAGE:
        kept = pc.and_(kept, pc.invert(pc.is_in(shards["status"], pa.array(UNREAD_STATES))))
    kept = pc.and_(kept, pc.not_equal(shards["reason"], HELD_BACK))
    columns = dict.fromkeys(["shard", "uri", "status", *COLUMNS, *statistic.needs])
    return shards.select(list(columns)).filter(kept)


def _values_of_shards(statistic: ShardStatistic, chosen: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return values, NaN where there is none, and denominators."""
    of = pc.fill_null(chosen[statistic.of], 0).to_numpy()
    if statistic.but:
        of = of - pc.fill_null(chosen[statistic.but], 0).to_numpy()
    values = floats(chosen[statistic.column])
    if statistic.metric == COVERAGE:
        lost = pc.is_in(chosen["status"], pa.array(UNREAD_STATES)).to_numpy()
        return np.where(lost, values, 0.0), np.maximum(values, 1).astype(np.int64)
    if statistic.by_chance:
        values = values - floats(chosen[statistic.by_chance])
    if statistic.per_document:
        values = np.divide(values, of, out=np.full(len(values), np.nan), where=of > 0)
    return values, of


def _bounds(
    statistic: ShardStatistic, chosen: pa.Table, values: np.ndarray, denominators: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of values: no undecided document counts, or all do; chance gives its most, or its least."""
    if statistic.by_chance:
        chance = floats(chosen[statistic.by_chance])
        return values + chance * (1 - NULL_FACTOR), values + chance * (1 - 1 / NULL_FACTOR)
    if not statistic.undecided:
        return values, values
    undecided = pc.fill_null(chosen[statistic.undecided], 0).to_numpy()
    return values, np.minimum(1.0, values + undecided / np.maximum(denominators, 1))


def _suspects(
    rule: Rule, bounds: tuple[np.ndarray, np.ndarray], medians: np.ndarray, spreads: np.ndarray
) -> np.ndarray:
    limit, sign = rule.first_limit, 1.0 if rule.is_upper else -1.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        judged = [np.abs(bound - medians) / spreads if rule.limit_kind == "robust_sd" else bound for bound in bounds]
    far = [np.abs(bound - limit) if rule.comparator == "==" else sign * (bound - limit) for bound in judged]
    distance: np.ndarray = np.maximum(*far)  # NaN where either is
    unsure = np.isnan(distance) | (distance > -1e-9 * max(1.0, abs(limit)))
    if not np.isnan(distance).all():
        unsure[int(np.nanargmax(distance))] = True
    return np.flatnonzero(unsure)


def _record(
    rule: Rule, statistic: ShardStatistic, shard: int, value: float, low: float, high: float, denominator: int
) -> Metric:
    missing, bounded = math.isnan(value), high > low
    absent = statistic.absent if denominator else "empty_denominator"
    return Metric(
        metric=statistic.metric,
        stat=statistic.stat,
        scope=Scope(shard=shard),
        unit=rule.unit,
        value=None if missing else value,
        low=low if bounded else None,
        high=high if bounded else None,
        confidence=(CONFIDENCE if statistic.by_chance else 1.0) if bounded else None,
        method="estimated" if statistic.estimated or bounded else "exact",
        denominator=denominator,
        n=denominator,
        status="not_evaluated" if missing else "ok",
        reason=absent if missing else SCREEN_ALONE if statistic.estimated else "",
    )


def _case(rule: Rule, statistic: ShardStatistic, record: Metric, median: float, spread: float, uri: str) -> Case:
    compared = None
    if rule.limit_kind == "robust_sd":
        no_median = bool(np.isnan(median))
        compared = Compared(reason=FEW_SHARDS) if no_median else Compared(value=float(median), spread=float(spread))
    judged = judge_record(rule, record, compared)
    denominator = 0 if judged.baseline is None else record.denominator
    more = {"shard_uri": uri, "baseline_denominator": denominator, "low": None, "high": None, "confidence": None}
    return case_of(rule, statistic.stat, record.scope, record, judged, **more)


_ALL_FIELDS = attrgetter(*Scope.__slots__)
_FIELDS = ("split", "source", "language", "set", "entity", "rule")


def check_entities(policy: Policy, now: Facts, baseline: Facts | None, where: str) -> None:
    """Refuse entities that a policy names and nobody knows: a misspelt name finds nothing."""
    problems = []
    for rule in policy.rules:
        metric = METRICS[rule.metric]
        if not metric.entities or not all(is_of_patterns(metric, item.stat) for item in chosen_statistics(rule)):
            continue
        known = metric.entities.union(*(side.entities.get(rule.metric, ()) for side in (now, baseline) if side))
        problems += [
            f"  rule `{rule.name}`: no entity of `{rule.metric}` is named `{name}`{nearest(name, sorted(known))}"
            for name in rule.scope.entity or ()
            if name not in known
        ]
    if problems:
        raise ConfigError("\n".join([f"{where}: {len(problems)} problem(s)", *problems]))


def is_of_patterns(metric: MetricDefinition, stat: str) -> bool:
    """Return whether the entities of a statistic are those of the patterns, not a model's."""
    return not metric.searches_with or metric.decided_by is None or metric.searches_with in metric.decided_by(stat)


def rule_problems(rule: Rule) -> Iterator[str]:
    """Yield what of a rule no manifest could ever have."""
    known = stats_of(rule.metric)
    if not known:
        yield f"no metric is named `{rule.metric}`{nearest(rule.metric, list(METRICS))}"
        return
    chosen = chosen_statistics(rule)
    if not chosen:
        yield f"`{rule.metric}` has no stat `{rule.stat}`{nearest(rule.stat, [item.stat for item in known])}"
        return
    units = sorted({item.unit for item in chosen})
    if units != [rule.unit]:
        yield f"`{rule.metric}.{rule.stat}` is in {' and '.join(units)}, the rule's unit is `{rule.unit}`"
    yield from _limit_problems(rule)
    for name in (rule.scope.rule or ()) if rule.metric == COVERAGE else ():
        if name not in REASONS:
            yield f"no reason of a loss is named `{name}`{nearest(name, sorted(REASONS))}"
    if "shard" in rule.scope.per:
        yield from _shard_problems(rule)
        return
    for item in chosen:
        if rule.scope.fields not in item.shapes:
            kept = ", ".join(map(_words, sorted(item.shapes, key=lambda shape: (len(shape), _words(shape)))))
            yield f"`{item.metric}.{item.stat}` is not kept per {_words(rule.scope.fields)}, but for: {kept}"


def _limit_problems(rule: Rule) -> Iterator[str]:
    limits = (rule.budget, rule.change, rule.warn if rule.limit_kind in {"budget", "change"} else None)
    for limit in limits if rule.unit == "ratio" else ():
        if limit is not None and not 0 <= limit <= 1:
            yield f"a ratio lies between 0 and 1, the limit is {limit:g}; five percent are 0.05"
    about = (rule.metric, rule.stat, rule.scope.fields)
    if rule.budget_from is not None and about != (MIXTURE, "share", frozenset({"split", "source"})):
        yield f"`budget_from: declared` goes with `{MIXTURE}.share` per split and source"
    if rule.max_bad_records is not None and about != (COVERAGE, "bytes", frozenset()):
        yield f"`max_bad_records` goes with `{COVERAGE}.bytes` of the whole dataset"
    if rule.max_bad_records is not None and (rule.limit_kind != "budget" or not rule.is_upper):
        yield "`max_bad_records` goes with a `budget` and `<=`"


def _shard_problems(rule: Rule) -> Iterator[str]:
    if rule.scope.fields - {"shard", "split"}:
        yield "`per: shard` goes with `split` alone"
    if not shard_statistics(rule):
        kept = ", ".join(f"{item.metric}.{item.stat}" for item in SHARD_STATISTICS)
        yield f"`{rule.metric}.{rule.stat}` is not kept per shard; these are: {kept}"
    if rule.needs_baseline:
        yield "shards are not compared with those of a baseline; `robust_sd` compares them with each other"


def chosen_statistics(rule: Rule) -> tuple[Statistic, ...]:
    """Return the statistics that a rule speaks of, as the catalogue knows them."""
    if "*" in rule.stat:
        return stats_of(rule.metric, rule.stat)
    known = statistic(rule.metric, rule.stat)
    return () if known is None else (known,)


def judged_stats(rule: Rule, facts: Facts) -> tuple[str, ...]:
    """Return the names of the statistics that a manifest has for a rule; of a pattern those that it holds."""
    if "*" not in rule.stat:
        return (rule.stat,)
    known = {stat for metric, stat in facts.records if metric == rule.metric and statistic(metric, stat)}
    return tuple(sorted(stat for stat in known if fnmatchcase(stat, rule.stat)))


def expected_scopes(rule: Rule, stat: Statistic, facts: Facts) -> list[Scope]:
    """Return the scopes to judge, sorted: those that ought to have a record, and those that have."""
    fields, fixed = rule.scope.fields, rule.scope.fixed()
    scopes = {scope for scope in facts.records_of(stat) if _speaks_of(rule, scope)}
    splits = fixed.get("split") or facts.splits(stat.population)
    parts = _parts(rule, stat, facts)
    for split in splits if "split" in fields else (None,):
        inside = facts.splits(stat.sources_of) if split is None else (split,)
        for pair in _sources_and_languages(fixed, fields, facts, inside):
            scopes.update(Scope(split=split, **pair, **part) for part in parts)
        if split is not None and split in fixed.get("split", ()) and all(scope.split != split for scope in scopes):
            scopes.add(Scope(split=split))  # a split that is named and has no part, or does not exist
    return sorted(scopes, key=lambda scope: [(value is not None, str(value)) for value in _ALL_FIELDS(scope)])


def _speaks_of(rule: Rule, scope: Scope) -> bool:
    values = scope.as_dict()
    named = rule.scope.fixed()
    return values.keys() == rule.scope.fields and all(values[name] in wanted for name, wanted in named.items())


def _sources_and_languages(
    fixed: dict[str, tuple[str, ...]], fields: frozenset[str], facts: Facts, splits: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return the sources and languages of some splits, as far as a rule tells them apart."""
    sources = {source for split in splits for source in facts.sources.get(split, ())}
    pairs = {pair for split in splits for pair in facts.languages.get(split, ())}
    if {"source", "language"} <= fields and not {"source", "language"} & fixed.keys():
        return [{"source": source, "language": language} for source, language in pairs]
    known = {"source": sources, "language": {language for _, language in pairs}}
    names = [name for name in known if name in fields]
    return [
        dict(zip(names, values, strict=True)) for values in product(*(fixed.get(name, known[name]) for name in names))
    ]


def _parts(rule: Rule, stat: Statistic, facts: Facts) -> list[dict[str, Any]]:
    """Return the sets, entities and rules of a rule.

    The core lists evaluation sets; their parts and tiers are known from records alone. A set without records is a part
    without a number.
    """
    fixed = rule.scope.fixed()
    names: list[str] = [name for name in ("set", "entity", "rule") if name in rule.scope.fields]
    if "set" not in names or names == ["set"] or {"entity", "rule"} & set(names) <= fixed.keys():
        values = [fixed.get(name) or _values(name, stat, facts) for name in names]
        return [dict(zip(names, item, strict=True)) for item in product(*values)]
    kept = {tuple((name, getattr(scope, name)) for name in names) for scope in facts.records_of(stat)}
    parts = [
        part
        for part in map(dict, kept)
        if all(value is not None and value in fixed.get(name, (value,)) for name, value in part.items())
    ]
    known = {part["set"] for part in parts}
    sets = fixed.get("set") or _values("set", stat, facts)
    return [*parts, *({"set": name} for name in sets if name not in known)]


def _values(name: str, stat: Statistic, facts: Facts) -> Collection[str | None]:
    """Return the sets, entities or rules that a statistic is kept for; None, all together, where there is nothing."""
    if name == "set":
        return facts.sets_of(stat.metric)
    own = _recorded(name, facts.records_of(stat))
    if name not in stat.absent_is_zero:
        return own
    if name == "rule":
        return own or (None,)
    looked_for = facts.entities.get(stat.metric, frozenset())
    of_metric = (scopes for (metric, _), scopes in facts.records.items() if metric == stat.metric)
    return own | (set[str]().union(*(_recorded(name, scopes) for scopes in of_metric)) & looked_for) or looked_for


def _recorded(name: str, scopes: Iterable[Scope]) -> set[str]:
    return {value for scope in scopes if (value := getattr(scope, name)) is not None}


def _words(shape: Shape) -> str:
    return " and ".join(name for name in _FIELDS if name in shape) or "the whole dataset"
