"""Baselines: levels, scales and limits of healthy values, against references and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from lanes import sample

from dataaudit.runlog.format import RunFile
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import RankWriter
from dataaudit.vitals.baseline import AVERAGED, FLOOR, LEAST_VALUES, Runs, baseline_of, baseline_of_run
from dataaudit.vitals.metric import Key

HEADS = 96


def entropies(heads: int = HEADS, metric: str = "attn_entropy") -> list[Key]:
    return [Key(metric, one // 12, one % 12, "mean") for one in range(heads)]


def steps(number: int) -> np.ndarray:
    return np.arange(1, number + 1)


def healthy(kind: str, number: int, heads: int, seed: int) -> np.ndarray:
    """Return float64[number, heads] of heavy tails: Student's t of 4 degrees of freedom."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_t(4, (number, heads))
    if kind == "cross_correlated":
        noise = math.sqrt(0.3) * noise + math.sqrt(0.7) * rng.standard_t(4, (number, 1))
    if kind.startswith("ar"):
        for one in range(1, number):
            noise[one] += float(kind[2:]) * noise[one - 1]
    return 3 + 0.1 * noise


def test_level_and_scale_are_median_and_mad_of_what_was_measured():
    rng = np.random.default_rng(1)
    values = rng.normal(5, 2, (101, 3))
    values[::2, 1] = np.nan
    values[7, 2] = np.inf
    found = baseline_of(entropies(3), steps(101), values)
    for one in range(3):
        own = values[np.isfinite(values[:, one]), one]
        median = np.median(own)
        assert found.level(1)[one] == pytest.approx(median, rel=1e-12)
        assert found.scale[one] == pytest.approx(1.4826 * np.median(np.abs(own - median)), rel=1e-12)
        assert found.values[one] == len(own)


def test_a_trajectory_follows_a_curve():
    curve = np.log(200 + steps(800))[:, None] + np.random.default_rng(3).normal(0, 0.01, (800, 1))
    found = baseline_of(entropies(1), steps(800), curve, trend="trajectory")
    assert [float(found.level(one)[0]) for one in (100, 400, 770)] == pytest.approx(
        [math.log(one) for one in (300, 600, 970)], abs=0.01
    )
    assert found.scale[0] < 0.02


def test_a_trajectory_by_position_holds_in_a_run_of_another_length():
    curve = np.linspace(0, 1, 800)[:, None] + np.random.default_rng(4).normal(0, 0.01, (800, 1))
    found = baseline_of(entropies(1), steps(800), curve, trend="trajectory", total=800)
    assert found.level(4000, 8000)[0] == pytest.approx(0.5, abs=0.02)


def test_few_values_and_few_independent_values_are_not_evaluated_and_say_why():
    rng = np.random.default_rng(5)
    values = np.stack([rng.normal(size=100), rng.normal(size=100), np.linspace(0, 9, 100)], axis=1)
    values[LEAST_VALUES - 1 :, 1] = np.nan
    keys = entropies(3)
    found = baseline_of(keys, steps(100), values)
    assert found.not_evaluated[keys[1]] == "29 values, 30 are needed"
    assert "independent ones" in found.not_evaluated[keys[2]]
    assert keys[0] not in found.not_evaluated
    assert found.limits["attn_entropy"][0].family == 1
    assert np.isnan(found.scale[1:]).all()


def test_a_metric_without_any_series_to_evaluate_has_no_limit():
    found = baseline_of(entropies(2), steps(10), np.ones((10, 2)))
    assert found.limits == {}
    assert len(found.not_evaluated) == 2


def test_constant_series_have_the_floor_as_their_scale():
    keys = [Key("opt_state_finite", -1, -1, "share"), *(Key("dead_neuron_count", one, -1, "units") for one in (0, 1))]
    found = baseline_of(keys, steps(50), np.tile([1.0, 0.0, 200.0], (50, 1)))
    assert found.scale.tolist() == [FLOOR, FLOOR * 100, FLOOR * 200]


