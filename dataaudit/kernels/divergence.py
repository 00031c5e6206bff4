"""How far two unigram distributions are apart: Kullback-Leibler and Jensen-Shannon, from token counts.

Both are estimated with half a count added to every token of the vocabulary, so that a token that one side lacks
costs a finite amount. Natural logarithms: nats. Sums run over token ids in ascending order, by NumPy's pairwise
summation, so that the same counts give the same bits on one kind of processor.
"""

from __future__ import annotations

import numpy as np

SMOOTHING = 0.5
"""Added to the count of every token."""


def smoothed(counts: np.ndarray) -> np.ndarray:
    """Return float64[v], the probabilities of int64[v] counts with :data:`SMOOTHING` added to each."""
    return np.asarray((counts + SMOOTHING) / (int(counts.sum()) + SMOOTHING * len(counts)))


def kl_terms(now: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return float64[v], what each token adds to KL(now || reference); may be negative, exactly 0 where equal."""
    return np.asarray(now * np.log(now / reference))


def js_terms(now: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return float64[v], what each token adds to the Jensen-Shannon divergence; 0 or more, symmetric.

    The divergence, not its square root, which is called a distance; at most log 2.
    """
    middle = (now + reference) / 2
    terms = (now * np.log(now / middle) + reference * np.log(reference / middle)) / 2
    return np.asarray(np.maximum(terms, 0.0))  # below 0 by rounding alone


def divergences(now: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """Return KL(now || reference) and the Jensen-Shannon divergence of int64[v] counts, nats.

    Args:
        now: Counts by token id.
        reference: Counts by token id, of the same vocabulary.
    """
    p, q = smoothed(now), smoothed(reference)
    return max(0.0, float(kl_terms(p, q).sum())), float(js_terms(p, q).sum())
