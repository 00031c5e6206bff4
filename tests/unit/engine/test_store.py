"""The store of partials, and its segment files: what is read is what was written under that key, or nothing."""

import errno
import hashlib
import pickle
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import entries, flip, packs

from dataaudit.base.files import DamagedFileError
from dataaudit.engine.state_folder import StateFolderError
from dataaudit.engine.store import PartialStore
from dataaudit.engine.store_entries import (
    SMALL_BYTES,
    Packs,
    entry_at,
    entry_item,
    join_packs,
    keyed_item,
    read_at,
    read_pack,
    rows_item,
    write_pack,
)
from dataaudit.scan.cross_shard.keyed import read_keyed, write_keyed

KEY = "ab" * 32
COLUMNS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5)
TABLES = st.dictionaries(st.sampled_from(["lengths", "totals", "x y"]), COLUMNS, max_size=3)
META = st.dictionaries(
    st.text(max_size=5), st.one_of(st.integers(0, 2**53), st.text(max_size=9), st.none()), max_size=4
)


def _clean(value):
    return value.encode("utf-8", "ignore").decode() if isinstance(value, str) else value


@given(meta=META, columns=TABLES)
def test_an_entry_comes_back_as_it_was_written(meta, columns, tmp_path_factory):
    """Any JSON value and any tables survive, empty ones too."""
    store = PartialStore(tmp_path_factory.mktemp("store"))
    meta = {_clean(name): _clean(value) for name, value in meta.items()}
    tables = {
        name: pa.table({"source": ["s"] * len(held), "n": pa.array(held, pa.int64())}) for name, held in columns.items()
    }
    store.write("volume", KEY, meta, tables)
    entry = store.read("volume", KEY)
    assert entry.meta == meta
    assert entry.tables == tables


def test_what_is_not_there_is_none(store):
    """An entry that was never written is absent, not an error."""
    assert store.read("volume", KEY) is None
    assert store.read_rows("volume", KEY) is None
    assert not store.has("volume", KEY)


def test_all_damage_is_removed_at_once_and_named(store):
    """Entries, their rows and keyed rows; what is whole stays, and so does what others are writing."""
    schema = pa.schema([("key", pa.binary(8)), ("row", pa.int64())])
    for key in ("aa1", "aa2", "aa3", "aa4"):
        store.write("kind", key, {}, {})
        store.write_rows("kind", key, b"rows")
        write_keyed(store.side_path("kind", key, "keyed"), [], schema)
    (store.path("kind", "aa4").parent / ".aa9.tmp").write_bytes(b"half")
    for path in (store.path("kind", "aa1"), store.side_path("kind", "aa2"), store.side_path("kind", "aa3", "keyed")):
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    store.side_path("kind", "aa3", "keyed").write_bytes(store.side_path("kind", "aa4", "keyed").read_bytes())
    assert store.remove_damaged() == ["partials/kind/aa/aa1", "partials/kind/aa/aa2.rows", "partials/kind/aa/aa3.keyed"]
    assert sorted(path.name for path in store.path("kind", "aa4").parent.iterdir() if path.suffix != ".tmp") == [
        "aa4",
        "aa4.keyed",
        "aa4.rows",
    ]
    assert store.remove_damaged() == []


def test_damage_at_any_byte_is_found(store):
    """A flipped bit anywhere in the file, and a cut anywhere, read as absent."""
    store.write("volume", KEY, {"a": 1}, {"t": pa.table({"n": [1, 2, 3]})})
    store.write_rows("volume", KEY, bytes(range(200)))
    for path, read in ((store.path("volume", KEY), store.read), (store.side_path("volume", KEY), store.read_rows)):
        whole = path.read_bytes()
        assert read("volume", KEY) is not None
        for position in [*range(0, len(whole), 7), len(whole) - 1]:
            path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
            assert read("volume", KEY) is None, position
            path.write_bytes(whole[:position])
            assert read("volume", KEY) is None, position
        path.write_bytes(whole + b"\0")
        assert read("volume", KEY) is None


def test_an_entry_under_another_name_is_not_that_entry(store):
    """A file that was copied to another key or kind is not taken for a result of it."""
    store.write("volume", KEY, {}, {})
    for kind, key in (("volume", "cd" * 32), ("lengths", KEY)):
        target = store.path(kind, key)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(store.path("volume", KEY), target)
        assert store.read(kind, key) is None


