"""Numbers that are at least what they say: which verdicts hold whatever was not found."""

import datetime as dt

import pytest
from made_facts import covered, facts, policy, record, rule

from dataaudit.decide.gate.run import evaluate
from dataaudit.decide.gate.verdict import State

KEYS = {"metric": "secret_hit_rate", "stat": "validated_hits", "unit": "hits"}


def of(value, truncated=0, **more):
    """Return the records of a manifest: hits, and documents that were not searched to the end."""
    hits = record(KEYS["metric"], KEYS["stat"], float(value), "hits", **more)
    return facts(covered(), hits, record(KEYS["metric"], "truncated", float(truncated), "documents", **more))


def judged(now, baseline=None, **limits):
    """Return state and reason of one rule."""
    found = evaluate(policy(rule(**KEYS, **limits)), now, baseline, on=dt.date(2026, 11, 27)).rules[0]
    return found.state, found.cases[0].reason


@pytest.mark.parametrize(
    ("value", "truncated", "limits", "state", "reason"),
    [
        (0, 0, {"budget": 0}, State.PASSED, ""),
        (0, 1, {"budget": 0}, State.NOT_EVALUATED, "at_least"),
        (1, 1, {"budget": 0}, State.FAILED, "at_least"),
        (1, 1, {"budget": 0, "severity": "warn"}, State.WARNED, "at_least"),
        (0, 1, {"budget": 0, "severity": "warn"}, State.NOT_EVALUATED, "at_least"),
        (5, 1, {"budget": 9, "warn": 4}, State.NOT_EVALUATED, "at_least"),
        (5, 1, {"budget": 4, "comparator": ">="}, State.PASSED, "at_least"),
        (3, 1, {"budget": 4, "comparator": ">="}, State.NOT_EVALUATED, "at_least"),
        (3, 1, {"budget": 4, "comparator": "=="}, State.NOT_EVALUATED, "at_least"),
        (5, 1, {"budget": 4, "comparator": "=="}, State.FAILED, "at_least"),
        (4, 1, {"budget": 4, "comparator": "=="}, State.NOT_EVALUATED, "at_least"),
    ],
)
def test_a_lower_bound_decides_only_what_no_larger_number_would_change(value, truncated, limits, state, reason):
    assert judged(of(value, truncated), **limits) == (state, reason)


@pytest.mark.parametrize(
    ("value", "was", "limits", "state"),
    [
        (20, 10, {"relative_change": 0.5, "direction": "up"}, State.FAILED),
        (11, 10, {"relative_change": 0.5, "direction": "up"}, State.NOT_EVALUATED),
        (2, 10, {"relative_change": 0.5, "direction": "down"}, State.NOT_EVALUATED),
        (10, 10, {"relative_change": 0.5, "direction": "down"}, State.PASSED),
        (2, 10, {"change": 3}, State.NOT_EVALUATED),
        (20, 10, {"change": 3}, State.FAILED),
    ],
)
def test_a_change_is_judged_the_same_way(value, was, limits, state):
    assert judged(of(value, 1), of(was), **limits) == (state, "at_least")


def test_a_baseline_that_is_a_lower_bound_is_nothing_to_compare_with():
    found = judged(of(20), of(10, 1), relative_change=0.5, direction="up")
    assert found == (State.NOT_EVALUATED, "baseline_at_least")


def test_only_the_part_with_such_documents_has_lower_bounds():
    one = {"scope": {"split": "train"}, "budget": 0}
    assert judged(of(0, 1, split="train"), **one) == (State.NOT_EVALUATED, "at_least")
    assert judged(of(0, 1, split="val"), **one)[1] != "at_least"
