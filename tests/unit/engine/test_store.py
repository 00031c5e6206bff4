"""The partial store: what is read is what was written under that key, or nothing."""

import errno
import pickle
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.engine.state_folder import StateFolderError
from dataaudit.engine.store import PartialStore
from dataaudit.scan.cross_shard.keyed import write_keyed

KEY = "ab" * 32
COLUMNS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5)
TABLES = st.dictionaries(st.sampled_from(["lengths", "totals", "x y"]), COLUMNS, max_size=3)
META = st.dictionaries(
    st.text(max_size=5), st.one_of(st.integers(0, 2**53), st.text(max_size=9), st.none()), max_size=4
)


def _clean(value):
    return value.encode("utf-8", "ignore").decode() if isinstance(value, str) else value


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    return PartialStore(tmp_path)


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