def test_writers_at_the_same_time_leave_one_whole_entry(store):
    """Readers see one writer's entry or the other's, never a mix, and no temporary file stays."""
    tables = [{"t": pa.table({"n": [number] * 2000})} for number in range(4)]
    seen, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            entry = store.read("volume", KEY)
            if entry is not None:
                seen.append((entry.meta["n"], set(entry.tables["t"]["n"].to_pylist())))

    def write(number):
        for _ in range(40):
            store.write("volume", KEY, {"n": number}, tables[number])

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    reader = threading.Thread(target=read)
    store.write("volume", KEY, {"n": 0}, tables[0])
    for thread in [reader, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert seen
    assert all(values == {number} for number, values in seen)
    assert [path.name for path in store.path("volume", KEY).parent.iterdir()] == [KEY]


def test_a_write_that_fails_leaves_the_old_entry(store, monkeypatch):
    """A full disk names the folder and what to do, keeps what was there and leaves nothing behind."""
    store.write("volume", KEY, {"n": 1}, {})

    def full(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StateFolderError) as caught:
        store.write("volume", KEY, {"n": 2}, {})
    monkeypatch.undo()
    assert str(store.root) in caught.value.message
    assert "No space left" in caught.value.message
    assert "--state" in caught.value.hint
    assert store.read("volume", KEY).meta == {"n": 1}
    assert len(list(store.path("volume", KEY).parent.iterdir())) == 1


def test_the_error_survives_pickling():
    """It crosses from a worker to the driver with message and hint."""
    error = pickle.loads(pickle.dumps(StateFolderError("m", "h")))
    assert (error.message, error.hint, error.exit_code) == ("m", "h", 3)


def test_removing_takes_the_rows_along(store):
    """After a removal neither entry nor rows are there; removing again is no error."""
    store.write("volume", KEY, {}, {})
    store.write_rows("volume", KEY, b"x")
    store.remove("volume", KEY)
    store.remove("volume", KEY)
    assert store.read("volume", KEY) is None
    assert store.read_rows("volume", KEY) is None


KEYED = pa.schema([("key", pa.binary(4)), ("row", pa.int64())])


def key(name):
    """Return a key."""
    return hashlib.sha256(str(name).encode()).hexdigest()


def items(name, *, size=3, kind="volume"):
    """Return what a scan leaves of one part, shortened."""
    rows = pa.table([[b"abcd"] * size, list(range(size))], schema=KEYED)
    table = pa.table({"n": list(range(size))})
    return [
        keyed_item(kind, key(name), "keys", [rows], KEYED),
        entry_item(kind, key(name), {"name": str(name)}, {"t": table}),
        rows_item("reading", key(name), bytes(range(size))),
    ]


def names(store):
    """Return the names of the parts that are found."""
    return sorted(entry_at(str(one)).meta["name"] for one in entries(store.root, "volume"))


def assert_found_together(store, keys):
    """Many are found as each is found alone, whatever is asked for."""
    for kind, suffix in (("volume", ""), ("volume", "keys"), ("reading", "rows"), ("reading", ""), ("lengths", "")):
        assert store.packs.find_all(kind, keys, suffix) == [store.packs.find(kind, one, suffix) for one in keys]
        assert list(map(str, store.places(kind, keys, suffix))) == [store.address(kind, one, suffix) for one in keys]
        assert store.have(kind, keys) == [store.has(kind, one) for one in keys]
        assert store.places(kind, [], suffix) == store.have(kind, []) == []


@given(parts=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=5), min_size=1, max_size=6))
def test_everything_is_found_as_it_was_written(parts, tmp_path_factory):
    """In one pack or many, before and after they are joined; what is not there is not."""
    store = PartialStore(tmp_path_factory.mktemp("store"))
    written = [store.write_items(item for name in part for item in items(name)) for part in parts]
    for _ in range(2):
        store.packs.refresh()
        for name in range(31):
            there = any(name in part for part in parts)
            assert store.has("volume", key(name)) == there
            assert not store.has("lengths", key(name))
            if there:
                assert store.read("volume", key(name)).meta == {"name": str(name)}
                assert store.read("volume", key(name)).tables["t"]["n"].to_pylist() == [0, 1, 2]
                assert read_keyed(store.address("volume", key(name), "keys"), 0, 256)["row"].to_pylist() == [0, 1, 2]
                assert read_at(store.address("reading", key(name), "rows")).to_pybytes() == bytes(range(3))
        assert_found_together(store, [key(name) for name in (*range(31), 3, 0)])
        join_packs(store.packs.folder, written)
        assert len(packs(store.root)) == 1


