"""Rows among the processes of a distributed run: streams of them, passes, repeats, and what all must agree on.

A data set seldom divides evenly. `DistributedSampler` and Accelerate's `even_batches` give some rows twice, so that
each process has as many. A repeat is trained on, so its loss counts; as data it was seen already. It is marked by its
pass: -1 - pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch.utils.data import IterableDataset, RandomSampler, get_worker_info

from dataaudit.base.errors import CatchErrors, ConfigError, CorpusRefused
from dataaudit.training.corpus import Corpus
from dataaudit.training.packing import EPOCH, SHARD, check_sizes

Dealt = Literal["batches", "rows"]
DATA = ("dp", "dp_replicate", "dp_shard", "fsdp", "data")
"""Names that dimensions of data parallelism have, in torchtitan and elsewhere."""
CONTEXT = ("cp", "context")
"""Those of context parallelism."""


class Passes:
    """Where a process is in the passes of its loader."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.rows: int | None = None
        """Of the data set, where it is known which of them are dealt twice."""
        self.dealt: Dealt = "batches"
        """Whether ranks take whole batches in turn, as Accelerate deals them, or rows, as `DistributedSampler` does."""
        self.epoch = 0
        self.batches = 0
        """Micro-batches of this pass that are done, on each rank."""
        self._size = 0
        """Rows of a micro-batch: the last of a pass may have fewer."""

    def marked(self, tags: Any) -> Any:
        """Return tags of a micro-batch with the pass they are of, and which of its rows are repeats."""
        tags = torch.as_tensor(tags).clone()
        tags[..., EPOCH] += self.epoch
        self._size = max(self._size, len(tags))
        if self.rows is not None:
            how: dict[str, Any] = {"rank": self.rank, "ranks": self.ranks, "dealt": self.dealt}
            tags = mark_repeats(tags, repeats(self.batches, self._size, rows=self.rows, **how)[: len(tags)])
        self.batches += 1
        return tags


def length_of(given: Any) -> int | None:
    """Return the length of something; None where it has none."""
    with CatchErrors() as call:
        found = len(given)
    return found if call.error is None else None


def shuffles(loader: Any) -> bool:
    """Return whether each pass of a loader meets every row of a map-style data set once, in any order alike."""
    rows = getattr(loader, "dataset", None)
    if rows is None or isinstance(rows, IterableDataset):
        return False
    batches: Any = getattr(loader, "batch_sampler", None)
    while hasattr(batches, "batch_sampler"):  # accelerate's, each around another
        batches = batches.batch_sampler
    sampler = getattr(batches, "sampler", None)
    return isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == length_of(rows)


def agree(corpus: Corpus) -> None:
    """Stop every process of a distributed run unless all of them opened the same corpus, with the same documents.

    Does nothing where `torch.distributed` is not in use. All processes must call it.

    Args:
        corpus: What this process opened.

    Raises:
        CorpusRefused: They differ, in every process.
    """
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return
    states: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(states, corpus.state())
    for rank, state in enumerate(states):
        if names := sorted(name for name in state if state[name] != states[0][name]):
            raise CorpusRefused(
                f"rank {rank} opened another corpus than rank 0: {', '.join(names)}",
                "Hand the same manifest, policy and quarantine list to all processes.",
            )


def log_rank(mesh: Any, *, data: Collection[str] = DATA, pipeline: str = "pp") -> tuple[int, int] | None:
    """Return which part of the run log this process of a device mesh writes: `TrainingMonitor(rank=, ranks=)`.

    Processes that differ in their place along ``data`` read different rows, and each of these groups writes one part.
    Within a group the logits lie with the last stage of a pipeline; of tensor-parallel processes, whose logits are the
    same once they are gathered, the first one writes. Context parallelism cuts rows, which tags do not know.
    """
    names, place = mesh.mesh_dim_names, mesh.get_coordinate()
    if not names or place is None:
        raise ConfigError("the mesh has no names of dimensions, or not this process", "mesh_dim_names=('dp', 'tp')")
    if any(name in CONTEXT and mesh.size(at) > 1 for at, name in enumerate(names)):
        raise ConfigError("context parallelism gives a process a part of each row, which tags do not know")
    rank, ranks = 0, 1
    for at, name in enumerate(names):
        size = mesh.size(at)
        if name in data:
            rank, ranks = rank * size + place[at], ranks * size
        elif place[at] != (size - 1 if name == pipeline else 0):
            return None
    return rank, ranks


def repeats(batch: int, size: int, *, rows: int, rank: int, ranks: int, dealt: Dealt = "batches") -> np.ndarray:
    """Return which rows of a batch were added so that all processes have as many."""
    if dealt not in get_args(Dealt):
        raise ConfigError(f"dealt: expected batches or rows, found {dealt!r}")
    inside = np.arange(size)
    place = (batch * ranks + rank) * size + inside if dealt == "batches" else (batch * size + inside) * ranks + rank
    repeated: np.ndarray = place >= rows
    return repeated


def mark_repeats(tags: Any, repeated: np.ndarray) -> Any:
    """Return tags with the rows that are repeats marked: their pass is -1 - pass."""
    if not repeated.any():
        return tags
    tags = tags.copy() if isinstance(tags, np.ndarray) else tags.clone()
    for row in np.flatnonzero(repeated).tolist():
        named = tags[row, :, SHARD] >= 0
        tags[row, :, EPOCH][named] = -1 - tags[row, :, EPOCH][named]
    return tags


class StreamedRows(IterableDataset):
    """Streams rows of a map-style data set to a ``DataLoader`` that makes batches of ``batch_size``.

    A worker reads whole batches, every W-th, and the loader takes them in turn: the batches are those of no worker at
    all, in the same order. Of several ranks each reads every R-th batch. The last batches, which not every rank would
    have, and rows that fill no batch are left out: nothing is repeated.

    Args:
        rows: A map-style data set: packed rows, a token file, records of `datasets`.
        batch_size: Rows of a batch; the loader's own, which must be the same.
        rank: Of this process.
        ranks: How many there are.
        first: Batch of this rank to begin with: how many it has done, where a run is resumed. Passes over the data are
            those of the rows, ``epochs=``.

    Raises:
        ConfigError: A number is out of range.
    """

    def __init__(self, rows: Any, batch_size: int, *, rank: int = 0, ranks: int = 1, first: int = 0) -> None:
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
