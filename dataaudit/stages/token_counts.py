"""Tables of token counts by source: how they merge fast, and how they are read as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.kernels.counting import add_up
from dataaudit.stages.partial import TableShape

COLUMNS = ("count", "half")
OTHER = "other"
"""Name under which sources are folded together."""


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