def test_the_same_entries_are_the_same_file_in_any_order(store):
    """A part that is scanned twice leaves what it left before."""
    one = store.write_items([*items("a"), *items("b")])
    assert store.write_items([*items("b"), *items("a")]) == one
    assert store.write_items(items("a")) != one


def test_large_packs_are_left_as_they_are(store):
    """Only small ones are copied; one alone is not."""
    large = store.write_items([rows_item("reading", key("large"), bytes(SMALL_BYTES))])
    small = [store.write_items(items(name)) for name in range(3)]
    join_packs(store.packs.folder, [large, *small])
    assert large in packs(store.root)
    assert len(packs(store.root)) == 2
    (joined,) = set(packs(store.root)) - {large}
    join_packs(store.packs.folder, [joined])
    assert joined.is_file()


def test_what_another_build_has_joined_or_removed_is_passed_over(store):
    """Its small packs are gone by then; what is damaged is left for whoever reads it."""
    written = [store.write_items(items(name)) for name in range(4)]
    written[0].unlink()
    written[1].write_bytes(written[1].read_bytes()[:-1])
    join_packs(store.packs.folder, written)
    assert len(packs(store.root)) == 2
    assert written[1].is_file()


def test_a_store_sees_packs_that_come_and_go_when_it_looks_again(store):
    """Before it does, what was joined meanwhile is absent, never wrong."""
    written = [store.write_items(items(name)) for name in range(2)]
    assert store.has("volume", key(0))
    join_packs(store.packs.folder, written)
    assert store.read("volume", key(0)) is None
    other = store.write_items(items(7))
    assert not store.has("volume", key(7))
    store.packs.refresh()
    assert store.read("volume", key(0)).meta == {"name": "0"}
    assert store.has("volume", key(7))
    other.unlink()
    store.packs.refresh()
    assert not store.has("volume", key(7))


def test_a_damaged_index_is_told_and_the_others_are_read(store):
    """At any byte of index, names and end; a cut anywhere."""
    store.write_items(items("whole"))
    pack = store.write_items(items("harmed"))
    whole = pack.read_bytes()
    end = max(stored.offset + stored.size for stored in read_pack(pack))
    for harmed in [
        *(
            whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]
            for place in (*range(end + 64, len(whole), 5),)
        ),
        whole[:-1],
        whole[: len(whole) // 2],
        b"",
        whole + b"\0",
    ]:
        pack.write_bytes(harmed)
        seen = Packs(store.packs.folder)
        with pytest.raises(DamagedFileError) as caught:
            seen.refresh()
        assert caught.value.paths == (str(pack),)
        assert seen.find("volume", key("whole"))
        assert not seen.find("volume", key("harmed"))


def test_damage_in_an_entry_takes_that_entry_alone(store):
    """With its rows; all others are put into another pack."""
    pack = store.write_items(item for name in "abcd" for item in items(name))
    flip(next(one for one in entries(store.root, "volume", "keys") if key("b") in one.name))
    flip(next(one for one in entries(store.root, "reading", "rows") if key("c") in one.name))
    assert store.read("volume", key("b")) is not None
    assert store.remove_damaged() == [str(pack.relative_to(store.root))]
    store.packs.refresh()
    assert names(store) == ["a", "c", "d"]
    assert store.read_rows("reading", key("b")) is not None
    assert store.read_rows("reading", key("c")) is None
    assert store.remove_damaged() == []


def test_a_removed_entry_is_gone_until_it_is_written_again(store):
    """Also under the name of the pack that held it."""
    store.write_items(items("a"))
    assert store.has("volume", key("a"))
    store.remove("volume", key("a"))
    assert not store.has("volume", key("a"))
    store.packs.refresh()
    assert not store.has("volume", key("a"))
    store.write_items(items("a"))
    store.packs.refresh()
    assert store.read("volume", key("a")).meta == {"name": "a"}


def test_an_entry_in_the_place_of_another_is_not_that_entry(store):
    """Digests know an entry by its name, in a pack too."""
    one, other = items("a"), items("b")
    swapped = [one[0], one[1]._replace(pieces=other[1].pieces), other[0], other[1]._replace(pieces=one[1].pieces)]
    write_pack(store.packs.folder, swapped)
    assert store.read("volume", key("a")) is None
    assert store.read("volume", key("b")) is None
