"""How far two unigram distributions are apart: Kullback-Leibler and Jensen-Shannon, from token counts.

Both are estimated with half a count added to every token of the vocabulary, so that a token that one side lacks
costs a finite amount. Natural logarithms: nats. Sums run over token ids in ascending order, by NumPy's pairwise
summation, so that the same counts give the same bits on one kind of processor.

What KL(now || reference) would be by chance alone: were both samples dealt from one pool.

When nothing has drifted, the tokens of both samples are exchangeable: given that a token occurs ``s`` times in both
together, the number of those in the first is binomial (s, N / (N + M)), whatever the true distribution is. So the
mean of the smoothed divergence follows from the counts alone, for rare tokens too. Where every token is frequent it
tends to the textbook (V - 1) / 2 (1 / N + 1 / M) (Miller 1955; Paninski 2003, "Estimation of Entropy and Mutual
Information"), which is several times too large for the long tail of a vocabulary.

But documents are sampled, not tokens, and a word that occurs in a document occurs again in it (Church and Gale 1995,
"Poisson mixtures"). So occurrences are dealt in clumps of equal size: the size at which two random halves of one's own
documents would differ as much as they do (:func:`clump_size`). On real text that is 4 to 8 tokens, and what chance
alone gives is that many times larger.

A token adds p log(p / q) - p + q: the same sum, as p and q both add up to 1, without the part that cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

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
    """Return KL(now || reference) and the Jensen-Shannon divergence of int64[v] counts, nats."""
    p, q = smoothed(now), smoothed(reference)
    return max(0.0, float(kl_terms(p, q).sum())), float(js_terms(p, q).sum())


NULL_FACTOR = 2.0
"""Without drift, KL lies within this factor of its expected value in at least 95 % of samples."""
CONFIDENCE = 0.95

_EXACT_BELOW = 40.0
"""Expected clumps on the rarer side up to which all outcomes are summed; a Taylor series above."""
_OUTCOMES = 160
"""Outcomes that are summed: the rest has a probability below 1e-20."""
_DENSE_UP_TO = 48
_STEPS_PER_OCTAVE = 8
_MAX_CLUMP = 4096.0
_HALVINGS = 11
"""Of the range of the logarithm of a clump's size: it is found to 0.5 %."""


@dataclass(frozen=True, slots=True)
class PooledCounts:
    """The tokens of two samples, put together."""

    pooled: np.ndarray
    """int64[k] occurrences in both, ascending."""
    tokens: np.ndarray
    """int64[k] how many tokens have so many."""
    share: float
    """Part of all occurrences that the first sample has."""
    scales: tuple[float, float]
    """Denominators of the smoothed probabilities."""

    def kl_null(self, clump: float) -> float:
        """Return the mean of KL over all ways to deal clumps of so many occurrences, nats.

        Relative error below 1 %: a token's part is computed at some pooled counts (each one up to 48, eight an octave
        above) and interpolated between them.
        """
        nodes = _nodes(int(self.pooled[-1]))
        means = _means(nodes, clump, self.share, self.scales)
        parts = np.interp(np.log1p(self.pooled), np.log1p(nodes), means)
        return max(0.0, float((parts * self.tokens).sum()))


def pool_counts(now: np.ndarray, reference: np.ndarray) -> PooledCounts:
    """Put two samples together: int64[v] counts by token id, of which each has at least one."""
    sizes = int(now.sum()), int(reference.sum())
    added = SMOOTHING * len(now)
    pooled, tokens = np.unique(now + reference, return_counts=True)
    return PooledCounts(pooled, tokens, sizes[0] / sum(sizes), (sizes[0] + added, sizes[1] + added))


def kl_null_of_passes(whole: np.ndarray, passes: float, clump: float) -> float:
    """Return the mean of KL(now || whole) where now is a number of passes over the whole, the last one not at its end.

    Whole passes have the counts of the whole. Of the last one a part is read that chance chose: its occurrences are
    dealt in clumps, each of which is in it with the probability of its share. Nodes as of
    :meth:`PooledCounts.kl_null`.
    """
    done, share = divmod(passes, 1.0)
    total, added = int(whole.sum()), SMOOTHING * len(whole)
    counts, tokens = np.unique(whole, return_counts=True)
    nodes = _nodes(int(counts[-1]))
    clumps = np.maximum(np.rint(nodes / clump), 1.0)
    sizes = nodes / clumps
    scale, then = passes * total + added, (nodes + SMOOTHING) / (total + added)

    def term(dealt: np.ndarray) -> np.ndarray:
        p = (done * nodes[:, None] + dealt + SMOOTHING) / scale
        return np.asarray(p * np.log(p / then[:, None]) - p + then[:, None])

    rare = min(share, 1 - share)
    outcome = np.arange(_OUTCOMES, dtype=np.float64)
    weights = _weights(clumps, rare) if rare > 0 else np.eye(1, _OUTCOMES) * np.ones((len(nodes), 1))
    dealt = sizes[:, None] * outcome
    means = (weights * term(dealt if rare == share else nodes[:, None] - np.minimum(dealt, nodes[:, None]))).sum(axis=1)
    many = clumps * rare >= _EXACT_BELOW
    if many.any():
        means[many] = _expanded_part(clumps[many], sizes[many], nodes[many], (done, share), (scale, then[many]))
    parts = np.interp(np.log1p(counts), np.log1p(nodes), means)
    return max(0.0, float((parts * tokens).sum()))


