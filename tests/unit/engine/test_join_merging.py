"""Keyed rows of small parts, merged before they are joined: what comes of it is the same, and few files are opened."""

import os

import pyarrow as pa
import pytest
from made_build import (
    STAGE_LIST,
    HereRunner,
    keys_of,
    plan,
    probe,
    read_shards,
    services,
    shard,
    write_partials,
    write_reading,
)

from dataaudit.engine import join as joins
from dataaudit.engine.join import link_files, run_join
from dataaudit.metrics.exact_dup.stage import link_exact
from dataaudit.metrics.repeats.runs import listing_of
from dataaudit.metrics.repeats.windows import frequent_rows, link_fingerprints
from dataaudit.scan.cross_shard.joins import LINK_FILES, Join, KeyedFile, KeyedFiles
from dataaudit.scan.cross_shard.keyed import MERGED, Stored, read_placed
from dataaudit.scan.cross_shard.step import DamagedEntryError

LONG = " ".join(f"w{number}" for number in range(120))
EMITTED = [(stage.name, name, schema) for stage in STAGE_LIST for name, schema in stage.emits.items()]


def stored_shards(store, count):
    """Return shards of two parts, every fourth equal to the first; documents and spans recur, one part is empty."""
    planned = []
    for number in range(count):
        content = 0 if number % 4 == 3 else number
        parts = ((0, 50), (50, 100))
        one = plan(
            shard(number, uri=f"{number:03}", split="val" if number == 2 else "train"), probe(f"{content}", parts=parts)
        )
        texts = [(f"{LONG} {content}", "web"), (f"document {content % 3}", "code"), (f"{content} and {LONG}", "web")]
        texts *= 1 + content % 3
        for part, held in zip(one.parts, (texts if content != 1 else [], texts[::-1]), strict=True):
            write_partials(store, part, held)
            write_reading(store, part, records=len(held))
        planned.append(one)
    return read_shards(planned, store)


def files_of(shards, kind, name):
    """Return the keyed files of all parts that a stage looked at."""
    return [
        KeyedFile(kind=kind, key=key, name=name, shard=one.ordinal, split=int(one.split == "val"), first_row=first_row)
        for one in shards
        if kind in one.partials
        for key, first_row in keys_of(one, kind)
    ]


def merged_files(files, store):
    """Return files as a join reads them."""
    return link_files(KeyedFiles.of(files), services(store), fresh=False)


@pytest.fixture
def small(monkeypatch):
    """Three parts are many."""
    monkeypatch.setattr(joins, "MOST_FILES", 3)
    monkeypatch.setattr(joins, "_GROUP_PARTS", 5)


def listed_plainly(files, store):
    """Return the files as they are listed when nothing is merged."""
    rows = [
        (os.fsencode(store.address(one.kind, one.key, one.name)), one.shard, one.split, one.first_row) for one in files
    ]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=LINK_FILES)


def sorted_rows(placed):
    """Return rows with whose they are, in an order of their own."""
    columns = (placed.shards.tolist(), placed.rows.tolist(), placed.splits.tolist(), placed.table.to_pylist())
    return sorted(map(str, zip(*columns, strict=True)))


