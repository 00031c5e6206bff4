"""The second pass: what looks again at documents that a link step asked for, and what it finds in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.corpus.tokens import TokenBatch
from dataaudit.link.joins import KeyedFile

Encode = Callable[[pa.LargeStringArray], TokenBatch]
"""Encodes texts with the tokenizer of the build."""


@runtime_checkable
class SecondPassTask(Protocol):
    """A frozen, picklable dataclass of plain JSON parameters, unless it is :class:`Decided`.

    No I/O but the loading of a model, no clock, no unseeded randomness.
    """

    name: ClassVar[str]
    """Name in the partial store."""
    version: ClassVar[str]
    """Changes whenever the same documents may give another result."""
    needs: ClassVar[tuple[Annotation[Any], ...]]
    """What it looks at of documents beside their texts."""
    emits: ClassVar[Mapping[str, pa.Schema]]
    """Schemas of the results that are keyed rows for a further join; all other results are small tables."""

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return a table for each name, always the same names; they are joined over the batches of a part.

        Args:
            batch: Documents of one part that were asked for, in order; ``rows`` counts from the part's first record.
            wanted: What was asked of them: ``row`` int64, ascending, each at least once, and columns of its own.
            encode: Encodes texts.
        """
        ...


@runtime_checkable
class Decided(Protocol):
    """A task whose fields are no plain JSON, or do not all decide what it finds."""

    def decisive(self) -> dict[str, Any]:
        """Return what decides what it finds, as plain JSON values."""
        ...


@runtime_checkable
class Slow(Protocol):
    """A task that takes longer than reading does."""

    seconds: ClassVar[float]
    """Time that it may take for a document on the mean; a part that takes longer counts as stuck."""


def identity_of(task: SecondPassTask) -> dict[str, Any]:
    """Return what decides what a task finds, as plain JSON values."""
    return task.decisive() if isinstance(task, Decided) else asdict(cast("Any", task))


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassRequest:
    """A task and the documents that it wants to see."""

    task: SecondPassTask
    wanted: pa.Table
    """``shard`` int32, ``row`` int64 (of the shard), and columns of the task's own; in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassPart:
    """What a task found in a part of a shard."""

    shard: int
    split: int
    first_row: int
    key: str
    tables: Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassResult:
    """What a task found, in order of shards and parts."""

    kind: str
    parts: tuple[SecondPassPart, ...]

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        """Return a table over all parts, with the columns ``shard`` and ``row`` of whole shards before its own.

        Args:
            name: Of the task's table; it has a column ``row``, counted within the part.
            schema: Of the result.
        """
        pieces = [schema.empty_table()]
        for part in self.parts:
            table = part.tables[name]
            rows = pc.add(table["row"], pa.scalar(part.first_row, pa.int64()))
            shards = pa.array(np.full(table.num_rows, part.shard, dtype=np.int32))
            table = table.set_column(table.schema.get_field_index("row"), "row", rows).append_column("shard", shards)
            pieces.append(table.select(schema.names).cast(schema))
        return pa.concat_tables(pieces)

    def files(self, name: str) -> list[KeyedFile]:
        """Return the keyed rows of a name for a further join."""
        return [
            KeyedFile(
                kind=self.kind, key=part.key, name=name, shard=part.shard, split=part.split, first_row=part.first_row
            )
            for part in self.parts
        ]
