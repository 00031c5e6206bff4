"""An older manifest's token counts, as stages see them: loaded once by the engine, never per shard."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pyarrow as pa

from dataaudit.stages.token_counts import dense

ABSENT = "absent_in_reference"
FOLDED_THERE = "folded_in_reference"
FOLDED = "folded_sources"
NO_REFERENCE = "no_reference"
OTHER_TOKENIZER = "other_tokenizer"
NO_HISTOGRAM = "no_histogram_in_reference"


class Reference:
    """Token counts of a reference by split and source.

    Args:
        table: Columns split, source, token, count; sorted by the first three, no two rows alike in them.
        sources: (split, source) of everything that it holds tokens of, also where their counts were folded together.
        folded: Whether its source `other` stands for several.
        problem: Code of why nothing can be compared with it; empty when all is well.
    """

    def __init__(
        self, table: pa.Table, *, sources: Iterable[tuple[str, str]] = (), folded: bool = False, problem: str = ""
    ) -> None:
        self.problem = problem
        self.folded = folded
        self._sources = frozenset(sources)
        self._tokens = table["token"].to_numpy()
        self._counts = table["count"].to_numpy()
        self._spans = _spans(table)
        self._totals: dict[tuple[str | None, str | None, int], np.ndarray] = {}

    @property
    def size(self) -> int:
        """One more than the largest token."""
        return int(self._tokens.max(initial=-1)) + 1

    def counts(self, split: str | None, source: str | None, size: int) -> np.ndarray | None:
        """Return int64[size] counts by token of a split (None: all) and source (None: all), or None without any."""
        key = (split, source, size)
        if key in self._totals:
            return self._totals[key]
        chosen = [span for (own, name), span in self._spans.items() if split in (None, own) and source in (None, name)]
        if not chosen:
            return None
        total = np.zeros(size, dtype=np.int64)
        for rows in chosen:
            total += dense(self._tokens[rows], self._counts[rows], size)
        if source is None:  # few, and asked for by every shard
            self._totals[key] = total
        return total

    def absence(self, split: str | None, source: str | None) -> str:
        """Return the code of why there are no counts of a split and source."""
        held = any(split in (None, own) and source in (None, name) for own, name in self._sources)
        return FOLDED_THERE if held else ABSENT


def _spans(table: pa.Table) -> dict[tuple[str, str], slice]:
    """Return where the rows of each split and source are."""
    if table.num_rows == 0:
        return {}
    codes = [table[name].combine_chunks().dictionary_encode() for name in ("split", "source")]
    splits, sources = (column.indices.to_numpy() for column in codes)
    changes = np.flatnonzero((splits[1:] != splits[:-1]) | (sources[1:] != sources[:-1])) + 1
    bounds = [0, *changes.tolist(), table.num_rows]
    names = [column.dictionary.to_pylist() for column in codes]
    return {(names[0][splits[start]], names[1][sources[start]]): slice(start, stop) for start, stop in pairwise(bounds)}
