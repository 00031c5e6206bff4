"""The metric record: one number with its unit, denominator, method, interval and status."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

Method = Literal["exact", "sampled", "estimated"]
Status = Literal["ok", "not_evaluated", "not_applicable"]
METHODS: tuple[Method, ...] = ("exact", "sampled", "estimated")
STATUSES: tuple[Status, ...] = ("ok", "not_evaluated", "not_applicable")
SIGNIFICANT_DIGITS = 12
SCREEN_ALONE = "screen_alone"
"""A screen's estimate that no judge was held against: how far off it is depends on the corpus, and is not known."""
PAIRS_LEFT_OUT = "pairs_left_out"
"""A number of near-duplicates that pairs which were not compared might change; what it were with them is not known."""
NO_INTERVAL = frozenset({SCREEN_ALONE, PAIRS_LEFT_OUT})
"""Reasons for which an inexact value has no interval; without one of these it must have one."""


def rounded(value: float) -> float:
    """Round to 12 significant digits; whole numbers stay exact; -0.0 becomes 0.0.

    A float sum may differ in its last bits between processors; 12 digits keep what is meant.
    """
    if not math.isfinite(value):
        raise ValueError(f"a metric value must be finite, found {value!r}")
    if value == int(value):
        return float(int(value))
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a metric speaks of; an absent field means all."""

    split: str | None = None
    source: str | None = None
    language: str | None = None
    shard: int | None = None
    set: str | None = None
    entity: str | None = None
    rule: str | None = None

    def as_dict(self) -> dict[str, str | int]:
        """Return only the fields that are given."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric record, a row of ``metrics.parquet``."""

    metric: str
    """Name, as in ``dataaudit explain metrics``; public API."""
    stat: str
    """Which statistic of the metric, for example ``p95`` or ``rate``; public API."""
    scope: Scope = field(default_factory=Scope)
    """What it speaks of."""
    unit: str
    """Unit of ``value``, ``low`` and ``high``."""
    value: float | None
    """The number; None unless status is ``ok``."""
    low: float | None = None
    """Lower bound, for sampled and estimated values but those whose ``reason`` is one of ``NO_INTERVAL``."""
    high: float | None = None
    """Upper bound, of the same values."""
    confidence: float | None = None
    """Coverage probability of [low, high]."""
    n: int = 0
    """Number of observations behind the value."""
    denominator: int = 0
    """What the value was divided by; for counts, the population counted in."""
    method: Method = "exact"
    """How the value was found."""
    status: Status = "ok"
    """Whether there is a value."""
    reason: str = ""
    """Why there is no value, or no interval of an inexact one, as a short code."""
    version: str = "1"
    """Version of the definition."""

    def __post_init__(self) -> None:
        """Check the laws of a record; these are invariants of our own code."""
        if self.method not in METHODS or self.status not in STATUSES:
            raise ValueError(f"{self.metric}: unknown method or status {self.method}/{self.status}")
        if (self.value is None) == (self.status == "ok"):
            raise ValueError(f"{self.metric}.{self.stat}: status {self.status} with value {self.value}")
        if self.status != "ok" and not self.reason:
            raise ValueError(f"{self.metric}.{self.stat}: status {self.status} needs a reason")
        self._check_interval()
        if self.n < 0 or self.denominator < 0:
            raise ValueError(f"{self.metric}.{self.stat}: n {self.n}, denominator {self.denominator} below 0")
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if number is not None:
                object.__setattr__(self, name, rounded(number))

    def _check_interval(self) -> None:
        bounds = (self.low, self.high, self.confidence)
        inexact, without = self.status == "ok" and self.method != "exact", self.reason in NO_INTERVAL
        if without and not inexact:
            raise ValueError(f"{self.metric}.{self.stat}: {self.reason} is a reason of inexact values alone")
        if sum(bound is not None for bound in bounds) != (3 if inexact and not without else 0):
            raise ValueError(
                f"{self.metric}.{self.stat}: exactly the inexact values carry low, high and confidence, or one of"
                f" the reasons {', '.join(sorted(NO_INTERVAL))}"
            )
        if self.value is None or self.low is None or self.high is None or self.confidence is None:
            return
        if not self.low <= self.value <= self.high or not 0 < self.confidence <= 1:
            raise ValueError(
                f"{self.metric}.{self.stat}: {self.value} with the interval [{self.low}, {self.high}]"
                f" at confidence {self.confidence}"
            )


def ratio(metric: str, stat: str, numerator: int, denominator: int, *, scope: Scope, unit: str, version: str) -> Metric:
    """Return an exact ratio; a denominator of 0 is ``not_evaluated``, never a number."""
    if denominator == 0:
        return Metric(
            metric=metric,
            stat=stat,
            scope=scope,
            unit=unit,
            value=None,
            n=0,
            denominator=0,
            status="not_evaluated",
            reason="empty_denominator",
            version=version,
        )
    return Metric(
        metric=metric,
        stat=stat,
        scope=scope,
        unit=unit,
        value=numerator / denominator,
        n=denominator,
        denominator=denominator,
        version=version,
    )


def count(metric: str, stat: str, value: int, *, scope: Scope, unit: str, n: int, version: str) -> Metric:
    """Return an exact count."""
    return Metric(
        metric=metric,
        stat=stat,
        scope=scope,
        unit=unit,
        value=float(value),
        n=n,
        denominator=n,
        version=version,
    )
