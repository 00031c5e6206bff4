"""Files of a manifest as bytes: what ``run.files`` holds, and opening nothing that is no file.

Digests of tables are over rows, so that the id does not depend on how Parquet stores them. Other programs believe more
than rows: DuckDB passes over row groups by the statistics in the footer. So every file of a table, and every file of
a manifest's folders, has its size and the sha256 of its bytes in ``run.files``, from format 2 on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from dataaudit.base.files import expect_regular
from dataaudit.manifest.core import FileRecord
from dataaudit.manifest.tables import TABLES

FOLDERS = ("repeat_index", "signatures")
"""Folders that a manifest may have: what is too large for a table. A table may hold digests of their files."""
_PIECE_BYTES = 1 << 20


def table_file(name: str) -> str:
    """Return the name of a table's file."""
    return f"{name}.parquet"


def open_file(path: Path) -> pa.OSFile:
    """Open a file for reading. What is no file is not opened: a pipe would keep its reader waiting for ever.

    The file is Arrow's own. One of Python's could be let go last by a thread of Arrow's, which ends the process by
    abort when Python is ending too.
    """
    expect_regular(path)
    return pa.OSFile(os.fsencode(path))


def file_record(file: pa.NativeFile) -> FileRecord:
    """Return size and sha256 of an open file, read from its beginning; it stands at its beginning afterwards."""
    file.seek(0)
    state, size = hashlib.sha256(), 0
    while piece := file.read_buffer(_PIECE_BYTES):
        state.update(piece)
        size += piece.size
    file.seek(0)
    return FileRecord(size=size, sha256=state.hexdigest())


def file_records(folder: Path) -> dict[str, FileRecord]:
    """Return size and sha256 of every file of a manifest but its pointer, by its path below the manifest's folder."""
    records = {}
    for name in sorted([*(table_file(name) for name in TABLES), *files_below(folder)]):
        with open_file(folder / name) as file:
            records[name] = file_record(file)
    return records


def files_below(folder: Path) -> Iterator[str]:
    """Yield whatever lies in the folders of a manifest and is no folder itself: ``signatures/0000000.parquet``, ..."""
    for name in FOLDERS:
        for above, _, names in os.walk(folder / name):
            yield from ((Path(above) / item).relative_to(folder).as_posix() for item in names)
