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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dataaudit.base.async_copy import Laps, sent
from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.vitals import micro_batches
from dataaudit.vitals.alarms import Alarms
from dataaudit.vitals.cadence import Cadence
from dataaudit.vitals.config import VitalsConfig
from dataaudit.vitals.handover import Handover
from dataaudit.vitals.hooks import WATCHED, Mark
from dataaudit.vitals.masters import Masters, optimizers_of
from dataaudit.vitals.measurement import Measurement, Sources
from dataaudit.vitals.metric import Column, Key
from dataaudit.vitals.metrics import MEASUREMENTS, METRICS
from dataaudit.vitals.metrics.curvature import Curvature
from dataaudit.vitals.micro_batches import MicroBatches
from dataaudit.vitals.model_hooks import ModelHooks
from dataaudit.vitals.ranks import ranks
from dataaudit.vitals.replicas import Tying, compared
from dataaudit.vitals.routers import find_routers
from dataaudit.vitals.sharding import Sharding
from dataaudit.vitals.sinks import Reporter, Sink
from dataaudit.vitals.structure import find, is_compiled
from dataaudit.vitals.summary import in_words, summary_of
from dataaudit.vitals.weights import FROZEN_AFTER, Weights

_CHECKS_PARAMETERS = 16
"""Steps between two checks of which parameters train."""


