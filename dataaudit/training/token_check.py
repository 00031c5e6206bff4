"""Whether the labels of a batch are the tokens that its tags name, by a few of them: for every way that rows come in.

What lies between a data set and a loop (a collator, a filter, a buffer) may move rows apart from their tags. A loss is
then put down to a document that was not read. The documents and token files that a process reads know their tokens, so
labels are compared with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dataaudit.errors import TagsError
from dataaudit.runlog.format import MERGED, UNUSED
from dataaudit.training.corpus import Corpus
from dataaudit.training.stretch_losses import IGNORED, check_targets
from dataaudit.training.tags import OFFSET, ROW, SHARD, START, TARGETS, what_is_wrong

MOVED = (
    "Tags must travel with their rows: a collator that moves, cuts or rewrites rows has to be inside of TaggedCollator,"
    " or come before the tags."
)
FEW = 32
"""Tokens of a stretch that are compared,"""
STRETCHES = 4
"""of so many stretches of a row at most: its first ones and its last one."""


def check_batch(corpus: Corpus, tags: Any, losses: Any | None, labels: Any | None, *, inner: bool) -> None:
    """Refuse tags of a first batch that do not fit the corpus, the labels or the losses.

    Args:
        corpus: What is trained on.
        tags: int64[B, K, 7]
        losses: [B, T] or [B, T - 1]
        labels: int[B, T]
        inner: Whether the model shifts the labels itself.

    Raises:
        TagsError: They do not.
    """
    found = _array(tags)
    if why := what_is_wrong(found, corpus.table.num_rows, len(corpus.sources)):
        raise TagsError(
            f"the tags of the batch do not fit: {why}",
            "They must be those of this manifest's documents, as the dataset made them.",
        )
    targets = np.where(found[..., SHARD] == UNUSED, 0, found[..., TARGETS]).sum(axis=1)
    if labels is not None:
        whole = _array(labels)
        if why := moved_row(corpus, found, whole, range(len(found))):
            raise TagsError(why, MOVED)
        if len(given := whole[:, int(inner) :]) == len(targets):
            check_targets(targets, np.full(len(given), given.shape[1]), (given != IGNORED).sum(axis=1))
    elif losses is not None and len(losses.shape) == 2 and len(losses) == len(targets):
        check_targets(targets, np.full(len(targets), losses.shape[1]))


def _array(given: Any) -> np.ndarray:
    return np.asarray(given.cpu() if hasattr(given, "cpu") else given)


def moved_row(corpus: Corpus, tags: np.ndarray, labels: np.ndarray, rows: range) -> str:
    """Return which label is not the token that its tag names; nothing where all are, or nobody knows the tokens.

    Args:
        corpus: Of which documents and token files are read.
        tags: int64[B, K, 7]
        labels: int[B, T]; those that are -100 are not compared.
        rows: Of the batch.
    """
    if labels.ndim != tags.ndim - 1 or len(labels) != len(tags) or "" in corpus.encoders:
        return ""
    readers = [reader for one in corpus.readers if (reader := one()) is not None]
    for row in rows:
        used = tags[row][tags[row, :, SHARD] != UNUSED]
        stops = np.append(used[1:, START], labels.shape[1])
        chosen = [*range(len(used))[: STRETCHES - 1], *range(len(used))[STRETCHES - 1 :][-1:]]
        for tag, stop in zip(used[chosen].tolist(), stops[chosen].tolist(), strict=True):
            found = labels[row, tag[START] : min(stop, tag[START] + FEW)]
            if tag[SHARD] != MERGED and _differs(readers, tag, found):
                return (
                    f"the labels of row {row} from place {tag[START]:,} on are not the tokens of its tags: record"
                    f" {tag[ROW]:,} of shard {tag[SHARD]:,}, from token {tag[OFFSET]:,} on"
                )
    return ""


def _differs(readers: list[Any], tag: list[int], labels: np.ndarray) -> bool:
    """Return whether somebody knows the tokens of a document, and labels are none of them."""
    known = [tokens for one in readers if (tokens := one.tokens_of(tag[SHARD], tag[ROW])) is not None]
    return bool(known) and all(_other(tokens[tag[OFFSET] :], labels) for tokens in known)


def _other(tokens: np.ndarray, labels: np.ndarray) -> bool:
    size = min(len(tokens), len(labels))
    counted = labels != IGNORED
    return bool((counted[:size] & (labels[:size] != tokens[:size])).any() or counted[size:].any())
