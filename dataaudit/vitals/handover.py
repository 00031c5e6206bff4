"""Handing over what steps measured: in few copies, without waiting, to alarms and then to sinks."""

from __future__ import annotations

import itertools
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from dataaudit.base.async_copy import AsyncCopy, sent
from dataaudit.vitals.alarms import Alarms
from dataaudit.vitals.config import VitalsConfig
from dataaudit.vitals.finite import first_bad, first_bad_gradient
from dataaudit.vitals.incidents import kind_of
from dataaudit.vitals.measurement import Arrived, Measurement, Sources
from dataaudit.vitals.metric import Column
from dataaudit.vitals.sinks import Reporter
from dataaudit.vitals.summary import covered, in_a_line

_LOG = logging.getLogger("dataaudit")
_NOT_CALLED = "its module called none of the attention functions that are watched"
_NO_TENSOR = "its module did not run, or what it returns is no tensor and begins with none"
_COMPILED = "; or a compiled model ran before its first step: run it within `with vitals.step():` first"


@dataclass(slots=True)
class _Seen:
    """What the host knows of a step."""

    step: int
    sites: np.ndarray
    """int64[sites]: forward passes that were measured at each."""
    counted: np.ndarray
    """int64[sites]: elements or rows that shares of each are of."""
    passes: int
    """Backward passes that were told apart."""
    tokens: int


