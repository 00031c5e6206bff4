"""Link steps join the documents of different shards, and may request a second read of some of them.

A link step is a generator: it yields its requests, is sent their results, and returns its tables and metrics. All link
steps advance together, so that a single ordered second pass over the shards serves all of them. This module also has
what a link step gets: the partials of all shards, tasks of the second pass and their results, and the store.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, is_dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.text import some_of
from dataaudit.config import AuditConfig
from dataaudit.manifest.metric import Metric
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.protected.index_file import IndexFile, ProtectedIndex
from dataaudit.scan.corpus.shards import Shard
from dataaudit.scan.corpus.tokens import TokenBatch
from dataaudit.scan.cross_shard.joins import Join, JoinedParts, JoinFunction, KeyedFile, KeyedFiles
from dataaudit.scan.detectors import ContentModels
from dataaudit.scan.stages.base import Stage
from dataaudit.scan.stages.partial import OTHER

Place = tuple[str, str]
"""Names of a stage and of a table of its partials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Partials of all shards that were read, as far as a family's definition names their tables."""

    by_shard: Mapping[Place, pa.Table] = field(default_factory=dict)
    """Rows of all shards, by shard, with the first column ``shard``, int32."""
    by_split: Mapping[Place, pa.Table] = field(default_factory=dict)
    """Rows merged by split, with the first column ``split``."""

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
    """Annotations that it reads beside the texts."""
    emits: ClassVar[Mapping[str, pa.Schema]]
    """Schemas of the results that are keyed rows for a further join; all other results are small tables."""

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return a table for each name, always the same names; they are concatenated over the batches of a part."""


@runtime_checkable
class Decided(Protocol):
    """A task whose fields are no plain JSON, or do not all decide its results."""

    def decisive(self) -> dict[str, Any]:
        """Return the plain JSON values that decide its results."""


@runtime_checkable
class Slow(Protocol):
    """A task that takes longer than reading does."""

    seconds: ClassVar[float]
    """Mean time for a document; a part that takes longer counts as stuck."""


def identity_of(task: SecondPassTask) -> dict[str, Any]:
    """Return the plain JSON values that decide a task's results."""
    return task.decisive() if isinstance(task, Decided) else asdict(cast("Any", task))


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassRequest:
    """A task and the documents that it wants."""

    task: SecondPassTask
    wanted: pa.Table
    """``shard`` int32, ``row`` int64 (of the shard), and columns of the task's own; in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassPart:
    """A task's results of a part of a shard."""

    shard: int
    split: int
    first_row: int
    key: str
    tables: Mapping[str, pa.Table]


