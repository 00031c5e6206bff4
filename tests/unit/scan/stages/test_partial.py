"""Grouping partials, against a plain loop over a dict, and sums that do not fit."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.scan.stages import partial
from dataaudit.scan.stages.partial import TableShape, empty, group, merge_all

SHAPE = TableShape(keys={"source": pa.string(), "low": pa.int64()}, sums=("documents",), maxima=("longest",))
ONE_SUM = TableShape(keys={"source": pa.string()}, sums=("n",))
LARGE = 2**62
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["", "web", "other", "(none)", "\u00fc"]),
        st.integers(-2, 2),
        st.integers(0, 2**40),
        st.integers(-5, 2**40),
    ),
    max_size=30,
)


def table_of(shape, rows):
    """Return rows as a table of a shape."""
    schema = shape.schema()
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def by_loop(rows):
    """Group rows by a loop: sums added, maxima kept, sorted by key."""
    held = {}
    for source, low, documents, longest in rows:
        known = held.get((source, low))
        held[source, low] = (documents, longest) if known is None else (known[0] + documents, max(known[1], longest))
    return [(*key, *held[key]) for key in sorted(held, key=lambda key: (key[0].encode(), key[1]))]


@given(rows=ROWS, times=st.sampled_from([1, 1 + partial._FEW_ROWS]))
def test_group_is_a_loop_over_a_dict(rows, times):
    """Every key once, sorted, its sums exact and its maxima the largest; zeros are kept. Few rows go their own way."""
    rows = rows * times
    grouped = group(SHAPE, table_of(SHAPE, rows))
    assert grouped.schema == SHAPE.schema()
    assert [tuple(row.values()) for row in grouped.to_pylist()] == by_loop(rows)


@given(rows=ROWS, cut=st.integers(0, 30), order=st.randoms(), times=st.sampled_from([1, 1 + partial._FEW_ROWS]))
def test_merging_pieces_is_grouping_all(rows, cut, order, times):
    rows = rows * times
    shapes = {"t": SHAPE}
    pieces = [{"t": group(SHAPE, table_of(SHAPE, piece))} for piece in (rows[:cut], rows[cut:])] + [empty(shapes)]
    order.shuffle(pieces)
    assert merge_all(shapes, pieces)["t"] == group(SHAPE, table_of(SHAPE, rows))


@pytest.mark.parametrize("zeros", [0, partial._FEW_ROWS])
@pytest.mark.parametrize(
    ("rows", "fits"),
    [
        ([("a", LARGE), ("a", LARGE - 1)], True),
        ([("a", LARGE), ("a", LARGE)], False),
        ([("a", LARGE), ("b", LARGE), ("c", LARGE)], True),
        ([("a", LARGE)] * 4, False),
        ([("a", LARGE), ("a", LARGE), ("b", -LARGE), ("b", -LARGE), ("b", -1)], False),
        ([("a", -LARGE), ("a", -LARGE)], True),
    ],
)
def test_a_sum_beyond_64_bits_is_an_error(rows, fits, zeros):
    """A sum of one key that wraps is found, also when another key's wraps the other way, among few rows or many."""
    rows = [*rows, *[("a", 0)] * zeros]
    table = table_of(ONE_SUM, rows)
    if fits:
        sums = {}
        for source, value in rows:
            sums[source] = sums.get(source, 0) + value
        assert [tuple(row.values()) for row in group(ONE_SUM, table).to_pylist()] == sorted(sums.items())
    else:
        with pytest.raises(OverflowError, match="does not fit"):
            group(ONE_SUM, table)
