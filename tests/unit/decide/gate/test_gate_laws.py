"""Laws of the gate over random manifests and rules: a stricter policy or a missing number never helps to pass."""

import datetime as dt
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from made_facts import covered, facts, policy, record, rule, sampled, shard_row

from dataaudit.base.errors import ExitCode
from dataaudit.decide.gate.judge import Compared, judge_record
from dataaudit.decide.gate.policy import LIMITS
from dataaudit.decide.gate.run import evaluate
from dataaudit.decide.gate.scopes import SHARD_STATISTICS, judge_shards
from dataaudit.decide.gate.verdict import ORDER, State
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.peers import LEAST_OF_SOURCE, LEAST_PEERS

TODAY = dt.date(2026, 11, 22)
NUMBERS = st.sampled_from([0.0, 0.1, 0.12, 0.2, 0.25, 0.5, 0.9]) | st.floats(0, 1)
SOURCES = ("web", "code", "mail")


@st.composite
def values(draw, metric, stat, **scope):
    """Return an exact or a sampled record, or one without a value."""
    kind = draw(st.sampled_from(["exact", "exact", "sampled", "none"]))
    if kind == "none":
        return record(metric, stat, None, **scope)
    if kind == "exact":
        return record(metric, stat, draw(NUMBERS), **scope)
    low, value, high = sorted(draw(st.tuples(NUMBERS, NUMBERS, NUMBERS)))
    return sampled(metric, stat, low, value, high, **scope)


@st.composite
def rules(draw, *, required=None):
    """Return a rule about near-duplicates, of the whole, of sources or of splits."""
    limit = draw(st.sampled_from(LIMITS[:3]))
    more = {limit: draw(NUMBERS)}
    more["comparator"] = draw(st.sampled_from(["<=", "<", ">=", ">"] if limit == "budget" else ["<=", "<"]))
    if limit != "budget":
        more["direction"] = draw(st.sampled_from(["up", "down", "either"]))
    more["bound"] = draw(st.sampled_from(["against", "value", "low", "high"]))
    more["severity"] = draw(st.sampled_from(["fail", "warn"]))
    more["baseline"] = draw(st.sampled_from(["required", "optional"]))
    more["required"] = draw(st.booleans()) if required is None else required
    more["allow_empty"] = draw(st.booleans())
    more["scope"] = draw(st.sampled_from([{}, {"per": "source"}, {"per": ["split", "source"]}, {"split": "train"}]))
    return rule(**more)


@st.composite
def manifests(draw):
    """Return facts whose records are all there."""
    scopes = [{}, *({"split": name} for name in ("train", "val")), *({"source": name} for name in SOURCES)]
    scopes += [{"split": split, "source": name} for split in ("train", "val") for name in SOURCES]
    made = [draw(values("near_dup_rate", "rate", **scope)) for scope in scopes]
    return facts(covered(), *made, sources=SOURCES)


def verdict_of(made_rule, now, old, **more):
    return evaluate(policy(made_rule), now, old, on=TODAY, **more)


def worse_or_equal(before, after):
    return ORDER.index(after) <= ORDER.index(before)


@settings(max_examples=examples(300), deadline=None)
@given(made=rules(), now=manifests(), old=st.none() | manifests(), by=NUMBERS)
def test_tightening_a_budget_never_turns_a_failure_into_a_pass(made, now, old, by):
    """For every kind of limit, comparator, bound and direction, case by case."""
    up = made.comparator in {">=", ">"}
    limit = made.limit + by if up else max(0.0, made.limit - by) if made.limit_kind != "budget" else made.limit - by
    tight = made.model_copy(update={made.limit_kind: limit})
    before, after = (verdict_of(one, now, old).rules[0] for one in (made, tight))
    assert worse_or_equal(before.state, after.state)
    assert after.counts.get(State.PASSED, 0) <= before.counts.get(State.PASSED, 0)


@settings(max_examples=examples(200), deadline=None)
@given(made=rules(), now=manifests(), old=st.none() | manifests())
def test_removing_a_metric_never_turns_a_failure_into_a_pass(made, now, old):
    """Nor what was not evaluated; and where the rule is required, the gate ends with code 3."""
    bare = replace(now, records={key: found for key, found in now.records.items() if key[0] != made.metric})
    before, after = verdict_of(made, now, old), verdict_of(made, bare, old)
    assert after.rules[0].state in {State.NOT_EVALUATED, State.NOT_APPLICABLE}
    if made.required:
        assert after.exit_code == ExitCode.NOT_EVALUATED
    elif before.exit_code != ExitCode.PASS:
        assert after.rules[0].state != State.PASSED


