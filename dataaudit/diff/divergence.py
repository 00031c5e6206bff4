"""Divergence of token counts, as a build computes ``token_kl_drift``, and the least that chance gives.

The definitions are those of docs/concepts/drift.md; tests hold the numbers to a build's and to plain Python's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SMOOTHING = 0.5
"""Added to the count of every token of the vocabulary."""
_SUMMED_BELOW = 40.0
"""Expected occurrences on the rarer side up to which all outcomes are summed."""
_OUTCOMES = 160
"""Outcomes that are summed; the rest has a probability below 1e-20."""
_DENSE = 64
_STEPS_PER_OCTAVE = 8
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far two unigram distributions are apart."""

    kl: float
    """KL(new || old), nats."""
    js: float
    """Jensen-Shannon divergence, nats."""
    kl_terms: np.ndarray
    """float64[v], what each token adds to ``kl``."""
    js_terms: np.ndarray
    """float64[v], what each token adds to ``js``; 0 or more."""


def divergence(old: np.ndarray, new: np.ndarray) -> Divergence:
    """Compare int64[v] counts by token id, half a count added to each."""
    q, p = _smoothed(old), _smoothed(new)
    middle = (p + q) / 2
    kl = p * np.log(p / q)
    js = np.maximum((p * np.log(p / middle) + q * np.log(q / middle)) / 2, 0.0)
    return Divergence(max(0.0, float(kl.sum())), float(js.sum()), kl, js)


def least_by_chance(old: np.ndarray, new: np.ndarray) -> float:
    """Return the mean of KL(new || old) had both been drawn from one pool, token by token, nats.

    A token that occurs s times in both falls to the new side as a binomial of s and the new side's part of all tokens,
    whatever the true distribution is. Tokens of real text are not drawn one by one but in documents, where a word comes
    again, so that chance gives several times as much: this is a floor. Relative error below 2 %.

    Args:
        old: int64[v] counts, at least one.
        new: int64[v] counts, at least one.
    """
    sizes = float(new.sum()), float(old.sum())
    scales = sizes[0] + SMOOTHING * len(new), sizes[1] + SMOOTHING * len(old)
    pooled, tokens = np.unique(old + new, return_counts=True)
    octaves = max(0, int(np.ceil(np.log2(max(int(pooled[-1]), 1) / _DENSE))) + 1)
    coarse = np.floor(_DENSE * np.exp2(np.arange(octaves * _STEPS_PER_OCTAVE + 1) / _STEPS_PER_OCTAVE))
    nodes = np.concatenate([np.arange(_DENSE, dtype=np.float64), coarse])
    means = _means(nodes, sizes[0] / sum(sizes), scales)
    return max(0.0, float((np.interp(np.log1p(pooled), np.log1p(nodes), means) * tokens).sum()))


def _smoothed(counts: np.ndarray) -> np.ndarray:
    return np.asarray((counts + SMOOTHING) / (int(counts.sum()) + SMOOTHING * len(counts)))


def _means(pooled: np.ndarray, share: float, scales: tuple[float, float]) -> np.ndarray:
    """Return float64[k], what a token of each pooled count adds on average."""
    rare = min(share, 1 - share)
    summed = pooled * rare < _SUMMED_BELOW
    outcome = np.arange(_OUTCOMES, dtype=np.float64)
    left = pooled[summed, None] - outcome  # [k, outcomes] occurrences that the other side gets
    with np.errstate(divide="ignore", invalid="ignore"):  # below 0 there is nothing to deal
        steps = np.log(left[:, :-1] / outcome[1:]) + np.log(rare / (1 - rare))
    steps[left[:, 1:] < 0] = -np.inf
    start = pooled[summed, None] * np.log1p(-rare)
    weights = np.exp(np.concatenate([start, steps], axis=1).cumsum(axis=1))
    means = np.empty(len(pooled))
    means[summed] = (weights * _added(outcome, np.maximum(left, 0.0), scales, swapped=rare != share)).sum(axis=1)
    middle = pooled[~summed, None] * rare
    drawn = np.clip(middle + np.sqrt(middle * (1 - rare)) * _NODES, 0.0, pooled[~summed, None])
    added = _added(drawn, pooled[~summed, None] - drawn, scales, swapped=rare != share)
    means[~summed] = (added * _WEIGHTS).sum(axis=1) / _WEIGHTS.sum()
    return means


def _added(rarer: np.ndarray, other: np.ndarray, scales: tuple[float, float], *, swapped: bool) -> np.ndarray:
    """Return p log(p / q) - p + q of a token: summed over all tokens the same as p log(p / q)."""
    now, then = (other, rarer) if swapped else (rarer, other)
    p, q = (now + SMOOTHING) / scales[0], (then + SMOOTHING) / scales[1]
    return np.asarray(p * np.log(p / q) - p + q)
