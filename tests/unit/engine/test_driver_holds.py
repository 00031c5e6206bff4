"""What the driver holds of a shard, counted in bytes over a simulated store, and what it does not copy."""

import gc
import os
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from made_build import STAGE_LIST, Notes, config, identities, keys_of, probe, read_shards, services, shard, shard_list

from dataaudit.base.process import release_arrow
from dataaudit.engine import store_columns as sorted_rows
from dataaudit.engine import store_entries as packs_module
from dataaudit.engine.collect import survey
from dataaudit.engine.plan import plan_shard
from dataaudit.engine.plan_shards import Plan, missing_units
from dataaudit.engine.runner import READING
from dataaudit.engine.store import PartialStore
from dataaudit.engine.store_columns import TableWriter
from dataaudit.engine.store_entries import Packs, entry_item, read_index, rows_item
from dataaudit.engine.sums import SHARDS
from dataaudit.manifest.canonical import sorted_table
from dataaudit.manifest.publish import table_records, write_table
from dataaudit.manifest.tables import TABLES
from dataaudit.scan.cross_shard.joins import KeyedFile, KeyedFiles, Numbered

FEW, MANY = 100, 600
ENTRIES = 2 * len(STAGE_LIST) + 2
"""Of a shard of one part: the partial of each stage and rows beside it, and as many of its reading."""


def named_shard(number):
    """Return a shard with a name of its own."""
    return shard(number, uri=f"part-{number:07}.jsonl")


def planned(number):
    """Plan a shard, each text of which is an object of its own."""
    chosen, named = planned.config, planned.identities
    return plan_shard(named_shard(number), probe(f"{number}"), None, chosen, STAGE_LIST, named)


planned.config, planned.identities = config(), identities(STAGE_LIST)


def items_of(one):
    """Yield what a scan would leave of a shard: small, under its keys."""
    for part in one.parts:
        meta = {"records": 4, "columns": ["text"], "reason": "", "place": "", "bad": {}, "remarks": {}, "text_bytes": 9}
        yield entry_item(READING, part.reading_key, meta, {})
        yield rows_item(READING, part.reading_key, b"r")
        for name, key in part.stage_keys:
            yield entry_item(name, key, {}, {})
            yield rows_item(name, key, b"k", "keys")


@pytest.fixture
def store(tmp_path):
    """A store with the results of many shards, in packs."""
    made = PartialStore(tmp_path)
    for start in range(0, MANY, 50):
        made.write_items(item for number in range(start, start + 50) for item in items_of(planned(number)))
    return made


def test_the_driver_holds_little_of_a_shard(store):
    """From the plan to the readings, probes and names included: they lie on disk, and units are made one by one."""

    def held(count):
        shards = shard_list(*map(named_shard, range(count)))
        plan = Plan(map(planned, range(count)), shards, lambda place: probe(f"{place}"), planned.identities, store.root)
        units = missing_units(plan, store, Notes(), fresh=True)
        assert len(units) == count
        assert len(missing_units(plan, store, Notes(), fresh=False)) == 0
        found, _ = survey(plan, {}, (), services(store), max_bad=0.0)
        return shards, plan, units, found

    held(FEW)  # what is made once
    sizes = []
    for count in (FEW, MANY):
        tracemalloc.start()
        everything = held(count)
        gc.collect()  # lists of free tuples, too
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert [one.records for one in everything[-1]] == [4] * count
    assert (sizes[1] - sizes[0]) / (MANY - FEW) < 100


def test_the_index_of_packs_is_not_held(store, monkeypatch):
    """However many entries there are, and after some packs are gone; what is found is what is there."""
    monkeypatch.setattr(sorted_rows, "_SORTED_ROWS", 1000)
    keys = [planned(number).parts[0].reading_key for number in range(MANY)]
    Packs(store.packs.folder).refresh()  # what is made once
    packs = Packs(store.packs.folder)
    tracemalloc.start()
    packs.refresh()
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    entries = ENTRIES * MANY
    assert held < 2 * entries
    assert most < 20 * entries  # half of it: a twelfth is read and sorted at a time, in some copies
    assert all(packs.find(READING, key) for key in keys)
    gone = [path for path in sorted(store.packs.folder.rglob("*")) if path.is_file()][:3]
    for path in gone:
        path.unlink()
    packs.refresh()
    assert sum(packs.find(READING, key) is not None for key in keys) == MANY - 150
    for start in (0, 50):
        store.write_items(item for number in range(start, start + 50) for item in items_of(planned(number)))
    store.write_items(items_of(planned(MANY)))
    packs.refresh()
    assert sum(packs.find(READING, key) is not None for key in keys) >= MANY - 150
    assert packs.find(READING, planned(MANY).parts[0].reading_key)
    assert sorted(path.name for path in store.root.iterdir()) == ["partials"]


