"""Actions on a run, done between steps on the loop's own thread: only those that the user handed over.

::

    actions = Actions("runs/7b", ProtectLastGood(checkpoints), LowerRate(optimizer, 0.5), Stop())
    with Alerts("runs/7b", "alerts.yaml", actions=actions) as alerts, TrainingMonitor(..., alerts=alerts) as monitor:
        for batch in actions.loader(loader):
            ...
            monitor.step(loss)  # what a rule asked for is done here
            if actions.should_stop:
                break

A rule of ``alerts.yaml`` names actions (``actions: [protect_last_good, stop]``). Alerts are judged in a thread, so an
action is asked for there and done at the next end of a step. What changes how a run goes on is done by all ranks at the
same step: :class:`dataaudit.live.Agreement`. An action that fails costs itself.
"""

from __future__ import annotations

import logging
import math
import os
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import orjson

from dataaudit.base.errors import CatchErrors, ConfigError, DataAuditError
from dataaudit.base.files import open_safely
from dataaudit.base.text import utc_now
from dataaudit.live.agreement import Agreement, Asked, Due

T = TypeVar("T")
FOLDER, RECORDS = "actions", "actions.jsonl"
COOL_DOWN = 1_000
"""Steps after an action within which no rule has it done again."""
_KEPT = 512
_DOCUMENTS = 64
"""Of a skipped batch, that its record names."""
_LOG = logging.getLogger("dataaudit")
Result = Literal["done", "failed", "refused", "abandoned", "going on", "skipped"]


class StopRun(DataAuditError):
    """A rule asked to stop the run, and the user handed over ``Stop(raises=True)``."""


class Refused(Exception):
    """An action cannot be done, and why."""


