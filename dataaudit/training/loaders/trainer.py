"""Tags and a run log for transformers' ``Trainer``: one call, and nothing of the training changes.

::

    trainer = Trainer(model, args, train_dataset=rows, data_collator=TaggedCollator())
    audit_trainer(trainer, "runs/7", corpus)
    trainer.train()

The trainer gets a subclass of its own class, so that what you override stays. Of each micro-batch the tags are taken
out before the model sees the batch; the losses of stretches come from the logits that the model returns, in no second
pass. Batches of an evaluation lose their tags and are not logged. A checkpoint of the trainer holds the monitor's
state, a file a rank, and ``train(resume_from_checkpoint=...)`` goes on with it.

What TRL's ``SFTTrainer`` packs by itself has no tags, so it is packed before. Nothing here imports TRL. Trainers of
preferences and of what a model writes itself are out of scope: their batches are no documents of the corpus.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from dataaudit.base.errors import CatchErrors, ConfigError, TagsError
from dataaudit.base.files import write_whole
from dataaudit.live.sinks.tracker import TrackerSink
from dataaudit.training.corpus import Corpus
from dataaudit.training.loaders.collator import TAGS, TaggedCollator
from dataaudit.training.loaders.ranks import Passes, agree, length_of, shuffles
from dataaudit.training.loaders.token_tags import PER_TOKEN, PLACE
from dataaudit.training.loaders.trackers import trackers_of_trainer
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.vitals.hooks import Hook, nothing

_FOLLOWED = "SFTTrainer"
_LINES = """Pack before it, with `pack_dataset` of trl and `tag_tokens` of dataaudit.training.loaders.token_tags:
rows = pack_dataset(records.map(tag_tokens, remove_columns=["shard", "row", "source"]), {length}, "{strategy}")
config = SFTConfig(..., packing=False, {free}max_length=None, remove_unused_columns=False, \
dataset_kwargs={{"skip_prepare_dataset": True}})
trainer = SFTTrainer(model, config, train_dataset=rows, processing_class=tokenizer)"""
_STATE_FILE = "dataaudit-{rank:05d}.json"
_LOG = logging.getLogger("dataaudit")
_PAIR, _LOGITS = 2, 3


def trl_trainer(kind: type) -> str:
    """Return the name of the trainer of TRL that a class is, or is made of; empty where it is none."""
    own = (item.__name__ for item in kind.__mro__ if item.__module__.split(".")[0] == "trl")
    return next(own, "")


def prepare_trl(trainer: Any) -> bool:
    """Make a trainer of TRL hand on tags; return whether it is one.

    Its own collator stays and makes the batches, whether padded or in one row; ours goes around it.
    """
    name = trl_trainer(type(trainer))
    if not name:
        return False
    if name != _FOLLOWED:
        raise ConfigError(
            f"{name} is out of scope: it trains on preferences or on what the model wrote, not on documents",
            "Tags and losses by document are for SFTTrainer and transformers' Trainer. `Vitals` watches any model.",
        )
    args, columns = trainer.args, set(getattr(trainer.train_dataset, "column_names", None) or ())
    if args.packing and not (columns >= set(PER_TOKEN) or columns >= set(PLACE)):
        bins = args.packing_strategy != "wrapped"
        raise ConfigError(
            "SFTTrainer(packing=True) keeps `input_ids` and `labels` alone: the columns of tags are gone",
            _LINES.format(
                length=args.max_length,
                strategy="bfd_split" if args.packing_strategy == "bfd" else args.packing_strategy,
                free="padding_free=True, " if bins else "",
            ),
        )
    prepared = (args.dataset_kwargs or {}).get("skip_prepare_dataset", False)
    if args.truncation_mode == "keep_end" and args.max_length is not None and not prepared:
        raise ConfigError(
            'truncation_mode="keep_end" cuts documents at their front: tags would name tokens that are gone',
            'truncation_mode="keep_start", or cut the records before, and give each the column `offset`.',
        )
    if not isinstance(trainer.data_collator, TaggedCollator):
        trainer.data_collator = TaggedCollator(trainer.data_collator)
    return True


def audit_trainer(trainer: Trainer, folder: str | os.PathLike[str], corpus: Corpus, **options: Any) -> Trainer:
    """Have a trainer keep a run log; to be called before ``train``.

    Args:
        trainer: Made with ``TrainingArguments(remove_unused_columns=False)`` and a collator that hands on ``tags``,
            :class:`dataaudit.training.loaders.collator.TaggedCollator` for one.
        folder: Of the run log; the ranks of a run share it.
        corpus: What was opened.
        options: Further ones of :class:`dataaudit.training.TrainingMonitor`: ``resume``, ``allow``, ``digests``,
            ``block_rows``, ``shift`` (``inner`` by default, as transformers' models do), ``order`` (``rows`` by
            default where the trainer shuffles its data set, as it does unless its arguments differ),
            ``planned_tokens``, ``tokenizer``, ``profile_every``, ``flops``, ``alerts``, ``sinks`` (by default sinks for
            the trackers that ``report_to`` names; ``()``: none). Optimizer, scaler, schedule and losses on held-out
            data are the trainer's.

    Returns:
        The same trainer.

    Raises:
        ConfigError: The trainer is set to drop the columns of tags, or to do what cannot be followed.
    """
    of_trl = prepare_trl(trainer)
    if trainer.args.remove_unused_columns:
        raise ConfigError(
            "the trainer drops all columns that the model does not know, those of the tags among them",
            "TrainingArguments(remove_unused_columns=False)",
        )
    if trainer.args.n_gpu > 1:
        raise ConfigError(
            "one process with several GPUs (DataParallel) splits batches behind the trainer's back",
            "Start a process for each GPU: torchrun --nproc-per-node=...",
        )
    if isinstance(trainer, _Audited):
        raise ConfigError("the trainer is audited already")
    kind = type(trainer)
    audit = _Audit(Path(folder), corpus, {"shift": "inner", **options}, trainer, recomputes=of_trl)
    trainer.__class__ = type(f"Audited{kind.__name__}", (_Audited, kind), {"_audit": audit})
    here = weakref.ref(trainer)  # in a circle of references its loader would wait five seconds for each worker to end
    trainer.add_callback(_Callback(audit, here))
    return trainer


class _Audit(Passes):
    """What a trainer and its callback share."""

    def __init__(
        self, folder: Path, corpus: Corpus, options: dict[str, Any], trainer: Trainer, *, recomputes: bool
    ) -> None:
        self.folder, self.corpus, self.options = folder, corpus, options
        self.recomputes = recomputes
        """Whether the trainer makes outputs that it is asked for in a pass of their own, which draws random numbers."""
        super().__init__(trainer.args.process_index, trainer.args.world_size)
        self.checkpoint: Path | None = None
        """Of the trainer, which the run goes on from."""
        self.output: Path | None = None
        """Folder of the trainer's checkpoints."""
        self.monitor: TrainingMonitor | None = None
        self.sinks: list[TrackerSink] = []
        """For what ``report_to`` names; they end with the log."""
        self.logs = 0
        """Calls of ``train`` that began a log of their own."""
        self.log = folder
        """Of the call that is under way."""
        self._refused: set[str] = set()
        """Losses that were no numbers, which an event has reported."""
        self._reset()

    def _reset(self) -> None:
        self.tags: Any | None = None
        """Of the micro-batch that is being trained on."""
        self.loss: Any | None = None
        """Sum of the micro-batches' losses of this step."""
        self.learning_rate: float | None = None
        self.epoch = self.batches = 0

    def state_file(self, checkpoint: Path, rank: int | None = None) -> Path:
        """Return where the state of a rank, of this one by default, lies in a checkpoint."""
        return checkpoint / _STATE_FILE.format(rank=self.rank if rank is None else rank)

    def begin(self, order: Literal["", "rows"], trainer: dict[str, Any], trackers: list[TrackerSink]) -> None:
        """Start the log, or go on with it; where the trainer began again within a call of ``train``, begin it again."""
        agree(self.corpus)
        done, logs = self.end(), max(1, self.logs)
        self.sinks = trackers
        options = {"order": order, **trainer, "sinks": trackers, **self.options}
        if self.checkpoint is not None:
            options["state"] = self._state(self.checkpoint)
        elif done is not None:
            options["resume"] = True
        else:
            logs = self.logs + 1
            self.log = self.folder if logs == 1 else self.folder.with_name(f"{self.folder.name}.{logs}")
            if logs > 1:
                _LOG.warning("`train` was called again: this training has a run log of its own, %s", self.log)
        self.monitor = TrainingMonitor(self.log, self.corpus, rank=self.rank, ranks=self.ranks, **options)
        self.logs = logs
        if done is not None:  # the weights are what those steps made of them, and the log has others in their place
            self.monitor.add_event(self.monitor.steps, "restarted", {"steps": done - self.monitor.steps})
            _LOG.warning("the trainer began again after step %d, and the run log does too", done)

    def _state(self, checkpoint: Path) -> dict[str, Any]:
        """Return the state of the log in a checkpoint; the log is the one that it was saved with."""
        path = self.state_file(checkpoint)
        if not path.exists() and self.rank:  # there are more processes now: the state is that of the run
            path = self.state_file(checkpoint, rank=0)
        if not path.exists():
            raise ConfigError(
                f"the checkpoint {checkpoint} holds no state of a log ({path.name})",
                "It was made without audit_trainer: go on without it, or train from the first step.",
            )
        try:
            state: dict[str, Any] = dict(json.loads(path.read_bytes()))
        except (ValueError, TypeError):
            raise ConfigError(
                f"{path} is damaged: the state of a log cannot be read", "Go on from another checkpoint."
            ) from None
        name = str(state.pop("log", self.folder.name))
        self.log = self.folder.with_name(name) if name.startswith(f"{self.folder.name}.") else self.folder
        return state

    def end(self, error: type[BaseException] | None = None) -> int | None:
        """End the log, if any is under way, by an error perhaps; return its steps, None where there was none."""
        monitor, self.monitor = self.monitor, None
        self._reset()
        if monitor is None:
            return None
        monitor.__exit__(error)
        for sink in self.sinks:
            sink.close()
        return monitor.steps

    def take(self, outputs: Any, labels: Any) -> None:
        """Log the micro-batch; where the model returned no logits of its labels, without losses."""
        assert self.monitor is not None
        named = outputs if hasattr(outputs, "get") else {}
        logits, log_probs = named.get("logits"), named.get("log_probs")
        tags, self.tags = self.tags, None
        assert tags is not None
        if isinstance(log_probs, torch.Tensor) and _whole(labels):  # of TRL's head, which makes no logits
            self.monitor.batch(tags, losses=-log_probs.detach(), labels=labels)
        elif _fit(logits, labels):
            self.monitor.batch(tags, logits=logits, labels=labels)
        elif _whole(labels) and len(labels) == len(tags):
            self.monitor.batch(tags, labels=labels)
        else:
            self.monitor.batch(tags)

    def end_step(self) -> None:
        """End a step of the log."""
        assert self.monitor is not None
        values = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
        self.monitor.step(self.loss, **values)
        self.loss = None

    def validated(self, logs: dict[str, Any]) -> None:
        """Take what the trainer logs of an evaluation: ``eval_loss``, or ``eval_NAME_loss`` of several data sets."""
        for key, value in logs.items():
            if self.monitor is None or not key.startswith("eval_") or not key.endswith("loss"):
                continue
            with CatchErrors() as call:
                self.monitor.validation(value, key[len("eval_") : -len("_loss")] if key.endswith("_loss") else "")
            if call.error is not None and key not in self._refused:
                self._refused.add(key)
                detail = {"what": key, "why": f"{type(value).__name__} is no number"}
                self.monitor.add_event(self.monitor.steps, "not_seen", detail)

    def save(self, folder: Path) -> None:
        """Put the state into a checkpoint; training goes on where it cannot be written."""
        if self.monitor is None:
            return
        with CatchErrors() as call:
            folder.mkdir(parents=True, exist_ok=True)
            state = {**self.monitor.state_dict(), "log": self.log.name}
            write_whole(self.state_file(folder), json.dumps(state).encode())
        if call.error is not None:
            _LOG.warning("the checkpoint %s lacks the log's state (%s): no run can go on from it", folder, call.origin)


