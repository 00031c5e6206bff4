"""From runs to hotspots: rounds of matching until no 50 words are left that no hotspot accounts for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.kernels.winnow import SPAN
from dataaudit.metrics.repeats.choice import Cover, extents
from dataaudit.metrics.repeats.hosts import hosts_of
from dataaudit.metrics.repeats.paths import PATHS, SEEDS, Round, final_round, make_round, whole
from dataaudit.metrics.repeats.runs import is_first

Match = Callable[[Round], pa.Table]
"""Matches a round with every part; returns REACH of the whole corpus."""


@dataclass(frozen=True, slots=True)
class Found:
    """Hotspots, in the order in which they were found, and how to find their occurrences."""

    final: Round
    """The span of hotspot i is path i."""
    words: np.ndarray
    """int64[h] length."""
    variants: np.ndarray
    """int64[h] other spans that were merged into it."""
    rounds: int
    """Rounds of matching."""


def find_hotspots(runs: pa.Table, floor: int, match: Match) -> Found:
    """Find the hotspots of a corpus.

    Seeds are windows, in the order of the documents that hold them, then of occurrences, then of their first place.
    A seed is extended along the document where it stands first, as far as the whole span has 0.95 of the seed's
    documents and occurrences, and ``floor`` documents. A span is a hotspot of its own when, where it stands first, 50
    words in a row of it lie in no earlier hotspot; else it is a variant of one: shorter, longer by less, or shifted.
    So all of the 50 words that ``floor`` documents hold share, where they stand first, a word with a hotspot.

    Args:
        runs: Of the schema RUNS, of all host documents, of windows that at least ``floor`` documents hold.
        floor: Documents that hold a hotspot at least.
        match: How to match a round with the corpus.
    """
    hosts = hosts_of(runs)
    cover = Cover(hosts)
    todo = whole(hosts)
    rounds = 0
    while todo:
        round_ = make_round(hosts, todo)
        cover.add(round_, extents(match(round_), round_.seeds.num_rows, floor))
        rounds += 1
        todo = cover.left_over()
    final = final_round(hosts, cover.spans) if cover.spans else Round(PATHS.empty_table(), SEEDS.empty_table())
    words = np.array([last - first + SPAN for _, first, last, _ in cover.spans], dtype=np.int64)
    return Found(final, words, np.array(cover.variants, dtype=np.int64), rounds)


def first_windows(runs: pa.Table) -> pa.Table:
    """Return document, start and windows of the runs that stand there first: what numbers are made of."""
    return runs.filter(is_first(runs)).select(["document", "start", "windows"])
