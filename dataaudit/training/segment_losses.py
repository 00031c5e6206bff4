"""The loss of every stretch of a batch: from the loop's own per-token losses, from logits, or from hidden states.

All is computed on detached tensors without gradients, draws no random number, and waits for nothing: what a GPU
computes is copied to the host behind the loop's back. Sums run over the positions of a row in one order, so the same
losses give the same bytes.

Labels give exact counts of what was trained on, and whether they are the tokens that the tags name. Targets by token
and stretches by length, of each source, are added up in the thread of the log. They are rows of the tables ``tokens``
and ``lengths`` for the steps since the rows before, so that a run that goes on after a checkpoint replaces what it does
again, and counts of ranks add up.

What lies between a data set and a loop (a collator, a filter, a buffer) may move rows apart from their tags. A loss is
then put down to a document that was not read. The documents and token files that a process reads know their tokens, so
labels are compared with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dataaudit.base.async_copy import AsyncCopy, sent
from dataaudit.base.errors import TagsError
from dataaudit.base.statistics import Ints
from dataaudit.runlog.format import MERGED, UNUSED
from dataaudit.runlog.writer import Columns
from dataaudit.training.corpus import Corpus
from dataaudit.training.packing import EPOCH, OFFSET, ROW, SHARD, SOURCE, START, TARGETS, what_is_wrong

IGNORED = -100
"""Label of a token that is no target."""
_CHUNK_ELEMENTS = 1 << 22
_CHUNK_LOGITS = 1 << 24


def stretch_loss_sums(losses: Any, tags: Any, labels: Any | None, *, inner: bool) -> tuple[Any, Any | None]:
    """Add up the losses of each stretch."""
    import torch

    with torch.no_grad():
        losses = losses.detach()
        if losses.dim() != 2:
            raise TagsError(f"losses: expected one for each label, [B, T], found {list(losses.shape)}")
        rows, columns = losses.shape
        length = columns + 1 if inner and (labels is None or labels.shape[1] != columns) else columns
        first = length - columns
        _check_shapes(tags, labels, rows, length)
        counts = None if labels is None else sent(labels[:, first:], losses.device) != IGNORED
        if counts is not None:
            losses = losses.masked_fill(~counts, 0)
            if inner and not first:
                counts = counts.clone()
                counts[:, 0] = False
        tags = sent(tags, losses.device)
        starts = torch.where(tags[..., SHARD] == UNUSED, length, tags[..., START])
        stops = torch.cat([starts[:, 1:], torch.full_like(starts[:, :1], length)], dim=1)
        place = torch.arange(first, length, device=losses.device)
        step = max(1, _CHUNK_ELEMENTS // max(1, starts.shape[1] * columns))
        sums, numbers = [], []
        for row in range(0, rows, step):
            chosen = slice(row, row + step)
            within = (place >= starts[chosen, :, None]) & (place < stops[chosen, :, None])
            sums.append(torch.where(within, losses[chosen, None, :].to(torch.float64), 0.0).sum(-1))
            if counts is not None:
                numbers.append((within & counts[chosen, None, :]).sum(-1))
        return torch.cat(sums), torch.cat(numbers) if numbers else None


def token_losses(logits: Any, labels: Any, *, inner: bool) -> Any:
    """Return the loss of each label from logits, in float32, a few rows at a time."""
    import torch
    from torch.nn.functional import cross_entropy

    with torch.no_grad():
        logits = logits.detach()
        if inner:
            logits, labels = logits[:, :-1], labels[:, 1:]
        step = max(1, _CHUNK_LOGITS // max(1, logits.shape[1] * logits.shape[2]))
        losses = []
        for row in range(0, len(logits), step):
            part = logits[row : row + step].transpose(1, 2).float()
            losses.append(cross_entropy(part, labels[row : row + step], reduction="none", ignore_index=IGNORED))
        return torch.cat(losses)


def hidden_losses(hidden: Any, head: Any, labels: Any, *, inner: bool) -> Any:
    """Return the loss of each label from the last hidden states, in a pass of its own through the head."""
    import torch

    with torch.no_grad():
        hidden, is_module = hidden.detach(), isinstance(head, torch.nn.Module)
        vocab = (head.weight if is_module else head).shape[0]
        step = max(1, _CHUNK_LOGITS // max(1, hidden.shape[1] * vocab))
        losses = []
        for row in range(0, len(hidden), step):
            part = hidden[row : row + step]
            logits = head(part) if is_module else part @ head.detach().T
            losses.append(token_losses(logits, labels[row : row + step], inner=inner))
        return torch.cat(losses)


def ids_of(labels: Any | None) -> AsyncCopy | None:
    """Return labels on their way to the log's thread; None where there are none."""
    if labels is None:
        return None
    import torch

    return AsyncCopy(torch.as_tensor(labels).detach().to(torch.int32))


