"""Logistic regression over the worst window of a document, by FTRL-Proximal (McMahan et al. 2013, algorithm 1).

The model is the one that :mod:`dataaudit.scan.kernels.toxic` evaluates, in floating point: each step finds the window
that scores highest under the weights so far and moves these weights towards the document's label. So a long document is
clean only when all of its windows are. Passages are not trained on, only calibrated: trained on, they made foreign sets
worse. One thread and a seeded order: the same data, the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from dataaudit.scan.kernels.toxic import feature_slots
from dataaudit.scan.kernels.words import split_words


@dataclass(frozen=True, slots=True)
class Documents:
    """Feature slots of documents."""

    slots: np.ndarray
    """uint32[f] of every word, one after another."""
    bounds: np.ndarray
    """int64[w + 1] those of each word."""
    offsets: np.ndarray
    """int64[n + 1] words of each document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How weights are found; chosen by transfer between data sets, see docs/concepts/toxicity.md."""

    bits: tuple[int, int, int] = (17, 17, 18)
    """Of the tables of words, pairs and grams."""
    window: int = 128
    """Words of a window."""
    passage: int = 24
    """Words of a passage."""
    margin: float = 2.0
    """Logits that a passage scores less than a document of its own."""
    power: float = 0.7
    """A window's sum is divided by its number of words to this power."""
    passes: int = 4
    """Over the data."""
    rate: float = 1.0
    """FTRL's alpha; its beta is 1."""
    sparsity: float = 0.1
    """FTRL's lambda 1."""
    shrinkage: float = 1.0
    """FTRL's lambda 2."""
    seed: int = 0
    """Of the order of documents."""


def documents(texts: list[str], recipe: Recipe) -> Documents:
    """Return the features of texts."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    values = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    words = split_words(values, offsets)
    slots, bounds = feature_slots(values, offsets, words, recipe.bits, recipe.window)
    return Documents(slots, bounds, words.offsets)


def norms(recipe: Recipe) -> np.ndarray:
    """float64[window + 1] what a window's sum is multiplied with, by its words."""
    found: np.ndarray = np.concatenate([[0.0], np.arange(1, recipe.window + 1) ** -recipe.power])
    return found


def fit(
    features: Documents, labels: np.ndarray, kinds: np.ndarray, rows: np.ndarray, recipe: Recipe
) -> tuple[np.ndarray, np.ndarray]:
    """Learn from some documents.

    Args:
        features: Of all documents.
        labels: uint8[n].
        kinds: uint8[n] of the sets they are from; each has a bias of its own, so that base rates teach no words.
        rows: int64[m] documents to learn from.
        recipe: How.

    Returns:
        float64[slots] weights, and float64[k] the bias of each kind.
    """
    weights, biases = np.zeros(sum(1 << bits for bits in recipe.bits)), np.zeros(int(kinds.max()) + 1)
    order = np.random.default_rng(recipe.seed).permuted(np.tile(rows, (recipe.passes, 1)), axis=1).ravel()
    _fit(
        features.slots,
        features.bounds,
        features.offsets,
        labels.astype(np.float64),
        kinds,
        order,
        norms(recipe),
        recipe.rate,
        recipe.sparsity,
        recipe.shrinkage,
        weights,
        biases,
    )
    return weights, biases


@njit
def _worst(
    slots: np.ndarray,
    bounds: np.ndarray,
    first: int,
    last: int,
    norm: np.ndarray,
    weights: np.ndarray,
    words: np.ndarray,
) -> tuple[float, int, int]:
    """Return the highest score of a window, and its words."""
    size = min(last - first, len(norm) - 1)
    total, best, begin = 0.0, -np.inf, first
    for word in range(first, last):
        score = 0.0
        for place in range(bounds[word], bounds[word + 1]):
            score += weights[slots[place]]
        words[word - first] = score
        total += score
        if word - first >= size:
            total -= words[word - first - size]
        if word - first >= size - 1 and total > best:
            best, begin = total, word - size + 1
    return best * norm[size], begin, begin + size


@njit
def _fit(
    slots: np.ndarray,
    bounds: np.ndarray,
    offsets: np.ndarray,
    labels: np.ndarray,
    kinds: np.ndarray,
    order: np.ndarray,
    norm: np.ndarray,
    rate: float,
    sparsity: float,
    shrinkage: float,
    weights: np.ndarray,
    biases: np.ndarray,
) -> None:
    words = np.zeros(np.diff(offsets).max())
    sums, squares = np.zeros(len(weights)), np.zeros(len(weights))
    bias_squares = np.zeros(len(biases))
    for row in order:
        if offsets[row + 1] == offsets[row]:
            continue
        score, first, last = _worst(slots, bounds, offsets[row], offsets[row + 1], norm, weights, words)
        error = 1 / (1 + np.exp(-(score + biases[kinds[row]]))) - labels[row]
        step = error * norm[last - first]
        for place in range(bounds[first], bounds[last]):
            slot = slots[place]
            squared = squares[slot] + step * step
            sums[slot] += step - (np.sqrt(squared) - np.sqrt(squares[slot])) / rate * weights[slot]
            squares[slot] = squared
        for place in range(bounds[first], bounds[last]):
            slot = slots[place]
            excess = np.abs(sums[slot]) - sparsity
            if excess > 0:
                weights[slot] = -np.sign(sums[slot]) * excess / ((1 + np.sqrt(squares[slot])) / rate + shrinkage)
            else:
                weights[slot] = 0.0
        bias_squares[kinds[row]] += error * error
        biases[kinds[row]] -= rate * error / (1 + np.sqrt(bias_squares[kinds[row]]))
