"""What may be done to a run: sampling, pause, checkpoints, batches, the learning rate, stop; each handed over by name.

A learning rate is lowered within ``optimizer.step()`` alone: a hook multiplies it before, and puts back after what the
schedule set. So any schedule goes on as it would, closed or recursive, and the optimizer's state keeps its own rate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Literal, Protocol

import orjson

from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.base.files import read_safely, write_whole
from dataaudit.base.text import clean
from dataaudit.live.actions import COOL_DOWN, FOLDER, Action, Actions, Refused, missing_words
from dataaudit.live.agreement import Asked, Due

_PAUSE_LOOK, _PAUSE_RECORD = 0.2, 60.0
RESUME_FILE, PAUSED_FILE = "resume.json", "paused.json"
Afterwards = Literal["go on", "stop"]


class CheckpointStore(Protocol):
    """What is needed of checkpoints; each has a ``step``, a ``path`` and whether it is ``good``."""

    @property
    def latest(self) -> Any:
        """The newest; None: there is none."""

    @property
    def last_good(self) -> Any:
        """The newest that was restored in a test; None: there is none."""

    def list(self) -> Sequence[Any]:
        """Return all of them, oldest first."""

    def protect(self, at: int, /) -> object:
        """Keep the checkpoint of a step from being deleted."""

    def unprotect(self, at: int, /) -> object:
        """Let it be deleted again."""


class Call(Action):
    """Calls a function of yours with the request; what it returns is recorded as text.

    Args:
        name: Of the action.
        function: Of :class:`Asked`: which rule and incident, why.
        agreed: Whether all ranks call it at the same step.
        more: ``cool_down``, ``at_most``.
    """

    def __init__(self, name: str, function: Callable[[Asked], object], *, agreed: bool = False, **more: Any) -> None:
        super().__init__(name, **more)
        self.agreed, self._function = agreed, function

    def perform(self, due: Due, _actions: Actions) -> str:
        """Call it."""
        result = self._function(due.asked)
        return "called" if result is None else str(result)[:1_000]


class RaiseSampling(Action):
    """Has :class:`dataaudit.vitals.Vitals` measure everything at each of the next steps."""

    def __init__(self, vitals: Any, steps: int = 200, name: str = "raise_sampling", **more: Any) -> None:
        super().__init__(name, **more)
        self._vitals, self._steps = vitals, steps

    def perform(self, _due: Due, actions: Actions) -> str:
        """Raise it."""
        if not self._vitals.escalate(self._steps):
            raise Refused("vitals measure closely already, or did until a moment ago")
        return f"vitals measure everything in steps {actions.step + 1:,} to {actions.step + self._steps:,}"


class SaveCheckpoint(Action):
    """Calls a function that saves a checkpoint, on all ranks at the same step.

    Args:
        save: Of the step: ``lambda step: checkpoints.save(step, ...)``.
    """

    agreed = True

    def __init__(self, save: Callable[[int], object], name: str = "save_checkpoint", **more: Any) -> None:
        super().__init__(name, **more)
        self._save = save

    def perform(self, _due: Due, actions: Actions) -> str:
        """Save it."""
        began = time.perf_counter()
        self._save(actions.step)
        return f"`save` was called after step {actions.step:,}, and returned after {time.perf_counter() - began:.1f} s"


class ProtectLastGood(Action):
    """Keeps the last checkpoint that was restored in a test, before what the rule saw, from being deleted.

    Where there is none it keeps the newest from before what the rule saw, whose test may be under way.
    """

    def __init__(self, checkpoints: CheckpointStore, name: str = "protect_last_good", **more: Any) -> None:
        super().__init__(name, **more)
        self._checkpoints = checkpoints
        self._step: int | None = None

    def perform(self, due: Due, _actions: Actions) -> str:
        """Protect it."""
        first = due.asked.first_step
        good, kept = good_before(self._checkpoints, first), self._checkpoints.list()
        late = good is not None and 0 < first <= good.step
        before = next((own for own in kept[::-1] if own.step < (first or own.step + 1)), None)
        chosen = before or good if late else good or before
        if chosen is None:
            raise Refused("there is no checkpoint from before it")
        self._step = int(chosen.step)
        self._checkpoints.protect(self._step)
        of = "a checkpoint from before it" if late else "a checkpoint"
        note = "" if chosen.good else f"; no test of {of} has ended yet"
        note += f"; it is not older than step {first:,}" if 0 < first <= self._step else ""
        return f"the checkpoint of step {self._step:,} stays: {chosen.path}{note}"

    def undo(self, _actions: Actions) -> str:
        """Let it be deleted again."""
        if self._step is None:
            raise Refused("none was protected")
        self._checkpoints.unprotect(self._step)
        return f"the checkpoint of step {self._step:,} may be deleted"

    def state(self) -> dict[str, Any]:
        """Return which step's checkpoint is protected."""
        return {"step": self._step}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._step = state.get("step")


