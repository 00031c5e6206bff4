"""Matching runs of documents with paths, against the slow twin."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from twins.matching import match_around

from dataaudit.scan.kernels.winnow import Runs, extend_matches

PIECES = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=8)
GAPS = st.lists(st.booleans(), min_size=8, max_size=8)


def runs_of(owners):
    """Return (runs, place -> number of each owner) of pieces (number, windows, whether a gap comes before)."""
    rows, places = [], []
    for owner, pieces in enumerate(owners):
        start, numbers = 0, {}
        for number, size, gap in pieces:
            start += gap
            rows.append((owner, start, size, number))
            numbers.update({start + step: number + step for step in range(size)})
            start += size
        places.append(numbers)
    columns = (np.array([row[index] for row in rows], dtype=np.int64) for index in range(4))
    return Runs(*columns), places


@settings(max_examples=examples(50), deadline=None)
@given(
    documents=st.lists(st.tuples(PIECES, GAPS), min_size=1, max_size=3), paths=st.lists(PIECES, min_size=1, max_size=3)
)
def test_matches_reach_as_far_as_those_of_the_slow_twin(documents, paths):
    """From every window that a document and a path have in common, whatever the cut into runs."""
    drawn = [[(*piece, gap) for piece, gap in zip(pieces, gaps, strict=False)] for pieces, gaps in documents]
    document, places = runs_of(drawn)
    path, numbers = runs_of([[(*piece, False) for piece in pieces] for pieces in paths])
    pairs, expected = [], []
    for run in range(len(document.ids)):
        for other in range(len(path.ids)):
            first = max(document.ids[run], path.ids[other])
            last = min(document.ids[run] + document.sizes[run], path.ids[other] + path.sizes[other])
            for number in range(first, last):
                pairs.append((run, other, number))
                place = int(document.starts[run] + number - document.ids[run])
                at = int(path.starts[other] + number - path.ids[other])
                line = list(numbers[path.owners[other]].values())
                expected.append(match_around(places[document.owners[run]], line, place, at))
    columns = [np.array([pair[index] for pair in pairs], dtype=np.int64) for index in range(3)]
    left, right = extend_matches(document, columns[0], path, columns[1], columns[2])
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == expected