_PART = np.dtype([("shard", "<i4"), ("split", "<i4"), ("first_row", "<i8")])
_PIECES = 1024
"""Tables that are joined at once: each of many small tables costs more than its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassResult:
    """A task's results of all parts, in order of shards and parts, as columns: there may be a million parts."""

    kind: str
    parts: np.ndarray
    """Shard, split and first record of each part."""
    keys: pa.StringArray
    """Key of each part's results."""
    tables: Mapping[str, tuple[pa.Table, np.ndarray]]
    """By name the rows of all parts, and int64[k] rows of each part."""

    @classmethod
    def of(cls, kind: str, parts: Iterable[SecondPassPart]) -> SecondPassResult:
        """Join the results of parts, in their order."""
        places, keys, pieces, sizes = array("q"), [pa.array([], pa.string())], dict[str, list[pa.Table]](), array("q")
        names: tuple[str, ...] = ()
        left = iter(parts)
        while some := list(islice(left, _PIECES)):
            keys.append(pa.array([part.key for part in some], pa.string()))
            names = tuple(some[0].tables)
            for part in some:
                places.extend((part.shard, part.split, part.first_row))
                sizes.extend(part.tables[name].num_rows for name in names)
            for name in names:
                pieces.setdefault(name, []).append(_in_one([part.tables[name] for part in some]))
        listed = np.frombuffer(places, np.int64).reshape(-1, 3)
        columns = np.frombuffer(sizes, np.int64).reshape(len(listed), len(names))
        return cls(
            kind=kind,
            parts=np.rec.fromarrays(listed.T, dtype=_PART),
            keys=pa.concat_arrays(keys),
            tables={name: (_in_one(pieces[name]), columns[:, index]) for index, name in enumerate(names)},
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


def _in_one(pieces: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(pieces, promote_options="permissive").combine_chunks()


@dataclass(slots=True, kw_only=True)
class LinkResult:
    """The results of a link step."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    """Rows for tables of the manifest, by name."""
    metrics: list[Metric] = field(default_factory=list)
    """Records beside those of its stage."""
    extra: dict[str, pa.Table] = field(default_factory=dict)
    """Additions to the partials of its stage, by table: ``shard`` int32 and columns of the table; absent sums are 0."""
    columns: pa.Table | None = None
    """Columns of the table of shards, after ``shard``, int64: the ordinals of the shards that have them."""
    folders: dict[str, Callable[[Path], None]] = field(default_factory=dict)
    """Functions that fill a folder of the manifest, by the folder's name."""
    warnings: list[str] = field(default_factory=list)


LinkStep = Generator[Sequence[SecondPassRequest], list[SecondPassResult], LinkResult]


class DamagedEntryError(Exception):
    """Stored results, each named ``kind/key``, are absent or damaged: removed, and to be computed once more."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(some_of(names, 1))
        self.names = tuple(names)


class Store(Protocol):
    """Stores keyed rows and small results by the digest of what decides them."""

    def side_path(self, kind: str, key: str, name: str = "rows") -> Path:
        """Return the path at which to write rows of a name, beside an entry with a file of its own."""

    def address(self, kind: str, key: str, name: str = "") -> str:
        """Return the address at which to read an entry, or its rows of a name."""

    def writing(self) -> AbstractContextManager[None]:
        """Turn errors of the disk into errors of the state folder."""

    def has(self, kind: str, key: str) -> bool:
        """Return whether there is an entry."""

    def write(self, kind: str, key: str, meta: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Write an entry: a small JSON value and some tables."""

    def read_rows(self, kind: str, key: str, name: str = "rows") -> pa.Buffer | None:
        """Return an entry's rows of a name, or None when they are absent or damaged."""

    def remove(self, kind: str, key: str) -> None:
        """Remove an entry with its rows."""


class LinkShard(Protocol):
    """A shard, as link steps see it."""

    @property
    def ordinal(self) -> int:
        """Return its row in the table of shards."""

    @property
    def split(self) -> str:
        """Return its split."""

    @property
    def partials(self) -> Collection[str]:
        """Return the names of the stages whose partials it has; none when the shard was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFacts:
    """An evaluation set without its items."""

    name: str
    ids: Sequence[str]
    """Name of every item, in order; repeated items too."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Records that gave no item, by reason."""
    sha256: str = ""
    """Digest of the items, hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """Evaluation sets and held-out shards, and their index."""

    file: IndexFile
    index: ProtectedIndex
    sets: tuple[SetFacts, ...]
    """By name."""
    shards: tuple[Shard, ...]
    """Held-out shards, in the manifest's order; the index numbers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkContext:
    """The inputs and services of a link step."""

    stage: Stage
    """The stage that emitted the rows."""
    shards: Sequence[LinkShard]
    """All shards, in order."""
    survey: Survey
    parts_of: Callable[[str], Iterable[tuple[str, int, int, int]]]
    """Yields key, shard, split and first record of every part that a stage has read."""
    store: Store
    run: Callable[[Join], JoinedParts]
    """Runs a join on the workers."""
    config: AuditConfig
    content: ContentModels = field(default_factory=ContentModels)
    """Models that judge documents."""
    protected: Protected | None = None
    """The protected sets, when a stage searches for them."""
    older: Path | None = None
    """Folder of the reference manifest."""
    tokenizer: str = ""
    """Digest of what decides tokens, which separates what tasks count with different ones."""

    def read(self) -> Iterator[LinkShard]:
        """Yield the shards that the stage has read."""
        return (shard for shard in self.shards if self.stage.name in shard.partials)

    def files(self, *names: str) -> KeyedFiles:
        """Return the stage's keyed rows of some names, for every part of every shard that was read."""
        return KeyedFiles.of_parts(self.stage.name, names, self.parts_of(self.stage.name))

    def join(
        self,
        name: str,
        function: JoinFunction,
        files: Sequence[KeyedFile],
        rows: int = 0,
        *,
        identity: object = None,
        by_shard: bool = False,
        **emits: pa.Schema,
    ) -> JoinedParts:
        """Join keyed rows; the identity is the version of the stage, and what is given, or the function's fields."""
        own = asdict(function) if identity is None and is_dataclass(function) else identity
        return self.run(
            Join(
                kind=f"link-{name}",
                function=function,
                identity=[self.stage.version, own],
                files=files,
                rows=rows,
                emits=emits,
                by_shard=by_shard,
            )
        )


def kept_sources(survey: Survey, max_sources: int) -> pa.Array | None:
    """Return the ``max_sources`` largest sources of all shards; None keeps all."""
    return largest_sources(survey.source_totals(), max_sources)


def folded_totals(totals: Mapping[str, int], kept: pa.Array) -> dict[str, int]:
    """Return the tokens of the kept sources, and of ``other`` for the rest."""
    names, folded = frozenset(kept.to_pylist()), Counter[str]()
    for name, tokens in totals.items():
        folded[name if name in names else OTHER] += tokens
    return dict(folded)


def largest_sources(totals: Mapping[str, int], max_sources: int) -> pa.Array | None:
    """Return the ``max_sources`` largest sources (by tokens, then name); None keeps all."""
    if len(totals) <= max_sources:
        return None
    ranked = sorted(totals, key=lambda name: (-totals[name], name))
    return pa.array(ranked[:max_sources], pa.string())
