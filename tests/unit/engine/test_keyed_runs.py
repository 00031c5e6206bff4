"""What second readings find goes to disk in runs: the same rows for every cut, and memory that does not grow."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.base.files import DamagedFileError
from dataaudit.engine import second_pass as running_task
from dataaudit.engine.second_pass import KeyedRuns
from dataaudit.scan.link.keyed import NUM_BYTES, read_keyed, write_keyed

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
from dataaudit.engine.store_entries import (entry_item)
from dataaudit.engine.store import (PartialStore)
from dataaudit.engine.runner import WANTED, ScanSettings, SecondPassUnit
from dataaudit.engine.second_pass import read_again
from dataaudit.metrics.near_dup.verify import NearSets
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
    outcome = read_again(unit, settings)
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