class Handover:
    """Takes each step's numbers on the device, and hands them over when they have arrived on the host.

    Attributes:
        ring: Float32[interval, width]: vectors of steps, on the device.
        parts: Of a step: ``values`` of its columns; which layers' gradient is ``bad``, not finite; of the ``loop``
            the learning rate, the gradient's norm and its scale; of backward ``passes``, whether each one's gradient is
            finite; of micro-``batches``, and of ``sites`` of activations, how many numbers are.
    """

    def __init__(
        self,
        reporter: Reporter,
        measurements: Sequence[tuple[Measurement, list[Column]]],
        sources: Sources,
        config: VitalsConfig,
        alarms: Alarms,
        escalate: Callable[[int], object],
    ) -> None:
        columns = self.columns = [column for _, own in measurements for column in own]
        ends = itertools.accumulate(len(own) for _, own in measurements)
        self._measurements = [
            (item, slice(end - len(own), end)) for (item, own), end in zip(measurements, ends, strict=True)
        ]
        self._config = config
        most, sites = config.micro_batches, len(sources.hooks.outputs)
        bad = len(sources.weights.groups) + 1
        self.parts = _laid_out(values=len(columns), bad=bad, loop=3, passes=most, batches=most, sites=sites)
        self._reporter, self._hooks, self._weights = reporter, sources.hooks, sources.weights
        self._micro_batches = sources.micro_batches
        self._alarms, self._escalate = alarms, escalate
        self._sites = np.array([column.site for column in columns], np.int64)
        self._counted = np.array([column.counted for column in columns], np.int64)
        self._of = np.array([column.of or math.nan for column in columns])
        device = sources.hooks.activations.device
        self.ring = torch.full((config.interval, self.parts["sites"].stop), torch.nan, device=device)
        self._seen: list[_Seen] = []
        self._batches: deque[tuple[AsyncCopy, list[_Seen]]] = deque()
        self._numbers: deque[tuple[int, list[Column], AsyncCopy]] = deque()
        self._tables: deque[tuple[int, Sequence[Column], AsyncCopy]] = deque()
        self._silent: set[tuple[int, str]] = set()
        """Sites of which nothing is seen, and why, where that was reported."""

    @property
    def row(self) -> torch.Tensor:
        """Where the numbers of the next step are written, float32[width]."""
        return self.ring[len(self._seen)]

    def add(self, step: int) -> None:
        """Write what the host needs beside the numbers of a step, whose row is written."""
        recorder, parts, row, batches = self._hooks.recorder, self.parts, self.row, self._micro_batches
        row[parts["bad"]].copy_(self._weights.bad)
        rate, norm, scale = row[parts["loop"]]
        now = self._weights.rate
        rate.copy_(sent(now, rate.device)) if isinstance(now, torch.Tensor) else rate.fill_(now)
        for slot, value in (
            (norm, None if batches is None else batches.norm),
            (scale, None if batches is None else batches.loss_scale),
        ):
            slot.fill_(torch.nan) if value is None else slot.copy_(value)
        row[parts["passes"]].copy_(torch.zeros_like(row[parts["passes"]]) if batches is None else batches.finite)
        finite = self._hooks.activations[..., 0].isfinite()
        row[parts["batches"]].copy_(finite.sum(0))
        row[parts["sites"]].copy_(finite.sum(1))
        passes = 0 if batches is None else batches.passes
        self._seen.append(_Seen(step, np.array(recorder.seen), np.array(recorder.counted), passes, recorder.tokens))

    def add_numbers(self, step: int, numbers: Mapping[Column, float | torch.Tensor]) -> None:
        """Send the loop's own numbers of a step to the host."""
        values = torch.empty(len(numbers), device=self.ring.device)
        for slot, number in zip(values, numbers.values(), strict=True):
            if isinstance(number, torch.Tensor):
                slot.copy_(sent(number.detach().reshape(()), slot.device))
            else:
                slot.fill_(number)  # a copy from the host would be waited for
        self._numbers.append((step, list(numbers), AsyncCopy(values)))

    def add_table(self, step: int, columns: Sequence[Column], values: torch.Tensor) -> None:
        """Send values of a step to the host that stand in no vector, and are not judged."""
        self._tables.append((step, columns, AsyncCopy(values)))

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
        while self._tables and (wait or self._tables[0][2].ready()):
            step, own, table = self._tables.popleft()
            rows = np.flatnonzero(table.numpy())
            self._reporter.values(step, [own[at] for at in rows.tolist()], table.numpy()[rows])
        while self._batches and (wait or self._batches[0][0].ready()):
            table, steps = self._batches.popleft()
            for seen, values in zip(steps, table.numpy(), strict=True):
                self._hand_over(seen, values)

    def alarm(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Write an alarm with its incident, and report a new or graver one on the terminal."""
        for joined, opens in self._alarms.incidents.join(step, {"first_step": step, **detail}):
            self._raised(step, kind_of(joined, kind), {**joined, "opens": opens})

    def report_unseen(self, step: int) -> None:
        """Report once of each part that nothing was measured where it should have been, and why."""
        recorder, sites, reported = self._hooks.recorder, self._hooks.sites, self._reporter.reported
        reasons = dict(recorder.why)
        for number, failures in recorder.failures.items():
            self._reporter.failures[f"{sites[number].what} of layer {sites[number].layer}"] = failures
        first = self._weights.updated and "looked" not in reported
        if any(recorder.on) and (any(recorder.seen) or first):
            reported.add("looked")
            for site in sites:
                if recorder.on[site.number] and not recorder.seen[site.number] and site.part != "units":
                    reasons[site.number] = (_NOT_CALLED if site.what == "attention" else _NO_TENSOR) + _COMPILED
        reasons = {number: why for number, why in reasons.items() if (number, why) not in self._silent}
        self._silent |= set(reasons.items())
        layers: dict[tuple[str, str], list[int]] = {}
        for number, why in sorted(reasons.items()):
            layers.setdefault((sites[number].what, why), []).append(sites[number].layer)
        for (what, why), own in layers.items():
            self._reporter.event(step, "not_seen", {"what": what, "layers": own, "why": why})

    def _copy(self) -> None:
        """Send the values of the steps so far to the host."""
        if self._seen:
            self._batches.append((AsyncCopy(self.ring[: len(self._seen)]), self._seen))
            self._seen = []

    def _raised(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        waits = detail.get("rule") == "drift" and not detail.get("begins")
        if (detail["severity"] < 3 or waits) and self._config.escalate:
            self._escalate(self._config.escalate)
        if detail["opens"]:
            _LOG.warning("step %d: vitals, %s", step, in_a_line(detail))
        self._reporter.event(step, kind, {name: value for name, value in detail.items() if name != "opens"})

    def _not_finite(self, step: int, what: str, detail: Mapping[str, Any], *, known: bool) -> None:
        """Report once, until it is over, that something is not finite; then measure everything, and hand over now."""
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
        activations = first_bad([self.columns[at] for at in np.flatnonzero(seen & ~known).tolist()])
        gradient = first_bad_gradient([layer for layer, _ in self._weights.groups], bad, ends=self._weights.ends)
        for what, detail, measured in (
            ("activations", activations, seen.any()),
            ("gradients", gradient, "weights" in self._config.measure),
        ):
            if detail is not None and what == "gradients" and activations is not None:
                self._reporter.reported.add(what)  # they follow from activations
            elif measured:
                self._not_finite(step, what, {**(detail or {}), **which}, known=detail is None)

    def _hand_over(self, seen: _Seen, row: np.ndarray) -> None:
        step, most = seen.step, self._config.micro_batches
        parts = {name: row[own] for name, own in self.parts.items()}
        values, bad = parts["values"].astype(np.float64), parts["bad"] > 0
        passes = seen.sites[: len(self._hooks.outputs)]
        spoilt = np.append(np.zeros(len(seen.sites), bool), False)
        spoilt[: len(passes)] = parts["sites"] < np.minimum(passes, most)
        values[spoilt[self._sites]] = math.nan
        absent = np.isneginf(values)
        values[absent] = math.nan
        finite = np.isfinite(values) | absent
        which = _first_spoilt(parts, passes, seen.passes, most)
        self._layers_not_finite(step, np.append(seen.sites > 0, False)[self._sites], finite, bad, which)
        rate, norm, scale = map(float, parts["loop"])
        event = partial(self._reporter.event, step)
        context = Arrived(gradient_norm=norm, loss_scale=scale, event=event, columns=self.columns, values=values)
        for item, own in self._measurements:
            item.arrived(values[own], context)
        known = np.isfinite(values)
        steady = self._config.steady is not None and self._config.steady[0] <= step <= self._config.steady[1]
        counted = seen.counted * np.minimum(seen.sites, most) / np.maximum(seen.sites, 1)
        trials = np.where(self._counted >= 0, np.append(counted, 0.0)[self._counted], self._of)
        tokens = float(seen.tokens or math.nan)
        for finding in self._alarms.see(step, values, rate=rate, tokens=tokens, trials=trials, steady=steady):
            if finding.kind == "coverage":
                _LOG.warning("step %d: vitals, %s", step, covered(finding.detail["metrics"]))
                self._reporter.event(step, finding.kind, finding.detail)
            else:
                self._raised(step, finding.kind, finding.detail)
        self._reporter.values(step, [self.columns[at] for at in np.flatnonzero(known).tolist()], values[known])


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
