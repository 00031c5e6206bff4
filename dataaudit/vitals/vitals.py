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

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dataaudit.base.async_copy import Laps
from dataaudit.base.errors import ConfigError, Guarded
from dataaudit.vitals import micro_batches, weights
from dataaudit.vitals.alarms import Alarms
from dataaudit.vitals.baseline import Key
from dataaudit.vitals.cadence import Cadence
from dataaudit.vitals.columns import Column, DeadUnits, tap_columns, tap_values
from dataaudit.vitals.config import VitalsConfig
from dataaudit.vitals.handover import Handover
from dataaudit.vitals.hooks import Mark
from dataaudit.vitals.micro_batches import MicroBatches
from dataaudit.vitals.replicas import Tying, loss_dispersion, parameter_checksum, ranks_that_differ
from dataaudit.vitals.sinks import Reporter, Sink
from dataaudit.vitals.structure import find, is_compiled
from dataaudit.vitals.summary import METRICS, estimators, in_words, states_of_metrics, what_alarms, what_is_found
from dataaudit.vitals.watching import Taps
from dataaudit.vitals.weights import FROZEN_AFTER, Weights

_LOOKED_AT = "_dataaudit_vitals"
_LOOKS_FOR_NEW = 16
"""Steps between two looks at which parameters train."""
_STEP_METRICS = ("nan_inf_events", "skipped_updates")


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
        if any(parameter.is_meta or is_lazy(parameter) for parameter in model.parameters()):
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
        self._reporter = Reporter(sinks)
        self.failures = self._reporter.failures
        """How often something of ours failed, by what it was: that cost its numbers of the step."""
        self._model, self._optimizers = model, optimizers
        self._known = self._parameters()
        device = next(model.parameters()).device
        self._weights = Weights(
            self.structure, model, optimizers, device, self._stepped_outside, partial(self._failed, "updates")
        )
        self._taps = Taps(
            model, self.structure, device, micro_batches=self.config.micro_batches, rows=self.config.sampled_rows
        )
        vars(model)[_LOOKED_AT] = Mark()
        self._units = DeadUnits.like(self._taps)
        self.columns = self._all_columns()
        """Which number stands where in a step's vector."""
        self.alarms = Alarms(
            [Key(column.metric, column.layer, column.head, column.stat) for column in self.columns],
            baseline=self.config.baseline,
            healthy=self.config.healthy,
            total=self.config.total,
            units={layer.index: layer.units for layer in self._taps.unit_layers},
        )
        """What is alarmed of, and why what is not."""
        elements = [sum(item.numel() for item in own) for _, own in self._weights.groups]
        self._cadence = Cadence(elements or [1], self.config.preset, adapt=self.config.adapt)
        self._laps = Laps(device)
        self._first_weight = len(tap_columns(self._taps))
        self._nothing = tap_values(self._taps, self._units, window_ends=False)
        """Numbers of taps of a step that is not looked at."""
        self._tying = Tying(model)
        self._handover = Handover(
            self._reporter, self.columns, self._taps, self._weights, self.alarms, self.config, self.escalate
        )
        self._open = False
        self._numbers: dict[Column, float | torch.Tensor] = {}
        self._micro_batches = self._new_micro_batches()
        self._reporter.event(self.steps, "vitals", self.summary())

    @property
    def lost(self) -> int:
        """Times that a sink failed to take what it was given."""
        return self._reporter.lost

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
            self._reporter.event(self.steps, "cadence", said)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs: which step it is, and what alarms know. It waits for what is on its way."""
        self._handover.finish()
        noise = None if self._micro_batches is None else self._micro_batches.scale.state_dict()
        return {
            "step": self.steps,
            "cadence": self._cadence.state(),
            "alarms": self.alarms.state(),
            "noise": noise,
            "zeros": self._weights.zeros,
            **self._handover.state(),
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
            self._handover.load(state)
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
        self._handover.finish()
        self._reporter.event(self.steps, "coverage", {"metrics": self.coverage()})

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
            self._failed(what, guarded.origin)
        return guarded.error is None

    def _failed(self, what: str, why: str) -> None:
        self._reporter.failed(self.steps, what, why)

    def _begin(self) -> None:
        number = self.steps + 1
        if (number - self.config.first_step) % _LOOKS_FOR_NEW == 0:
            self._say_what_is_new()
        self._laps.begin()
        looks = self._cadence.looks(number)
        every = {-1, *(layer.index for layer in self.structure.layers)} if looks else set()
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
        given = [item for own in self._optimizers for group in own.param_groups for item in group["params"]]
        return {
            id(parameter): parameter for parameter in (*self._model.parameters(), *given) if parameter.requires_grad
        }

    def _say_what_is_new(self) -> None:
        """Say once that parameters were added, replaced or unfrozen, or moved to another device."""
        now = self._parameters()
        added = len(now.keys() - self._known.keys())
        moved = any(parameter.device != self._handover.ring.device for parameter in self._model.parameters())
        then = "when vitals were made: close these and make new ones"
        for what, why in (
            (added, f"{added} train that were not there, or did not train, {then}"),
            (moved, f"they are not on {self._handover.ring.device} any more, where they were {then}"),
        ):
            if what:
                self._reporter.once(self.steps, "not_seen", "parameters", why)

    def _stepped_outside(self) -> None:
        """Say once that an optimizer's step is not seen."""
        why = "optimizer.step() was called outside of `with vitals.step():`"
        self._reporter.once(self.steps, "not_seen", "updates", why)

    def _end(self) -> None:
        number = self.steps
        self._handover.report_unseen(number)
        window_ends = (number - self.config.first_step + 1) % self.config.window == 0
        row = self._handover.row
        looked = window_ends or any(self._taps.watch.seen) or self._taps.watch.failures
        own = tap_values(self._taps, self._units, window_ends=window_ends) if looked else self._nothing
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
        row[self._handover.parts["bad"]].copy_(bad)
        self._of_loop(row)
        self._handover.add(number, 0 if batches is None else batches.passes)
        self._see_structure(number)
        if self.config.adapt:
            for step, every, seconds in self._laps.end(number, self._cadence.budget.every):
                known = every == self._cadence.budget.every  # a time that came after the cadence changed says nothing
                if known and (said := self._cadence.see(step, seconds)) is not None:
                    self._reporter.event(step, "cadence", said)
        if self._numbers:
            self._handover.add_numbers(number, self._numbers)
            self._numbers = {}
        self._handover.deliver(wait=False)

    def _of_loop(self, row: torch.Tensor) -> None:
        """Write the rate, the gradient's norm and its scale, and how many numbers of each micro-batch are finite."""
        parts = self._handover.parts
        rate, norm, scale = row[parts["loop"]]
        held = self._weights.rate
        rate.copy_(held, non_blocking=True) if isinstance(held, torch.Tensor) else rate.fill_(held)
        batches = self._micro_batches
        found = None if batches is None else batches.norm
        norm.fill_(torch.nan) if found is None else norm.copy_(found)
        factor = None if batches is None else batches.loss_scale
        scale.fill_(torch.nan) if factor is None else scale.copy_(factor)
        row[parts["passes"]].copy_(torch.zeros_like(row[parts["passes"]]) if batches is None else batches.finite)
        finite = self._taps.activations[..., 0].isfinite()
        row[parts["batches"]].copy_(finite.sum(0))
        row[parts["places"]].copy_(finite.sum(1))

    def _see_structure(self, number: int) -> None:
        """Raise what the host sees: weights that are shared no longer, layers without a gradient, no noise."""
        found = self._tying.broken()
        for layer in self._weights.frozen():
            where = {"metric": "grad_norm", "layer": layer, "head": -1, "stat": "at_step", "value": 0.0}
            found.append({**where, "rule": "frozen", "first_step": number - FROZEN_AFTER + 1})
        for record in found:
            self._handover.alarm(number, "alarm", record)
        why = "" if self._micro_batches is None else self._micro_batches.why
        if why:
            self._reporter.once(number, "no_value", "gsnr, direction_consistency, grad_noise_scale", why)

    def _new_micro_batches(self) -> MicroBatches | None:
        own = [item for _, group in self._weights.groups for item in group]
        if not own or "weights" not in self.config.measure or micro_batches.why_not() is not None:
            return None
        fails = partial(self._failed, "gradients of micro-batches")
        return MicroBatches(own, self.config.micro_batches, fails, self._optimizers)

    @property
    def _step_metrics(self) -> range:
        """Places of what is counted in a step."""
        return range(len(self.columns) - len(_STEP_METRICS) - 1, len(self.columns) - 1)

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


def _optimizers(given: object) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers that were given."""
    found = () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
    for item in found:
        if not isinstance(item, torch.optim.Optimizer):
            kind = type(item).__name__
            raise ConfigError(f"vitals: optimizer: expected one of torch's, or a list of them, found {kind}")
    return found


def _stat(stat: str, layer: int) -> str:
    """Return the name of a statistic of a layer; of what lies outside of layers, ``others``."""
    if layer >= 0:
        return stat
    return f"others_{stat}" if stat in {"matrices", "vectors", "adam_proxy"} else "others"
