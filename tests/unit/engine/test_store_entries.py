"""Packs: what is found in them is what was written, wherever it was moved, or nothing."""

import hashlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import entries, flip, packs

from dataaudit.base.files import DamagedFileError
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
from dataaudit.scan.cross_shard.keyed import read_keyed

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


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    return PartialStore(tmp_path)


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
