"""``TrainingMonitor``: five lines in a training loop that keep a run log; no framework in it.

::

    corpus = open_manifest("manifests/2026-11", require="passed", policy="release-gate")
    with TrainingMonitor("runs/7", corpus) as monitor:
        for batch in loader:
            logits = model(batch["input_ids"])
            monitor.batch(batch["tags"], logits=logits, labels=batch["labels"])
            ...
            monitor.step(loss)

Monitoring changes nothing: losses, gradients and the states of random number generators are the same with it and
without it, to the bit. Nothing waits for a device. A log that cannot be written never stops a run. What does: tags that
are missing or do not fit at the first step, labels that are not the tokens of their tags, and tags with too few places
for what a row holds.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from dataaudit import __version__
from dataaudit.base.async_copy import AsyncCopy, scalar
from dataaudit.base.errors import CatchErrors, ConfigError, TagsError
from dataaudit.live.actions import Actions, StopRun
from dataaudit.live.sinks.forwarding import Forwarding
from dataaudit.runlog.writer import Columns, RankWriter, event
from dataaudit.training.corpus import Corpus
from dataaudit.training.flops import ModelFlops, Utilisation
from dataaudit.training.logthread import SPARSE_DEFAULTS, LogThread, MicroBatch, Numbers, Rows, Scores, Step
from dataaudit.training.optimizer_watch import OptimizerWatch, RateWatch
from dataaudit.training.packing import Shift, check_shift
from dataaudit.training.run_start import Order, begin_run, check_arguments, detector_of, process_of, untouched
from dataaudit.training.segment_losses import (
    MOVED,
    TrainedCounts,
    check_batch,
    hidden_losses,
    ids_of,
    out_of_memory,
    shape_of,
    stretch_loss_sums,
    token_losses,
)
from dataaudit.training.timing import Profiled, StepClock, device_number
from dataaudit.vitals.sinks import Sink, histogram_columns

if TYPE_CHECKING:
    import torch

    from dataaudit.vitals.sinks import Observer

T = TypeVar("T")
BLOCK_ROWS = 64
MOST_MERGED = 0.01
"""Share of the targets that may lie in stretches that did not fit into the tags."""
_MERGED_AFTER = 50_000
"""Targets after which that share is checked."""
MOST_BATCHES = 65_536
"""Batches that may be handed over before a step ends."""
_LOG = logging.getLogger("dataaudit")
KEPT_BATCHES = 4
"""Steps whose batches are kept to be scored again."""
_WARNINGS = {
    "clip_before_unscale": "the gradients' norm was taken before they were unscaled; call scaler.unscale_(optimizer)"
    " before they are clipped",
    "no_batch": "the step ended without a batch: it counts as a skipped update",
    "not_scored": "the losses of stretches cannot be computed ({why})",
}
SCORED_EVERY = 16
"""Steps between two passes of our own: through the head, where losses come from hidden states, or with ``score``."""


class TrainingMonitor:
    """Keeps the run log of one process of a training run.

    Args:
        folder: Of the run log; the ranks of a run share it.
        corpus: What was opened.
        state: Of a checkpoint, as :meth:`state_dict` returned it: the run goes on after its step.
        resume: Whether to start again from the first step, without a state, in a folder whose log is hidden by it.
        allow: Names of digests that may differ from those of ``state``.
        digests: Of what else decides the run, by name: ``code``, ``lock``, ... as ``sha256:...``; a checkpoint keeps
            them, and other digests are an error when the run goes on.
        rank: Of this process, and ``ranks`` of the run; by default the environment's RANK and WORLD_SIZE.
        block_rows: Rows of a block, the unit that a spike is attributed to; a power of two.
        shift: ``outer``: the loader shifts labels. ``inner``: the model does.
        order: ``documents``: these were shuffled uniformly, by ``PackedDocuments(order="shuffled")``, and are read in
            that order. ``rows``: whole rows were, by a loader's ``shuffle=True``. Empty: neither, or a shuffle buffer.
            Tests of a whole run draw such orders again.
        score: From a kept batch to its losses [B, T]. With it every 16th step is scored, and a flagged step as long as
            it is among the last four, where a loop hands over no losses of stretches.
        model: Whose buffers and modes are put back after ``score``.
        planned_tokens: Targets that the whole run is to be trained on, over all ranks.
        optimizer: Of the loop, one or several: learning rates, skipped updates and whether its state is finite.
        scaler: The loop's ``GradScaler``: its scale, overflows, and whether it unscaled before the norm was taken.
        scheduler: Of the learning rate: a jump at a resume that it explains is none.
        tokenizer: Whose ids the labels are; its name. By default that of the documents or the token file of the
            corpus, which is the manifest's where it counts as many tokens.
        profile_every: Steps between two steps that torch's profiler looks at: how much of them is communication and
            how much computing. A profiled step is slower and waits for the device, so none is unless it is asked for.
        flops: What the model computes for a token: ``mfu`` and ``hfu`` of each 16 steps follow.
        alerts: Judges what is logged, in a thread of its own: :class:`dataaudit.live.Alerts`. Actions that were handed
            to it are done at the end of :meth:`step`.
        sinks: Get all that is logged, from the log's thread: trackers of :mod:`dataaudit.live`, the caller's to close.

    Raises:
        ConfigError: The folder holds a log and neither ``state`` nor ``resume`` is given, or cannot be written.
        CorpusRefused: The corpus is not that which ``state`` was trained on.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        corpus: Corpus,
        *,
        state: Mapping[str, Any] | None = None,
        resume: bool = False,
        allow: tuple[str, ...] = (),
        digests: Mapping[str, str] | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        block_rows: int = BLOCK_ROWS,
        shift: Shift = "outer",
        order: Order = "",
        score: Callable[[Any], Any] | None = None,
        model: torch.nn.Module | None = None,
        planned_tokens: int | None = None,
        optimizer: Any | None = None,
        scaler: Any | None = None,
        scheduler: Any | None = None,
        tokenizer: str = "",
        profile_every: int = 0,
        flops: ModelFlops | None = None,
        alerts: Observer | None = None,
        sinks: Sequence[Sink] = (),
    ) -> None:
        check_arguments(planned_tokens, profile_every, block_rows, order)
        self.corpus = corpus
        self.folder = Path(folder)
        self.rank, self.ranks = process_of(rank, ranks)
        self._digests = dict(digests or {})
        self._inner = check_shift(shift) == "inner"
        self._score, self._model = score, model
        self._kept: deque[tuple[int, list[tuple[Any, Any]]]] = deque(maxlen=KEPT_BATCHES)
        self._batches: list[MicroBatch] = []
        self._batch_inputs: list[tuple[Any, Any]] = []
        self._checked = False
        self._refused = 0
        self._positions = self._context = 0
        """Places of the batches of this step that may be targets, filled or not; places of a row."""
        self._closed = False
        self._warned: set[str] = set()
        detector = detector_of(state, corpus, self._digests, allow)
        self.steps = 0 if state is None else int(state["step"])
        self._watch = OptimizerWatch(optimizer, scaler, scheduler)
        self._clock, self._profiled = StepClock(self.ranks), Profiled(profile_every)
        self._utilisation = Utilisation(flops)
        self._actions: Actions | None = getattr(alerts, "actions", None)
        self._rate_factor = 1.0
        """By what actions multiplied the learning rate of the newest step."""
        rates = RateWatch(
            None if state is None else state["rates"], self._watch.state()["schedule"], lambda: self._rate_factor
        )
        first, on = self.steps + 1, state is not None or resume
        process, first_step = (self.rank, self.ranks), first if on else None
        block_rows, hidden = begin_run(self.folder, corpus, self._digests, process, block_rows, order, first_step)
        writer = RankWriter(self.folder, self.rank, first, block_rows)
        if self._actions is not None:
            self._actions.joins(self.rank, self.ranks, self)
        if alerts is not None:
            alerts.joins(self.rank, writer.attempt)
            writer.observers.append(alerts.take)
        if sinks:
            writer.observers.append(Forwarding(sinks, corpus.sources, self.rank, writer.attempt).take)
        self._thread = LogThread(
            writer,
            detector,
            corpus=corpus,
            counts=TrainedCounts(inner=self._inner),
            rates=rates,
            hold_steps=KEPT_BATCHES if score is not None else 0,
        )
        self._tokenizer = tokenizer or corpus.tokenizer
        given = {"planned_tokens": planned_tokens, "tokenizer": self._tokenizer, "shift": shift}
        given |= {"scaler": scaler is not None} if optimizer is not None else {}
        detail = {"program": __version__, **corpus.digests, **self._digests, "ranks": self.ranks}
        detail |= {"notes": list(corpus.notes), "told": given}
        detail |= {"sparse": dict(SPARSE_DEFAULTS)} if self._watch.optimizers else {}
        detail |= {"hidden_steps": hidden} if hidden else {}
        self.add_event(self.steps, "started" if state is None else "resumed", detail)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not self._closed:
            self.add_event(self.steps, "stopped" if issubclass(kind, StopRun) else "failed", {"error": kind.__name__})
        self.close()

    @property
    def lost_steps(self) -> int:
        """Steps that the log lacks, because it could not be written."""
        return self._thread.lost_steps

    @property
    def flagged(self) -> list[int]:
        """The newest steps whose loss was flagged; the thread that looks is a step or so behind."""
        return list(self._thread.flagged)

    def batch(
        self,
        tags: Any,
        *,
        losses: Any | None = None,
        logits: Any | None = None,
        hidden: Any | None = None,
        head: Any | None = None,
        labels: Any | None = None,
        keep: Any | None = None,
    ) -> None:
        """Take a batch whose gradients are part of a step.

        The losses of its stretches come from the first of these that is given: ``losses``, ``logits``, ``hidden`` with
        ``head``. From hidden states they are computed at every 16th step alone, since that takes a pass of its own.

        Args:
            tags: int64[B, K, 7] that came with the batch, of torch on any device or of NumPy.
            losses: [B, T] loss of each label, nats; [B, T - 1] where the model shifts labels.
            logits: [B, T, V]
            hidden: [B, T, d] what goes into the head.
            head: The module that makes logits of it, or its weight [V, d].
            labels: int64[B, T], -100 where a label is no target; with logits and hidden states they are needed.
            keep: What ``score`` needs to score the batch again.

        Raises:
            TagsError: Tags are missing or do not fit.
        """
        if self._closed:
            raise ConfigError("the monitor is closed")
        if tags is None:
            raise TagsError(
                "the batch has no tags",
                "What lies between the dataset and the loop, a collator or a filter of columns, must keep `tags`.",
            )
        if (logits is not None or hidden is not None) and losses is None and labels is None:
            raise TagsError("losses from logits or hidden states need `labels`")
        if keep is not None and self._score is None:
            raise ConfigError("`keep` is for `score`, which the monitor was not given")
        if len(self._batches) >= MOST_BATCHES:
            raise TagsError(f"{MOST_BATCHES:,} batches and no step", "Call `monitor.step(loss)` after each update.")
        tags = np.asarray(tags) if isinstance(tags, list) else tags
        if not self._checked:
            self._check(tags, losses, labels)
        with CatchErrors() as call:
            sums = self._sums(tags, losses, logits, hidden, head, labels)
            scored, ids = [None if own is None else AsyncCopy(own) for own in sums], ids_of(labels)
        if call.error is not None:
            if not self._checked and not out_of_memory(call.error):
                raise call.error
            scored, ids = [None, None], None  # the batch is trained on, without its losses in the log
            self._warn("not_scored", {"step": self.steps + 1, "why": call.kind})
        kept = tags.copy() if isinstance(tags, np.ndarray) else AsyncCopy(tags)
        self._batches.append(MicroBatch(kept, scored[0], scored[1], ids))
        rows, self._context = shape_of(losses, logits, hidden, labels) or (0, self._context)
        self._positions += rows * (self._context - self._inner)
        self._utilisation.batch(rows, self._context)
        self._clock.batch()
        if self._score is not None:
            self._batch_inputs.append((keep, tags if scored[0] is None else None))

    def step(self, loss: Any | None = None, **values: Any) -> None:
        """End a step: an update of the weights was made, or skipped.

        Args:
            loss: The loop's own loss, a number or a tensor of one, of any real dtype.
            values: Further numbers of the step by metric: ``learning_rate``, ``grad_global_norm``, ...

        Raises:
            TagsError: The first step had no batch, labels of a step before are not the tokens that their tags name, or
                too many targets lie in stretches that did not fit.
            ConfigError: A value of the first step is no number (later it is left out and counted), or the monitor is
                closed.
            StopRun: A rule asked for it, and the loop handed over ``Stop(raises=True)``.
        """
        if self._closed:
            raise ConfigError("the monitor is closed")
        if not self._batches and not self._checked:
            raise TagsError("the first step ended without a batch", "Call `monitor.batch(tags, ...)` for each of it.")
        if self._thread.moved:
            raise TagsError(self._thread.moved, MOVED)
        numbers = self._numbers({"loss": loss, **values} if loss is not None else values)
        own = numbers.pop("loss", None)
        self._checked = True
        self.steps += 1
        if not self._batches:
            self._warn("no_batch", {"step": self.steps})
        numbers |= self._end_step(values)
        ended, times = self._clock.end_step()
        times |= self._utilisation.end_step(self.steps, times.get("step_time"))
        if self._actions is not None:
            self._rate_factor = self._actions.rate_factor
        self._thread.put(Step(self.steps, ended, self._batches, own, numbers | times))
        self._batches = []
        self._profiled.begin(self.steps + 1)
        if self._score is not None:
            self._kept.append((self.steps, self._batch_inputs))
            self._batch_inputs = []
            self._score_flagged()
        if self._thread.targets > _MERGED_AFTER and (merged := self._much_merged()):
            raise TagsError(merged, "Give the dataset more places for them: `stretches=`.")
        if self._actions is not None and self._actions.between_steps(self.steps):
            self._clock.begin()

    def _end_step(self, given: Mapping[str, Any]) -> dict[str, float | AsyncCopy]:
        """Return further numbers of a step; what is wrong with it becomes an event."""
        numbers, events = self._watch.end_step(self.steps, given)
        for kind, detail in events:
            self._warn(kind, detail)
        if self._positions:
            numbers["positions"], numbers["context"] = float(self._positions), float(self._context)
            self._positions = 0
        refused = self._profiled.refused
        if (window := self._profiled.end(self.steps)) is not None:
            self._thread.put(window)
        if self._profiled.refused and not refused:
            detail = {"what": "comm_time_frac, compute_time_frac", "why": self._profiled.refused}
            self.add_event(self.steps, "not_seen", detail)
        if self.steps == 1 or not self._thread.gpu.device:
            self._thread.gpu.device = device_number()
        if (counted := self._utilisation.begin(self._thread.gpu.device)) is not None:
            self.add_event(self.steps, "utilisation", counted)
        return numbers

    def _warn(self, kind: str, detail: Mapping[str, Any]) -> None:
        """Log what is wrong; in words the first time."""
        self.add_event(self.steps, kind, detail)
        if kind in self._warned:
            return
        self._warned.add(kind)
        if kind in _WARNINGS:
            _LOG.warning("step %d: %s", detail.get("step", self.steps), _WARNINGS[kind].format_map(detail))

    def clip_grad_norm_(self, parameters: Any, max_norm: float, **how: Any) -> torch.Tensor:
        """Clip as ``torch.nn.utils.clip_grad_norm_`` does and return the norm, which the log keeps.

        With ``scaler`` it is an event when gradients have not been unscaled before: their norm is the scale times what
        it should be, and all of them are clipped.

        Args:
            parameters: Whose gradients are clipped.
            max_norm: To which norm.
            how: Further arguments of torch's function.
        """
        return self._watch.clip_grad_norm_(parameters, max_norm, **how)

    def norm_is_taken(self, norm: Any, max_norm: float | None = None) -> None:
        """Hand over the norm of a loop that takes it by other means, right after it was taken.

        Args:
            norm: Before clipping, of all ranks together.
            max_norm: To which norm gradients are clipped; None: they are not.
        """
        self._watch.norm_is_taken(max_norm, norm)

    def loader(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches of a loader, and keep how long the loop waits for each of them.

        A loop that fetches batches by other means calls :meth:`arrived` when one is there.
        """
        return self._clock.loader(batches)

    def arrived(self) -> None:
        """Mark that a batch is there: the loop waited for it since the last step, or batch, ended."""
        self._clock.arrived()

    def waited(self, seconds: float) -> None:
        """Add to the time that the loop waited for batches in this step."""
        self._clock.waited(seconds)

    def validation(self, loss: Any, name: str = "") -> None:
        """Take the loss on held-out data after the newest step.

        Args:
            loss: Mean, nats/token, a number or a tensor of one.
            name: Of the held-out data, where there are several.

        Raises:
            ConfigError: It is no number.
        """
        with CatchErrors() as call:
            value = scalar(loss)
        if call.error is not None:
            raise ConfigError(f"validation: expected a number, or a tensor of one, found {type(loss).__name__}")
        self._thread.put(Numbers(self.steps, {f"val_loss.{name}" if name else "val_loss": value}))

    def add_values(self, columns: Columns) -> None:
        """Take rows of the table of values, as :class:`dataaudit.vitals.Vitals` hands them over."""
        self._thread.put(Rows("values", columns))

    def add_histogram(self, step: int, metric: str, stat: str, edges: np.ndarray, counts: np.ndarray) -> None:
        """Take a histogram: a row of the table of values for each bin."""
        self.add_values(histogram_columns(step, metric, stat, edges, counts))

    def add_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Take an event of a step."""
        if kind == "vitals":  # what they measure is not measured twice
            self._watch.checks_state = "opt_state_finite" not in detail.get("metrics", {})
        self._thread.put(Rows("events", event(step, kind, detail)))

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs; the log is written up to this step before it returns."""
        self._thread.sync()
        rates = {"rates": list(self._thread.rates.rates), "factor": self._rate_factor, **self._watch.state()}
        return {
            "step": self.steps,
            "corpus": self.corpus.state(),
            "digests": dict(self._digests),
            "detector": self._thread.detector.state(),
            "rates": rates,
        }

    def close(self) -> None:
        """Write all that was handed over, and end the log's thread."""
        if self._closed:
            return
        self._closed = True
        self._profiled.end(self.steps + 1)
        self._watch.close()
        self._thread.sync()  # so that what was lost or left out is counted
        refused = self._refused + self._thread.refused
        self.add_event(self.steps, "closed", {"lost_steps": self.lost_steps, "refused_values": refused})
        self._thread.close()
        if self._thread.moved:
            _LOG.warning("%s; what this log says of data is not to be believed", self._thread.moved)
        if merged := self._much_merged():
            _LOG.warning("%s: give the dataset more places for them, `stretches=`", merged)

    def _much_merged(self) -> str:
        """Return which share of the targets did not fit into the tags; nothing where that is little."""
        share = self._thread.merged / max(1, self._thread.targets)
        return (
            f"{share:.1%} of the targets lie in stretches that did not fit into the tags" if share > MOST_MERGED else ""
        )

    def _numbers(self, values: Mapping[str, Any]) -> dict[str, float | AsyncCopy]:
        """Return numbers; what is none is refused in the first step, and left out and counted in others."""
        numbers: dict[str, float | AsyncCopy] = {}
        for name, value in values.items():
            with CatchErrors() as call:
                numbers[name] = scalar(value)
            if call.error is not None:
                shape = f" of shape {list(value.shape)}" if hasattr(value, "shape") else ""
                why = f"{name}: expected a number, or a tensor of one, found {type(value).__name__}{shape}"
                if not self._checked:
                    raise ConfigError(why)
                if not self._refused:
                    _LOG.warning("step %d: %s; such values are left out of the log", self.steps + 1, why)
                self._refused += 1
        return numbers

    def _sums(self, tags: Any, losses: Any, logits: Any, hidden: Any, head: Any, labels: Any) -> tuple[Any, Any]:
        if losses is None and logits is not None:
            losses = token_losses(logits, labels, inner=self._inner)
        elif losses is None and hidden is not None and (self.steps + 1) % SCORED_EVERY == 0:
            losses = hidden_losses(hidden, head, labels, inner=self._inner)
        if losses is None:
            return None, None
        import torch

        return stretch_loss_sums(torch.as_tensor(losses), torch.as_tensor(tags), labels, inner=self._inner)

    def _check(self, tags: Any, losses: Any | None, labels: Any | None) -> None:
        """Compare the first step's tags with the corpus, the labels and the losses."""
        if not self._tokenizer and (now := self.corpus.tokenizer):  # documents that were opened after the log
            self.add_event(self.steps, "reads", {"told": {"tokenizer": now}})
        check_batch(self.corpus, tags, losses, labels, inner=self._inner)

    def _score_flagged(self) -> None:
        """Score the kept batches of flagged steps, and of every 16th to compare with; all is put back as it was."""
        assert self._score is not None
        flagged = set(self._thread.flagged)
        for number, batches in list(self._kept):
            wanted = number in flagged or number % SCORED_EVERY == 0
            if wanted and batches and all(tags is not None for _, tags in batches):
                with CatchErrors() as call, untouched(self._model):
                    sums = [self._sums(tags, self._score(kept), None, None, None, None)[0] for kept, tags in batches]
                    self._thread.put(Scores(number, list(map(AsyncCopy, sums)), self.steps - number))
                if call.error is not None:
                    _LOG.warning("step %d cannot be scored again (%s); training goes on", number, call.origin)
                    self.add_event(self.steps, "not_scored", {"step": number, "why": call.kind})
                batches.clear()
