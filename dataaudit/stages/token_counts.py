"""Tables of token counts by source: how they merge fast, and how they are read as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.divergence import token_spans
from dataaudit.kernels.counting import add_up
from dataaudit.stages.partial import TableShape

COLUMNS = ("count", "half")


@dataclass(frozen=True, slots=True)
class Counts:
    """How often each token occurs in some documents."""

    all: np.ndarray
    """int64[size] occurrences by token id."""
    half: np.ndarray
    """int64[size] those in a random half of the documents, drawn by their digests."""


def token_shape() -> TableShape:
    """Return the shape of a table of token counts."""
    return TableShape(keys={"source": pa.string(), "token": pa.int32()}, sums=COLUMNS, combine=combine)


def token_table(names: list[str], groups: np.ndarray, tokens: np.ndarray, columns: list[np.ndarray]) -> pa.Table:
    """Return a table from the index of each row's source, its token, and its counts."""
    codes = pa.DictionaryArray.from_arrays(pa.array(groups.astype(np.int32)), pa.array(names, pa.string()))
    arrays = [codes.cast(pa.string()), pa.array(tokens.astype(np.int32)), *(pa.array(column) for column in columns)]
    return pa.table(dict(zip(("source", "token", *COLUMNS), arrays, strict=True)))


def combine(table: pa.Table) -> pa.Table:
    """Add up the rows of equal (source, token), sorted: some thirty times as fast as grouping them by string."""
    names, groups, tokens = _keys(table)
    sums = add_up(groups, tokens, [table[name].to_numpy() for name in COLUMNS])
    return table.combine_chunks() if sums is None else token_table(names, *sums)


def by_source(table: pa.Table, size: int) -> Iterator[tuple[str, Counts]]:
    """Yield the counts of every source of a merged table, sources in order.

    Args:
        table: Sorted by (source, token), without equal rows.
        size: Above every token.
    """
    names, groups, tokens = _keys(table)
    columns = [table[name].to_numpy() for name in COLUMNS]
    bounds = np.searchsorted(groups, np.arange(len(names) + 1))
    for index, name in enumerate(names):
        rows = slice(bounds[index], bounds[index + 1])
        yield name, Counts(*(dense(tokens[rows], column[rows], size) for column in columns))


def whole(table: pa.Table, size: int) -> Counts:
    """Return the counts over all sources of a merged table."""
    total = Counts(np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))
    for _, counts in by_source(table, size):
        np.add(total.all, counts.all, out=total.all)
        np.add(total.half, counts.half, out=total.half)
    return total


def dense(tokens: np.ndarray, counts: np.ndarray, size: int) -> np.ndarray:
    """Return int64[size] with each count at its token; tokens are distinct."""
    filled = np.zeros(size, dtype=np.int64)
    filled[tokens] = counts
    return filled


def _keys(table: pa.Table) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the sources of a table, sorted by bytes, and each row's source (its index) and token."""
    source = table["source"].combine_chunks()
    if isinstance(source, pa.ChunkedArray):  # more text than one array holds
        source = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in source.chunks])
    encoded = source.dictionary_encode()
    held = encoded.dictionary.to_pylist()
    names = sorted(held, key=str.encode)
    ranks = {name: rank for rank, name in enumerate(names)}
    groups = encoded.indices.to_numpy()
    if names != held:
        groups = np.array([ranks[name] for name in held], dtype=np.int32)[groups]
    return names, groups, table["token"].to_numpy()


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
        self._spans = token_spans(table)
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
