"""A link step: what joins the documents of different shards, and may ask for some of them to be read again.

It is a generator. It yields the requests that it has, and is sent what was found, until it returns what it found out;
all link steps advance together, so that one ordered second read of the shards serves every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from dataaudit.config import AuditConfig
from dataaudit.corpus.protected.index import IndexFile, ProtectedIndex
from dataaudit.corpus.shards import Shard
from dataaudit.detectors import ContentModels
from dataaudit.link.joins import Join, JoinedParts, KeyedFiles
from dataaudit.link.second_pass import SecondPassRequest, SecondPassResult
from dataaudit.link.survey import Survey
from dataaudit.manifest.metric import Metric
from dataaudit.stages.base import Stage
from dataaudit.stages.partial import OTHER, Partial


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
    def partials(self) -> Mapping[str, Partial]:
        """Return its partials by stage; empty when the shard was not read. Each is read when it is asked for."""
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
        """Join keyed rows, on the workers.

        Raises:
            ClusterError: A partition cannot be joined on these workers.
            DamagedEntryError: Keyed rows or results are absent or damaged.
        """
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
