"""Keyed rows that come in pieces: few stay in memory, many go to disk in sorted runs, and are one file in the end.

What a second reading finds may be larger than the texts that it reads: the shingles of a row group of any size. The
rows of one first byte stand run by run in that file; within a run they are sorted as in :mod:`dataaudit.link.keyed`.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from dataaudit.atomic import replacing
from dataaudit.engine.state_folder import writing
from dataaudit.link.keyed import KeyedBlock, keyed_blocks, keyed_head
from dataaudit.link.stored import Stored

RUN_BYTES = 1 << 25
"""Rows of a run: sorting them takes some three times as much."""


class KeyedRuns:
    """The keyed rows of one name.

    Args:
        schema: Its first column is a fixed-size binary key.
        folder: Where runs lie, in a file without a name: they are gone with the process, however it ends.
    """

    def __init__(self, schema: pa.Schema, folder: Path) -> None:
        self.schema, self._folder = schema, folder
        self.few: list[pa.Table] = []
        """Rows that are in no run."""
        self._bytes = 0
        self._blocks: list[tuple[KeyedBlock, int]] = []
        """Of all runs, each with where it lies."""
        self._file: BinaryIO | None = None

    @property
    def are_many(self) -> bool:
        """Whether there are runs, so that :meth:`write` is to be called."""
        return bool(self._blocks)

    def add(self, table: pa.Table) -> None:
        """Take more rows; of one key they come in the order of their second column.

        Raises:
            StateFolderError: The folder cannot be written.
        """
        self.few.append(table)
        self._bytes += table.nbytes
        if self._bytes >= RUN_BYTES:
            self._end_run()

    def _end_run(self) -> None:
        with writing(self._folder):
            if self._file is None:
                descriptor, name = tempfile.mkstemp(dir=self._folder)
                os.unlink(name)
                self._file = os.fdopen(descriptor, "w+b")
                weakref.finalize(self, self._file.close)
            for block, body in keyed_blocks(self.few, self.schema):
                self._blocks.append((block, self._file.tell()))
                self._file.write(body)
        self.few, self._bytes = [], 0

    def write(self, path: Path) -> None:
        """Write all rows to a file, as :func:`dataaudit.link.keyed.write_keyed` does, a block of a run at a time.

        Raises:
            StateFolderError: It cannot be written.
        """
        self._end_run()
        assert self._file is not None, "a run was written"
        ordered = sorted(self._blocks, key=lambda one: one[0].first)
        with writing(self._folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(keyed_head(Stored.at(path).name, self.schema, [block for block, _ in ordered]))
                for block, offset in ordered:
                    self._file.seek(offset)
                    file.write(self._file.read(block.size))
