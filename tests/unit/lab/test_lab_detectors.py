"""Divergence, bands, limits and detectors of the laboratory, on curves whose answer is known."""

import numpy as np
import pytest

from dataaudit.lab.monitors import (
    DETECTORS,
    RATE,
    Band,
    Series,
    above_past,
    cusum,
    divergence,
    less_own,
    limit_of,
    on_grid,
    over_average,
)
from dataaudit.lab.plan import load_plan
from dataaudit.lab.receipts import lower_bound
from dataaudit.lab.scenarios import SCENARIOS
from dataaudit.lab.scoring import Verdict, order, specificity


def test_the_shipped_plan_is_whole_and_has_every_scenario_at_its_strength():
    plan = load_plan(None)
    assert {name: own["words"] for name, own in plan.content["scenarios"].items()} == {
        item.name: item.words for item in SCENARIOS
    }
    seeds = [set(own) for own in plan.content["seeds"].values()]
    assert sum(map(len, seeds)) == len(set.union(*seeds))
    for model in ("dense", "experts"):
        for mode in ("later", "start"):
            assert set(DETECTORS) <= plan.content["limits"][model][mode].keys()
    assert "router_token_entropy" in plan.content["limits"]["experts"]["later"]
    assert "router_token_entropy" not in plan.content["limits"]["dense"]["later"]


def test_divergence_is_the_twentieth_step_half_a_nat_above_the_lowest_mean():
    loss = np.full(200, 2.0)
    loss[100:119] = 2.6
    assert divergence(loss) is None
    loss[100:120] = 2.6
    assert divergence(loss) == 120
    loss[110] = 2.4
    assert divergence(loss) is None


def test_a_loss_that_is_no_number_for_twenty_steps_has_diverged():
    loss = np.full(100, 2.0)
    loss[60:] = np.nan
    assert divergence(loss) == 80


def test_a_single_low_loss_moves_the_minimum_by_a_twentieth():
    loss = np.full(200, 2.0)
    loss[50] = 1.0
    loss[100:] = 2.44
    assert divergence(loss) is None


def test_three_points_on_the_same_side_count_and_two_do_not():
    band = Band(np.zeros(20), np.ones(20))
    values = np.zeros(20)
    values[5:7] = 9.0
    assert band.score(values).max() == 0
    values[7] = 8.0
    assert band.score(values)[7] == 8.0
    values[6] = -9.0
    assert band.score(values).max() == 0


def test_points_without_a_number_are_no_alarm_and_infinity_is():
    band = Band(np.zeros(9), np.ones(9))
    assert band.score(np.full(9, np.nan)).max() == 0
    assert np.isinf(band.score(np.array([0.0, 0, 0, np.inf, np.inf, np.inf, 0, 0, 0]))[5])


def test_a_band_of_runs_is_their_mean_and_deviation():
    rows = np.random.default_rng(0).normal(3.0, 2.0, (400, 60))
    band = Band.of(list(rows))
    assert np.abs(band.middle - 3).max() < 0.3
    assert np.abs(band.spread - 2).max() < 0.3


def test_limits_keep_the_rate_that_they_promise():
    """Of runs whose largest scores follow a known law, as many exceed a limit of 12 of them as were to."""
    draw, steps, signals = np.random.default_rng(1), 600, 4
    share = RATE * steps / signals
    beyond = []
    for _ in range(300):
        maxima = np.exp(draw.gumbel(1.0, 0.2, 12))
        beyond.append((np.exp(draw.gumbel(1.0, 0.2, 2_000)) > limit_of(maxima, steps, signals)).mean())
    assert share / 3 < np.mean(beyond) < 3 * share


def test_a_run_loses_its_own_level_before_an_onset_and_keeps_it_without():
    values = np.arange(100.0)
    assert less_own(values, 0) is values
    assert np.median(less_own(values, 200)[18:50]) == 0


def test_the_grid_holds_the_latest_value_and_ends_with_the_run():
    grid = on_grid([(4, 1.0), (9, 2.0)], 200, logarithm=False)
    assert np.isnan(on_grid([(9, 2.0)], 40, logarithm=False)[:2]).all()
    assert grid[:3].tolist() == [1.0, 1.0, 2.0]
    assert np.isnan(grid[30:]).all()


@pytest.mark.parametrize("name", DETECTORS)
def test_every_detector_scores_a_rise_higher_than_what_came_before(name):
    draw = np.random.default_rng(3)
    curve = np.exp(draw.normal(0.5, 0.05, 400))
    curve[300:] *= 2.5
    scores = DETECTORS[name][1](curve)
    assert scores.shape == (400,)
    assert scores[300:306].max() > scores[60:300].max()


def test_scores_use_the_past_alone():
    draw = np.random.default_rng(4)
    curve = np.exp(draw.normal(0.5, 0.1, 300))
    changed = np.concatenate([curve[:200], curve[200:] * 7])
    for _, score in DETECTORS.values():
        assert np.array_equal(score(curve)[:200], score(changed)[:200])


def test_simple_detectors_agree_with_their_formulas():
    draw = np.random.default_rng(5)
    curve = draw.normal(2, 0.1, 120)
    past = curve[50:100]
    assert above_past(curve, 50, robust=False)[100] == pytest.approx((curve[100] - past.mean()) / past.std())
    average = curve[0]
    for value in curve[:20]:
        average = 0.9 * average + 0.1 * value
    assert over_average(curve)[20] == pytest.approx(curve[20] / average)
    assert cusum(np.full(60, 2.0)).max() == 0


def test_a_monitor_keeps_the_latest_value_of_layers_that_have_no_turn():
    series = Series()
    for step, first, second in ((4, 3.0, np.nan), (8, np.nan, 5.0), (12, np.nan, np.nan)):
        series.add_values(
            {
                "step": np.array([step, step]),
                "metric": ["stable_rank", "stable_rank"],
                "stat": ["least", "least"],
                "value": np.array([first, second]),
            }
        )
    assert series.points["stable_rank"] == [(4, 3.0), (8, 3.0)]


@pytest.mark.parametrize(("caught", "runs"), [(29, 29), (28, 29), (20, 20), (11, 12), (1, 3), (600, 1_100)])
def test_the_bound_of_an_aim_is_the_exact_one(caught, runs):
    special = pytest.importorskip("scipy.special")
    assert lower_bound(caught, runs) == pytest.approx(special.betaincinv(caught, runs - caught + 1, 0.05), abs=1e-9)
    assert lower_bound(0, runs) == 0.0


def test_a_module_that_fired_after_the_divergence_did_not_fire_first():
    """It had fired in no run, and as the first in one."""
    known = {"scenario": "x", "family": "rate", "model": "dense", "seed": 0, "onset": 100, "begin": 100, "steps": 300}
    late = Verdict(**known, diverged=200, first={"q_norm": 220}, vitals={})
    soon = Verdict(**known, diverged=240, first={"q_norm": 220}, vitals={})
    assert specificity([late, soon])["attention"]["x"] == [1, 1, 2]


def test_an_order_is_that_of_signals_that_fired():
    """A run in which neither of two fired has none of them first; nor has one in which both fired at once."""
    known = {"scenario": "x", "family": "attention", "model": "dense", "seed": 0, "onset": 100, "begin": 100}
    query, key, loss = "qk_first_order_entropy", "delta_w_entropy.key", "loss.ours"
    firsts = ({query: 120, key: 140, loss: 160}, {query: 140, key: 140, loss: 140}, {}, {query: 120})
    made = order([Verdict(**known, steps=300, diverged=200, first=first, vitals={}) for first in firsts])
    assert list(made.values()) == [4, 3, 2, 2, 1, 1]
