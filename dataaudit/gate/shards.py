"""Rules over shards: all shards at once on the columns of the manifest's table, a hundred thousand in milliseconds.

What a column says of one shard is the same record that :func:`dataaudit.gate.judge.judge` would see; only the cases
that do not pass, and the one nearest to the limit, are made into records.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.gate.facts import UNREAD_STATES
from dataaudit.gate.judge import FEW_SHARDS, Compared, case_of, excess, judge
from dataaudit.gate.policy import COVERAGE, Rule
from dataaudit.gate.verdict import Case, State
from dataaudit.manifest.metric import SCREEN_ALONE, Method, Metric, Scope
from dataaudit.manifest.tables import HELD_BACK
from dataaudit.metrics.family import ShardStatistic
from dataaudit.metrics.peers import COLUMNS, Peers
from dataaudit.metrics.registry import SHARD_STATISTICS

_RATE_FLOOR = 0.02
"""Least robust sd of a ratio: that of a small shard moves by chance alone."""


def shard_statistics(rule: Rule) -> tuple[ShardStatistic, ...]:
    """Return the statistics kept per shard that a rule speaks of."""
    return tuple(one for one in SHARD_STATISTICS if one.metric == rule.metric and fnmatchcase(one.stat, rule.stat))


def judge_shards(
    rule: Rule, statistic: ShardStatistic, shards: pa.Table, held_out: dict[str, bool]
) -> tuple[list[Case], dict[State, int]]:
    """Judge a statistic of every shard that was read; of coverage, of every shard.

    Return the cases that do not pass, or the nearest to the limit, without fingerprints; and how many have each state.

    Args:
        rule: The rule.
        statistic: What it speaks of.
        shards: The table of shards.
        held_out: Of every split whether it is held out.
    """
    chosen = _chosen(rule, statistic, shards, held_out)
    values, denominators = _values(statistic, chosen)
    splits = np.asarray(chosen["split"].to_pylist(), dtype=object)
    documents = pc.fill_null(chosen["documents"], 0).to_numpy() if statistic.by_chance else None
    medians, spreads = Peers.of(chosen).usual(values, documents)
    spreads = np.maximum(spreads, _RATE_FLOOR if rule.unit == "ratio" else 0.0)
    highest = _highest(statistic, chosen, values, denominators)
    record_at = _records(rule, statistic, chosen, values, highest, denominators)
    suspects = _suspects(rule, highest, medians, spreads)
    cases: list[Case] = []
    counts: dict[State, int] = {State.PASSED: len(values) - len(suspects)}
    for index in suspects:
        case = _case(
            rule,
            statistic,
            record_at(int(index)),
            _compared(rule, medians[index], spreads[index]),
            f"{splits[index]}/{chosen['uri'][int(index)].as_py()}",
        )
        counts[case.state] = counts.get(case.state, 0) + 1
        cases.append(case)
    bad = [case for case in cases if case.state not in {State.PASSED, State.NOT_APPLICABLE}]
    near = sorted(
        (case for case in cases if case.state == State.PASSED), key=lambda case: -excess(rule, case.judged or 0)
    )
    return bad or near[:1] or cases[:1], {state: number for state, number in counts.items() if number}


def _chosen(rule: Rule, statistic: ShardStatistic, shards: pa.Table, held_out: dict[str, bool]) -> pa.Table:
    wanted = {"all": (True, False), "training": (False,), "held_out": (True,)}[statistic.population]
    splits = [name for name, held in held_out.items() if held in wanted]
    named = rule.scope.fixed().get("split")
    kept = pc.is_in(shards["split"], pa.array(splits if named is None else sorted(named), pa.string()))
    if statistic.metric != COVERAGE:
        kept = pc.and_(kept, pc.invert(pc.is_in(shards["status"], pa.array(UNREAD_STATES))))
    kept = pc.and_(kept, pc.not_equal(shards["reason"], HELD_BACK))
    of = filter(None, [statistic.of, statistic.column, statistic.but, statistic.undecided])
    columns = dict.fromkeys(["shard", "uri", "status", "documents", *COLUMNS, *of])
    return shards.select(list(columns)).filter(kept)


def _values(statistic: ShardStatistic, chosen: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return values, NaN where there is none, and denominators."""
    of = pc.fill_null(chosen[statistic.of], 0).to_numpy()
    if statistic.but:
        of = of - pc.fill_null(chosen[statistic.but], 0).to_numpy()
    values = pc.cast(chosen[statistic.column], pa.float64()).to_numpy().astype(np.float64)
    if statistic.metric == COVERAGE:
        lost = pc.is_in(chosen["status"], pa.array(UNREAD_STATES)).to_numpy()
        return np.where(lost, values, 0.0), np.maximum(values, 1).astype(np.int64)
    if statistic.per_document:
        values = np.divide(values, of, out=np.full(len(values), np.nan), where=of > 0)
    return values, of


