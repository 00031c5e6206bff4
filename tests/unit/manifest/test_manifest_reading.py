"""Tables of a loaded manifest: each file is read once and compared with its digest, large tables are kept in part."""

import os
import pickle
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import made_manifest
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from forged import hold_bytes
from made_manifest import shard

from dataaudit import api
from dataaudit.base.errors import ManifestError, ManifestMismatch
from dataaudit.cli import main
from dataaudit.manifest import load, reading
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.verify import verify

DEMO = Path(__file__).parents[3] / "manifests/demo"


class Reads(list):
    """What was read: ``(table, columns)`` of every call, columns None for all."""

    def __init__(self):
        super().__init__()
        self.opened = []

    def names(self):
        """Return the tables in the order of the calls."""
        return [name for name, _ in self]


@pytest.fixture
def reads(monkeypatch):
    """Every file that is opened, and every read of it."""
    found = Reads()

    class Counted(pq.ParquetFile):
        def __init__(self, handle, **options):
            super().__init__(handle, **options)
            # A file of Python's could be let go last by a thread of Arrow's while Python ends, which aborts.
            assert isinstance(handle, pa.NativeFile)
            self.name = Path(os.readlink(f"/proc/self/fd/{handle.fileno()}")).stem
            found.opened.append(self.name)

        def read(self, columns=None, **options):
            found.append((self.name, columns))
            return super().read(columns=columns, **options)

    monkeypatch.setattr(reading.pq, "ParquetFile", Counted)
    return found


@pytest.fixture
def large(monkeypatch):
    """Every table is taken for a large one."""
    monkeypatch.setattr(reading, "SMALL_TABLE_BYTES", 0)


@pytest.fixture
def manifest(tmp_path):
    """A manifest of two shards."""
    made_manifest.make(tmp_path / "m", [shard("a"), shard("b", documents=7)])
    return load_manifest(tmp_path / "m")


def test_a_table_is_read_once(manifest, reads):
    whole = manifest.table("shards")
    assert manifest.table("shards") is whole
    assert manifest.table("shards", ["uri", "documents"]).to_pydict() == {"uri": ["a", "b"], "documents": [10, 7]}
    assert len(manifest.metrics()) > len(manifest.metrics("documents")) + len(manifest.metrics("tokens")) > 2
    assert (reads, reads.opened) == ([("shards", None)], ["shards", "metrics"])


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_small_table_is_read_once_whatever_is_asked_for(name, reads):
    manifest = load_manifest(DEMO)
    columns = TABLES[name].schema.names
    assert manifest.table(name, columns[-2:]).column_names == columns[-2:]
    assert manifest.table(name, columns[:2][::-1]).column_names == columns[:2][::-1]
    assert manifest.table(name).equals(pq.read_table(DEMO / f"{name}.parquet").combine_chunks())
    assert reads == [(name, None)]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", sorted(TABLES))
def test_of_a_large_table_what_was_asked_for_is_kept(name, reads):
    """Each column is read for the digest; other columns later, without a second check, and none twice."""
    manifest = load_manifest(DEMO)
    columns = TABLES[name].schema.names
    assert manifest.table(name, columns[-1:]).column_names == columns[-1:]
    assert {column for _, names in reads for column in names} == set(columns)
    reads.clear()
    assert manifest.table(name, columns[-1:]).column_names == columns[-1:]
    assert reads == []
    assert manifest.table(name, [columns[-1], columns[0]]).num_rows == manifest.core.tables[name].rows
    assert manifest.table(name, columns[:1]).column_names == columns[:1]
    assert reads == ([(name, columns[:1])] if len(columns) > 1 else [])
    whole = pq.read_table(DEMO / f"{name}.parquet").combine_chunks()
    assert manifest.table(name).equals(whole)
    assert load_manifest(DEMO).table(name, []).num_rows == whole.num_rows


@pytest.mark.tables
@pytest.mark.parametrize(
    "command",
    [
        ("show", DEMO, "--all"),
        ("inspect", DEMO, "3:1"),
        ("gate", DEMO, "--policy", "release-gate"),
        ("report", DEMO, "--policy", "release-gate", "--out", "report.html"),
        ("export", "card", DEMO),
        ("export", "verdict", DEMO, "--policy", "release-gate", "--out", "verdict.json"),
    ],
    ids=lambda command: " ".join(part for part in command[:2] if part != DEMO),
)
def test_a_command_loads_once_and_opens_each_file_once(reads, monkeypatch, tmp_path, command):
    loaded = []
    read_pointer = load._read_pointer
    monkeypatch.setattr(load, "_read_pointer", lambda path: loaded.append(path) or read_pointer(path))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, [str(part) for part in command])
    assert done.exit_code in {0, 3}, done.output
    assert loaded == [DEMO / "manifest.json"]
    assert len(reads.opened) == len(set(reads.opened)) > 4