def test_mostly_equal_values_have_a_scale_of_their_own():
    values = np.zeros((100, 1))
    values[::10] = 4.0
    found = baseline_of([Key("dead_neuron_count", 0, -1, "units")], steps(100), values)
    assert found.scale[0] == pytest.approx(math.sqrt(1.6))


def test_gradient_norms_are_looked_at_in_logarithms():
    rng = np.random.default_rng(6)
    values = np.exp(rng.normal(math.log(7), 0.2, (400, 1)))
    values[3] = 0.0
    found = baseline_of([Key("grad_norm", 0, -1, "at_step")], steps(400), values)
    assert found.level(1)[0] == pytest.approx(math.log(7), abs=0.05)
    assert found.scale[0] == pytest.approx(0.2, abs=0.04)
    assert found.values[0] == 399


@pytest.mark.parametrize(("memory", "worth"), [(0.0, 1.0), (0.5, 3.0), (0.9, 19.0)])
def test_the_effective_number_is_that_of_an_autoregressive_process(memory, worth):
    values = np.random.default_rng(7).normal(size=(4000, 8))
    for one in range(1, 4000):
        values[one] += memory * values[one - 1]
    found = baseline_of(entropies(8), steps(4000), values)
    assert 4000 / np.median(found.effective) == pytest.approx(worth, rel=0.2)


@pytest.mark.parametrize(
    ("shape", "settings", "said"),
    [
        ((5, 3), {}, "found"),
        ((0, 2), {}, "needs"),
        ((5, 2), {"rate": 0.0}, "needs"),
        ((5, 2), {"persistence": 0}, "needs"),
    ],
)
def test_values_and_settings_that_do_not_fit_are_refused(shape, settings, said):
    with pytest.raises(ValueError, match=said):
        baseline_of(entropies(2), steps(shape[0]), np.ones(shape), **settings)


def test_a_run_is_the_least_of_its_last_values_on_one_side():
    runs = Runs(2, 3)
    seen = [[4.0, 1.0], [5.0, np.nan], [3.0, 2.0], [-9.0, 3.0], [-8.0, np.nan], [-7.0, 4.0]]
    assert [runs.see(np.array(one))[0].tolist() for one in seen] == [[0, 0], [0, 0], [3, 0], [0, 1], [0, 0], [7, 2]]


def test_a_mean_is_over_the_last_values_each_cut_off():
    runs = Runs(2, 3)
    values = np.random.default_rng(3).normal(0, 1, (50, 2))
    values[40, 0] = -1e300
    values[::3, 1] = np.nan
    for one in values:
        found = runs.see(one)[1]
    assert found[0] == pytest.approx(abs(np.clip(values[-AVERAGED:, 0], -8, 8).mean()))
    assert found[1] == pytest.approx(abs(values[~np.isnan(values[:, 1]), 1][-AVERAGED:].mean()))


@pytest.mark.vitals
@pytest.mark.parametrize("kind", ["independent", "ar0.6", "ar0.9", "cross_correlated"])
@pytest.mark.parametrize(
    ("window", "persistence", "trend"),
    sample([(100, 3, "level"), (1024, 3, "level"), (256, 1, "level"), (256, 3, "level")], 2),
)
def test_false_alarms_of_96_heads_begin_at_most_twice_as_often_as_stated(kind, window, persistence, trend):
    """Heavy tails; the rate is one in 250 steps, so that 6 runs of 1,000 steps can tell it: 24 expected."""
    rate, after, began = 4e-3, 1000, 0
    runs = 6
    methods = set()
    for seed in range(runs):
        values = healthy(kind, window + after, HEADS, seed)
        own = values[:window]
        found = baseline_of(entropies(), steps(window), own, trend=trend, rate=rate, persistence=persistence)
        if not found.limits:
            assert kind in {"ar0.6", "ar0.9"}
            assert "independent ones" in found.reasons[0]
            continue
        limits = found.limits["attn_entropy"]
        methods |= {one.method for one in limits}
        z = (values[window:] - found.level(window)) / found.scale
        seen = Runs(HEADS, persistence)
        distances = np.array([[one.distance] for one in limits])
        out = np.array([(seen.see(one) > distances).any() for one in z])
        began += int((out[1:] & ~out[:-1]).sum())
    assert methods <= {"calibrated" if window >= 200 else "sidak_student"}
    assert began <= 2 * rate * runs * after


