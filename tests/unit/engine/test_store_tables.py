"""A table on disk: what was written, in any pieces, and the file of Parquet that the table in memory gives."""

import io
import os

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.engine import store_columns
from dataaudit.engine.store_columns import TableWriter
from dataaudit.manifest import publish
from dataaudit.manifest.canonical import digest_table, list_items
from dataaudit.manifest.publish import write_table

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int32(), nullable=False),
        ("ratio", pa.float64()),
        ("text", pa.string()),
        ("pairs", pa.list_(pa.struct([("name", pa.string()), ("count", pa.int64())]))),
        ("struct", pa.struct([("deep", pa.list_(pa.list_(pa.int16())))])),
    ]
)
PAIRS = st.fixed_dictionaries({"name": st.none() | st.text(max_size=3), "count": st.none() | st.integers(0, 9)})
ROWS = st.fixed_dictionaries(
    {
        "number": st.integers(-9, 9),
        "ratio": st.none() | st.floats(0, 1),
        "text": st.none() | st.text(max_size=5),
        "pairs": st.none() | st.lists(st.none() | PAIRS, max_size=3),
        "struct": st.none()
        | st.fixed_dictionaries({"deep": st.lists(st.none() | st.lists(st.integers(0, 9), max_size=2), max_size=3)}),
    }
)


def written(folder, tables):
    """Return the table on disk of some tables."""
    writer = TableWriter(folder, SCHEMA)
    for table in tables:
        writer.append(table)
    return writer.done()


def parquet(table):
    """Return a file of Parquet."""
    file = io.BytesIO()
    write_table(file, table, table.schema)
    return file.getvalue()


@given(st.lists(st.lists(ROWS, max_size=5), max_size=5), st.integers(1, 4), st.integers(1, 3))
def test_the_table_is_what_was_written(tmp_path_factory, pieces, rows, groups):
    """Whatever is null, however rows come, and however many are written at a time."""
    whole = pa.Table.from_pylist([row for piece in pieces for row in piece], schema=SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_columns, "_PIECE_ROWS", rows)
        patch.setattr(store_columns, "GROUP_ROWS", rows * groups)
        patch.setattr(publish, "GROUP_ROWS", rows * groups)
        tables = [pa.Table.from_pylist(piece, schema=SCHEMA) for piece in pieces]
        found = written(tmp_path_factory.getbasetemp(), tables)
        found.validate(full=True)
        assert found == whole
        assert found.schema == SCHEMA
        assert all(len(chunk) == rows * groups for chunk in found["number"].chunks[:-1])
        assert digest_table(found) == digest_table(whole)
        assert parquet(found) == parquet(whole) == parquet(pa.concat_tables([SCHEMA.empty_table(), *tables]))


def test_slices_and_hidden_values_are_written_as_what_they_stand_for(tmp_path):
    """Of a part of a table only that part; what lies under a null is nothing."""
    texts = pa.array(["a", "hidden", "bc", "d"])
    hidden = pa.StringArray.from_buffers(4, texts.buffers()[1], texts.buffers()[2], pa.py_buffer(b"\x0d"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 3, 4], pa.int32()), texts)
    nulls = pa.Array.from_buffers(lists.type, 4, [pa.py_buffer(b"\x0d"), lists.buffers()[1]], children=[texts])
    schema = pa.schema([("text", pa.string()), ("list", pa.list_(pa.string()))])
    writer = TableWriter(tmp_path, schema)
    writer.append(pa.table([hidden, nulls], schema=schema).slice(1, 3))
    found = writer.done()
    assert found.to_pydict() == {"text": [None, "bc", "d"], "list": [None, [], ["d"]]}
    assert list_items(nulls).to_pylist() == ["a", "d"]
    assert list_items(lists.slice(1, 3)).to_pylist() == ["hidden", "bc", "d"]
    assert list_items(lists.slice(1, 0)).to_pylist() == []
    assert os.listdir(tmp_path) == []
