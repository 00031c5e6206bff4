"""Power laws of tails: the same fit as a loop over all tails, and as WeightWatcher's."""

import time

import numpy as np
import pytest

pytest.importorskip("torch", reason="vitals are of torch")

from dataaudit.vitals.metrics.spectra import ERRORS, FITS
from dataaudit.vitals.spectra import LEAST, NOISE, fit_power_law


def twin(numbers):
    """Each tail by itself, number by number: alpha, xmin and distance, and how far the next best tail is."""
    above = sorted(float(x) for x in numbers if x > NOISE)
    fits = []
    for start, xmin in enumerate(above[:-1]):
        tail = above[start:]
        total = sum(np.log(x / xmin) for x in tail)
        if total <= 0:
            continue
        alpha = 1 + len(tail) / total
        law = [1 - (x / xmin) ** (1 - alpha) for x in tail]
        fits.append((max(abs(at - rank / len(tail)) for rank, at in enumerate(law)), start, alpha, xmin))
    best, *others = sorted(fits)
    return best, others


def spectrum(kind, number, seed):
    draw = np.random.default_rng(seed)
    if kind == "pareto":
        return draw.pareto(2.0, number) + 1
    if kind == "rounded":  # ties
        return np.round(draw.pareto(1.5, number) + 1, 1)
    wide = draw.standard_normal((3 * number, number)) / np.sqrt(number)
    if kind == "spiked":
        wide += np.outer(draw.standard_normal(3 * number), draw.standard_normal(number)) / 5
    values = np.linalg.svd(wide, compute_uv=False) ** 2
    return np.append(values[: number // 2], np.full(number, 1e-9)) if kind == "half" else values


KINDS = ("pareto", "rounded", "random", "spiked", "half")


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_fit_of_a_loop_over_all_tails(kind):
    for seed, number in enumerate((41, 60, 120, 250)):
        numbers = spectrum(kind, number, seed)
        found = fit_power_law(np.random.default_rng(seed).permutation(numbers))
        (distance, start, alpha, xmin), others = twin(numbers)
        assert found.distance == pytest.approx(distance, rel=1e-9)
        tied = [fit[3] for fit in others if fit[0] - distance < 1e-12]
        assert found.xmin in {xmin, *tied}
        if found.xmin == xmin and not tied:
            assert found.alpha == pytest.approx(alpha, rel=1e-9)
            assert found.tail == sum(numbers > NOISE) - start
            assert found.error == pytest.approx((alpha - 1) / found.tail**0.5)


def test_a_known_exponent_comes_out():
    draw = np.random.default_rng(3)
    found = fit_power_law(2 * (1 - draw.random(4_000)) ** (-1 / 1.5))  # alpha 2.5 from 2 on
    assert abs(found.alpha - 2.5) < 4 * found.error
    assert found.tail > 500


def test_an_exponent_lies_within_its_errors_and_a_true_law_fits():
    """300 laws: 2.5 errors hold 96 % or more of them, since the choice of a tail adds to what one has."""
    draw, within, fits = np.random.default_rng(7), 0, 0
    for at in range(300):
        true = 1.4 + at % 3
        found = fit_power_law((1 - draw.random(24 + at)) ** (-1 / (true - 1)))
        within += abs(found.alpha - true) <= ERRORS * found.error
        fits += found.distance * found.tail**0.5 <= FITS
    assert within >= 285
    assert fits >= 285


def test_too_few_numbers_above_the_noise_have_no_fit():
    draw = np.random.default_rng(0)
    assert fit_power_law(np.append(draw.random(LEAST - 1) + 1, np.full(500, NOISE))) is None
    assert fit_power_law(np.append(draw.random(LEAST) + 1, np.full(500, NOISE))) is not None
    assert fit_power_law(np.full(100, 3.0)) is None  # no tail of one number has an exponent


def test_it_is_the_fit_of_weightwatcher_and_takes_less_time():
    WWFit = pytest.importorskip("weightwatcher.WW_powerlaw", reason="a peer").WWFit  # noqa: N806
    spent = np.zeros(2)
    for seed, number in enumerate((64, 320, 500)):
        for kind in KINDS:
            numbers = spectrum(kind, number, seed)
            began = time.process_time()
            peer = WWFit(numbers[numbers > NOISE])
            middle = time.process_time()
            own = fit_power_law(numbers)
            spent += middle - began, time.process_time() - middle
            near = np.sort(peer.Ds)[1] - peer.D
            if own.xmin == peer.xmin:
                assert own.alpha == pytest.approx(peer.alpha, rel=1e-6)
            else:  # a tie, up to rounding
                assert abs(own.distance - peer.D) < 1e-12
                assert near < 1e-12
    assert spent[1] < spent[0]
