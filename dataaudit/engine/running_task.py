"""On a worker: the documents of a part that tasks want to see again, and what each finds in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dataaudit.annotators.base import Annotators
from dataaudit.corpus.batch import DocBatch
from dataaudit.engine.packs import Item
from dataaudit.engine.store import entry_item, keyed_item
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
    found: dict[str, list[pa.Table]] = field(default_factory=dict)

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
            self.found.setdefault(name, []).append(table)

    def items(self) -> Iterator[Item]:
        """Yield what is stored of what it found."""
        kind = task_kind(self.task)
        for name, schema in self.task.emits.items():
            yield keyed_item(kind, self.key, name, self.found.get(name, []), schema)
        tables = {
            name: pa.concat_tables(tables).combine_chunks()
            for name, tables in self.found.items()
            if name not in self.task.emits
        }
        yield entry_item(kind, self.key, {}, tables)


def documents_at(batch: DocBatch, rows: np.ndarray) -> DocBatch:
    """Return the documents of a batch whose rows are among some ascending ones."""
    if len(rows) == 0 or len(batch) == 0:
        return batch.take(np.zeros(0, dtype=np.int64))
    places = np.minimum(np.searchsorted(rows, batch.rows), len(rows) - 1)
    chosen = np.flatnonzero(rows[places] == batch.rows)
    return batch if len(chosen) == len(batch) else batch.take(chosen)
