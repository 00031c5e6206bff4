"""What the processes of a distributed run must agree on, and which of their rows are repeats.

A data set seldom divides evenly. `DistributedSampler` and Accelerate's `even_batches` give some rows twice, so that
each process has as many. A repeat is trained on, so its loss counts; as data it was seen already. It is marked by its
pass: -1 - pass.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from dataaudit.errors import ConfigError, CorpusRefused
from dataaudit.training.corpus import Corpus
from dataaudit.training.tags import EPOCH, SHARD

Dealt = Literal["batches", "rows"]


def agree(corpus: Corpus) -> None:
    """Stop every process of a distributed run unless all of them opened the same corpus, with the same held documents.

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


def repeats(batch: int, size: int, *, rows: int, rank: int, ranks: int, dealt: Dealt = "batches") -> np.ndarray:
    """Return which rows of a batch were added so that all processes have as many.

    Args:
        batch: Number of the batch in this process's pass, from 0.
        size: Rows of a batch; all but the last of a pass must have as many.
        rows: Of the data set.
        rank: Of this process.
        ranks: How many there are.
        dealt: ``batches``: whole batches in turn, as Accelerate and the Trainer do. ``rows``: row by row, as
            `DistributedSampler` does.

    Returns:
        bool[size]

    Raises:
        ConfigError: Rows are dealt in no such way.
    """
    if dealt not in get_args(Dealt):
        raise ConfigError(f"dealt: expected batches or rows, found {dealt!r}")
    inside = np.arange(size)
    place = (batch * ranks + rank) * size + inside if dealt == "batches" else (batch * size + inside) * ranks + rank
    found: np.ndarray = place >= rows
    return found


def mark_repeats(tags: Any, repeated: np.ndarray) -> Any:
    """Return tags with the rows that are repeats marked: their pass is -1 - pass.

    Args:
        tags: int64[B, K, 7], of torch or NumPy; left as they are.
        repeated: bool[B] of :func:`repeats`.
    """
    if not repeated.any():
        return tags
    tags = tags.copy() if isinstance(tags, np.ndarray) else tags.clone()
    for row in np.flatnonzero(repeated).tolist():
        named = tags[row, :, SHARD] >= 0
        tags[row, :, EPOCH][named] = -1 - tags[row, :, EPOCH][named]
    return tags
