"""Robust statistics: against slow ones that read as their definitions, and against tables and closed forms."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from scipy import stats

from dataaudit.base.statistics import (
    EXACT_SIGMA,
    SIGMA,
    fit_tail,
    group_means,
    group_medians,
    median_of,
    pairs_of,
    robust_line,
    row_medians,
    spread,
    student_quantile,
    variance_between,
    weighted_median,
)

NUMBERS = st.integers(-50, 50).map(lambda one: one / 4)
WEIGHED = st.lists(st.tuples(st.integers(0, 4), NUMBERS, st.integers(1, 5)), min_size=1, max_size=30)


class Slow:
    """The same in plain Python."""

    @staticmethod
    def spread(values, middle=None):
        middle = statistics.median(values) if middle is None else middle
        return statistics.median([abs(one - middle) for one in values])

    @staticmethod
    def line(steps, values):
        slopes = [
            (values[b] - values[a]) / (steps[b] - steps[a]) for a, b in itertools.combinations(range(len(steps)), 2)
        ]
        slope = statistics.median(slopes)
        rest = [value - slope * step for step, value in zip(steps, values, strict=True)]
        return slope, statistics.median(rest), Slow.spread(rest)

    @staticmethod
    def by_code(rows, of):
        found = {}
        for code, value, weight in rows:
            found.setdefault(code, []).append((value, weight))
        return [of(found[code]) if code in found else 0.0 for code in range(5)]


def test_the_constants_are_those_of_the_normal_distribution():
    assert pytest.approx(1 / statistics.NormalDist().inv_cdf(0.75), rel=1e-15) == EXACT_SIGMA
    assert pytest.approx(EXACT_SIGMA, rel=2e-6) == SIGMA


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=30), NUMBERS)
def test_medians_and_spreads_are_the_slow_ones(values, middle):
    given_values = np.array(values)
    assert median_of(given_values) == statistics.median(values)
    assert spread(given_values) == SIGMA * Slow.spread(values)
    assert spread(given_values, middle, sigma=1.0) == Slow.spread(values, middle)


def test_of_no_value_there_is_no_spread():
    assert spread(np.zeros(0)) == 0.0
    assert np.isnan(row_medians(np.zeros((2, 0)))).all()


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.lists(st.one_of(NUMBERS, st.just(math.nan)), min_size=6, max_size=6), min_size=1, max_size=5))
def test_medians_of_rows_pass_over_what_was_not_measured(rows):
    expected = [statistics.median(own) if (own := [x for x in row if not math.isnan(x)]) else math.nan for row in rows]
    np.testing.assert_array_equal(row_medians(np.array(rows)), expected)


@settings(max_examples=examples(200), deadline=None)
@given(WEIGHED)
def test_medians_and_means_of_groups_are_the_slow_ones(rows):
    code, values, weights = (np.array(column) for column in zip(*rows, strict=True))
    medians = Slow.by_code(rows, lambda own: statistics.median([value for value, _ in own]))
    assert group_medians(code, values, 5).tolist() == medians
    means, totals = group_means(code, values, weights.astype(float), 5)
    assert totals.tolist() == Slow.by_code(rows, lambda own: sum(weight for _, weight in own))
    sums = Slow.by_code(rows, lambda own: sum(value * weight for value, weight in own))
    assert means * np.maximum(totals, 1) == pytest.approx(sums)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(NUMBERS, min_size=3, max_size=12), st.data())
def test_lines_are_those_of_theil_and_sen(values, data):
    steps = data.draw(st.lists(st.integers(-40, 40), min_size=len(values), max_size=len(values), unique=True))
    found = robust_line(np.array(sorted(steps), float), np.array(values), pairs_of(len(values)))
    assert found == pytest.approx(Slow.line(sorted(steps), values), rel=1e-9, abs=1e-9)


def test_the_variance_between_units_is_found_though_a_tenth_are_far_off():
    random = np.random.default_rng(3)
    own = 0.3 * random.standard_normal(4_000)
    own[:400] += 5
    precision = random.uniform(50, 200, len(own))
    mean = own + random.standard_normal(len(own)) / np.sqrt(precision)
    assert 0.09 < variance_between(mean, precision) < 0.14
    assert variance_between(mean[:1], precision[:1]) == variance_between(0.01 * mean[400:], precision[400:]) == 0.0


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(-5, 5)), min_size=1, max_size=12))
def test_the_weighted_median_is_that_of_values_repeated(pairs):
    weights, values = (np.array(column, np.float64) for column in zip(*pairs, strict=True))
    assert weighted_median(values, weights) == np.median(np.repeat(values, weights.astype(int)))


@pytest.mark.parametrize(
    ("tail", "freedom", "expected"),
    [(0.05, 1, 6.313752), (0.025, 4, 2.776445), (0.0005, 4, 8.610302), (0.005, 30, 2.749996), (0.5, 7, 0.0)],
)
def test_quantiles_of_student_are_those_of_the_tables(tail, freedom, expected):
    assert student_quantile(tail, freedom) == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("freedom", [900, 4_999, 5_001, 20_000, 10**5, 10**6, 10**8])
def test_quantiles_of_student_tend_to_the_normals(freedom):
    """64 nodes do not see so narrow a peak: of 10 million degrees the quantile was 1.19, and not 1.96."""
    for tail in (0.5, 0.4, 0.025, 1e-6, 1e-12, 1e-20):
        assert student_quantile(tail, freedom) == pytest.approx(stats.t.isf(tail, freedom), rel=1e-8, abs=1e-8)


def test_a_tail_far_out_is_the_closed_form_of_two_degrees_of_freedom():
    tail = 1e-9
    assert student_quantile(tail, 2) == pytest.approx((1 - 2 * tail) * math.sqrt(2 / (4 * tail * (1 - tail))), rel=1e-9)


def test_a_fitted_tail_tells_the_true_one_and_a_bad_fit_is_refused():
    random = np.random.default_rng(8)
    drawn = np.sort(random.exponential(size=5_000))
    tail = fit_tail(drawn, random)
    told = tail.beyond(np.array([12.0, 14.0]))
    assert 0.1 < told[0] / np.exp(-12) < 10
    assert 0 < told[1] < told[0]
    steps = np.sort(np.round(random.exponential(size=5_000)))  # a ladder is no such tail
    assert fit_tail(steps, random) is None


def test_a_tail_that_ends_is_fitted_by_one_that_does_not():
    random = np.random.default_rng(9)
    tail = fit_tail(np.sort(random.uniform(size=5_000) ** 0.2), random)
    assert tail is None or tail.beyond(np.array([5.0]))[0] > 0
