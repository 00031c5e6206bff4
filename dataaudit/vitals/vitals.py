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

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from dataaudit.errors import ConfigError
from dataaudit.guarded import Guarded
from dataaudit.pending import Pending
from dataaudit.runlog.writer import Columns
from dataaudit.vitals import micro_batches, updates
from dataaudit.vitals.alarms import Alarms
from dataaudit.vitals.attention_pass import said_of
from dataaudit.vitals.baseline import Key
from dataaudit.vitals.cadence import Cadence
from dataaudit.vitals.columns import OFF, Column, DeadUnits, tap_columns, tap_values
from dataaudit.vitals.config import VitalsConfig
from dataaudit.vitals.finite import state_finite
from dataaudit.vitals.micro_batches import MicroBatches
from dataaudit.vitals.norms import std
from dataaudit.vitals.replicas import loss_dispersion, parameter_checksum, ranks_that_differ
from dataaudit.vitals.sinks import Sink
from dataaudit.vitals.structure import find, is_compiled, parameters_of
from dataaudit.vitals.watching import Mark, Taps

_LOG = logging.getLogger("dataaudit")
_WHOLE = 4
"""Bytes of an element from which on an update is what was computed."""
_LOOKED_AT = "_dataaudit_vitals"
_WEIGHT_METRICS = (
    ("layer_std", "all"),
    ("grad_norm", "at_step"),
    ("update_to_weight", "all"),
    ("grad_to_weight", "all"),
    ("opt_state_finite", "share"),
)
_FAMILY_METRICS = {
    "attention": ("max_attn_logit", "attn_entropy", "dead_head_rate"),
    "activations": ("activation_mean_abs", "residual_rms", "activation_outlier_rate", "dead_neuron_count"),
    "weights": tuple(name for name, _ in (*_WEIGHT_METRICS, *micro_batches.STATS)),
}
_STEP_METRICS = ("nan_inf_events", "skipped_updates")


@dataclass(slots=True)
class _Batch:
    """Values of some steps, on their way to the host."""

    values: Pending
    steps: list[int]
    seen: list[np.ndarray]
    """Of each step: whether each column's tap measured something."""


