"""Which layers are measured at which step: a rotation through all, closer after an alarm, slower where it costs.

*Rotation.* Layers are packed, in order, into slots that read at most an eighth of all elements each; a slot is measured
every so many steps, then the next one. A layer that is larger than an eighth is a slot of its own, and as many slots
after it are empty as bring the mean down to an eighth again. What is due follows from the step alone, so a run that
goes on measures what it would have measured.

*Budget.* What measuring costs is taken from the times of steps with and without it: each step of the rarer kind is
compared with the median of the newest of the other. One step in 16 is left bare where every step would be measured:
without it there is nothing to compare. The cadence is decided after 16, 32 and every 64 such pairs. Where the cost is
above the budget by more than chance it becomes slower. It becomes faster only where even the cost of twice as many
measurements, and its uncertainty, would be well inside the budget; each time that proves wrong it waits twice as long
before it tries again. Steps of an escalation are not counted. A run that follows its cost begins with its first step
and one in eight: the second and third measured step choose the first cadence.

*Escalation.* After an alarm all layers are measured at every step for a while. That is outside of the budget; as many
steps pass after it before the next one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self

import numpy as np

from dataaudit.base.statistics import spread

SHARE = 1 / 8
"""Of one pass over all elements, that is read in a step at most."""
BARE = 16
"""One step in so many is not measured where every step would be."""
LEAST_PAIRS = 16
"""Pairs of times before anything is decided."""
MOST_PAIRS = 64
"""Pairs of times that are kept: some 1 kB."""
START = 8
"""Steps between the first measurements of a run that follows what they cost."""
_FIRST = 2
"""Measurements after which the first cadence is chosen; the first step, which has work of its own, does not count."""
_NEAR = 8
"""Steps of the other kind, the newest, that a step is compared with."""
_ROOM = 0.7
"""Share of the budget that must not be exceeded by what is expected of a faster cadence."""
_ERRORS = 2.0
"""Standard errors that what is expected is taken to be off by."""
_SURE = 3.0
"""Standard errors by which a cost is above the budget at an early decision; at a later one, a single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Where a cadence begins, how far it may move, and what it may cost."""

    every: int
    """Steps between two slots; powers of 2, as the next two."""
    fastest: int
    slowest: int
    percent: float
    """Of the time of a step, in the mean."""


PRESETS: Final[dict[Literal["nano", "medium", "large"], Preset]] = {
    "nano": Preset(every=1, fastest=1, slowest=64, percent=3.0),
    "medium": Preset(every=4, fastest=1, slowest=256, percent=2.0),
    "large": Preset(every=16, fastest=1, slowest=1024, percent=1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """Steps at which everything is measured."""

    first: int
    last: int
    layers: None = None
    """All; a key of events and checkpoints."""

    def covers(self, step: int) -> bool:
        """Return whether a step is one of it."""
        return self.first <= step <= self.last


def rotation(elements: Sequence[int], share: float = SHARE) -> tuple[tuple[int, ...], ...]:
    """Return the slots of one round: the layers that each reads, of which some are empty."""
    room = share * sum(elements)
    slots: list[tuple[int, ...]] = []
    slot: list[int] = []
    for layer, size in enumerate(elements):
        if slot and sum(elements[number] for number in slot) + size > room:
            slots += _slots(slot, elements, room)
            slot = []
        slot.append(layer)
    return (*slots, *_slots(slot, elements, room))


class Budget:
    """Moves a cadence so that the measured cost stays below a share of the steps' time."""

    def __init__(self, preset: Preset, *, sparse: bool = False) -> None:
        bounds = (preset.fastest, preset.every, preset.slowest)
        if (
            list(bounds) != sorted(bounds)
            or any(bound < 1 or bound & (bound - 1) for bound in bounds)
            or preset.percent <= 0
        ):
            raise ValueError(f"bounds in order, powers of 2, and a positive budget expected, found {preset}")
        self.preset = preset
        self._first = _FIRST if sparse and preset.every < preset.slowest else 0
        """Measurements until the first cadence is chosen."""
        self.every = min(max(preset.every, START), preset.slowest) if self._first else preset.every
        self._near: deque[float] = deque(maxlen=_NEAR)
        """Seconds of the newest steps of the more frequent kind."""
        self._costs: deque[float] = deque(maxlen=MOST_PAIRS)
        """What measured steps took longer than bare ones, as a share of these."""
        self._pairs = 0
        """Pairs since the last decision."""
        self._patience = LEAST_PAIRS
        """Pairs before it becomes faster."""
        self._sped_up = False
        self._bound_reported = False

    def see(self, step: int, seconds: float, *, measured: bool) -> dict[str, Any] | None:
        """Take the time of a step and return what was decided, the detail of an event; mostly nothing."""
        if not 0 < seconds < math.inf:
            return None
        rare = measured == (self.every > 1)
        if not rare:
            self._near.append(seconds)
            return None
        if not self._near:
            return None
        other = float(np.median(self._near))
        bare, with_it = (other, seconds) if measured else (seconds, other)
        if self._first:
            return self._begin(step, (with_it - bare) / bare)
        self._costs.append((with_it - bare) / bare)
        self._pairs += 1
        early = self._pairs in {LEAST_PAIRS, 2 * LEAST_PAIRS}
        return self._decide(step, early=early) if early or self._pairs % MOST_PAIRS == 0 else None

    @property
    def starting(self) -> bool:
        """Whether the first cadence is not chosen yet."""
        return self._first > 0

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        return {
            "every": self.every,
            "first": self._first,
            "near": list(self._near),
            "costs": list(self._costs),
            "pairs": self._pairs,
            "patience": self._patience,
            "sped_up": self._sped_up,
            "bound_said": self._bound_reported,
        }

    def load(self, state: Mapping[str, Any]) -> Self:
        """Go on from a state, and return itself."""
        try:
            every = int(state["every"])
            if not self.preset.fastest <= every <= self.preset.slowest:
                raise ValueError(f"a cadence of {every} is out of bounds")
            self.every, self._first = every, int(state["first"])
            self._near = deque(map(float, state["near"]), _NEAR)
            self._costs = deque(map(float, state["costs"]), MOST_PAIRS)
            self._pairs, self._patience = int(state["pairs"]), int(state["patience"])
            self._sped_up, self._bound_reported = bool(state["sped_up"]), bool(state["bound_said"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no state of a budget: {error}") from None
        return self

    def _begin(self, step: int, cost: float) -> dict[str, Any] | None:
        """Take the cost of one of the first measurements, and choose the first cadence after the last of them."""
        self._first -= 1
        self._costs.append(cost)
        if self._first:
            return None
        cost, error = float(np.mean(self._costs)), float(np.ptp(self._costs)) / 2
        share, self._pairs = cost * self._measured_share(self.every), len(self._costs)
        to = self._slower(cost, self.preset.percent / 100, self.preset.every)
        return self._moved(self._decision(step, to, share, error))

    def _decide(self, step: int, *, early: bool) -> dict[str, Any] | None:
        costs = np.array(self._costs)
        middle = float(np.median(costs))
        wide = spread(costs, middle)
        cost = float(np.clip(costs, middle - 3 * wide, middle + 3 * wide).mean())
        error = 1.2533 * wide / math.sqrt(len(costs))
        limit = self.preset.percent / 100
        share = cost * self._measured_share(self.every)
        to = self.every
        if (cost - (_SURE if early else 1) * error) * self._measured_share(self.every) > limit:
            to = self._slower(cost, limit, self.every)
            if to == self.every:
                return self._at_bound(step, share, error)
        elif self._pairs >= self._patience and self.every > self.preset.fastest:
            expected = (max(cost, 0.0) + _ERRORS * error) * self._measured_share(self.every // 2)
            to = self.every // 2 if expected < _ROOM * limit else to
        if to == self.every:
            return None
        if to > self.every and self._sped_up:
            self._patience *= 2
        self._sped_up = to < self.every
        return self._moved(self._decision(step, to, share, error))

    def _moved(self, decided: dict[str, Any]) -> dict[str, Any]:
        """Go on with another cadence, from new pairs; return what was decided."""
        self.every = decided["every"]
        self._costs.clear()
        self._near.clear()
        self._pairs = 0
        self._bound_reported = False
        return decided

    def _slower(self, cost: float, limit: float, to: int) -> int:
        """Return the first cadence, from one on and each twice as slow, whose cost is within the limit."""
        while to < self.preset.slowest and cost * self._measured_share(to) > limit:
            to *= 2
        return min(to, self.preset.slowest)

    def _at_bound(self, step: int, share: float, error: float) -> dict[str, Any] | None:
        """Report once that the cost is above the budget where the cadence cannot be slower."""
        if self._bound_reported:
            return None
        self._bound_reported = True
        return {**self._decision(step, self.every, share, error), "slowest": True}

    def _measured_share(self, every: int) -> float:
        """Return the share of steps that are measured."""
        return 1 / every if every > 1 else 1 - 1 / BARE

    def _decision(self, step: int, to: int, share: float, error: float) -> dict[str, Any]:
        return {
            "what": "budget",
            "step": step,
            "every": to,
            "every_before": self.every,
            "percent": 100 * share,
            "error_percent": 100 * error * self._measured_share(self.every),
            "budget_percent": self.preset.percent,
            "pairs": self._pairs,
        }


class Cadence:
    """Rotation, budget and escalation of a run; ``state`` goes into a checkpoint."""

    def __init__(
        self,
        elements: Sequence[int],
        preset: Literal["nano", "medium", "large"] | Preset = "nano",
        *,
        adapt: bool = False,
    ) -> None:
        if not elements or min(elements) < 1:
            raise ValueError("every layer has elements, and there is at least one")
        if not isinstance(preset, Preset) and preset not in PRESETS:
            raise ValueError(f"preset: expected {', '.join(PRESETS)}, found {preset}")
        self._elements = tuple(elements)
        self._rotation = rotation(elements)
        self.budget = Budget(preset if isinstance(preset, Preset) else PRESETS[preset], sparse=adapt)
        self._escalation: Escalation | None = None

    def due(self, step: int, *, closely: bool = True) -> tuple[int, ...]:
        """Return the layers that are measured at a step: all at the first one, which counts in no cost.

        Without ``closely`` escalations are left out, as in :meth:`measures`.
        """
        if step == 1 and self.budget.starting:
            return tuple(range(len(self._elements)))
        if closely and self.closely(step):
            return tuple(range(len(self._elements)))
        return plan(step + self._ahead, self._rotation, self.budget.every)

    def measures(self, step: int, *, closely: bool = True) -> bool:
        """Return whether a step is measured at all: what costs little is then taken of all layers."""
        return (closely and self.closely(step)) or _measures(step + self._ahead, self.budget.every)

    def closely(self, step: int) -> bool:
        """Return whether a step is one of an escalation: everything is measured."""
        return self._escalation is not None and self._escalation.covers(step)

    def turn(self, step: int) -> int:
        """Return how many steps are measured before a step, to take turns by."""
        return _turn(step + self._ahead, self.budget.every)

    def escalate(self, step: int, steps: int) -> dict[str, Any] | None:
        """Measure everything after a step; return what was decided, the detail of an event, or nothing in between."""
        if steps < 1:
            raise ValueError(f"an escalation of {steps} steps cannot be")
        before = self._escalation
        if before is not None and before.first - 1 <= step <= before.last + (before.last - before.first + 1):
            return None
        self._escalation = Escalation(first=step + 1, last=step + steps)
        return {"what": "escalation", "step": step, **asdict(self._escalation)}

    def see(self, step: int, seconds: float) -> dict[str, Any] | None:
        """Take the time of a step that :meth:`due` was asked about; return what was decided."""
        if self.closely(step):
            return None
        return self.budget.see(step, seconds, measured=_measures(step + self._ahead, self.budget.every))

    @property
    def _ahead(self) -> int:
        """Steps by which measurements come earlier: at first, so that the first step is measured."""
        return self.budget.every - 1 if self.budget.starting else 0

    def state(self) -> dict[str, Any]:
        """Return all that it knows but its settings, in plain types."""
        escalation = None if self._escalation is None else asdict(self._escalation)
        return {"budget": self.budget.state(), "escalation": escalation}

    def load(self, state: Mapping[str, Any]) -> Self:
        """Go on from a state, and return itself."""
        try:
            self.budget.load(state["budget"])
            escalation = state["escalation"]
            if escalation is not None:
                escalation = Escalation(first=escalation["first"], last=escalation["last"])
            self._escalation = escalation
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no state of a cadence: {error}") from None
        return self


def _measures(step: int, every: int) -> bool:
    return step % BARE != 0 if every == 1 else step % every == 0


def _turn(step: int, every: int) -> int:
    return step - step // BARE if every == 1 else step // every


def plan(step: int, slots: Sequence[tuple[int, ...]], every: int) -> tuple[int, ...]:
    """Return which layers have their turn at a step, from 1; none: it is a bare one."""
    return slots[_turn(step, every) % len(slots)] if _measures(step, every) else ()


def _slots(slot: Sequence[int], elements: Sequence[int], room: float) -> list[tuple[int, ...]]:
    """Return a slot, and as many empty ones as bring it down to what may be read in a step."""
    size = sum(elements[number] for number in slot)
    return [tuple(slot), *[()] * (math.ceil(size / room * (1 - 1e-12)) - 1)]
