"""Files of a manifest as bytes: the records of ``run.files``, which prove that a file has the published bytes.

Digests of tables are over rows, so that the id does not depend on how Parquet stores them. Other programs believe the
footer, too, so every file of a table and of a manifest's folders has its size and sha256 in ``run.files``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from dataaudit.base.files import expect_file
from dataaudit.manifest.core import FileRecord
from dataaudit.manifest.tables import TABLES

FOLDERS = ("repeat_index", "signatures")
"""Folders that a manifest may have: what is too large for a table. A table may hold digests of their files."""
_PIECE_BYTES = 1 << 20


def table_file(name: str) -> str:
    """Return the name of a table's file."""
    return f"{name}.parquet"


def open_file(path: Path) -> pa.OSFile:
    """Open a regular file for reading; a pipe would block for ever.

    The file is Arrow's: a Python file that a thread of Arrow's releases last, at exit, aborts the process.
    """
    expect_file(path)
    return pa.OSFile(os.fsencode(path))


def file_record(file: pa.NativeFile) -> FileRecord:
    """Return size and sha256 of an open file, and rewind it."""
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
    """Yield the files in the folders of a manifest: ``signatures/0000000.parquet``, ..."""
    for name in FOLDERS:
        for above, _, names in os.walk(folder / name):
            yield from ((Path(above) / item).relative_to(folder).as_posix() for item in names)