def good_before(checkpoints: CheckpointStore, step: int) -> Any:
    """Return the newest good checkpoint before a step; the last good where there is none, or the step is 0."""
    before = [own for own in checkpoints.list() if own.good and own.step < step]
    return before[-1] if before else checkpoints.last_good


class SkipBatches(Action):
    """Has ``actions.loader`` leave out the next batches, on all ranks from the same step on."""

    agreed = True

    def __init__(self, batches: int, name: str = "skip_batches", **more: Any) -> None:
        super().__init__(name, **more)
        if batches < 1:
            raise ConfigError(f"actions: {name}: expected 1 batch or more, found {batches}")
        self._batches = batches
        self.left = 0
        self.asked: Asked | None = None

    def perform(self, due: Due, actions: Actions) -> str:
        """Skip them."""
        if not actions.has_loader:
            raise Refused("the loop does not read its batches from `actions.loader(loader)`")
        self.left, self.asked = self._batches, due.asked
        return f"the next {self._batches:,} batches are skipped, behind batch {actions.batches_read:,} of the loader"

    def undo(self, _actions: Actions) -> str:
        """Skip no further batch."""
        left, self.left = self.left, 0
        return f"{left:,} batches that were left are not skipped"

    def state(self) -> dict[str, Any]:
        """Return how many are left."""
        return {"left": self.left}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.left = int(state["left"])


