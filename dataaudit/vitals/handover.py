"""Handing over what steps measured: in few copies, without waiting, to alarms and then to sinks."""

from __future__ import annotations

import itertools
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dataaudit.base.async_copy import Pending
from dataaudit.vitals.alarms import Alarms
from dataaudit.vitals.always import SpikeScore
from dataaudit.vitals.columns import OFF, Column
from dataaudit.vitals.config import VitalsConfig
from dataaudit.vitals.finite import first_bad, first_bad_gradient
from dataaudit.vitals.sinks import Reporter
from dataaudit.vitals.summary import covered, in_a_line
from dataaudit.vitals.watching import Taps
from dataaudit.vitals.weights import Weights

_LOG = logging.getLogger("dataaudit")
_NOT_CALLED = "its module called none of the attention functions that are watched"
_NO_TENSOR = "its module did not run, or what it returns is no tensor and begins with none"
_COMPILED = "; or a compiled model ran before its first step: run it within `with vitals.step():` first"


@dataclass(slots=True)
class _Seen:
    """What the host knows of a step."""

    step: int
    places: np.ndarray
    """int64[places]: forward passes that each tap measured."""
    counted: np.ndarray
    """int64[places]: elements or rows that shares of each are of."""
    passes: int
    """Backward passes that were told apart."""
    tokens: int


