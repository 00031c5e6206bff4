"""False alarms of a healthy curve: the posterior against a slow twin, its coverage, and what the detector does."""

import numpy as np
import pytest
from lanes import examples
from reference import alarm_rate as slow

from dataaudit.base.statistics import LEAST_STEPS, tail_of
from dataaudit.training.attribution.spikes import AGAIN, K, SpikeDetector

GAP = 10


def curve(seed, steps, *, kind="normal"):
    """Return the losses of a healthy run."""
    random = np.random.default_rng(seed)
    noise = random.normal(size=steps) if kind == "normal" else random.standard_t(3, steps)
    return 2.5 + 5 * (np.arange(steps) + 20.0) ** -0.5 + 0.04 * noise


def fed(values, *, first=1, detector=None):
    """Return a detector that has seen values, and what it said of each."""
    detector = detector or SpikeDetector()
    return detector, [detector.see(step, value) for step, value in enumerate(values.tolist(), first)]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("k", "band"), [(4.0, 8.0), (8.0, 3.5)])
def test_it_is_that_of_the_slow_twin(seed, k, band):
    random = np.random.default_rng(seed)
    distances = random.standard_t(5, 1_200)
    distances = distances[distances <= band]
    steps = np.arange(len(distances)) * 2
    tail = tail_of(steps, distances, np.full(len(distances), band), gap=GAP)
    over = np.flatnonzero(distances > tail.threshold)
    clusters = []
    for place in over.tolist():
        if clusters and steps[place] - clusters[-1][-1][0] <= GAP:
            clusters[-1].append((steps[place], distances[place]))
        else:
            clusters.append([(steps[place], distances[place])])
    excesses = [max(value for _, value in one) - tail.threshold for one in clusters]
    assert tail.clusters == len(excesses)
    cuts = [band - tail.threshold] * len(excesses)
    twin = slow.rate(excesses, cuts, len(distances), k - tail.threshold, draws=examples(40_000), seed=seed)
    found = tail.rate(k)
    assert found.value == pytest.approx(twin[0], rel=0.15)
    assert found.high == pytest.approx(twin[2], rel=0.3)
    assert found.low == pytest.approx(twin[1], rel=0.6, abs=1e-6)


def _survival(random, kind, k):
    """Return the share of a large sample beyond k."""
    return float(np.mean(_sample(random, kind, 4_000_000) > k))


def _sample(random, kind, number):
    if kind == "normal":
        return random.normal(size=number)
    if kind == "exponential":
        return random.exponential(size=number)
    return random.standard_t(int(kind[1:]), number)


@pytest.mark.runs
@pytest.mark.parametrize(("kind", "k"), [("normal", 4.0), ("exponential", 9.0), ("t8", 6.0), ("t5", 8.0), ("t3", 12.0)])
def test_the_interval_holds_the_true_rate(kind, k):
    """In 95 of 100 samples of 2,000 steps, within chance, where values are independent and none is cut off."""
    true = _survival(np.random.default_rng(7), kind, k)
    held = 0
    for seed in range(100):
        distances = _sample(np.random.default_rng(seed), kind, 2_000)
        steps = np.arange(2_000) * (GAP + 1)  # every exceedance is a cluster
        rate = tail_of(steps, distances, np.full(2_000, 100.0), gap=GAP).rate(k)
        held += rate.low <= true <= rate.high
    assert held >= 89, "the lower 1 % quantile of a binomial of 100 and 0.95"


@pytest.mark.runs
def test_what_the_band_cut_off_is_counted():
    """Of the same values, those beyond the band left out, nearly the same rate is found."""
    true = _survival(np.random.default_rng(7), "t5", 8.0)
    held = 0
    for seed in range(60):
        distances = _sample(np.random.default_rng(seed), "t5", 3_000)
        steps = np.arange(3_000) * (GAP + 1)
        inside = distances <= 4.5
        rate = tail_of(steps[inside], distances[inside], np.full(int(inside.sum()), 4.5), gap=GAP).rate(8.0)
        held += rate.low <= true <= rate.high
    assert held >= 52, "the lower 1 % quantile of a binomial of 60 and 0.95"


def test_values_that_come_together_are_one_alarm():
    random = np.random.default_rng(3)
    alone = random.normal(size=2_000)
    bursts = np.repeat(alone[:400], 5)
    steps = np.arange(2_000)
    band = np.full(2_000, 8.0)
    rates = [tail_of(steps * 11, alone, band, gap=GAP), tail_of(steps, bursts, band, gap=GAP)]
    assert rates[1].clusters < rates[0].clusters / 3


def test_too_few_steps_claim_nothing():
    values = np.random.default_rng(0).normal(size=LEAST_STEPS - 1)
    assert tail_of(np.arange(len(values)), values, np.full(len(values), 8.0), gap=GAP) is None
    detector, said = fed(curve(0, 900))
    assert detector.alarm_rates() is None
    assert {one.k for one in said if one.kind == ""} == {K}


def test_a_curve_without_noise_claims_nothing():
    detector, said = fed(np.full(1_500, 2.0))
    assert detector.alarm_rates() is None
    assert detector.k == K
    assert not any(one.flagged for one in said)


@pytest.mark.runs
def test_the_band_follows_the_noise_of_the_run():
    """Narrower than 8 for normal noise, wider for Student's t with 3 degrees; alarms are about as rare as was asked."""
    calm, said = fed(curve(1, 4_000))
    wild, _ = fed(curve(1, 4_000, kind="t3"))
    assert 4 <= calm.k < 7
    assert wild.k > 10
    assert sum(one.flagged for one in said) <= 4
    for detector in (calm, wild):
        above, below = detector.alarm_rates()
        assert max(above.low, below.low) <= 1e-4
        assert max(above.value, below.value) <= 4e-4
        assert above.low <= above.value <= above.high


@pytest.mark.runs
def test_a_smaller_spike_is_seen_by_a_band_that_followed():
    values = curve(2, 3_000)
    fixed = SpikeDetector(rate=None)
    usual = fed(values, detector=fixed)[1][2_900]
    values[2_900] = usual.expected + 0.9 * usual.limit
    assert fed(values, detector=SpikeDetector(rate=None))[1][2_900].kind == ""
    assert fed(values)[1][2_900].kind == "loss_spike"
    assert fixed.k == K


def test_a_run_that_goes_on_says_what_it_would_have_said():
    values = curve(5, LEAST_STEPS + AGAIN + 100, kind="t3")
    _, whole = fed(values)
    for stop in (700, LEAST_STEPS + AGAIN + 60):
        first, said = fed(values[:stop])
        again = SpikeDetector.from_state(first.state())
        said += fed(values[stop:], first=stop + 1, detector=again)[1]
        assert repr(said) == repr(whole)  # NaN is not equal to itself


@pytest.mark.parametrize("rate", [1e-6, 1e-4, 3e-3])
def test_the_limit_is_the_least_width_with_that_rate(rate):
    distances = np.random.default_rng(4).standard_t(5, 2_000)
    tail = tail_of(np.arange(2_000), distances, np.full(2_000, 100.0), gap=GAP)
    limit = tail.limit(rate, least=4, most=50)
    assert limit == 50 or tail.rate(limit).value <= rate
    assert limit <= max(4, tail.threshold) + 0.125 or tail.rate(limit - 0.125).value > rate
