"""Rows as torch's ``IterableDataset``, in the same order whatever the number of workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch.utils.data import IterableDataset, get_worker_info

from dataaudit.training.packing import check_sizes


class Rows(Protocol):
    """A map-style data set: packed rows, a token file, records of `datasets`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class StreamedRows(IterableDataset):
    """Streams rows of a map-style data set to a ``DataLoader`` that makes batches of ``batch_size``.

    A worker reads whole batches, every W-th, and the loader takes them in turn: the batches are those of no worker at
    all, in the same order. Of several ranks each reads every R-th batch. The last batches, which not every rank would
    have, and rows that fill no batch are left out: nothing is repeated.

    Args:
        rows: Which.
        batch_size: Rows of a batch; the loader's own, which must be the same.
        rank: Of this process.
        ranks: How many there are.
        first: Batch of this rank to begin with: how many it has done, where a run is resumed. Passes over the data are
            those of the rows, ``epochs=``.

    Raises:
        ConfigError: A number is out of range.
    """

    def __init__(self, rows: Rows, batch_size: int, *, rank: int = 0, ranks: int = 1, first: int = 0) -> None:
        check_sizes(batch_size=batch_size, ranks=ranks, first=first + 1, rank=rank + 1, above=ranks - rank)
        self.rows, self.batch_size, self.rank, self.ranks = rows, batch_size, rank, ranks
        self.first = first
        self.batches = len(rows) // (batch_size * ranks)
        """Of each rank."""

    def __len__(self) -> int:
        return max(0, self.batches - self.first) * self.batch_size

    def __iter__(self) -> Iterator[Any]:
        """Yield the rows of this worker's batches."""
        worker = get_worker_info()
        turn, turns = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        for batch in range(self.first + turn, self.batches, turns):
            start = (batch * self.ranks + self.rank) * self.batch_size
            for row in range(start, start + self.batch_size):
                yield self.rows[row]
