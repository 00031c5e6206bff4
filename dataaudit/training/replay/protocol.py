"""What a replay of a run has to do: bring a checkpoint back, read a step's batches, train on given ones, score.

The loop is the user's, so the replay is too: :class:`Replay` is its interface, and
:class:`dataaudit.training.replay.loop.LoopReplay` implements it for plain PyTorch loops. Documents are named by their
index in :class:`Candidates`, the table of all that the run could read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dataaudit.base.errors import ConfigError
from dataaudit.base.statistics import Floats, Ints
from dataaudit.training.documents import Documents
from dataaudit.training.packing import OFFSET, ROW, SHARD, START
from dataaudit.training.segment_losses import IGNORED

Batch = Mapping[str, Any]
"""``input_ids`` and ``labels``, integers [B, T], and ``tags``, int64[B, K, 7]: arrays or tensors; anything beside."""
NEVER = np.iinfo(np.int64).max
"""First step that reads a document which none reads."""
Matched = tuple[Literal["source", "language", "length"], ...]
MATCHED: tuple[Matched, ...] = (("source", "language", "length"), ("source", "length"), ("length",))
"""In what controls are matched, each where the one before leaves too few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Documents that a run can read, as columns of equal length."""

    shard: Ints
    row: Ints
    source: Ints
    """Index in the sources of the run log."""
    tokens: Ints
    """Tokens, the end token with them."""
    language: Ints
    """A code of the document's language; equal codes are controls of each other."""

    def __len__(self) -> int:
        return len(self.shard)

    def strata(self, matched: Matched = MATCHED[0]) -> Ints:
        """Return a code of what controls are matched in; length is log2 of the tokens."""
        length = np.log2(np.maximum(self.tokens, 1)).astype(np.int64)
        known = {"source": self.source, "language": self.language, "length": length}
        keys = np.stack([known[item] for item in matched])
        return np.unique(keys, axis=1, return_inverse=True)[1].ravel().astype(np.int64)

    def places(self, shard: Ints, row: Ints) -> Ints:
        """Return the index of each document, -1 for those that are not among them."""
        order = np.lexsort((self.row, self.shard))
        keys = (self.shard << 40 | self.row)[order]
        asked = np.where(shard < 0, -1, shard << 40 | np.maximum(row, 0))
        at = np.minimum(np.searchsorted(keys, asked), max(0, len(keys) - 1))
        return np.where(keys[at] == asked, order[at], -1) if len(keys) else np.full(len(asked), -1)