class LowerRate(Action):
    """Multiplies the learning rate by a factor, of all ranks from the same step on.

    Args:
        optimizer: Of torch, or several.
        factor: Above 0 and below 1.
        vitals: To whom the change is explained, so that it is no alarm.
        name: Of the action.
        more: ``cool_down``, and ``at_most``, 3 by default.
    """

    agreed = True

    def __init__(
        self, optimizer: Any, factor: float = 0.5, *, vitals: Any = None, name: str = "lower_rate", **more: Any
    ) -> None:
        super().__init__(name, **{"at_most": 3, **more})
        if not 0 < factor < 1:
            raise ConfigError(f"actions: {name}: expected a factor above 0 and below 1, found {factor:g}")
        given: Sequence[Any] = optimizer if isinstance(optimizer, list | tuple) else (optimizer,)
        self.optimizers = [_unwrapped(own) for own in given]
        if any(not hasattr(own, "_optimizer_step_pre_hooks") for own in self.optimizers):
            kind = type(optimizer).__name__
            raise ConfigError(f"actions: {name}: expected an optimizer of torch, or a list of them, found {kind}")
        self.factor, self._by, self._vitals = 1.0, factor, vitals
        self._saved: dict[int, list[tuple[dict[str, Any], Any]]] = {}
        self._after_hooks: dict[int, int] = {}
        for own in self.optimizers:
            # Whoever reads the rate in a hook has to see the lowered rate: first before the step, last after it.
            own._optimizer_step_pre_hooks.move_to_end(own.register_step_pre_hook(self._before).id, last=False)  # noqa: SLF001 - torch has no `prepend`
            self._after_hooks[id(own)] = own.register_step_post_hook(self._after).id

    def perform(self, _due: Due, actions: Actions) -> str:
        """Lower it."""
        return self._change(self.factor * self._by, actions)

    def undo(self, actions: Actions) -> str:
        """Go on by the schedule's own rate."""
        return self._change(1.0, actions)

    def _change(self, factor: float, actions: Actions) -> str:
        before, self.factor = self.factor, factor
        if self._vitals is not None:
            self._vitals.explain_rate(factor / before)
        return f"from step {actions.step + 1:,} on the learning rate is {factor:g} times the schedule's"

    def _before(self, optimizer: Any, *_: object) -> None:
        self._put_back(optimizer)  # a step that raised left them lowered
        if self.factor == 1.0:
            return
        optimizer._optimizer_step_post_hooks.move_to_end(self._after_hooks[id(optimizer)])  # noqa: SLF001 - as above
        lowered: set[int] = set()
        saved = self._saved.setdefault(id(optimizer), [])
        for group in optimizer.param_groups:
            rate = group.get("lr")
            if not hasattr(rate, "mul_"):
                if rate is not None:
                    saved.append((group, rate))
                    group["lr"] = rate * self.factor
            elif id(rate) not in lowered:  # groups may share a tensor, and a graph that was captured keeps its address
                lowered.add(id(rate))
                saved.append((group, rate.detach().clone()))
                rate.detach().mul_(self.factor)

    def _after(self, optimizer: Any, *_: object) -> None:
        self._put_back(optimizer)

    def _put_back(self, optimizer: Any) -> None:
        for group, rate in self._saved.pop(id(optimizer), ()):
            if hasattr(rate, "mul_"):
                group["lr"].detach().copy_(rate)
            else:
                group["lr"] = rate

    def state(self) -> dict[str, Any]:
        """Return the factor."""
        return {"factor": self.factor}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        factor = float(state["factor"])
        if not 0 < factor <= 1:
            raise ValueError(f"factor: {factor}")
        self.factor = factor


def _unwrapped(optimizer: Any) -> Any:
    """Return the optimizer that a wrapper calls, such as accelerate's."""
    while hasattr(getattr(optimizer, "optimizer", None), "param_groups"):
        optimizer = optimizer.optimizer
    return optimizer


class Stop(Action):
    """Sets ``actions.should_stop``, on all ranks after the same step.

    Args:
        raises: Whether :class:`StopRun` is raised, too, where the step ends.
    """

    agreed = alone = True

    def __init__(self, *, raises: bool = False, name: str = "stop", **more: Any) -> None:
        super().__init__(name, **more)
        self._raises = raises

    def perform(self, due: Due, actions: Actions) -> str:
        """Ask the loop to stop."""
        actions.raises = actions.raises or self._raises
        actions.request_stop(due.asked.why or due.asked.rule or "the loop asked for it")
        return f"the run should stop after step {actions.step:,}"

    def undo(self, actions: Actions) -> str:
        """Let the loop go on."""
        actions.stop_reason = ""
        return "the run goes on"