class Handover:
    """Takes each step's numbers on the device, and hands them over when they have arrived on the host.

    Args:
        reporter: Of sinks.
        columns: Which number stands where in a step's vector.
        taps: Whose places the numbers come from.
        weights: Whose layers the gradients are of.
        alarms: That look at the values.
        config: How many steps are copied together, and what is looked at.
        escalate: Called with a number of steps, after an alarm.

    Attributes:
        ring: Float32[interval, width]: vectors of steps, on the device.
        parts: Of a step: its columns; whose gradient is not finite; learning rate, gradient's norm and its scale; of
            each backward pass, whether its gradient is finite; of each micro-batch, and of each place of activations,
            how many numbers are.
    """

    def __init__(
        self,
        reporter: Reporter,
        columns: list[Column],
        taps: Taps,
        weights: Weights,
        alarms: Alarms,
        config: VitalsConfig,
        escalate: Callable[[int], None],
    ) -> None:
        self.columns = columns
        most, places = config.micro_batches, len(taps.places)
        bad = len(weights.groups) + 1
        self.parts = _laid_out(values=len(columns), bad=bad, loop=3, passes=most, batches=most, places=places)
        self._reporter, self._taps, self._weights = reporter, taps, weights
        self._alarms, self._config, self._escalate = alarms, config, escalate
        self._places = np.array([column.place for column in columns], np.int64)
        self._counted = np.array([column.counted for column in columns], np.int64)
        self._of = np.array([column.of or math.nan for column in columns])
        self._off = np.array([column.stat == OFF for column in columns], bool)
        self._spikes = SpikeScore()
        device = taps.activations.device
        self.ring = torch.full((config.interval, self.parts["places"].stop), torch.nan, device=device)
        self._seen: list[_Seen] = []
        self._batches: deque[tuple[Pending, list[_Seen]]] = deque()
        self._numbers: deque[tuple[int, list[Column], Pending]] = deque()
        self._silent: set[tuple[int, str]] = set()
        """Places of which nothing is seen, and why, where that was reported."""

    @property
    def row(self) -> torch.Tensor:
        """Where the numbers of the next step are written, float32[width]."""
        return self.ring[len(self._seen)]

    def add(self, step: int, passes: int) -> None:
        """Take that a step's row is written, and how many backward passes were told apart."""
        watch = self._taps.watch
        self._seen.append(_Seen(step, np.array(watch.seen), np.array(watch.counted), passes, watch.tokens))

    def add_numbers(self, step: int, numbers: Mapping[Column, float | torch.Tensor]) -> None:
        """Send the loop's own numbers of a step to the host."""
        values = torch.empty(len(numbers), device=self.ring.device)
        for slot, number in zip(values, numbers.values(), strict=True):
            if isinstance(number, torch.Tensor):
                slot.copy_(number.detach().reshape(()), non_blocking=True)
            else:
                slot.fill_(number)  # a copy from the host would be waited for
        self._numbers.append((step, list(numbers), Pending(values)))

    def finish(self) -> None:
        """Hand over everything; this waits for the device."""
        self._copy()
        self.deliver(wait=True)

    def deliver(self, *, wait: bool) -> None:
        """Hand over what has arrived."""
        if len(self._seen) == self._config.interval:
            self._copy()
        while self._numbers and (wait or self._numbers[0][2].ready()):
            step, columns, numbers = self._numbers.popleft()
            values = numbers.numpy()
            for column, value in zip(columns, values, strict=True):
                detail = {"metric": column.metric, "layer": -1, "head": -1, "stat": column.stat}
                self._not_finite(step, f"number {column.metric}", detail, known=math.isfinite(value))
            self._reporter.values(step, columns, values)
        while self._batches and (wait or self._batches[0][0].ready()):
            table, steps = self._batches.popleft()
            for seen, values in zip(steps, table.numpy(), strict=True):
                self._hand_over(seen, values)

    def alarm(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Write an alarm with its incident, and report a new or graver one on the terminal."""
        joined, opens = self._alarms.join(step, {"first_step": step, **detail})
        self._raised(step, kind, {**joined, "opens": opens})

    def report_unseen(self, step: int) -> None:
        """Report once of each part that nothing of it was seen where it was looked at, and why."""
        watch, taps, reported = self._taps.watch, self._taps, self._reporter.reported
        reasons = dict(watch.why)
        for place, failures in watch.failures.items():
            what, layer = taps.about(place)
            self._reporter.failures[f"{what} of layer {layer}"] = failures
        first = self._weights.updated and "looked" not in reported
        if any(watch.on) and (any(watch.seen) or first):
            reported.add("looked")
            for place in range(len(watch.on)):
                what, _ = taps.about(place)
                if watch.on[place] and not watch.seen[place] and what != "units":
                    reasons[place] = (_NOT_CALLED if what == "attention" else _NO_TENSOR) + _COMPILED
        reasons = {place: why for place, why in reasons.items() if (place, why) not in self._silent}
        self._silent |= set(reasons.items())
        layers: dict[tuple[str, str], list[int]] = {}
        for place, why in sorted(reasons.items()):
            what, layer = taps.about(place)
            layers.setdefault((what, why), []).append(layer)
        for (what, why), own in layers.items():
            self._reporter.event(step, "not_seen", {"what": what, "layers": own, "why": why})

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs, in plain types."""
        spikes = [self._spikes.norms, self._spikes.average, self._spikes.scale]
        return {"told": sorted(self._reporter.reported), "spikes": spikes}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._reporter.reported = set(state["told"])
        self._spikes.norms, self._spikes.average, self._spikes.scale = state["spikes"]

    def _copy(self) -> None:
        """Send the values of the steps so far to the host."""
        if self._seen:
            self._batches.append((Pending(self.ring[: len(self._seen)]), self._seen))
            self._seen = []

    def _raised(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        if detail["severity"] < 3 and self._config.escalate:
            self._escalate(self._config.escalate)
        if detail["opens"]:
            _LOG.warning("step %d: vitals, %s", step, in_a_line(detail))
        self._reporter.event(step, kind, {name: value for name, value in detail.items() if name != "opens"})

    def _not_finite(self, step: int, what: str, detail: Mapping[str, Any], *, known: bool) -> None:
        """Report once, until it is over, that something is not finite; then look at everything, and do not wait."""
        reported = self._reporter.reported
        if known:
            reported.discard(what)
        elif what not in reported:
            reported.add(what)
            self.alarm(step, "nan_inf", {**detail, "rule": "not_finite"})
            self._copy()

    def _layers_not_finite(
        self, step: int, seen: np.ndarray, known: np.ndarray, bad: np.ndarray, which: Mapping[str, int]
    ) -> None:
        """Report which layer was first not finite, and in which micro-batch: its activations, or else its gradient."""
        activations = first_bad([self.columns[place] for place in np.flatnonzero(seen & ~known).tolist()])
        gradient = first_bad_gradient([layer for layer, _ in self._weights.groups], bad, ends=self._weights.ends)
        for what, detail, looked in (
            ("activations", activations, seen.any()),
            ("gradients", gradient, "weights" in self._config.measure),
        ):
            if detail is not None and what == "gradients" and activations is not None:
                self._reporter.reported.add(what)  # they follow from activations
            elif looked:
                self._not_finite(step, what, {**(detail or {}), **which}, known=detail is None)

    def _hand_over(self, seen: _Seen, row: np.ndarray) -> None:
        step, most = seen.step, self._config.micro_batches
        parts = {name: row[own] for name, own in self.parts.items()}
        values, bad = parts["values"].astype(np.float64), parts["bad"] > 0
        passes = seen.places[: len(self._taps.places)]
        spoilt = np.append(np.zeros(len(seen.places), bool), False)
        spoilt[: len(passes)] = parts["places"] < np.minimum(passes, most)
        values[spoilt[self._places]] = math.nan
        rate, norm, scale = map(float, parts["loop"])
        values[-1] = self._spikes.see(norm, scale)
        absent = np.isneginf(values)
        values[absent] = math.nan
        known = np.isfinite(values)
        which = _first_spoilt(parts, passes, seen.passes, most)
        self._layers_not_finite(step, np.append(seen.places > 0, False)[self._places], known | absent, bad, which)
        for place in np.flatnonzero(self._off & (values > 0)).tolist():
            column = self.columns[place]
            self._taps.watch.refused.add(column.place)
            why = "further from sampled rows than bounds allow"
            detail = {"layer": column.layer, "what": "all rows of attention", "why": why}
            self._reporter.event(step, "refused", detail)
        steady = self._config.steady is not None and self._config.steady[0] <= step <= self._config.steady[1]
        kept = seen.counted * np.minimum(seen.places, most) / np.maximum(seen.places, 1)
        trials = np.where(self._counted >= 0, np.append(kept, 0.0)[self._counted], self._of)
        tokens = float(seen.tokens or math.nan)
        for found in self._alarms.see(step, values, rate=rate, tokens=tokens, trials=trials, steady=steady):
            if found.kind == "coverage":
                _LOG.warning("step %d: vitals, %s", step, covered(found.detail["metrics"]))
                self._reporter.event(step, found.kind, found.detail)
            else:
                self._raised(step, found.kind, found.detail)
        self._reporter.values(step, [self.columns[place] for place in np.flatnonzero(known).tolist()], values[known])


def _laid_out(**sizes: int) -> dict[str, slice]:
    """Return where parts of some sizes stand in a vector, one after another."""
    ends = [0, *itertools.accumulate(sizes.values())]
    return {name: slice(*ends[at : at + 2]) for at, name in enumerate(sizes)}


def _first_spoilt(parts: Mapping[str, np.ndarray], passes: np.ndarray, backward: int, most: int) -> dict[str, int]:
    """Return the first micro-batch, from 0, whose activations or gradient are not finite; None if unknown."""
    if passes.max(initial=0) <= most:
        expected = (passes[:, None] > np.arange(most)).sum(0)
        if len(own := np.flatnonzero(parts["batches"] < expected)):
            return {"micro_batch": int(own[0])}
    own = np.flatnonzero(parts["passes"][:backward] == 0)
    return {"micro_batch": int(own[0])} if len(own) else {}