def _highest(statistic: ShardStatistic, chosen: pa.Table, values: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Return the upper bounds of values: what they were if all undecided documents counted."""
    if not statistic.undecided:
        return values
    undecided = pc.fill_null(chosen[statistic.undecided], 0).to_numpy()
    highest: np.ndarray = np.minimum(1.0, values + undecided / np.maximum(denominators, 1))
    return highest


def _suspects(rule: Rule, values: np.ndarray, medians: np.ndarray, spreads: np.ndarray) -> np.ndarray:
    """Return the rows that may not pass, all of them, and the one nearest to the limit."""
    if rule.limit_kind == "robust_sd":
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            judged = np.abs(values - medians) / spreads
    else:
        judged = values
    limit = rule.first_limit
    sign = -1.0 if rule.comparator in {">=", ">"} else 1.0
    distance = np.abs(judged - limit) if rule.comparator == "==" else sign * (judged - limit)
    unsure = np.isnan(distance) | (distance > -1e-9 * max(1.0, abs(limit)))
    if not np.isnan(distance).all():
        unsure[int(np.nanargmax(distance))] = True
    return np.flatnonzero(unsure)


def _records(
    rule: Rule,
    statistic: ShardStatistic,
    chosen: pa.Table,
    values: np.ndarray,
    highest: np.ndarray,
    denominators: np.ndarray,
) -> Callable[[int], Metric]:
    ordinals = chosen["shard"].to_numpy()
    reason = SCREEN_ALONE if statistic.estimated else ""

    def record(index: int) -> Metric:
        missing = bool(np.isnan(values[index]))
        empty = missing and int(denominators[index]) == 0
        bounded = not missing and highest[index] > values[index]
        method: Method = "estimated" if statistic.estimated or bounded else "exact"
        return Metric(
            metric=statistic.metric,
            stat=statistic.stat,
            scope=Scope(shard=int(ordinals[index])),
            unit=rule.unit,
            value=None if missing else float(values[index]),
            low=float(values[index]) if bounded else None,
            high=float(highest[index]) if bounded else None,
            confidence=1.0 if bounded else None,
            method=method,
            denominator=int(denominators[index]),
            n=int(denominators[index]),
            status="not_evaluated" if missing else "ok",
            reason=("empty_denominator" if empty else statistic.absent) if missing else reason,
        )

    return record


def _compared(rule: Rule, median: float, spread: float) -> Compared | None:
    if rule.limit_kind != "robust_sd":
        return None
    if np.isnan(median):
        return Compared(reason=FEW_SHARDS)
    return Compared(value=float(median), spread=float(spread))


def _case(rule: Rule, statistic: ShardStatistic, record: Metric, compared: Compared | None, uri: str) -> Case:
    """Return the case of a shard, which shows no interval."""
    found = judge(rule, record, compared)
    denominator = 0 if found.baseline is None else record.denominator
    more = {"shard_uri": uri, "baseline_denominator": denominator, "low": None, "high": None, "confidence": None}
    return case_of(rule, statistic.stat, record.scope, record, found, **more)