class EventSink(Protocol):
    """Takes events: a monitor, a ``RunLogSink``, a ``MemorySink``."""

    def add_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Take an event."""


class Action(ABC):
    """What may be done to a run. An action of yours gives :meth:`perform`, or hand over :class:`dataaudit.live.Call`.

    Args:
        name: By which rules and the loop ask for it.
        cool_down: Steps within which no rule has it done again; the loop may.
        at_most: Times that rules have it done in a run.
    """

    agreed = False
    """Whether all ranks do it at the same step; else the rank that asks does."""
    alone = False
    """Whether it is done, too, where ranks are missing."""
    left = 0
    """Batches that :meth:`Actions.loader` is still to leave out for it,"""
    asked: Asked | None = None
    """and by whose request."""

    def __init__(self, name: str, *, cool_down: int = COOL_DOWN, at_most: int | None = None) -> None:
        self.name, self.cool_down, self.at_most = name, cool_down, at_most

    @abstractmethod
    def perform(self, due: Due, actions: Actions) -> str:
        """Do it, and return what was done, in words."""

    def undo(self, _actions: Actions) -> str:
        """Undo it, and return what was done, in words."""
        raise Refused("it cannot be undone")

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it, in plain types."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        del state  # this keeps nothing


class Actions:
    """Does actions between steps, and keeps a record of each.

    Args:
        folder: Of the run log; proposals lie in ``actions`` below it.
        handed: What may be done. Without any nothing is.
        agreement: Of the ranks; a run of several needs it for actions that change how the run goes on.
        sink: Takes the events of a loop without a monitor, which hands itself over: a ``RunLogSink``.

    Attributes:
        stop_reason: Why the run should stop; empty while it should not.
        step: The newest step that ended.
        batches_read: Batches that :meth:`loader` took, skipped ones too; a resumed loop goes on behind them.
        records: The newest records.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *handed: Action,
        agreement: Agreement | None = None,
        sink: EventSink | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.agreement = agreement or Agreement()
        self.stop_reason, self.raises = "", False
        self.step = self.batches_read = 0
        self.records: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.has_loader = False
        self._ranks, self._sinks = self.agreement.ranks, [] if sink is None else [sink]
        self._handed: dict[str, Action] = {}
        self._asked: deque[Asked] = deque()
        self._done: deque[tuple[str, str]] = deque(maxlen=_KEPT)
        """(Incident, action) that were done, or refused once."""
        self._last: dict[str, int] = {}
        self._times: Counter[str] = Counter()
        self._states: dict[str, Any] = {}
        """Of actions that are not handed over yet."""
        self._failed = ""
        self.hand_over(*handed)

    @property
    def should_stop(self) -> bool:
        """Whether a loop should end now."""
        return bool(self.stop_reason)

    @property
    def rate_factor(self) -> float:
        """By what the learning rate is multiplied now."""
        return math.prod(getattr(own, "factor", 1.0) for own in self._handed.values())

    def hand_over(self, *handed: Action) -> None:
        """Take further actions, such as those of vitals that are made later.

        Raises:
            ConfigError: Two have the same name, or lower the rate of the same optimizer.
        """
        for action in handed:
            lowered = {id(item) for own in self._handed.values() for item in getattr(own, "optimizers", ())}
            if lowered & {id(item) for item in getattr(action, "optimizers", ())}:
                raise ConfigError(f"actions: `{action.name}` is the second that lowers the rate of an optimizer")
            if action.name in self._handed:
                raise ConfigError(f"actions: two have the name `{action.name}`", "Give one of them another: name=.")
            self._handed[action.name] = action
            if action.name in self._states:
                action.load(self._states.pop(action.name))

    def joins(self, rank: int, ranks: int, sink: EventSink) -> None:
        """Take which process it is, and where events go; a monitor calls it.

        Raises:
            ConfigError: The agreement is of other ranks.
        """
        own = (self.agreement.rank, self.agreement.ranks)
        if self.agreement.ranks > 1 and own != (rank, ranks):
            raise ConfigError(f"actions: the agreement is of rank {own[0]} of {own[1]}, the run's is {rank} of {ranks}")
        self._ranks = ranks
        self._sinks.append(sink)

    def ask(self, asked: Asked) -> str:
        """Ask for an action at the next end of a step, from any thread; return what becomes of it, in words."""
        if asked.action not in self._handed:
            return "not handed over"
        self._asked.append(asked)
        return "at the next step"

    def do(self, name: str, why: str = "", *, undo: bool = False) -> None:
        """Do an action now, between two steps; of several ranks it is asked for, and done a few steps later.

        Args:
            name: Of the action.
            why: For the record.
            undo: Undo it instead.

        Raises:
            ConfigError: It was not handed over.
        """
        if name not in self._handed:
            known = ", ".join(self._handed) or "none"
            raise ConfigError(f"actions: `{name}` was not handed over (handed over: {known})")
        self._asked.append(Asked(action=name, step=self.step, rank=self.agreement.rank, why=why, undo=undo))
        if self.agreement.ranks == 1 or not self._handed[name].agreed:
            self._go(self.step)

    def between_steps(self, step: int) -> bool:
        """Do what was asked for; a monitor calls it at the end of a step. Return whether anything was.

        Raises:
            StopRun: The run should stop, and ``Stop(raises=True)`` was handed over.
        """
        self.step = step
        number = self._go(step) if self._handed else 0
        if self.stop_reason and self.raises:
            raise StopRun(f"step {step:,}: {self.stop_reason}")
        return number > 0

    def _go(self, step: int) -> int:
        number = 0
        with CatchErrors() as call:
            while self._asked:
                number += self._begin(self._asked.popleft(), step)
            number += self._do_agreed(step)
        if call.error is not None and call.kind != self._failed:
            self._record(Asked(action="agreement", step=step), "failed", f"ranks cannot agree: {call.origin}")
        self._failed = call.kind
        return number

    def _do_agreed(self, step: int) -> int:
        """Do what all ranks agreed on; return how many actions that were."""
        due = self.agreement.due(step) if any(own.agreed for own in self._handed.values()) else []
        for own in due:
            self._perform(own)
        return len(due)

    def _begin(self, asked: Asked, step: int) -> int:
        action = self._handed[asked.action]
        if why := self._refusal(asked, action):
            if (asked.incident, asked.action) not in self._done:
                self._done.append((asked.incident, asked.action))
                self._record(asked, "refused", why)
            return 0
        if action.agreed:
            with CatchErrors() as call:
                self.agreement.ask(replace(asked, step=step, rank=self.agreement.rank))
            if call.error is not None:
                self._record(asked, "failed", f"ranks cannot agree: {call.origin}")
            return self._do_agreed(step) if self.agreement.ranks == 1 else 0
        self._perform(Due(asked, "", ()))
        return 1

    def _refusal(self, asked: Asked, action: Action) -> str:
        """Return why an action is not done; empty where it is."""
        if action.agreed and self._ranks > 1 and self.agreement.ranks == 1:
            return f"{self._ranks} ranks need an agreement: Actions(..., agreement=Agreement(store, rank, ranks))"
        if asked.rule and (asked.incident, action.name) in self._done:
            return f"it was asked for of {asked.incident}"
        return self._rests(asked, action)

    def _rests(self, asked: Asked, action: Action) -> str:
        """Return why rules wait for an action: by what all ranks know alike, so that all of them do it or none."""
        if not asked.rule:  # the loop asks, and knows what it does
            return ""
        last, times = self._last.get(action.name), self._times[action.name]
        if last is not None and abs(self.step - last) < action.cool_down:
            return f"it was done at step {last:,}, and cools down for {action.cool_down:,} steps"
        return f"rules had it done {times} times" if action.at_most is not None and times >= action.at_most else ""

    def _perform(self, due: Due) -> None:
        asked = due.asked
        action = self._handed.get(asked.action)
        why = f"rank {self.agreement.rank} was not handed it" if action is None else self._rests(asked, action)
        if action is None or why:
            self._record(asked, "refused", why)
            return
        self._done.append((asked.incident, action.name))
        before = dict(self._last), Counter(self._times)
        if not asked.undo:  # kept before it is done: a checkpoint that it saves knows of it
            self._last[action.name] = self.step
            self._times[action.name] += bool(asked.rule)
        if due.missing and not action.alone:
            self._record(asked, "abandoned", missing_words(due.missing, self.agreement.timeout))
            return
        words = ""
        with CatchErrors() as call:
            words = action.undo(self) if asked.undo else action.perform(due, self)
        if isinstance(call.error, Refused | DataAuditError):
            if not action.agreed:  # of the others all ranks have to know alike
                self._last, self._times = before
            self._record(asked, "refused", str(call.error))
        elif call.error is not None:
            self._record(asked, "failed", call.origin)
        else:
            self._record(asked, "done", words)

    def _record(self, asked: Asked, result: Result, words: str, **more: Any) -> None:
        """Write what became of a request: to the run log, the incident's folder and the process's log."""
        facts = {name: own for name, own in asdict(asked).items() if own not in {"", False} and name != "folder"}
        rank = self.agreement.rank
        record = {**facts, "asked_step": asked.step, "step": self.step, "rank": rank, "asked_by": asked.rank}
        record |= {"result": result, "words": words, **more}
        self.records.append(record)
        if result != "skipped":
            _LOG.warning("step %d: action %s: %s: %s", self.step, asked.action, result, words)
        for sink in self._sinks:
            with CatchErrors():
                sink.add_event(self.step, "action", record)
        if asked.folder and os.path.isdir(asked.folder):
            stamped = {"time": utc_now(), **record}
            with suppress(OSError), open(Path(asked.folder) / RECORDS, "ab", opener=open_safely) as file:
                file.write(orjson.dumps(stamped, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")

    def going_on(self, asked: Asked, words: str) -> None:
        """Record that an action goes on."""
        self._record(asked, "going on", words)

    def request_stop(self, why: str) -> None:
        """Ask the loop to stop."""
        self.stop_reason = self.stop_reason or why

    def end(self) -> None:
        """Record what was asked for and not done, as the loop ended."""
        while self._asked:
            self._record(self._asked.popleft(), "abandoned", "the loop ended before")

    def loader(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield batches, but those that are to be skipped; each of these is in the log, with shard and row.

        What fetches ahead, such as a ``DataLoader`` with workers, lies within: hand it over as it is. Batches are
        counted when the loop takes them.
        """
        self.has_loader = True
        for batch in batches:
            self.batches_read += 1
            left = next((own for own in self._handed.values() if own.left), None)
            if left is None:
                yield batch
                continue
            left.left -= 1
            with CatchErrors() as call:
                documents = _documents(batch)
            more = {"batch": self.batches_read, "documents": documents if call.error is None else None}
            asked = left.asked or Asked(action=left.name, step=self.step)
            self._record(asked, "skipped", f"batch {self.batches_read:,} of the loader", **more)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs, in plain types: what was done, factors, what is left, the position."""
        return {
            "step": self.step,
            "batches_read": self.batches_read,
            "done": [list(own) for own in self._done],
            "last": dict(self._last),
            "times": dict(self._times),
            "actions": {**self._states, **{name: own.state() for name, own in self._handed.items()}},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; a stop is over, and is not asked for again within its cool-down.

        Raises:
            ConfigError: It is no such state.
        """
        try:
            self.step, self.batches_read = int(state["step"]), int(state["batches_read"])
            self._done = deque(((str(own[0]), str(own[1])) for own in state["done"]), _KEPT)
            self._last = {str(name): int(own) for name, own in state["last"].items()}
            self._times = Counter({str(name): int(own) for name, own in state["times"].items()})
            self._states = dict(state["actions"])
            for name in self._handed.keys() & self._states.keys():
                self._handed[name].load(self._states.pop(name))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"actions: the state of the checkpoint does not fit ({type(error).__name__}: {error})",
                "Hand over what `actions.state_dict()` returned, or begin without it.",
            ) from None


def missing_words(missing: Iterable[int], seconds: float) -> str:
    """Return in words which ranks are missing."""
    named = ", ".join(map(str, missing))
    return f"rank {named} did not answer within {seconds:g} s: it hangs, or it is dead"


def _documents(batch: Any) -> list[list[int]] | None:
    """Return shard and row of the documents of a batch with tags; None where there are none, or they are elsewhere."""
    tags = batch.get("tags") if isinstance(batch, Mapping) else None
    if tags is None or getattr(getattr(tags, "device", None), "type", "cpu") != "cpu":
        return None
    pairs = np.asarray(tags)[..., :2].reshape(-1, 2)
    documents: list[list[int]] = np.unique(pairs[pairs[:, 0] >= 0], axis=0)[:_DOCUMENTS].tolist()
    return documents