class Vitals:
    """Measures a model while it trains.

    Args:
        model: Not compiled yet; compile it afterwards.
        optimizer: What updates it: one, or several (Muon and AdamW), or a wrapper that holds it as ``optimizer`` and
            moves float32 masters of the weights; None: weights and updates are not measured.
        config: What is measured, how often and how closely.
        sinks: Where values go: a :class:`dataaudit.training.TrainingMonitor`, a sink of :mod:`dataaudit.vitals.sinks`.

    Raises:
        ConfigError: The model is compiled already, shows no layers, or has vitals already.
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
        optimizers = optimizers_of(optimizer)
        if any(parameter.is_meta or is_lazy(parameter) for parameter in model.parameters()):
            raise ConfigError(
                "vitals: the model has parameters without values: on the device meta, or of a lazy module",
                "Make Vitals after they have values: after model.to_empty(...) and loading, or after a first batch.",
            )
        if getattr(model, WATCHED, None) is not None:
            raise ConfigError("vitals: the model has vitals already", "Close the other Vitals first.")
        self.config = config or VitalsConfig()
        self.structure = find(model, self.config.mapping)
        self.steps = self.config.first_step - 1
        """Steps that are done."""
        self._reporter = Reporter(sinks)
        self.failures = self._reporter.failures
        """How often something of ours failed, by what it was: that cost its numbers of the step."""
        self._model, self._optimizers = model, optimizers
        self._sharding = Sharding(model, self._given(model.parameters()))
        self._known = self._parameters()
        device = next(model.parameters()).device
        failed = partial(self._failed, "updates")
        self._weights = Weights(
            self.structure, model, optimizers, device, self._stepped_outside, failed, self._sharding
        )
        self._hooks = ModelHooks(
            model,
            self.structure,
            device,
            micro_batches=self.config.micro_batches,
            rows=self.config.sampled_rows,
            routers=find_routers(self.structure, self.config.mapping),
        )
        vars(model)[WATCHED] = Mark(self._hooks.recorder)
        self._micro_batches = self._new_micro_batches()
        self._sources = Sources(
            model=model,
            config=self.config,
            structure=self.structure,
            hooks=self._hooks,
            weights=self._weights,
            micro_batches=self._micro_batches,
            optimizers=optimizers,
            masters=Masters(optimizer),
            sharding=self._sharding,
        )
        self._measurements = [kind(self._sources) for kind in MEASUREMENTS]
        self._unmeasured = {id(item): item.values() for item in self._measurements if item.HOOKED}
        """Numbers of hooks in a step without any."""
        columns = [item.columns() for item in self._measurements]
        self.columns = [column for own in columns for column in own]
        """Which number stands where in a step's vector."""
        self.alarms = Alarms(
            [Key(column.metric, column.layer, column.head, column.stat) for column in self.columns],
            baseline=self.config.baseline,
            healthy=self.config.healthy,
            total=self.config.total,
            units={layer.index: layer.units for layer in self._hooks.unit_layers},
        )
        """What is alarmed of, and why what is not."""
        elements = [sum(item.numel() for item in own) for _, own in self._weights.groups]
        self._cadence = Cadence(elements or [1], self.config.preset, adapt=self.config.adapt)
        self._laps = Laps(device)
        self._tying = Tying(model)
        owned = list(zip(self._measurements, columns, strict=True))
        self._handover = Handover(self._reporter, owned, self._sources, self.config, self.alarms, self.escalate)
        self._open = False
        self._numbers: dict[Column, float | torch.Tensor] = {}
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
        return {**summary_of(self._model, self._sources, self._measurements, self.config), "coverage": self.coverage()}

    def coverage(self) -> dict[str, dict[str, Any]]:
        """Return by metric how many ``series`` there are, how many are ``judged``, and ``why`` not all; plain JSON."""
        coverage = self.alarms.coverage()
        for item in self._measurements:
            for metric, why in item.gaps().items():
                coverage[metric]["why"] = why
        return coverage

    @contextmanager
    def step(self) -> Iterator[None]:
        """Measure what happens within: one update of the weights, with all its micro-batches.

        Raises:
            ConfigError: A step is open already, or this is closed.
        """
        if WATCHED not in vars(self._model):
            raise ConfigError("vitals: they are closed", "Make new ones to measure the model again.")
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
            self._safely("sums over ranks", partial(self._add_up, begun=begun))
            if begun:
                self._safely("the end of a step", self._end)
        self._stop()

    def log(self, **numbers: float | torch.Tensor) -> None:
        """Add numbers of the step, such as ``loss`` and ``learning_rate``; tensors of one are not waited for.

        Raises:
            ConfigError: A value is neither a number nor a tensor of one.
        """
        for name, value in numbers.items():
            if name in METRICS and METRICS[name].listed:
                raise ConfigError(f"vitals: {name} is a metric of its own", "Log it under another name.")
            is_one = value.numel() == 1 if isinstance(value, torch.Tensor) else isinstance(value, int | float)
            if not is_one:
                raise ConfigError(
                    f"vitals: {name}: expected a number, or a tensor of one, found {type(value).__name__}"
                )
        self._numbers.update({Column(name, -1, -1, "value"): value for name, value in numbers.items()})

    def log_sources(self, ids: torch.Tensor, sources: int) -> None:
        """Take which source each token of the next forward pass is of, so that experts are counted by source.

        It is called within a step, before each pass. Counts of a window are ``moe_source_load``, of this rank's tokens.

        Args:
            ids: Whole numbers of sources from 0, [rows] or [rows, tokens]: of a row of the batch, or token by token.
            sources: How many there are; a number that is not below is not counted.

        Raises:
            ConfigError: These are no whole numbers of one or two dimensions.
        """
        if not isinstance(ids, torch.Tensor) or ids.is_floating_point() or not 1 <= ids.dim() <= 2 or sources < 1:
            raise ConfigError("vitals: log_sources: expected whole numbers, [rows] or [rows, tokens], and their number")
        if self._open and self._sources.measured and "experts" in self.config.measure:
            self._hooks.routers.sources.use(sent(ids.detach(), self._handover.ring.device), int(sources))

    def check_replicas(self, probe_loss: torch.Tensor | None = None) -> None:
        """Compare the weights of all ranks, and their losses on one batch; every rank calls it, within a step.

        Checksums are gathered over the default group of ``torch.distributed``. How many ranks have other weights than
        most, and the spread of their losses, are numbers of the step. Of sharded parameters replicas are compared.

        Args:
            probe_loss: Of a batch that is the same on all ranks, a scalar.

        Raises:
            ConfigError: There is no group, no second rank, or no replica of any shard.
        """
        own = self._given(()) if self._sharding.reduced else [*self._model.parameters()]
        self._numbers.update(compared(own, self._sharding, probe_loss))

    def curvature(
        self, loss_of: Callable[[Any], torch.Tensor], batch: Any, *, minutes: float = 10.0, vectors: int = 8
    ) -> bool:
        """Estimate how curved the loss is on a probe batch, between two steps; the next step hands over the numbers.

        It takes some 1 + 2.5 x vectors gradients of the batch. The model is in evaluation meanwhile. Weights,
        gradients, buffers and random states stay as they are, to the bit.

        Args:
            loss_of: Returns the loss of a batch, a scalar, by the model that is not compiled nor wrapped.
            batch: The same one each time.
            minutes: From one estimate to the next: a call in between returns at once. Of several ranks each has a clock
                of its own: there the loop says when, with 0.
            vectors: Random vectors, 2 or more: the interval is as wide as 1 over their root.

        Returns:
            Whether there was an estimate.

        Raises:
            ConfigError: A step is open, or an argument is out of range.
        """
        for wrong, why in (
            (self._open, "a step is open: call it before or after `with vitals.step():`"),
            (vectors < 2, f"vectors: expected 2 or more, found {vectors}"),
            (ranks() > 1 and minutes > 0, "minutes: clocks of several ranks differ, expected 0"),
        ):
            if wrong:
                raise ConfigError(f"vitals: curvature: {why}")
        own = next(item for item in self._measurements if isinstance(item, Curvature))
        if not own.due(minutes):
            return False
        with CatchErrors() as guarded:
            own.estimate(loss_of, batch, vectors)
        if guarded.error is not None:
            self._failed("curvature", guarded.origin)
        return guarded.error is None

    def escalate(self, steps: int) -> bool:
        """Measure everything in each of the next steps; as many pass after it before the next escalation.

        Returns:
            Whether it began.
        """
        if (decided := self._cadence.escalate(self.steps + self._open, steps)) is not None:
            self._reporter.event(self.steps, "cadence", decided)
        return decided is not None

    def explain_rate(self, times: float) -> None:
        """Take that the loop changes its learning rate by these times, beside the schedule: that is no alarm."""
        self.alarms.explain_rate(times)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs: which step it is, and what alarms know. It waits for what is on its way."""
        self._handover.finish()
        state = {"step": self.steps, "cadence": self._cadence.state(), "alarms": self.alarms.state()}
        for item in self._measurements:
            state |= item.state()
        return {**state, "told": sorted(self._reporter.reported)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; what is on its way is handed over before, and waited for.

        Raises:
            ConfigError: It is of a model or settings with other series.
        """
        self._handover.finish()
        try:
            self.alarms.load(state["alarms"])
            self._cadence.load(state["cadence"])
            for item in self._measurements:
                item.load(state)
            self._reporter.reported = set(state["told"])
            self.steps = int(state["step"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"vitals: the state of the checkpoint does not fit: {error}",
                "Look at the same model with the same settings, or begin anew without it.",
            ) from None

    def close(self) -> None:
        """Take every hook off, and hand over what was measured."""
        if WATCHED not in vars(self._model):
            return
        for item in self._measurements:
            self._safely(f"the end of {type(item).__name__}", item.close)
        self._hooks.close()
        self._weights.close()
        if self._micro_batches is not None:
            self._micro_batches.close()
        del vars(self._model)[WATCHED]
        self._handover.finish()
        self._reporter.event(self.steps, "coverage", {"metrics": self.coverage()})

    def _stop(self) -> None:
        """Measure nothing until the next step."""
        self._hooks.stop()
        self._weights.stop()
        self._open = False

    def _safely(self, what: str, call: Callable[[], None]) -> bool:
        """Call what must not end a run; return whether it did not fail."""
        with CatchErrors() as guarded:
            call()
        if guarded.error is not None:
            self._stop()
            self._failed(what, guarded.origin)
        return guarded.error is None

    def _failed(self, what: str, why: str) -> None:
        self._reporter.failed(self.steps, what, why)

    def _begin(self) -> None:
        number = self.steps + 1
        if (number - self.config.first_step) % _CHECKS_PARAMETERS == 0:
            self._report_new_parameters()
        self._laps.begin()
        measured = self._cadence.measures(number)
        self._hooks.recorder.batch_row = number
        turn, closely = self._cadence.turn(number), self._cadence.closely(number)
        self._hooks.start(self.config.measure if measured else (), turn=turn, closely=closely)
        if self._micro_batches is not None:
            self._micro_batches.start(number, measured=self._cadence.measures(number, closely=not self._sharding))
        self._sources.step, self._sources.measured = number, measured
        for item in self._measurements:
            item.begin()
        asked = "weights" in self.config.measure and self._weights.groups
        due = self._cadence.due(number, closely=not self._sharding)  # an alarm is of one rank, sums are of all
        self._weights.start(number, due if asked else ())

    def _add_up(self, *, begun: bool) -> None:
        """Add up what is spread over ranks, in one vector; a rank that failed adds NaN, and waits for nobody."""
        if not self._cadence.measures(self.steps, closely=not self._sharding):
            return
        parts = [item for item in (self._weights, self._micro_batches) if item is not None]
        sums = [self._weights.bad.new_full((item.num_sums,), torch.nan, dtype=torch.float64) for item in parts]

        def fill() -> None:
            for item, own in zip(parts, sums, strict=True):
                own.copy_(item.sums())

        if begun:
            self._safely("sums over ranks", fill)
        whole = self._sharding.reduce(torch.cat(sums))
        for item, own in zip(parts, whole.split([item.num_sums for item in parts]), strict=True):
            item.take(own)

    def _given(self, parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Return parameters, and those of the optimizers."""
        given = [item for own in self._optimizers for group in own.param_groups for item in group["params"]]
        return [*parameters, *given]

    def _parameters(self) -> dict[int, torch.nn.Parameter]:
        """Return what trains: parameters of the model and of the optimizers, by identity."""
        own = () if self._sharding.reduced else self._model.parameters()  # FSDP has whole ones now and then
        return {id(parameter): parameter for parameter in self._given(own) if parameter.requires_grad}

    def _report_new_parameters(self) -> None:
        """Report once that parameters were added, replaced or unfrozen, or moved to another device."""
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
        why = "optimizer.step() was called outside of `with vitals.step():`"
        self._reporter.once(self.steps, "not_seen", "updates", why)

    def _end(self) -> None:
        number = self.steps
        self._handover.report_unseen(number)
        recorder, row = self._hooks.recorder, self._handover.row
        window_ends = (number - self.config.first_step + 1) % self.config.window == 0
        self._sources.step, self._sources.window_ends = number, window_ends
        hooked = window_ends or any(recorder.seen) or bool(recorder.failures)
        parts = [
            part
            for item in self._measurements
            for part in (self._numbers_of(item) if hooked or not item.HOOKED else self._unmeasured[id(item)])
        ]
        torch.cat(parts, out=row[: len(self.columns)])
        self._handover.add(number)
        self._see_structure(number)
        if self.config.adapt and not self._sharding:
            for step, every, seconds in self._laps.end(number, self._cadence.budget.every):
                known = every == self._cadence.budget.every  # a time of another cadence says nothing
                if known and (decided := self._cadence.see(step, seconds)) is not None:
                    self._reporter.event(step, "cadence", decided)
        for item in self._measurements:
            if (table := item.table()) is not None:
                self._handover.add_table(number, *table)
        if self._numbers:
            self._handover.add_numbers(number, self._numbers)
            self._numbers = {}
        self._handover.deliver(wait=False)

    def _numbers_of(self, item: Measurement) -> Sequence[torch.Tensor]:
        """Return a measurement's numbers; a failure costs these alone."""
        numbers: list[torch.Tensor] = []
        with CatchErrors() as guarded:
            numbers = [*item.values()]
        trouble, item.trouble = item.trouble or guarded.origin, ""
        if trouble:
            self._failed(type(item).__name__, trouble)
        if guarded.error is None:
            return numbers
        return [item.nothing]

    def _see_structure(self, number: int) -> None:
        """Raise what the host sees: weights no longer shared, layers without a gradient or a state, no noise."""
        details = self._tying.broken()
        for layer, part in self._weights.frozen():
            where = {"metric": "grad_norm", "layer": layer, "head": -1, "stat": "at_step", "value": 0.0}
            where |= {"what": f"{part} of layer {layer} does not train any more: it gets no gradient"} if part else {}
            details.append({**where, "rule": "frozen", "first_step": number - FROZEN_AFTER + 1})
        if lost := self._weights.without_state():
            layer, every = lost[0] if len(lost) == 1 else -1, len(lost) == len(self._weights.groups)
            names = ", ".join("all else" if item < 0 else f"layer {item}" for item in lost)
            what = f"the optimizer lost its state of {'all weights' if every else names}: its moments begin anew"
            where = {"metric": "opt_state_finite", "layer": layer, "head": -1, "stat": "share", "value": 0.0}
            details.append({**where, "rule": "lost", "what": what})
        for record in details:
            self._handover.alarm(number, "alarm", record)
        why = "" if self._micro_batches is None else self._micro_batches.why
        if why:
            self._reporter.once(number, "no_value", "gsnr, direction_consistency, grad_noise_scale", why)

    def _new_micro_batches(self) -> MicroBatches | None:
        own = [item for _, group in self._weights.groups for item in group]
        if not own or "weights" not in self.config.measure or micro_batches.why_not(self._sharding) is not None:
            return None
        fails = partial(self._failed, "gradients of micro-batches")
        return MicroBatches(own, self.config.micro_batches, fails, self._optimizers, self._sharding)
