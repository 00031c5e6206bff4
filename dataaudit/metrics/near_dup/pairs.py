"""Second near-duplicate join: the pairs of one partition of the later documents, put together over all bands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.link.joins import Joined
from dataaudit.link.places import key_array, named, passes, read_all, spread
from dataaudit.metrics.near_dup.bands import NOBODY, PAIRS, PROBED

CANDIDATES = pa.schema([("left", pa.int64()), ("right", pa.int64()), ("bands", pa.int16())])
"""Pairs to verify: places of the earlier and the later document, and how many buckets they share."""
KEYED_CANDIDATES = pa.schema([("key", pa.binary(8)), *CANDIDATES])
"""The same, by the later document."""
RECALL = pa.schema([("similarity", pa.int16()), ("tested", pa.int64()), ("found", pa.int64())])
"""Probes by Jaccard similarity, in steps of :data:`STEPS`; :data:`AT_THRESHOLD` stands for all at or above the
threshold."""
STEPS = 20
"""A step of similarity is 1 / 20."""
AT_THRESHOLD = -1


DROPPED = pa.schema([("dropped", pa.int64())])
"""Pairs left out because their later document had more than the most it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJoin:
    """Puts together the pairs of all documents of a partition, and what became of probes."""

    most: int
    """Earlier documents that one is compared with: those with most buckets in common, of these the first. A held-out
    one has so many of training data and as many others."""
    threshold: float
    """Jaccard similarity of a near-duplicate."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``candidates``, ``recall`` and ``dropped``; the keyed rows ``candidates`` are those of the table.

        Args:
            files: With the rows ``pairs`` and ``probed`` of :class:`dataaudit.metrics.near_dup.bands.BandJoin`.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
        pairs, probed = named(files, "pairs"), named(files, "probed")
        parts = [
            _candidates(read_all(pairs, PAIRS, start, stop, part.rows), self.most)
            for part in passes(pairs, start, stop)
        ]
        candidates = pa.concat_tables([table for table, _ in parts])
        keys = key_array(spread(candidates["right"].to_numpy()))
        return Joined(
            tables={
                "candidates": candidates,
                "recall": _recall(read_all(probed, PROBED, start, stop), self.most, self.threshold),
                "dropped": pa.table([[sum(dropped for _, dropped in parts)]], schema=DROPPED),
            },
            keyed={"candidates": pa.table([keys, *candidates.columns], schema=KEYED_CANDIDATES)},
        )


def _candidates(pairs: pa.Table, most: int) -> tuple[pa.Table, int]:
    lefts, rights = pairs["left"].to_numpy(), pairs["right"].to_numpy()
    order = np.lexsort((lefts, rights))
    lefts, rights = lefts[order], rights[order]
    heads = _heads(lefts, rights)
    bands = pairs["bands"].to_numpy()[order].astype(np.int64)
    asks, kept, apart = (pairs[name].to_numpy()[order] for name in ("asks", "leak", "apart"))
    if len(heads):
        bands = np.add.reduceat(bands, heads)
        asks, kept, apart = (np.logical_or.reduceat(flag, heads) for flag in (asks, kept, apart))
    lefts, rights = lefts[heads], rights[heads]
    for group in (asks & ~kept & apart, asks & ~kept & ~apart):
        asked = np.flatnonzero(group)
        kept[asked[_rank(rights[asked], lefts[asked], bands[asked]) < most]] = True
    columns = [lefts[kept], rights[kept], bands[kept].astype(np.int16)]
    return pa.table(columns, schema=CANDIDATES), int((~kept).sum())


def _heads(lefts: np.ndarray, rights: np.ndarray) -> np.ndarray:
    """Return where each new pair begins, of pairs in order."""
    new = np.ones(len(lefts), dtype=bool)
    new[1:] = (lefts[1:] != lefts[:-1]) | (rights[1:] != rights[:-1])
    return np.flatnonzero(new)


def _rank(rights: np.ndarray, lefts: np.ndarray, bands: np.ndarray) -> np.ndarray:
    """Return int64[n] the rank of each pair among those of its later document: most bands first, then the earlier."""
    order = np.lexsort((lefts, -bands, rights))
    ordered = rights[order]
    places = np.arange(len(order))
    starts = np.maximum.accumulate(np.where(np.append(True, ordered[1:] != ordered[:-1])[: len(order)], places, 0))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = places - starts
    return ranks


def _recall(probed: pa.Table, most: int, threshold: float) -> pa.Table:
    lefts, rights = probed["left"].to_numpy(), probed["right"].to_numpy()
    order = np.lexsort((lefts, rights))  # of each probe, the row that says that it is there comes first
    lefts, rights = lefts[order], rights[order]
    heads = _heads(lefts, rights)
    bands = np.diff(np.append(heads, len(lefts)))
    chosen = order[heads]
    lefts, rights = lefts[heads], rights[heads]
    original = probed["original"].to_numpy()[chosen]
    met = lefts != NOBODY
    found = rights[met][(_rank(rights[met], lefts[met], bands[met]) < most) & original[met]]
    tested, present = rights[~met], chosen[~met]
    intersections, unions = (probed[name].to_numpy()[present] for name in ("intersection", "union"))
    similarities = intersections * STEPS // np.maximum(unions, 1)
    was_found = np.isin(tested, found)
    above = intersections / np.maximum(unions, 1) >= threshold
    rows = [
        (step, int((similarities == step).sum()), int((was_found & (similarities == step)).sum()))
        for step in np.unique(similarities).tolist()
    ]
    rows.append((AT_THRESHOLD, int(above.sum()), int((was_found & above).sum())))
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=RECALL)
