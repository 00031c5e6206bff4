"""Tags: which documents the labels of a batch are from, as integers beside ``input_ids``.

A *stretch* is the part of one document in one row of a batch. A batch of B rows has tags of int64 ``[B, K, 7]``: K
places for stretches in a row, and of each the seven numbers named here. Starts are places of *labels*, so that a target
belongs to the document of its label: of the first label of a document the tokens before it are another document's.

Places that are not used have :data:`UNUSED` in place of a shard. The stretches of a row that do not fit are merged into
the last place, whose shard is :data:`MERGED`; how many targets that hides is counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dataaudit.runlog.format import MERGED, UNUSED

SHARD, ROW, SOURCE, EPOCH, START, OFFSET, TARGETS = range(7)
"""Columns: ordinal of the shard, record of it, place of its source, pass over the data, first label in the row, which
token of the document this label is, and how many of the labels are targets."""
WIDTH = 7
STRETCHES = 16
"""Places of a row, at least, unless another number is asked for."""
MOST_STRETCHES = 256
"""Places of a row, at most, unless more are asked for: more of them would be larger than the row."""

__all__ = ["MERGED", "STRETCHES", "UNUSED", "WIDTH", "empty_tags", "needed_stretches", "window_tags"]


def needed_stretches(ends: np.ndarray, first: int, context: int, rows: int) -> int:
    """Return how many places the fullest row needs, within :data:`STRETCHES` and :data:`MOST_STRETCHES`.

    Args:
        ends: int64[documents] the place in a stream after the last token of each.
        first: Place of the first label of the first row.
        context: Labels of a row.
        rows: How many follow one another.
    """
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
    """Return the tags of one row: of labels that are a window of a stream of documents.

    Args:
        begins: Place in the stream of the first token of each document that the window meets; plain integers, since
            NumPy's are slow one by one.
        ends: The place after its last.
        places: Its shard, row, source and epoch.
        start: Place in the stream of the row's first label.
        stop: The place after its last.
        stretches: K.
        first_target: Place of the first label that is a target; labels before it are none. The first label, by default.

    Returns:
        int64[stretches, 7]
    """
    counted = start if first_target is None else first_target
    found = []
    for begin, end, place in zip(begins, ends, places, strict=True):
        first, last = max(begin, start), min(end, stop)
        if last > first:
            found.append((*place, first - start, first - begin, max(0, last - max(first, counted))))
    if len(found) > stretches:
        rest = found[stretches - 1 :]
        merged = (MERGED, -1, -1, rest[0][EPOCH], rest[0][START], 0, sum(one[TARGETS] for one in rest))
        found[stretches - 1 :] = [merged]
    tags: np.ndarray = empty_tags(1, stretches)[0]
    tags[: len(found)] = found
    return tags


def what_is_wrong(tags: np.ndarray, shards: int, sources: int) -> str:
    """Return why these cannot be the tags of a batch; nothing when they can.

    Args:
        tags: What should be int64[B, K, 7].
        shards: How many the manifest has.
        sources: How many sources have a name.
    """
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
