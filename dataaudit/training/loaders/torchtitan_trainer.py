"""torchtitan's trainer with tags and a run log: ``AuditedTrainer(config, "runs/10", corpus).train()``.

Rows, losses, weights and checkpoints stay those of torchtitan. The log has each rank's own loss, what was trained on,
learning rates, and what the run's sinks get. A checkpoint holds the log's state, and torchtitan's own loading goes on
with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import torch
from torchtitan.components.loss import IGNORE_INDEX
from torchtitan.trainer import Trainer

from dataaudit.base.errors import ConfigError
from dataaudit.training.corpus import Corpus
from dataaudit.training.loaders.collator import TAGS
from dataaudit.training.loaders.ranks import agree
from dataaudit.training.loaders.torchtitan import tagged_loader
from dataaudit.training.monitor import TrainingMonitor


class AuditedTrainer(Trainer):
    """A ``Trainer`` of torchtitan that keeps a run log, one of its data-parallel ranks each.

    Args:
        config: Of torchtitan; its loader reads texts of :func:`dataaudit.training.loaders.hub.tagged_dataset`.
        folder: Of the run log; the ranks of a run share it.
        corpus: What was opened.
        options: Further ones of :class:`dataaudit.training.TrainingMonitor`, such as ``sinks``, ``alerts``, ``resume``.
            Sinks are the caller's to close.

    Raises:
        ConfigError: Pipeline or context parallelism is on, or the loader reads other texts.
        CorpusRefused: Ranks opened different corpora.
    """

    def __init__(self, config: Any, folder: str | os.PathLike[str], corpus: Corpus, **options: Any) -> None:
        super().__init__(config)
        dims = self.parallel_dims
        if dims.pp_enabled or dims.cp_enabled:
            raise ConfigError(
                "pipeline and context parallelism cut rows and steps into parts that a tag does not know",
                "Turn them off; a loop of your own may log the last stage of a pipeline: see `log_rank`.",
            )
        tagged_loader(self.dataloader)
        agree(corpus)
        tensor = dims.get_optional_mesh("tp")
        self.monitor: TrainingMonitor | None = None
        """From the first step on; None on all but the first of tensor-parallel ranks."""
        self._log = {"folder": folder, "corpus": corpus, "tokenizer": "torchtitan's", **options}
        self._logs = tensor is None or tensor.get_local_rank() == 0
        batch = dims.get_mesh("batch") if dims.dp_enabled else None
        self._place = (0, 1) if batch is None else (batch.get_local_rank(), batch.size())
        self._saved = ""
        self._losses: list[tuple[Any, Any]] = []
        """Of each micro-batch of a step, the sum of its losses and how many targets there are, on the device."""

    def train(self) -> None:
        """Train as torchtitan does; an error is in the log, which ends with it."""
        try:
            super().train()
        except BaseException as error:
            if self.monitor is not None:
                self.monitor.__exit__(type(error))
            raise

    def forward_backward_step(self, *, input_dict: Any, labels: Any, global_valid_tokens: Any) -> Any:
        """Log what a micro-batch holds, and train on it as torchtitan does."""
        tags = input_dict.pop(TAGS)
        if self.monitor is not None:
            self.monitor.batch(tags, labels=labels)
        loss = super().forward_backward_step(
            input_dict=input_dict, labels=labels, global_valid_tokens=global_valid_tokens
        )
        if self.monitor is not None:
            self._losses.append((loss.detach() * global_valid_tokens, (labels != IGNORE_INDEX).sum()))
        return loss

    def train_step(self, data_iterator: Iterator[Any]) -> None:
        """Train a step, and end it in the log."""
        if self._logs and self.monitor is None:
            self._begin()
        self._losses.clear()
        super().train_step(data_iterator)
        if self.monitor is not None:
            totals, numbers = zip(*self._losses, strict=True)
            self.monitor.step(sum(totals) / torch.clamp(sum(numbers), min=1))

    def _begin(self) -> None:
        rank, ranks = self._place
        given = {"optimizer": list(self.optimizers), "scheduler": self.lr_schedulers.schedulers[0], **self._log}
        state = {"state": json.loads(self._saved)} if self._saved else {}
        self.monitor = TrainingMonitor(rank=rank, ranks=ranks, **state, **given)

    def state_dict(self) -> dict[str, Any]:
        """Return torchtitan's state with the log's, of this rank."""
        if self.monitor is not None:
            self._saved = json.dumps(self.monitor.state_dict())
        own = {f"dataaudit-{self._place[0]}": self._saved} if self._logs else {}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state; the log goes on at the first step."""
        super().load_state_dict(state_dict)
        self._saved = state_dict.get(f"dataaudit-{self._place[0]}", "")

    def close(self) -> None:
        """End the log, and what torchtitan ends."""
        if self.monitor is not None:
            self.monitor.close()
        super().close()
