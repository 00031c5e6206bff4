"""Parts of a run log: what a kill leaves is read up to the last whole batch; a full disk takes nothing else."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lanes import thinned

from dataaudit.base.errors import RunLogError
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
    near = {at + off for at in ends for off in (-9, -8, -1, 0, 1, 8)}
    for cut in sorted({*range(0, len(data) + 1, thinned(1, 7)), *near} & {*range(len(data) + 1)}):
        path.write_bytes(data[:cut])
        part, whole = read_part(path, "steps"), sum(end <= cut for end in ends) - 1
        assert (read_header(path) is not None) == (whole >= 0)
        if whole < 0:
            assert part is None or part.table.num_rows == 0
        else:
            assert part is not None
            assert part.header == HEADER
            assert part.table.equals(expected.slice(0, 5 * whole)), cut
            assert part.torn_bytes == (cut - ends[whole] if cut < len(data) else 0), cut


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


@pytest.mark.parametrize("closed", [True, False])
def test_a_flipped_bit_at_every_byte_is_named_or_changes_nothing(tmp_path: Path, *, closed: bool) -> None:
    """Of a part that was closed; of one that a kill left, the last batch may also count as cut off."""
    ends = written(tmp_path / "whole.arrows")
    data, path = (tmp_path / "whole.arrows").read_bytes()[: None if closed else ends[-1]], tmp_path / "flipped.arrows"
    whole = pa.concat_tables([pa.Table.from_batches([steps(101 + 5 * one, 5)]) for one in range(3)])
    named = 0
    for at in range(0, len(data), thinned(1, 5)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << (at * 5 + 3) % 8]) + data[at + 1 :])
        try:
            part = read_part(path, "steps")
        except RunLogError as error:
            named += f"{path} is damaged: the batch from byte " in error.message
            continue
        assert part is not None
        if part.torn_bytes:
            assert at >= ends[-1 if closed else -2], at
        assert part.table.equals(whole.slice(0, 10 if part.torn_bytes and at < ends[-1] else 15)), at
    assert named * thinned(1, 5) > 0.9 * ends[-1 if closed else -2]


def test_what_follows_damage_is_left_out_by_the_command_that_the_message_names(tmp_path: Path) -> None:
    path = tmp_path / "part.arrows"
    ends = written(path)
    data = bytearray(path.read_bytes())
    data[ends[1] + 300] ^= 4
    path.write_bytes(data)
    with pytest.raises(RunLogError, match=f"from byte {ends[1]:,} on") as found:
        read_part(path, "steps")
    command = re.search(r"`(.*?)`", str(found.value.hint))
    assert command is not None
    subprocess.run(command[1].split(), check=True)
    part = read_part(path, "steps")
    assert part is not None
    assert part.table["step"].to_pylist() == list(range(101, 106))


@pytest.mark.parametrize("name", sorted(TABLES))
@pytest.mark.parametrize("closed", [True, False])
def test_a_part_without_checksums_is_refused_by_name(tmp_path: Path, name: str, *, closed: bool) -> None:
    """As before they were written; an open part has them in every whole batch, so nothing lacks them by right."""
    header = {key: value for key, value in HEADER.metadata().items() if key != "checked"}
    schema, path = TABLES[name].schema.with_metadata(header), tmp_path / f"{name}-00000.arrows"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        stream.write_table(schema.empty_table())
        stream.write_batch(pa.record_batch([pa.array([], one.type) for one in schema], schema=schema))
    if not closed:
        os.truncate(path, path.stat().st_size - 8)
    for read in (lambda: read_part(path, name), lambda: read_header(path)):
        with pytest.raises(RunLogError, match=f"{path} has no checksum") as found:
            read()
        assert "`program` in run.json" in str(found.value.hint)
