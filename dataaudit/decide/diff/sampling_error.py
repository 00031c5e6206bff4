"""Does a change exceed sampling error? Intervals of a difference, from the intervals of its two sides.

**Sampled and estimated values.** The interval of new - old is recovered from the two intervals by the method of
variance estimates recovery (MOVER: Zou and Donner 2008, Statistics in Medicine 27:1693; for two proportions with
Wilson's intervals it is method 10 of Newcombe 1998, Statistics in Medicine 17:873). It takes the two errors as
independent.

**Bounds that are certain** (confidence 1, a value known to lie in its bucket) add up instead of adding in squares, and
so do intervals of different confidence: then both hold with at least the sum of the confidences less 1 (Bonferroni).

**Exact ratios.** There is no error of measurement. What is asked instead is what chance gives: were each corpus a
random sample of a process, the interval of the difference of the processes is Newcombe's, from Wilson's two. What
chance gives is counted in documents, never in tokens: a share of documents is one of so many independent draws, a share
of tokens is not, as the tokens of a document come together. For the share of a source the variance follows from the
lengths of its documents and of the others (linearised, as a ratio of two totals over documents drawn independently:
Cochran 1977, Sampling Techniques, 3rd ed., section 2.11):

    var(p) = ((1 - p)^2 S_in + p^2 S_out) / T^2,    S the sum of squares of documents' tokens, T all tokens

and p (1 - p) / var, the effective sample size, is how many independent draws would vary as much. Of a language the
squares are not known: its documents are taken to vary in length as all documents of the scope do. Where p is 0 or 1 the
draws are those of equal lengths, T^2 / S (Kish 1965, Survey Sampling).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit.base.statistics import wilson
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.registry import statistic

CONFIDENCE = 0.95
"""Of the intervals of chance."""
_Key = tuple[str | None, str | None]
_Sums = dict[_Key, tuple[float, float, float]]
"""Documents, tokens and squares of tokens by split and source; None for all of them."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value, and the bounds of the true value."""

    value: float
    low: float
    high: float
    confidence: float = 1.0
    """Chance that the bounds hold the true value; 1 of a value that is exact."""

    @property
    def certain(self) -> bool:
        """Whether the true value lies within the bounds for sure."""
        return self.confidence >= 1.0

    @property
    def exact(self) -> bool:
        """Whether the bounds are the value."""
        return self.low == self.high


def difference(old: Interval, new: Interval) -> Interval:
    """Return new - old with the interval that both intervals leave."""
    moved = new.value - old.value
    if old.exact or new.exact:
        open_ = [side for side in (old, new) if not side.exact] or [old, new]
        confidence = min(side.confidence for side in open_)
        return Interval(moved, new.low - old.high, new.high - old.low, confidence)
    if old.confidence != new.confidence or old.certain:
        confidence = max(0.0, old.confidence + new.confidence - 1)
        return Interval(moved, new.low - old.high, new.high - old.low, confidence)
    low = moved - sqrt((new.value - new.low) ** 2 + (old.high - old.value) ** 2)
    high = moved + sqrt((new.high - new.value) ** 2 + (old.value - old.low) ** 2)
    return Interval(moved, low, high, old.confidence)


def chance(old: float, old_trials: float, new: float, new_trials: float) -> Interval:
    """Return the difference of two shares with Newcombe's interval: what chance leaves open of the two processes."""
    sides = [Interval(x, *wilson(x, n, CONFIDENCE), CONFIDENCE) for x, n in ((old, old_trials), (new, new_trials))]
    return difference(*sides)


class EffectiveSampleSizes:
    """Independent draws behind the shares of one manifest, whose tables are read when they are needed."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def of(self, metric: str, stat: str, scope: Mapping[str, Any], share: float, denominator: int) -> float | None:
        """Return the number of draws, more than 0; None where chance is not asked."""
        known = statistic(metric, stat)
        draws = "" if known is None else known.draws
        if draws == "documents":
            return float(denominator) if denominator > 0 else None
        if draws == "source":
            return self._source(scope, share)
        return self._language(scope, share) if draws == "language" else None

    def _source(self, scope: Mapping[str, Any], share: float) -> float | None:
        whole = self._lengths.get((scope.get("split"), None))
        if whole is None:
            return None
        part = self._lengths.get((scope.get("split"), scope.get("source")), (0.0, 0.0, 0.0))
        return _draws(share, whole[1], part[2], whole[2])

    def _language(self, scope: Mapping[str, Any], share: float) -> float | None:
        place: _Key = (scope.get("split"), scope.get("source"))
        whole = self._lengths.get(place)
        if whole is None:
            return None
        spread = whole[0] * whole[2] / whole[1] ** 2
        documents, tokens = self._languages.get((*place, scope["language"]), (0.0, 0.0))
        part = spread * tokens**2 / documents if documents else 0.0
        others = whole[0] - documents
        rest = spread * (whole[1] - tokens) ** 2 / others if others > 0 else 0.0
        return _draws(share, whole[1], part, part + rest)

    @cached_property
    def _lengths(self) -> _Sums:
        table = self._manifest.table("lengths")
        documents = table["documents"].to_numpy().astype(np.float64)
        middle = (table["low"].to_numpy().astype(np.float64) + table["high"].to_numpy()) / 2
        values = {"documents": documents, "tokens": documents * middle, "squares": documents * middle**2}
        return {
            (row.get("split"), row.get("source")): (row["documents_sum"], row["tokens_sum"], row["squares_sum"])
            for row in _sums(pa.table({"split": table["split"], "source": table["source"], **values}), *values)
            if row["tokens_sum"]
        }

    @cached_property
    def _languages(self) -> dict[tuple[str | None, str | None, str], tuple[float, float]]:
        return {
            (row.get("split"), row.get("source"), row["language"]): (
                float(row["documents_sum"]),
                float(row["tokens_sum"]),
            )
            for row in _sums(self._manifest.table("languages"), "documents", "tokens", by=["language"])
        }


def _sums(table: pa.Table, *names: str, by: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield sums of columns by split, by source, by both, and of all."""
    for parts in ((), ("split",), ("source",), ("split", "source")):
        grouped = table.group_by([*parts, *by], use_threads=False)
        yield from grouped.aggregate([(name, "sum") for name in names]).to_pylist()


def _draws(share: float, tokens: float, part: float, whole: float) -> float | None:
    if whole <= 0:
        return None
    variance = ((1 - share) ** 2 * part + share**2 * max(0.0, whole - part)) / tokens**2
    return share * (1 - share) / variance if 0 < share < 1 and variance > 0 else tokens**2 / whole
