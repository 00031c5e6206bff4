"""Thinning: of steps that are long past, a sample of the stretches stays, and exact sums of all others."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.errors import RunLogError
from dataaudit.runlog.format import SUMS, WINDOW_STEPS
from dataaudit.runlog.parts import PartHeader, numbers, part_path, read_part, write_part

SAMPLED_STEPS = 16
"""Every such step keeps its stretches."""
AROUND_STEPS = 200
"""Steps before and after a flagged one that keep theirs."""


def thin_part(folder: Path, number: int, *, block_rows: int, before: int, flagged: Collection[int]) -> bool:
    """Replace a part of stretches by those that stay, and a part of sums; nothing changes when it is not old enough.

    The sums are written first and count only once the part says that it is thinned, so a kill in between does no harm.

    Args:
        folder: Of the rank.
        number: Of the part.
        block_rows: Rows of a block.
        before: The part is thinned when all its steps are before this one.
        flagged: Steps around which all stay.

    Returns:
        Whether it is thinned now, or cannot be read at all.

    Raises:
        OSError: It cannot be read or written.
    """
    path = part_path(folder, "stretches", number)
    try:
        part = read_part(path, "stretches")
    except RunLogError:  # it stays as it is, and whoever reads the log is told
        return True
    if part is None or part.header.thinned:
        return True
    steps = part.table["step"].to_numpy()
    if len(steps) and int(steps.max()) >= before:
        return False
    stays = staying(steps, flagged)
    header = PartHeader(attempt=part.header.attempt, first_step=part.header.first_step, thinned=True)
    sums = part_path(folder, "sums", number)
    write_part(sums, "sums", header, summed(part.table.filter(pa.array(~stays)), block_rows))
    write_part(path, "stretches", header, part.table.filter(pa.array(stays)))
    return True


def staying(steps: np.ndarray, flagged: Collection[int]) -> np.ndarray:
    """Tell which stretches stay.

    Args:
        steps: int64[n] step of each.
        flagged: Steps around which all stay.

    Returns:
        bool[n]
    """
    stays: np.ndarray = steps % SAMPLED_STEPS == 0
    marks = np.array(sorted(flagged), dtype=np.int64)
    if len(marks):
        place = np.searchsorted(marks, steps)
        after = np.abs(marks[np.minimum(place, len(marks) - 1)] - steps)
        earlier = np.abs(marks[np.maximum(place - 1, 0)] - steps)
        stays |= np.minimum(after, earlier) <= AROUND_STEPS
    return stays


def summed(stretches: pa.Table, block_rows: int) -> pa.Table:
    """Return the sums of stretches by window, block and source, sorted by these.

    Args:
        stretches: Of the table of stretches.
        block_rows: Rows of a block.
    """
    columns = {name: stretches[name].to_numpy() for name in ("step", "shard", "row", "source", "targets")}
    loss = pc.fill_null(stretches["loss"], 0.0).to_numpy().astype(np.float64)
    known = pc.is_valid(stretches["loss"]).to_numpy()
    keys = np.stack(
        [
            columns["step"] // WINDOW_STEPS * WINDOW_STEPS,
            columns["shard"],
            np.where(columns["row"] < 0, -1, columns["row"] // block_rows),
            columns["source"],
        ]
    )
    groups, inverse = np.unique(keys, axis=1, return_inverse=True)
    size, targets = groups.shape[1], columns["targets"].astype(np.int64)
    values = {
        "window": groups[0],
        "shard": groups[1],
        "block": groups[2],
        "source": groups[3],
        "stretches": np.bincount(inverse, minlength=size),
        "targets": _added(inverse, targets, size),
        "scored": _added(inverse, np.where(known, targets, 0), size),
        "loss_sum": np.bincount(inverse, loss * targets, minlength=size),
    }
    return pa.table([numbers(values[one.name], one) for one in SUMS.schema], schema=SUMS.schema)


def _added(inverse: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    found = np.zeros(size, dtype=np.int64)
    np.add.at(found, inverse, values)
    return found
