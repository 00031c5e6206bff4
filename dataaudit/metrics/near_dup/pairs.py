"""Near-duplicate join of the pairs of one partition of the later documents, put together over all bands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataaudit.kernels.crowds import MORE, TIMES, CrowdLimits
from dataaudit.kernels.pairing import APART, LATER, LEAK
from dataaudit.link.joins import Joined
from dataaudit.link.places import distinct, key_array, passes, read_all, spread
from dataaudit.metrics.near_dup.bands import PAIRS, pairs_table

CANDIDATES = pa.schema([("left", pa.int64()), ("right", pa.int64()), ("bands", pa.int16())])
"""Pairs to verify: places of the earlier and the later document, and how many buckets they share."""
KEYED_CANDIDATES = pa.schema([("key", pa.binary(8)), *CANDIDATES])
"""The same, by the later document."""
CUT = pa.schema([("place", pa.int64()), ("is_later", pa.bool_())])
"""Documents that had more pairs than were verified, as the later one of these or as the earlier one."""
DROPPED = pa.schema([("dropped", pa.int64())])
"""Pairs left out because their later document had more than the most it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJoin:
    """Puts together the pairs of all documents of a partition."""

    limits: CrowdLimits
    """How many earlier documents one is compared with: ``most`` of those of small buckets, with most buckets in common,
    and of those of large ones as many as in each of these; of equal ones the first. A held-out one has so many of
    training data and as many others."""
    values: int
    """Of a sketch."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``candidates``, ``cut`` and ``dropped``; the keyed rows ``candidates`` are those of the table.

        Args:
            files: With the rows ``pairs`` of the joins before.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
        _, likely = self.limits.agreements(self.values)
        parts = [
            _candidates(read_all(files, PAIRS, start, stop, part.rows), self.limits.most, likely)
            for part in passes(files, start, stop)
        ]
        candidates, cut = (pa.concat_tables(tables) for tables in list(zip(*parts, strict=True))[:2])
        return Joined(
            tables={
                "candidates": candidates,
                "cut": cut,
                "dropped": pa.table([[sum(dropped for *_, dropped in parts)]], schema=DROPPED),
            },
            keyed={"candidates": keyed_candidates(candidates)},
        )


def keyed_candidates(candidates: pa.Table) -> pa.Table:
    """Return candidates by the later document."""
    return pa.table([key_array(spread(candidates["right"].to_numpy())), *candidates.columns], schema=KEYED_CANDIDATES)


def _candidates(pairs: pa.Table, most: int, likely: int) -> tuple[pa.Table, pa.Table, int]:
    """Return the candidates, the documents that had more, and how many pairs these had more."""
    given = {name: pairs[name].to_numpy() for name in ("bands", "agreed", "flags")}
    merged = pairs_table(pairs["left"].to_numpy(), pairs["right"].to_numpy(), **given)
    lefts, rights, bands, agreed, flags = (merged[name].to_numpy() for name in PAIRS.names[1:])
    kept = flags & LEAK != 0
    asks, apart, crowd = flags & LATER != 0, flags & APART != 0, agreed > 0
    for group, times in ((apart & crowd, TIMES), (apart & ~crowd, 1), (~apart & crowd, TIMES), (~apart & ~crowd, 1)):
        asked = np.flatnonzero(asks & ~kept & group)
        ranks = _rank(rights[asked], lefts[asked], bands[asked], agreed[asked])
        limit = np.full(len(asked), times * most)
        is_likely = (ranks == 2 * most - 1) & (agreed[asked] >= likely)
        limit[np.isin(rights[asked], rights[asked[is_likely]])] = 2 * most
        kept[asked[ranks < limit]] = True
    later = distinct(rights[(flags & MORE != 0) | ~kept])
    earlier = distinct(lefts[~kept])
    is_later = np.repeat([True, False], [len(later), len(earlier)])
    cut = pa.table([np.concatenate([later, earlier]), is_later], schema=CUT)
    columns = [lefts[kept], rights[kept], bands[kept]]
    return pa.table(columns, schema=CANDIDATES), cut, int((~kept).sum())


def _rank(rights: np.ndarray, lefts: np.ndarray, bands: np.ndarray, agreed: np.ndarray) -> np.ndarray:
    """Return int64[n] the rank of each pair among those of its later document: who agrees most, shares most bands."""
    order = np.lexsort((lefts, -bands, -agreed, rights))
    ordered = rights[order]
    places = np.arange(len(order))
    starts = np.maximum.accumulate(np.where(np.append(True, ordered[1:] != ordered[:-1])[: len(order)], places, 0))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = places - starts
    return ranks
