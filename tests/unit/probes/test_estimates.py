"""Intervals cover what they are of; tests of sets and of trends agree with plain counting."""

import math

import numpy as np
import pytest
from lanes import thinned
from reference.probes import exact_auc, exact_trend

from dataaudit.probes.cloze import _number
from dataaudit.probes.estimates import Units, contrast, share_interval, trend
from dataaudit.probes.frozen import _quantile
from dataaudit.probes.report import Outcome


@pytest.mark.runs
@pytest.mark.parametrize("number", [12, 40, 200])
def test_the_interval_of_a_loss_covers(number):
    """Documents of log-normal length, whose losses depend on the length: at 95 %, within chance of the simulation."""
    random = np.random.default_rng(number)
    repeats, covered = thinned(4_000, 600), 0

    def draw(count):
        tokens = np.ceil(np.exp(random.normal(5, 0.7, count)))
        return tokens, 3 - 0.1 * np.log(tokens) + random.normal(0, 0.4, count)

    tokens, losses = draw(2_000_000)
    truth = float((tokens * losses).sum() / tokens.sum())
    for _ in range(repeats):
        tokens, losses = draw(number)
        made = Units.of(tokens * losses, tokens).estimate()
        covered += made.low <= truth <= made.high
    assert covered / repeats > {12: 0.90, 40: 0.92, 200: 0.93}[number]
    assert covered / repeats < 0.98


@pytest.mark.runs
def test_the_interval_of_a_paired_change_covers_and_is_narrow():
    """Documents differ by far more than the checkpoint does."""
    random = np.random.default_rng(1)
    covered, widths = 0, []
    for _ in range(400):
        tokens, level = random.integers(20, 400, 60).astype(float), random.normal(3, 1, 60)
        before = Units.of(tokens * level, tokens)
        after = Units.of(tokens * (level + 0.05 + random.normal(0, 0.02, 60)), tokens)
        made = after.change_from(before)
        covered += made.low <= 0.05 <= made.high
        widths.append(made.high - made.low)
        assert made.high - made.low < (after.estimate().high - after.estimate().low) / 10
    assert 0.90 < covered / 400 < 0.985


def test_a_change_is_over_the_units_that_both_have():
    before = Units.of([10.0, 20.0, 99.0], [10.0, 10.0, 1.0], [3, 4, 5])
    after = Units.of([30.0, 11.0], [10.0, 10.0], [4, 3])
    assert after.change_from(before).value == pytest.approx(41 / 20 - 30 / 20)
    assert after.change_from(before).units == 2
    assert after.change_from(Units.of([1.0], [1.0], [9])) is None
    trials, losses = Units.of([0.0, 1.0, 1.0]), Units.of([0.5, 0.25, 0.75])
    assert trials.change_from(losses).value == pytest.approx(1 / 6)


@pytest.mark.parametrize(("share", "trials"), [(0.02, 50), (0.3, 20), (0.9, 100)])
def test_the_interval_of_a_share_covers(share, trials):
    """Exactly: the chance of each outcome times whether its interval holds the share."""
    chance = 0.0
    for successes in range(trials + 1):
        low, high = share_interval(successes, trials)
        weight = math.comb(trials, successes) * share**successes * (1 - share) ** (trials - successes)
        chance += weight * (low <= share <= high)
    assert chance >= 0.95


def test_nothing_copied_still_has_an_upper_bound():
    """A share of tokens that is 0 has the bound of its outputs, and no interval of no width."""
    made = Units.of(np.zeros(30), np.full(30, 100.0)).estimate()
    assert (made.value, made.low) == (0.0, 0.0)
    assert made.high == pytest.approx(1 - 0.025 ** (1 / 30))


@pytest.mark.runs
@pytest.mark.parametrize(("number", "share"), [(12, 0.05), (40, 0.02), (100, 0.02), (100, 0.5)])
def test_the_interval_of_few_copied_tokens_covers(number, share):
    """Outputs of 256 tokens, some of them copied in part: Student's interval covered 0.22 to 0.78 of few."""
    random, covered, repeats = np.random.default_rng(number), 0, 800
    for _ in range(repeats):
        copied = np.where(random.random(number) < share, random.integers(50, 231, number), 0)
        made = Units.of(copied, np.full(number, 256)).estimate()
        covered += made.low <= share * 140 / 256 <= made.high
        assert 0 <= made.low <= made.value <= made.high <= 1
    assert covered / repeats > 0.93


@pytest.mark.runs
@pytest.mark.parametrize(("number", "rose", "fell"), [(20, 0.02, 0), (100, 0.02, 0), (100, 0.05, 0.05), (90, 0.6, 0.3)])
def test_the_interval_of_a_change_of_trials_covers(number, rose, fell):
    random, covered, repeats = np.random.default_rng(number), 0, 800
    for _ in range(repeats):
        moved = random.choice([1, -1, 0], number, p=[rose, fell, 1 - rose - fell])
        before = np.where(moved == 0, random.random(number) < 0.3, moved < 0)
        made = Units.of(before + moved).change_from(Units.of(before))
        covered += made.low <= rose - fell <= made.high
        assert -1 <= made.low <= made.value <= made.high <= 1
    assert covered / repeats > 0.93


def test_four_trials_that_fell_are_no_fall():
    """Four of four on one side come about once in eight times: the sign test does not reject, nor does the interval."""
    before, after = np.ones(100), np.ones(100)
    after[:4] = 0
    made = Units.of(after).change_from(Units.of(before))
    assert made.value == pytest.approx(-0.04)
    assert made.low < made.value < 0 < made.high


