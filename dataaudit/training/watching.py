"""``watch_run``: one call that sets up all that watches a run, and the few methods that its loop calls.

::

    with watch_run(model, optimizer, corpus, folder="runs/7", preset="nano") as run:
        for batch in run.loader(loader):
            with run.step():
                ...
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.base.yamlfile import nearest
from dataaudit.live.alerts import Alerts
from dataaudit.live.checklist import SCALES, WANTED, Checklist, Scale, unfed_text
from dataaudit.live.feed import Feed
from dataaudit.live.heartbeats import BEATS_FOLDER, Heartbeat, Heartbeats
from dataaudit.live.run_rates import live_values, restart_rate
from dataaudit.runlog.writer import Columns
from dataaudit.training.corpus import Corpus
from dataaudit.training.flops import ModelFlops
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.training.run_start import process_of

if TYPE_CHECKING:
    import torch

    from dataaudit.live.actions import Actions
    from dataaudit.live.checkpoints import Checkpoints
    from dataaudit.vitals import Vitals, VitalsConfig

T = TypeVar("T")
FAMILIES: Final[Mapping[Scale, tuple[str, ...]]] = {
    "nano": ("attention", "activations", "weights", "experts"),
    "medium": ("attention", "activations", "weights", "spectra", "experts"),
    "large": ("attention", "activations", "weights", "spectra", "updates", "experts"),
}
"""Families of vitals by scale."""
CHECKED_AFTER = 200
"""Steps after which it is printed, once, which musts are not fed."""
_EVERY_SECONDS = 10.0
_LOG = logging.getLogger("dataaudit")


class _Once:
    """Takes all rows of this process's log; after some steps logs once which musts are not fed, and rests."""

    def __init__(self, alerts: Alerts, scale: Scale, corpus: Corpus, digests: Mapping[str, str]) -> None:
        self._alerts, self._scale, self.actions = alerts, scale, alerts.actions
        self._feed = Feed(WANTED, steps=1, batches=1)
        self._feed.sources = corpus.sources
        self._checklist = Checklist(self._feed, 1, corpus.table, digests)
        self._rank, self._attempt, self._first, self.done = 0, 0, 0, False

    def joins(self, rank: int, attempt: int) -> None:
        self._rank, self._attempt = rank, attempt
        self._alerts.joins(rank, attempt)

    def take(self, table: str, columns: Columns) -> None:
        self._alerts.take(table, columns)
        if self.done:
            return
        with CatchErrors() as call:
            self._checklist.see(self._feed.begin(self._rank, self._attempt, 0.0))
            self._checklist.see(self._feed.take(table, self._rank, columns, 0.0))
            self._first = self._first or self._feed.newest_step
            if table == "steps" and self._feed.newest_step - self._first >= CHECKED_AFTER:
                self.print()
        self.done |= call.error is not None

    def print(self) -> None:
        """Log what is not fed, on the first rank; nothing where all is, or where it was logged."""
        if self.done or self._rank or not self._feed.newest_step:
            return
        self.done = True
        phase, _ = self._checklist.phase()
        rows = self._checklist.rows(self._scale, phase, only_due=True)
        fed = {"ok", "not_applicable"}
        if lines := unfed_text(row for row in rows if row.grade == "must" and row.state not in fed):
            head = f"step {self._feed.newest_step:,}: a {self._scale} run in its {phase} phase is not fed"
            _LOG.warning("%s:\n%s", head, "\n".join(lines))


