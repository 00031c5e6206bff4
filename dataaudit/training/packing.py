"""From documents to rows of a fixed length: an order, a stream of tokens, and windows of it with tags.

A row is decided by its index alone, so any number of a loader's workers, and a run that is resumed, read the same rows.
Documents follow each other and are cut where a row ends; nothing is padded and, but for the last tokens of the
last epoch, nothing is left out.

Tags: which documents the labels of a batch are from, as integers beside ``input_ids``.

A *stretch* is the part of one document in one row of a batch. A batch of B rows has tags of int64 ``[B, K, 7]``: K
slots for stretches in a row, and of each the seven numbers named here. Starts are positions of *labels*, so that a
target belongs to the document of its label: before the first label of a document are tokens of another document.

Slots that are not used have :data:`UNUSED` as their shard. The stretches of a row that do not fit are merged into the
last slot, whose shard is :data:`MERGED`; how many targets that hides is counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.runlog.format import MERGED, UNUSED
from dataaudit.training.documents import Documents

SHARD, ROW, SOURCE, EPOCH, START, OFFSET, TARGETS = range(7)
"""Columns: ordinal of the shard, record of it, index of its source, pass over the data, first label in the row, which
token of the document this label is, and how many of the labels are targets."""
WIDTH = 7
STRETCHES = 16
"""Slots of a row, at least, unless another number is asked for."""
MOST_STRETCHES = 256
"""Slots of a row, at most, unless more are asked for: more of them would be larger than the row."""

__all__ = ["MERGED", "STRETCHES", "UNUSED", "WIDTH", "empty_tags", "needed_stretches", "window_tags"]


def needed_stretches(ends: np.ndarray, first: int, context: int, rows: int) -> int:
    """Return how many slots the fullest row needs, within :data:`STRETCHES` and :data:`MOST_STRETCHES`."""
    starts = first + context * np.arange(rows)
    begun, done = (np.searchsorted(ends, at, "right") for at in (starts, starts + context - 1))
    return int(np.clip((done - begun + 1).max(), STRETCHES, MOST_STRETCHES))


def empty_tags(rows: int, stretches: int = STRETCHES) -> np.ndarray:
    """Return tags that name nothing: int64[rows, stretches, 7]."""
    tags = np.zeros((rows, stretches, WIDTH), dtype=np.int64)
    tags[..., SHARD] = UNUSED
    return tags


def window_tags(
    begins: Sequence[int],
    ends: Sequence[int],
    places: Sequence[Sequence[int]],
    start: int,
    stop: int,
    *,
    stretches: int = STRETCHES,
    first_target: int | None = None,
) -> np.ndarray:
    """Return the tags of one row: of labels that are a window of a stream of documents."""
    counted = start if first_target is None else first_target
    rows = []
    for begin, end, place in zip(begins, ends, places, strict=True):
        first, last = max(begin, start), min(end, stop)
        if last > first:
            rows.append((*place, first - start, first - begin, max(0, last - max(first, counted))))
    tags: np.ndarray = empty_tags(1, stretches)[0]
    named = merged(np.array(rows, dtype=np.int64).reshape(-1, WIDTH), stretches)
    tags[: len(named)] = named
    return tags


def merged(tags: np.ndarray, stretches: int) -> np.ndarray:
    """Return the tags of a row, int64[n, 7], with those that do not fit into so many slots merged into the last."""
    if len(tags) <= stretches:
        return tags
    rest, last = tags[stretches - 1 :], [MERGED, -1, -1, 0, 0, 0, 0]
    last[EPOCH], last[START], last[TARGETS] = rest[0, EPOCH], rest[0, START], rest[:, TARGETS].sum()
    return np.concatenate([tags[: stretches - 1], [last]])


def what_is_wrong(tags: np.ndarray, shards: int, sources: int) -> str:
    """Return why these cannot be the tags of a batch; nothing when they can."""
    if tags.ndim != 3 or tags.shape[2] != WIDTH or tags.dtype != np.int64:
        return f"expected int64[B, K, {WIDTH}], found {tags.dtype}{list(tags.shape)}"
    shard, targets, start = tags[..., SHARD], tags[..., TARGETS], tags[..., START]
    used = shard != UNUSED
    later, named = used[:, 1:], used & (shard != MERGED)
    sizes = np.diff(start, axis=1)[later]
    least = tags[..., [ROW, OFFSET]][named].min(initial=0)
    faults = (
        (not used.any(), "they name no document"),
        (
            (shard < UNUSED).any() or (shard >= shards).any(),
            f"they name shard {int(np.abs(shard).max(initial=0)):,}, the manifest has {shards:,}",
        ),
        (not used[:, :1].all() or (later & ~used[:, :-1]).any(), "a place that is not used stands before one that is"),
        ((start[:, :1] != 0).any() or (sizes <= 0).any(), "the starts of a row do not ascend from 0"),
        (
            targets[used].min(initial=0) < 0 or (targets[:, :-1][later] > sizes).any() or not targets[used].any(),
            "a stretch has more targets than labels, or none of the batch has one",
        ),
        (least < 0 or (tags[..., SOURCE] >= max(1, sources)).any(), "a row, an offset or a source is out of range"),
    )
    return next((text for wrong, text in faults if wrong), "")


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
            inputs, a model that shifts them itself has no use for the first of a row.
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
        self.order = np.concatenate(
            [
                ordered(documents, seed=seed, epoch=pass_, order=order, open_shards=open_shards)
                for pass_ in range(epochs)
            ]
        )
        """int64[documents · epochs] the document at each index of the stream."""
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
        """Return a row."""
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
        pieces = [self.documents.tokens(int(item)) for item in self.order[first:last]]
        begin = int(self.ends[first - 1]) if first else 0
        return np.concatenate(pieces)[start - begin : stop - begin]

    def tags(self, start: int, stop: int, *, first_target: int | None = None) -> np.ndarray:
        """Return the tags of the labels of a window, as :func:`dataaudit.training.packing.window_tags` does."""
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
        """Return the first document of the stream that a window meets, and the last plus 1."""
        first, last = np.searchsorted(self.ends, [start, stop - 1], "right")
        return int(first), int(last) + 1


def check_shift(shift: Shift) -> Shift:
    """Return who shifts the labels."""
    if shift not in get_args(Shift):
        raise ConfigError(
            f"shift: expected outer (the loader shifts labels) or inner (the model does), found {shift!r}"
        )
    return shift


def check_sizes(**sizes: int) -> None:
    """Check numbers that a dataset is given."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ConfigError(f"{name}: expected a whole number from 1 on, found {size!r}")


def ordered(documents: Documents, *, seed: int, epoch: int, order: Order, open_shards: int) -> np.ndarray:
    """Return the order of the documents in an epoch; quarantined documents are replaced in place.

    The order is that of all documents, so that quarantine moves no other: a quarantined document is replaced by
    another, chosen by the index in the order, the epoch and the seed.
    """
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    if order == "shuffled":
        chosen = random.permutation(len(documents))
    elif order == "interleaved":
        chosen = _interleaved(documents.starts, random.permutation(len(documents.shards)), open_shards)
    elif order == "sequential":
        chosen = np.arange(len(documents))
    else:
        raise ConfigError(f"no order `{order}`; there are shuffled, interleaved, sequential")
    left_out, kept = documents.held[chosen], np.flatnonzero(~documents.held)
    if not len(kept):
        raise ConfigError("every document is held back", "Look at the quarantine list, and at what was chosen.")
    draw = np.random.Generator(np.random.PCG64([seed, epoch, 1])).random(len(chosen))
    return np.where(left_out, kept[(draw * len(kept)).astype(np.int64)], chosen).astype(np.int64)


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