def test_heads_with_much_in_common_have_a_nearer_limit_than_independent_ones():
    limits = {}
    for kind in ("independent", "cross_correlated"):
        found = [
            baseline_of(entropies(), steps(1024), healthy(kind, 1024, HEADS, seed), persistence=1) for seed in (1, 2)
        ]
        limits[kind] = max(one.limits["attn_entropy"][0].distance for one in found)
    assert limits["cross_correlated"] < 0.8 * limits["independent"]


def test_a_stored_run_is_a_baseline_by_step_and_by_position(tmp_path):
    run = RunFile(
        manifest="sha256:" + "0" * 64,
        dataset="made",
        sources=(),
        block_rows=1,
        ranks=1,
        started="2026-11-22T00:00:00Z",
        program="test",
    )
    (tmp_path / "run.json").write_bytes(run.sealed(None).to_json())
    writer = RankWriter(tmp_path, 0, 1, 1)
    rng = np.random.default_rng(9)
    for step in range(1, 401):
        writer.add(
            "values",
            {
                "step": [step] * 2,
                "metric": ["attn_entropy"] * 2,
                "layer": [0, 1],
                "head": [0, 0],
                "stat": ["mean"] * 2,
                "value": [step / 400 + rng.normal(0, 0.01), 2 + rng.normal(0, 0.01)],
            },
        )
    writer.close()
    log = load_run(tmp_path)
    by_step = baseline_of_run(log, first=50, last=400)
    assert by_step.keys == (Key("attn_entropy", 0, 0, "mean"), Key("attn_entropy", 1, 0, "mean"))
    assert by_step.about() == {"from": 50, "to": 400, "steps": 351}
    assert by_step.level(200).tolist() == pytest.approx([0.5, 2.0], abs=0.02)
    by_position = baseline_of_run(log, first=50, last=400, by="position")
    assert by_position.level(50_000, 100_000).tolist() == pytest.approx([0.5, 2.0], abs=0.02)
    with pytest.raises(ValueError, match="rank 1 wrote no value from step 50 to 400"):
        baseline_of_run(log, first=50, last=400, rank=1)


def test_fewer_outliers_than_the_persistence_are_no_drift():
    """A count that is nearly always 0, and never was 1 in health."""
    found = baseline_of([Key("skipped_updates", -1, -1, "count")], steps(400), np.zeros((400, 1)))
    jumps, drifts = found.limits["skipped_updates"]
    assert drifts.distance == 2 * 8 / AVERAGED
    assert jumps.distance > 1


def test_metrics_that_are_measured_at_different_steps_have_the_limits_that_they_have_alone():
    values = healthy("independent", 900, 24, 3)
    keys = entropies(12) + entropies(12, "max_attn_logit")
    values[:, 12:][np.arange(900) % 4 != 0] = np.nan
    for trend in ("level", "trajectory"):
        together = baseline_of(keys, steps(900), values, trend=trend)
        chosen = np.arange(900) % 4 == 0
        alone = baseline_of(keys[12:], steps(900)[chosen], values[chosen, 12:], trend=trend)
        limits = [one.distance for one in together.limits["max_attn_logit"]]
        assert limits == pytest.approx([one.distance for one in alone.limits["max_attn_logit"]], rel=1e-9)
        assert together.limits["attn_entropy"][0].steps == 4 * together.limits["max_attn_logit"][0].steps == 900
