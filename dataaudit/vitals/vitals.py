"""``Vitals``: what goes on in a model while it trains, layer by layer and head by head.

::

    vitals = Vitals(model, optimizer, VitalsConfig(preset="medium"), sinks=[monitor])
    print(vitals)  # what was found, and what it will not see
    model = torch.compile(model)
    for batch in loader:
        with vitals.step():
            loss = ...
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

Losses, gradients, weights and the states of random generators are the same with it and without it, to the bit; nothing
waits for a device.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dataaudit.errors import ConfigError
from dataaudit.guarded import Guarded
from dataaudit.pending import Laps, Pending
from dataaudit.runlog.writer import Columns
from dataaudit.vitals import micro_batches, weights
from dataaudit.vitals.alarms import Alarms
from dataaudit.vitals.always import SpikeScore
from dataaudit.vitals.baseline import Key
from dataaudit.vitals.cadence import Cadence
from dataaudit.vitals.columns import OFF, Column, DeadUnits, tap_columns, tap_values
from dataaudit.vitals.config import VitalsConfig
from dataaudit.vitals.finite import first_bad, first_bad_gradient
from dataaudit.vitals.hooks import Mark
from dataaudit.vitals.micro_batches import MicroBatches
from dataaudit.vitals.replicas import loss_dispersion, parameter_checksum, ranks_that_differ
from dataaudit.vitals.sinks import Sink
from dataaudit.vitals.structure import find, is_compiled
from dataaudit.vitals.summary import (
    METRICS,
    covered,
    estimators,
    in_a_line,
    in_words,
    states_of_metrics,
    what_alarms,
    what_is_found,
)
from dataaudit.vitals.tying import Tying
from dataaudit.vitals.watching import Taps
from dataaudit.vitals.weights import FROZEN_AFTER, Weights

_LOG = logging.getLogger("dataaudit")
_LOOKED_AT = "_dataaudit_vitals"
_NOT_CALLED = "its module called none of the attention functions that are watched"
_NO_TENSOR = "its module did not run, or what it returns is no tensor and begins with none"
_COMPILED = "; or a compiled model ran before its first step: run it within `with vitals.step():` first"
_LOOKS_FOR_NEW = 16
"""Steps between two looks at which parameters train."""
_STEP_METRICS = ("nan_inf_events", "skipped_updates")


@dataclass(slots=True)
class _Batch:
    """Values of some steps, on their way to the host."""

    values: Pending
    steps: list[int]
    seen: list[_Seen]


@dataclass(slots=True)
class _Seen:
    """What the host knows of a step."""

    places: np.ndarray
    """int64[places]: forward passes that each tap measured."""
    passes: int
    """Backward passes that were told apart."""
    tokens: int


class Vitals:
    """Looks at a model while it trains.

    Args:
        model: Not compiled yet; compile it afterwards.
        optimizer: Whose steps update it, or several (Muon and AdamW); None: weights and updates are not looked at.
        config: What is measured, how often and how closely.
        sinks: Where values go: a :class:`dataaudit.training.TrainingMonitor`, a sink of :mod:`dataaudit.vitals.sinks`.

    Raises:
        ConfigError: The model is compiled already, has no layers that are found, or is looked at already.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
        config: VitalsConfig | None = None,
        sinks: Sequence[Sink] = (),
    ) -> None:
        if is_compiled(model):
            raise ConfigError(
                "vitals: the model is compiled already, and would be measured without what its layers return",
                "Make Vitals first, then torch.compile(model).",
            )
        optimizers = _optimizers(optimizer)
        if any(one.is_meta or is_lazy(one) for one in model.parameters()):
            raise ConfigError(
                "vitals: the model has parameters without values: on the device meta, or of a lazy module",
                "Make Vitals after they have values: after model.to_empty(...) and loading, or after a first batch.",
            )
        if getattr(model, _LOOKED_AT, None) is not None:
            raise ConfigError("vitals: the model is looked at already", "Close the other Vitals first.")
        self.config = config or VitalsConfig()
        self.structure = find(model, self.config.mapping)
        self.steps = self.config.first_step - 1
        """Steps that are done."""
        self.lost = 0
        """Times that a sink failed to take what it was given."""
        self.failures: Counter[str] = Counter()
        """How often something of ours failed, by what it was: that cost its numbers of the step."""
        self._model, self._optimizers, self._sinks = model, optimizers, tuple(sinks)
        self._known = self._parameters()
        device = next(model.parameters()).device
        self._weights = Weights(
            self.structure, model, optimizers, device, self._stepped_outside, self._fails("updates")
        )
        self._taps = Taps(
            model, self.structure, device, micro_batches=self.config.micro_batches, rows=self.config.sampled_rows
        )
        vars(model)[_LOOKED_AT] = Mark()
        self._units = DeadUnits.like(self._taps)
        self.columns = self._all_columns()
        """Which number stands where in a step's vector."""
        self._places = np.array([one.place for one in self.columns], np.int64)
        self._off = np.array([one.stat == OFF for one in self.columns], bool)
        self.alarms = Alarms(
            [Key(one.metric, one.layer, one.head, one.stat) for one in self.columns],
            baseline=self.config.baseline,
            healthy=self.config.healthy,
            total=self.config.total,
            units={one.index: one.units for one in self._taps.unit_layers},
        )
        """What is alarmed of, and why what is not."""
        elements = [sum(one.numel() for one in own) for _, own in self._weights.groups]
        self._cadence = Cadence(elements or [1], self.config.preset)
        self._laps = Laps(device)
        self._first_weight = len(tap_columns(self._taps))
        self._tying, self._spikes = Tying(model), SpikeScore()
        self._parts = _laid_out(
            values=len(self.columns),
            bad=len(self._weights.groups) + 1,
            loop=2,
            passes=self.config.micro_batches,
            batches=self.config.micro_batches,
            places=len(self._taps.places),
        )
        """Parts of a step's vector: its columns; whose gradient is not finite; learning rate and gradient's norm; of
        each backward pass, whether its gradient is finite; of each micro-batch, and of each place of activations, how
        many numbers are."""
        width = self._parts["places"].stop
        self._ring = torch.full((self.config.interval, width), torch.nan, device=device)
        self._held: list[int] = []
        self._held_seen: list[_Seen] = []
        self._batches: deque[_Batch] = deque()
        self._open = False
        self._numbers: dict[Column, float | torch.Tensor] = {}
        self._logged: deque[tuple[int, list[Column], Pending]] = deque()
        self._silent: set[tuple[int, str]] = set()
        """Places of which nothing is seen, and why, where that was said."""
        self._told: set[str] = set()
        """What is not finite, and was said to be so."""
        self._micro_batches = self._new_micro_batches()
        self._say(self.steps, "vitals", self.summary())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return in_words(self.summary())

    def summary(self) -> dict[str, Any]:
        """Return what was found, and of each metric ``ok`` or ``not_applicable`` with the reason; plain JSON."""
        return {
            "found": what_is_found(self._model, self.structure, self._taps),
            "metrics": states_of_metrics(self.structure, self._taps, self._optimizers, self.config),
            "estimators": estimators(self._taps, self._weights),
            "preset": self.config.preset,
            "alarms": what_alarms(self.config),
            "coverage": self.coverage(),
        }

    def coverage(self) -> dict[str, dict[str, Any]]:
        """Return by metric how many ``series`` there are, how many are ``judged``, and ``why`` not all; plain JSON."""
        found = self.alarms.coverage()
        why = micro_batches.why_not() if self._micro_batches is None else self._micro_batches.why
        for metric in ("direction_consistency", "grad_noise_scale"):
            if metric in found and why:
                found[metric]["why"] = why
        return found

    @contextmanager
    def step(self) -> Iterator[None]:
        """Look at what happens within: one update of the weights, with all its micro-batches.

        Raises:
            ConfigError: A step is open already, or this is closed.
        """
        if _LOOKED_AT not in vars(self._model):
            raise ConfigError("vitals: they are closed", "Make new ones to look at the model again.")
        if self._open:
            raise ConfigError("vitals: a step is open already", "Use `with vitals.step():` once for each update.")
        self._open = True
        with torch.no_grad():
            begun = self._safely("the beginning of a step", self._begin)
        try:
            yield
        except BaseException:
            self._stop()
            raise
        self._open = False
        self.steps += 1
        with torch.no_grad():
            if begun:
                self._safely("the end of a step", self._end)
        self._stop()

    def log(self, **numbers: float | torch.Tensor) -> None:
        """Add numbers of the step, such as ``loss`` and ``learning_rate``; tensors of one are not waited for.

        Raises:
            ConfigError: A value is neither a number nor a tensor of one.
        """
        for name, value in numbers.items():
            if name in METRICS:
                raise ConfigError(f"vitals: {name} is a metric of its own", "Log it under another name.")
            is_one = value.numel() == 1 if isinstance(value, torch.Tensor) else isinstance(value, int | float)
            if not is_one:
                raise ConfigError(
                    f"vitals: {name}: expected a number, or a tensor of one, found {type(value).__name__}"
                )
        self._numbers.update({Column(name, -1, -1, "value"): value for name, value in numbers.items()})

    def check_replicas(self, probe_loss: torch.Tensor | None = None) -> None:
        """Compare the weights of all ranks, and their losses on one batch; every rank calls it, within a step.

        Checksums are gathered over the default group of ``torch.distributed``: how many ranks hold other weights than
        most is a number of the step, as is the spread of their losses.

        Args:
            probe_loss: Of a batch that is the same on all ranks, a scalar.

        Raises:
            ConfigError: There is no group, or no second rank.
        """
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
            raise ConfigError("vitals: check_replicas compares ranks, and there is one process")

        def gather(value: torch.Tensor) -> torch.Tensor:
            ranks = [torch.empty_like(value) for _ in range(distributed.get_world_size())]
            distributed.all_gather(ranks, value)
            return torch.stack(ranks)

        with torch.no_grad():
            differ = ranks_that_differ(parameter_checksum(list(self._model.parameters())), gather).sum()
            self._numbers[Column("replica_checksum", -1, -1, "ranks_that_differ")] = differ
            if probe_loss is not None:
                spread = loss_dispersion(gather(probe_loss.detach().float()))
                self._numbers[Column("loss_dispersion", -1, -1, "std")] = spread

    def escalate(self, steps: int) -> None:
        """Look at everything in each of the next steps, whatever the preset says; weights, too.

        As many steps pass after it before the next one.
        """
        if (said := self._cadence.escalate(self.steps + self._open, steps)) is not None:
            self._say(self.steps, "cadence", said)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs: which step it is, and what alarms know. It waits for what is on its way."""
        self._copy()
        self._deliver(wait=True)
        noise = None if self._micro_batches is None else self._micro_batches.scale.state_dict()
        return {
            "step": self.steps,
            "cadence": self._cadence.state(),
            "alarms": self.alarms.state(),
            "noise": noise,
            "zeros": self._weights.zeros,
            "told": sorted(self._told),
            "spikes": [self._spikes.norms, self._spikes.average],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            ConfigError: It is of a model or settings with other series.
        """
        try:
            self.alarms.load(state["alarms"])
            self._cadence.load(state["cadence"])
            if self._micro_batches is not None and state["noise"] is not None:
                self._micro_batches.scale.load_state_dict(state["noise"])
            self._weights.mark_zeros(state["zeros"])
            self._told = set(state["told"])
            self._spikes.norms, self._spikes.average = state["spikes"]
            self.steps = int(state["step"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"vitals: the state of the checkpoint does not fit: {error}",
                "Look at the same model with the same settings, or begin anew without it.",
            ) from None

    def close(self) -> None:
        """Take every tap off, and hand over what was measured."""
        if _LOOKED_AT not in vars(self._model):
            return
        self._taps.close()
        self._weights.close()
        if self._micro_batches is not None:
            self._micro_batches.close()
        del vars(self._model)[_LOOKED_AT]
        self._copy()
        self._deliver(wait=True)
        self._say(self.steps, "coverage", {"metrics": self.coverage()})

    def _stop(self) -> None:
        """Look at nothing until the next step."""
        self._taps.stop()
        self._weights.stop()
        self._open = False

    def _safely(self, what: str, call: Callable[[], None]) -> bool:
        """Call what must not end a run; return whether it did not fail."""
        with Guarded() as guarded:
            call()
        if guarded.error is not None:
            self._stop()
            self._fails(what)(guarded.origin)
        return guarded.error is None

    def _fails(self, what: str) -> Callable[[str], None]:
        """Return what counts failures of ours, and says each once: they are no reason to end a run."""

        def failed(why: str) -> None:
            self.failures[what] += 1
            if (said := f"failure {what} {why}") not in self._told:
                self._told.add(said)
                self._say(self.steps, "not_seen", {"what": what, "why": why})

        return failed

    def _begin(self) -> None:
        number = self.steps + 1
        if (number - self.config.first_step) % _LOOKS_FOR_NEW == 0:
            self._say_what_is_new()
        self._laps.begin()
        looks = self._cadence.looks(number)
        every = {-1, *(one.index for one in self.structure.layers)} if looks else set()
        layers, heads = (every if name in self.config.measure else set() for name in ("activations", "attention"))
        self._taps.watch.batch_row = number
        turn, closely = self._cadence.turn(number), self._cadence.closely(number)
        self._taps.start(self._taps.places_of(layers, heads), turn=turn, closely=closely)
        if self._micro_batches is not None:
            self._micro_batches.start(number, looks=looks)
        asked = "weights" in self.config.measure and self._weights.groups
        self._weights.start(number, self._cadence.due(number) if asked else ())

    def _parameters(self) -> dict[int, torch.nn.Parameter]:
        """Return what trains: parameters of the model and of the optimizers, by identity."""
        given = [one for own in self._optimizers for group in own.param_groups for one in group["params"]]
        return {id(one): one for one in (*self._model.parameters(), *given) if one.requires_grad}

    def _say_what_is_new(self) -> None:
        """Say once that parameters were added, replaced or unfrozen, or moved to another device."""
        now = self._parameters()
        added = len(now.keys() - self._known.keys())
        moved = any(one.device != self._ring.device for one in self._model.parameters())
        then = "when vitals were made: close these and make new ones"
        for what, why in (
            (added, f"{added} train that were not there, or did not train, {then}"),
            (moved, f"they are not on {self._ring.device} any more, where they were {then}"),
        ):
            if what and (said := f"parameters {why}") not in self._told:
                self._told.add(said)
                self._say(self.steps, "not_seen", {"what": "parameters", "why": why})

    def _stepped_outside(self) -> None:
        """Say once that an optimizer's step is not seen."""
        if "outside" not in self._told:
            self._told.add("outside")
            why = "optimizer.step() was called outside of `with vitals.step():`"
            self._say(self.steps, "not_seen", {"what": "updates", "why": why})

    def _end(self) -> None:
        number = self.steps
        self._say_unseen(number)
        window_ends = (number - self.config.first_step + 1) % self.config.window == 0
        slot = len(self._held)
        row = self._ring[slot]
        own = tap_values(self._taps, self._units, window_ends=window_ends)
        row[: self._first_weight].copy_(own)
        values, bad, in_full = self._weights.finish()
        last = self._first_weight + values.numel()
        row[self._first_weight : last].copy_(values.flatten())
        batches = self._micro_batches
        noise = None if batches is None else batches.finish()
        places = row[last : last + len(micro_batches.STATS)]
        places.fill_(torch.nan) if noise is None else places.copy_(noise)
        count = bad[:-1].sum(dtype=torch.float32)
        row[self._step_metrics[0]].copy_(count if in_full else torch.where(count > 0, count, torch.nan))
        row[self._step_metrics[1]].copy_(self._weights.skipped)
        row[self._parts["bad"]].copy_(bad)
        self._of_loop(row)
        self._held.append(number)
        seen = self._taps.watch
        self._held_seen.append(_Seen(np.array(seen.seen), 0 if batches is None else batches.passes, seen.tokens))
        self._see_structure(number)
        if self.config.adapt:
            for step, every, seconds in self._laps.end(number, self._cadence.budget.every):
                known = every == self._cadence.budget.every  # a time that came after the cadence changed says nothing
                if known and (said := self._cadence.see(step, seconds)) is not None:
                    self._say(step, "cadence", said)
        if self._numbers:
            self._log(number)
        if len(self._held) == self.config.interval:
            self._copy()
        self._deliver(wait=False)

    def _of_loop(self, row: torch.Tensor) -> None:
        """Write the learning rate, the gradient's norm, and how many numbers of each micro-batch are finite."""
        rate, norm = row[self._parts["loop"]]
        held = self._weights.rate
        rate.copy_(held, non_blocking=True) if isinstance(held, torch.Tensor) else rate.fill_(held)
        batches = self._micro_batches
        found = None if batches is None else batches.norm
        norm.fill_(torch.nan) if found is None else norm.copy_(found)
        row[self._parts["passes"]].copy_(
            torch.zeros_like(row[self._parts["passes"]]) if batches is None else batches.finite
        )
        finite = self._taps.activations[..., 0].isfinite()
        row[self._parts["batches"]].copy_(finite.sum(0))
        row[self._parts["places"]].copy_(finite.sum(1))

    def _see_structure(self, number: int) -> None:
        """Raise what the host sees: weights that are shared no longer, layers without a gradient, no noise."""
        found = self._tying.broken()
        for layer in self._weights.frozen():
            where = {"metric": "grad_norm", "layer": layer, "head": -1, "stat": "at_step", "value": 0.0}
            found.append({**where, "rule": "frozen", "first_step": number - FROZEN_AFTER + 1})
        for one in found:
            self._alarm(number, "alarm", one)
        why = "" if self._micro_batches is None else self._micro_batches.why
        if why and f"noise {why}" not in self._told:
            self._told.add(f"noise {why}")
            self._say(number, "no_value", {"what": "gsnr, direction_consistency, grad_noise_scale", "why": why})

    def _alarm(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Write an alarm with its incident, and report a new or graver one on the terminal."""
        joined, opens = self.alarms.join(step, {"first_step": step, **detail})
        self._raised(step, kind, {**joined, "opens": opens})

    def _raised(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        if detail["severity"] < 3 and self.config.escalate:
            self.escalate(self.config.escalate)
        if detail["opens"]:
            _LOG.warning("step %d: vitals, %s", step, in_a_line(detail))
        self._say(step, kind, {name: value for name, value in detail.items() if name != "opens"})

    def _say_unseen(self, number: int) -> None:
        """Say once of each part that nothing of it was seen where it was looked at, and why."""
        watch, taps = self._taps.watch, self._taps
        reasons = dict(watch.why)
        for place, failures in watch.failures.items():
            what, layer = taps.about(place)
            self.failures[f"{what} of layer {layer}"] = failures
        first = self._weights.updated and "looked" not in self._told
        if any(watch.on) and (any(watch.seen) or first):
            self._told.add("looked")
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
        for (what, why), held in layers.items():
            self._say(number, "not_seen", {"what": what, "layers": held, "why": why})

    def _log(self, number: int) -> None:
        """Send the loop's own numbers of a step to the host."""
        values = torch.empty(len(self._numbers), device=self._ring.device)
        for slot, one in zip(values, self._numbers.values(), strict=True):
            if isinstance(one, torch.Tensor):
                slot.copy_(one.detach().reshape(()), non_blocking=True)
            else:
                slot.fill_(one)  # a copy from the host would be waited for
        self._logged.append((number, list(self._numbers), Pending(values)))
        self._numbers = {}

    def _copy(self) -> None:
        """Send the values of the steps so far to the host."""
        if self._held:
            self._batches.append(_Batch(Pending(self._ring[: len(self._held)]), self._held, self._held_seen))
            self._held, self._held_seen = [], []

    def _deliver(self, *, wait: bool) -> None:
        """Hand over what has arrived."""
        while self._logged and (wait or self._logged[0][2].ready()):
            number, columns, numbers = self._logged.popleft()
            values = numbers.numpy()
            for column, value in zip(columns, values, strict=True):
                detail = {"metric": column.metric, "layer": -1, "head": -1, "stat": column.stat}
                self._tell(number, f"number {column.metric}", detail, known=math.isfinite(value))
            self._give(number, columns, values)
        while self._batches and (wait or self._batches[0].values.ready()):
            batch = self._batches.popleft()
            table = batch.values.numpy()
            for number, seen, values in zip(batch.steps, batch.seen, table, strict=True):
                self._hand_over(number, seen, values)

    def _tell(self, step: int, what: str, detail: Mapping[str, Any], *, known: bool) -> None:
        """Say once, until it is over, that something is not finite; then look at everything, and do not wait."""
        if known:
            self._told.discard(what)
        elif what not in self._told:
            self._told.add(what)
            self._alarm(step, "nan_inf", {**detail, "rule": "not_finite"})
            self._copy()

    def _tell_layers(
        self, step: int, seen: np.ndarray, known: np.ndarray, bad: np.ndarray, which: Mapping[str, int]
    ) -> None:
        """Say which layer was first not finite, and in which micro-batch: in its activations, or else its gradient."""
        activations = first_bad([self.columns[place] for place in np.flatnonzero(seen & ~known)])
        gradient = first_bad_gradient([layer for layer, _ in self._weights.groups], bad, ends=self._weights.ends)
        for what, detail, looked in (
            ("activations", activations, seen.any()),
            ("gradients", gradient, "weights" in self.config.measure),
        ):
            if detail is not None and what == "gradients" and activations is not None:
                self._told.add(what)  # they follow from activations
            elif looked:
                self._tell(step, what, {**(detail or {}), **which}, known=detail is None)

    def _hand_over(self, step: int, seen: _Seen, row: np.ndarray) -> None:
        parts = {name: row[own] for name, own in self._parts.items()}
        values, bad = parts["values"].astype(np.float64), parts["bad"] > 0
        passes = seen.places[: len(self._taps.places)]
        most = self.config.micro_batches
        spoilt = np.append(np.zeros(len(seen.places), bool), False)
        spoilt[: len(passes)] = parts["places"] < np.minimum(passes, most)
        values[spoilt[self._places]] = math.nan
        rate, norm = map(float, parts["loop"])
        values[self._score] = self._spikes.see(norm)
        absent = np.isneginf(values)
        values[absent] = math.nan
        held = np.isfinite(values)
        which = _first_spoilt(parts, passes, seen.passes, most)
        self._tell_layers(step, np.append(seen.places > 0, False)[self._places], held | absent, bad, which)
        for place in np.flatnonzero(self._off & (values > 0)):
            column = self.columns[place]
            self._taps.watch.refused.add(column.place)
            detail = {
                "layer": column.layer,
                "what": "all rows of attention",
                "why": "further from sampled rows than bounds allow",
            }
            self._say(step, "refused", detail)
        steady = self.config.steady is not None and self.config.steady[0] <= step <= self.config.steady[1]
        for found in self.alarms.see(step, values, rate=rate, tokens=float(seen.tokens or math.nan), steady=steady):
            if found.kind == "coverage":
                _LOG.warning("step %d: vitals, %s", step, covered(found.detail["metrics"]))
                self._say(step, found.kind, found.detail)
            else:
                self._raised(step, found.kind, found.detail)
        self._give(step, [column for column, known in zip(self.columns, held, strict=True) if known], values[held])

    def _give(self, step: int, columns: list[Column], values: np.ndarray) -> None:
        rows: Columns = {
            "step": np.full(len(columns), step),
            "metric": [one.metric for one in columns],
            "layer": np.array([one.layer for one in columns]),
            "head": np.array([one.head for one in columns]),
            "stat": [one.stat for one in columns],
            "value": values.astype(np.float64),
        }
        for sink in self._sinks:
            with Guarded() as call:
                sink.add_values(rows)
            self._failed(call)

    def _new_micro_batches(self) -> MicroBatches | None:
        own = [one for _, group in self._weights.groups for one in group]
        if not own or "weights" not in self.config.measure or micro_batches.why_not() is not None:
            return None
        fails = self._fails("gradients of micro-batches")
        return MicroBatches(own, self.config.micro_batches, fails, self._optimizers)

    def _say(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        for sink in self._sinks:
            with Guarded() as call:
                sink.add_event(step, kind, detail)
            self._failed(call)

    def _failed(self, call: Guarded) -> None:
        """Count a sink's error, and say the first one: it is no reason to end a run."""
        if call.error is not None:
            if not self.lost:
                _LOG.warning(
                    "vitals: a sink failed (%s); training goes on, and what it did not take is lost", call.origin
                )
            self.lost += 1

    @property
    def _step_metrics(self) -> range:
        """Places of what is counted in a step."""
        return range(len(self.columns) - len(_STEP_METRICS) - 1, len(self.columns) - 1)

    @property
    def _score(self) -> int:
        """Place of the score of the gradient's norm, which the host makes."""
        return len(self.columns) - 1

    def _all_columns(self) -> list[Column]:
        of_layers = [
            Column(metric, layer, -1, _stat(stat, layer))
            for metric, stat in weights.STATS
            for layer, _ in self._weights.groups
        ]
        noise = [Column(metric, -1, -1, stat) for metric, stat in micro_batches.STATS]
        return [
            *tap_columns(self._taps),
            *of_layers,
            *noise,
            *(Column(name, -1, -1, "count") for name in _STEP_METRICS),
            Column("gradient_spike_score", -1, -1, "ratio"),
        ]


def _laid_out(**sizes: int) -> dict[str, slice]:
    """Return where parts of some sizes stand in a vector, one after another."""
    ends = [0, *itertools.accumulate(sizes.values())]
    return {name: slice(*ends[at : at + 2]) for at, name in enumerate(sizes)}


def _optimizers(given: object) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers that were given.

    Raises:
        ConfigError: One is none of torch's.
    """
    found = () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
    for one in found:
        if not isinstance(one, torch.optim.Optimizer):
            kind = type(one).__name__
            raise ConfigError(f"vitals: optimizer: expected one of torch's, or a list of them, found {kind}")
    return found


def _first_spoilt(parts: Mapping[str, np.ndarray], passes: np.ndarray, backward: int, most: int) -> dict[str, int]:
    """Return the first micro-batch, from 0, whose activations or gradient are not finite; nothing where none is known.

    Args:
        parts: Of a step's vector.
        passes: int64[places]: forward passes of each place of activations.
        backward: Backward passes that were told apart.
        most: Micro-batches that are kept apart.
    """
    if passes.max(initial=0) <= most:
        expected = (passes[:, None] > np.arange(most)).sum(0)
        if len(own := np.flatnonzero(parts["batches"] < expected)):
            return {"micro_batch": int(own[0])}
    own = np.flatnonzero(parts["passes"][:backward] == 0)
    return {"micro_batch": int(own[0])} if len(own) else {}


def _stat(stat: str, layer: int) -> str:
    """Return the name of a statistic of a layer; of what lies outside of layers, ``others``."""
    if layer >= 0:
        return stat
    return f"others_{stat}" if stat in {"matrices", "vectors", "adam_proxy"} else "others"
