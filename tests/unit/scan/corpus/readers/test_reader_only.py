"""Reading some records of a part: these come as they do among all, whatever else is left out."""

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.loss import LossLog
from dataaudit.scan.corpus.readers import PartStats, ReadRequest, plan_parts, read_part
from dataaudit.scan.corpus.shards import format_of

FIELDS = FieldRule(text="text", source_column=None, source_constant="all", max_record_bytes=1 << 20)


def write(path):
    """Write 60 records, one of them bad where the format allows it; return the path."""
    rows = [{"text": f"document {number}"} for number in range(60)]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, pa.schema([("text", pa.string())])) as writer:
            writer.write_table(pa.Table.from_pylist(rows), max_chunksize=7)
    elif path.suffix == ".txt":
        path.write_text("".join(f"document {number}\n" for number in range(60)))
    else:
        lines = [orjson.dumps(row) for row in rows]
        lines[5] = b"{broken"
        path.write_bytes(b"\n\n".join(lines) + b"\n")
    return path


def read(path, only):
    """Return {row: text} over all parts, asking for some rows of the first part only."""
    format_, compression = format_of(str(path))
    part = plan_parts(str(path), format_, compression, path.stat().st_size, 1 << 20, "line")[0]
    fields = FIELDS if path.suffix != ".txt" else FieldRule(**{**_values(FIELDS), "text_document": "line"})
    request = ReadRequest(
        path=str(path), format=format_, compression=compression, part=part, fields=fields, batch_bytes=64, only=only
    )
    batches = list(read_part(request, LossLog(), PartStats()))
    return {
        row: text for batch in batches for row, text in zip(batch.rows.tolist(), batch.texts.to_pylist(), strict=True)
    }


def _values(rule):
    return {name: getattr(rule, name) for name in rule.__dataclass_fields__}


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.arrow", "a.txt"])
@pytest.mark.parametrize("only", [{0}, {59}, {4, 6}, {13, 14, 27}, {3, 40, 58}, set(range(60))])
def test_wanted_records_are_there_as_among_all(tmp_path, name, only):
    """Rows keep their numbers, also after a bad record and blank lines."""
    path = write(tmp_path / name)
    every = read(path, None)
    some = read(path, np.array(sorted(only)))
    wanted = {row: text for row, text in every.items() if row in only}
    assert {row: some[row] for row in wanted} == wanted
    assert some.items() <= every.items()


def test_lines_that_nobody_wants_are_not_parsed(tmp_path):
    """Nothing but what was asked for comes out of JSON lines, and what is after the last is not read."""
    path = write(tmp_path / "a.jsonl")
    assert read(path, np.array([7, 9])) == {7: "document 7", 9: "document 9"}
    assert read(path, np.array([], dtype=np.int64)) == {}


@pytest.mark.parametrize("wanted", [[0], [8], [3, 4, 5], [0, 7, 13, 59]])
def test_row_groups_that_nobody_wants_are_not_read(tmp_path, wanted):
    """A group of seven rows comes as a whole, the others not at all, but counted."""
    path = write(tmp_path / "a.parquet")
    rows = {row for number in wanted for row in range(number // 7 * 7, min(number // 7 * 7 + 7, 60))}
    assert read(path, np.array(wanted)) == {row: f"document {row}" for row in rows}
