"""The order of torchtitan's text loader (0.3, `HuggingFaceTextDataset`) on a map-style data set.

Its checkpoint holds no order, but where each rank is: `sample_idx` documents read of its part in this pass, `epoch`,
and `inputs_buffer`, tokens that are read and not yet trained on. The order follows from the loader's rules: rank r has
the r-th part of the documents, which follow each other in the data set's order; the first pass is in that order, and
each later one is `Dataset.shuffle(seed=42 + epoch)` of the part. Labels are shifted within documents: one of n tokens
has n - 1 labels, and rows are cut from these one after another.

What cannot be known: streamed data sets (`IterableDataset`), whose order is their reader's; versions since that load by
Grain, whose checkpoints hold positions in a graph of transformations; documents that a `sample_processor` changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np

from dataaudit.errors import ConfigError
from dataaudit.robust import Ints
from dataaudit.training.orders.rows import MappedFiles, Pieces, expanded

_SEED = 42


@dataclass
class RankedOrder:
    """Rows of ranks that read a part of the documents each.

    Args:
        files: The token files, in the order of the data set, written with the end token that the loader adds.
        context: `seq_len`.
        batch: `local_batch_size`, of a rank's micro-batch.
        ranks: Data-parallel ones.
        begin: Whether the tokenizer has a token of beginning, which the loader adds and the files do not hold.

    Raises:
        ConfigError: A rank has no document.
    """

    files: MappedFiles
    context: int
    batch: int
    ranks: int
    begin: bool
    shuffled: Literal[""] = field(default="", init=False)
    samples: None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Divide the documents."""
        number = len(self.files.begins)
        if not 0 < self.ranks <= number:
            raise ConfigError(f"{number:,} documents cannot be divided among {self.ranks:,} ranks")
        each, more = divmod(number, self.ranks)
        self._borders = [rank * each + min(rank, more) for rank in range(self.ranks + 1)]
        lengths = self.files.ends - self.files.begins
        self._labels = lengths - (not self.begin)
        self._totals = [int(self._labels[start:stop].sum()) for start, stop in self._parts()]
        self._passes = lru_cache(maxsize=2 * self.ranks)(self._pass)

    def _parts(self) -> list[tuple[int, int]]:
        return list(zip(self._borders[:-1], self._borders[1:], strict=True))

    def _pass(self, rank: int, epoch: int) -> tuple[Ints, Ints]:
        """Return the documents of a rank in a pass, and the labels up to the end of each."""
        start, stop = self._parts()[rank]
        order = np.arange(stop - start)
        if epoch:
            order = np.random.default_rng(_SEED + epoch).permutation(stop - start)
        documents = (start + order).astype(np.int64)
        return documents, np.cumsum(self._labels[documents])

    def pieces(self, first: int, number: int) -> Pieces:
        """Return what samples are made of: of each micro-batch, the rows of the first rank, of the second, ..."""
        sample = np.arange(first, first + number)
        rank = sample // self.batch % self.ranks
        own = sample // (self.batch * self.ranks) * self.batch + sample % self.batch
        each = [self._of_rank(one, np.flatnonzero(rank == one), own) for one in np.unique(rank).tolist()]
        return Pieces.joined(each, labels=True)

    def _of_rank(self, rank: int, rows: Ints, own: Ints) -> Ints:
        """Return row, document, offset, length and pass of the pieces of one rank's rows: int64[5, n]."""
        found, total = [], self._totals[rank]
        starts = own[rows] * self.context
        for epoch in range(int(starts.min()) // total, int(starts.max() + self.context - 1) // total + 1):
            documents, ends = self._passes(rank, epoch)
            begin = np.maximum(starts - epoch * total, 0)
            end = np.minimum(starts + self.context - epoch * total, total)
            inside = begin < end
            if not inside.any():
                continue
            begin, end = begin[inside], end[inside]
            row, place = expanded(np.searchsorted(ends, begin, "right"), np.searchsorted(ends, end - 1, "right"))
            size = self._labels[documents[place]]
            at = ends[place] - size
            low, high = np.maximum(begin[row], at), np.minimum(end[row], ends[place])
            offset = low - at + (not self.begin)
            passes = np.full(len(row), epoch)
            found.append(np.stack([rows[inside][row], documents[place], offset, high - low, passes]))
        return np.concatenate(found, axis=1)

    def position(self, rank: int, samples: int) -> dict[str, int]:
        """Return where a rank is after so many samples of all ranks: what its checkpoint says, of a buffer its size.

        Args:
            rank: Which.
            samples: Consumed, whole micro-batches of all ranks.
        """
        labels = samples // self.ranks * self.context
        total = self._totals[rank]
        # The loader reads the document that fills a row, and starts over only when the next row asks for more.
        epoch = max(0, (labels - 1) // total)
        _, ends = self._passes(rank, epoch)
        read = int(np.searchsorted(ends, labels - epoch * total, "left")) + (labels > 0)
        held = int(ends[read - 1]) if read else 0
        return {"sample_idx": read, "epoch": epoch, "inputs_buffer": held - (labels - epoch * total)}
