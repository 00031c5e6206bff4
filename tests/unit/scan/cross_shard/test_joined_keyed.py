"""Keyed rows on disk: every row is in one block, and no damage goes unseen."""

import hashlib
import os
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.base.files import DamagedFileError
from dataaudit.scan.cross_shard import keyed
from dataaudit.scan.cross_shard.keyed import NUM_BYTES, Stored, _order, is_sound, read_keyed, stored_bytes, write_keyed

SCHEMA = pa.schema([("key", pa.binary(16)), ("row", pa.int64()), ("source", pa.string())])
KEYS = st.one_of(st.binary(min_size=16, max_size=16), st.sampled_from([b"\0" * 16, b"\xff" * 16, b"a" * 16]))
ROWS = st.lists(st.tuples(KEYS, st.sampled_from(["", "web", "(none)", "\u00fc"])), max_size=40)
CUTS = st.lists(st.integers(0, NUM_BYTES), max_size=6)


def table_of(rows, first=0):
    """Return keyed rows, numbered from `first`."""
    columns = [[key for key, _ in rows], range(first, first + len(rows)), [source for _, source in rows]]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def as_rows(table):
    """Return a table as tuples."""
    return [tuple(row.values()) for row in table.to_pylist()]


@given(rows=ROWS, cuts=CUTS, pieces=st.integers(1, 4))
def test_partitions_cover_every_row_once_and_in_order(rows, cuts, pieces, tmp_path_factory):
    """Whatever the partitions, their rows together are the rows that were written, sorted by key and row."""
    path = tmp_path_factory.mktemp("keyed") / "a" / "rows"
    step = -(-len(rows) // pieces) or 1
    tables = [table_of(rows[start : start + step], start) for start in range(0, len(rows), step)]
    write_keyed(path, tables, SCHEMA)
    bounds = sorted({0, NUM_BYTES, *cuts})
    read = [read_keyed(path, start, stop) for start, stop in pairwise(bounds)]
    expected = sorted((key, number, source) for number, (key, source) in enumerate(rows))
    assert [row for table in read for row in as_rows(table)] == expected
    assert all(table.schema == SCHEMA for table in read)
    for (start, stop), table in zip(pairwise(bounds), read, strict=True):
        assert all(start <= key[0] < stop for key in table["key"].to_pylist())


def test_no_rows_are_an_empty_table(tmp_path):
    """A part without documents has a file like any other."""
    write_keyed(tmp_path / "rows", [], SCHEMA)
    assert as_rows(read_keyed(tmp_path / "rows", 0, NUM_BYTES)) == []


def test_the_same_rows_are_the_same_bytes(tmp_path):
    """The order in which batches came does not reach the file."""
    rows = [(hashlib.md5(bytes([number]), usedforsecurity=False).digest(), "s") for number in range(50)]
    tables = [table_of(rows[:20]), table_of(rows[20:], 20)]
    write_keyed(tmp_path / "rows", tables, SCHEMA)
    first = (tmp_path / "rows").read_bytes()
    write_keyed(tmp_path / "rows", tables[::-1], SCHEMA)
    assert (tmp_path / "rows").read_bytes() == first


@pytest.mark.parametrize("other", ["kind/aa/two", "kind/aa/one.more", "another/aa/one"])
def test_rows_of_another_place_are_damage(tmp_path, other):
    """A whole file under the name of another part or stage is found out by its head, also where no row is read."""
    path, moved = tmp_path / "kind/aa/one", tmp_path / other
    write_keyed(path, [table_of([(bytes(16), "s")])], SCHEMA)
    moved.parent.mkdir(parents=True, exist_ok=True)
    moved.write_bytes(path.read_bytes())
    assert is_sound(path)
    assert not is_sound(moved)
    for read in (read_keyed, stored_bytes):
        with pytest.raises(DamagedFileError):
            read(moved, 200, 201)


def test_a_file_that_is_not_there_is_damage(tmp_path):
    """Absent rows are named, so that they can be made again."""
    with pytest.raises(DamagedFileError) as caught:
        read_keyed(tmp_path / "none", 0, 256)
    assert caught.value.paths == (str(tmp_path / "none"),)


def test_any_flipped_bit_is_found(tmp_path):
    """Reading everything fails for a flip at every sampled place, and so does a cut at every length."""
    path = tmp_path / "rows"
    rows = [(bytes([number * 9 % 256]) + bytes(15), f"source {number}") for number in range(30)]
    write_keyed(path, [table_of(rows)], SCHEMA)
    whole = path.read_bytes()
    head_end = whole.index(b"]]}") + 3
    padding = range(head_end, head_end + -head_end % 64)
    for position in [*range(0, len(whole), 61), *range(80), len(whole) - 1]:
        if position in padding:
            continue
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        with pytest.raises(DamagedFileError):
            read_keyed(path, 0, NUM_BYTES)
        path.write_bytes(whole[:position])
        with pytest.raises(DamagedFileError):
            read_keyed(path, 0, NUM_BYTES)
    path.write_bytes(whole)
    assert read_keyed(path, 0, NUM_BYTES).num_rows == 30


@pytest.mark.parametrize(
    ("rows_of", "blocks"), [([1] * 256, 4), ([64] * 256, 256), ([1, 100, 1, 1, 63, 1], 4), ([0], 0)]
)
def test_first_bytes_of_few_rows_share_a_block(tmp_path, rows_of, blocks):
    """Each first byte is read alone all the same."""
    rows = [(bytes([value]) + bytes(15), "s") for value, number in enumerate(rows_of) for _ in range(number)]
    write_keyed(tmp_path / "rows", [table_of(rows)], SCHEMA)
    assert sum(stored_bytes(tmp_path / "rows", value, value + 1) > 0 for value in range(NUM_BYTES)) == blocks
    for value, number in enumerate(rows_of):
        keys = read_keyed(tmp_path / "rows", value, value + 1)["key"].to_pylist()
        assert keys == [bytes([value]) + bytes(15)] * number


def test_writing_that_fails_leaves_nothing(tmp_path, monkeypatch):
    """A failed write leaves neither a file nor a temporary one."""
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write_keyed(tmp_path / "rows", [], SCHEMA)
    assert list(tmp_path.iterdir()) == []


@given(
    rows=st.lists(st.tuples(st.binary(min_size=9, max_size=9), st.integers(-3, 3)), max_size=40),
    width=st.integers(1, 9),
    times=st.sampled_from([1, 1 + keyed._MIN_ROWS]),
)
def test_the_order_is_that_of_a_sort_by_key_and_second_column(rows, width, times):
    """Whatever ties there are, in the first bytes of keys or in all; equal rows stay as they were, few and many."""
    rows = rows * times
    keys = [bytes(byte % 3 for byte in key[:width]) for key, _ in rows]
    table = pa.table(
        [pa.array(keys, pa.binary(width)), pa.array([second for _, second in rows], pa.int64())], ["k", "s"]
    )
    expected = sorted(range(len(rows)), key=lambda row: (keys[row], rows[row][1]))
    assert _order(table).to_pylist() == expected


def test_stored_bytes_are_those_that_are_read(tmp_path):
    """The head alone says how much there is of some first bytes."""
    rows = [(bytes([number]) + b"x" * 15, "s") for number in range(0, 200, 3) for _ in range(64)]
    write_keyed(tmp_path / "rows", [table_of(rows)], SCHEMA)
    sizes = [stored_bytes(tmp_path / "rows", value, value + 1) for value in range(NUM_BYTES)]
    assert [size > 0 for size in sizes] == [value < 200 and value % 3 == 0 for value in range(NUM_BYTES)]
    assert stored_bytes(tmp_path / "rows", 0, NUM_BYTES) == sum(sizes)
    with pytest.raises(DamagedFileError):
        stored_bytes(tmp_path / "none", 0, 1)


DATA = bytes(range(200))


@pytest.fixture
def path(tmp_path):
    """A file of 200 bytes whose name is no Unicode."""
    place = os.path.join(tmp_path, os.fsdecode(b"a \xff b"))
    with open(place, "wb") as file:
        file.write(DATA)
    return place


@pytest.mark.parametrize(
    ("offset", "size", "expected"),
    [(0, None, DATA), (0, 200, DATA), (64, 10, DATA[64:74]), (190, 40, DATA[190:]), (300, 5, b""), (64, 0, b"")],
)
def test_bytes_come_from_their_place(path, offset, size, expected, monkeypatch):
    """Whole files, places in a file, what is left of a file that was cut; also where few come at a time."""
    stored = Stored(path, "kind/key", offset, size)
    assert stored.read().to_pybytes() == expected
    assert stored.read().address % 64 == 0
    few = os.preadv
    monkeypatch.setattr(keyed.os, "preadv", lambda file, views, place: few(file, [views[0][:7]], place))
    assert stored.read().to_pybytes() == expected
    assert Stored.at(str(stored)).read().to_pybytes() == expected


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    """The caller says what that means."""
    with pytest.raises(FileNotFoundError):
        Stored(str(tmp_path / "gone"), "kind/gone").read()
    with pytest.raises(OSError, match=r"."):
        Stored(str(tmp_path), "kind/folder").read()
