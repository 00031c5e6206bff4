"""What a loop's optimizer does, step by step: learning rates, clipping, mixed precision, skipped updates.

It is seen through hooks of the optimizer and read from the scaler's own tensors; nothing is computed twice, and nothing
waits for a device. That gradients were unscaled before their norm was taken is known where the loop clips through
:meth:`OptimizerWatch.clip_grad_norm_`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dataaudit.base.async_copy import AsyncCopy, scalar
from dataaudit.base.errors import CatchErrors, ConfigError

if TYPE_CHECKING:
    import torch

STATE_EVERY = 16
"""Steps between two checks of the optimizer's state."""

Numbers = dict[str, float | AsyncCopy]


class OptimizerWatch:
    """Follows the optimizers of a loop, or what wraps them, its ``GradScaler`` and its schedule."""

    def __init__(self, optimizer: Any = None, scaler: Any = None, scheduler: Any = None) -> None:
        self.optimizers = _optimizers(optimizer)
        self.checks_state = True
        """Whether to check the optimizer's state; not where vitals do."""
        self._scaler, self._scheduler = scaler, scheduler
        self._rates: Numbers = {}
        self._groups = 0
        self._applied = False
        self._found_inf: list[float | AsyncCopy] = []
        self._norm: Any = None
        self._max_norm: float | None = None
        self._logged_max_norm: float | None = None
        self._unread: set[str] = set()
        """Numbers that were none, which an event has reported."""
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._hooks: list[Any] = []
        if self.optimizers:
            from dataaudit.vitals.hooks import Hook

            self._hooks = [item.register_step_pre_hook(Hook(self._before, self._failed)) for item in self.optimizers]
            self._hooks += [item.register_step_post_hook(Hook(self._after, self._failed)) for item in self.optimizers]

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def clip_grad_norm_(self, parameters: Any, max_norm: float, **how: Any) -> torch.Tensor:
        """Clip as ``torch.nn.utils.clip_grad_norm_`` does, and keep the norm and whether gradients were unscaled."""
        import torch

        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        self.norm_is_taken(max_norm)
        norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm, **how)
        self._norm = norm
        return norm

    def norm_is_taken(self, max_norm: float | None, norm: Any = None) -> None:
        """Mark that the norm of the gradients is taken now, and to what they are clipped."""
        self._norm, self._max_norm = norm, max_norm
        stages = _stages(self._scaler, self.optimizers)
        if scaled := [stage for stage in stages if stage != "UNSCALED"]:
            self._events.append(("clip_before_unscale", {"stage": scaled[0]}))

    def end_step(self, step: int, given: Mapping[str, Any]) -> tuple[Numbers, list[tuple[str, dict[str, Any]]]]:
        """Return the numbers of a step and what is wrong with it."""
        numbers: Numbers = {}
        if "grad_global_norm" not in given:
            self._read(numbers, "grad_global_norm", self._norm)
        if self._max_norm != self._logged_max_norm:
            self._read(numbers, "grad_max_norm", self._max_norm)
            self._logged_max_norm = self._max_norm
        if "learning_rate" not in given:
            numbers |= self._rates
        if self.optimizers:
            numbers |= self._of_state(step)
        self._read(numbers, "loss_scale", getattr(self._scaler, "_scale", None))
        events, self._events = self._events, []
        self._rates, self._found_inf, self._applied, self._norm = {}, [], False, None
        return numbers, events

    def state(self) -> dict[str, Any]:
        """Return where the schedule stands."""
        at = getattr(self._scheduler, "last_epoch", None)
        return {"schedule": int(at) if isinstance(at, int) else None}

    def _of_state(self, step: int) -> Numbers:
        """Return whether the update was skipped, and at some steps whether the optimizer's state is finite."""
        numbers: Numbers = {}
        if not self._applied:
            numbers["skipped_updates"] = 1.0
        elif self._found_inf:
            numbers["skipped_updates"] = self._found_inf[0]
        finite = self._state_finite(step) if self.checks_state and step % STATE_EVERY == 0 else None
        return numbers if finite is None else {**numbers, "opt_state_finite": finite}

    def _before(self, optimizer: Any, *_: Any) -> None:
        if optimizer is self.optimizers[0]:
            self._rates, self._groups = {}, 0
        for group in optimizer.param_groups:  # an optimizer that chooses its rate by itself has none in its groups
            name = f"learning_rate.{self._groups}" if self._groups else "learning_rate"
            self._read(self._rates, name, group.get("lr"))
            self._groups += 1

    def _after(self, optimizer: Any, *_: Any) -> None:
        self._applied = True
        skipped: Numbers = {}
        self._read(skipped, "skipped_updates", getattr(optimizer, "found_inf", None))  # of fused ones: on the device
        self._found_inf += skipped.values()

    def _read(self, numbers: Numbers, name: str, value: Any) -> None:
        """Add a number where there is one; what is none costs itself, and is an event the first time."""
        if value is None:
            return
        with CatchErrors() as call:
            numbers[name] = scalar(value)
        if call.error is not None:
            self._not_seen(name, f"{type(value).__name__} is no number ({call.kind})")

    def _failed(self, why: str) -> None:
        self._not_seen("optimizer", why)

    def _not_seen(self, what: str, why: str) -> None:
        """Report the first time that something has no number."""
        if what not in self._unread:
            self._unread.add(what)
            self._events.append(("not_seen", {"what": what, "why": why}))

    def _state_finite(self, step: int) -> AsyncCopy | None:
        from dataaudit.vitals.finite import state_finite

        with CatchErrors() as call:
            shares = []
            for optimizer in self.optimizers:
                every = (item for group in optimizer.param_groups for item in group["params"])
                own = [item for item in every if not hasattr(item, "to_local")]
                if (finite := state_finite(optimizer, own, step // STATE_EVERY)) is not None:
                    shares.append((finite, len(own)))
            number = sum(own for _, own in shares)
            return AsyncCopy(sum(finite * own for finite, own in shares) / number) if shares else None
        self.checks_state = False
        self._not_seen("opt_state_finite", f"{call.kind} where it was read")
        return None


def _optimizers(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    import torch

    optimizers = []
    for item in given if isinstance(given, list | tuple) else (given,):
        inner = item
        while not isinstance(inner, torch.optim.Optimizer) or _is_wrapper(inner):
            inner = getattr(inner, "optimizer", None)
            if inner is None:
                raise ConfigError(f"optimizer: expected one of torch's, or a list of them, found {type(item).__name__}")
        optimizers.append(inner)
    return tuple(optimizers)


def _is_wrapper(item: Any) -> bool:
    """Return whether a wrapper, accelerate's for one, calls the optimizer that it holds."""
    return hasattr(getattr(item, "optimizer", None), "param_groups")


def _stages(scaler: Any, optimizers: Iterable[Any]) -> list[str]:
    """Return at which stage a scaler is with each optimizer; none where there is nothing to unscale, or not known."""
    if scaler is None or not scaler.is_enabled():
        return []
    states = getattr(scaler, "_per_optimizer_states", {})
    stages = [states[id(optimizer)]["stage"] for optimizer in optimizers if id(optimizer) in states]
    if len(stages) < len(list(optimizers)):
        stages += ["READY"]
    return [getattr(stage, "name", str(stage)) for stage in stages]


RECENT = 16
"""Steps whose changes of the rate stand for the schedule where it is not handed over."""
_TIMES = 3.0
_SAME = 1e-6


class RateWatch:
    """Checks whether the learning rate goes on where the checkpoint left it.

    The rate of the first step after a checkpoint is explained when the schedule that was handed over stands where the
    checkpoint's stood. Without one it is when it differs from the last rate, times the factors that actions have set
    since, by no more than three times what neighbouring steps among the last :data:`RECENT` differed by.
    """

    def __init__(
        self,
        state: Mapping[str, Any] | None = None,
        schedule: int | None = None,
        factor: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self.rates: list[float] = [] if state is None else [float(item) for item in state["rates"]]
        self._before = list(self.rates)
        self._schedule = None if state is None else state["schedule"]
        self._now = schedule
        self._open = bool(self._before)
        self._factor, self._factor_before = factor, 1.0 if state is None else float(state["factor"])

    def see(self, rate: float) -> dict[str, Any] | None:
        """Take the rate of a step; return the detail of an event where it jumps."""
        jump = self._jump(rate) if self._open else None
        self._open = False
        self.rates = [*self.rates[-RECENT:], rate]
        return jump

    def _jump(self, rate: float) -> dict[str, Any] | None:
        times = self._factor() / self._factor_before  # an action lowered it, or does no longer
        before = self._before[-1] * times
        usual = float(np.abs(np.diff(self._before)).max(initial=0.0))
        known = self._schedule is not None and self._now is not None
        if not known and len(self._before) < 2:  # no two neighbours show what the schedule does in a step
            return None
        smooth = abs(rate - before) <= _TIMES * usual + _SAME * max(abs(before), abs(rate))
        if smooth or (known and self._schedule == self._now):
            return None
        detail: dict[str, Any] = {"before": before, "after": rate, "usual_change": usual}
        if known:
            detail |= {"schedule_before": self._schedule, "schedule_now": self._now}
        return detail


def jump_line(detail: Mapping[str, Any]) -> str:
    """Return an event of a jump in a sentence."""
    words = f"the learning rate is {detail['after']:.4g}, before the checkpoint it was {detail['before']:.4g}"
    if "schedule_now" in detail:
        return f"{words}: the schedule stands at {detail['schedule_now']:,}, it stood at {detail['schedule_before']:,}"
    return f"{words}, and changed by {detail['usual_change']:.2g} a step at most"


class NotFinite:
    """Reports once, until it is over, a number of the optimizer that is not finite, but no overflow of the scaler."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def see(self, values: Mapping[str, float]) -> list[dict[str, Any]]:
        """Return the details of events."""
        bad = {
            "grad_global_norm": not math.isfinite(values.get("grad_global_norm", 0.0))
            and not values.get("skipped_updates"),
            "opt_state_finite": values.get("opt_state_finite", 1.0) < 1,
        }
        known = {"grad_global_norm", "opt_state_finite"} & values.keys()
        new = [name for name, wrong in bad.items() if wrong and name not in self._reported]
        self._reported = {name for name in self._reported | set(new) if bad[name] or name not in known}
        return [{"metric": name, "layer": -1, "head": -1, "stat": "value"} for name in new]
