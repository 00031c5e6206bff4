"""OLMo-core's saved orders: ``global_indices_*.npy`` of its loader of rows of one length (`NumpyFSLDataLoader`).

A file is the numbers alone, uint32 without a header, of one pass: instances, that is rows of ``sequence_length`` tokens
that are cut from each token file from its beginning on; what is left at a file's end is in no row. The name says how
many there are, the seed, the pass and how many rows are moved together::

    global_indices_chunk8_dataset_size1000_epoch1_seed34521_v1.npy

A batch is the next so many of them, whatever the number of ranks; those at the end of a pass that fill no batch are
left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from dataaudit.errors import ConfigError
from dataaudit.regular import expect_regular
from dataaudit.training.orders.rows import MappedFiles, Pieces

_NAME = re.compile(
    r"global_indices(?:_chunk(?P<chunk>\d+))?_dataset_size(?P<size>\d+)"
    r"(?:_epoch(?P<epoch>\d+))?(?:_seed(?P<seed>\d+))?_v1\.npy"
)


def open_olmo(indices: Sequence[Path], files: MappedFiles, *, context: int, batch: int) -> InstanceOrder:
    """Open saved orders, one a pass.

    Args:
        indices: The files, in the order of the passes.
        files: The token files, in the order of the data set.
        context: Tokens of a row.
        batch: Rows of a batch, of all ranks.

    Raises:
        ConfigError: A file is absent or damaged, has another name, or is not of these token files.
    """
    passes, chunks, drawn = [], set(), True
    for path in indices:
        said = _NAME.fullmatch(path.name)
        if said is None:
            raise ConfigError(
                f"{path} is no order that is known: expected global_indices_dataset_size..._v1.npy",
                "Orders of rows of several lengths (global_batch_indices) and of its composable loader are not.",
            )
        chunk, size = int(said["chunk"] or 1), int(said["size"])
        rows = files.tokens // (chunk * context) * chunk
        if int(rows.sum()) != size:
            raise ConfigError(
                f"{path.name} is of {size:,} rows, the files that are named hold {int(rows.sum()):,} of {context:,}",
                "Name all files of the data set, in its order, and its sequence length: --file, --context.",
            )
        passes.append(_loaded(path, size))
        chunks.add(chunk)
        drawn &= said["seed"] is not None
    borders = np.concatenate([[0], np.cumsum(rows)])
    return InstanceOrder(
        files=files,
        context=context,
        batch=batch,
        borders=borders,
        passes=tuple(passes),
        shuffled="rows" if drawn and chunks == {1} else "",
    )


@dataclass(frozen=True)
class InstanceOrder:
    """Rows of token files, pass after pass."""

    files: MappedFiles
    context: int
    batch: int
    borders: np.ndarray
    """int64[files + 1] number of the first row of each file."""
    passes: tuple[np.ndarray, ...]
    shuffled: Literal["", "rows"]

    @property
    def samples(self) -> int:
        """How many are read."""
        return sum(self._used)

    @property
    def _used(self) -> list[int]:
        return [len(one) // self.batch * self.batch for one in self.passes]

    def pieces(self, first: int, number: int) -> Pieces:
        """Return what some samples are made of."""
        rows, epochs, base = list[np.ndarray](), list[np.ndarray](), 0
        for epoch, (one, used) in enumerate(zip(self.passes, self._used, strict=True)):
            chosen = one[max(0, first - base) : min(used, max(0, first + number - base))]
            rows.append(np.asarray(chosen, np.int64))
            epochs.append(np.full(len(chosen), epoch))
            base += used
        row = np.concatenate(rows)
        file = np.searchsorted(self.borders, row, "right") - 1
        starts = self.files.bases[file] + (row - self.borders[file]) * self.context
        return self.files.windows(starts, self.context, np.concatenate(epochs))


def _loaded(path: Path, size: int) -> np.ndarray:
    try:
        expect_regular(path)
        there = os.stat(path).st_size
        if there != 4 * size:
            raise ConfigError(f"{path} has {there:,} bytes, by its name it has {4 * size:,}: it is damaged")
        found: np.ndarray = np.memmap(path, dtype="<u4", mode="r")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if int(found.max()) >= size:
        raise ConfigError(f"{path} names the row {int(found.max()):,} of {size:,}: it is damaged")
    return found
