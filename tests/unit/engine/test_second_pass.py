"""The second pass: which documents tasks see, how often parts are read, and what becomes of harm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_build import HereRunner, config, identities, read_shards, services, write_reading
from packed import entries, flip

from dataaudit.base.files import DamagedFileError
from dataaudit.engine import second_pass as running_task
from dataaudit.engine.join import run_link_steps
from dataaudit.engine.plan import plan_shard
from dataaudit.engine.plan_probe import probe_file
from dataaudit.engine.runner import ProbeUnit, ScanSettings, unit_limit
from dataaudit.engine.second_pass import KeyedRuns, PartsLostError, run_second_pass
from dataaudit.engine.store import PartialStore
from dataaudit.metrics.exact_dup.stage import ExactDup
from dataaudit.scan.annotators import WORDS, Words
from dataaudit.scan.corpus.batch import Annotation
from dataaudit.scan.corpus.loss import LossLog, Reason
from dataaudit.scan.corpus.readers import PartStats, read_part
from dataaudit.scan.corpus.shards import Shard
from dataaudit.scan.cross_shard.keyed import NUM_BYTES, read_keyed, write_keyed
from dataaudit.scan.cross_shard.step import DamagedEntryError, LinkResult, SecondPassRequest

SEEN = pa.schema([("shard", pa.int32()), ("row", pa.int64()), ("note", pa.string()), ("words", pa.int64())])
KEYED = pa.schema([("key", pa.binary(4)), ("row", pa.int64())])


@dataclass(frozen=True, slots=True)
class Looker:
    """Notes what it is shown."""

    factor: int = 1

    name: ClassVar[str] = "looker"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    emits: ClassVar[Mapping[str, pa.Schema]] = {"keyed": KEYED}

    def run(self, batch, wanted, encode):
        """Return what was asked for, beside the words of its document."""
        places = {row: place for place, row in enumerate(batch.rows.tolist())}
        assert set(places) == set(wanted["row"].to_pylist())
        words = batch.get(WORDS).num_words()
        rows = wanted["row"].to_pylist()
        return {
            "seen": wanted.append_column("words", pa.array([int(words[places[row]]) * self.factor for row in rows])),
            "keyed": pa.table({"key": [b"abcd"] * len(rows), "row": rows}).cast(KEYED),
        }


@pytest.fixture
def world(tmp_path):
    """Two shards of equal bytes, in two parts each, and a third; document i has i + 1 words."""
    store = PartialStore(tmp_path / "state")
    shards = []
    for ordinal, (name, start) in enumerate([("a", 0), ("b", 0), ("c", 50)]):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(f'{{"text": "{"w " * (i + 1)}"}}\n' for i in range(start, start + 40)))
        one = Shard(
            ordinal=ordinal,
            split="train",
            uri=path.name,
            path=str(path),
            format="jsonl",
            compression="none",
            skip=None,
            size=path.stat().st_size,
        )
        unit = ProbeUnit(path=str(path), format="jsonl", compression="none", part_bytes=1500, size=one.size)
        planned = plan_shard(one, probe_file(unit).probe, None, config(), (ExactDup(),), identities((ExactDup(),)))
        for part in planned.parts:
            stats = PartStats()
            list(read_part(part.request, LossLog(), stats))
            write_reading(store, part, records=stats.records)
        shards.append(planned)
    assert len(shards[0].parts) >= 2
    shards = read_shards(shards, store, seen=(), stages=(ExactDup(),))
    settings = ScanSettings(state=store.root, stages=(), annotators=(Words(),))
    return SimpleNamespace(store=store, shards=shards, settings=settings, folder=tmp_path)


def look(world, wanted, *, runner=None, task=None):
    """Revisit what is wanted, as (shard, row, note)."""
    names = ("shard", "row", "note")
    table = pa.table([list(column) for column in zip(*wanted, strict=True)], names=names)
    table = table.set_column(0, "shard", table["shard"].cast(pa.int32()))
    visit = SecondPassRequest(task=task or Looker(), wanted=table)
    (found,) = run_second_pass([visit], world.shards, world.settings, services(world.store, runner))
    return found


def test_each_wanted_document_is_seen_with_what_was_asked(world):
    """Rows are those of whole shards, in order, whatever the parts and the order of the wishes."""
    found = look(world, [(2, 39, "z"), (0, 3, "x"), (0, 39, "y"), (2, 0, "first"), (0, 3, "again")])
    rows = [tuple(row.values()) for row in found.table("seen", SEEN).to_pylist() if row["shard"] != 1]
    assert rows == [(0, 3, "again", 4), (0, 3, "x", 4), (0, 39, "y", 40), (2, 0, "first", 51), (2, 39, "z", 90)]


def test_equal_parts_are_read_once_for_all_their_shards(world):
    """What two copies of a part are asked for is looked at in one reading, and holds for both."""
    runner = HereRunner()
    found = look(world, [(0, 3, "x"), (1, 3, "x"), (1, 5, "y")], runner=runner)
    assert len(runner.ran) == 1
    rows = {tuple(row.values()) for row in found.table("seen", SEEN).to_pylist()}
    assert rows == {(0, 3, "x", 4), (1, 3, "x", 4), (0, 5, "y", 6), (1, 5, "y", 6)}
    assert [(file.shard, file.first_row) for file in found.files("keyed")] == [(0, 0), (1, 0)]


def test_a_part_with_documents_for_a_slow_visitor_may_take_longer(world):
    """Two documents of 50 seconds each: 100 seconds more than reading the part may take."""

    class Slow(Looker):
        seconds = 50.0

    class Watching(HereRunner):
        def run(self, name, function, units, on_outcome):
            limits.extend(unit_limit(unit, 7.0) - unit_limit(replace(unit, seconds=0.0), 7.0) for unit in units)
            super().run(name, function, units, on_outcome)

    limits = []
    look(world, [(0, 3, "x"), (1, 5, "y"), (0, 5, "y")], runner=Watching(), task=Slow())
    assert limits == [100.0]


def test_what_was_found_before_is_not_read_again(world):
    """The same wish is known; another one, or other parameters, are read anew."""
    wish = [(0, 3, "x"), (2, 1, "y")]
    look(world, wish)
    same, other, changed = HereRunner(), HereRunner(), HereRunner()
    look(world, wish, runner=same)
    look(world, [*wish, (2, 2, "z")], runner=other)
    look(world, wish, runner=changed, task=Looker(factor=2))
    assert (len(same.ran), len(other.ran), len(changed.ran)) == (0, 1, 2)


def test_a_shard_that_changed_meanwhile_is_lost_by_name(world):
    """What is read a second time has to be what was read first."""
    (world.folder / "c.jsonl").write_text('{"text": "other"}\n' * 50)
    with pytest.raises(PartsLostError) as caught:
        look(world, [(2, 1, "y")])
    assert str(caught.value) == "1 part could not be read a second time, the first of c.jsonl: changed_while_read"
    assert set(caught.value.lost.values()) == {(Reason.CHANGED, "")}


def test_another_file_of_the_same_bytes_stands_in(world):
    """When one of two equal files is gone, the other is read."""
    (world.folder / "a.jsonl").unlink()
    found = look(world, [(0, 3, "x")])
    assert found.table("seen", SEEN).num_rows == 2


def test_damaged_results_are_told_of(world):
    """A cut entry is removed, so that the next round reads again."""
    look(world, [(0, 3, "x")])
    (found,) = entries(world.store.root, "visit-looker")
    flip(found)
    with pytest.raises(DamagedEntryError):
        look(world, [(0, 3, "x")])
    assert len(look(world, [(0, 3, "x")]).parts) == 2


def test_families_share_a_reading(world):
    """Two families that ask in the same round cost one reading of a part; each gets its own answer."""
    runner = HereRunner()

    def again(requests):
        return run_second_pass(requests, world.shards, world.settings, services(world.store, runner))

    def family(row, rounds):
        seen = []
        for turn in range(rounds):
            wanted = pa.table({"shard": pa.array([2], pa.int32()), "row": [row + turn], "note": ["n"]})
            (found,) = yield [SecondPassRequest(task=Looker(), wanted=wanted)]
            seen += found.table("seen", SEEN)["words"].to_pylist()
        return LinkResult(warnings=[str(seen)])

    families = {"one": family(1, 1), "two": family(2, 2), "none": family(0, 0)}
    found = run_link_steps(families, again)
    assert [one.warnings for one in found.values()] == [["[52]"], ["[53, 54]"], ["[]"]]
    assert len(runner.ran) == 2


SCHEMA = pa.schema([("key", pa.binary(8)), ("row", pa.int64()), ("values", pa.large_list(pa.uint64()))])
KEYS = st.one_of(st.binary(min_size=8, max_size=8), st.sampled_from([b"\0" * 8, b"\xff" * 8, b"ab" + b"\0" * 6]))

ONE_ROW_GROUP = r"""
import re, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from dataaudit.scan.annotators import Words
from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.readers import Part, ReadRequest
from dataaudit.scan.corpus.storage.files import stat_file
from dataaudit.engine.store_entries import entry_item
from dataaudit.engine.store import PartialStore
from dataaudit.engine.runner import WANTED, ScanSettings, SecondPassUnit
from dataaudit.engine.second_pass import Again
from dataaudit.metrics.near_dup.verification import NearSets
from dataaudit.metrics.repeats.windows import RepeatWindows