@pytest.mark.parametrize("size", [1.0, 256.0])
def test_what_did_not_move_may_have_moved(size):
    """No copied token in either of two samples of 30 outputs: a change of 0, and not for sure."""
    none = Units.of(np.zeros(30), np.full(30, size))
    made = none.change_from(none)
    assert (made.value, made.low) == (0, -made.high)
    assert made.high > 0.1


@pytest.mark.parametrize(
    ("top", "bottom", "low"),
    [([3.0], [2.0], None), ([], [], "none"), ([0.0], [0.0], "none"), ([math.nan], [1.0], None)],
)
def test_too_little_has_no_interval(top, bottom, low):
    made = Units.of(top, bottom).estimate()
    assert made is None if low == "none" else (made.low, made.high) == (None, None)


def test_a_contrast_is_the_share_of_pairs():
    random = np.random.default_rng(2)
    mine, theirs = random.integers(0, 9, 13).tolist(), random.integers(0, 7, 11).tolist()
    made = contrast(mine, theirs)
    assert made.auc == pytest.approx(exact_auc(mine, theirs))
    assert made.low < made.auc < made.high
    assert contrast(mine, theirs) == made
    assert contrast([1.0], theirs) is None


@pytest.mark.runs
def test_a_contrast_of_one_kind_is_seldom_significant():
    random = np.random.default_rng(3)
    values = [contrast(random.normal(size=15), random.normal(size=20), seed=number).p for number in range(60)]
    assert sum(p < 0.05 for p in values) <= 8
    assert contrast(np.arange(10) + 30.0, np.arange(10)).p < 2e-4


@pytest.mark.runs
def test_the_interval_of_a_percentile_among_equal_values_covers():
    """Nearly half of the positions have entropy 1, and half a per cent more than half less: the median is below 1."""
    random, covered, row = np.random.default_rng(5), 0, np.repeat(np.arange(40), 25)
    for _ in range(300):
        place = random.random(len(row))
        made = Outcome()
        _quantile(made, np.where(place < 0.505, place, np.where(place < 0.95, 1.0, 2 * place)), row, 50)
        covered += made.numbers[0].low <= 0.5 <= made.numbers[0].high
    assert covered > 275


def test_a_score_of_a_harness_that_is_0_or_1_has_an_interval():
    """Its standard error is 0; of 20 right answers in 20, 0.832 is what Clopper and Pearson leave."""
    known = {"n-samples": {"task": {"effective": 20}}}
    whole, part = _number("task", "acc", 1.0, 0.0, known), _number("task", "acc", 0.95, 0.05, known)
    assert (whole.low, whole.high) == (pytest.approx(0.025 ** (1 / 20)), 1)
    assert 0.7 < part.low < 0.95 < part.high <= 1
    other = _number("task", "perplexity", 9.0, 0.5, known)
    assert (other.low, other.high) == pytest.approx((8.02, 9.98), abs=0.001)
    assert _number("task", "acc", 0.5, "N/A", known).reason == "no_standard_error"


def test_sets_that_do_not_overlap_are_not_sure_to_be_apart():
    """Five and five: the lower bound was 1, too, and an interval of no width."""
    made, other = contrast(np.arange(5) + 9, np.arange(5)), contrast(np.arange(5), np.arange(5) + 9)
    assert (made.auc, made.high, other.auc, other.low) == (1, 1, 0, 0)
    assert made.low == pytest.approx(share_interval(25 / 3, 25 / 3)[0])  # Hanley's and McNeil's at 1: 25 / (1 + 4 / 2)
    assert other.high == pytest.approx(1 - made.low)
    alike = contrast(np.ones(9), np.ones(7))
    assert alike.low < alike.auc == 0.5 < alike.high


@pytest.mark.runs
@pytest.mark.parametrize(("shift", "sizes"), [(2, (5, 5)), (3, (10, 10)), (2, (10, 60)), (3, (40, 40))])
def test_the_interval_of_an_auc_near_its_end_covers(shift, sizes, monkeypatch):
    """DeLong's covered in 24 to 83 % of samples."""
    monkeypatch.setattr("dataaudit.probes.estimates.SHUFFLES", 1)
    random, truth = np.random.default_rng(shift), 0.5 * (1 + math.erf(shift / 2))
    covered = 0
    for _ in range(400):
        made = contrast(random.normal(shift, 1, sizes[0]), random.normal(0, 1, sizes[1]))
        covered += made.low <= truth <= made.high
    assert covered > 372


@pytest.mark.runs
def test_the_interval_of_an_auc_covers():
    random = np.random.default_rng(4)
    truth = 0.5 * (1 + math.erf(1 / 2))  # of two normal distributions a standard deviation apart
    covered = 0
    for number in range(150):
        made = contrast(random.normal(1, 1, 40), random.normal(0, 1, 40), seed=number)
        covered += made.low <= truth <= made.high
    assert covered >= 134


def test_a_trend_is_that_of_all_arrangements():
    times = [1, 1, 1, 4, 4, 16, 16, 64, 64]
    for successes in ([0, 0, 0, 0, 1, 1, 0, 1, 1], [1, 0, 1, 0, 1, 0, 1, 0, 1], [1, 1, 1, 0, 0, 0, 0, 0, 0]):
        assert trend(times, successes) == pytest.approx(exact_trend(times, successes), abs=0.015)
    assert trend(times, [0] * 9) is None
    assert trend([2] * 4, [0, 1, 0, 1]) is None
