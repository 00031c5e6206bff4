"""What the loops of other libraries say of a batch: which pass over the data it is of, and which rows are repeats."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import IterableDataset, RandomSampler

from dataaudit.guarded import Guarded
from dataaudit.training.loaders.ranks import mark_repeats, repeats
from dataaudit.training.tags import EPOCH


class Passes:
    """Where a process is in the passes of its loader.

    Args:
        rank: Of this process.
        ranks: How many there are.
    """

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.rows: int | None = None
        """Of the data set, where it is known which of them are dealt twice."""
        self.epoch = 0
        self.batches = 0
        """Micro-batches of this pass that are done, on each rank."""

    def marked(self, tags: Any) -> Any:
        """Return tags of a micro-batch with the pass they are of, and which of its rows are repeats."""
        tags = torch.as_tensor(tags).clone()
        tags[..., EPOCH] += self.epoch
        if self.rows is not None:
            found = repeats(self.batches, len(tags), rows=self.rows, rank=self.rank, ranks=self.ranks)
            tags = mark_repeats(tags, found)
        self.batches += 1
        return tags


def length_of(given: Any) -> int | None:
    """Return how many there are of something; None where it does not say."""
    with Guarded() as call:
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