def shape_of(*given: Any) -> tuple[int, int] | None:
    """Return rows and places of a row of a batch; None where they are unknown."""
    return next(((int(item.shape[0]), int(item.shape[1])) for item in given[::-1] if item is not None), None)


def check_targets(targets: np.ndarray, *possible: np.ndarray) -> None:
    """Compare the targets that tags promise with the labels, or the losses, that there are, row by row."""
    wrong = np.flatnonzero(np.all([targets != values for values in possible], axis=0))
    if len(wrong):
        row = int(wrong[0])
        raise TagsError(
            f"row {row} of the batch has {int(possible[0][row]):,} targets, its tags say {int(targets[row]):,}",
            "Tags must travel with their rows, and `shift` say who shifts the labels: the loader (outer) or the model"
            f" (inner). Where some labels are {IGNORED}, hand over `labels` too.",
        )


def _check_shapes(tags: Any, labels: Any | None, rows: int, length: int) -> None:
    shape = tuple(tags.shape)
    if len(shape) != 3 or shape[0] != rows or (labels is not None and tuple(labels.shape) != (rows, length)):
        shown = "" if labels is None else f", labels {tuple(labels.shape)}"
        raise TagsError(f"losses of {rows} rows of {length} labels, tags {shape}{shown}: they do not belong together")


MOVED = (
    "Tags must travel with their rows: a collator that moves, cuts or rewrites rows has to be inside of TaggedCollator,"
    " or come before the tags."
)
FEW = 32
"""Tokens of a stretch that are compared,"""
STRETCHES = 4
"""of so many stretches of a row at most: its first and its last."""
LEAST_STEPS = 64
"""Steps between two writings, at least; later on a sixteenth of the run's steps, so that rows do not grow with them."""
_WAITING_TARGETS = 1 << 20
_ID_BITS = 32
"""Of a key: a token or a length, above it one bit, above that the source."""
_MASK = (1 << _ID_BITS) - 1


def check_batch(corpus: Corpus, tags: Any, losses: Any | None, labels: Any | None, *, inner: bool) -> None:
    """Refuse tags of a first batch that do not fit the corpus, the labels or the losses."""
    tags = _array(tags)
    if why := what_is_wrong(tags, corpus.table.num_rows, len(corpus.sources)):
        raise TagsError(
            f"the tags of the batch do not fit: {why}",
            "They must be those of this manifest's documents, as the dataset made them.",
        )
    targets = np.where(tags[..., SHARD] == UNUSED, 0, tags[..., TARGETS]).sum(axis=1)
    if labels is not None:
        whole = _array(labels)
        if why := moved_row(corpus, tags, whole, range(len(tags))):
            raise TagsError(why, MOVED)
        if len(given := whole[:, int(inner) :]) == len(targets):
            check_targets(targets, np.full(len(given), given.shape[1]), (given != IGNORED).sum(axis=1))
    elif losses is not None and len(losses.shape) == 2 and len(losses) == len(targets):
        check_targets(targets, np.full(len(targets), losses.shape[1]))


def _array(given: Any) -> np.ndarray:
    return np.asarray(given.cpu() if hasattr(given, "cpu") else given)


def moved_row(corpus: Corpus, tags: np.ndarray, labels: np.ndarray, rows: range) -> str:
    """Return which label is not the token that its tag names; nothing where all are, or nobody knows the tokens."""
    if labels.ndim != tags.ndim - 1 or len(labels) != len(tags) or "" in corpus.encoders:
        return ""
    readers = [reader for reference_type in corpus.readers if (reader := reference_type()) is not None]
    for row in rows:
        used = tags[row][tags[row, :, SHARD] != UNUSED]
        stops = np.append(used[1:, START], labels.shape[1])
        chosen = [*range(len(used))[: STRETCHES - 1], *range(len(used))[STRETCHES - 1 :][-1:]]
        for tag, stop in zip(used[chosen].tolist(), stops[chosen].tolist(), strict=True):
            own = labels[row, tag[START] : min(stop, tag[START] + FEW)]
            if tag[SHARD] != MERGED and _differs(readers, tag, own):
                return (
                    f"the labels of row {row} from place {tag[START]:,} on are not the tokens of its tags: record"
                    f" {tag[ROW]:,} of shard {tag[SHARD]:,}, from token {tag[OFFSET]:,} on"
                )
    return ""


