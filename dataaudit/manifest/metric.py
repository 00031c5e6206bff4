"""The metric record: one number with its unit, denominator, method, interval and status."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

Method = Literal["exact", "sampled", "estimated"]
Status = Literal["ok", "not_evaluated", "not_applicable"]
METHODS: tuple[Method, ...] = ("exact", "sampled", "estimated")
STATUSES: tuple[Status, ...] = ("ok", "not_evaluated", "not_applicable")
SIGNIFICANT_DIGITS = 12
SCREEN_ALONE = "screen_alone"
"""A screen's estimate that no judge has checked: how far off it is depends on the corpus, and is not known."""
PAIRS_LEFT_OUT = "pairs_left_out"
"""A number of near-duplicates that pairs which were not compared might change."""
HELD_OUT_SAMPLED = "held_out_sampled"
"""Training documents with a copy of some held-out documents, a sample: others may hold copies of the rest."""
NO_INTERVAL = frozenset({SCREEN_ALONE, PAIRS_LEFT_OUT, HELD_OUT_SAMPLED})
"""Reasons for which an inexact value has no interval; without such a reason it must have one."""


def rounded(value: float) -> float:
    """Round to 12 significant digits, as processors may differ in the last bits of a sum; whole numbers stay exact."""
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
        """Return the fields that are given."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric record, a row of ``metrics.parquet``."""

    metric: str
    """Name, as in ``dataaudit explain metrics``; public API."""
    stat: str
    """Which statistic of the metric, for example ``p95`` or ``rate``; public API."""
    scope: Scope = field(default_factory=Scope)
    """The part of the dataset that it is about."""
    unit: str
    """Unit of ``value``, ``low`` and ``high``."""
    value: float | None
    """None unless status is ``ok``."""
    low: float | None = None
    """Lower bound of sampled and estimated values, unless ``reason`` is in ``NO_INTERVAL``."""
    high: float | None = None
    """Upper bound of the same values."""
    confidence: float | None = None
    """Coverage probability of [low, high]."""
    n: int = 0
    """Observations behind the value."""
    denominator: int = 0
    """Divisor of the value; for counts, the population counted in."""
    method: Method = "exact"
    status: Status = "ok"
    """Whether there is a value."""
    reason: str = ""
    """Why there is no value, or no interval of an inexact one, as a short code."""
    version: str = "1"
    """Version of the definition."""

    def __post_init__(self) -> None:
        """Check the invariants of a record."""
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
    record = partial(Metric, metric=metric, stat=stat, scope=scope, unit=unit, n=denominator, version=version)
    if denominator == 0:
        return record(value=None, denominator=0, status="not_evaluated", reason="empty_denominator")
    return record(value=numerator / denominator, denominator=denominator)


def count(metric: str, stat: str, value: int, *, scope: Scope, unit: str, n: int, version: str) -> Metric:
    """Return an exact count."""
    record = partial(Metric, metric=metric, stat=stat, scope=scope, unit=unit, version=version)
    return record(value=float(value), n=n, denominator=n)