def clump_size(first: np.ndarray, second: np.ndarray) -> float:
    """Return the size of clumps, 1 or more, at which chance explains how far two random halves are apart."""
    both, (observed, _) = pool_counts(first, second), divergences(first, second)
    low, high = 0.0, float(np.log(_MAX_CLUMP))
    if both.kl_null(1.0) >= observed:
        return 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if both.kl_null(float(np.exp(middle))) < observed else (low, middle)
    return float(np.exp((low + high) / 2))


def _nodes(largest: int) -> np.ndarray:
    """Return float64[k], ascending whole numbers from 0 to at least ``largest``."""
    octaves = max(0, int(np.ceil(np.log2(max(largest, 1) / _DENSE_UP_TO))) + 1)
    coarse = np.exp2(np.arange(octaves * _STEPS_PER_OCTAVE + 1) / _STEPS_PER_OCTAVE) * _DENSE_UP_TO
    return np.concatenate([np.arange(_DENSE_UP_TO, dtype=np.float64), np.floor(coarse)])


def _means(nodes: np.ndarray, clump: float, share: float, scales: tuple[float, float]) -> np.ndarray:
    """Return float64[k], what a token with each pooled count adds on average."""
    clumps = np.maximum(np.rint(nodes / clump), 1.0)
    sizes = nodes / clumps
    summed = clumps * min(share, 1 - share) < _EXACT_BELOW
    means = np.empty(len(nodes))
    means[summed] = _summed(clumps[summed], sizes[summed], share, scales)
    means[~summed] = _expanded(clumps[~summed], sizes[~summed], share, scales)
    return means


def _summed(clumps: np.ndarray, sizes: np.ndarray, share: float, scales: tuple[float, float]) -> np.ndarray:
    """Sum over how many clumps the rarer side gets."""
    rare = min(share, 1 - share)
    outcome = np.arange(_OUTCOMES, dtype=np.float64)
    left = clumps[:, None] - outcome  # [k, outcomes] clumps that the other side gets
    weights = _weights(clumps, rare)
    rarer = sizes[:, None] * outcome + SMOOTHING
    other = sizes[:, None] * np.maximum(left, 0.0) + SMOOTHING
    now, reference = (rarer, other) if rare == share else (other, rarer)
    p, q = now / scales[0], reference / scales[1]
    return np.asarray((weights * (p * np.log(p / q) - p + q)).sum(axis=1))


def _weights(clumps: np.ndarray, rare: float) -> np.ndarray:
    """Return float64[k, outcomes], the probability that the rarer side gets 0, 1, ... clumps."""
    outcome = np.arange(_OUTCOMES, dtype=np.float64)
    left = clumps[:, None] - outcome  # [k, outcomes] clumps that the other side gets
    with np.errstate(divide="ignore", invalid="ignore"):  # below 0 there is nothing to deal
        steps = np.log(left[:, :-1] / outcome[1:]) + (np.log(rare) - np.log1p(-rare))
    steps[left[:, 1:] < 0] = -np.inf
    logs = np.concatenate([clumps[:, None] * np.log1p(-rare), steps], axis=1).cumsum(axis=1)
    return np.asarray(np.exp(logs))


def _expanded_part(
    clumps: np.ndarray,
    sizes: np.ndarray,
    nodes: np.ndarray,
    passes: tuple[float, float],
    scales: tuple[float, np.ndarray],
) -> np.ndarray:
    """Expand around the expected outcome to the fourth order, as :func:`_expanded`, the whole being fixed."""
    (done, share), (scale, then) = passes, scales
    x = done * nodes + clumps * sizes * share + SMOOTHING
    p = x / scale
    m2 = clumps * share * (1 - share)
    m3 = m2 * (1 - 2 * share)
    m4 = 3 * m2**2 + m2 * (1 - 6 * share * (1 - share))
    series = m2 * sizes**2 / x / 2 - m3 * sizes**3 / x**2 / 6 + m4 * sizes**4 / x**3 / 12
    return np.asarray(p * np.log(p / then) - p + then + series / scale)


def _expanded(clumps: np.ndarray, sizes: np.ndarray, share: float, scales: tuple[float, float]) -> np.ndarray:
    """Expand around the expected outcome to the fourth order, with the binomial's central moments."""
    x, y = clumps * sizes * share + SMOOTHING, clumps * sizes * (1 - share) + SMOOTHING
    value = x / scales[0] * np.log(x / y * (scales[1] / scales[0])) - x / scales[0] + y / scales[1]
    second = 1 / (x * y**2)
    third = 2 / (x * y**3) - 1 / (x**2 * y**2)
    fourth = 2 / (x**3 * y**2) - 4 / (x**2 * y**3) + 6 / (x * y**4)
    m2 = clumps * share * (1 - share)
    m3 = m2 * (1 - 2 * share)
    m4 = 3 * m2**2 + m2 * (1 - 6 * share * (1 - share))
    series = second * m2 * sizes**2 / 2 + third * m3 * sizes**3 / 6 + fourth * m4 * sizes**4 / 24
    return np.asarray(value + (x + y) ** 2 / scales[0] * series)


def token_spans(table: pa.Table) -> dict[tuple[str, str], slice]:
    """Return where the rows of each split and source are in a table of token counts, which is sorted by them."""
    if table.num_rows == 0:
        return {}
    columns = [table[name].combine_chunks().dictionary_encode() for name in ("split", "source")]
    splits, sources = (column.indices.to_numpy() for column in columns)
    changes = np.flatnonzero((splits[1:] != splits[:-1]) | (sources[1:] != sources[:-1])) + 1
    bounds = [0, *changes.tolist(), table.num_rows]
    names = [column.dictionary.to_pylist() for column in columns]
    return {(names[0][splits[start]], names[1][sources[start]]): slice(start, stop) for start, stop in pairwise(bounds)}
