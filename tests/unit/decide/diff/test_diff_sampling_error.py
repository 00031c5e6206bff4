"""Intervals of a difference: definitions, laws, and how often they hold what is true."""

import math
import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dataaudit.decide.diff.sampling_error import Interval, chance, difference

SHARES = st.floats(0, 1)
SPANS = st.tuples(st.floats(-1e3, 1e3), st.floats(0, 1e3), st.floats(0, 1e3))


def twin_wilson(successes, trials, z=1.959963984540054):
    """Solve (p - x/n)^2 = z^2 p (1 - p) / n by its two roots."""
    share = successes / trials
    a, b, c = 1 + z * z / trials, -(2 * share + z * z / trials), share * share
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def twin_mover(old, new):
    """Bounds of new - old: each side's own distance to its bound, added in squares."""
    down = (new[0] - new[1]) ** 2 + (old[2] - old[0]) ** 2
    up = (new[2] - new[0]) ** 2 + (old[0] - old[1]) ** 2
    return new[0] - old[0] - down**0.5, new[0] - old[0] + up**0.5


def spanned(value, below, above, confidence):
    """Return an interval around a value."""
    return Interval(value, value - below, value + above, confidence)


def test_the_published_example_comes_out():
    """56 of 70 less 48 of 80 is 0.0524 to 0.3339 by method 10 (Newcombe 1998, table II)."""
    found = chance(48 / 80, 80, 56 / 70, 70)
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_a_difference_of_nothing_found_has_an_interval():
    """0 of 10 against 0 of 20 is between -0.1611 and 0.2775 (same table, its case of two zeros)."""
    found = chance(0.0, 20, 0.0, 10)
    assert (found.low, found.high) == pytest.approx((-0.1611, 0.2775), abs=5e-5)


@given(SPANS, SPANS)
def test_the_interval_of_a_difference_is_that_of_its_definition(one, other):
    """Against a second writing of it."""
    old, new = spanned(*one, 0.95), spanned(*other, 0.95)
    found = difference(old, new)
    twin = twin_mover((old.value, old.low, old.high), (new.value, new.low, new.high))
    assert (found.low, found.high) == pytest.approx(twin, rel=1e-12, abs=1e-9)


@given(SPANS, SPANS, st.sampled_from([0.9, 0.95, 1.0]), st.sampled_from([0.9, 0.95, 1.0]))
@example((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.9, 0.95)
def test_exchanging_the_sides_changes_the_sign_alone(one, other, first, second):
    """New - old and old - new mirror each other."""
    old, new = spanned(*one, first), spanned(*other, second)
    there, back = difference(old, new), difference(new, old)
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low), abs=1e-9)
    assert there.confidence == back.confidence


@pytest.mark.parametrize(("first", "second", "both"), [(1.0, 1.0, 1.0), (0.95, 0.9, 0.85)])
def test_bounds_that_are_certain_or_of_different_confidence_add_up(first, second, both):
    """The outermost corners hold with at least the sum of the confidences less 1."""
    found = difference(Interval(10, 9, 11, first), Interval(20, 18, 21, second))
    assert (found.low, found.high, round(found.confidence, 12)) == (7, 12, both)


def test_an_exact_side_shifts_the_other_ones_interval():
    """Nothing is added to it, and its confidence stays."""
    found = difference(Interval(3, 3, 3), Interval(5, 4, 7, 0.95))
    assert (found.value, found.low, found.high, found.confidence) == (2, 1, 4, 0.95)


@given(SHARES, SHARES, st.floats(0.1, 1e9), st.floats(0.1, 1e9))
def test_chance_stays_within_what_shares_can_differ_by(old, new, first, second):
    """A difference of shares lies within -1 and 1, and its interval holds it."""
    found = chance(old, first, new, second)
    assert -1 - 1e-12 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 1 + 1e-12


@pytest.mark.parametrize(
    ("old", "new", "old_trials", "new_trials", "least"),
    [
        (0.5, 0.5, 50, 50, 0.94),
        (0.05, 0.05, 200, 80, 0.94),
        (0.01, 0.01, 2000, 500, 0.94),
        (0.2, 0.35, 60, 300, 0.93),
        (0.001, 0.004, 3000, 1000, 0.94),
    ],
)
def test_the_interval_holds_the_true_difference_as_often_as_it_says(old, new, old_trials, new_trials, least):
    """Of all outcomes, each with its probability: coverage is summed, not drawn."""
    from scipy.stats import binom

    covered = 0.0
    seen = [np.flatnonzero(binom.pmf(np.arange(n + 1), n, p) > 1e-6) for n, p in ((old_trials, old), (new_trials, new))]
    for one in seen[0]:
        for other in seen[1]:
            found = chance(one / old_trials, old_trials, other / new_trials, new_trials)
            if found.low <= new - old <= found.high:
                covered += binom.pmf(one, old_trials, old) * binom.pmf(other, new_trials, new)
    assert least <= covered <= 0.995


def test_the_interval_of_two_sampled_means_holds_the_true_difference():
    """MOVER from two intervals that each hold their own truth in 95 % of samples, of different widths and skew."""
    draw = random.Random(7)
    trials, held = 4000, 0
    for _ in range(trials):
        sides = []
        for truth, size in ((0.1, 40), (0.3, 25)):
            successes = sum(draw.random() < truth for _ in range(size))
            low, high = twin_wilson(successes, size)
            sides.append(Interval(successes / size, low, high, 0.95))
        found = difference(*sides)
        held += found.low <= 0.2 <= found.high
    assert 0.935 <= held / trials <= 0.975
