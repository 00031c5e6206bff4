"""What was found in parts, put together: against rows that are put together one by one."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.scan.cross_shard import step as module
from dataaudit.scan.cross_shard.step import SecondPassPart, SecondPassResult

SEEN = pa.schema([("row", pa.int64()), ("note", pa.string())])
WHOLE = pa.schema([("note", pa.string()), ("shard", pa.int32()), ("row", pa.int64())])
TOTALS = pa.schema([("total", pa.int64())])
BY_SHARD = pa.schema([("shard", pa.int32()), *TOTALS])
ROWS = st.lists(st.tuples(st.integers(0, 9), st.none() | st.text(max_size=3)), max_size=4)
PARTS = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 3), st.integers(0, 2**40), ROWS, st.lists(st.integers(0, 9))),
    max_size=9,
)


def part(number, shard, split, first_row, rows, totals):
    """Return one part's results."""
    seen = pa.Table.from_pylist([{"row": row, "note": note} for row, note in rows], schema=SEEN)
    tables = {"seen": seen, "totals": pa.table([totals], schema=TOTALS)}
    return SecondPassPart(shard=shard, split=split, first_row=first_row, key=f"key {number}", tables=tables)


@pytest.mark.parametrize("pieces", [1, 2, 1024])
@given(given_parts=PARTS)
def test_tables_and_files_are_those_of_the_parts_one_by_one(pieces, given_parts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECES", pieces)
        found = SecondPassResult.of(
            "kind", (part(number, *given_part) for number, given_part in enumerate(given_parts))
        )
    rows = [
        {"note": note, "shard": shard, "row": first_row + row}
        for shard, _, first_row, rows, _ in given_parts
        for row, note in rows
    ]
    assert found.table("seen", WHOLE).to_pylist() == rows
    assert found.table("seen", WHOLE).schema == WHOLE
    totals = [{"shard": shard, "total": total} for shard, _, _, _, totals in given_parts for total in totals]
    assert found.table("totals", BY_SHARD).to_pylist() == totals
    assert [
        (file.kind, file.key, file.name, file.shard, file.split, file.first_row) for file in found.files("rows")
    ] == [
        ("kind", f"key {number}", "rows", shard, split, first_row)
        for number, (shard, split, first_row, _, _) in enumerate(given_parts)
    ]
    assert len(found.parts) == len(given_parts)
