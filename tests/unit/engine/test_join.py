"""Joins by shard: every shard is in one task, whole, however shards are cut into tasks."""

import pyarrow as pa
import pytest
from made_build import HereRunner, services
from test_join_merging import files_of, stored_shards

from dataaudit.engine import join as joins
from dataaudit.engine.join import run_join
from dataaudit.engine.runner import FILES
from dataaudit.scan.cross_shard.joins import Join, Joined
from dataaudit.scan.cross_shard.keyed import each_table
from dataaudit.scan.cross_shard.step import DamagedEntryError

KEYS = pa.schema([("shard", pa.int32()), ("first_row", pa.int64()), ("keys", pa.list_(pa.binary()))])


def keys_of(files, start, stop):
    """Return the keys of each file, for the driver at once and for later."""
    tables = each_table(files["path"].to_pylist(), start, stop)
    keys = [table.column(0).cast(pa.binary()).to_pylist() for table in tables]
    table = pa.table([files["shard"], files["first_row"], keys], schema=KEYS)
    return Joined(tables={"keys": table}, rows={"later": table})


def run(store, shards, runner=None, *, fresh=False):
    """Join the keys of exact duplicates by shard."""
    files = files_of(shards, "exact_dup", "keys")
    join = Join(kind="link-keys", function=keys_of, identity="1", files=files, rows=0, by_shard=True)
    return run_join(join, services(store, runner), fresh=fresh)


@pytest.mark.parametrize(("most_files", "most_bytes"), [(256, 1 << 26), (4, 1 << 26), (1, 1 << 26), (256, 1)])
def test_any_cut_gives_the_rows_of_each_shard(store, monkeypatch, most_files, most_bytes):
    """Those of a shard in one task, in order; twins are shards of their own; no list stays behind."""
    monkeypatch.setattr(joins, "MOST_FILES", most_files)
    monkeypatch.setattr(joins, "_SHARD_BYTES", most_bytes)
    shards = stored_shards(store, 9)
    joined = run(store, shards)
    files = files_of(shards, "exact_dup", "keys")
    table = joined.table("keys", KEYS)
    assert table["shard"].to_pylist() == [file.shard for file in files]
    assert table["first_row"].to_pylist() == [file.first_row for file in files]
    paths = [store.address(file.kind, file.key, file.name).encode() for file in files]
    assert table["keys"].to_pylist() == [
        rows.column(0).cast(pa.binary()).to_pylist() for path in paths for rows in each_table([path], 0, 256)
    ]
    of_task = [set(tables["keys"]["shard"].to_pylist()) for tables in joined.tables]
    assert sum(map(len, of_task)) == len(set().union(*of_task)) == 9
    assert len(of_task) == (1 if most_files == 256 and most_bytes > 1 else 5 if most_files == 4 else 9)
    later = [pa.ipc.open_stream(store.read_rows(joined.kind, key, "later")).read_all() for key in joined.keys]
    assert pa.concat_tables(later) == table
    assert list((store.root / "partials" / "link-keys").rglob(f"*.{FILES}")) == []


@pytest.mark.stores
def test_only_tasks_of_what_is_new_are_run(store, monkeypatch):
    """Unless all is asked for; tasks are known by the files that they have."""
    monkeypatch.setattr(joins, "MOST_FILES", 4)
    run(store, stored_shards(store, 8))
    for count, fresh, ran in ((8, False, 0), (9, False, 1), (9, True, 5)):
        runner = HereRunner()
        run(store, stored_shards(store, count), runner, fresh=fresh)
        assert len(runner.ran) == ran


def test_a_damaged_part_or_result_is_named_and_made_anew(store):
    """What is absent is removed with all that is beside it."""
    shards = stored_shards(store, 4)
    first = run(store, shards)
    path = store.path(first.kind, first.keys[0])
    path.write_bytes(b"damaged")
    with pytest.raises(DamagedEntryError) as caught:
        run(store, shards)
    assert caught.value.names == (f"{first.kind}/{first.keys[0]}",)
    assert run(store, shards).tables == first.tables
    file = files_of(shards, "exact_dup", "keys")[2]
    store.remove(file.kind, file.key)
    with pytest.raises(DamagedEntryError) as caught:
        run(store, shards, fresh=True)
    assert caught.value.names == (f"{file.kind}/{file.key}",)
