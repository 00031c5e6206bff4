"""Winnowing and its guarantee, and matching runs, against reference implementations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference.matching import match_around
from reference.winnow import fingerprints, sequence_hash

from dataaudit.scan.kernels.winnow import (
    GRAM,
    SPAN,
    WINDOW,
    Runs,
    extend_matches,
    sequence_hashes,
    window_hashes,
    winnow,
)

FEW = st.lists(st.integers(1, 3), max_size=220)
MANY = st.integers(0, 2**32).flatmap(
    lambda seed: st.integers(0, 220).map(
        lambda size: np.random.default_rng(seed).integers(0, 2**63, size, dtype=np.int64).tolist()
    )
)
PERIODIC = st.tuples(st.lists(st.integers(1, 2**63), min_size=1, max_size=9), st.integers(1, 200)).map(
    lambda drawn: (drawn[0] * 220)[: drawn[1]]
)
DOCUMENTS = st.lists(st.one_of(FEW, MANY, PERIODIC), max_size=4)


def arrays(documents):
    """Return the word hashes of documents, and their offsets."""
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    return np.array([word for words in documents for word in words], dtype=np.uint64), offsets


def winnowed(documents):
    """Return (value, first window, windows, offset) of every document."""
    found = winnow(*arrays(documents))
    columns = (found.values, found.positions, found.windows, found.offsets)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return [rows[found.bounds[index] : found.bounds[index + 1]] for index in range(len(documents))]


@settings(max_examples=examples(50), deadline=None)
@given(DOCUMENTS)
def test_fingerprints_are_those_of_the_slow_twin(documents):
    """Any words: few different ones, all different, periodic; alone or beside other documents."""
    assert winnowed(documents) == [fingerprints(words, GRAM, WINDOW) for words in documents]


@settings(max_examples=examples(50), deadline=None)
@given(st.one_of(MANY, PERIODIC), FEW, FEW, FEW, FEW, st.integers(0, 2**32))
def test_fifty_equal_words_select_an_equal_fingerprint(shared, before, after, left, right, seed):
    """Whatever stands around them, every window of 50 common words has its fingerprint in both documents."""
    shared = (shared + np.random.default_rng(seed).integers(0, 2**62, SPAN).tolist())[: max(SPAN, len(shared))]
    one, two = winnowed([before + shared + after, left + shared + right])
    for start in range(len(shared) - SPAN + 1):
        first, second = len(before) + start, len(left) + start
        selected = [
            next(value for value, place, windows, _ in rows if place <= window < place + windows)
            for rows, window in ((one, first), (two, second))
        ]
        assert selected[0] == selected[1]


@pytest.mark.parametrize(("words", "found"), [(0, 0), (SPAN - 1, 0), (SPAN, 1)])
def test_a_document_needs_fifty_words(words, found):
    (rows,) = winnowed([list(range(words))])
    assert len(rows) == found


def test_density_of_random_text_is_that_of_the_paper():
    """Two in WINDOW + 1 positions; one in WINDOW where a word repeats for ever."""
    random = np.random.default_rng(0).integers(0, 2**63, 200_000).tolist()
    (rows, same) = winnowed([random, [7] * 20_000])
    assert len(rows) / len(random) == pytest.approx(2 / (WINDOW + 1), rel=0.02)
    assert len(same) == pytest.approx(20_000 / WINDOW, abs=2)


@settings(max_examples=examples(50), deadline=None)
@given(st.one_of(FEW, MANY), st.data())
def test_hashes_of_windows_and_sequences_are_those_of_the_slow_twin(words, data):
    """Of windows given one by one, in stretches, and in stretches that meet."""
    words = words + [5] * 8
    hashes, _ = arrays([words])
    size = data.draw(st.integers(1, 8))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(words) - size + 1), max_size=8)))
    firsts = np.array(cuts[:-1], dtype=np.int64)
    counts = np.diff(cuts).astype(np.int64)
    kept = np.array([data.draw(st.booleans()) for _ in firsts], dtype=bool)
    firsts, counts = firsts[kept], counts[kept]
    expected = [
        sequence_hash(words[place : place + size])
        for first, count in zip(firsts.tolist(), counts.tolist(), strict=True)
        for place in range(first, first + count)
    ]
    assert window_hashes(hashes, firsts, counts, size).tolist() == expected
    ends = firsts + counts
    sequences = [sequence_hash(words[first:end]) for first, end in zip(firsts.tolist(), ends.tolist(), strict=True)]
    assert sequence_hashes(hashes, firsts, ends).tolist() == sequences


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
