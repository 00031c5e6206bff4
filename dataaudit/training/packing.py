"""From documents to rows of a fixed length: an order, a stream of tokens, and windows of it with tags.

A row is decided by its index alone, so any number of a loader's workers, and a run that is resumed, read the same rows.
Documents stand one after another and are cut where a row ends; nothing is padded and, but for the last tokens of the
last epoch, nothing is left out.
"""

from __future__ import annotations

import heapq
from typing import Literal, get_args

import numpy as np

from dataaudit.errors import ConfigError
from dataaudit.training.documents import Documents
from dataaudit.training.tags import needed_stretches, window_tags

Order = Literal["shuffled", "interleaved", "sequential"]
Shift = Literal["outer", "inner"]


class PackedDocuments:
    """A map-style dataset of packed rows: ``input_ids``, ``labels`` and ``tags`` as NumPy arrays.

    Args:
        documents: What is packed.
        context: Labels of a row.
        seed: Decides the order.
        epochs: Passes over the documents, each in an order of its own.
        order: ``shuffled``: all documents at random. ``interleaved``: shards at random, the documents of
            ``open_shards`` of them in turn, each shard in its own order, as loaders that stream do. ``sequential``: the
            manifest's order.
        open_shards: Shards that are read at once when they are interleaved.
        shift: ``outer``: labels are the tokens after the inputs, and every label is a target. ``inner``: labels are the
            inputs, a model that shifts them itself has no use for the first one of a row.
        stretches: Places for tags in a row; None: as many as the fullest row needs, from 16 to 256.

    Raises:
        ConfigError: No document is left, or they do not fill one row.
    """

    def __init__(
        self,
        documents: Documents,
        context: int,
        *,
        seed: int = 0,
        epochs: int = 1,
        order: Order = "shuffled",
        open_shards: int = 4,
        shift: Shift = "outer",
        stretches: int | None = None,
    ) -> None:
        check_sizes(context=context, epochs=epochs, open_shards=open_shards)
        if stretches is not None:
            check_sizes(stretches=stretches)
        self.documents, self.context = documents, context
        self.shift = check_shift(shift)
        orders = [
            ordered(documents, seed=seed, epoch=epoch, order=order, open_shards=open_shards) for epoch in range(epochs)
        ]
        self.order = np.concatenate(orders) if orders else np.zeros(0, np.int64)
        """int64[documents · epochs] index of the document at each place of the stream."""
        self.ends = np.cumsum(documents.lengths[self.order])
        """int64[documents · epochs] tokens of the stream up to the end of each."""
        total = int(self.ends[-1]) if len(self.ends) else 0
        self._rows = (total - 1 if shift == "outer" else total) // context
        if self._rows < 1:
            raise ConfigError(
                f"the documents that are left hold {total:,} tokens, a row takes {context + (shift == 'outer'):,}",
                "Look at the shards that are held back, or take a shorter context.",
            )
        self.stretches = stretches or needed_stretches(self.ends, int(shift == "outer"), context, self._rows)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """Return a row.

        Returns:
            input_ids: int64[context]; labels: int64[context]; tags: int64[stretches, 7]
        """
        if not 0 <= index < self._rows:
            raise IndexError(index)
        start = index * self.context
        outer = self.shift == "outer"
        tokens = self.window(start, start + self.context + outer).astype(np.int64)
        return {"input_ids": tokens[: self.context], "labels": tokens[int(outer) :], "tags": self.row_tags(index)}

    def row_tags(self, index: int) -> np.ndarray:
        """Return the tags of a row alone: int64[stretches, 7]."""
        start = index * self.context
        outer = self.shift == "outer"
        return self.tags(start + outer, start + self.context + outer, first_target=None if outer else start + 1)

    def window(self, start: int, stop: int) -> np.ndarray:
        """Return tokens of the stream: [stop - start] of the encoder's dtype."""
        first, last = self._met(start, stop)
        pieces = [self.documents.tokens(int(one)) for one in self.order[first:last]]
        begin = int(self.ends[first - 1]) if first else 0
        return np.concatenate(pieces)[start - begin : stop - begin]

    def tags(self, start: int, stop: int, *, first_target: int | None = None) -> np.ndarray:
        """Return the tags of the labels of a window, as :func:`dataaudit.training.tags.window_tags` does."""
        first, last = self._met(start, stop)
        met = self.order[first:last].tolist()
        size = len(self.documents)
        places = [
            (*place, at // size) for place, at in zip(self.documents.places(met), range(first, last), strict=True)
        ]
        ends = self.ends[first:last].tolist()
        begins = [int(self.ends[first - 1]) if first else 0, *ends[:-1]]
        return window_tags(begins, ends, places, start, stop, stretches=self.stretches, first_target=first_target)

    def _met(self, start: int, stop: int) -> tuple[int, int]:
        """Return the first place of the stream that a window meets, and the one after the last."""
        first, last = np.searchsorted(self.ends, [start, stop - 1], "right")
        return int(first), int(last) + 1


def check_shift(shift: Shift) -> Shift:
    """Return who shifts the labels.

    Raises:
        ConfigError: Nobody has that name.
    """
    if shift not in get_args(Shift):
        raise ConfigError(
            f"shift: expected outer (the loader shifts labels) or inner (the model does), found {shift!r}"
        )
    return shift


def check_sizes(**sizes: int) -> None:
    """Look at numbers that a dataset is given.

    Raises:
        ConfigError: One of them is no whole number from 1 on.
    """
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ConfigError(f"{name}: expected a whole number from 1 on, found {size!r}")


def ordered(documents: Documents, *, seed: int, epoch: int, order: Order, open_shards: int) -> np.ndarray:
    """Return the order of the documents in an epoch; those that are held back are replaced in place.

    The order is that of all documents, held or not, so that quarantine moves nobody: in place of a held document stands
    another one, chosen by its place, the epoch and the seed.

    Args:
        documents: Of which.
        seed: Decides the order.
        epoch: From 0.
        order: See :class:`PackedDocuments`.
        open_shards: Shards that are read at once when they are interleaved.

    Returns:
        int64[n] index of the document at each place.

    Raises:
        ConfigError: Every document is held back, or no order has that name.
    """
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    found: np.ndarray
    if order == "shuffled":
        found = random.permutation(len(documents))
    elif order == "interleaved":
        found = _interleaved(documents.starts, random.permutation(len(documents.shards)), open_shards)
    elif order == "sequential":
        found = np.arange(len(documents))
    else:
        raise ConfigError(f"no order `{order}`; there are shuffled, interleaved, sequential")
    held = documents.held[found]
    kept = np.flatnonzero(~documents.held)
    if not len(kept):
        raise ConfigError("every document is held back", "Look at the quarantine list, and at what was chosen.")
    found = found.astype(np.int64)
    draw = np.random.Generator(np.random.PCG64([seed, epoch, 1])).random(len(found))
    found[held] = kept[(draw[held] * len(kept)).astype(np.int64)]
    return found


def _interleaved(starts: np.ndarray, shards: np.ndarray, open_shards: int) -> np.ndarray:
    """Return documents of some shards in turn: when one shard ends, the next takes its turn."""
    free = [(0, turn) for turn in range(max(1, open_shards))]
    rounds = np.empty(int(starts[-1]), dtype=np.int64)
    turns = np.empty(int(starts[-1]), dtype=np.int64)
    for shard in shards.tolist():
        begin, turn = heapq.heappop(free)
        start, stop = int(starts[shard]), int(starts[shard + 1])
        rounds[start:stop] = np.arange(begin, begin + stop - start)
        turns[start:stop] = turn
        heapq.heappush(free, (begin + stop - start, turn))
    return np.lexsort((turns, rounds))