folder = Path(sys.argv[1])
store = PartialStore(folder / "state")
settings = ScanSettings(state=store.root, stages=(), annotators=(Words(),))

def most():  # of this process: that of the resource module begins with what its parent had
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) >> 10

def peak(megabytes):
    path, number = folder / f"{megabytes}.parquet", megabytes * 1000
    rows = pa.array(range(number))
    sets = pa.table({"row": rows, "partition": pa.array(np.zeros(number), pa.int16())})
    windows = pa.table({"row": rows, "position": pa.array(np.zeros(number), pa.int64()),
                        "windows": pa.array(np.full(number, 90), pa.int64())})
    tasks = []
    for digit, (task, wanted) in enumerate([(NearSets(ngram=5), sets), (RepeatWindows(), windows)]):
        key = f"{megabytes:03d}{digit}".ljust(64, "0")
        store.write_items([entry_item(WANTED, key, {}, {WANTED: wanted})])
        store.packs.refresh()
        tasks.append((task, key, store.address(WANTED, key)))
    fields = FieldRule(text="text", source_column=None, source_constant="s", max_record_bytes=1 << 20)
    name, stat = str(path), stat_file(str(path))
    request = ReadRequest(
        path=name, format="parquet", compression="none", part=Part(0, 1), fields=fields, batch_bytes=1 << 22
    )
    unit = SecondPassUnit(request=request, stat=stat, sha256="", reading_key="", tasks=tuple(tasks), size=1)
    before = most()
    outcome = Again(settings)(unit)
    assert outcome.reason is None and not outcome.damaged, outcome
    return most() - before

