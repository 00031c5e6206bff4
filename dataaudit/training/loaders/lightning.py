"""Tags and a run log for Lightning: a callback, and nothing of the training changes.

::

    trainer = lightning.Trainer(callbacks=[AuditCallback("runs/7", corpus)])
    trainer.fit(module, DataLoader(rows, batch_size=8, collate_fn=TaggedCollator()))

The tags are taken out of each batch before ``training_step`` sees it. Where ``training_step`` returns ``logits`` or
``losses`` beside ``loss``, the log has the losses of stretches. A checkpoint of Lightning holds the log's state, and
``fit(ckpt_path=...)`` goes on with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.precision import Precision
from torch.utils.data import DistributedSampler

from dataaudit.base.errors import CatchErrors, TagsError
from dataaudit.live.sinks.tracker import TrackerSink
from dataaudit.training.corpus import Corpus
from dataaudit.training.loaders.collator import TAGS
from dataaudit.training.loaders.ranks import Passes, agree, length_of, shuffles
from dataaudit.training.loaders.trackers import trackers_of_lightning
from dataaudit.training.monitor import TrainingMonitor

_LOSS = "val_loss"


class AuditCallback(Callback):
    """Keeps the run log of a Lightning run, one of its ranks each.

    Args:
        folder: Of the run log; the ranks of a run share it.
        corpus: What was opened.
        options: Further ones of :class:`dataaudit.training.TrainingMonitor`: ``resume``, ``allow``, ``digests``,
            ``block_rows``, ``shift``, ``order`` (``rows`` by default where the loader shuffles its data set),
            ``planned_tokens``, ``tokenizer``, ``alerts``, ``sinks`` (by default sinks for the
            trainer's loggers; ``()``: none). Optimizers, scaler and schedule are the trainer's.
    """

    def __init__(self, folder: str | os.PathLike[str], corpus: Corpus, **options: Any) -> None:
        self.folder, self.corpus, self.options = Path(folder), corpus, options
        self.monitor: TrainingMonitor | None = None
        """Of the call of ``fit`` that is under way: gradient norms and your own numbers go to it."""
        self._sinks: list[TrackerSink] = []
        self._passes = Passes(0, 1)
        self._state: dict[str, Any] | None = None
        self._ended: dict[str, Any] = {}
        """State of the log that was ended last, for a checkpoint that is saved after ``fit``."""
        self._steps = 0
        self._tags: Any | None = None
        self._loss: Any | None = None
        self._begun = False
        """Whether a batch was trained on since the log began, or went on."""
        self._plugin: Any | None = None
        """Of the trainer, whose norm of gradients is kept."""

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Start the log, or go on with that of the checkpoint.

        Raises:
            ConfigError: The folder holds a log already, or cannot be written.
            CorpusRefused: The checkpoint was trained on another corpus.
        """
        agree(self.corpus)
        loader, state = trainer.train_dataloader, self._state
        self._passes = Passes(trainer.global_rank, trainer.world_size)
        if isinstance(getattr(loader, "sampler", None), DistributedSampler):
            self._passes.rows, self._passes.dealt = length_of(loader.dataset), "rows"
        followed = {"optimizer": trainer.optimizers, "scaler": getattr(trainer.precision_plugin, "scaler", None)}
        if trainer.lr_scheduler_configs:
            followed["scheduler"] = trainer.lr_scheduler_configs[0].scheduler
        self._sinks = [] if "sinks" in self.options else trackers_of_lightning(trainer)
        given = {"order": "rows" if shuffles(loader) else "", **followed, "sinks": self._sinks, **self.options}
        if state is not None:
            given["state"] = state
        own = self._passes
        self.monitor = TrainingMonitor(self.folder, self.corpus, rank=own.rank, ranks=own.ranks, **given)
        self._steps, self._loss, self._begun = trainer.global_step, None, False
        plugin = trainer.precision_plugin
        if type(plugin).clip_grad_by_norm is Precision.clip_grad_by_norm:
            self._plugin, plugin.clip_grad_by_norm = plugin, self._clip

    def on_train_batch_start(self, trainer: Any, _module: Any, batch: Any, batch_idx: int) -> None:
        """Take the tags out of a batch.

        Raises:
            TagsError: It has none.
        """
        tags = batch.pop(TAGS, None) if isinstance(batch, MutableMapping) else None
        if tags is None or self.monitor is None:
            raise TagsError(
                "a batch of Lightning's loader has no tags",
                "DataLoader(..., collate_fn=TaggedCollator()), and a dataset with its columns; hooks that rebuild"
                " batches must keep `tags`.",
            )
        self.monitor.arrived()
        self._passes.epoch, self._passes.batches = trainer.current_epoch, batch_idx
        self._tags = self._passes.marked(tags)

    def _clip(self, optimizer: Any, clip_val: float) -> None:
        """Clip as Lightning does, and keep the norm, which Lightning drops."""
        assert self._plugin is not None
        norm = torch.nn.utils.clip_grad_norm_(self._plugin.main_params(optimizer), clip_val)
        if self.monitor is not None:
            self.monitor.norm_is_taken(norm, clip_val)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        """Log the batch, and end the step of the log where the weights were updated.

        A batch whose ``training_step`` returned None has no gradients and is not logged; the log begins with the first
        that has.
        """
        assert self.monitor is not None
        returned = outputs if isinstance(outputs, Mapping) else {"loss": outputs}
        labels = batch.get("labels") if isinstance(batch, Mapping) else None
        losses = {name: returned[name] for name in ("losses", "logits") if returned.get(name) is not None}
        tags, self._tags = self._tags, None
        if returned.get("loss") is not None or not module.automatic_optimization:
            self.monitor.batch(tags, labels=labels, **losses)
            self._begun = True
        if isinstance(loss := returned.get("loss"), torch.Tensor):
            loss = loss.detach()
            self._loss = loss if self._loss is None else self._loss + loss
        if trainer.global_step > self._steps:
            self._steps = trainer.global_step
            if self._begun:
                self.monitor.step(self._loss)
            else:
                self.monitor.add_event(self.monitor.steps, "no_batch", {"step": trainer.global_step})
            self._loss = None

    def on_validation_batch_start(self, _trainer: Any, _module: Any, batch: Any, *_: Any) -> None:
        """Take tags out of a batch that is not trained on."""
        if isinstance(batch, MutableMapping):
            batch.pop(TAGS, None)

    def on_validation_end(self, trainer: Any, *_: Any) -> None:
        """Keep what the module logs as ``val_loss``."""
        loss = trainer.callback_metrics.get(_LOSS)
        if self.monitor is not None and loss is not None and not trainer.sanity_checking:
            with CatchErrors():  # the log does without it
                self.monitor.validation(loss)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint of Lightning needs."""
        return self._ended if self.monitor is None else self.monitor.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what a checkpoint holds; :meth:`on_train_start` goes on with it."""
        self._state = state_dict or None

    def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
        """End the log, which keeps that an error ended the training."""
        self._close(type(exception))

    def teardown(self, *_: Any, **__: Any) -> None:
        """End the log."""
        self._close()

    def _close(self, error: type[BaseException] | None = None) -> None:
        if self._plugin is not None:
            del self._plugin.clip_grad_by_norm
            self._plugin = None
        if self.monitor is not None:
            self._ended, self._state = self.monitor.state_dict(), None
            self.monitor.__exit__(error)
            for sink in self._sinks:
                sink.close()
            self.monitor = None
