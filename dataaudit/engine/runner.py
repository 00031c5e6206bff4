"""Units of work, the small outcome of each, and the interface of what runs them: this process, or a Dask cluster.

Whatever a unit does becomes an outcome. A unit that may harm its process (``isolated``) runs in a child process, and so
does one that has harmed its process before. No number depends on which runner it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from dataaudit.manifest.formats import is_native
from dataaudit.scan.annotators import AnnotatorModel
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.protected.sets import ItemFields
from dataaudit.scan.corpus.readers import Part, ReadRequest
from dataaudit.scan.corpus.shards import Compression, Shard, format_of
from dataaudit.scan.corpus.storage.files import FileStat
from dataaudit.scan.link.joins import JoinFunction
from dataaudit.scan.link.step import SecondPassTask
from dataaudit.scan.stages.base import Stage

READING = "reading"
"""Kind of the entries that hold what reading a part showed."""
WANTED = "wanted"
"""Kind of the entries that hold what a task wants of a part."""
FILES = "files"
"""Name of the rows that list the files of a join."""


def task_kind(task: SecondPassTask) -> str:
    """Return the kind of the entries that hold what a task found."""
    return f"visit-{task.name}"


def wants_pandas(unit: object) -> bool:
    """Tell whether the library `datasets` reads a unit: it makes its tables of pandas' frames."""
    source = getattr(unit, "request", None) or getattr(unit, "shard", None) or unit
    return getattr(source, "format", "") == "datasets"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeUnit:
    """A file to hash and to cut into parts."""

    path: str
    format: str
    compression: Compression
    part_bytes: int
    size: int
    """Stored bytes, to size tasks by."""
    text_document: str = "file"
    """What is a document in a file of plain text."""

    @property
    def name(self) -> str:
        """What names it from run to run."""
        return self.path

    @property
    def isolated(self) -> bool:
        """Whether hostile bytes of this format can crash its reader."""
        return is_native(self.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a file is."""

    stat: FileStat
    sha256: str
    hashed_ns: int
    parts: tuple[Part, ...]
    reason: Reason | None = None
    """Why it cannot be read, when it cannot."""
    place: str = ""


class StageKeys(Protocol):
    """Names of stages, each with the key of its partial of a part."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield them."""
        ...

    def __len__(self) -> int:
        """Return how many they are."""
        ...


class ReadsPart(Protocol):
    """A unit that reads a part of a file."""

    @property
    def request(self) -> ReadRequest:
        """The part."""
        ...

    @property
    def stat(self) -> FileStat:
        """What the file was when it was hashed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanUnit:
    """One part to read, and the stages whose partials of it are missing."""

    request: ReadRequest
    stat: FileStat
    """What the file was when it was hashed."""
    sha256: str
    """Its digest then."""
    reading_key: str
    stage_keys: StageKeys
    """(stage name, key) of the missing partials."""
    size: int
    """Stored bytes of the part, to size tasks by."""
    twins: tuple[tuple[str, FileStat], ...] = ()
    """Other files with the same bytes, to read when this one cannot be."""

    @property
    def name(self) -> str:
        """What names it from run to run."""
        return self.reading_key

    @property
    def isolated(self) -> bool:
        """Whether hostile bytes of this format can crash its reader."""
        return is_native(self.request.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassUnit:
    """A part to read again, and what its tasks want of it."""

    request: ReadRequest
    stat: FileStat
    sha256: str
    reading_key: str
    tasks: tuple[tuple[SecondPassTask, str, str], ...]
    """Tasks, each with the key of what it wants and of what it finds, and the address of what it wants."""
    size: int
    seconds: float = 0.0
    """Time that its tasks may take beside that for reading."""
    twins: tuple[tuple[str, FileStat], ...] = ()

    @property
    def name(self) -> str:
        """What names it from run to run."""
        return f"{self.reading_key} {' '.join(key for _, key, _ in self.tasks)}"

    @property
    def isolated(self) -> bool:
        """Whether hostile bytes of this format can crash its reader."""
        return is_native(self.request.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSettings:
    """What all units of a scan share."""

    state: Path
    stages: tuple[Stage, ...]
    annotators: tuple[AnnotatorModel, ...]
    """What finds the annotations that stages and tasks need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a unit; small enough for the scheduler."""

    reason: Reason | None = None
    """Why it could not be read, when it could not."""
    place: str = ""
    fault: tuple[str, str] | None = None
    """What is wrong with the machine and what to do, when it is no shard's fault; ends the build."""
    damaged: tuple[str, ...] = ()
    """Stored entries that are absent or damaged, ``kind/key``."""
    probe: Probe | None = None
    """For a probe."""
    columns: tuple[tuple[str, str], ...] | None = None
    """For a peek: column names, and whether each holds strings."""
    pack: str = ""
    """For a scan: the pack that holds what it left."""
    windows: tuple[str | None, ...] = field(default=(), repr=False)
    """For samples: masked text. Only a child of the driver answers with it, through a pipe; it is in no task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekUnit:
    """A shard whose columns are to be seen."""

    shard: Shard
    size: int = 0

    @property
    def name(self) -> str:
        """What names it from run to run."""
        return self.shard.path

    @property
    def isolated(self) -> bool:
        """Whether hostile bytes of this format can crash its reader."""
        return is_native(self.shard.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutUnit:
    """A part of a held-out shard whose words are to be stored."""

    request: ReadRequest
    stat: FileStat
    sha256: str
    state: Path
    key: str
    size: int

    @property
    def name(self) -> str:
        """What names it from run to run."""
        return self.key

    @property
    def isolated(self) -> bool:
        """Whether hostile bytes of this format can crash its reader."""
        return is_native(self.request.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUnit:
    """An evaluation set whose items are to be stored."""

    paths: tuple[str, ...]
    fields: ItemFields
    state: Path
    key: str
    size: int = 0

    @property
    def name(self) -> str:
        """What names it from run to run."""
        return self.key

    @property
    def isolated(self) -> bool:
        """Whether hostile bytes of its files can crash their reader."""
        return any(is_native(format_of(path)[0]) for path in self.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUnit:
    """A partition of a join, how it is joined, and where its result goes."""

    function: JoinFunction
    emits: Mapping[str, pa.Schema]
    files: str
    """Key of the list of files, of schema :data:`dataaudit.scan.link.joins.LINK_FILES`."""
    start: int
    stop: int
    state: Path
    kind: str
    key: str
    size: int

    @property
    def name(self) -> str:
        """What names it from run to run."""
        return self.key

    @property
    def isolated(self) -> bool:
        """Only files of our own are read."""
        return False


_MIN_BYTES_PER_SECOND = 500_000


class Sized(Protocol):
    """A unit of work."""

    @property
    def name(self) -> str:
        """What names it from run to run, beside the kind of work."""
        ...

    @property
    def size(self) -> int:
        """Stored bytes."""
        ...

    @property
    def isolated(self) -> bool:
        """Whether it only ever runs in a child process."""
        ...


@runtime_checkable
class Together(Protocol):
    """Work that costs less for several units at once than for each alone, and gives the same."""

    def __call__(self, unit: Any, /) -> Outcome:
        """Do it for one unit."""
        ...

    def gains(self, unit: Any, /) -> bool:
        """Tell whether a unit costs less beside others."""
        ...

    def together(self, units: Sequence[Any], /) -> list[Outcome]:
        """Do it for several: all isolated, in a child process, or none of them."""
        ...


class Runner(Protocol):
    """Runs units, wherever."""

    notes: list[str]
    """What was met and survived."""

    @property
    def workers(self) -> int:
        """Worker processes; 0 when the work is done in this one."""
        ...

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where the work is done."""
        ...

    def run(
        self,
        name: str,
        function: Callable[[Any], Outcome],
        units: Sequence[Sized],
        on_outcome: Callable[[int, Outcome], bool],
    ) -> None:
        """Run every unit and report each outcome once, in any order."""
        ...


def finish(function: Callable[[Any], Outcome], outcomes: Sequence[Outcome]) -> None:
    """Let a function put together what it left of some units, when it does that."""
    if (own := getattr(function, "finish", None)) is not None:
        own(outcomes)


def sizes_of(units: Sequence[Sized]) -> np.ndarray:
    """Return int64[n] stored bytes of each unit; a sequence that makes units when asked for them has these itself."""
    known: np.ndarray | None = getattr(units, "sizes", None)
    return np.fromiter((unit.size for unit in units), np.int64, len(units)) if known is None else known


def unit_limit(unit: Sized, unit_seconds: float) -> float:
    """Return the seconds that a unit may take."""
    more = unit.seconds if isinstance(unit, SecondPassUnit) else 0.0
    return unit_seconds + unit.size / _MIN_BYTES_PER_SECOND + more
