"""The detector of spikes: its line and band against a slow twin, what it calls what, its state, its cost in alarms."""

import math
import pickle
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.training.attribution.spikes import FLOOR, LEVEL_AFTER, WINDOW, K, SpikeDetector


def slow_line(points, step):
    """Return line at a step, slope, and median distance from the line, in plain Python."""
    pairs = [(one, other) for place, one in enumerate(points) for other in points[place + 1 :]]
    slope = statistics.median((other[1] - one[1]) / (other[0] - one[0]) for one, other in pairs)
    level = statistics.median(value - slope * (at - step) for at, value in points)
    return level, slope, statistics.median(abs(value - slope * (at - step) - level) for at, value in points)


def curve(number, seed=0, sd=0.05):
    """Return a healthy curve: a loss that falls, with noise."""
    step = np.arange(1, number + 1)
    return 2.5 + 5 * (step + 20.0) ** -0.5 + np.random.default_rng(seed).normal(size=number) * sd


def kinds(detector, values, first=1):
    """Return what a detector says of values, one a step."""
    return [detector.see(step, float(value)).kind for step, value in enumerate(values, first)]


class TestLine:
    @settings(max_examples=examples(60), deadline=None)
    @given(st.lists(st.tuples(st.integers(1, 4), st.floats(-100, 100)), min_size=9, max_size=9), st.integers(1, 5))
    def test_it_is_that_of_the_slow_twin(self, gaps, ahead):
        """Median of the slopes of all pairs, median of the rest, median distance; steps may be missing."""
        detector, step, points = SpikeDetector(window=9), 0, []
        for gap, value in gaps:
            step += gap
            points.append((step, value))
            assert detector.see(step, value).kind == "quiet"
        level, slope, spread = slow_line(points, step + ahead)
        verdict = detector.see(step + ahead, level)
        assert verdict.expected == pytest.approx(level, rel=1e-9, abs=1e-9)
        assert verdict.slope == pytest.approx(slope, rel=1e-9, abs=1e-9)
        assert verdict.limit == pytest.approx(K * 1.4826 * max(spread, FLOOR * abs(level)), rel=1e-6, abs=1e-6)
        assert verdict.line_at(step) == pytest.approx(level - ahead * slope, rel=1e-6, abs=1e-6)

    def test_a_curve_without_noise_has_the_floor_as_band(self):
        detector = SpikeDetector()
        kinds(detector, [2.0] * WINDOW)
        assert detector.see(51, 2.0 + K * 1.4826 * FLOOR * 2.0 * 0.99).kind == ""
        assert detector.see(52, 2.0 + K * 1.4826 * FLOOR * 2.0 * 1.01).kind == "loss_spike"

    def test_a_spike_does_not_move_the_line(self):
        """What is flagged is not in the window: the same spike is flagged again however often it comes."""
        clean, spiked = SpikeDetector(), SpikeDetector()
        values = curve(100)
        kinds(clean, values)
        kinds(spiked, values)
        assert kinds(spiked, [8.0] * 20, first=101) == ["loss_spike"] * 20
        assert spiked.see(121, 3.0).expected == clean.see(121, 3.0).expected

    @pytest.mark.parametrize("length", [5, 20, 30])
    def test_a_spike_of_a_loss_that_flattens_ends_where_it_ends(self, length):
        """Drawn on by its slope, the line left the loss behind: the healthy steps after a spike were in its episode."""
        values = 2.6 + 3 * np.exp(-np.arange(1, 221) / 35) + np.random.default_rng(0).normal(size=220) * 0.05
        values[66 : 66 + length] += 1.5
        said = kinds(SpikeDetector(), values)
        assert said[66 : 66 + length] == ["loss_spike"] * length
        assert set(said[50:66] + said[66 + length :]) == {""}

    def test_a_dip_of_a_loss_that_goes_on_falling_ends_where_it_ends(self):
        values = 9.0 - 0.04 * np.arange(1, 141) + np.random.default_rng(0).normal(size=140) * 0.02
        values[66:86] -= 1.5
        said = kinds(SpikeDetector(), values)
        assert said[66:86] == ["loss_dip"] * 20
        assert set(said[50:66] + said[86:]) == {""}


