"""Exact counts of what was trained on: targets by token, stretches by length, of each source.

They are added up in the thread of the log and written as rows of the tables ``tokens`` and ``lengths`` that say of the
steps since the rows before, so that a run that goes on after a checkpoint replaces what it does again, and counts of
ranks add up.
"""

from __future__ import annotations

import numpy as np

from dataaudit.robust import Ints
from dataaudit.runlog.format import MERGED, UNUSED
from dataaudit.runlog.writer import Columns
from dataaudit.training.stretch_losses import IGNORED
from dataaudit.training.tags import EPOCH, OFFSET, ROW, SHARD, SOURCE, START, TARGETS

LEAST_STEPS = 64
"""Steps between two writings, at least; later on a sixteenth of the run's steps, so that rows do not grow with them."""
_WAITING_TARGETS = 1 << 20
_ID_BITS = 32
"""Of a key: a token or a length, above it one bit, above that the source."""
_MASK = (1 << _ID_BITS) - 1


class _Tally:
    """Counts by key, added up now and then."""

    def __init__(self) -> None:
        self._keys, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._waiting: list[Ints] = []
        self._number = 0

    def add(self, keys: Ints) -> None:
        """Count each key once more."""
        self._waiting.append(keys)
        self._number += len(keys)
        if self._number >= _WAITING_TARGETS:
            self._add_up()

    def take(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return source, number, count and the count of those with the bit set, sorted; and begin anew."""
        self._add_up()
        keys, counts = self._keys, self._counts
        self._keys, self._counts = keys[:0], counts[:0]
        marked = keys >> _ID_BITS & 1
        names, inverse = np.unique((keys >> (_ID_BITS + 1) << _ID_BITS) | (keys & _MASK), return_inverse=True)
        every, half = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
        np.add.at(every, inverse, counts)
        np.add.at(half, inverse, counts * marked)
        return (names >> _ID_BITS) - 1, (names & _MASK) - 1, every, half

    def _add_up(self) -> None:
        found, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *self._waiting]), return_counts=True)
        keys, inverse = np.unique(np.concatenate([self._keys, found]), return_inverse=True)
        total = np.zeros(len(keys), np.int64)
        np.add.at(total, inverse, np.concatenate([self._counts, counts]))
        self._keys, self._counts = keys, total
        self._waiting, self._number = [], 0


class TrainedCounts:
    """Counts of the steps since the last writing.

    Args:
        inner: Whether the model shifts labels itself, so that the first one of a row is no target.
        vocab: Tokens of the vocabulary; ids from there on are counted as -1. 0: not known.
    """

    def __init__(self, *, inner: bool, vocab: int = 0) -> None:
        self._inner, self._vocab = inner, vocab
        self._tokens, self._lengths = _Tally(), _Tally()
        self._written = self._step = 0

    def add(self, step: int, tags: Ints, labels: Ints | None) -> int:
        """Count a batch; return how many of its targets are no tokens of the vocabulary.

        Args:
            step: Of the batch.
            tags: int64[B, K, 7], of which the targets are those that the labels say.
            labels: int[B, T], :data:`IGNORED` where a label is no target; None: not known.
        """
        self._written = self._written or step - 1
        self._step = step
        used = tags[..., SHARD] != UNUSED
        found = tags[used]
        source = np.maximum(found[:, SOURCE], -1) + 1
        begun = (found[:, OFFSET] == 0) & (found[:, SHARD] != MERGED)
        self._lengths.add((source << 1 | begun) << _ID_BITS | (found[:, TARGETS] + 1))
        if labels is None or labels.shape[0] != tags.shape[0]:
            return 0
        rows = np.nonzero(used)[0]
        last = np.append(rows[1:] != rows[:-1], True)
        ends = np.where(last, labels.shape[1], np.append(found[1:, START], 0))
        of = np.repeat(np.arange(len(found)), np.maximum(ends - found[:, START], 0))
        flat = labels.reshape(-1).astype(np.int64)
        if len(of) != len(flat):
            return 0
        targets = labels != IGNORED
        targets[:, : int(self._inner)] = False
        kept = np.flatnonzero(targets.reshape(-1))
        tokens = flat[kept]
        outside = (tokens < 0) | (tokens >= (self._vocab or _MASK))
        high = (source << 1 | _half(found, step))[of[kept]] << _ID_BITS
        self._tokens.add(high | (np.where(outside, -1, tokens) + 1))
        return int(outside.sum())

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return self._step - self._written >= max(LEAST_STEPS, self._step // 16)

    def rows(self) -> dict[str, Columns]:
        """Return the rows of the steps since the last time, by table, without those that have none."""
        self._written = self._step
        source, token, count, half = self._tokens.take()
        found: dict[str, Columns] = {}
        if len(token):
            step = np.full(len(token), self._step)
            found["tokens"] = {"step": step, "source": source, "token": token, "count": count, "half": half}
        source, length, stretches, begun = self._lengths.take()
        if len(length):
            step = np.full(len(length), self._step)
            found["lengths"] = {
                "step": step,
                "source": source,
                "length": length,
                "stretches": stretches,
                "begun": begun,
            }
        return found


def repeated_targets(tags: Ints) -> int:
    """Return targets of rows that were dealt before, so that all ranks have as many."""
    return int(tags[..., TARGETS][(tags[..., SHARD] != UNUSED) & (tags[..., EPOCH] < 0)].sum())


def _half(found: Ints, step: int) -> Ints:
    """Return 0 or 1 of each stretch, the same for all of a document; merged ones, which are several, by their place."""
    merged = found[:, SHARD] == MERGED
    key = np.where(merged, found[:, START] * 1_000_003 + step, found[:, SHARD] << 40 | found[:, ROW])
    mixed = key.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    half: Ints = (mixed >> np.uint64(63)).astype(np.int64)
    return half
