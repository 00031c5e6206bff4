"""What a metric of vitals declares: how its series are judged, which fixed rules hold, and what a page draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, NamedTuple

Rule = Literal["fold", "rise", "collapse", "dead", "frozen", "state", "not_finite", "skipped", "unused"]
ALL: frozenset[str] = frozenset()
"""Every statistic of a metric."""
FOLD = 4.0
"""Times of its recent median, or part of it, from which on an amount is far from that."""
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


@dataclass(frozen=True, slots=True)
class Threshold:
    """A fixed threshold from the literature."""

    value: float
    source: str
    _: KW_ONLY
    stats: frozenset[str] = ALL
    """Statistics that it holds for."""
    above: bool = True
    """Whether a value above it is warned of; below it otherwise."""
    steady_only: bool = False
    """Whether it holds only outside of warm-up and decay of the learning rate."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric declares."""

    name: str
    judged: str = FIXED_RULE
    """How its series are judged against their own past: ``log`` of an amount above 0, ``asinh`` of one of either sign
    and many sizes, ``entropy`` as log(0.01 + x), ``plain`` as it is, ``share`` (k of n); else why they are not."""
    _: KW_ONLY
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
    """Rules of fixed_rules.py, and the statistics that they hold for."""
    fold: float = FOLD
    """Of the rule of that name."""
    thresholds: tuple[Threshold, ...] = ()
    waits: bool = False
    """Whether what leaves its own past, and nothing else of its layer does, is a hint."""
    severity: int = 3
    """Of a warning of these."""
    grave: float = float("inf")
    """Value from which on that is severity 1."""
    flops: str = ""
    """What a measurement of it takes beside the training step, as a formula; empty: less than an operation an element
    read."""
    listed: bool = True
    """Whether the summary lists it, and no number of the loop may have its name."""
    part: str = "head"
    """What a number in ``head`` is of, in words."""
    chart: tuple[str, str] | None = None
    """Statistic that the page of a run draws, and its title."""
    by_head: bool = False
    """Whether it is of heads, though of another family than attention."""

    def follows(self, rule: Rule, stat: str) -> bool:
        """Return whether a rule holds for a statistic."""
        return rule in self.rules and stat not in self.estimates and (not self.rules[rule] or stat in self.rules[rule])