class Vitals:
    """Looks at a model while it trains.

    Args:
        model: Not compiled yet; compile it afterwards.
        optimizer: Whose steps update it; None: weights and updates are not looked at.
        config: What is measured, how often and how closely.
        sinks: Where values go: a :class:`dataaudit.training.TrainingMonitor`, a sink of :mod:`dataaudit.vitals.sinks`.

    Raises:
        ConfigError: The model is compiled already, has no layers that are found, or is looked at already.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        config: VitalsConfig | None = None,
        sinks: Sequence[Sink] = (),
    ) -> None:
        if is_compiled(model):
            raise ConfigError(
                "vitals: the model is compiled already, and would be measured without what its layers return",
                "Make Vitals first, then torch.compile(model).",
            )
        if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
            kind = type(optimizer).__name__
            raise ConfigError(
                f"vitals: optimizer: expected one of torch's, found {kind}", "Several: name the main one."
            )
        if getattr(model, _LOOKED_AT, None) is not None:
            raise ConfigError("vitals: the model is looked at already", "Close the other Vitals first.")
        self.config = config or VitalsConfig()
        self.structure = find(model, self.config.mapping)
        self.steps = self.config.first_step - 1
        """Steps that are done."""
        self.lost = 0
        """Times that a sink failed to take what it was given."""
        self._model, self._optimizer, self._sinks = model, optimizer, tuple(sinks)
        self._groups = parameters_of(self.structure, model, optimizer)
        device = next(model.parameters()).device
        self._taps = Taps(
            self.structure, device, micro_batches=self.config.micro_batches, rows=self.config.sampled_rows
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
        )
        """What is alarmed of, and why what is not."""
        elements = [sum(one.numel() for one in own) for _, own in self._groups]
        self._cadence = Cadence(elements or [1], self.config.preset)
        self._began = 0.0
        self._first_weight = len(tap_columns(self._taps))
        self._ring = torch.full((self.config.interval, len(self.columns)), torch.nan, device=device)
        self._held: list[int] = []
        self._held_seen: list[np.ndarray] = []
        self._batches: deque[_Batch] = deque()
        self._open = False
        self._updated = False
        self._weights = torch.full((len(self._groups), len(_WEIGHT_METRICS)), torch.nan, device=device)
        self._bad = torch.full((), torch.nan, device=device)
        self._numbers: dict[Column, float | torch.Tensor] = {}
        self._logged: deque[tuple[int, list[Column], Pending]] = deque()
        self._why_no_formula = self._no_formula()
        self._copies: dict[int, list[torch.Tensor]] = {}
        self._micro_batches = self._new_micro_batches()
        self._handles = []
        if optimizer is not None:
            self._handles = [
                optimizer.register_step_pre_hook(self._before_update),
                optimizer.register_step_post_hook(self._after_update),
            ]
        self._say(self.steps, "vitals", self.summary())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        said = self.summary()
        found = said["found"]
        lines = [f"vitals of {found['model']}: {found['layers']} layers in {found['where']}"]
        lines += [f"  {name}: {value}" for name, value in found.items() if name not in {"model", "layers", "where"}]
        width = max(map(len, said["metrics"]))
        lines += [f"  {name:<{width}}  {state}" for name, state in said["metrics"].items()]
        return "\n".join([*lines, f"  alarms: {said['alarms']}"])

    def summary(self) -> dict[str, Any]:
        """Return what was found, and of each metric ``ok`` or ``not_applicable`` with the reason; plain JSON."""
        layers = self.structure.layers
        heads = sorted({one.attention.heads for one in self._taps.head_layers if one.attention})
        kinds = sorted({one.attention.kind for one in self._taps.head_layers if one.attention})
        where = layers[0].name.rpartition(".")[0] or layers[0].name
        found = {
            "model": type(self._model).__name__,
            "layers": len(layers),
            "where": where,
            "attention": f"{len(self._taps.head_layers)} of {len(layers)} layers"
            + (f", {'/'.join(map(str, heads))} heads, {'/'.join(kinds)}" if heads else ""),
            "mlp": f"{sum(one.mlp is not None or one.down is not None for one in layers)} of {len(layers)} layers",
            "embedding": self.structure.embedding[0] if self.structure.embedding else "none",
            "final_norm": self.structure.final_norm[0] if self.structure.final_norm else "none",
            "not_seen": ", ".join(self.structure.others) or "nothing",
        }
        return {
            "found": found,
            "metrics": self._metrics(),
            "estimators": {
                "max_attn_logit, attn_entropy, dead_head_rate": self._estimator(),
                "max_attn_logit lower and upper, attn_entropy all_rows": said_of(self._ring.device)
                if self._taps.head_layers
                else "none",
                "update_to_weight": f"copies of weights ({self._why_no_formula})"
                if self._why_no_formula
                else "the optimizer's state",
            },
            "preset": self.config.preset,
            "alarms": self._alarmed(),
        }

    def _alarmed(self) -> str:
        if self.config.baseline is not None:
            return "deviations from the baseline that was given; fixed thresholds are warnings"
        if self.config.healthy is not None:
            first, last = self.config.healthy
            return f"deviations from steps {first:,} to {last:,} of this run; fixed thresholds are warnings"
        return "what is not finite alone; fixed thresholds are warnings (a healthy stretch: VitalsConfig(healthy=...))"

    def _estimator(self) -> str:
        return "; ".join(sorted(set(self._taps.estimators.values()))) or "none"

    def _metrics(self) -> dict[str, str]:
        layers = self.structure.layers
        no_heads = (
            None if self._taps.head_layers else _reason([*self._taps.why.values(), _missing(layers, "attention")])
        )
        no_units = None if self._taps.unit_layers else _reason([_missing(layers, "units")])
        no_optimizer = "no optimizer was given" if self._optimizer is None else None
        reasons = {
            "max_attn_logit": no_heads,
            "attn_entropy": no_heads,
            "dead_head_rate": no_heads,
            "activation_mean_abs": None,
            "residual_rms": None,
            "activation_outlier_rate": None,
            "dead_neuron_count": no_units,
            **dict.fromkeys((name for name, _ in _WEIGHT_METRICS), no_optimizer),
            **dict.fromkeys(dict(micro_batches.STATS), micro_batches.why_not()),
            "nan_inf_events": None,
        }
        for family, metrics in _FAMILY_METRICS.items():
            if family not in self.config.measure:
                reasons.update(dict.fromkeys(metrics, "not asked for"))
        return {name: "ok" if why is None else f"not_applicable: {why}" for name, why in reasons.items()}

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
        self._begin()
        try:
            yield
        except BaseException:
            self._taps.watch.stop()
            self._open = False
            raise
        self._open = False
        self._end()

    def log(self, **numbers: float | torch.Tensor) -> None:
        """Add numbers of the step, such as ``loss`` and ``learning_rate``; tensors of one are not waited for.

        Raises:
            ConfigError: A value is neither a number nor a tensor of one.
        """
        for name, value in numbers.items():
            if name in self._metrics():
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
        return {"step": self.steps, "cadence": self._cadence.state(), "alarms": self.alarms.state(), "noise": noise}

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
        for handle in self._handles:
            handle.remove()
        if self._micro_batches is not None:
            self._micro_batches.close()
        del vars(self._model)[_LOOKED_AT]
        self._copy()
        self._deliver(wait=True)

    def _begin(self) -> None:
        number = self.steps + 1
        self._began = time.perf_counter()
        looks = self._cadence.looks(number)
        every = {-1, *(one.index for one in self.structure.layers)} if looks else set()
        layers, heads = (every if name in self.config.measure else set() for name in ("activations", "attention"))
        self._taps.clear()
        self._taps.watch.batch_row = number
        turn, closely = self._cadence.turn(number), self._cadence.closely(number)
        self._taps.watch.start(self._taps.places_of(layers, heads), turn=turn, closely=closely)
        if self._micro_batches is not None:
            self._micro_batches.start(number, looks=looks)
        self._weights.fill_(torch.nan)
        self._bad.fill_(torch.nan)
        self._updated = False

    def _due(self) -> tuple[int, ...]:
        wanted = "weights" in self.config.measure and self._groups
        return self._cadence.due(self.steps + 1) if wanted else ()

    def _before_update(self, *_: object) -> None:
        """Copy the weights of this step's layers, where the optimizer's state does not say how they move."""
        if self._open and self._why_no_formula is not None:
            self._copies = {index: [one.detach().clone() for one in self._groups[index][1]] for index in self._due()}

    def _after_update(self, optimizer: torch.optim.Optimizer, _args: object, _named: object) -> None:
        """Look at weights, gradients and the update that was just made."""
        if not self._open:
            return
        self._updated = True
        for index in self._due():
            own = self._groups[index][1]
            copies = self._copies.pop(index, None)
            norms = updates.norms(optimizer, own) if copies is None else updates.norms_from_copies(copies, own)
            self._weights[index, 1].copy_(norms.gradient)
            self._weights[index, 2].copy_(norms.update_to_weight)
            self._weights[index, 3].copy_(norms.grad_to_weight)
            self._weights[index, 0].copy_(std(own))
            if (share := state_finite(optimizer, own, self.steps)) is not None:
                self._weights[index, 4].copy_(share)
            self._bad.copy_(self._bad.nan_to_num(0.0) + ~self._weights[index, 1].isfinite())

    def _end(self) -> None:
        self._taps.watch.stop()
        self.steps += 1
        number = self.steps
        window_ends = (number - self.config.first_step + 1) % self.config.window == 0
        slot = len(self._held)
        row = self._ring[slot]
        own = tap_values(self._taps, self._units, window_ends=window_ends)
        row[: self._first_weight].copy_(own)
        weights = self._weights.numel()
        row[self._first_weight : self._first_weight + weights].copy_(self._weights.T.flatten())
        noise = None if self._micro_batches is None else self._micro_batches.finish()
        places = row[self._first_weight + weights : -len(_STEP_METRICS)]
        places.fill_(torch.nan) if noise is None else places.copy_(noise)
        row[-2].copy_(self._bad)
        row[-1].fill_(0.0 if self._updated or self._optimizer is None else 1.0)
        self._held.append(number)
        self._held_seen.append(np.append(np.array(self._taps.watch.seen) > 0, False)[self._places])
        if self.config.adapt:
            seconds = time.perf_counter() - self._began
            if (said := self._cadence.see(number, seconds)) is not None:
                self._say(number, "cadence", said)
        if self._numbers:
            self._log(number)
        if len(self._held) == self.config.interval:
            self._copy()
        self._deliver(wait=False)

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
        while self._batches and (wait or self._batches[0].values.ready()):
            batch = self._batches.popleft()
            table = batch.values.numpy()
            for number, seen, values in zip(batch.steps, batch.seen, table, strict=True):
                self._hand_over(number, seen, values)
        while self._logged and (wait or self._logged[0][2].ready()):
            number, columns, numbers = self._logged.popleft()
            values = numbers.numpy()
            for column in (one for one, known in zip(columns, np.isfinite(values), strict=True) if not known):
                self._say(number, "nan_inf", {"metric": column.metric, "layer": -1, "head": -1, "stat": column.stat})
            self._give(number, columns, values)

    def _hand_over(self, step: int, seen: np.ndarray, values: np.ndarray) -> None:
        held = np.isfinite(values)
        for column in {self.columns[place] for place in np.flatnonzero(seen & ~held)}:
            if column.metric in {"activation_mean_abs", "max_attn_logit"}:
                detail = {"metric": column.metric, "layer": column.layer, "head": column.head, "stat": column.stat}
                self._say(step, "nan_inf", detail)
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
        for found in self.alarms.see(step, values.astype(np.float64), steady=steady):
            if found.kind == "alarm" and self.config.escalate:
                self.escalate(self.config.escalate)
            self._say(step, found.kind, found.detail)
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

    def _no_formula(self) -> str | None:
        """Return why weights are copied to tell their updates; None where the optimizer's state says them."""
        if self._optimizer is None:
            return None
        if any(one.itemsize < _WHOLE for _, own in self._groups for one in own):
            return "weights below float32 round updates away"
        return updates.why_not(self._optimizer)

    def _new_micro_batches(self) -> MicroBatches | None:
        own = [one for _, group in self._groups for one in group]
        if not own or "weights" not in self.config.measure or micro_batches.why_not() is not None:
            return None
        return MicroBatches(own, self.config.micro_batches)

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

    def _all_columns(self) -> list[Column]:
        weights = [
            Column(metric, layer, -1, stat if layer >= 0 else "others")
            for metric, stat in _WEIGHT_METRICS
            for layer, _ in self._groups
        ]
        noise = [Column(metric, -1, -1, stat) for metric, stat in micro_batches.STATS]
        return [*tap_columns(self._taps), *weights, *noise, *(Column(name, -1, -1, "count") for name in _STEP_METRICS)]


def _missing(layers: Sequence[Any], what: str) -> str:
    return next((one.why[what] for one in layers if what in one.why), "")


def _reason(reasons: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(one for one in reasons if one)) or "none found"
