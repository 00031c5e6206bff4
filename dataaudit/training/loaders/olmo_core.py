"""Vitals, a run log and trackers for OLMo-core: a callback, and nothing of the training changes.

::

    trainer.add_callback("dataaudit", WatchCallback("runs/11", sinks=[TensorBoardSink("tb/11")]))
    trainer.fit()

Its loaders have no tags: which documents a step trained on, ``dataaudit reconstruct`` says of its orders.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar

from olmo_core.distributed.utils import get_rank, get_world_size
from olmo_core.train.callbacks import Callback
from olmo_core.train.common import TRAIN_CE_LOSS_METRIC

from dataaudit.base.errors import CatchErrors
from dataaudit.live.sinks.forwarding import LOSS
from dataaudit.runlog.writer import whole_values
from dataaudit.vitals.config import VitalsConfig
from dataaudit.vitals.sinks import RunLogSink, Sink
from dataaudit.vitals.structure import Mapping
from dataaudit.vitals.vitals import Vitals


def mapping_of(model: Any) -> Mapping:
    """Return where the parts of a ``Transformer`` of OLMo-core are."""
    block = next(iter(model.blocks.values()))
    attention, mlp = (name if hasattr(block, name) else None for name in ("attention", "feed_forward"))
    heads = getattr(getattr(block, "attention", None), "n_heads", 0)
    return Mapping(layers="blocks", attention=attention, heads=heads, mlp=mlp, embedding="embeddings")


class WatchCallback(Callback):
    """Has vitals look at the model of a trainer of OLMo-core, one of its ranks each.

    Args:
        folder: Of the run log; the ranks of a run share it.
        sinks: Get what the run log gets; they are the caller's to close.
        name: What is trained on, in words.
        config: Of the vitals; by default one with :func:`mapping_of` the model.
        resume: Whether to begin again from the first step in a folder that holds a log already: of a run that ended
            before its first checkpoint.
    """

    priority: ClassVar[int] = 2
    """Before the checkpointer's, which takes the loss of its step away."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        sinks: Sequence[Sink] = (),
        name: str = "",
        config: VitalsConfig | None = None,
        resume: bool = False,
    ) -> None:
        super().__init__()
        self.folder, self.name, self.config, self.sinks = folder, name, config, tuple(sinks)
        self.log: RunLogSink | None = None
        self.vitals: Vitals | None = None
        self._step_of, self._resume = ExitStack(), resume

    def pre_train(self) -> None:
        """Start the log, or go on with it at the step that a checkpoint brought.

        Raises:
            ConfigError: The folder holds a log already, or cannot be written.
        """
        module, step = self.trainer.train_module, self.step
        rank, ranks = get_rank(), get_world_size()
        self.log = RunLogSink(self.folder, self.name, rank=rank, ranks=ranks, first_step=step + 1, resume=self._resume)
        optimizer = getattr(module, "optim", None)
        config = replace(self.config or VitalsConfig(mapping=mapping_of(module.model)), first_step=step + 1)
        self.vitals = Vitals(module.model, optimizer, config, [self.log, *self.sinks])

    def pre_step(self, *_: Any) -> None:
        """Begin a step of the vitals."""
        if self.vitals is not None:
            self._step_of.enter_context(self.vitals.step())

    def post_train_batch(self) -> None:
        """End the step, with the loss of this rank."""
        if self.vitals is None or self.log is None:
            return
        loss = None
        with CatchErrors():  # a step that the trainer skips has none
            loss = self.trainer.get_metric(TRAIN_CE_LOSS_METRIC)
        if loss is not None:
            self.vitals.log(**{LOSS: loss})
        self._step_of.close()
        if any(own.start <= self.step < own.stop for own in self.trainer.steps_to_skip or ()):
            self.log.add_values(whole_values(self.step, [("skipped_updates", "value", 1.0)]))
        self.log.add_step(self.step, loss)

    def on_error(self, exc: BaseException) -> None:
        """End the log, which keeps that an error ended the training."""
        self.close(type(exc))

    def close(self, error: type[BaseException] | None = None) -> None:
        """End the log, whatever ended the training."""
        self._step_of.close()
        if self.vitals is not None:
            self.vitals.close()
        if self.log is not None:
            self.log.__exit__(error)
        self.vitals = self.log = None
