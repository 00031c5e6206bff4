"""On a worker: the documents of a part that tasks want to see again, and what each finds in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dataaudit.annotators.base import Annotators
from dataaudit.corpus.batch import DocBatch
from dataaudit.engine.keyed_runs import KeyedRuns
from dataaudit.engine.packs import Item
from dataaudit.engine.store import PartialStore, entry_item, keyed_item
from dataaudit.engine.units import task_kind
from dataaudit.link.second_pass import Encode, SecondPassTask


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
        """Yield what is stored of what it found; keyed rows that are many are written here, to files of their own.

        Raises:
            StateFolderError: They cannot be written.
        """
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
