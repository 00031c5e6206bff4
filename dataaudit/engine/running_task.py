"""On a worker: the documents of a part that tasks want to see again, and what each finds in them.

Keyed rows that come in pieces: few stay in memory, many go to disk in sorted runs, and are one file in the end.

What a second reading finds may be larger than the texts that it reads: the shingles of a row group of any size. The
rows of one first byte stand run by run in that file; within a run they are sorted as in
:mod:`dataaudit.scan.link.keyed`.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from dataaudit.base.files import replacing
from dataaudit.engine.packs import Item
from dataaudit.engine.state_folder import writing
from dataaudit.engine.store import PartialStore, entry_item, keyed_item
from dataaudit.engine.units import task_kind
from dataaudit.scan.annotators import Annotators
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.link.keyed import KeyedBlock, Stored, keyed_blocks, keyed_head
from dataaudit.scan.link.step import Encode, SecondPassTask

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
        """Take more rows; of one key they come in the order of their second column."""
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
        """Write all rows to a file as :func:`dataaudit.scan.link.keyed.write_keyed` does, block by block."""
        self._end_run()
        assert self._file is not None, "a run was written"
        ordered = sorted(self._blocks, key=lambda item: item[0].first)
        with writing(self._folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(keyed_head(Stored.at(path).name, self.schema, [block for block, _ in ordered]))
                for block, offset in ordered:
                    self._file.seek(offset)
                    file.write(self._file.read(block.size))


@dataclass(slots=True)
class RunningTask:
    """One task on its way through a part."""

    task: SecondPassTask
    key: str
    wanted: pa.Table
    """What it wants, sorted by row."""
    annotators: Annotators
    """What it needs to know of documents."""
    store: PartialStore
    """Where what it found goes."""
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    """Small tables that it found, by name."""
    keyed: dict[str, KeyedRuns] = field(default_factory=dict)
    """Keyed rows that it found, by name."""

    def __post_init__(self) -> None:
        """Nothing is found yet."""
        self.keyed = {name: KeyedRuns(schema, self.store.root) for name, schema in self.task.emits.items()}

    @property
    def rows(self) -> np.ndarray:
        """int64[w] rows that it wants, ascending."""
        rows: np.ndarray = self.wanted["row"].to_numpy()
        return rows

    def see(self, batch: DocBatch, encode: Encode) -> None:
        """Show it those documents of a batch that it wants."""
        rows = self.rows
        own = documents_at(batch, rows)
        if len(own) == 0:
            return
        start, stop = np.searchsorted(rows, [own.rows[0], own.rows[-1] + 1]).tolist()
        shown = self.annotators.look(own) if self.task.needs else own
        for name, table in self.task.run(shown, self.wanted.slice(start, stop - start), encode).items():
            if name in self.keyed:
                self.keyed[name].add(table)
            else:
                self.tables.setdefault(name, []).append(table)

    def items(self) -> Iterator[Item]:
        """Yield what is stored of what it found; keyed rows that are many are written here, to files of their own."""
        kind = task_kind(self.task)
        for name, rows in self.keyed.items():
            if rows.are_many:
                rows.write(self.store.side_path(kind, self.key, name))
            else:
                yield keyed_item(kind, self.key, name, rows.few, rows.schema)
        tables = {name: pa.concat_tables(found).combine_chunks() for name, found in self.tables.items()}
        yield entry_item(kind, self.key, {}, tables)


def documents_at(batch: DocBatch, rows: np.ndarray) -> DocBatch:
    """Return the documents of a batch whose rows are among some ascending ones."""
    if len(rows) == 0 or len(batch) == 0:
        return batch.take(np.zeros(0, dtype=np.int64))
    places = np.minimum(np.searchsorted(rows, batch.rows), len(rows) - 1)
    chosen = np.flatnonzero(rows[places] == batch.rows)
    return batch if len(chosen) == len(batch) else batch.take(chosen)
