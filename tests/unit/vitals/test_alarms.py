"""Alarms and warnings: which series is named, from when, how often, and what a resumed run goes on with."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from lanes import sample

from dataaudit.vitals import alarms as alarms_module
from dataaudit.vitals.alarms import MOST_AT_ONCE, Alarms, Finding, first_divergence
from dataaudit.vitals.baseline import Key, baseline_of

HEADS = 96
WINDOW = 300


def entropies(heads: int = HEADS) -> list[Key]:
    return [Key("attn_entropy", one // 12, one % 12, "mean") for one in range(heads)]


def run_of(steps: int, heads: int = HEADS, seed: int = 0, freedom: float = 4) -> np.ndarray:
    """Return float64[steps, heads], healthy: level 3, standard deviation about 0.1."""
    rng = np.random.default_rng(seed)
    return 3 + 0.1 * rng.standard_t(freedom, (steps, heads)) / math.sqrt(freedom / (freedom - 2))


def watch(alarms: Alarms, values: np.ndarray, first: int = 1) -> list[tuple[int, Finding]]:
    """Return (step, finding) of values from a step on."""
    return [(step, one) for step, row in enumerate(values, first) for one in alarms.see(step, row)]


def alarms_of(found: list[tuple[int, Finding]]) -> list[tuple[int, dict]]:
    return [(step, one.detail) for step, one in found if one.kind == "alarm"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("freedom", [4, 100])
def test_a_head_that_drifts_by_five_sigma_over_30_steps_is_named_first_with_its_first_step(seed, freedom):
    values = run_of(WINDOW + 80, seed=seed, freedom=freedom)
    begins = WINDOW + 20
    values[begins : begins + 30, 41] -= 0.5 * np.arange(1, 31) / 30
    values[begins + 30 :, 41] -= 0.5
    found = alarms_of(watch(Alarms(entropies(), healthy=(1, WINDOW)), values))
    step, alarm = found[0]
    assert (alarm["metric"], alarm["layer"], alarm["head"]) == ("attn_entropy", 3, 5)
    assert begins < step <= begins + 45
    assert begins < alarm["first_step"] <= min(step - 2, begins + 31)
    assert alarm["value"] < alarm["low"] < 3 < alarm["high"]
    assert alarm["baseline"] == {"from": 1, "to": WINDOW, "steps": WINDOW}
    assert (alarm["family"], alarm["false_alarm_rate"]) == (HEADS, 1e-4)
    assert len(found) == 1


@pytest.mark.torch
@pytest.mark.parametrize(("memory", "follow"), sample([(0.0, True), (0.6, True), (0.0, False), (0.6, False)], 3))
def test_healthy_runs_of_a_whole_model_raise_as_few_alarms_as_stated(memory, follow):
    """10 runs of 1,000 steps at 1 in 500: 20 are expected, at most twice as many are stated."""
    raised = 0
    for seed in range(10):
        alarms = Alarms(entropies(24), healthy=(1, WINDOW), rate=2e-3, follow=follow)
        values = run_of(WINDOW + 1000, 24, seed)
        for step in range(1, len(values)):
            values[step] += memory * (values[step - 1] - 3)
        raised += len(alarms_of(watch(alarms, values)))
        assert len(alarms.not_evaluated) < 12
    assert raised <= 40


def test_a_learnt_baseline_follows_what_moves_slowly_and_a_given_one_does_not():
    """Levels that move by 0.3 of a scale in 300 steps, and noise that grows to twice as much in 1,800."""
    values = run_of(WINDOW + 1800, 24, freedom=100)
    after = np.arange(1800)[:, None]
    values[WINDOW:] = 3 + (values[WINDOW:] - 3) * (1 + after / 1800) + 0.1 * after / 1000
    learnt, still = Alarms(entropies(24), healthy=(1, WINDOW)), Alarms(entropies(24), healthy=(1, WINDOW), follow=False)
    given = Alarms(
        entropies(24), baseline=baseline_of(entropies(24), np.arange(1, WINDOW + 1), values[:WINDOW], trend="line")
    )
    assert alarms_of(watch(learnt, values)) == []
    assert len(alarms_of(watch(still, values))) >= 10
    assert len(alarms_of(watch(given, values[WINDOW:], WINDOW + 1))) >= 10


def test_the_end_of_the_healthy_window_says_what_was_learnt():
    keys = [*entropies(12), Key("layer_std", 0, -1, "all")]
    values = np.hstack([run_of(WINDOW, 12), np.full((WINDOW, 1), np.nan)])
    alarms = Alarms(keys, healthy=(11, WINDOW))
    assert set(alarms.not_evaluated.values()) == {"no baseline yet"}
    ((step, found),) = watch(alarms, values)
    assert (step, found.kind) == (WINDOW, "baseline")
    assert found.detail["baseline"] == {"from": 11, "to": WINDOW, "steps": WINDOW - 10}
    assert found.detail["limits"]["attn_entropy"][0]["method"] == "calibrated"
    assert found.detail["not_evaluated"] == {"layer_std": {"0 values, 30 are needed": 1}}
    assert alarms.not_evaluated == {keys[12]: "0 values, 30 are needed"}
    json.dumps(found.detail)


def test_a_healthy_window_that_was_never_seen_is_said():
    alarms = Alarms(entropies(12), healthy=(5, 20))
    ((step, found),) = watch(alarms, run_of(10, 12), 30)
    assert (step, found.detail) == (30, {"baseline": None, "why": "no step from 5 to 20 was seen"})
    assert set(alarms.not_evaluated.values()) == {"no baseline"}


def test_of_a_window_that_is_too_long_the_newest_steps_are_kept(monkeypatch):
    monkeypatch.setattr(alarms_module, "_MOST_LEARNT", 12 * 280)
    ((_, found),) = watch(Alarms(entropies(12), healthy=(1, WINDOW)), run_of(WINDOW, 12))
    assert found.detail["baseline"] == {"from": WINDOW - 279, "to": WINDOW, "steps": 280}


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
    assert alarms.first_divergence()["layer"] == 7
    assert first_divergence(one for _, one in reversed(found))["first_step"] == 1011


def test_of_layers_that_diverge_at_once_the_lowest_is_first():
    values = np.full((20, 12), 3.0)
    values[10:, 3:9] = 9.0
    alarms = of_12_heads()
    found = alarms_of(watch(alarms, values, 1001))
    assert [one["head"] for _, one in found] == [3, 4, 5, 6, 7, 8]
    assert alarms.first_divergence()["head"] == 3


def test_without_an_alarm_nothing_diverges():
    assert of_12_heads().first_divergence() is None
    assert first_divergence([]) is None


def test_a_new_episode_forgets_the_one_before():
    values = np.full((60, 12), 3.0)
    values[5:15, 2], values[35:45, 7] = 9.0, 9.0
    alarms = of_12_heads()
    watch(alarms, values, 1001)
    assert [one["head"] for one in alarms.episode] == [7]


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
    assert found[0][1]["baseline"] is None


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
        (Key("dead_head_rate", 2, 3, "share"), [0.98, 0.995], [(2, 0.99)]),
        (Key("dead_head_rate", -1, -1, "share"), [1.0], []),
    ],
)
def test_thresholds_of_the_literature_hold_for_what_they_are_of(key, values, expected):
    assert warnings_of(key, values) == expected


def test_small_updates_are_expected_while_the_learning_rate_warms_up():
    assert warnings_of(Key("update_to_weight", 2, -1, "all"), [5e-5, 2e-2], steady=False) == [(2, 1e-2)]


def test_values_may_come_by_series():
    alarms = of_12_heads(persistence=1)
    key = Key("attn_entropy", 0, 7, "mean")
    (found,) = alarms.see(1001, {key: 9.0})
    assert found.detail["head"] == 7
    with pytest.raises(ValueError, match="1 values of unknown series"):
        alarms.see(1002, {Key("attn_entropy", 9, 9, "mean"): 1.0})


def test_a_baseline_of_other_series_says_what_it_lacks():
    baseline = baseline_of(entropies(12)[::-1], np.arange(1, WINDOW + 1), run_of(WINDOW, 12) + np.arange(12))
    keys = [*entropies(12), Key("attn_entropy", 5, 0, "mean"), Key("layer_std", 0, -1, "all")]
    alarms = Alarms(keys, baseline=baseline)
    assert alarms.not_evaluated == dict.fromkeys(keys[12:], "not in the baseline")
    healthy = np.array([[*(3.0 + np.arange(12)[::-1]), 500.0, 500.0]] * 5)
    assert alarms_of(watch(alarms, healthy, 1001)) == []


@pytest.mark.parametrize("stop", [WINDOW // 2, WINDOW + 33, WINDOW + 60])
def test_a_run_that_goes_on_from_a_checkpoint_says_the_same(stop):
    keys = [*entropies(11), Key("max_attn_logit", 0, 0, "sampled")]
    values = run_of(WINDOW + 100, 12)
    values[WINDOW + 30 : WINDOW + 70, 4] = 9.0
    values[WINDOW + 30 :, 11] = 200.0
    whole = watch(Alarms(keys, healthy=(11, WINDOW)), values)
    assert {one.kind for _, one in whole} == {"alarm", "warning", "baseline"}
    first = Alarms(keys, healthy=(11, WINDOW))
    said = watch(first, values[:stop])
    state = json.loads(json.dumps(first.state(), allow_nan=False))
    again = Alarms(keys, healthy=(11, WINDOW)).load(state)
    assert again.state() == first.state()
    assert said + watch(again, values[stop:], stop + 1) == whole


def test_a_run_that_went_back_forgets_what_came_later():
    alarms = Alarms(entropies(12), healthy=(1, WINDOW))
    values = run_of(WINDOW + 10, 12)
    watch(alarms, values[:200] + 50)
    found = watch(alarms, values)
    assert [(step, one.kind) for step, one in found] == [(WINDOW, "baseline")]
    assert alarms.baseline.level(WINDOW)[0] == pytest.approx(3, abs=0.1)


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


@pytest.mark.parametrize(("factor", "threshold"), [(10.0, 4.0), (0.0, 0.25), (0.1, 0.25), (2.0, None)])
def test_an_amount_that_cannot_be_judged_and_is_many_times_its_healthy_level_is_warned_of_once(factor, threshold):
    """A walk that drifts slowly is worth a dozen values: no alarm can be told of it, a tenfold jump still is one."""
    draw = np.random.default_rng(4)
    keys = [Key("activation_mean_abs", layer, -1, "mlp") for layer in range(4)]
    keys += [Key("attn_entropy", 0, 0, "mean")]  # no amount: it may be near 0, and is not warned of
    walks = np.exp(np.cumsum(draw.normal(size=(400, 5)), 0) * 0.01)
    alarms = Alarms(keys, healthy=(1, 300))
    found = []
    for step in range(1, 401):
        values = walks[step - 1].copy()
        if 350 <= step < 380:
            values[[1, 4]] *= factor
        found += [(step, one) for one in alarms.see(step, values) if one.kind != "baseline"]
        if step == 360:
            state = alarms.state()
            alarms = Alarms(keys, healthy=(1, 300)).load(state)
    assert len(alarms.not_evaluated) == 5
    if threshold is None:
        assert not found
        return
    ((step, warning),) = found
    assert (step, warning.kind, warning.detail["layer"]) == (350, "warning", 1)
    assert warning.detail["threshold"] == pytest.approx(threshold * walks[299, 1], rel=0.1)
    assert warning.detail["value"] == pytest.approx(factor * walks[349, 1])
