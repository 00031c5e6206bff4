"""Reference implementation of :mod:`dataaudit.scan.kernels.ngrams`: window by window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def match_around(document: Mapping[int, int], path: Sequence[int], place: int, at: int) -> tuple[int, int]:
    """Return how many windows match to the left and to the right of one that matches.

    Args:
        document: Number of the window at each place of the document that has one.
        path: Numbers of the windows of the path.
        place: Where in the document.
        at: Where on the path.
    """
    left = right = 0
    while at - left > 0 and document.get(place - left - 1) == path[at - left - 1]:
        left += 1
    while at + right + 1 < len(path) and document.get(place + right + 1) == path[at + right + 1]:
        right += 1
    return left, right
