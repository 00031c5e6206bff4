"""Simulated corpora for `two_phase.py`: documents with a screen score and a label, at a chosen base rate and R^2.

The scores of positives and of negatives come from a labelled set: a CSV with the columns ``score`` (0 to 1) and
``label`` (0 or 1), or ``text`` and ``is_toxic``, which the toxicity screen scores. Their logits are resampled with a
Gaussian kernel, since a few hundred documents say nothing of a tail of one in 1,000; then all positives are moved by
the amount at which the calibrated screen has the wanted R^2. Without a file the logits are those of two normal
distributions.

A corpus has four sources (40, 30, 20, 10 % of documents; rates in proportion to 0.5, 1, 1.5, 2) and eight score bins;
its rates vary from corpus to corpus (log-normal, 0.3 a source).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import expit, logit, ndtr

from dataaudit.kernels.allocation import allocate

SHARES = np.array([0.4, 0.3, 0.2, 0.1])
RELATIVE = np.array([0.5, 1.0, 1.5, 2.0])
EDGES = np.array([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6])
"""Calibrated probabilities at which score bins begin."""
NOISE = 0.3
KERNEL = 1.0
"""Width of the kernel in logits: Silverman's rule gives 1.0 to 1.3 for 450 scores whose logits spread by 4 to 5."""
FIXED_POINT = 1 << 16
"""Of the toxicity screen's raw scores, which are logits."""
_GRID = np.linspace(-30, 60, 9001)


@dataclass(frozen=True)
class Scores:
    """Logits of a labelled set."""

    negatives: np.ndarray
    positives: np.ndarray
    kernel: float

    @classmethod
    def read(cls, path: Path | None) -> Scores:
        """Read a file of labelled scores; none gives two normal distributions."""
        if path is None:
            return cls(np.array([0.0]), np.array([0.0]), 1.0)
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        if "score" in rows[0]:
            values = logit(np.clip([float(row["score"]) for row in rows], 1e-4, 1 - 1e-4))
            labels = np.array([int(row["label"]) for row in rows])
        else:
            values, seen = screened([row["text"] for row in rows])
            values, labels = values[seen], np.array([row["is_toxic"] == "Toxic" for row in rows])[seen]
        return cls(values[labels == 0], values[labels == 1], KERNEL)

    def below(self, cuts: np.ndarray, moved: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the parts of negatives and of positives below each cut."""
        negatives = ndtr((cuts[:, None] - self.negatives) / self.kernel).mean(axis=1)
        return negatives, ndtr((cuts[:, None] - self.positives - moved) / self.kernel).mean(axis=1)

    def calibrated(self, base: float, moved: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return, for each step of the grid, parts of negatives and positives and the share of positives there."""
        negatives, positives = (np.diff(part) for part in self.below(_GRID, moved))
        mass = base * positives + (1 - base) * negatives
        shares = np.divide(base * positives, mass, out=np.zeros_like(mass), where=mass > 0)
        return negatives, positives, shares

    def squared_correlation(self, base: float, moved: float) -> float:
        """Return R^2 of the label and the calibrated score at a base rate."""
        _, positives, shares = self.calibrated(base, moved)
        return float(((positives * shares).sum() - base) / (1 - base))

    def move_for(self, base: float, wanted: float) -> float | None:
        """Return how far positives are moved for an R^2; None for 0: a screen that says the same of all."""
        if wanted == 0:
            return None
        low, high = -2.0, 25.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.squared_correlation(base, middle) < wanted else (low, middle)
        return (low + high) / 2


def screened(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits that the toxicity screen gives to texts, and which it judges."""
    from dataaudit.detectors.toxicity.screen import ToxicityScreen, find_screen
    from dataaudit.kernels.words import split_words

    data = [text.encode() for text in texts]
    offsets = np.cumsum([0, *(len(one) for one in data)], dtype=np.int64)
    values = np.frombuffer(b"".join(data), dtype=np.uint8)
    found = ToxicityScreen(find_screen()).score(values, offsets, split_words(values, offsets), None)
    return found.raw / FIXED_POINT, found.screened


@dataclass(frozen=True)
class Setting:
    """What is simulated."""

    base: float
    r2: float
    calls: int
    guesses: str = "calibrated"
    documents: int = 300_000


@dataclass(frozen=True)
class Corpora:
    """So many corpora of one setting, and a stratified and a plain sample of each."""

    sizes: np.ndarray
    """int64[k] documents of each stratum."""
    source: np.ndarray
    """int64[k]"""
    guesses: np.ndarray
    """float64[k]"""
    judged: np.ndarray
    """int64[k]"""
    positives: np.ndarray
    """int64[corpora, k] of the judged."""
    truth: np.ndarray
    """int64[corpora, k] positives in all."""
    plain: np.ndarray
    """int64[corpora] positives in a plain sample of as many documents."""


def draw(scores: Scores, setting: Setting, corpora: int, seed: int = 1) -> Corpora:
    """Draw corpora and samples."""
    rng = np.random.default_rng(seed)
    rates = setting.base * RELATIVE / (SHARES * RELATIVE).sum()
    moved = scores.move_for(setting.base, setting.r2)
    if setting.guesses == "made up":
        moved = scores.move_for(setting.base, 0.5)
    bins = _bins(scores, setting.base, moved)
    guess = setting.base * bins[1] / (setting.base * bins[1] + (1 - setting.base) * bins[0])
    parts, shares = [], []
    for part, rate in zip(SHARES, rates, strict=True):
        mass = rate * bins[1] + (1 - rate) * bins[0]
        parts.append(part * mass)
        shares.append(np.full(len(mass), rate) if setting.guesses == "made up" else rate * bins[1] / mass)
    share, weight = np.concatenate(shares), np.concatenate(parts)
    guesses = _told(np.tile(guess, len(SHARES)), setting)
    source = np.repeat(np.arange(len(SHARES)), len(guess))
    sizes = rng.multinomial(setting.documents, weight / weight.sum())
    judged = allocate(sizes, guesses, half_width=1e-9, most=setting.calls).counts
    noise = np.exp(rng.normal(-(NOISE**2) / 2, NOISE, size=(corpora, len(SHARES))))[:, source]
    truth = rng.binomial(sizes, np.clip(share * noise, 0, 1))
    positives = rng.hypergeometric(truth, sizes - truth, np.broadcast_to(judged, truth.shape))
    found = truth.sum(axis=1)
    plain = rng.hypergeometric(found, setting.documents - found, int(judged.sum()))
    return Corpora(sizes, source, guesses, judged, positives, truth, plain)


def _bins(scores: Scores, base: float, moved: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of negatives and of positives in each score bin."""
    if moved is None:
        return np.ones(1), np.ones(1)
    negatives, positives, shares = scores.calibrated(base, moved)
    place = np.searchsorted(EDGES, np.maximum.accumulate(shares), side="right")
    counts = np.bincount(place, negatives, len(EDGES) + 1), np.bincount(place, positives, len(EDGES) + 1)
    used = counts[0] + counts[1] > 1e-12
    return counts[0][used] / counts[0].sum(), counts[1][used] / counts[1].sum()


def _told(guesses: np.ndarray, setting: Setting) -> np.ndarray:
    """Return what the screen says of its bins, which may not be so."""
    logits = logit(np.clip(guesses, 1e-9, 1 - 1e-9))
    if setting.guesses == "twice as sure":
        return expit(2 * logits - logit(setting.base))
    if setting.guesses == "ten times too high":
        return expit(logits + np.log(10))
    if setting.guesses == "ten times too low":
        return expit(logits - np.log(10))
    return guesses
