"""Columns on disk: what was written is there, in order, and no file of it is left."""

import os
import resource

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.engine import store_columns as disk_columns
from dataaudit.engine.state_folder import StateFolderError
from dataaudit.engine.store_columns import RowWriter, TextWriter

ROW = np.dtype([("size", "i8"), ("kind", "u1"), ("sha256", "S4")])


@given(st.lists(st.binary(max_size=9)), st.integers(1, 5))
def test_texts_are_what_was_written(tmp_path_factory, texts, buffered):
    """Whatever their lengths, empty ones too, and however they are cut into writes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_columns, "_BUFFERED", buffered)
        patch.setattr(disk_columns, "_CHUNK_BYTES", buffered)
        writer = TextWriter(tmp_path_factory.getbasetemp())
        for text in texts:
            writer.append(text)
        found = writer.done()
    assert list(found) == found[:] == texts
    assert len(found) == len(texts)


def test_rows_stand_in_the_order_in_which_they_were_written(tmp_path, monkeypatch):
    """One by one and many at a time; more than are held."""
    monkeypatch.setattr(disk_columns, "_BUFFERED", 3)
    writer = RowWriter(tmp_path, ROW)
    for number in range(5):
        writer.append((number, number % 2, b"ab"))
    writer.extend(np.array([(-1, 7, b"\0x")], dtype=ROW))
    writer.append((9, 9, b""))
    rows = writer.done()
    assert rows["size"].tolist() == [0, 1, 2, 3, 4, -1, 9]
    assert (rows["kind"][5], rows["sha256"][5]) == (7, b"\0x")
    assert not rows.flags.writeable
    assert os.listdir(tmp_path) == []


def test_none_are_no_file(tmp_path):
    """An empty file cannot be mapped."""
    assert RowWriter(tmp_path, ROW).done().tolist() == []
    assert list(TextWriter(tmp_path).done()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    """Like everything else of the state folder."""
    with pytest.raises(StateFolderError, match="absent cannot be written: No such file"):
        RowWriter(tmp_path / "absent", ROW)


def test_what_is_not_finished_is_closed(tmp_path):
    """An error may come before all is written."""
    writer = RowWriter(tmp_path, ROW)
    file = writer._file
    del writer
    assert file.closed


def test_a_limit_of_the_process_is_said_for_what_it_is(tmp_path):
    """Space would not help."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(StateFolderError, match="Too many open files") as raised:
            RowWriter(tmp_path, ROW)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "ulimit -n" in str(raised.value)
    assert "Free space" not in str(raised.value)


def written(folder, rows):
    """Return so many rows of eight bytes."""
    writer = RowWriter(folder, np.dtype("i8"))
    for number in range(rows):
        writer.append(number)
    return writer.done()


@pytest.mark.parametrize("rows", [200, 5000])
def test_a_full_disk_is_said_whenever_it_shows(tmp_path, rows):
    """Also at the end, of few rows that were held until then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StateFolderError, match="cannot be written: File too large"):
            written(tmp_path, rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