def candidates_of(documents: Documents, languages: Ints | None = None) -> Candidates:
    """Return the documents of a split that are not quarantined."""
    kept = np.flatnonzero(~documents.held)
    places = np.array(documents.places(kept.tolist()), dtype=np.int64).reshape(-1, 3)
    language = np.zeros(len(kept), np.int64) if languages is None else np.asarray(languages)[kept].astype(np.int64)
    for source in np.unique(places[language < 0, 2]).tolist():
        own = places[:, 2] == source
        known, counts = np.unique(language[own & (language >= 0)], return_counts=True)
        language[own & (language < 0)] = known[np.argmax(counts)] if len(known) else 0
    return Candidates(
        shard=places[:, 0],
        row=places[:, 1],
        source=places[:, 2],
        tokens=documents.lengths[kept].astype(np.int64),
        language=language,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a step of training gave."""

    loss: float
    """The number that the loop handed to ``monitor.step``, as it was: compared bit by bit with the log."""
    values: Mapping[str, float] | None = None
    """Further numbers of the step by the log's names, such as ``learning_rate``: they show what differs."""


class Replay(Protocol):
    """A run that can be done again from its checkpoints, in one process."""

    @property
    def checkpoints(self) -> Sequence[int]:
        """Steps after which there is a checkpoint, ascending."""

    @property
    def documents(self) -> Candidates:
        """All documents that the run can read."""

    def tokens(self, document: int) -> npt.NDArray[Any]:
        """Return a document's tokens as the run reads them: integers [n], the end token with them."""

    def tags(self, step: int) -> Sequence[Ints]:
        """Return the tags of each micro-batch that a step of the run reads: int64[B, K, 7]."""

    def batches(self, step: int) -> Sequence[Batch]:
        """Return the micro-batches that a step of the run reads."""

    def restore(self, step: int) -> None:
        """Be as the run was after a step that has a checkpoint: weights, optimizer, schedule, random numbers."""

    def train(self, step: int, batches: Sequence[Batch]) -> Trained:
        """Make one step on these micro-batches, by the schedule of this step number."""

    def save(self) -> Any:
        """Return all that decides what comes next, copied."""

    def load(self, saved: Any) -> None:
        """Be again as :meth:`save` found it."""

    def score(self, documents: Ints) -> Floats:
        """Return float64[n]: each document's mean loss, alone in its row, nats/token; nothing is changed by it."""


def first_reads(replay: Replay, last: int) -> Ints:
    """Return the first step of 1 to ``last`` that reads each document: int64[n], :data:`NEVER` where none does."""
    documents = replay.documents
    first = np.full(len(documents), NEVER)
    for step in range(last, 0, -1):
        met = read_by(replay, step)
        first[met] = step
    return first


def read_by(replay: Replay, step: int) -> Ints:
    """Return the documents that a step reads, once each, ascending."""
    pairs = [np.asarray(tags)[..., [SHARD, ROW]].reshape(-1, 2) for tags in replay.tags(step)]
    shard, row = np.concatenate([np.zeros((0, 2), np.int64), *pairs]).T
    documents = replay.documents.places(shard, row)
    return np.unique(documents[documents >= 0])


def replaced(replay: Replay, batch: Batch, controls: Mapping[int, Sequence[int]]) -> Batch:
    """Return a micro-batch in which documents are replaced by others, token by token.

    Each stretch of a replaced document gets as many tokens of its controls, read from the same place of the text; where
    the document ends, the last token stays (the end token, if there is one). All others stay where they are, and so do
    the tags.
    """
    if not {"input_ids", "labels", "tags"} <= set(batch):
        raise ConfigError("a batch of the replay needs input_ids, labels and tags", "Hand over the loader's batches.")
    tags = np.asarray(batch["tags"])
    inputs, labels = (_copy(batch[name]) for name in ("input_ids", "labels"))
    rows, length = inputs.shape
    joined = {document: np.concatenate(list(map(replay.tokens, others))) for document, others in controls.items()}
    documents = replay.documents.places(tags[..., SHARD].ravel(), tags[..., ROW].ravel()).reshape(tags.shape[:2])
    outer = int((inputs != labels)[labels != IGNORED].any())  # labels are the tokens after the inputs
    for row in range(rows):
        used = np.flatnonzero(tags[row, :, SHARD] >= -1)
        stops = np.append(tags[row, used[1:], START], length).tolist()
        for slot, stop in zip(used.tolist(), stops, strict=True):
            document = int(documents[row, slot])
            if document not in controls:
                continue
            start, offset = (int(tags[row, slot, column]) for column in (START, OFFSET))
            new = _cut(replay, document, joined[document], offset, stop - start)
            own = labels[row, start : start + len(new)]
            own[own != IGNORED] = new[own != IGNORED]
            inputs[row, start + outer : start + outer + len(new)] = new[: length - start - outer]
    return {**batch, "input_ids": _like(batch["input_ids"], inputs), "labels": _like(batch["labels"], labels)}


def _cut(replay: Replay, document: int, tokens: npt.NDArray[Any], offset: int, number: int) -> npt.NDArray[Any]:
    """Return as many tokens of controls as a stretch has, from its place on; in a circle where they are too few."""
    own = replay.tokens(document)
    number = min(number, len(own) - offset)  # behind the last stretch of a row there may be padding
    new = tokens[(offset + np.arange(number)) % len(tokens)].astype(np.int64)
    if number and offset + number == len(own):
        new[-1] = own[-1]
    return new


def _copy(values: Any) -> npt.NDArray[Any]:
    array = values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
    return array.astype(np.int64, copy=True)


def _like(values: Any, new: npt.NDArray[Any]) -> Any:
    if not hasattr(values, "detach"):
        return new.astype(values.dtype)
    import torch

    return torch.from_numpy(new).to(values)