def _differs(readers: list[Any], tag: list[int], labels: np.ndarray) -> bool:
    """Return whether a reader knows the tokens of a document, and labels are none of them."""
    known = [tokens for reader in readers if (tokens := reader.tokens_of(tag[SHARD], tag[ROW])) is not None]
    return bool(known) and all(_other(tokens[tag[OFFSET] :], labels) for tokens in known)


def _other(tokens: np.ndarray, labels: np.ndarray) -> bool:
    size = min(len(tokens), len(labels))
    counted = labels != IGNORED
    return bool((counted[:size] & (labels[:size] != tokens[:size])).any() or counted[size:].any())


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
        new, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *self._waiting]), return_counts=True)
        keys, inverse = np.unique(np.concatenate([self._keys, new]), return_inverse=True)
        total = np.zeros(len(keys), np.int64)
        np.add.at(total, inverse, np.concatenate([self._counts, counts]))
        self._keys, self._counts = keys, total
        self._waiting, self._number = [], 0


class TrainedCounts:
    """Counts of the steps since the last writing; where the model shifts labels, a row's first is no target."""

    def __init__(self, *, inner: bool) -> None:
        self._inner = inner
        self._tokens, self._lengths = _Tally(), _Tally()
        self._written = self._step = 0

    def add(self, step: int, tags: Ints, labels: Ints | None) -> None:
        """Count a batch; ids that are no tokens are counted as -1."""
        self._written = self._written or step - 1
        self._step = step
        used = tags[..., SHARD] != UNUSED
        named = tags[used]
        source = np.maximum(named[:, SOURCE], -1) + 1
        begun = (named[:, OFFSET] == 0) & (named[:, SHARD] != MERGED)
        self._lengths.add((source << 1 | begun) << _ID_BITS | (named[:, TARGETS] + 1))
        if labels is None or labels.shape[0] != tags.shape[0]:
            return
        rows = np.nonzero(used)[0]
        last = np.append(rows[1:] != rows[:-1], True)
        ends = np.where(last, labels.shape[1], np.append(named[1:, START], 0))
        of = np.repeat(np.arange(len(named)), np.maximum(ends - named[:, START], 0))
        flat = labels.reshape(-1).astype(np.int64)
        if len(of) != len(flat):
            return
        targets = labels != IGNORED
        targets[:, : int(self._inner)] = False
        kept = np.flatnonzero(targets.reshape(-1))
        tokens = flat[kept]
        outside = (tokens < 0) | (tokens >= _MASK)
        high = (source << 1 | _half(named, step))[of[kept]] << _ID_BITS
        self._tokens.add(high | (np.where(outside, -1, tokens) + 1))

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return self._step - self._written >= max(LEAST_STEPS, self._step // 16)

    def rows(self) -> dict[str, Columns]:
        """Return the rows of the steps since the last time, by table, without those that have none."""
        self._written = self._step
        tables: dict[str, Columns] = {}
        for table, tally, names in (
            ("tokens", self._tokens, ("source", "token", "count", "half")),
            ("lengths", self._lengths, ("source", "length", "stretches", "begun")),
        ):
            columns = dict(zip(names, tally.take(), strict=True))
            if number := len(columns["source"]):
                tables[table] = {"step": np.full(number, self._step), **columns}
        return tables


def repeated_targets(tags: Ints) -> int:
    """Return targets of rows that were dealt before, so that all ranks have as many."""
    return int(tags[..., TARGETS][(tags[..., SHARD] != UNUSED) & (tags[..., EPOCH] < 0)].sum())


def _half(tags: Ints, step: int) -> Ints:
    """Return 0 or 1 of each stretch, the same for all of a document; of merged documents by their position."""
    merged = tags[:, SHARD] == MERGED
    key = np.where(merged, tags[:, START] * 1_000_003 + step, tags[:, SHARD] << 40 | tags[:, ROW])
    mixed = key.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return (mixed >> np.uint64(63)).astype(np.int64)


def out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out, of a device or of the host: torch has no class of its own for the host's."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "memory" in str(error))
