"""A replay of a plain PyTorch loop over our own packed rows: the user hands over what restores and what trains.

::

    def replay(manifest, run):
        loop = Loop(manifest)  # model, optimizer, rows: what the training has
        return LoopReplay(
            rows=loop.rows, batch_rows=8, model=loop.model, stateful=[loop.optimizer],
            checkpoints=checkpoints_of(run), restore=loop.restore, train=loop.update,
        )

Use the functions that the training itself calls: an update that is written twice is two updates.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.nn import functional

from dataaudit.base.errors import ConfigError
from dataaudit.base.statistics import Floats, Ints
from dataaudit.live.state_digests import random_state, set_random_state
from dataaudit.manifest.load import load_manifest
from dataaudit.training.documents import Documents
from dataaudit.training.packing import PackedDocuments
from dataaudit.training.replay.protocol import Batch, Candidates, Trained, candidates_of
from dataaudit.training.run_start import untouched
from dataaudit.training.segment_losses import IGNORED

_SCORED_ROWS = 16
_UNKNOWN = frozenset({"", "und"})


class LoopReplay:
    """A :class:`dataaudit.training.replay.protocol.Replay` of a plain loop.

    Args:
        rows: The data set of the run, read in its own order.
        batch_rows: Rows of a micro-batch; the last of the data set may have fewer.
        micro_batches: Micro-batches of a step.
        manifest: Folder of the manifest, for the languages of its shards; without it controls are not matched in them.
        checkpoints: By step: what ``restore`` is called with, a path for one.
        restore: Brings weights, optimizer, schedule and random numbers back, in place.
        train: Makes a step: called with its number and the micro-batches as dictionaries of tensors; returns the loss
            that the loop hands to ``monitor.step``, or a :class:`Trained`.
        model: Whose ``state_dict`` and random numbers are copied.
        stateful: Further objects with ``state_dict`` and ``load_state_dict``: optimizer, schedule, scaler.
        logits: From token ids [B, T] to logits [B, T, vocabulary]; the model's output, or its ``logits``, by default.
    """

    def __init__(
        self,
        *,
        rows: PackedDocuments,
        batch_rows: int,
        checkpoints: Mapping[int, Any],
        restore: Callable[[Any], object],
        train: Callable[[int, list[dict[str, Any]]], Any],
        model: torch.nn.Module,
        stateful: Sequence[Any] = (),
        micro_batches: int = 1,
        manifest: Path | None = None,
        logits: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self._rows, self._batch_rows, self._micro_batches = rows, batch_rows, micro_batches
        self._checkpoints, self._restore, self._train = dict(checkpoints), restore, train
        self._model, self._stateful, self._logits = model, (model, *stateful), logits
        self._manifest = manifest

    @property
    def checkpoints(self) -> Sequence[int]:
        """Steps with a checkpoint, ascending."""
        return sorted(self._checkpoints)

    @cached_property
    def documents(self) -> Candidates:
        """The documents of the data set that are not quarantined; their language is their shard's most frequent."""
        documents = self._rows.documents
        return candidates_of(documents, None if self._manifest is None else _languages(documents, self._manifest))

    @cached_property
    def _indices(self) -> Ints:
        return np.flatnonzero(~self._rows.documents.held)

    def tokens(self, document: int) -> np.ndarray:
        """Return a document's tokens."""
        return self._rows.documents.tokens(int(self._indices[document]))

    def tags(self, step: int) -> Sequence[Ints]:
        """Return the tags of a step's micro-batches."""
        return [np.stack(list(map(self._rows.row_tags, rows))) for rows in self._row_numbers(step)]

    def batches(self, step: int) -> Sequence[Batch]:
        """Return a step's micro-batches as the loader collates them."""
        collate = torch.utils.data.default_collate
        return [collate([self._rows[number] for number in rows]) for rows in self._row_numbers(step)]

    def _row_numbers(self, step: int) -> list[range]:
        size, last = self._batch_rows, len(self._rows)
        first = (step - 1) * self._micro_batches * size
        stop = min(first + self._micro_batches * size, last)
        if step < 1 or first >= stop:
            raise ConfigError(f"step {step:,} reads rows beyond the {len(self._rows):,} of the replay's data set")
        return [range(at, min(at + size, last)) for at in range(first, stop, size)]

    def restore(self, step: int) -> None:
        """Load a checkpoint."""
        self._model.train()
        self._restore(self._checkpoints[step])

    def train(self, step: int, batches: Sequence[Batch]) -> Trained:
        """Make a step of the loop."""
        result = self._train(step, [dict(batch) for batch in batches])
        return result if isinstance(result, Trained) else Trained(loss=float(result))

    def save(self) -> Any:
        """Copy weights, what was named as stateful, and the states of the random generators."""
        return [copy.deepcopy(item.state_dict()) for item in self._stateful], random_state()

    def load(self, saved: Any) -> None:
        """Put the copies back."""
        states, generators = saved
        for item, state in zip(self._stateful, states, strict=True):
            item.load_state_dict(copy.deepcopy(state))
        set_random_state(generators)

    def score(self, documents: Ints) -> Floats:
        """Return the mean loss of documents, each alone in its row and cut at the context."""
        losses = np.empty(len(documents))
        order = np.argsort(self.documents.tokens[documents], kind="stable")
        with untouched(self._model):
            for begin in range(0, len(order), _SCORED_ROWS):
                chosen = order[begin : begin + _SCORED_ROWS]
                rows = [self.tokens(document)[: self._rows.context + 1] for document in documents[chosen].tolist()]
                losses[chosen] = self._losses(rows)
        return losses

    def _losses(self, rows: list[np.ndarray]) -> Floats:
        size = max(2, *(len(row) for row in rows))
        tokens = np.zeros((len(rows), size), dtype=np.int64)
        labels = np.full((len(rows), size - 1), IGNORED, dtype=np.int64)
        for number, row in enumerate(rows):
            tokens[number, : len(row)] = row
            labels[number, : len(row) - 1] = row[1:]
        device = next(self._model.parameters()).device
        inputs, targets = torch.from_numpy(tokens[:, :-1]).to(device), torch.from_numpy(labels).to(device)
        output = self._model(inputs) if self._logits is None else self._logits(inputs)
        logits = getattr(output, "logits", output)
        losses = functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
        known = targets != IGNORED
        means: Floats = (losses.view_as(targets).double().sum(dim=1) / known.sum(dim=1).clamp(min=1)).cpu().numpy()
        return means


def _languages(documents: Documents, manifest: Path) -> Ints:
    """Return a code of the most frequent language of each document's shard, -1 where none is known."""
    column = load_manifest(manifest).table("shards", ["languages"])["languages"].combine_chunks()
    languages = [
        max(item, key=lambda counts: (counts["documents"], counts["language"]))["language"] if item else ""
        for item in ([] if pa.types.is_null(column.type) else column.to_pylist())
    ]
    codes = {name: code for code, name in enumerate(sorted(set(languages) - _UNKNOWN))} | dict.fromkeys(_UNKNOWN, -1)
    of_shard = np.array([codes[languages[shard]] for shard in documents.shards.tolist()], dtype=np.int64)
    return np.repeat(of_shard, np.diff(documents.starts))