class WatchedRun:
    """What watches a run, set up by :func:`watch_run`; it is a context manager.

    Attributes:
        monitor: Keeps the run log.
        vitals: Measures the model; None where it cannot be measured, which was logged with the reason.
        alerts: Judges the log by rules.
        checkpoints: What :func:`watch_run` was given.
        actions: What :func:`watch_run` was given, which the monitor does between steps.
    """

    def __init__(
        self,
        monitor: TrainingMonitor,
        vitals: Vitals | None,
        alerts: Alerts,
        once: _Once,
        *,
        checkpoints: Checkpoints | None = None,
        actions: Actions | None = None,
    ) -> None:
        self.monitor, self.vitals, self.alerts = monitor, vitals, alerts
        self.checkpoints, self.actions = checkpoints, actions
        self._once = once
        self._loss: Any = None
        self._values: dict[str, Any] = {}
        folder = monitor.folder / BEATS_FOLDER
        self._beat = Heartbeat(folder, monitor.rank, _EVERY_SECONDS, ranks=monitor.ranks)
        self._beats, self._ended = Heartbeats(folder), threading.Event()
        self._thread = threading.Thread(target=self._read_beats, name="dataaudit-beats", daemon=True)
        if monitor.rank == 0:
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        stack = ExitStack()  # the last is closed first; each is closed whatever the others do
        stack.callback(self.alerts.close)
        stack.callback(self._once.print)
        stack.push(self.monitor)
        stack.push(self._beat)
        if self.vitals is not None:
            stack.callback(self.vitals.close)
        if self.checkpoints is not None:
            stack.callback(self.checkpoints.wait)  # what becomes of the last save is of this log
        if self._thread.is_alive():
            stack.callback(self._thread.join)
        stack.__exit__(kind, error, trace)

    def loader(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches of a loader but those that actions skip, and keep how long the loop waits for each."""
        return self.monitor.loader(batches if self.actions is None else self.actions.loader(batches))

    @contextmanager
    def step(self) -> Iterator[None]:
        """Watch what happens within: an update of the weights, with all its micro-batches.

        Raises:
            TagsError: As :meth:`TrainingMonitor.step`.
            ConfigError: As :meth:`TrainingMonitor.step`, or a step is open.
        """
        with nullcontext() if self.vitals is None else self.vitals.step():
            yield
        loss, values, self._loss, self._values = self._loss, self._values, None, {}
        self.monitor.step(loss, **values)
        self._beat.step(self.monitor.steps)

    def batch(self, tags: Any, **batch: Any) -> None:
        """Take a batch of the step: arguments as of :meth:`TrainingMonitor.batch`."""
        self.monitor.batch(tags, **batch)

    def log(self, loss: Any, **values: Any) -> None:
        """Take the loss of the step, and further numbers by name; tensors of one are not waited for."""
        self._loss, self._values = loss, {**self._values, **values}

    def clip_grad_norm_(self, parameters: Any, max_norm: float, **how: Any) -> torch.Tensor:
        """Clip as ``torch.nn.utils.clip_grad_norm_`` does and return the norm, which the log keeps."""
        return self.monitor.clip_grad_norm_(parameters, max_norm, **how)

    def validation(self, loss: Any, name: str = "") -> None:
        """Take the loss on held-out data, nats/token; ``name`` is that of a slice."""
        self.monitor.validation(loss, name)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs, for ``watch_run(..., state=)``."""
        vitals = None if self.vitals is None else self.vitals.state_dict()
        actions = None if self.actions is None else self.actions.state_dict()
        return {"monitor": self.monitor.state_dict(), "vitals": vitals, "actions": actions}

    def _read_beats(self) -> None:
        """Log who is missing, and how often the run restarts; of the first rank."""
        while not self._ended.wait(_EVERY_SECONDS):
            with CatchErrors():
                report = self._beats.read()
                restarts = restart_rate(None, report.starts)
                self.monitor.add_values(live_values(self.monitor.steps, beats=report, restarts=restarts))


def watch_run(
    model: torch.nn.Module,
    optimizer: Any,
    corpus: Corpus,
    preset: Scale = "nano",
    *,
    folder: str | os.PathLike[str],
    rules: str | os.PathLike[str] | None = None,
    deliver: Sequence[Callable[[dict[str, Any]], object]] = (),
    vitals: VitalsConfig | None = None,
    state: Mapping[str, Any] | None = None,
    checkpoints: Checkpoints | None = None,
    actions: Actions | None = None,
    **monitor: Any,
) -> WatchedRun:
    """Set up all that watches a run: its log, vitals, alerts and heartbeats; return an object with what a loop calls.

    After 200 steps, or at the end, the first rank logs once each number that a run of this scale and phase must be fed
    and is not, with the line of code that feeds it.

    Args:
        model: Not compiled yet.
        optimizer: Of the loop, one or several.
        corpus: What was opened.
        preset: Scale of the run: which vitals are measured, how often, and which numbers are musts.
        folder: Of the run log; ranks share it.
        rules: An ``alerts.yaml``; the shipped rules by default.
        deliver: Functions that are called with the facts of an alert.
        vitals: Settings in place of those of the preset.
        state: Of a checkpoint, as :meth:`WatchedRun.state_dict` returned it.
        checkpoints: :class:`dataaudit.live.Checkpoints` that the loop saves and closes; their numbers go into the log.
        actions: What rules may have done between steps, :class:`dataaudit.live.Actions`.
        monitor: Further arguments of :class:`TrainingMonitor`: ``scaler``, ``scheduler``, ``planned_tokens``,
            ``shift``, ``order``, ``flops``, ``profile_every``, ``sinks``, ...

    Raises:
        ConfigError: The preset is none, the folder holds a log and no ``state`` is given, rules are wrong, or the
            state is of another model.
        CorpusRefused: The corpus is not that which ``state`` was trained on.
    """
    from dataaudit.vitals import Vitals, VitalsConfig

    for name in monitor.keys() - signature(TrainingMonitor).parameters.keys():
        known = {*signature(watch_run).parameters, *signature(TrainingMonitor).parameters} - {"monitor", "alerts"}
        meant = f": it is of `vitals=VitalsConfig({name}=...)`" if name in signature(VitalsConfig).parameters else ""
        raise TypeError(f"watch_run: no argument `{name}`{meant or nearest(name, sorted(known))}")
    if preset not in SCALES:
        raise ConfigError(f"watch_run: preset: expected {', '.join(SCALES)}, found {preset!r}")
    if "flops" not in monitor:
        with CatchErrors():  # its parameters or its attention are not understood: no `mfu`
            monitor["flops"] = ModelFlops.of(model)
    rank, _ = process_of(monitor.get("rank"), monitor.get("ranks"))
    state = state or {}
    with ExitStack() as stack:
        alerts = stack.enter_context(
            Alerts(Path(folder), rules, deliver=deliver, sinks=monitor.get("sinks", ()), rank=rank, actions=actions)
        )
        if actions is not None and state.get("actions") is not None:
            actions.load_state_dict(state["actions"])
        once = _Once(alerts, preset, corpus, monitor.get("digests") or {})
        own = TrainingMonitor(folder, corpus, optimizer=optimizer, alerts=once, state=state.get("monitor"), **monitor)
        stack.enter_context(own)
        if checkpoints is not None:
            checkpoints.report_to(own)
        config = vitals or VitalsConfig(preset=preset, measure=FAMILIES[preset])
        measured = _vitals(lambda: Vitals(model, optimizer, replace(config, first_step=own.steps + 1), [own]))
        if measured is not None and state.get("vitals") is not None:
            stack.callback(measured.close)
            measured.load_state_dict(state["vitals"])
        run = WatchedRun(own, measured, alerts, once, checkpoints=checkpoints, actions=actions)
        stack.pop_all()
    return run


def _vitals(make: Callable[[], Vitals]) -> Vitals | None:
    """Return vitals; None where the model cannot be measured, which is logged with what to do."""
    try:
        return make()
    except ConfigError as error:
        _LOG.warning("%s; the run goes on without vitals. %s", error.message, error.hint)
        return None
