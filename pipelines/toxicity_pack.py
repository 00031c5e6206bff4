"""From learned weights to the file that the package carries: integers, disguises, calibration."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.stats import rankdata
from toxicity_fit import Recipe, documents, norms

from dataaudit.scan.kernels.toxic import (
    MASK,
    MAX_DISGUISED,
    MIN_DISGUISED,
    NORM_BITS,
    ToxicWeights,
    masked_key,
    plain_key,
    toxic_scores,
)
from dataaudit.scan.kernels.words import split_words

RAW_BITS = 16
"""A raw score is in ``2 ** -RAW_BITS`` of a logit."""
LARGEST = 127
DISGUISED = {"least_toxic": 50, "share": 0.5, "least_score": 6.0, "words": 200}
IN_A_GROUP = 200
"""Neighbouring scores that the calibration takes together."""
_WORD = re.compile(rf"(?<![^\W_])[a-z]{{{MIN_DISGUISED},{MAX_DISGUISED}}}(?![^\W_])")


def quantised(weights: np.ndarray, recipe: Recipe, words: list[str]) -> ToxicWeights:
    """Return weights as integers: a byte each, the largest few cut off, with the disguises of some words.

    Args:
        weights: float64[slots].
        recipe: What they were learned with.
        words: Whose disguises weigh as much as they do; the most frequent first.
    """
    unit = float(np.quantile(np.abs(weights[weights != 0]), 0.9999)) / LARGEST
    whole = np.clip(np.rint(weights / unit), -LARGEST, LARGEST).astype(np.int8)
    first, second = 1 << recipe.bits[0], (1 << recipe.bits[0]) + (1 << recipe.bits[1])
    scale = np.rint(norms(recipe) * unit * 2.0 ** (RAW_BITS + NORM_BITS)).astype(np.int64)
    alone = documents(words, recipe)
    weight_of = {
        word: int(whole[alone.slots[alone.bounds[place] : alone.bounds[place + 1]]].astype(np.int64).sum())
        for place, word in enumerate(words)
    }
    keys, disguised = _disguises(
        {word: weight for word, weight in weight_of.items() if weight * unit >= DISGUISED["least_score"]}
    )
    margin = round(recipe.margin * 2**RAW_BITS)
    return ToxicWeights(
        whole[:first], whole[first:second], whole[second:], keys, disguised, scale, recipe.passage, margin
    )


def disguised_words(texts: list[str], labels: np.ndarray) -> list[str]:
    """Return words that mark toxic texts, the most frequent first: those that people hide behind masks."""
    toxic, all_texts = Counter[str](), Counter[str]()
    for text, label in zip(texts, labels.tolist(), strict=True):
        found = set(_WORD.findall(text.lower()))
        all_texts.update(found)
        if label:
            toxic.update(found)
    chosen = [
        (count, word)
        for word, count in toxic.items()
        if count >= DISGUISED["least_toxic"] and count >= DISGUISED["share"] * all_texts[word]
    ]
    return [word for _, word in sorted(chosen, key=lambda one: (-one[0], one[1]))[: int(DISGUISED["words"])]]


def _disguises(weights: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return an open-addressed table of the disguises of words; of two words with one disguise the first counts."""
    found: dict[int, int] = {}
    for rank, (word, weight) in enumerate(weights.items()):
        found.setdefault(plain_key(word.encode()), weight)
        for start in range(1, len(word) - 1):
            for stop in range(start + 1, len(word)):
                if len(word) - (stop - start) >= 2:
                    hidden = word[:start] + chr(MASK) * (stop - start) + word[stop:]
                    found.setdefault(masked_key(hidden.encode()), weight)
        if rank < 3 and len(word) == MIN_DISGUISED:
            found.setdefault(masked_key((word[0] + chr(MASK) * (len(word) - 1)).encode()), weight)
    places = 1 << (2 * len(found)).bit_length()
    keys, disguised = np.zeros(places, dtype=np.uint64), np.zeros(places, dtype=np.int16)
    for key, weight in sorted(found.items()):
        place = key % places
        while keys[place]:
            place = (place + 1) % places
        keys[place], disguised[place] = key, weight
    return keys, disguised


def raw_scores(texts: list[str], weights: ToxicWeights) -> np.ndarray:
    """int64[n] of texts, by the kernel that the package runs."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    values = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    wanted = np.ones(len(texts), dtype=np.bool_)
    return toxic_scores(values, offsets, split_words(values, offsets), wanted, weights)


def calibration(raw: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scores at which P(toxic) rises, and P between them.

    Isotonic regression over groups of ``IN_A_GROUP`` neighbouring scores. No bounds: those of the labelled texts
    between two steps hold for texts drawn like these, which a corpus is not.

    Args:
        raw: int64[n] of texts that their scorer has not learned from.
        labels: uint8[n].
    """
    order = np.argsort(raw, kind="stable")
    ordered, toxic = raw[order], labels[order].astype(np.float64)
    starts = np.arange(0, len(raw) - IN_A_GROUP, IN_A_GROUP)
    starts = np.unique(np.searchsorted(ordered, ordered[starts]))  # equal scores stay together
    counts = np.diff(np.append(starts, len(raw)))
    found = isotonic_regression(np.add.reduceat(toxic, starts) / counts, weights=counts.astype(np.float64))
    firsts = starts[found.blocks[:-1]]
    texts = np.diff(np.append(firsts, len(raw)))
    hits = np.add.reduceat(toxic, firsts)
    return ordered[firsts[1:]], np.maximum.accumulate(np.round((hits + 0.5) / (texts + 1), 7))


def ranking_area(raw: np.ndarray, labels: np.ndarray) -> float:
    """Return the chance that a toxic text scores higher than another (ROC AUC); ties count half."""
    toxic = labels != 0
    ranks = rankdata(raw)[toxic]
    positive, negative = int(toxic.sum()), int((~toxic).sum())
    return float((ranks.sum() - positive * (positive + 1) / 2) / (positive * negative))
