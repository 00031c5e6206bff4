"""Units of work, their outcomes, what runs them (this process or a Dask cluster), and the fan-out of every phase.

Whatever a unit does becomes an outcome. A unit that may harm its process (``isolated``) runs in a child process, and so
does one that has harmed its process before. No number depends on the runner.

A phase runs its units once, counts them, and learns what failed. Tasks over shards get lists of where partials are, and
their results go through the store.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import ClusterError
from dataaudit.engine.progress import Progress
from dataaudit.engine.store import Damage, PartialStore
from dataaudit.engine.store_entries import Entry
from dataaudit.manifest.formats import is_native
from dataaudit.scan.annotators import AnnotatorModel
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.protected.eval_sets import ItemFields
from dataaudit.scan.corpus.readers import Part, ReadRequest
from dataaudit.scan.corpus.shards import Compression, Shard, format_of
from dataaudit.scan.corpus.storage.files import FileStat
from dataaudit.scan.cross_shard.joins import JoinFunction
from dataaudit.scan.cross_shard.step import SecondPassTask
from dataaudit.scan.stages.base import Stage

READING = "reading"
"""Kind of the entries that hold what reading a part showed."""
WANTED = "wanted"
"""Kind of the entries that hold what a task wants of a part."""
FILES = "files"
"""Name of the rows that list the files of a join."""
_MIN_BYTES_PER_SECOND = 500_000


def task_kind(task: SecondPassTask) -> str:
    """Return the kind of the entries that hold the results of a task."""
    return f"visit-{task.name}"


def _format(unit: object) -> str:
    """Return the format that a unit reads; empty when it reads only files of our own."""
    source = getattr(unit, "request", None) or getattr(unit, "shard", None) or unit
    return getattr(source, "format", "")


def wants_pandas(unit: object) -> bool:
    """Tell whether the library `datasets` reads a unit: it makes its tables of pandas' frames."""
    return _format(unit) == "datasets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit of work."""

    pieces: ClassVar[int] = 1
    """Parts of a scan that take about as long."""
    key: str = ""
    """Under which its result is stored."""
    size: int = 0

    @property
    def name(self) -> str:
        """What names it from run to run, beside the kind of work."""
        return self.key

    @property
    def isolated(self) -> bool:
        """Whether it only ever runs in a child process: hostile bytes of its format can crash their reader."""
        return is_native(_format(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeUnit(Unit):
    """A file to hash and to cut into parts."""

    path: str
    format: str
    compression: Compression
    part_bytes: int
    text_document: str = "file"

    @property
    def name(self) -> str:
        """Its path."""
        return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a file is."""

    stat: FileStat
    sha256: str
    hashed_ns: int
    parts: tuple[Part, ...]
    reason: Reason | None = None
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekUnit(Unit):
    """A shard whose columns are to be seen."""

    shard: Shard

    @property
    def name(self) -> str:
        """The path of its shard."""
        return self.shard.path


@dataclass(frozen=True, slots=True, kw_only=True)
class PartUnit(Unit):
    """A part of a file to read."""

    request: ReadRequest
    stat: FileStat
    """What the file was when it was hashed."""
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanUnit(PartUnit):
    """A part to read, and the stages whose partials of it are missing."""

    reading_key: str
    stage_keys: Collection[tuple[str, str]]
    """(stage name, key) of the missing partials."""
    substitutes: tuple[tuple[str, FileStat], ...] = ()
    """Other files with the same bytes, to read when this one cannot be."""

    @property
    def name(self) -> str:
        """The key of its reading."""
        return self.reading_key


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPassUnit(PartUnit):
    """A part to read again, and what its tasks want of it."""

    reading_key: str
    tasks: tuple[tuple[SecondPassTask, str, str], ...]
    """Tasks, each with the key of its request and result, and the address of its request."""
    seconds: float = 0.0
    """Time that its tasks may take beside that for reading."""
    substitutes: tuple[tuple[str, FileStat], ...] = ()

    @property
    def name(self) -> str:
        """The keys of its reading and its tasks."""
        return f"{self.reading_key} {' '.join(key for _, key, _ in self.tasks)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutUnit(PartUnit):
    """A part of a held-out shard whose words are to be stored."""

    state: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUnit(Unit):
    """An evaluation set whose items are to be stored."""

    paths: tuple[str, ...]
    fields: ItemFields
    state: Path

    @property
    def isolated(self) -> bool:
        """Whether hostile bytes of any of its files can crash their reader."""
        return any(is_native(format_of(path)[0]) for path in self.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUnit(Unit):
    """A partition of a join, how it is joined, and where its result goes."""

    function: JoinFunction
    emits: Mapping[str, pa.Schema]
    files: str
    start: int
    stop: int
    state: Path
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedUnit(Unit):
    """Some shards, or results of such units."""

    pieces: ClassVar[int] = 64
    listed: str = ""
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSettings:
    """What all units of a scan share."""

    state: Path
    stages: tuple[Stage, ...]
    annotators: tuple[AnnotatorModel, ...]


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
    columns: tuple[tuple[str, str], ...] | None = None
    """For a peek: column names, and whether each holds strings."""
    pack: str = ""
    """For a scan: the pack that holds what it left."""
    windows: tuple[str | None, ...] = field(default=(), repr=False)
    """For samples: masked text. Only a child of the driver answers with it, through a pipe; it is in no task."""


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
        units: Sequence[Unit],
        on_outcome: Callable[[int, Outcome], object],
    ) -> None:
        """Run every unit and report each outcome once, in any order."""
        ...


def finish(function: Callable[[Any], Outcome], outcomes: Sequence[Outcome]) -> None:
    """Let a function put together what it left of some units, when it does that."""
    if (own := getattr(function, "finish", None)) is not None:
        own(outcomes)


def sizes_of(units: Sequence[Unit]) -> np.ndarray:
    """Return int64[n] stored bytes of each unit; a sequence that makes units when asked for them has these itself."""
    known: np.ndarray | None = getattr(units, "sizes", None)
    return np.fromiter((unit.size for unit in units), np.int64, len(units)) if known is None else known


def unit_limit(unit: Unit, unit_seconds: float) -> float:
    """Return the seconds that a unit may take."""
    more = unit.seconds if isinstance(unit, SecondPassUnit) else 0.0
    return unit_seconds + unit.size / _MIN_BYTES_PER_SECOND + more


PARTIALS = "partials"
"""Table of a list: the addresses of the partials of its shards."""


@dataclass(slots=True, kw_only=True)
class Services:
    """What the phases of a build work with."""

    store: PartialStore
    runner: Runner
    progress: Progress


def run_units(
    name: str,
    function: Callable[[Any], Outcome],
    units: Sequence[Unit],
    services: Services,
    *,
    phase: str = "",
    on_outcome: Callable[[int, Outcome], object] | None = None,
    write_packs: bool = False,
    tell_short: bool = True,
) -> tuple[dict[int, tuple[Reason, str]], set[str]]:
    """Run units as a phase of the build, shown as ``phase`` when that is given.

    Returns reason and place of each unit that failed, by its index, and the ``kind/key`` of entries that are absent or
    damaged. The store then sees the packs of units that write some.
    """
    progress = services.progress
    sizes = sizes_of(units)
    failed: dict[int, tuple[Reason, str]] = {}
    damaged = set[str]()
    progress.begin(phase or name, len(units), int(sizes.sum()))

    def done(index: int, outcome: Outcome) -> None:
        damaged.update(outcome.damaged)
        if outcome.reason is not None:
            failed[index] = outcome.reason, outcome.place
        if on_outcome is not None:
            on_outcome(index, outcome)
        progress.advance(int(sizes[index]), failed=outcome.reason is not None)

    services.runner.run(name, function, units, done)
    if write_packs:
        services.store.packs.refresh()
    progress.end(tell_short=tell_short)
    return failed, damaged


def run_stored(
    name: str,
    function: Callable[[Any], Outcome],
    units: Sequence[Unit],
    what: str,
    services: Services,
    *,
    tell_short: bool = True,
) -> None:
    """Run units whose results all go to the store."""
    phase = name.replace("-", " ")
    failed, damaged = run_units(name, function, units, services, phase=phase, tell_short=tell_short)
    if failed:
        reason, place = next(iter(failed.values()))
        raise ClusterError(
            f"{name} failed on {len(failed)} {what}: {reason} {place}".rstrip(),
            "Give the workers more memory (--memory-limit) or run fewer of them, then run again.",
        )
    remove_damaged(services.store, damaged)


def remove_damaged(store: PartialStore, names: Iterable[str]) -> None:
    """Remove entries, ``kind/key``, and raise when there are any."""
    damage = Damage(store)
    for name in sorted(names):
        damage.remove(*name.split("/"))
    damage.tell()


def listed_partials(listed: Entry) -> dict[int, dict[str, list[str]]]:
    """Return the addresses of partials of a list by shard and stage, of each in the order of its parts."""
    partials: dict[int, dict[str, list[str]]] = {}
    for row in listed.tables[PARTIALS].to_pylist():
        partials.setdefault(row["shard"], {}).setdefault(row["stage"], []).append(os.fsdecode(row["address"]))
    return partials


def new_key() -> str:
    """Return a key that no other build has: what it names is used once."""
    return secrets.token_hex(32)


def write_list(kind: str, tables: Mapping[str, pa.Table], store: PartialStore) -> ListedUnit:
    """Write the list of a task and return its unit."""
    key = new_key()
    store.write(kind, key, {}, tables)
    return ListedUnit(key=key, listed=store.address(kind, key))


def run_listed(
    name: str, function: Callable[[Any], Outcome], units: Sequence[ListedUnit], lists: str, services: Services
) -> list[str]:
    """Run units, remove their lists, and return the keys of their results."""
    try:
        run_stored(name, function, units, "task(s)", services, tell_short=False)
    finally:
        for unit in units:
            services.store.remove(lists, unit.key)
    return [unit.key for unit in units]


def take_results(kind: str, keys: Iterable[str], store: PartialStore) -> Iterator[Entry]:
    """Yield the results of listed units, each read once and removed; raise in the end when some are damaged."""
    damage = Damage(store)
    for key in keys:
        if (entry := damage.read(kind, key)) is not None:
            store.remove(kind, key)
            yield entry
    damage.tell()
