"""Losses by step from whatever a run wrote: CSV or TSV with a line of names, JSON lines, or Parquet.

The last line of a step counts, since runs that go on do steps again. Lines without a step or without a number are
counted, and left out. So are damaged lines: a quote that is not closed costs its line, and none after it.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError
from dataaudit.base.files import open_safely
from dataaudit.base.statistics import Floats, Ints
from dataaudit.base.yamlfile import nearest

STEP = ("step", "iteration", "iter", "global_step", "_step", "train/global_step", "trainer/global_step", "iter_num")
LOSS = (
    *("loss", "train_loss", "train/loss", "training_loss", "loss/train", "lm loss", "lm_loss", "train/lm loss"),
    *("train/lm_loss", "ce_loss", "train/ce loss", "value"),
)
RATE = ("learning_rate", "lr", "learning-rate", "train/lr", "train/learning_rate")
_SHOWN = 20
_DELIMITERS = ",;\t|"
_MOST_LINES = 1_000
"""Lines that a quoted field may go over."""
_MOST_STEPS = 1 << 53
Record = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Losses of steps, ascending."""

    step: Ints
    loss: Floats
    """The loop's own, nats; NaN and infinities are kept."""
    rate: Floats
    """Learning rate; NaN where none is known."""
    unread: int
    """Lines without a step or a loss, damaged lines among them."""
    damaged: int
    """Lines with more fields than names, or with a quote that is not closed, and JSON that is cut."""
    first_damaged: int | None
    """Number of the first of these, from 1."""
    repeated: int
    """Lines whose step a later line has, too."""
    columns: tuple[str, str]


def read_losses(path: Path, *, step: str | None = None, loss: str | None = None) -> Losses:
    """Read losses."""
    try:
        if path.suffix == ".parquet":
            table = _of_parquet(path)
        else:
            with open(path, encoding="utf-8-sig", errors="replace", newline="", opener=open_safely) as file:
                table = _of_lines(list(file), path.suffix)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except pa.ArrowException as error:
        raise ConfigError(f"{path} is no Parquet: {str(error).splitlines()[0]}") from None
    records = table.records
    names = list(dict.fromkeys([*table.header, *(name for record in records if record is not None for name in record)]))
    of_step, of_loss = _chosen(path, names, step, STEP, "step"), _chosen(path, names, loss, LOSS, "loss")
    of_rate = next((name for name in names if str(name).strip().lower() in RATE), None)
    for name, number in Counter(table.header).items():
        if number > 1 and name in (of_step, of_loss):
            raise ConfigError(f"{path} has {number} columns `{name}`: which one is it?", "Give each a name of its own.")
    found: dict[int, tuple[float, float]] = {}
    unread = repeated = 0
    for record in records:
        at, value = _number((record or {}).get(of_step)), _number((record or {}).get(of_loss))
        if at is None or value is None or not at.is_integer() or not 0 <= at < _MOST_STEPS:
            unread += 1
            continue
        repeated += int(at) in found
        rate = None if of_rate is None else _number((record or {}).get(of_rate))
        found[int(at)] = (value, np.nan if rate is None else rate)
    if not found:
        why = f"; {len(table.damaged):,} have more fields than names, or are cut" if table.damaged else ""
        raise ConfigError(f"{path} has no line with a step and a loss{why}", f"Read were `{of_step}` and `{of_loss}`.")
    steps = sorted(found)
    return Losses(
        step=np.array(steps, dtype=np.int64),
        loss=np.array([found[item][0] for item in steps]),
        rate=np.array([found[item][1] for item in steps]),
        unread=unread,
        repeated=repeated,
        damaged=len(table.damaged),
        first_damaged=min(table.damaged, default=None),
        columns=(of_step, of_loss),
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """Contents of a file."""

    header: Sequence[str]
    """Names of its columns; of JSON lines none."""
    records: list[Record]
    """By name; None for a line that is damaged."""
    damaged: list[int]
    """Numbers of these lines, from 1."""


def _of_parquet(path: Path) -> _Table:
    with open(path, "rb", opener=open_safely) as file:
        table = pq.read_table(file)
    return _Table(table.column_names, [dict(_flat(row)) for row in table.to_pylist()], [])


def _of_lines(lines: list[str], suffix: str) -> _Table:
    first = next((place for place, line in enumerate(lines) if line.strip()), len(lines))
    head = lines[first].strip("\r\n") if first < len(lines) else ""
    if head.lstrip().startswith("{"):
        there = [(place, _parsed(line)) for place, line in enumerate(lines, 1) if line.strip()]
        return _Table([], [item for _, item in there], [place for place, item in there if item is None])
    delimiter = "\t" if suffix == ".tsv" else max(_DELIMITERS, key=head.count)
    names = [name.strip() for name in _fields([head], delimiter) or [head]]
    records: list[Record] = []
    damaged = []
    place = first + 1
    while place < len(lines):
        size, fields = _row(lines, place, delimiter, len(names))
        if fields is None or any(fields[len(names) :]):
            damaged.append(place + 1)
            records.append(None)
        elif fields:
            decimals = [field.replace(",", ".") for field in fields] if delimiter == ";" else fields
            records.append(dict(zip(names, decimals, strict=False)))
        place += size
    return _Table(names, records, damaged)


def _row(lines: list[str], place: int, delimiter: str, width: int) -> tuple[int, list[str] | None]:
    """Return how many lines a row has, and its fields; None where it is damaged.

    A quote may hold line breaks. It does not where a line behind it is a row by itself: there it was never closed, and
    costs its own line alone.
    """
    if not lines[place].strip():
        return 1, []
    if (fields := _fields([lines[place]], delimiter)) is not None:
        return 1, fields
    for stop in range(place + 1, min(len(lines), place + _MOST_LINES)):
        fields = _fields(lines[place : stop + 1], delimiter)
        if fields is not None:
            return (stop + 1 - place, fields) if len(fields) == width else (1, None)
        alone = _fields([lines[stop]], delimiter)
        if alone is not None and len(alone) == width:
            break
    return 1, None


def _fields(lines: list[str], delimiter: str) -> list[str] | None:
    """Return the fields of a row; None where it is not whole."""
    try:
        rows = list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return dict(_flat(found)) if isinstance(found, dict) else None


def _flat(given: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}/")
        else:
            yield before + name, value


def _chosen(path: Path, names: Sequence[str], given: str | None, usual: Sequence[str], what: str) -> str:
    if given is not None and given in names:
        return given
    matches = [name for name in names if name.strip().lower() in usual]
    if given is None and len(matches) == 1:
        return matches[0]
    shown = ", ".join(t.clean(str(name), 50) for name in names[:_SHOWN])
    if given is not None:
        raise ConfigError(f"{path} has no `{given}`{nearest(given, names)}; it has {shown}")
    raise ConfigError(
        f"{path}: which column is the {what}? {'several' if matches else 'none'} of {shown} has a usual name",
        f"--{what}-column NAME",
    )


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
