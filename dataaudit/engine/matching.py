"""Which document of some files is which of a corpus, by digests alone, in whatever order they stand."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """What belongs together; every document is in one of these."""

    partner: np.ndarray
    """int64[files' documents] place of the equal document of the corpus; -1: it has none left."""
    held: np.ndarray
    """bool[files' documents] the partner is held back."""
    surplus: np.ndarray
    """bool[files' documents] the corpus has such documents, and all of them have partners already."""


def match(corpus: np.ndarray, held: np.ndarray, files: np.ndarray) -> Matched:
    """Pair equal documents one to one.

    Where a document stands more often on one side, its copies are paired by their place among the documents of which
    that cannot be said: the copy that is missing, or too many, is then the one that was taken out or put in.

    Args:
        corpus: uint8[n, 16] digests, in the manifest's order.
        held: bool[n] who should have no partner.
        files: uint8[m, 16] digests, in the order of the files.
    """
    size = len(corpus)
    words = np.ascontiguousarray(np.concatenate([corpus, files])).view("<u8").reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))
    ranked = words[order]
    new = np.concatenate([[True], (ranked[1:] != ranked[:-1]).any(axis=1)]) if len(order) else np.zeros(0, bool)
    group = np.cumsum(new) - 1
    of_file = order >= size
    is_held = np.zeros(len(order), dtype=bool)
    is_held[~of_file] = held[order[~of_file]]
    groups = int(group[-1]) + 1 if len(group) else 0
    in_files = np.bincount(group[of_file], minlength=groups)
    expected = np.bincount(group[~of_file & ~is_held], minlength=groups)
    partner = np.full(len(files), -1, dtype=np.int64)
    equal = in_files == expected
    partner[order[equal[group] & of_file] - size] = order[equal[group] & ~of_file & ~is_held]
    if (np.diff(partner[partner >= 0]) < 0).any():  # copies may be what was moved
        equal &= expected < 2
        partner[order[~equal[group] & of_file] - size] = -1
    found = Matched(partner=partner, held=np.zeros(len(files), bool), surplus=np.zeros(len(files), bool))
    there = np.bincount(group[~of_file], minlength=groups)
    unequal = ~equal & (in_files > 0) & (there > 0)
    _pair_unequal(found, order, group, unequal, held, size)
    return found


def _pair_unequal(
    found: Matched, order: np.ndarray, group: np.ndarray, unequal: np.ndarray, held: np.ndarray, size: int
) -> None:
    """Pair what stands more often on one side than on the other."""
    known = np.flatnonzero(found.partner >= 0)
    anchors = known[in_order(found.partner[known])]
    files, places = anchors.tolist(), found.partner[anchors].tolist()
    chosen = unequal[group]
    copies: dict[int, tuple[list[int], list[int], list[int]]] = defaultdict(lambda: ([], [], []))
    for one, at in zip(group[chosen].tolist(), order[chosen].tolist(), strict=True):
        kind = 0 if at >= size else 2 if held[at] else 1
        copies[one][kind].append(at - size if at >= size else at)
    for own, wanted, listed in copies.values():
        left = []
        for document in own:
            after = bisect_left(files, document)
            low, high = places[after - 1] if after else -1, places[after] if after < len(places) else size
            at = bisect_right(wanted, low)
            if at < len(wanted) and wanted[at] < high:
                found.partner[document] = wanted.pop(at)
            else:
                left.append(document)
        for document in left:
            if wanted or listed:
                found.held[document] = not wanted
                found.partner[document] = (wanted or listed).pop(0)
            else:
                found.surplus[document] = True


def in_order(places: np.ndarray) -> np.ndarray:
    """Return the indices of a longest part of different numbers that ascends: all others have to be moved."""
    if len(places) < 2 or (np.diff(places) > 0).all():
        return np.arange(len(places))
    tails: list[int] = []
    last: list[int] = []
    before = np.full(len(places), -1, dtype=np.int64)
    for index, place in enumerate(places.tolist()):
        at = bisect_left(tails, place)
        if at:
            before[index] = last[at - 1]
        if at == len(tails):
            tails.append(place)
            last.append(index)
        else:
            tails[at], last[at] = place, index
    chain = np.empty(len(tails), dtype=np.int64)
    index = last[-1]
    for at in range(len(tails) - 1, -1, -1):
        chain[at], index = index, int(before[index])
    return chain
