"""The second pass: what looks again at documents that a link step asked for, and what it finds in them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
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


_PART = np.dtype([("shard", "<i4"), ("split", "<i4"), ("first_row", "<i8")])
_PIECES = 1024
"""Tables that are put in one piece: each of many small ones costs more than its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassResult:
    """What a task found, in order of shards and parts: rows of all parts together, for there may be a million."""

    kind: str
    parts: np.ndarray
    """Of each part its shard, split and first record."""
    keys: pa.StringArray
    """Of the results of each."""
    tables: Mapping[str, tuple[pa.Table, np.ndarray]]
    """By name the rows of all parts, and int64[k] how many are of each."""

    @classmethod
    def of(cls, kind: str, parts: Iterable[SecondPassPart]) -> SecondPassResult:
        """Put together what was found in parts, in their order; none is held as an object."""
        places, keys, pieces, sizes = array("q"), [pa.array([], pa.string())], dict[str, list[pa.Table]](), array("q")
        names: tuple[str, ...] = ()
        for some in _by_many(parts):
            keys.append(pa.array([part.key for part in some], pa.string()))
            names = tuple(some[0].tables)
            for part in some:
                places.extend((part.shard, part.split, part.first_row))
                sizes.extend(part.tables[name].num_rows for name in names)
            for name in names:
                pieces.setdefault(name, []).append(_in_one([part.tables[name] for part in some]))
        found = np.frombuffer(places, np.int64).reshape(-1, 3)
        columns = np.frombuffer(sizes, np.int64).reshape(len(found), len(names))
        return cls(
            kind=kind,
            parts=np.rec.fromarrays(found.T, dtype=_PART),
            keys=pa.concat_arrays(keys),
            tables={name: (_in_one(pieces[name]), columns[:, place]) for place, name in enumerate(names)},
        )

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        """Return a table over all parts, with the column ``shard``, and ``row`` counted in whole shards.

        Args:
            name: Of the task's table; in its column ``row``, if it has one, rows are counted within the part.
            schema: Of the result.
        """
        if name not in self.tables:
            return schema.empty_table()
        table, sizes = self.tables[name]
        if "row" in table.column_names:
            rows = pc.add(table["row"], pa.array(np.repeat(self.parts["first_row"], sizes)))
            table = table.set_column(table.schema.get_field_index("row"), "row", rows)
        table = table.append_column("shard", pa.array(np.repeat(self.parts["shard"], sizes)))
        return table.select(schema.names).cast(schema)

    def files(self, name: str) -> list[KeyedFile]:
        """Return the keyed rows of a name for a further join."""
        return [
            KeyedFile(kind=self.kind, key=key, name=name, shard=shard, split=split, first_row=first_row)
            for key, (shard, split, first_row) in zip(self.keys.to_pylist(), self.parts.tolist(), strict=True)
        ]


def _by_many(parts: Iterable[SecondPassPart]) -> Iterator[list[SecondPassPart]]:
    left = iter(parts)
    while some := list(islice(left, _PIECES)):
        yield some


def _in_one(pieces: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(pieces, promote_options="permissive").combine_chunks()