@settings(max_examples=examples(200), deadline=None)
@given(made=rules(required=True), now=manifests(), old=st.none() | manifests(), data=st.data())
def test_removing_any_record_never_helps(made, now, old, data):
    """Cases are counted from splits and sources of the manifest, not from the records that happen to be there."""
    found = now.records["near_dup_rate", "rate"]
    lost = data.draw(st.sampled_from(sorted(found, key=str)))
    bare = replace(
        now,
        records=now.records
        | {("near_dup_rate", "rate"): {scope: one for scope, one in found.items() if scope != lost}},
    )
    before, after = verdict_of(made, now, old), verdict_of(made, bare, old)
    if before.rules[0].state in {State.FAILED, State.NOT_EVALUATED}:
        assert after.rules[0].state in {State.FAILED, State.NOT_EVALUATED}
    assert (after.exit_code != ExitCode.PASS) or before.exit_code == ExitCode.PASS


@settings(max_examples=examples(100), deadline=None)
@given(made=rules(), now=manifests(), old=st.none() | manifests())
def test_a_strict_gate_passes_nothing_that_a_lenient_one_stops(made, now, old):
    """`--fail-on warn` only ever adds causes."""
    lenient, strict = (verdict_of(made, now, old, fail_on=level) for level in ("fail", "warn"))
    assert set(lenient.codes) - {ExitCode.PASS} <= set(strict.codes)


@pytest.mark.parametrize("statistic", SHARD_STATISTICS, ids=lambda one: one.column)
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_all_shards_at_once_are_judged_as_one_by_one(statistic, data):
    """The fast path over columns gives the cases that the plain judge gives for each shard's record."""
    number = st.integers(0, 50) if statistic.column in {"size", "seq_len_max"} or statistic.per_document else NUMBERS
    whole = statistic.column in {"documents", "bytes", "tokens"}
    rows = []
    for index in range(data.draw(st.integers(0, 14))):
        split, documents = data.draw(st.sampled_from(["train", "val"])), data.draw(st.integers(0, 60))
        status = data.draw(st.sampled_from(["ok", "ok", "ok", "partial", "quarantined"]))
        row = shard_row(index, split=split, documents=documents, status=status)
        parts = data.draw(st.sampled_from([("code",), ("code",), ("code",), ("web",), ("code", "web"), ()]))
        row["sources"] = [{"source": name, "documents": 1, "bytes": 1, "tokens": 9} for name in parts]
        value = data.draw(st.integers(0, 50) if whole or statistic.stat.endswith("hits") else number)
        rows.append(
            row
            | {
                statistic.column: value
                if whole or statistic.column == "size"
                else data.draw(st.sampled_from([value, value, None])),
                statistic.of: documents,
            }
            | ({statistic.by_chance: data.draw(NUMBERS | st.none())} if statistic.by_chance else {})
            | ({statistic.longest: data.draw(st.integers(0, 9) | st.none())} if statistic.longest else {})
        )
    limit = data.draw(st.sampled_from(["budget", "robust_sd"]))
    more = {limit: data.draw(NUMBERS | st.integers(0, 60))}
    if limit == "budget":
        more["comparator"] = data.draw(st.sampled_from(["<=", "<", ">=", ">", "=="]))
    unit = data.draw(st.sampled_from(["ratio", "tokens"]))
    made = rule(
        metric=statistic.metric,
        stat=statistic.stat,
        unit=unit,
        scope={"per": "shard"},
        allow_empty=data.draw(st.booleans()),
        **more,
    )
    table = facts(shards=rows).shards
    held_out = {"train": False, "val": True}
    cases, counted = judge_shards(made, statistic, table, held_out)
    expected = list(one_by_one(made, statistic, rows, held_out))
    counts = {state: sum(one.state == state for _, one in expected) for state in State}
    assert counted == {state: total for state, total in counts.items() if total}
    fine = {State.PASSED, State.NOT_APPLICABLE}
    broken = {index: (one.state, one.judged) for index, one in expected if one.state not in fine}
    if broken:
        assert {case.scope.shard: (case.state, case.judged) for case in cases} == broken


