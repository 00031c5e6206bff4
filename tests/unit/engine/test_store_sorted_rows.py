"""Rows that are found by a number: all that were added and stay, in memory or on disk, in however many steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.engine import store_columns as packs
from dataaudit.engine.state_folder import StateFolderError
from dataaudit.engine.store_columns import SortedRows

ROW = np.dtype([("head", "u8"), ("value", "u4")], align=True)
HEADS = st.sampled_from([0, 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)


def rows(pairs):
    """Return rows of heads and values."""
    return np.array(pairs, dtype=ROW)


@given(
    steps=st.lists(st.lists(st.lists(HEADS, max_size=6), max_size=4), max_size=5),
    held=st.integers(1, 12),
    gone=st.sets(st.integers(0, 20)),
)
def test_what_was_added_is_found(steps, held, gone, tmp_path_factory):
    """Rows of one head in the order in which they came; those that went may be found no longer, all others are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packs, "_SORTED_ROWS", held)
        found, added = SortedRows(tmp_path_factory.getbasetemp(), ROW), []
        for step in steps:
            pieces = []
            for piece in step:
                pieces.append([(head, len(added) + place) for place, head in enumerate(piece)])
                added += pieces[-1]
            found.add(map(rows, pieces), lambda some: ~np.isin(some["value"], list(gone)))
        for head in {0, 2**64 - 1, *(head for head, _ in added)}:
            wanted = [(own, value) for own, value in added if own == head]
            seen = list(found.at(head))
            assert [row for row in seen if row[1] not in gone] == [row for row in wanted if row[1] not in gone]
            assert set(seen) <= set(wanted)
        asked = [*(head for head, _ in reversed(added)), 0, 2**64 - 1, 7, 7]
        together = [[] for _ in asked]
        for which, entries in found.at_all(np.array(asked, dtype=np.uint64)):
            for place, row in zip(which.tolist(), entries.tolist(), strict=True):
                together[place].append(row)
        assert together == [list(found.at(head)) for head in asked]


def test_a_few_more_do_not_move_the_many(tmp_path, monkeypatch):
    """So a look at the folder costs what is new; runs stay few all the same."""
    monkeypatch.setattr(packs, "_SORTED_ROWS", 64)
    found, numbers = SortedRows(tmp_path, ROW), np.random.default_rng(1).integers(0, 2**63, 2000, dtype=np.uint64)
    found.add([rows([(number, 0) for number in numbers.tolist()])], lambda some: np.ones(len(some), dtype=bool))
    merged = []
    for number in range(200):
        found.add([rows([(number, 1)])], lambda some: merged.append(len(some)) or np.ones(len(some), dtype=bool))
        assert list(found.at(number)) == [(number, 1)]
    assert sum(merged) < 2000
    assert len(found._runs) < 6


def test_a_full_disk_takes_nothing_that_was_there(tmp_path, monkeypatch):
    """Rows that cannot be added are absent; the others are found."""
    monkeypatch.setattr(packs, "_SORTED_ROWS", 4)
    found = SortedRows(tmp_path / "state", ROW)
    found.add([rows([(1, 1)])], lambda some: np.ones(len(some), dtype=bool))
    with pytest.raises(StateFolderError):
        found.add([rows([(number, 2) for number in range(9)])], lambda some: np.ones(len(some), dtype=bool))
    assert list(found.at(1)) == [(1, 1)]
