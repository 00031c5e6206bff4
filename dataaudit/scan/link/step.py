"""A link step: what joins the documents of different shards, and may ask for some of them to be read again.

It is a generator. It yields the requests that it has, and is sent what was found, until it returns what it found out;
all link steps advance together, so that one ordered second read of the shards serves every one of them.

What link steps and the driver see of the partials of all shards: few tables by shard, sums of some by split.

The second pass: what looks again at documents that a link step asked for, and what it finds in them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.config import AuditConfig
from dataaudit.manifest.metric import Metric
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.protected.index import IndexFile, ProtectedIndex
from dataaudit.scan.corpus.shards import Shard
from dataaudit.scan.corpus.tokens import TokenBatch
from dataaudit.scan.detectors import ContentModels
from dataaudit.scan.link.joins import Join, JoinedParts, KeyedFile, KeyedFiles
from dataaudit.scan.stages.base import Stage
from dataaudit.scan.stages.partial import OTHER

Place = tuple[str, str]
"""Names of a stage and of a table of its partials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Tables of partials of all shards that were read, as far as a family's definition names them."""

    by_shard: Mapping[Place, pa.Table] = field(default_factory=dict)
    """The rows of each shard, by shard, before them the column ``shard``, int32."""
    by_split: Mapping[Place, pa.Table] = field(default_factory=dict)
    """The rows of each split merged, by split, before them the column ``split``."""

    def total(self, stage: str, table: str, column: str) -> int:
        """Return the sum of a column over all splits."""
        return int(pc.sum(self.by_split[stage, table][column]).as_py() or 0)

    def source_totals(self) -> dict[str, int]:
        """Return the tokens of each source."""
        table = self.by_split["volume", "volume"].group_by("source", use_threads=False).aggregate([("tokens", "sum")])
        return dict(zip(table["source"].to_pylist(), table["tokens_sum"].to_pylist(), strict=True))


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
        """Return a table for each name, always the same names; they are joined over the batches of a part."""
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
        """Return a table over all parts, with the column ``shard``, and ``row`` counted in whole shards."""
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


@dataclass(slots=True, kw_only=True)
class LinkResult:
    """What a family found out."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    """Rows for tables of the manifest, by name."""
    metrics: list[Metric] = field(default_factory=list)
    """Records beside those of its stage."""
    extra: dict[str, pa.Table] = field(default_factory=dict)
    """What is added to the partials of its stage, by table: ``shard`` int32 and columns of the table; sums that are
    left out are 0."""
    columns: pa.Table | None = None
    """Columns of the table of shards, before them ``shard``, int64: the ordinals of those that have them."""
    folders: dict[str, Callable[[Path], None]] = field(default_factory=dict)
    """What fills a folder of the manifest, by the folder's name."""
    warnings: list[str] = field(default_factory=list)
    """What the user should be told."""


LinkStep = Generator[Sequence[SecondPassRequest], list[SecondPassResult], LinkResult]


class DamagedEntryError(Exception):
    """Stored results are absent or damaged; they were removed, and have to be computed once more.

    Args:
        names: ``kind/key`` of each.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}")
        self.names = tuple(names)


class Store(Protocol):
    """Where keyed rows and small results are kept, by the digest of what decides them."""

    def side_path(self, kind: str, key: str, name: str = "rows") -> Path:
        """Return where rows of a name are to be written, beside an entry with a file of its own."""
        ...

    def address(self, kind: str, key: str, name: str = "") -> str:
        """Return the address of an entry, or of its rows of a name, as it is read."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """Make an error of the disk one of the state folder, while something is written."""
        ...

    def has(self, kind: str, key: str) -> bool:
        """Return whether there is an entry."""
        ...

    def write(self, kind: str, key: str, meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Write an entry: a small JSON value and some tables."""
        ...

    def write_rows(self, kind: str, key: str, data: bytes, name: str = "rows") -> None:
        """Write an entry's rows of a name, as bytes."""
        ...

    def read_rows(self, kind: str, key: str, name: str = "rows") -> pa.Buffer | None:
        """Return what was written, or None when it is absent or damaged."""
        ...

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry with its rows."""
        ...


class LinkShard(Protocol):
    """One shard, as link steps see it."""

    @property
    def ordinal(self) -> int:
        """Return its row in the table of shards."""
        ...

    @property
    def split(self) -> str:
        """Return its split."""
        ...

    @property
    def partials(self) -> Collection[str]:
        """Return the names of the stages whose partials it has; none when the shard was not read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFacts:
    """What is known of an evaluation set beside its items."""

    name: str
    """As in the config."""
    ids: Sequence[str]
    """Name of every item, in order; repeated items too."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Records that gave no item, by reason."""
    sha256: str = ""
    """Digest of the items, hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """What is protected, and where its index lies."""

    file: IndexFile
    index: ProtectedIndex
    sets: tuple[SetFacts, ...]
    """Evaluation sets, by name."""
    shards: tuple[Shard, ...]
    """Held-out shards, in the manifest's order: the index names a shard by its place among them."""


class LinkContext(Protocol):
    """What a link step works with."""

    @property
    def stage(self) -> Stage:
        """Return the stage that emitted the rows."""
        ...

    @property
    def shards(self) -> Sequence[LinkShard]:
        """Return all shards, in order."""
        ...

    @property
    def config(self) -> AuditConfig:
        """Return the config of the build."""
        ...

    @property
    def store(self) -> Store:
        """Return where keyed rows are."""
        ...

    @property
    def content(self) -> ContentModels:
        """Return what judges documents."""
        ...

    @property
    def protected(self) -> Protected | None:
        """Return what is protected, when a stage looks for it."""
        ...

    @property
    def older(self) -> Path | None:
        """Return the folder of the reference manifest."""
        ...

    @property
    def survey(self) -> Survey:
        """Return what is seen of the partials of all shards."""
        ...

    def read(self) -> Iterator[LinkShard]:
        """Yield the shards that the stage has looked at."""
        ...

    def tokenizer(self) -> str:
        """Return the digest of what decides tokens, which keeps what is counted with different ones apart."""
        ...

    def files(self, *names: str) -> KeyedFiles:
        """Return the keyed rows of names that the stage emitted, for every part of every shard that was read."""
        ...

    def join(self, join: Join) -> JoinedParts:
        """Join keyed rows, on the workers."""
        ...


def kept_sources(survey: Survey, max_sources: int) -> pa.Array | None:
    """Return the ``max_sources`` largest sources of all shards, or None when there are no more."""
    return largest_sources(survey.source_totals(), max_sources)


def folded_totals(totals: Mapping[str, int], kept: pa.Array) -> dict[str, int]:
    """Return the tokens of the sources that are kept, and of ``other``, which stands for the rest."""
    names, folded = frozenset(kept.to_pylist()), dict[str, int]()
    for name, tokens in totals.items():
        place = name if name in names else OTHER
        folded[place] = folded.get(place, 0) + tokens
    return folded


def largest_sources(totals: Mapping[str, int], max_sources: int) -> pa.Array | None:
    """Return the ``max_sources`` largest sources (by tokens, then name), or None when there are no more."""
    if len(totals) <= max_sources:
        return None
    ranked = sorted(totals, key=lambda name: (-totals[name], name))
    return pa.array(ranked[:max_sources], pa.string())
