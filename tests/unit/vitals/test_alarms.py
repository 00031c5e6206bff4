"""Alarms and warnings: which series is named, from when, how often, and what a resumed run goes on with."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from dataaudit.vitals.alarms import Alarms
from dataaudit.vitals.baseline import baseline_of
from dataaudit.vitals.fixed_rules import MOST_AT_ONCE, Finding
from dataaudit.vitals.metric import Key

HEADS = 96
WINDOW = 300


def entropies(heads: int = HEADS) -> list[Key]:
    return [Key("attn_entropy", one // 12, one % 12, "normalised") for one in range(heads)]


def run_of(steps: int, heads: int = HEADS, seed: int = 0, freedom: float = 4) -> np.ndarray:
    """Return float64[steps, heads], healthy: level 3, standard deviation about 0.1."""
    rng = np.random.default_rng(seed)
    return 3 + 0.1 * rng.standard_t(freedom, (steps, heads)) / math.sqrt(freedom / (freedom - 2))


def watch(alarms: Alarms, values: np.ndarray, first: int = 1) -> list[tuple[int, Finding]]:
    """Return (step, finding) of values from a step on."""
    return [(step, one) for step, row in enumerate(values, first) for one in alarms.see(step, row)]


def alarms_of(found: list[tuple[int, Finding]]) -> list[tuple[int, dict]]:
    return [(step, one.detail) for step, one in found if one.kind == "alarm"]


def of_12_heads(**settings) -> Alarms:
    values = run_of(WINDOW, 12)
    return Alarms(entropies(12), baseline=baseline_of(entropies(12), np.arange(1, WINDOW + 1), values, **settings))


def test_an_alarm_is_raised_once_and_again_after_the_series_came_back():
    values = np.full((60, 12), 3.0)
    values[5:15, 2] = values[40:50, 2] = 9.0
    found = alarms_of(watch(of_12_heads(), values, 1001))
    assert [(step, one["head"], one["first_step"]) for step, one in found] == [(1008, 2, 1006), (1043, 2, 1041)]


def test_fewer_values_in_a_row_than_the_persistence_are_no_alarm():
    values = np.full((40, 12), 3.0)
    values[5:7, 2] = values[10:12, 2] = 9.0
    values[20, 3], values[21, 3], values[22, 3] = 9.0, -9.0, 9.0
    assert alarms_of(watch(of_12_heads(), values, 1001)) == []
    found = alarms_of(watch(of_12_heads(persistence=1), values, 1001))
    assert [(step, one["head"]) for step, one in found] == [(1006, 2), (1011, 2), (1021, 3)]


def test_values_in_a_row_are_measured_values():
    values = np.full((40, 12), np.nan)
    values[::8] = 3.0
    values[8:, 4] = np.where(np.isnan(values[8:, 4]), np.nan, 9.0)
    ((step, alarm),) = alarms_of(watch(of_12_heads(), values, 1001))
    assert (step, alarm["head"], alarm["first_step"]) == (1025, 4, 1009)


def test_an_infinite_value_is_out_and_one_that_was_not_measured_is_not():
    values = np.full((10, 12), 3.0)
    values[3:, 1], values[3:, 2] = np.inf, np.nan
    ((_, alarm),) = alarms_of(watch(of_12_heads(), values, 1001))
    assert alarm["head"] == 1
    assert json.loads(json.dumps(alarm, allow_nan=False))["value"] > 1e308


def test_the_first_layer_that_diverges_is_the_one_that_began_first():
    values = np.full((40, 12), 3.0)
    alarms = Alarms(
        [Key("attn_entropy", one, -1, "mean") for one in range(12)],
        baseline=baseline_of(
            [Key("attn_entropy", one, -1, "mean") for one in range(12)], np.arange(1, WINDOW + 1), run_of(WINDOW, 12)
        ),
    )
    for place, layer in enumerate((7, 6, 8, 5)):
        values[10 + 2 * place :, layer] = 9.0
    found = alarms_of(watch(alarms, values, 1001))
    assert [one["layer"] for _, one in found] == [7, 6, 8, 5]
    assert alarms.incidents.first["layer"] == 7
    assert {one["incident"] for _, one in found} == {1}


def test_of_layers_that_diverge_at_once_the_lowest_is_first():
    values = np.full((20, 12), 3.0)
    values[10:, 3:9] = 9.0
    alarms = of_12_heads()
    found = alarms_of(watch(alarms, values, 1001))
    assert [one["head"] for _, one in found] == [3, 4, 5, 6, 7, 8]
    assert alarms.incidents.first["head"] == 3


def test_many_alarms_of_a_step_are_few_events_and_a_count():
    baseline = baseline_of(entropies(), np.arange(1, WINDOW + 1), run_of(WINDOW))
    found = alarms_of(watch(Alarms(entropies(), baseline=baseline), np.full((5, HEADS), 9.0), 1001))
    assert len(found) == MOST_AT_ONCE
    assert [one.get("others", 0) for _, one in found] == [0] * (MOST_AT_ONCE - 1) + [HEADS - MOST_AT_ONCE]


def test_a_gradient_norm_has_a_band_in_its_own_unit():
    keys = [Key("grad_norm", 0, -1, "at_step")]
    learnt = np.exp(np.random.default_rng(1).normal(0, 0.1, (WINDOW, 1)))
    alarms = Alarms(keys, baseline=baseline_of(keys, np.arange(1, WINDOW + 1), learnt))
    ((_, alarm),) = alarms_of(watch(alarms, np.full((4, 1), 4.0), 1001))
    assert 0.3 < alarm["low"] < 1 < alarm["high"] < 3
    assert alarms_of(watch(alarms, np.array([[1.0]] * 20 + [[0.0]] * 3), 1011))[0][1]["value"] == 0


def test_numbers_that_are_not_finite_are_an_alarm_at_once_without_a_baseline():
    alarms = Alarms([Key("nan_inf_events", -1, -1, "count"), Key("nan_inf_events", 4, -1, "count")])
    values = np.zeros((10, 2))
    values[3:6, 1] = 2.0
    values[8, 0] = 1.0
    found = alarms_of(watch(alarms, values))
    assert [(step, one["layer"], one["value"], one["first_step"]) for step, one in found] == [
        (4, 4, 2, 4),
        (9, -1, 1, 9),
    ]
    assert {one["severity"] for _, one in found} == {0}


def warnings_of(key: Key, values: list[float], **settings) -> list[tuple[int, float]]:
    alarms = Alarms([key])
    return [
        (step, one.detail["threshold"])
        for step, value in enumerate(values, 1)
        for one in alarms.see(step, np.array([value]), **settings)
        if one.kind == "warning" and one.detail["source"]
    ]


def test_a_threshold_is_warned_of_once_an_episode():
    key = Key("max_attn_logit", 2, 3, "sampled")
    assert warnings_of(key, [90, 101, 99, 101, 85, 120, 79, 101]) == [(2, 100), (8, 100)]
    assert warnings_of(key, [5000, 5000]) == [(1, 1000)]  # of two thresholds that it passes at once, the farthest
    assert warnings_of(key, [500, 5000, 500, 5000, 70, 500]) == [(1, 100), (2, 1000), (4, 1000), (6, 100)]


@pytest.mark.parametrize(
    ("key", "values", "expected"),
    [
        (Key("max_attn_logit", 2, 3, "upper"), [5000], []),
        (Key("update_to_weight", 2, -1, "all"), [2e-2, 1e-3, 5e-5], [(1, 1e-2), (3, 1e-4)]),
        (Key("gradient_spike_score", -1, -1, "ratio"), [1.9, 2.1, np.nan, 2.1], [(2, 2.0)]),
        (Key("dead_head_rate", 2, 3, "share"), [0.98, 0.995], []),  # its own law judges it
    ],
)
def test_thresholds_of_the_literature_hold_for_what_they_are_of(key, values, expected):
    assert warnings_of(key, values) == expected


def test_small_updates_are_expected_while_the_learning_rate_warms_up():
    assert warnings_of(Key("update_to_weight", 2, -1, "all"), [5e-5, 2e-2], steady=False) == [(2, 1e-2)]


def test_a_baseline_of_other_series_says_what_it_lacks():
    baseline = baseline_of(entropies(12)[::-1], np.arange(1, WINDOW + 1), run_of(WINDOW, 12) + np.arange(12))
    keys = [*entropies(12), Key("attn_entropy", 5, 0, "mean"), Key("layer_std", 0, -1, "all")]
    alarms = Alarms(keys, baseline=baseline)
    assert alarms.judge.not_evaluated == dict.fromkeys(keys[12:], "not in the baseline")
    assert alarms.coverage()["attn_entropy"] == {"judged": 12, "series": 12, "why": ""}
    healthy = np.array([[*(3.0 + np.arange(12)[::-1]), 500.0, 500.0]] * 5)
    assert alarms_of(watch(alarms, healthy, 1001)) == []


@pytest.mark.parametrize("stop", [WINDOW // 2, WINDOW + 33, WINDOW + 60])
def test_a_run_that_goes_on_from_a_checkpoint_says_the_same(stop):
    keys = [*entropies(11), Key("max_attn_logit", 0, 0, "sampled")]
    values = run_of(WINDOW + 100, 12)
    values[WINDOW + 30 : WINDOW + 70, 4] = 9.0
    values[WINDOW + 30 :, 11] = 200.0
    whole = watch(Alarms(keys, healthy=(11, WINDOW)), values)
    assert {one.kind for _, one in whole} == {"alarm", "warning", "coverage"}
    first = Alarms(keys, healthy=(11, WINDOW))
    said = watch(first, values[:stop])
    state = json.loads(json.dumps(first.state(), allow_nan=False))
    again = Alarms(keys, healthy=(11, WINDOW)).load(state)
    assert again.state() == first.state()
    assert said + watch(again, values[stop:], stop + 1) == whole


def test_a_run_that_went_back_begins_its_runs_of_values_anew():
    values = np.full((12, 12), 3.0)
    values[10:, 2] = 9.0
    alarms = of_12_heads()
    assert alarms_of(watch(alarms, values, 1001)) == []
    assert alarms_of(watch(alarms, values[10:11], 1001)) == []


@pytest.mark.parametrize("state", [{}, {"keys": [["attn_entropy", 0, 0, "mean"]]}, {"keys": None}])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(ValueError, match="state"):
        Alarms(entropies(1)).load(state)


def test_wrong_use_is_refused():
    key = entropies(1)
    with pytest.raises(ValueError, match="named twice"):
        Alarms(key * 2)
    with pytest.raises(ValueError, match="no series"):
        Alarms([])
    with pytest.raises(ValueError, match="has no step"):
        Alarms(key, healthy=(9, 3))
    with pytest.raises(ValueError, match="1 values expected"):
        Alarms(key).see(1, np.zeros(2))
    by_position = baseline_of(key, np.arange(1, 101), run_of(100, 1), total=100)
    with pytest.raises(ValueError, match="last step of this run"):
        Alarms(key, baseline=by_position)


@pytest.mark.parametrize(("first", "severity"), [(1, 2), (101, 3)])
def test_what_leaves_another_run_while_the_model_begins_is_a_hint_before_that_one_alone(first, severity):
    """The baseline is healthy at these steps, too; before its own first step it says nothing of them."""
    keys = [*entropies(12), Key("update_to_weight", 0, -1, "all")]
    values = np.column_stack([run_of(WINDOW, 12), np.full(WINDOW, 1e-4) * np.exp(run_of(WINDOW, 1)[:, 0] - 3)])
    baseline = baseline_of(keys, np.arange(first, first + WINDOW), values)
    given = values[:40].copy()
    given[20:, 2] = 9.0
    found = alarms_of(watch(Alarms(keys, baseline=baseline), given))
    assert [(step, one["head"], one["severity"]) for step, one in found] == [(23, 2, severity)]