class _Audited(Trainer):
    """Stands before a trainer's own class."""

    _audit: _Audit

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train, and end the log whatever happens."""
        checkpoint = resume_from_checkpoint
        if checkpoint is True:
            checkpoint = get_last_checkpoint(self.args.output_dir)
        self._audit.checkpoint = Path(checkpoint) if checkpoint else None
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        except BaseException as error:
            self._audit.end(type(error))
            raise
        finally:
            self._audit.end()

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Take the tags out, train on the batch, keep its loss."""
        audit = self._audit
        tags = inputs.pop(TAGS, None) if isinstance(inputs, MutableMapping) else None
        if tags is None:
            raise TagsError(
                "a batch of the trainer has no tags",
                "data_collator=TaggedCollator(...), and a dataset with its columns: tagged_dataset, PackedDocuments.",
            )
        audit.tags, labels = audit.marked(tags), inputs.get("labels")
        loss = super().training_step(model, inputs, *args, **kwargs)
        if audit.tags is not None:  # a step of your own that computes its loss by itself
            audit.take(None, labels)
        audit.loss = loss if audit.loss is None else audit.loss + loss
        return loss

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        """Compute the loss as the trainer does; while it trains, log what the model returned."""
        audit, own = self._audit, super().compute_loss
        if audit.tags is None:
            return own(model, inputs, return_outputs=return_outputs, **kwargs)
        labels = inputs.get("labels") if isinstance(inputs, Mapping) else None
        if audit.recomputes:
            with _outputs_of(model) as seen:
                result = own(model, inputs, return_outputs=return_outputs, **kwargs)
            audit.take(seen[0] if seen else None, labels)
            return result
        known = {"return_outputs": True} if _takes(own, "return_outputs") else {}
        result = own(model, inputs, **known, **kwargs)
        loss, outputs = result if isinstance(result, tuple) and len(result) == _PAIR else (result, None)
        audit.take(outputs, labels)
        return (loss, outputs) if return_outputs else loss

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch the batches of a step, and keep how long that takes."""
        began = time.perf_counter()
        batches = super().get_batch_samples(*args, **kwargs)
        if self._audit.monitor is not None:
            self._audit.monitor.waited(time.perf_counter() - began)
        return batches

    def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        """Take the norm as the trainer does, and keep it."""
        norm = super()._get_grad_norm(*args, **kwargs)
        if self._audit.monitor is not None and norm is not None:
            most = self.args.max_grad_norm
            self._audit.monitor.norm_is_taken(norm, most if most is not None and most > 0 else None)
        return norm

    def _get_output_dir(self, *args: Any, **kwargs: Any) -> Any:
        """Return where the trainer's checkpoints are put, and keep it: each trial of a search has a folder."""
        folder = super()._get_output_dir(*args, **kwargs)
        self._audit.output = Path(folder)
        return folder

    def get_eval_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """Return the loader of an evaluation, whose records need no tags."""
        with self._without_tags():
            return super().get_eval_dataloader(*args, **kwargs)

    def get_test_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """Return the loader of a prediction, whose records need no tags."""
        with self._without_tags():
            return super().get_test_dataloader(*args, **kwargs)

    @contextmanager
    def _without_tags(self) -> Iterator[None]:
        trainer: Any = self
        collate = trainer.data_collator
        if isinstance(collate, TaggedCollator):
            trainer.data_collator = collate.untagged
        try:
            yield
        finally:
            trainer.data_collator = collate

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Evaluate without tags."""
        if isinstance(inputs, MutableMapping):
            inputs.pop(TAGS, None)
        return super().prediction_step(model, inputs, *args, **kwargs)


class _Callback(TrainerCallback):
    """Begins and ends steps of the log, and puts its state into checkpoints."""

    def __init__(self, audit: _Audit, trainer: Callable[[], Any]) -> None:
        self._audit, self._trainer = audit, trainer
        self._epochs, self._began = 0, 0.0

    def on_train_begin(self, args: Any, state: Any, *_: Any, train_dataloader: Any = None, **given: Any) -> None:
        """Start the log."""
        audit, trainer = self._audit, self._trainer()
        order: Literal["", "rows"] = "rows" if shuffles(train_dataloader) and not args.ignore_data_skip else ""
        scaler = getattr(getattr(trainer, "accelerator", None), "scaler", None)
        trackers = [] if "sinks" in audit.options else trackers_of_trainer(trainer)
        audit.begin(order, _trained_by(given.get("optimizer"), given.get("lr_scheduler"), scaler), trackers)
        dealt = audit.ranks > 1 and not args.accelerator_config.split_batches
        audit.rows = length_of(getattr(trainer, "train_dataset", None)) if dealt else None
        self._began = float(state.epoch or 0) if audit.checkpoint is not None else 0.0
        self._epochs = int(self._began)

    def on_epoch_begin(self, *_: Any, train_dataloader: Any = None, **__: Any) -> None:
        """Count the passes of the trainer's loader, which are added to those of the tags."""
        self._audit.epoch, self._epochs = self._epochs, self._epochs + 1
        done, self._began = self._began % 1, 0.0
        length = length_of(train_dataloader) if done and self._audit.rows is not None else None
        self._audit.batches = round(done * length) if length else 0

    def on_optimizer_step(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
        """Keep the learning rate of the update; a rate that is a tensor is read where the optimizer is followed."""
        groups = getattr(optimizer, "param_groups", None) or [{}]
        rate = groups[0].get("lr")
        self._audit.learning_rate = float(rate) if isinstance(rate, int | float) else None

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """End the step of the log."""
        self._audit.end_step()

    def on_log(self, _args: Any, _state: Any, *_: Any, logs: Any = None, **__: Any) -> None:
        """Keep the losses of evaluations."""
        self._audit.validated(logs or {})

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Put the state into the checkpoint."""
        self._audit.save((self._audit.output or Path(args.output_dir)) / f"checkpoint-{state.global_step}")


@contextmanager
def _outputs_of(model: torch.nn.Module) -> Iterator[list[Any]]:
    """Give a list to which the outputs of a model are added in the block."""
    seen: list[Any] = []
    handle = model.register_forward_hook(Hook(lambda _model, _given, found: seen.append(found), nothing))
    try:
        yield seen
    finally:
        handle.remove()


def _fit(logits: Any, labels: Any) -> bool:
    """Return whether these are logits [B, T, V] and integer labels [B, T] of the same places."""
    if not isinstance(logits, torch.Tensor) or not _whole(labels):
        return False
    return logits.dim() == _LOGITS and bool(logits.shape[:2] == labels.shape)


def _whole(labels: Any) -> bool:
    """Return whether these are integer labels [B, T]."""
    return isinstance(labels, torch.Tensor) and labels.dim() == _PAIR and not labels.is_floating_point()


def _takes(method: Callable[..., Any], name: str) -> bool:
    """Return whether a method has a parameter of that name, or takes any."""
    given = inspect.signature(method).parameters.values()
    return any(parameter.name == name or parameter.kind is parameter.VAR_KEYWORD for parameter in given)


def _trained_by(optimizer: Any, scheduler: Any, scaler: Any) -> dict[str, Any]:
    """Return what the monitor follows of a trainer; an optimizer that is none of torch's is not followed."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, torch.optim.Optimizer):
        return {}
    return {"optimizer": optimizer, "scaler": scaler, "scheduler": getattr(scheduler, "scheduler", scheduler)}