@pytest.mark.stores
@pytest.mark.parametrize(("kind", "name", "schema"), EMITTED, ids=lambda value: value if isinstance(value, str) else "")
def test_merged_rows_are_the_rows_of_all_parts(store, small, kind, name, schema):
    """In any range of keys, with shard, record and split of each listing."""
    files = files_of(stored_shards(store, 8), kind, name)
    merged = merged_files(files, store)
    assert set(merged["shard"].to_pylist()) == {MERGED}
    assert merged.num_rows == min(3, -(-len(files) // 5))
    plain = listed_plainly(files, store)
    for start, stop in ((0, 256), (0, 100), (100, 101), (101, 256)):
        read = [sorted_rows(read_placed(one, schema, start, stop)) for one in (plain, merged)]
        assert read[0] == read[1]


@pytest.mark.parametrize("large", [False, True])
def test_spans_and_duplicates_are_found_in_merged_rows(store, small, monkeypatch, large):
    """Parts keep their numbers, and how often they are listed; some are too large to be merged."""
    shards = stored_shards(store, 9)
    files = files_of(shards, "repeats", "fingerprints")
    if large:
        sizes = [Stored.at(store.address(one.kind, one.key, one.name)).num_bytes() for one in files]
        monkeypatch.setattr(joins, "SMALL_BYTES", sorted(sizes)[len(sizes) // 2])
    plain, merged = listed_plainly(files, store), merged_files(files, store)
    if large:
        assert len(set(merged["number"].to_pylist()) - {MERGED}) > 1
        assert MERGED in merged["number"].to_pylist()
    for least in (2, 5, 1000):
        rows = [frequent_rows(listing_of(one), 0, 256, least, "windows") for one in (plain, merged)]
        for name in rows[0].__slots__:
            assert getattr(rows[0], name).tolist() == getattr(rows[1], name).tolist(), name
        found = [link_fingerprints(one, 0, 256, min_documents=least) for one in (plain, merged)]
        assert found[0].keyed == found[1].keyed
    assert len(rows[0].documents) == 0
    keys = files_of(shards, "exact_dup", "keys")
    joined = [
        link_exact(one, 0, 256).tables["members"] for one in (listed_plainly(keys, store), merged_files(keys, store))
    ]
    order = [(name, "ascending") for name in joined[0].column_names]
    assert joined[0].num_rows
    assert joined[0].sort_by(order) == joined[1].sort_by(order)


def run_exact(store, shards, runner):
    """Join the keys of exact duplicates in many partitions."""
    files = files_of(shards, "exact_dup", "keys")
    return run_join(
        Join(kind="link-exact", function=link_exact, identity="1", files=files, rows=10), services(store, runner)
    )


@pytest.mark.stores
def test_a_partition_opens_few_files_however_many_parts_there_are(store, monkeypatch):
    """Each part is opened once, by what merges it; a partition opens merged files alone."""
    monkeypatch.setattr(joins, "ROWS_PER_PARTITION", 1)
    monkeypatch.setattr(joins, "MOST_FILES", 8)
    monkeypatch.setattr(joins, "_GROUP_PARTS", 2)
    opened, at = {}, ["nowhere"]
    open_ = Stored.open

    def counted(stored):
        opened.setdefault(at[0], []).append(stored.name)
        return open_(stored)

    class Counting(HereRunner):
        def run(self, name, function, units, on_outcome):
            def told(unit):
                at[0] = f"{name} {unit.key}"
                return function(unit)

            super().run(name, told, units, on_outcome)
            at[0] = "driver"

    monkeypatch.setattr(Stored, "open", counted)
    shards = stored_shards(store, 60)
    opened.clear()
    run_exact(store, shards, Counting())
    keyed = {task: [name for name in names if name.endswith(".keys")] for task, names in opened.items()}
    partitions = [names for task, names in keyed.items() if task.startswith("link-exact")]
    assert len(partitions) == 10
    assert {len(names) for names in partitions} == {8}
    parts = [name for task, names in keyed.items() if task.startswith("link-merge") for name in names]
    assert len(parts) <= len(files_of(shards, "exact_dup", "keys"))
    again = Counting()
    run_exact(store, shards, again)
    assert again.ran == []


@pytest.mark.parametrize("victim", ["merged", "exact_dup"])
def test_damage_is_found_and_made_anew(store, small, monkeypatch, victim):
    """Of merged rows, which the next round merges again, and of those of a part, which the next scan makes."""
    shards = stored_shards(store, 6)
    wanted = run_exact(store, shards, HereRunner()).tables
    folder = store.root / "partials"
    for path in [*(folder / "link-exact").rglob("*"), *((folder / "merged").rglob("*") if victim != "merged" else ())]:
        if path.is_file():
            path.unlink()
    harmed = min((folder / victim).rglob("*.keys"))
    harmed.write_bytes(harmed.read_bytes()[:-5])
    with pytest.raises(DamagedEntryError) as caught:
        run_exact(store, shards, HereRunner())
    assert caught.value.names == (f"{victim}/{harmed.name.partition('.')[0]}",)
    if victim == "merged":
        assert run_exact(store, shards, HereRunner()).tables == wanted
