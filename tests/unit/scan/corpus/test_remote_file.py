"""A remote file is its bytes, however they are read; what a store answers too little is never the end of it."""

from __future__ import annotations

import errno
import io
import pickle

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.base import stores
from dataaudit.base.stores import BodyError, run
from dataaudit.scan.corpus.storage import files, remote
from dataaudit.scan.corpus.storage.address import Access, RemotePath
from dataaudit.scan.corpus.storage.files import arrow_buffer_bytes, arrow_source, open_binary, read_until, stored_bytes
from dataaudit.scan.corpus.storage.remote import open_object, stat_remote

DATA = bytes(range(256)) * 40
PATH = RemotePath("memory://r/a", "memory://r/a", Access(timeout_seconds=1, retries=0))


@pytest.fixture(autouse=True, scope="module")
def _stored():
    memory = fsspec.filesystem("memory")
    memory.pipe("/r/a", DATA)
    memory.pipe("/r/empty", b"")
    yield
    memory.rm("/r", recursive=True)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks so small that the reading ahead shows."""
    monkeypatch.setattr(files, "_FIRST_BLOCK_BYTES", 64)
    monkeypatch.setattr(files, "_LARGEST_BLOCK_BYTES", 512)
    monkeypatch.setattr(files, "_REST_BYTES", 16)


def whole(file):
    """Read a file to its end."""
    pieces = []
    while piece := file.read(1000):
        pieces.append(piece)
    return b"".join(pieces)


@given(
    steps=st.lists(st.tuples(st.integers(0, len(DATA) + 10), st.integers(0, 700)), max_size=12),
    stop=st.integers(0, len(DATA)),
    ahead=st.booleans(),
)
def test_any_reads_give_the_bytes_of_that_place(steps, stop, ahead):
    """Seeks and reads of any kind, with any limit to the reading ahead."""
    file = files.RemoteFile(PATH, ahead=ahead)
    file.read_until(stop)
    for start, size in steps:
        file.seek(start)
        found = file.read(size)
        assert DATA[start:].startswith(found)
        assert bool(found) == bool(DATA[start : start + size])
        assert ahead or found == DATA[start : start + size]
        assert file.tell() == start + len(found)
    file.seek(0)
    assert whole(file) == DATA
    file.close()


def requests(monkeypatch):
    """Note every range that is asked for."""
    asked = []
    original = remote._StoreObject.fetch

    def fetch(self, start, stop):
        asked.append((start, stop))
        return original(self, start, stop)

    monkeypatch.setattr(remote._StoreObject, "fetch", fetch)
    return asked


def test_a_whole_file_is_asked_for_once_in_growing_blocks(small_blocks, monkeypatch):
    """Every byte once, in order, in blocks that grow to a limit."""
    asked = requests(monkeypatch)
    with open_binary(PATH) as file:
        assert stored_bytes(file) == len(DATA)
        assert whole(file) == DATA
    assert [start for start, _ in asked] == [0, *(stop for _, stop in asked[:-1])]
    sizes = [stop - start for start, stop in asked]
    assert sizes[:5] == [64, 128, 256, 512, 512]
    assert sum(sizes) == len(DATA)


def test_a_glance_asks_for_one_small_block(small_blocks, monkeypatch):
    """Nothing is read ahead before the second block is wanted."""
    asked = requests(monkeypatch)
    with open_binary(PATH) as file:
        file.read(10)
    assert asked == [(0, 64)]


def test_a_part_is_not_read_ahead_beyond_its_end(small_blocks, monkeypatch):
    """Blocks end with the part; what a line needs beyond it comes in small ones."""
    asked = requests(monkeypatch)
    with open_binary(PATH) as file:
        file.seek(1000)
        read_until(file, 3000)
        read = b""
        while len(read) < 2010:
            read += file.read(700)
    assert read == DATA[1000:3016]
    assert max(stop for start, stop in asked if start < 3000) == 3000
    assert asked[-1] == (3000, 3016)


def test_an_empty_file_has_no_bytes(monkeypatch):
    """And is asked for none."""
    asked = requests(monkeypatch)
    path = RemotePath("memory://r/empty", "memory://r/empty", Access())
    with open_binary(path) as file:
        assert (file.read(), file.read(5), stored_bytes(file)) == (b"", b"", 0)
    assert asked == []


def test_it_behaves_like_a_file():
    """Seeking from any place, being closed twice."""
    file = files.RemoteFile(PATH, ahead=True)
    assert file.readable()
    assert file.seekable()
    assert file.seek(-3, io.SEEK_END) == len(DATA) - 3
    assert file.seek(1, io.SEEK_CUR) == len(DATA) - 2
    assert file.read() == DATA[-2:]
    assert file.seek(0) == 0
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        iter(file)


def test_arrow_reads_column_chunks_alone(monkeypatch):
    """The column that nobody asks for is not read, and the requests are few."""
    sink = pa.BufferOutputStream()
    columns = {
        "text": [f"{number:06d}" * 20 for number in range(3000)],
        "noise": [str(number) * 300 for number in range(3000)],
    }
    pq.write_table(pa.table(columns), sink, row_group_size=1000, compression="none", use_dictionary=False)
    data = sink.getvalue().to_pybytes()
    fsspec.filesystem("memory").pipe("/r/p.parquet", data)
    path = RemotePath("memory://r/p.parquet", "memory://r/p.parquet", Access())
    asked = requests(monkeypatch)
    file = pq.ParquetFile(arrow_source(path), pre_buffer=False, buffer_size=arrow_buffer_bytes(path, 1 << 18))
    assert pa.Table.from_batches(file.iter_batches(columns=["text"]))["text"].to_pylist() == columns["text"]
    assert sum(stop - start for start, stop in asked) < len(data) / 3
    assert len(asked) < 20
    assert arrow_buffer_bytes("/local", 7) == 7


class Flaky:
    """Stands in for a filesystem: fails or answers too little for a while."""

    async_impl = True
    faults: tuple = ()

    def __init__(self, *faults):
        self.faults, self.calls = list(faults), 0

    def _strip_protocol(self, path):
        return path

    def invalidate_cache(self):
        pass

    async def _info(self, path):
        self._fail()
        return {"size": len(DATA), "ETag": "x", "type": "file"}

    async def _cat_file(self, path, start, end):
        cut = self._fail() or 0
        return DATA[start : end - cut]

    def _fail(self):
        self.calls += 1
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, BaseException):
            raise fault
        return fault


@pytest.fixture
def flaky(monkeypatch):
    """Put a failing filesystem in the place of every other; no pauses."""

    def make(*faults, retries=2):
        made = Flaky(*faults)
        monkeypatch.setattr(remote, "filesystem", lambda path: made)
        monkeypatch.setattr(stores, "_FIRST_PAUSE_SECONDS", 0.001)
        return made, RemotePath("s3://b/k", "s3://b/k", Access(timeout_seconds=0.2, retries=retries))

    return make


@pytest.mark.parametrize(
    "fault", [1, len(DATA), OSError("secret"), TimeoutError(), ConnectionResetError(), RuntimeError("secret")]
)
def test_what_passes_is_tried_again(flaky, fault):
    """Short answers and failures of every kind; the bytes are complete in the end."""
    made, path = flaky(None, fault, fault)
    with open_binary(path) as file:
        assert whole(file) == DATA
    assert made.calls == 4


@pytest.mark.parametrize("fault", [1, len(DATA), OSError("secret"), RuntimeError("secret"), BodyError("0 bytes")])
def test_what_stays_is_an_input_error_without_the_librarys_words(flaky, fault):
    """With an errno, so that no reader takes it for damage of the file, and picklable."""
    made, path = flaky(None, *[fault] * 9)
    with open_binary(path) as file, pytest.raises(OSError, match="the request failed") as caught:
        whole(file)
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.errno == errno.EIO
    assert error.filename == "s3://b/k"
    assert "secret" not in str(error)
    assert made.calls == 4


@pytest.mark.parametrize(
    ("fault", "kind"), [(FileNotFoundError("secret"), FileNotFoundError), (PermissionError(), PermissionError)]
)
def test_what_is_gone_or_forbidden_is_not_tried_again(flaky, fault, kind):
    """The store has answered."""
    made, path = flaky(fault)
    with pytest.raises(kind) as caught:
        stat_remote(path)
    assert caught.value.errno
    assert "secret" not in str(caught.value)
    assert made.calls == 1


def test_a_store_that_is_silent_fails_in_time(flaky, monkeypatch):
    """An answer that never comes counts as a failed try."""
    import asyncio

    made, path = flaky(retries=1)

    async def hang(path):
        made.calls += 1
        await asyncio.sleep(60)

    monkeypatch.setattr(made, "_info", hang)
    with pytest.raises(OSError, match="TimeoutError"):
        stat_remote(path)
    assert made.calls == 2


def test_a_handle_that_failed_is_opened_anew(monkeypatch):
    """A filesystem that is not asynchronous keeps a handle; after a failure it is another one."""
    monkeypatch.setattr(stores, "_FIRST_PAUSE_SECONDS", 0.001)
    path = RemotePath("memory://r/a", "memory://r/a", Access(retries=1))
    opened = open_object(path)
    kind = type(fsspec.filesystem("memory"))
    opened_names = []
    original = kind.open

    def failing(self, name, *args, **kwargs):
        opened_names.append(name)
        if len(opened_names) == 1:
            raise OSError("lost")
        return original(self, name, *args, **kwargs)

    monkeypatch.setattr(kind, "open", failing)
    assert run(opened.fetch(3, 9)) == DATA[3:9]
    assert run(opened.fetch(5, 7)) == DATA[5:7]
    assert len(opened_names) == 2
    assert run(opened.stat()) == stat_remote(PATH)
