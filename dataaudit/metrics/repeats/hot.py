"""Keys that enough documents have, with all their rows: what fingerprints and windows have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.link.keyed import key_matrix
from dataaudit.link.merged import MERGED
from dataaudit.manifest.places import places_of
from dataaudit.metrics.repeats.listing import Listing


@dataclass(frozen=True, slots=True)
class HotRows:
    """``n`` rows of ``k`` keys, by key, then by document, then by position."""

    bounds: np.ndarray
    """int64[k + 1]: the rows of key i are ``[bounds[i]:bounds[i + 1]]``."""
    documents: np.ndarray
    """int64[n] number of the document."""
    positions: np.ndarray
    """int64[n] word of the document."""
    others: np.ndarray
    """int64[n] the further column, 0 where none is asked for."""
    held_by: np.ndarray
    """int64[k] documents that have the key."""
    occurrences: np.ndarray
    """int64[k] how often it occurs."""


def hot_rows(listing: Listing, start: int, stop: int, min_documents: int, other: str | None = None) -> HotRows:
    """Return the keys whose first byte is in [start, stop) that at least ``min_documents`` documents have.

    Files are read twice, so that what is held of keys that few documents have is the key alone, 8 bytes: memory is
    24 bytes a row of the partition, and 88 a row that is returned.

    Raises:
        DamagedFileError: Files are absent or damaged; it names all of them.
    """
    frequent = _frequent(listing, start, stop, min_documents)
    pieces = []
    names = ["key", "row", "position", *([other] if other else [])]
    for table, numbers, times in listing.tables(start, stop, names):
        keys = _keys(table)
        places = np.searchsorted(frequent, keys)
        found = np.flatnonzero(np.take(frequent, places, mode="clip") == keys) if len(frequent) else places[:0]
        columns = [table[name].to_numpy()[found].astype(np.int64) for name in table.column_names[1:]]
        pieces.append((places[found], places_of(numbers[found], columns[0]), times[found], *columns[1:]))
    places, documents, times, positions, *rest = (
        np.concatenate([np.zeros(0, np.int64), *(piece[index] for piece in pieces)]) for index in range(len(names) + 1)
    )
    # rows of one key in a file are in order already, and files are unless they hold many parts
    merged = bool((listing.numbers == MERGED).any())
    order = np.lexsort((positions, documents, places)) if merged else np.argsort(places, kind="stable")
    places, documents, times, positions = places[order], documents[order], times[order], positions[order]
    others = rest[0][order] if rest else np.zeros(len(places), dtype=np.int64)
    again = np.zeros(len(places), dtype=bool)
    again[1:] = (places[1:] == places[:-1]) & (documents[1:] == documents[:-1])
    held_by = _sums(places, np.where(again, 0, times), len(frequent))
    occurrences = _sums(places, times, len(frequent))
    hot = held_by >= min_documents
    kept = hot[places]
    bounds = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=len(frequent))[hot])]).astype(np.int64)
    return HotRows(bounds, documents[kept], positions[kept], others[kept], held_by[hot], occurrences[hot])


def _frequent(listing: Listing, start: int, stop: int, least: int) -> np.ndarray:
    """uint64[k], ascending: the keys that occur at least ``least`` times, in however few documents."""
    pieces = [np.zeros(0, dtype=np.uint64)]
    for table, _, times in listing.tables(start, stop, ["key"]):
        pieces.append(np.repeat(_keys(table), np.minimum(times, least)))
    keys = np.concatenate(pieces)
    pieces.clear()
    keys.sort()
    if len(keys) < least:
        return keys[:0]
    ends = keys[least - 1 :]
    return np.unique(ends[ends == keys[: len(ends)]])


def _keys(table: pa.Table) -> np.ndarray:
    """uint64[n] keys of 8 bytes, as numbers whose order means nothing."""
    matrices = [key_matrix(chunk) for chunk in table["key"].chunks]
    return np.concatenate([np.zeros((0, 8), np.uint8), *matrices]).view(np.uint64).reshape(-1)


def _sums(places: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """int64[size] sum of the values at each place, exactly; ``places`` ascend."""
    sums = np.concatenate([[0], np.cumsum(values)])
    bounds = np.searchsorted(places, np.arange(size + 1))
    return np.diff(sums[bounds])
