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
are missing or do not fit at the first step, and tags with too few places for what a row holds.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dataaudit import __version__
from dataaudit.errors import ConfigError, TagsError
from dataaudit.runlog.format import RUN_FILE, UNUSED, RunFile
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import RankWriter, create_run, event
from dataaudit.training.corpus import Corpus
from dataaudit.training.logthread import LogThread, MicroBatch, Scores, Step
from dataaudit.training.packing import Shift
from dataaudit.training.spikes import SpikeDetector
from dataaudit.training.stretch_losses import (
    Pending,
    check_targets,
    hidden_losses,
    stretch_loss_sums,
    token_losses,
)
from dataaudit.training.tags import SHARD, TARGETS, WIDTH
from dataaudit.yamlfile import nearest

if TYPE_CHECKING:
    import torch

BLOCK_ROWS = 64
MOST_MERGED = 0.01
"""Share of the targets that may lie in stretches that did not fit into the tags."""
_MERGED_AFTER = 50_000
"""Targets after which that share is looked at."""
KEPT_BATCHES = 4
"""Steps whose batches are kept to be scored again."""
SCORED_EVERY = 16
"""Steps between two passes of our own: through the head, where losses come from hidden states, or with ``score``."""


class TrainingMonitor:
    """Keeps the run log of one process of a training run.

    Args:
        folder: Of the run log; the ranks of a run share it.
        corpus: What was opened.
        state: Of a checkpoint, as :meth:`state_dict` returned it: the run goes on after its step.
        resume: Whether to start again from the first step in a folder that holds a log already, without a state.
        allow: Names of digests that may differ from those of ``state``.
        digests: Of what else decides the run, by name: ``code``, ``lock``, ... as ``sha256:...``; a checkpoint keeps
            them, and other ones are an error when the run goes on.
        rank: Of this process; of the environment's RANK by default.
        ranks: Processes of the run; of the environment's WORLD_SIZE by default.
        block_rows: Rows of a block, the unit that a spike is attributed to; a power of two.
        shift: ``outer``: the loader shifts labels. ``inner``: the model does.
        score: From a kept batch to its losses [B, T]. With it every 16th step is scored, and a flagged one as long as
            it is among the last four, where a loop hands over no losses of stretches.
        model: Whose buffers and modes are put back after ``score``.

    Raises:
        ConfigError: The folder holds a log and neither ``state`` nor ``resume`` is given, or cannot be written.
        CorpusRefused: The corpus is not the one that ``state`` was trained on.
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
        score: Callable[[Any], Any] | None = None,
        model: torch.nn.Module | None = None,
    ) -> None:
        if block_rows < 1 or block_rows & (block_rows - 1):
            raise ConfigError(f"block_rows: expected a power of two, found {block_rows}")
        self.corpus = corpus
        self.folder = Path(folder)
        self.rank = int(os.environ.get("RANK", "0")) if rank is None else rank
        self.ranks = int(os.environ.get("WORLD_SIZE", "1")) if ranks is None else ranks
        self.steps = 0
        """Steps that are done."""
        self._digests = dict(digests or {})
        self._inner = shift == "inner"
        self._score, self._model = score, model
        self._kept: deque[tuple[int, list[tuple[Any, Any]]]] = deque(maxlen=KEPT_BATCHES)
        self._batches: list[MicroBatch] = []
        self._batch_inputs: list[tuple[Any, Any]] = []
        self._checked = False
        self._shards = corpus.table.num_rows
        if state is not None:
            own = set(corpus.state())
            corpus.compare(state["corpus"], allow=[name for name in allow if name in own])
            _compare(state["digests"], self._digests, allow, own)
            self.steps = int(state["step"])
        detector = SpikeDetector() if state is None else SpikeDetector.from_state(state["detector"])
        self._create(block_rows, on=state is not None or resume)
        try:
            writer = RankWriter(self.folder, self.rank, self.steps + 1, self._block_rows)
        except OSError as error:
            raise ConfigError(f"the run log {self.folder} cannot be written: {error.strerror or error}") from None
        self._thread = LogThread(writer, detector, hold_steps=KEPT_BATCHES if score is not None else 0)
        began = "started" if state is None else "resumed"
        self._thread.put(event(self.steps, began, {"program": __version__, **corpus.digests, **self._digests}))

    def _create(self, block_rows: int, *, on: bool) -> None:
        """Write what the run is, or hold it against what is written."""
        self._block_rows = block_rows
        if on and (self.folder / RUN_FILE).exists():
            run = load_run(self.folder).run
            if run.manifest != self.corpus.id:
                raise ConfigError(
                    f"{self.folder} is the log of a run on {run.manifest}, opened is {self.corpus.id}",
                    "Name another folder.",
                )
            self._block_rows = run.block_rows
        elif self.rank == 0:
            verdict = self.corpus.verdict
            run = RunFile(
                manifest=self.corpus.id,
                dataset=self.corpus.dataset,
                verdict={} if verdict is None else asdict(verdict),
                digests={**self.corpus.digests, **self._digests},
                sources=self.corpus.sources,
                block_rows=block_rows,
                ranks=self.ranks,
                started=dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
                program=__version__,
            )
            create_run(self.folder, run, self.corpus.table)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
        """Take a batch, one of those whose gradients make a step.

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
        if tags is None:
            raise TagsError(
                "the batch has no tags",
                "What lies between the dataset and the loop, a collator or a filter of columns, must keep `tags`.",
            )
        if tuple(tags.shape[2:]) != (WIDTH,):
            raise TagsError(f"tags: expected int64[B, K, {WIDTH}], found {tuple(tags.shape)}")
        if (logits is not None or hidden is not None) and losses is None and labels is None:
            raise TagsError("losses from logits or hidden states need `labels`")
        if not self._checked:
            self._check(tags, labels)
        sums = self._sums(tags, losses, logits, hidden, head, labels)
        numpy_tags = isinstance(tags, np.ndarray)
        self._batches.append(
            MicroBatch(tags.copy() if numpy_tags else Pending(tags), None if sums is None else Pending(sums))
        )
        if self._score is not None:
            self._batch_inputs.append((keep, tags if sums is None else None))

    def step(self, loss: Any | None = None, **values: Any) -> None:
        """End a step: an update of the weights was made, or skipped.

        Args:
            loss: The loop's own loss, a number or a tensor of one.
            values: Further numbers of the step by metric: ``learning_rate``, ``grad_global_norm``, ...

        Raises:
            TagsError: The step had no batch with tags, or too many of its targets lie in stretches that did not fit.
        """
        if not self._batches and not self._checked:
            raise TagsError(
                "the first step ended without a batch", "Call `monitor.batch(tags, ...)` for each batch of it."
            )
        self._checked = True
        self.steps += 1
        held = {name: _number(value) for name, value in values.items()}
        self._thread.put(Step(self.steps, time.time(), self._batches, None if loss is None else _number(loss), held))
        self._batches = []
        if self._score is not None:
            self._kept.append((self.steps, self._batch_inputs))
            self._batch_inputs = []
            self._score_flagged()
        merged, targets = self._thread.merged, self._thread.targets
        if targets > _MERGED_AFTER and merged > MOST_MERGED * targets:
            raise TagsError(
                f"{merged / targets:.1%} of the targets lie in stretches that did not fit into the tags",
                "Give the dataset more places for them: `stretches=`.",
            )

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs; the log is written up to this step before it returns."""
        self._thread.sync()
        return {
            "step": self.steps,
            "corpus": self.corpus.state(),
            "digests": dict(self._digests),
            "detector": self._thread.detector.state(),
        }

    def close(self) -> None:
        """Write all that was handed over, and end the log's thread."""
        self._thread.put(event(self.steps, "closed", {"lost_steps": self.lost_steps}))
        self._thread.close()

    def _sums(self, tags: Any, losses: Any, logits: Any, hidden: Any, head: Any, labels: Any) -> Any | None:
        if losses is None and logits is not None:
            losses = token_losses(logits, labels, inner=self._inner)
        elif losses is None and hidden is not None and (self.steps + 1) % SCORED_EVERY == 0:
            losses = hidden_losses(hidden, head, labels, inner=self._inner)
        if losses is None:
            return None
        import torch

        return stretch_loss_sums(torch.as_tensor(losses), torch.as_tensor(tags), labels, inner=self._inner)

    def _check(self, tags: Any, labels: Any | None) -> None:
        """Hold the first step's tags against the corpus and the labels."""
        found = np.asarray(tags.cpu() if hasattr(tags, "cpu") else tags)
        if found.dtype != np.int64:
            raise TagsError(f"tags: expected int64, found {found.dtype}")
        shards = found[..., SHARD]
        if shards.size and not ((shards >= UNUSED) & (shards < self._shards)).all():
            raise TagsError(
                f"tags name shard {int(shards.max()):,}, the manifest has {self._shards:,}",
                "They are of another manifest: open the one that the token files were made of.",
            )
        if (shards == UNUSED).all():
            raise TagsError("the tags of the batch name no document")
        if labels is not None:
            targets = np.where(shards == UNUSED, 0, found[..., TARGETS]).sum(axis=1)
            given = np.asarray(labels.cpu() if hasattr(labels, "cpu") else labels)
            check_targets(given, targets, inner=self._inner)

    def _score_flagged(self) -> None:
        """Score the kept batches of flagged steps, and of every 16th to compare with; all is put back as it was."""
        flagged = set(self._thread.flagged)
        for number, batches in list(self._kept):
            wanted = number in flagged or number % SCORED_EVERY == 0
            if wanted and batches and all(tags is not None for _, tags in batches):
                sums = []
                with _untouched(self._model):
                    for kept, tags in batches:
                        assert self._score is not None
                        sums.append(Pending(stretch_loss_sums(self._score(kept), tags, None, inner=self._inner)))
                self._thread.put(Scores(number, sums, self.steps - number))
                batches.clear()


