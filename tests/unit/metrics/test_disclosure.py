"""Small counts are hidden so that no one can tell them from what is shown."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.metrics.disclosure import FEW, about, hide

CELL = st.integers(0, 12).flatmap(lambda docs: st.tuples(st.just(docs), st.integers(docs, docs and docs + 9)))
CELLS = st.lists(CELL, min_size=1, max_size=6)


def shown(cells):
    """Return all that a reader sees: cells or how they are marked, and the sums unless these are hidden."""
    hidden = hide(cells)
    sums = None if hidden.whole else tuple(map(sum, zip(*cells, strict=True)))
    marks = [("hidden", hidden.below) if index in hidden.cells else cell for index, cell in enumerate(cells)]
    return tuple(marks), sums


@pytest.mark.parametrize("size", [2, 3, 4])
def test_whoever_knows_the_rule_cannot_tell_a_small_count(size):
    """Of all tables that look the same, each small count is different in some."""
    alike = {}
    for docs in product(range(8 if size == 4 else 11), repeat=size):
        cells = [(one, 2 * one) for one in docs]
        alike.setdefault(shown(cells), []).append(docs)
    for tables in alike.values():
        for index in range(size):
            values = {table[index] for table in tables}
            assert len(values) > 1 or not values & set(range(1, FEW))


@settings(max_examples=examples(50), deadline=None)
@given(CELLS)
def test_hidden_cells_can_be_exchanged_without_a_trace(cells):
    """For each hidden cell another table, with another number there, is shown in the same way."""
    hidden = hide(cells)
    for index in sorted(hidden.cells) if not hidden.whole else ():
        for measure in (0, 1):
            other = next(one for one in hidden.cells if cells[one][measure] != cells[index][measure])
            swapped = list(cells)
            swapped[index], swapped[other] = swapped[other], swapped[index]
            assert shown(swapped) == shown(cells)


@settings(max_examples=examples(50), deadline=None)
@given(CELLS, st.data())
def test_every_small_count_and_every_forced_one_is_hidden(cells, data):
    forced = data.draw(st.sets(st.integers(0, len(cells) - 1)))
    hidden = hide(cells, forced)
    assert forced <= hidden.cells
    assert all(index in hidden.cells for index, (docs, _) in enumerate(cells) if 0 < docs < FEW)
    assert not hidden.cells or not hidden.below or all(cells[index][0] < FEW for index in hidden.cells)


@pytest.mark.parametrize(
    ("docs", "cells", "whole"),
    [
        ([100, 7, 0], set(), False),
        ([100, 7, 3], {1, 2}, False),
        ([100, 3, 0], {1, 2}, False),
        ([100, 3, 2], {1, 2}, False),
        ([3], {0}, True),
        ([4, 4], {0, 1}, True),
        ([4, 4, 9], {0, 1, 2}, False),
        ([0, 0], set(), False),
        ([3, 6, 6, 9], {0, 1, 2}, False),
    ],
)
def test_a_small_count_takes_others_with_it(docs, cells, whole):
    """Zeros, or the next larger ones, of equal ones all; the total where there is nothing else."""
    found = hide([(one, one) for one in docs])
    assert (found.cells, found.whole) == (cells, whole)


@pytest.mark.parametrize(
    ("number", "shown"), [(0, 0), (4, 0), (5, 10), (14, 10), (95, 100), (149, 150), (1234, 1200), (99_499, 99_000)]
)
def test_numbers_are_rounded_to_tens_or_two_digits(number, shown):
    assert about(number) == shown
