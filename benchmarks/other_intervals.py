"""Other intervals of a weighted sum of shares, for comparison in `two_phase.py`.

Each takes sizes, judged int64[k] and positives int64[corpora, k] and returns two float64[corpora].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, logit
from scipy.stats import beta, gamma

Interval = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
Z = 1.959963984540054
_NONE = 1e-300


def _parts(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return weights, rates and effective numbers (all but without limit in a census)."""
    left = sizes - judged
    effective = np.where(left > 0, judged * (sizes - 1) / np.maximum(left, 1), 1e12)
    return sizes / sizes.sum(), positives / np.maximum(judged, 1), np.maximum(effective, _NONE)


def _moments(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return estimates and the usual unbiased variances."""
    weights, rates, _ = _parts(sizes, judged, positives)
    left = 1 - judged / sizes
    return (weights * rates).sum(-1), (weights**2 * left * rates * (1 - rates) / np.maximum(judged - 1, 1)).sum(-1)


def normal(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return estimate plus and minus 1.96 standard errors (Cochran 1977, 5.4)."""
    value, variance = _moments(sizes, judged, positives)
    half = Z * np.sqrt(variance)
    return np.maximum(value - half, 0), value + half


def logit_normal(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the normal interval of the logit, half a positive added to every stratum (Agresti and Coull's spirit)."""
    weights, _, effective = _parts(sizes, judged, positives)
    rates = (positives + 0.5) / (judged + 1.0)
    value, variance = (weights * rates).sum(-1), (weights**2 * rates * (1 - rates) / effective).sum(-1)
    half = Z * np.sqrt(variance) / (value * (1 - value))
    return expit(logit(value) - half), expit(logit(value) + half)


def fay_feuer(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the gamma interval (Fay and Feuer 1997), variances those of shares without replacement."""
    value, variance, most = _weighted(sizes, judged, positives)
    low = gamma.ppf(0.025, value**2 / variance, scale=variance / np.maximum(value, _NONE))
    total, spread = value + most, variance + most**2
    return np.where(value > 0, low, 0.0), gamma.ppf(0.975, total**2 / spread, scale=spread / total)


def fay_kim(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mid-p gamma interval (Fay and Kim 2017), the mixture of its two gammas matched by one."""
    value, variance, most = _weighted(sizes, judged, positives)
    total, spread = value + most / 2, variance + most**2 * 3 / 4
    shape, scale = total**2 / spread, spread / total
    return gamma.ppf(0.025, shape, scale=scale), gamma.ppf(0.975, shape, scale=scale)


def _weighted(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    weights, rates, effective = _parts(sizes, judged, positives)
    variance = (weights**2 * rates * (1 - rates) / effective).sum(-1)
    return (weights * rates).sum(-1), np.maximum(variance, _NONE), float((weights / effective).max())


def jeffreys(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of Jeffreys posteriors of all strata, matched by one beta distribution."""
    weights, rates, effective = _parts(sizes, judged, positives)
    first, second = effective * rates + 0.5, effective * (1 - rates) + 0.5
    both = first + second
    value = (weights * first / both).sum(-1)
    variance = (weights**2 * first * second / (both**2 * (both + 1))).sum(-1)
    known = value * (1 - value) / variance - 1
    return beta.ppf(0.025, value * known, (1 - value) * known), beta.ppf(0.975, value * known, (1 - value) * known)


def effective_size(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Jeffreys' interval of the effective sample (Korn and Graubard 1998; Dean and Pagano 2015)."""
    value, variance = _moments(sizes, judged, positives)
    size = np.where(variance > 0, value * (1 - value) / np.maximum(variance, _NONE), float(judged.sum()))
    low = beta.ppf(0.025, value * size + 0.5, (1 - value) * size + 0.5)
    return np.where(value > 0, low, 0.0), beta.ppf(0.975, value * size + 0.5, (1 - value) * size + 0.5)


def _wilson(rates: np.ndarray, effective: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shrunk = z**2 / effective
    middle = (rates + shrunk / 2) / (1 + shrunk)
    half = z / (1 + shrunk) * np.sqrt(rates * (1 - rates) / effective + shrunk / effective / 4)
    return middle - half, middle + half


def yan_su(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the stratified Wilson interval (Yan and Su 2010), weights those of the strata."""
    weights, rates, effective = _parts(sizes, judged, positives)
    errors = weights * np.sqrt(rates * (1 - rates) / effective)
    added = errors.sum(-1)
    z = np.where(added > 0, Z * np.sqrt((errors**2).sum(-1)) / np.maximum(added, _NONE), Z)
    low, high = _wilson(rates, effective, z[:, None])
    return (weights * low).sum(-1), (weights * high).sum(-1)


def mover(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return squares added of the Wilson intervals of all strata (Zou and Donner 2008)."""
    weights, rates, effective = _parts(sizes, judged, positives)
    low, high = _wilson(rates, effective, np.array(Z))
    value = (weights * rates).sum(-1)
    down, up = (np.sqrt((weights**2 * (bound - rates) ** 2).sum(-1)) for bound in (low, high))
    return value - down, value + up


INTERVALS: dict[str, Interval] = {
    "normal (Cochran)": normal,
    "normal of the logit, 1/2 added": logit_normal,
    "gamma (Fay-Feuer)": fay_feuer,
    "gamma, mid-p (Fay-Kim)": fay_kim,
    "Jeffreys by stratum": jeffreys,
    "effective size, Jeffreys (Korn-Graubard)": effective_size,
    "stratified Wilson (Yan-Su)": yan_su,
    "MOVER of Wilson": mover,
}