class TestKinds:
    def test_it_is_quiet_until_there_is_a_window(self):
        assert kinds(SpikeDetector(), [1, 1e6] * 25) == ["quiet"] * WINDOW

    def test_above_and_below_have_names_of_their_own(self):
        detector = SpikeDetector()
        kinds(detector, curve(100))
        assert kinds(detector, [6.0, 1.0, 3.0], first=101) == ["loss_spike", "loss_dip", ""]

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_what_is_no_number_is_flagged_at_once(self, value):
        """Even in the first steps, and it never enters the window."""
        detector = SpikeDetector()
        assert detector.see(1, value).kind == "not_finite"
        assert kinds(detector, curve(WINDOW), first=2) == ["quiet"] * WINDOW
        assert detector.see(60, value).kind == "not_finite"
        assert detector.see(61, 3.1).kind == ""

    def test_a_level_that_stays_is_the_new_one(self):
        """After as many flags as the window is long, with no step unseen: the next spike shows at once."""
        detector = SpikeDetector()
        values = curve(100)
        kinds(detector, values)
        said = kinds(detector, curve(80, seed=1) + 2, first=101)
        assert said[: LEVEL_AFTER - 1] == ["loss_spike"] * (LEVEL_AFTER - 1)
        assert said[LEVEL_AFTER - 1] == "level_shift"
        assert set(said[LEVEL_AFTER:]) == {""}
        assert detector.see(181, 9.0).kind == "loss_spike"

    def test_flags_in_both_directions_are_no_level(self):
        detector = SpikeDetector()
        kinds(detector, curve(100))
        assert set(kinds(detector, [9.0, 0.1] * LEVEL_AFTER, first=101)) == {"loss_spike", "loss_dip"}

    def test_logarithms_flag_by_ratio(self):
        """A norm ten times as large is as far off at 0.01 as at 100; a norm of 0 is no number there."""
        noise = np.exp(np.random.default_rng(0).normal(size=100) * 0.1)
        for scale in (0.01, 100.0):
            detector = SpikeDetector(log=True)
            kinds(detector, scale * noise)
            assert kinds(detector, [scale * 1.2, scale * 10, 0.0], first=101) == ["", "loss_spike", "not_finite"]


class TestState:
    def test_a_detector_goes_on_where_its_state_was_taken(self):
        values = np.concatenate([curve(130), [9.0] * 7])
        more = np.concatenate([[9.0] * 60, curve(40), [math.nan]])
        whole, first = SpikeDetector(), SpikeDetector()
        kinds(whole, values)
        kinds(first, values)
        second = SpikeDetector.from_state(pickle.loads(pickle.dumps(first.state())))
        expected = [whole.see(step, float(value)) for step, value in enumerate(more, 138)]
        assert [repr(second.see(step, float(value))) for step, value in enumerate(more, 138)] == list(
            map(repr, expected)
        )

    def test_a_run_that_goes_back_forgets_what_came_after(self):
        """It is quiet for as many steps as it forgot, and never judges by values of the steps that are done again."""
        detector = SpikeDetector()
        kinds(detector, curve(120))
        assert kinds(detector, [3.0] * 12, first=111) == ["quiet"] * 10 + ["", ""]


@pytest.mark.runs
@pytest.mark.parametrize(("noise", "most"), [("normal", 0), ("correlated", 0), ("documents", 3), ("heavy", 8)])
def test_healthy_curves_are_seldom_flagged(noise, most):
    """Of 6,000 steps; docs/reference/attribution.md has the rates of more kinds of noise."""
    random, number = np.random.default_rng(7), 6_000
    raw = {
        "normal": lambda: random.normal(size=number),
        "correlated": lambda: np.convolve(random.normal(size=number + 9), 0.6 ** np.arange(10), "valid"),
        "documents": lambda: np.exp(random.normal(size=(number, 24)) * 0.8).mean(axis=1),
        "heavy": lambda: random.standard_t(5, size=number),
    }[noise]()
    said = kinds(SpikeDetector(), curve(number, sd=0) + 0.04 * raw)
    assert sum(kind in {"loss_spike", "loss_dip"} for kind in said) <= most
    assert "level_shift" not in said


@pytest.mark.parametrize("share", [0.2, 0.3, 0.4])
def test_a_fifth_of_bad_rows_shows(share):
    """Rows three nats too high, in a batch of 24 documents of which one varies by 0.25 nats: the mean by 0.05."""
    values = curve(200, sd=0.05)
    values[150:170] += share * 3.0
    said = kinds(SpikeDetector(), values)
    assert said[150:170] == ["loss_spike"] * 20
    assert set(said[50:150] + said[170:]) == {""}