class Pause(Action):
    """Has all ranks wait after the same step, until ``dataaudit alerts resume RUNLOG``; no collective is under way.

    Args:
        at_most: Seconds of a pause; None: without end.
        afterwards: What happens then.
        if_missing: What happens where a rank does not arrive within the agreement's timeout; it is named.
        more: ``cool_down``.
    """

    agreed = alone = True

    def __init__(
        self,
        *,
        at_most: float | None = 3_600.0,
        afterwards: Afterwards = "stop",
        if_missing: Afterwards | Literal["pause"] = "stop",
        name: str = "pause",
        cool_down: int = COOL_DOWN,
    ) -> None:
        super().__init__(name, cool_down=cool_down)
        self._seconds, self._afterwards, self._if_missing = at_most, afterwards, if_missing

    def perform(self, due: Due, actions: Actions) -> str:
        """Wait for the others, then until somebody resumes."""
        agreement, began = actions.agreement, time.monotonic()
        missing, how = due.missing, self._if_missing
        with CatchErrors() as call:
            missing = missing or agreement.meet(due.key)
        if call.error is not None or missing:
            words = missing_words(missing, agreement.timeout) if missing else _silent(call)
            how = self._afterwards if how == "pause" and not missing else how
            if how != "pause":
                return self._end(how, words, actions)
            actions.going_on(due.asked, words)
        file = actions.folder / FOLDER / PAUSED_FILE
        about = {"id": f"{due.key}-{os.urandom(4).hex()}", "step": actions.step, "missing": list(missing)}
        about = orjson.loads(agreement.settle(f"{due.key}/paused", orjson.dumps(about).decode()))
        record = {**about, "rule": due.asked.rule, "incident": due.asked.incident, "since": time.time()}
        with CatchErrors():
            write_whole(file, orjson.dumps(record, option=orjson.OPT_INDENT_2) + b"\n")
        actions.going_on(
            due.asked, f"paused; `dataaudit alerts resume {quote(str(actions.folder))} --who NAME` resumes"
        )
        recorded = began
        while (answer := self._answer(due.key, about["id"], actions)) is None:
            now = time.monotonic()
            if self._seconds is not None and now - began > self._seconds:
                over = orjson.dumps([self._afterwards, f"nobody resumed within {self._seconds:g} s"]).decode()
                agreement.settle(f"{due.key}/resume", over)
            if now - recorded > _PAUSE_RECORD:  # rows of it show that the rank is alive
                recorded = now
                actions.going_on(due.asked, f"paused for {now - began:,.0f} s")
            time.sleep(_PAUSE_LOOK)
        with CatchErrors():
            file.unlink(missing_ok=True)
        answered, words = answer
        return self._end(answered, f"paused for {time.monotonic() - began:,.1f} s; {words}", actions)

    def _answer(self, key: str, number: str, actions: Actions) -> tuple[Afterwards, str] | None:
        """Return how to go on, and why; None while nobody resumed."""
        with CatchErrors():
            answer = orjson.loads(read_safely(actions.folder / FOLDER / RESUME_FILE))
            if answer["id"] == number:
                how = "stop" if answer["stop"] else "go on"
                actions.agreement.settle(f"{key}/resume", orjson.dumps([how, f"{answer['who']} resumed"]).decode())
        with CatchErrors() as call:
            settled = actions.agreement.settled(f"{key}/resume")
        if call.error is not None:
            return self._afterwards, _silent(call)
        if settled is None:
            return None
        how, words = orjson.loads(settled)
        return how, words

    def _end(self, how: Afterwards, words: str, actions: Actions) -> str:
        if how == "stop":
            actions.request_stop(words)
        return f"{words}; {'the run should stop' if how == 'stop' else 'the run goes on'}"


def _silent(call: CatchErrors) -> str:
    return f"the store of the ranks does not answer ({call.origin})"


def resume(runlog: Path, who: str, *, stop: bool = False) -> dict[str, Any]:
    """Have a paused run go on, or stop; return the answer.

    Raises:
        ConfigError: The run is not paused, or the answer cannot be written.
    """
    folder = runlog / FOLDER
    try:
        paused = orjson.loads(read_safely(folder / PAUSED_FILE))
        number, step = paused["id"], int(paused["step"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{runlog} is not paused: {folder / PAUSED_FILE} is not there, or cannot be read") from None
    if not who.strip():
        raise ConfigError("--who: expected a name")
    answer = {"id": number, "step": step, "who": clean(who), "stop": stop}
    try:
        write_whole(folder / RESUME_FILE, orjson.dumps(answer) + b"\n")
    except OSError as error:
        raise ConfigError(f"{folder / RESUME_FILE} cannot be written: {error.strerror or error}") from None
    return answer
