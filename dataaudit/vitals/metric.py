"""What a metric of vitals is: what it declares for alarms and pages, and how its numbers come out of a step.

A *measurement* takes one or several metrics from one source. It is a class in a file of
:mod:`dataaudit.vitals.metrics`, and a line of ``MEASUREMENTS`` there. Alarms and baselines read declarations where no
torch is installed: a measurement imports torch for type checkers, or within a method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from dataaudit.base.statistics import Floats

if TYPE_CHECKING:
    import torch

    from dataaudit.vitals.config import VitalsConfig
    from dataaudit.vitals.micro_batches import MicroBatches
    from dataaudit.vitals.model_hooks import ModelHooks
    from dataaudit.vitals.structure import Structure
    from dataaudit.vitals.weights import Weights

Rule = Literal["fold", "rise", "collapse", "dead", "frozen", "state", "not_finite", "skipped"]
ALL: frozenset[str] = frozenset()
"""Every statistic of a metric."""
FIXED_RULE = "a fixed rule holds for it"


class Key(NamedTuple):
    """What a series is of, as in the run log's table of values."""

    metric: str
    layer: int
    head: int
    stat: str


@dataclass(frozen=True, slots=True)
class Column:
    """Which number stands in a column of a step's vector."""

    metric: str
    layer: int
    head: int
    stat: str
    site: int = -1
    """Where it is measured, -1: nowhere. A number of a site that is not finite is an event, not a gap."""
    counted: int = -1
    """Site that counts what a share is of; -1: none."""
    of: int = 0
    """What a share or count is of, where that is always the same; 0: it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A fixed threshold from the literature."""

    value: float
    source: str
    stats: frozenset[str] = ALL
    """Statistics that it holds for."""
    above: bool = True
    """Whether a value above it is warned of; below it otherwise."""
    steady_only: bool = False
    """Whether it holds only outside of warm-up and decay of the learning rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What a metric declares."""

    name: str
    judged: str = FIXED_RULE
    """How its series are judged against their own past: ``log`` of an amount, ``asinh``, ``entropy``, ``plain``,
    ``share`` (k of n); else why they are not."""
    stats: frozenset[str] = ALL
    """Statistics that are so judged; of the others, another one is."""
    exponent: float = float("nan")
    """Of the learning rate, where theory says one."""
    whole: bool = False
    """Whether a ``share`` is the count k itself."""
    logarithm: bool = False
    """Whether a baseline of another run takes its logarithm."""
    estimates: frozenset[str] = ALL
    """Statistics with a bound, or that report one: fixed thresholds hold for them, and no deviation is alarmed of."""
    rules: Mapping[Rule, frozenset[str]] = field(default_factory=dict)
    """Rules of always.py, and the statistics that they hold for."""
    thresholds: tuple[Threshold, ...] = ()
    severity: int = 3
    """Of a warning of these."""
    grave: float = float("inf")
    """Value from which on that is severity 1."""
    listed: bool = True
    """Whether the summary lists it, and no number of the loop may have its name."""
    chart: tuple[str, str] | None = None
    """Statistic that the page of a run draws, and its title."""

    def follows(self, rule: Rule, stat: str) -> bool:
        """Return whether a rule holds for a statistic."""
        return rule in self.rules and (not self.rules[rule] or stat in self.rules[rule])


@dataclass(slots=True, kw_only=True)
class Sources:
    """What measurements read: parts of the model, and the step whose numbers are taken."""

    config: VitalsConfig
    structure: Structure
    hooks: ModelHooks
    weights: Weights
    micro_batches: MicroBatches | None
    optimizers: Sequence[torch.optim.Optimizer]
    step: int = 0
    window_ends: bool = False
    """Whether a window of ``VitalsConfig.window`` steps ends with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A step whose numbers are on the host."""

    gradient_norm: float
    """Before clipping; NaN: not known."""
    loss_scale: float
    event: Callable[[str, Mapping[str, Any]], None]
    """Writes an event of the step: its kind, and its detail."""


class Measurement:
    """Takes metrics from one source: from hooks, from weights at their turn, from gradients of micro-batches."""

    METRICS: ClassVar[tuple[Metric, ...]]
    FAMILY: ClassVar[str] = ""
    """Of ``VitalsConfig.measure``; empty: taken always."""
    HOOKED: ClassVar[bool] = False
    """Whether its numbers come from hooks alone: in a step without them, those of its first call stand."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def columns(self) -> list[Column]:
        """Return what :meth:`values` returns, number by number."""
        raise NotImplementedError

    def values(self) -> Sequence[torch.Tensor]:
        """Return a step's numbers on the device, float32, NaN where nothing was measured; nothing waits for it."""
        raise NotImplementedError

    def arrived(self, values: Floats, context: Arrived) -> None:
        """See, and change, the numbers of a step when they are on the host."""

    def why_not(self) -> str | None:
        """Return why its metrics do not apply to this run; None where they do."""
        return None

    def gaps(self) -> dict[str, str]:
        """Return by metric why the latest step gave no number, where that is known."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it, under names of its own; this may wait for the device."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
