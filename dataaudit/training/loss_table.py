"""Losses by step from whatever a run wrote: CSV or TSV with a line of names, or JSON lines.

The last line of a step counts, since runs that go on do steps again. Lines without a step or without a number are
counted, and left out.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dataaudit import text as t
from dataaudit.errors import ConfigError
from dataaudit.regular import open_regular
from dataaudit.training.accounting import Floats, Ints
from dataaudit.yamlfile import nearest

STEP = ("step", "iteration", "iter", "global_step", "_step", "train/global_step", "trainer/global_step", "iter_num")
LOSS = (
    *("loss", "train_loss", "train/loss", "training_loss", "loss/train", "lm loss", "lm_loss", "train/lm loss"),
    *("train/lm_loss", "ce_loss", "train/ce loss", "value"),
)
RATE = ("learning_rate", "lr", "learning-rate", "train/lr", "train/learning_rate")
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Losses of steps, ascending."""

    step: Ints
    loss: Floats
    """The loop's own, nats; NaN and infinities are kept."""
    rate: Floats
    """Learning rate; NaN where none is known."""
    unread: int
    """Lines without a step or a loss."""
    repeated: int
    """Lines whose step a later line has, too."""
    columns: tuple[str, str]
    """Names of the step and of the loss."""


def read_losses(path: Path, *, step: str | None = None, loss: str | None = None) -> Losses:
    """Read losses.

    Args:
        path: CSV with a line of names, TSV by its suffix, or JSON lines; nested objects are named ``a/b``.
        step: Name of the step; one of the usual ones when None.
        loss: Name of the loss; one of the usual ones when None.

    Raises:
        ConfigError: The file cannot be read, holds no such names, or no step.
    """
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline="", opener=open_regular) as file:
            records = list(_records(file, "\t" if path.suffix == ".tsv" else ","))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except csv.Error as error:
        raise ConfigError(f"{path} is no CSV: {error}") from None
    names = list(dict.fromkeys(name for one in records if one is not None for name in one))
    of_step, of_loss = _chosen(path, names, step, STEP, "step"), _chosen(path, names, loss, LOSS, "loss")
    of_rate = next((name for name in names if name.strip().lower() in RATE), None)
    found: dict[int, tuple[float, float]] = {}
    unread = repeated = 0
    for one in records:
        at, value = _number((one or {}).get(of_step)), _number((one or {}).get(of_loss))
        if at is None or value is None or not at.is_integer() or at < 0:
            unread += 1
            continue
        repeated += int(at) in found
        rate = None if of_rate is None else _number((one or {}).get(of_rate))
        found[int(at)] = (value, np.nan if rate is None else rate)
    if not found:
        raise ConfigError(f"{path} has no line with a step and a loss", f"Read were `{of_step}` and `{of_loss}`.")
    steps = sorted(found)
    return Losses(
        step=np.array(steps, dtype=np.int64),
        loss=np.array([found[one][0] for one in steps]),
        rate=np.array([found[one][1] for one in steps]),
        unread=unread,
        repeated=repeated,
        columns=(of_step, of_loss),
    )


def _records(lines: Iterator[str], delimiter: str) -> Iterator[Mapping[str, Any] | None]:
    """Yield records by name; None for a line that is none."""
    first = next((line for line in lines if line.strip()), "")
    if not first.lstrip().startswith("{"):
        names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
        yield from csv.DictReader(lines, fieldnames=names, delimiter=delimiter)
        return
    yield _parsed(first)
    for line in lines:
        if line.strip():
            yield _parsed(line)


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
    held = [name for name in names if name is not None and name.strip().lower() in usual]
    if given is None and len(held) == 1:
        return held[0]
    shown = ", ".join(t.clean(str(name), 50) for name in names[:_SHOWN])
    if given is not None:
        raise ConfigError(f"{path} has no `{given}`{nearest(given, names)}; it has {shown}")
    raise ConfigError(
        f"{path}: which column is the {what}? {'several' if held else 'none'} of {shown} has a usual name",
        f"--{what}-column NAME",
    )


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
