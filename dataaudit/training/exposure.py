"""Which steps read which block and shard, in the order of the stream: what the event test redraws or shifts.

An *item* is what an order moves: a document, or a whole row where rows are shuffled. Only the newest steps that follow
each other and of which the log has every stretch are looked at; of older ones it keeps sums alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dataaudit.robust import Ints

Moves = Literal["documents", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Items in the order in which they were read, and what each of them is of."""

    first_step: int
    steps: int
    """How many follow each other from there."""
    item_first: Ints
    """int64[items] step of its first token, from 0."""
    item_last: Ints
    """int64[items] step of its last token."""
    piece_item: Ints
    piece_step: Ints
    piece_room: Ints
    """How much of an item lies in a step: targets, or 1 for each row where an item is one."""
    item_epoch: Ints
    """int64[items]; an order moves items within their pass alone."""
    pointers: Ints
    """int64[items + 1] into ``members``."""
    members: Ints
    """Place in ``units`` of each unit that an item holds, once."""
    units: Ints
    """int64[units] sorted; blocks as ``shard << 40 | block``, shards as ``-1 - shard``."""

    def __len__(self) -> int:
        return len(self.item_first)

    def held_by(self, items: Ints) -> Ints:
        """Return the distinct units that some items hold, as places in ``units``."""
        lengths = self.pointers[items + 1] - self.pointers[items]
        if not len(items) or not int(lengths.sum()):
            return np.zeros(0, np.int64)
        starts = np.repeat(self.pointers[items] - np.cumsum(lengths) + lengths, lengths)
        return np.unique(self.members[starts + np.arange(int(lengths.sum()))])

    def room_of(self, items: Ints) -> Ints:
        """Return how much room some items take up in each step: int64[steps]."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[items] = True
        inside = chosen[self.piece_item]
        room = np.bincount(self.piece_step[inside], self.piece_room[inside], minlength=self.steps)
        return room.astype(np.int64)


def exposure_of(
    stretches: pa.Table, steps: Ints, targets: Ints, twins: Ints, block_rows: int, *, moves: Moves = "documents"
) -> Exposure | None:
    """Return the exposure of the newest steps that are whole; None where there are none.

    Args:
        stretches: The log's table of stretches.
        steps: int64[n] steps of the log, ascending.
        targets: int64[n] targets of each; 0 of one that was skipped.
        twins: int64[shards] the shard that each counts as.
        block_rows: Rows of a block.
        moves: What the order moves.
    """
    names = ("step", "micro_batch", "rank", "batch_row", "start", "shard", "row", "epoch", "targets")
    columns: dict[str, Ints] = {name: stretches[name].to_numpy().astype(np.int64) for name in names}
    chosen = _whole_steps(columns["step"], columns["targets"], steps, targets)
    if chosen is None:
        return None
    first, number = chosen
    inside = (columns["step"] >= first) & (columns["step"] < first + number) & (columns["targets"] > 0)
    columns = {name: one[inside] for name, one in columns.items()}
    order = np.lexsort(tuple(columns[name] for name in ("start", "batch_row", "rank", "micro_batch", "step")))
    columns = {name: one[order] for name, one in columns.items()}
    shard = np.append(twins, -1)[columns["shard"]]
    step = columns["step"] - first
    row = ("step", "micro_batch", "rank", "batch_row")
    keys = [columns[name] for name in row] if moves == "rows" else [shard, columns["row"], columns["epoch"]]
    new = np.zeros(len(step), dtype=bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    item = np.cumsum(new) - 1
    starts = np.flatnonzero(new)
    items = len(starts)
    slot = np.stack([columns[name] for name in row])
    rows = 1 + int((slot[:, 1:] != slot[:, :-1]).any(axis=0).sum()) if items else 0
    room = columns["targets"] if rows != items else new.astype(np.int64)
    pieces, piece = np.unique(np.stack([item, step]), axis=1, return_inverse=True)
    blocks = np.where(shard < 0, np.iinfo(np.int64).min, (shard << 40) | (np.maximum(columns["row"], 0) // block_rows))
    pairs = np.concatenate(
        [np.stack([item, blocks]), np.stack([item, np.where(shard < 0, blocks, -1 - shard)])], axis=1
    )
    pairs = np.unique(pairs[:, pairs[1] != np.iinfo(np.int64).min], axis=1)
    units, members = np.unique(pairs[1], return_inverse=True)
    return Exposure(
        first_step=first,
        steps=number,
        item_first=step[starts],
        item_last=step[np.append(starts[1:], len(step)) - 1] if items else step[:0],
        piece_item=pieces[0],
        piece_step=pieces[1],
        piece_room=np.bincount(piece.ravel(), room, minlength=pieces.shape[1]).astype(np.int64),
        item_epoch=columns["epoch"][starts],
        pointers=np.searchsorted(pairs[0], np.arange(items + 1)).astype(np.int64),
        members=members.astype(np.int64),
        units=units,
    )


def _whole_steps(of: Ints, held: Ints, steps: Ints, targets: Ints) -> tuple[int, int] | None:
    """Return the first and the number of the newest steps that follow each other and have all their stretches."""
    if not len(steps):
        return None
    place = np.searchsorted(steps, of)
    known = (place < len(steps)) & (steps[np.minimum(place, len(steps) - 1)] == of)
    whole: Any = np.bincount(place[known], held[known], minlength=len(steps)) >= targets
    read = np.flatnonzero(whole & (targets > 0))
    if not len(read):
        return None
    last = int(read[-1])
    first = last
    while first > 0 and whole[first - 1] and steps[first] - steps[first - 1] == 1:
        first -= 1
    return int(steps[first]), last - first + 1
