from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.corpus.readers import PartStats, part
from dataaudit.scan.corpus.readers.part import column_digest

layouts = st.lists(st.lists(st.text(max_size=3), max_size=6).map(tuple), max_size=30)


@given(layouts=layouts, cuts=st.lists(st.integers(0, 30), max_size=3), limit=st.integers(1, 8))
@settings(max_examples=examples(200), deadline=None)
def test_columns_of_parts_join_to_those_of_the_whole(layouts, cuts, limit):
    """The smallest digests of all parts together are those of the whole, for any cut and any limit."""
    bounds = [0, *sorted(cuts), len(layouts)]
    saved = part.MAX_COLUMNS
    part.MAX_COLUMNS = limit
    try:
        joined: set[str] = set()
        for start, stop in itertools.pairwise(bounds):
            stats = PartStats()
            for names in layouts[start:stop]:
                stats.see_layout(names)
            joined |= stats.columns
    finally:
        part.MAX_COLUMNS = saved
    expected = sorted({column_digest(name) for names in layouts for name in names})[:limit]
    assert sorted(joined)[:limit] == expected


def test_what_is_remembered_of_layouts_is_bounded():
    """Records that all have other keys cost time, not memory."""
    stats = PartStats()
    for number in range(2_000):
        stats.see_layout((f"{number:060000d}",))
    assert sum(len(name) for names in stats._layouts for name in names) <= 1 << 22
    assert len(stats.columns) == 2_000


def test_no_name_is_kept():
    """A column's name may be document text, so only its digest is kept."""
    stats = PartStats()
    stats.see_layout(("a secret",))
    assert stats.columns == {column_digest("a secret")}
    assert len(column_digest("a secret")) == 16