def one_by_one(made, statistic, rows, held_out):
    """Yield (shard, judgement) in plain Python."""
    lost = {"quarantined", "skipped"}
    numbers = {}
    for index, row in enumerate(rows):
        if statistic.population == "training" and held_out[row["split"]]:
            continue
        value = row[statistic.column]
        if statistic.column == "size":
            numbers[index] = row["size"] if row["status"] in lost else 0.0
        elif row["status"] not in lost:
            if statistic.per_document:
                value = value / row["documents"] if value is not None and row["documents"] else None
            if statistic.by_chance:
                chance = row[statistic.by_chance]
                value = None if value is None or chance is None else value - chance
            numbers[index] = value
    for index, value in numbers.items():
        reason = "empty_denominator" if rows[index][statistic.of] == 0 else "missing"
        status = {"status": "not_evaluated", "reason": reason} if value is None else {}
        if statistic.by_chance and value is not None and (chance := rows[index][statistic.by_chance]) > 0:
            bounds = {"low": value - chance, "high": value + chance / 2, "confidence": 0.95}
            status = {"method": "estimated", **bounds}
        one = Metric(
            metric=made.metric,
            stat=made.stat,
            scope=Scope(shard=index),
            unit=made.unit,
            value=None if value is None else float(value),
            **status,
        )
        compared = None
        if made.limit_kind == "robust_sd":
            compared = usual(index, {place: kind(rows[place]) for place in numbers}, numbers, made.unit)
            if made.unit == "ratio" and statistic.of != "tokens" and compared.value is not None:
                of = rows[index][statistic.column if statistic.column == "size" else statistic.of]
                some = max(1, of - (rows[index][statistic.but] if statistic.but else 0))
                chance = math.sqrt((max(0.0, compared.value * (1 - compared.value)) + 1 / some) / some)
                compared = replace(compared, spread=max(compared.spread, chance))
            if statistic.longest and compared.value is not None:
                chance = of_a_document(statistic, index, rows, numbers)
                compared = replace(compared, spread=max(compared.spread, chance))
        yield index, judge_record(made, one, compared)


def of_a_document(statistic, index, rows, numbers):
    """Return the spread that a shard's longest document gives, from all peers that have one."""
    kinds = {place: kind(rows[place]) for place in numbers}
    sizes = Counter(kinds.values())
    groups = {place: own if sizes[own] >= LEAST_OF_SOURCE else own[:1] for place, own in kinds.items()}
    peers = [place for place, value in numbers.items() if value is not None and groups[place] == groups[index]]
    median = middle(sorted(numbers[place] for place in peers))
    longest = {place: rows[place][statistic.longest] or 0 for place in peers}
    roots = {place: math.sqrt(longest[place] / max(1, rows[place][statistic.of])) for place in peers}
    distances = sorted(abs(numbers[place] - median) / root for place, root in roots.items() if root)
    return 1.4826 * middle(distances) * roots[index] if roots[index] else 0.0


def kind(row):
    """Return the split of a shard, and its source if that has more than half of it."""
    return (row["split"], *(part["source"] for part in row["sources"] if len(row["sources"]) == 1))


def usual(index, kinds, numbers, unit):
    """Return the median and spread of a shard's peers, by their kinds: (split, source) or (split,)."""
    sizes = Counter(kinds.values())
    kinds = {place: one if sizes[one] >= LEAST_OF_SOURCE else one[:1] for place, one in kinds.items()}
    values = {place: float(value) for place, value in numbers.items() if value is not None}
    groups = {one: [value for place, value in values.items() if kinds[place] == one] for one in kinds.values()}
    least = {one: LEAST_OF_SOURCE if len(one) > 1 else LEAST_PEERS for one in groups}
    medians = {one: middle(sorted(own)) for one, own in groups.items() if len(own) >= least[one]}
    mine = kinds[index]
    if mine not in medians:
        return Compared(reason="too_few_shards")
    own, value = groups[mine], values.get(index)
    if value is None:
        return Compared(reason="too_few_shards")
    spread = robust_sd(own)
    if len(own) < LEAST_PEERS:
        others = list(own)
        others.remove(value)
        spread = robust_sd(others)
    if len(own) < 20:
        pool = []
        for one, several in groups.items():
            if one in medians and one[0] == mine[0]:
                away = sorted(abs(other - medians[one]) for other in several)
                pool += away[1:] if len(away) < 20 else away
        if len(pool) < LEAST_PEERS - 1:
            return Compared(reason="too_few_shards")
        spread = max(spread, 1.4826 * middle(sorted(pool)))
    return Compared(value=medians[mine], spread=max(spread, 0.02 if unit == "ratio" else 0.0))


def robust_sd(values):
    """Return 1.4826 times the median distance from the median, at least 2 % of that."""
    median = middle(sorted(values))
    return max(1.4826 * middle(sorted(abs(value - median) for value in values)), 0.02 * abs(median))


def middle(ordered):
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else float(np.mean(ordered[half - 1 : half + 1]))