@contextmanager
def _untouched(model: torch.nn.Module | None) -> Iterator[None]:
    """Run without gradients; put random states, buffers and modes of a model back afterwards."""
    import torch

    modules = [] if model is None else list(model.modules())
    modes = [module.training for module in modules]
    buffers = [] if model is None else [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.no_grad(), torch.random.fork_rng():
        try:
            if model is not None:
                model.eval()
            yield
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode
            for buffer, before in buffers:
                buffer.copy_(before)
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _number(value: Any) -> float | Pending:
    return Pending(value) if hasattr(value, "detach") else float(value)


def _compare(before: Mapping[str, str], now: Mapping[str, str], allow: tuple[str, ...], own: set[str]) -> None:
    """Hold the digests of a checkpoint against those of now; ``own`` names those of the corpus, which were."""
    known = sorted({*before, *now})
    for name in allow:
        if name not in own and name not in known:
            raise ConfigError(f"allow: no digest `{name}`{nearest(name, [*sorted(own), *known])}")
    other = [name for name in known if before.get(name) != now.get(name) and name not in allow]
    if other:
        names = ", ".join(f"{name}: {before.get(name, 'none')}, now {now.get(name, 'none')}" for name in other)
        raise ConfigError(
            f"the checkpoint was made with other digests ({names})", f"Allow it by name: allow={tuple(other)!r}."
        )