@pytest.mark.tables
@pytest.mark.usefixtures("large")
def test_a_report_of_a_large_manifest_reads_a_column_twice_at_most(reads, tmp_path):
    """Once for the digest, and again when it was not what was asked for first."""
    api.report(DEMO, tmp_path / "report.html", policy="release-gate")
    times = Counter((name, column) for name, columns in reads for column in columns)
    assert len({name for name, _ in times}) > 5
    assert max(times.values()) == 2


def test_what_would_be_too_much_is_not_kept(manifest, reads, monkeypatch):
    monkeypatch.setattr(reading, "MOST_KEPT_BYTES", manifest.table("sources").nbytes)
    assert manifest.table("shards").equals(manifest.table("shards"))
    assert manifest.table("sources") is manifest.table("sources")
    assert reads.names() == ["sources", "shards", "shards"]


def test_a_check_reads_the_file_whatever_was_read_before(manifest, reads):
    manifest.table("shards")
    assert verify(manifest) == []
    assert reads.names().count("shards") == 2


@pytest.mark.parametrize("columns", [None, ["uri"], ["tokens"], []])
@pytest.mark.parametrize("is_large", [True, False])
def test_a_changed_table_is_refused_whatever_is_asked_for(manifest, monkeypatch, columns, is_large):
    if is_large:
        monkeypatch.setattr(reading, "SMALL_TABLE_BYTES", 0)
    path = manifest.folder / "shards.parquet"
    table = pq.read_table(path)
    column = table.schema.get_field_index("tokens")
    pq.write_table(table.set_column(column, table.schema.field(column), [pa.array([1, 2])]), path)
    with pytest.raises(ManifestMismatch, match=r"shards.parquet of .* is not the file that was published"):
        manifest.table("shards", columns)
    hold_bytes(manifest.folder)
    manifest = load_manifest(manifest.folder)
    with pytest.raises(ManifestMismatch, match=r"table shards of .*: its rows are not those"):
        manifest.table("shards", columns)


@pytest.mark.usefixtures("large")
def test_columns_of_two_versions_of_a_file_are_never_put_together(manifest):
    manifest.table("shards", ["uri"])
    path = manifest.folder / "shards.parquet"
    os.utime(path)
    assert manifest.table("shards", ["uri", "tokens"]).num_rows == 2
    pq.write_table(pq.read_table(path).slice(0, 1), path)
    with pytest.raises(ManifestError, match="not the file that was published"):
        manifest.table("shards", ["status"])


def test_rows_in_another_order_are_the_same_table(tmp_path, monkeypatch):
    for limit in (reading.SMALL_TABLE_BYTES, 0):
        monkeypatch.setattr(reading, "SMALL_TABLE_BYTES", limit)
        folder = tmp_path / str(limit)
        made_manifest.make(folder, [shard("a"), shard("b")])
        expected = load_manifest(folder).table("metrics")
        pq.write_table(expected.take(list(reversed(range(expected.num_rows)))), folder / "metrics.parquet")
        hold_bytes(folder)
        manifest = load_manifest(folder)
        assert manifest.table("metrics", ["value"]).equals(expected.select(["value"]))
        assert manifest.table("metrics").equals(expected)


def test_threads_share_what_is_read(manifest, reads):
    together = threading.Barrier(8)

    def ask(number):
        together.wait()
        return [manifest.table(name) for name in (("shards", "metrics") if number % 2 else ("metrics", "shards"))]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert sorted(reads.opened) == ["metrics", "shards"]
    assert len({id(table) for tables in found for table in tables}) == 2


def test_a_copy_in_another_process_reads_for_itself(manifest, reads):
    """What was read is not sent along."""
    manifest.table("shards")
    copy = pickle.loads(pickle.dumps(manifest))
    assert (copy.id, copy) == (manifest.id, manifest)
    assert copy.table("shards").equals(manifest.table("shards"))
    assert reads.opened == ["shards", "shards"]