def test_packs_that_are_known_are_not_read_again(store, monkeypatch):
    """Not when nothing is new, and not when something is."""
    packs = Packs(store.packs.folder)
    packs.refresh()
    read = []
    monkeypatch.setattr(packs_module, "read_index", lambda path: read.append(path) or read_index(path))
    packs.refresh()
    assert read == []
    new = store.write_items(items_of(planned(MANY)))
    packs.refresh()
    assert read == [new]
    assert packs.find(READING, planned(MANY).parts[0].reading_key)


def test_files_of_a_join_are_made_when_they_are_asked_for(store):
    """Each as a list would hold it; parts that two shards share are one part."""
    plans = [planned(number % 70) for number in range(90)]
    shards = read_shards(plans, store, seen=())
    parts = ((key, one.ordinal, 3, first_row) for one in shards for key, first_row in keys_of(one, "near_dup"))
    files = KeyedFiles.of_parts("near_dup", ("bands", "probes"), parts)
    listed = list(files)
    assert KeyedFiles.of(iter(listed)).digest() == files.digest() != KeyedFiles.of(listed[1:]).digest()
    assert len(files) == len(listed) == 180
    assert [files[place] for place in range(180)] == listed
    assert files[-1] == listed[-1]
    assert files[88:91] == listed[88:91]
    assert {(one.name, one.split) for one in listed[:90]} == {("bands", 3)}
    assert listed[:90] == [
        KeyedFile(kind="near_dup", key=key, name="bands", shard=one.ordinal, split=3, first_row=first_row)
        for one in shards
        for key, first_row in keys_of(one, "near_dup")
    ]
    with pytest.raises(IndexError):
        files[180]
    numbered = Numbered.of(files)
    assert len(numbered.times) == 140
    assert sorted(numbered.times.tolist()) == [1] * 100 + [2] * 40
    assert [listed[place].key for place in numbered.firsts[numbered.numbers]] == [one.key for one in listed]


def table_of(ordinals):
    """Return rows of the table of shards."""
    row = dict.fromkeys(SHARDS.names) | {"uri": "u", "split": "train", "format": "jsonl", "compression": "none"}
    row |= {"sha256": "", "status": "ok", "reason": "", "sources": []}
    row |= dict.fromkeys(("size", "rows", "documents", "bytes", "tokens", "bad_records"), 1)
    row["filters"] = [{"rule": f"rule {number}", "documents": 1} for number in range(30)]
    return pa.Table.from_pylist([row | {"shard": number} for number in ordinals], schema=SHARDS)


def address(table, name):
    """Return where the first values of a list column lie."""
    return table.column(name).chunk(0).flatten().field(0).buffers()[2].address


def test_a_table_in_order_is_not_copied_to_be_ordered():
    """The table of shards is kilobytes a shard; one that is in no order is ordered all the same."""
    table = table_of(range(50))
    assert address(sorted_table(table, TABLES["shards"]), "filters") == address(table, "filters")
    shuffled = table.take(pa.array(np.random.default_rng(1).permutation(50)))
    assert sorted_table(shuffled, TABLES["shards"]) == table


def test_the_table_of_shards_is_not_held(tmp_path):
    """Neither while it is put together nor when it is written; what is held are some rows at a time."""
    piece, target = table_of(range(500)), tmp_path / "shards.parquet"
    release_arrow()
    before, sizes = pa.total_allocated_bytes(), []
    writer = TableWriter(tmp_path, SHARDS)
    for start in range(0, 40_000, 500):
        writer.append(piece.set_column(0, SHARDS.field(0), pa.array(range(start, start + 500), pa.int32())))
        sizes.append(pa.total_allocated_bytes() - before)
    table = writer.done()
    sizes.append(pa.total_allocated_bytes() - before)
    assert table["shard"].to_pylist() == list(range(40_000))
    assert table.slice(39_500)["filters"].combine_chunks() == piece["filters"].combine_chunks()
    assert {column.num_chunks for column in table.columns} == {1}
    assert os.listdir(tmp_path) == []
    tables = {"shards": sorted_table(table, TABLES["shards"])}
    tracemalloc.start()
    assert table_records(tables)["shards"].rows == 40_000
    with target.open("wb") as file:
        write_table(file, tables["shards"], SHARDS)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(sizes) < table.nbytes / 4
    assert most < table.nbytes / 10
    assert pa.total_allocated_bytes() - before < table.nbytes / 100
