"""What takes metrics out of a step, from one source each.

A measurement is a class in a file of :mod:`dataaudit.vitals.metrics`, and a line of ``MEASUREMENTS`` there. Alarms and
baselines read declarations where no torch is installed: a measurement imports torch for type checkers, or within a
method.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dataaudit.base.statistics import Floats
from dataaudit.vitals.metric import Column, Metric

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dataaudit.vitals.masters import Masters
    from dataaudit.vitals.micro_batches import MicroBatches
    from dataaudit.vitals.model_hooks import ModelHooks
    from dataaudit.vitals.sharding import Sharding
    from dataaudit.vitals.structure import Structure
    from dataaudit.vitals.weights import Weights


@dataclass(slots=True, kw_only=True)
class Sources:
    """What measurements read: parts of the model, and the step whose numbers are taken."""

    model: nn.Module
    config: Any
    """The run's VitalsConfig, whose module imports declarations of metrics."""
    structure: Structure
    hooks: ModelHooks
    weights: Weights
    micro_batches: MicroBatches | None
    optimizers: Sequence[torch.optim.Optimizer]
    masters: Masters
    """Finds float32 masters of weights below that."""
    sharding: Sharding
    """Over which ranks parameters are spread; false where they are whole."""
    step: int = 0
    measured: bool = False
    """Whether the step that is open is measured; in others nothing is read, so that the budget holds."""
    window_ends: bool = False
    """Whether a window of ``VitalsConfig.window`` steps ends with it."""

    def empty(self, *shape: int) -> torch.Tensor:
        """Return NaN, float32 on the device."""
        return self.hooks.activations.new_full(shape, float("nan"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A step whose numbers are on the host."""

    gradient_norm: float
    """Before clipping; NaN: not known."""
    loss_scale: float
    event: Callable[[str, Mapping[str, Any]], None]
    """Writes an event of the step: its kind, and its detail."""
    columns: Sequence[Column]
    """Of all measurements."""
    values: Floats
    """float64[columns], NaN where nothing was measured; earlier measurements have made their changes."""


class Measurement:
    """Takes metrics from one source: from hooks, from weights at their turn, from gradients of micro-batches."""

    METRICS: ClassVar[tuple[Metric, ...]]
    FAMILY: ClassVar[str] = ""
    """Of ``VitalsConfig.measure``; empty: taken always."""
    HOOKED: ClassVar[bool] = False
    """Whether its numbers come from hooks alone: in a step without them, those of its first call stand."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.trouble = ""
        """What failed in a hook of its own: it is reported at the end of the step."""

    @functools.cached_property
    def nothing(self) -> torch.Tensor:
        """NaN for each column: what is measured by :meth:`arrived` alone, or not now."""
        return self.sources.empty(len(self.columns()))

    @property
    def asked(self) -> bool:
        """Whether the open step is measured, and the family is asked for."""
        return self.sources.measured and (not self.FAMILY or self.FAMILY in self.sources.config.measure)

    def columns(self) -> list[Column]:
        """Return what :meth:`values` returns, number by number; every measurement has its own."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin a step, before its forward passes."""

    def values(self) -> Sequence[torch.Tensor]:
        """Return a step's numbers on the device, float32, NaN where nothing was measured; nothing waits for it."""
        return [self.nothing]

    def arrived(self, values: Floats, context: Arrived) -> None:
        """See, and change, the numbers of a step when they are on the host."""

    def table(self) -> tuple[Sequence[Column], torch.Tensor] | None:
        """Return values of the step beside its vector, written where they are not 0, and not judged; None for none."""
        return None

    def why_not(self) -> str | None:
        """Return why its metrics do not apply to this run; None where they do."""
        return None

    def reasons(self) -> dict[str, str]:
        """Return by metric why it does not apply to this run; nothing of those that do."""
        why = self.why_not()
        return {} if why is None else dict.fromkeys((metric.name for metric in self.METRICS), why)

    def gaps(self) -> dict[str, str]:
        """Return by metric why the latest step gave no number, where that is known."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it, under names of its own; this may wait for the device."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""

    def close(self) -> None:
        """Take hooks off, and end threads."""
