"""Parts of a run log: what a kill leaves is read up to the last whole batch; a full disk takes nothing else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dataaudit.runlog.format import TABLES
from dataaudit.runlog.parts import PartHeader, PartWriter, numbers, read_header, read_part

HEADER = PartHeader(attempt=2, first_step=101)


def steps(first: int, count: int) -> pa.RecordBatch:
    """Return rows of the table of steps."""
    values = {
        "step": np.arange(first, first + count),
        "time": np.full(count, 1.5),
        "micro_batches": np.ones(count),
        "targets": np.full(count, 2048),
        "scored": np.full(count, 2048),
        "loss_sum": np.linspace(1, 2, count),
        "user_loss": np.ma.masked_array(np.linspace(3, 4, count), mask=np.arange(count) % 2 == 0),
        "merged": np.zeros(count),
    }
    schema = TABLES["steps"].schema
    return pa.record_batch([numbers(values[one.name], one) for one in schema], schema=schema)


def written(path: Path, batches: int = 3) -> list[int]:
    """Write a part; return its size after its header and after each batch."""
    part = PartWriter(path, "steps", HEADER)
    ends = [path.stat().st_size]
    for index in range(batches):
        part.append(steps(101 + 5 * index, 5))
        ends.append(path.stat().st_size)
    part.close()
    return ends


def test_a_kill_at_every_byte_leaves_the_whole_batches(tmp_path: Path) -> None:
    ends = written(tmp_path / "whole.arrows")
    data = (tmp_path / "whole.arrows").read_bytes()
    path = tmp_path / "cut.arrows"
    expected = pa.concat_tables([pa.Table.from_batches([steps(101 + 5 * one, 5)]) for one in range(3)])
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        part, whole = read_part(path, "steps"), sum(end <= cut for end in ends) - 1
        assert (read_header(path) is not None) == (whole >= 0)
        if whole < 0:
            assert part is None or part.table.num_rows == 0
        else:
            assert part is not None
            assert part.header == HEADER
            assert part.table.equals(expected.slice(0, 5 * whole)), cut
            assert part.torn_bytes == cut - ends[whole], cut


def test_a_disk_that_is_full_in_the_middle_of_a_batch_leaves_the_part_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "part.arrows"
    part = PartWriter(path, "steps", HEADER)
    part.append(steps(101, 5))
    before, write, calls = path.read_bytes(), os.write, []

    def fails(descriptor: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return write(descriptor, data[:7])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("dataaudit.runlog.parts.os.write", fails)
        with pytest.raises(OSError, match="No space left"):
            part.append(steps(106, 5))
    assert path.read_bytes() == before
    part.append(steps(111, 5))
    part.close()
    read = read_part(path, "steps")
    assert read is not None
    assert read.table["step"].to_pylist() == [*range(101, 106), *range(111, 116)]


def test_other_columns_and_other_files_are_no_part(tmp_path: Path) -> None:
    written(tmp_path / "steps.arrows")
    assert read_part(tmp_path / "steps.arrows", "stretches") is None
    for content in (b"", b"\0" * 64, b"text", b"\xff" * 64):
        (tmp_path / "other.arrows").write_bytes(content)
        assert read_part(tmp_path / "other.arrows", "steps") is None
        assert read_header(tmp_path / "other.arrows") is None


def test_a_mask_is_null_and_nan_is_a_value() -> None:
    column = TABLES["steps"].schema.field("user_loss")
    made = numbers(np.ma.masked_array([1.0, 2.0, float("nan")], mask=[False, True, False]), column)
    assert made.null_count == 1
    assert made[1].as_py() is None
    assert made[2].as_py() != made[2].as_py()