print(*map(peak, map(int, sys.argv[2:])))
"""


def rows_of(table):
    """Return a table as tuples, by key and row."""
    return sorted(tuple(map(str, row.values())) for row in table.to_pylist())


@given(
    keys=st.lists(KEYS, min_size=1, max_size=60),
    cut=st.integers(1, 20),
    run=st.integers(1, 800),
    byte=st.integers(0, 255),
)
def test_runs_hold_the_rows_that_one_file_would(keys, cut, run, byte, tmp_path_factory):
    """Every range of first bytes has the same rows; rows of one key stand in the order of documents."""
    folder = tmp_path_factory.mktemp("runs")
    values = [[number] * (number % 3) for number in range(len(keys))]
    table = pa.table([keys, range(len(keys)), values], schema=SCHEMA)
    tables = [table.slice(start, cut) for start in range(0, len(keys), cut)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_task, "RUN_BYTES", run)
        runs = KeyedRuns(SCHEMA, folder)
        for one in tables:
            runs.add(one)
    write_keyed(folder / "kind" / "ab" / "one", tables, SCHEMA)
    if not runs.are_many:
        assert sum(one.num_rows for one in runs.few) == len(keys)
        return
    runs.write(folder / "kind" / "ab" / "runs")
    for start, stop in ((0, NUM_BYTES), (byte, byte + 1), (0, byte), (byte, NUM_BYTES)):
        one, many = (read_keyed(folder / "kind" / "ab" / name, start, stop) for name in ("one", "runs"))
        assert rows_of(one) == rows_of(many)
    numbers = {}
    for key, row in zip(many["key"].to_pylist(), many["row"].to_pylist(), strict=True):
        assert numbers.setdefault(key, -1) < row
        numbers[key] = row


def test_damage_to_a_run_is_found(tmp_path, monkeypatch):
    """One flipped byte, and no file without a name is left behind."""
    monkeypatch.setattr(running_task, "RUN_BYTES", 1)
    runs = KeyedRuns(SCHEMA, tmp_path)
    for row in range(3):
        runs.add(pa.table([[b"abcdefgh"], [row], [[row]]], schema=SCHEMA))
    path = tmp_path / "kind" / "ab" / "rows"
    runs.write(path)
    assert [one.name for one in tmp_path.iterdir()] == ["kind"]
    data = bytearray(path.read_bytes())
    data[-80] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFileError):
        read_keyed(path, 0, NUM_BYTES)


@pytest.mark.stores
def test_memory_does_not_grow_with_a_row_group(tmp_path):
    """Two tasks ask for all of a row group: with 100 MB of text it takes hardly more than with 40."""
    text = " ".join(map(str, np.random.default_rng(0).integers(10**5, 10**6, 142)))
    for megabytes in (40, 100):
        texts = [f"{number:07d} {text}" for number in range(megabytes * 1000)]
        pq.write_table(pa.table({"text": texts}), tmp_path / f"{megabytes}.parquet", row_group_size=len(texts))
    call = [sys.executable, "-c", ONE_ROW_GROUP, str(tmp_path), "40", "100"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) < 100  # 800 and more while all was held
