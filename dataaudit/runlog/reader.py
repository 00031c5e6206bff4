"""Reading a run log: every rank's parts joined, what a resumed run superseded left out, what was torn counted."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from dataaudit.base.errors import RunLogError
from dataaudit.base.files import read_safely
from dataaudit.runlog.format import (
    RANKS_FOLDER,
    RUN_FILE,
    SCHEMA_NAME,
    SCHEMA_VERSION,
    SHARDS_FILE,
    TABLES,
    RunFile,
    checksum,
)
from dataaudit.runlog.parts import (
    attempts_of,
    end_of,
    part_numbers,
    part_path,
    rank_folder,
    read_header,
    read_part,
    without_checksum,
)

_T = TypeVar("_T")
STARTS = frozenset({"started", "resumed"})
"""Kinds of events by which an attempt begins."""
_OF_STARTS = ("rank", "kind", "step", "detail")


@dataclass(frozen=True)
class RunLog:
    """A loaded run log; tables are read when they are asked for."""

    folder: Path
    run: RunFile

    @cached_property
    def shards(self) -> pa.Table:
        """The table of shards as it was opened."""
        path = self.folder / SHARDS_FILE
        try:
            stored = read_safely(path)
            if self.run.checksums.get(SHARDS_FILE) != checksum(stored):
                raise RunLogError(f"{path} is damaged: it is not what was written", "Restore it from a copy.")
            with pa.ipc.open_file(stored) as stream:
                return stream.read_all()
        except (OSError, pa.ArrowException) as error:
            raise RunLogError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks that wrote something."""
        folder = self.folder / RANKS_FOLDER
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(folder, error) from None
        return sorted(int(name) for name in names if name.isdecimal() and (folder / name).is_dir())

    @cached_property
    def torn_bytes(self) -> int:
        """Stored bytes behind the last whole record batches, or of parts without any: what a kill left."""
        return sum(self._read(rank, name)[1] for rank in self.ranks for name in TABLES)

    def table(self, name: str) -> pa.Table:
        """Return a table of all ranks, with the column ``rank`` before its own, sorted by rank, then as written.

        Its name is steps, stretches, sums, values or events. A part that cannot be opened is a ``RunLogError``.
        """
        empty = TABLES[name].schema.empty_table()
        tables = [self._read(rank, name)[0] for rank in self.ranks]
        ranks = pa.concat_arrays(
            [pa.repeat(pa.scalar(rank, pa.int32()), len(item)) for rank, item in zip(self.ranks, tables, strict=True)]
            or [pa.array([], pa.int32())]
        )
        field = pa.field("rank", pa.int32(), nullable=False)
        return pa.concat_tables([empty, *tables]).add_column(0, field, ranks)

    def _read(self, rank: int, name: str) -> tuple[pa.Table, int]:
        """Return a rank's table and its torn bytes."""
        folder = rank_folder(self.folder, rank)
        tables, torn = [TABLES[name].schema.empty_table()], 0
        for number in _opened(folder, part_numbers, folder, name):
            path = part_path(folder, name, number)
            part = _opened(path, read_part, path, name)
            if part is None:
                torn += path.stat().st_size
                continue
            torn += part.torn_bytes
            table = part.table
            if (end := end_of(part.header.attempt, self._starts[rank])) is not None:
                table = table.filter(pc.less(table["window" if name == "sums" else "step"], end))
            thinned = read_header(part_path(folder, "stretches", number)) if name == "sums" else None
            if name != "sums" or (thinned is not None and thinned.thinned):
                tables.append(table)
        return pa.concat_tables(tables), torn

    @cached_property
    def _starts(self) -> dict[int, list[tuple[int, int]]]:
        """By rank: (attempt, first step) of every part."""
        folders = {rank: rank_folder(self.folder, rank) for rank in self.ranks}
        return {rank: _opened(folder, attempts_of, folder) for rank, folder in folders.items()}


def ranks_at(step: np.ndarray, events: pa.Table, ranks: int) -> np.ndarray:
    """Return of how many ranks the run was at some steps: each start of it reports them, and may have others.

    Of several starts at a step the last counts, which the first rank always writes: ranks that are gone since only know
    of the starts before.
    """
    starts = [(0, 0, ranks)]
    for rank, kind, at, detail in zip(*(events[name].to_pylist() for name in _OF_STARTS), strict=True):
        if kind in STARTS:
            with suppress(ValueError, AttributeError, KeyError, TypeError):
                starts.append((int(at) + 1, -rank, int(orjson.loads(detail)["ranks"])))
    firsts, _, numbers = np.array(sorted(starts, key=lambda start: start[:2])).T
    at_steps: np.ndarray = numbers[np.searchsorted(firsts, step, "right") - 1]
    return at_steps


def _opened(path: Path, read: Callable[..., _T], *args: Any) -> _T:
    """Return what a function reads; what cannot be opened is an error of the log."""
    try:
        return read(*args)
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> RunLogError:
    return RunLogError(f"{path} cannot be read: {error.strerror or error}")


def load_run(folder: Path) -> RunLog:
    """Load a run log: what the run is, from ``run.json``."""
    path = folder / RUN_FILE
    try:
        document = orjson.loads(read_safely(path))
        schema = document.get("schema", {})
        if schema.get("name") != SCHEMA_NAME:
            raise RunLogError(f"{path}: expected a {SCHEMA_NAME}, found another kind of JSON")
        if schema.get("version") != SCHEMA_VERSION:
            raise RunLogError(
                f"{path}: schema version {schema.get('version')}, this program reads version {SCHEMA_VERSION}",
                "Install the version of dataaudit that wrote it, or a newer one.",
            )
        run = RunFile.model_validate(document)
        if RUN_FILE not in run.checksums:
            raise without_checksum(path)
        if not run.intact:
            raise ValueError("another checksum")
        return RunLog(folder, run)
    except OSError as error:
        raise RunLogError(
            f"no run log at {folder}: {(error.strerror or str(error)).lower()}",
            "A `TrainingMonitor` writes one: `dataaudit explain training`.",
        ) from None
    except (ValidationError, ValueError, AttributeError, TypeError):
        raise RunLogError(f"{path} is damaged", "Restore it: the tables beside it are of no use without it.") from None
