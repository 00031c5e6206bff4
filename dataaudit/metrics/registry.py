"""The families, and what is known of every metric and statistic that a manifest can hold.

So a policy can tell a number that is missing from a number that never was, and both from a name that is written
wrongly. ``dataaudit explain metrics`` says the same in words; a test compares the two.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib import import_module
from types import MappingProxyType

from dataaudit.metrics.family import Family, MetricDefinition, ShardStatistic, Statistic
from dataaudit.metrics.shown import Shown

_NAMES = (
    "volume",
    "lengths",
    "exact_dup",
    "near_dup",
    "overlap",
    "contamination",
    "repeats",
    "language",
    "quality",
    "encoding_faults",
    "toxicity",
    "pii",
    "secrets",
    "drift",
    "padding",
    "coverage",
)
_DEFINITIONS = tuple(import_module(f"{__package__}.{name}.definition") for name in _NAMES)
FAMILIES: tuple[Family, ...] = tuple(definition.FAMILY for definition in _DEFINITIONS)
"""Every family, in the order in which their stages run and report."""
METRICS: MappingProxyType[str, MetricDefinition] = MappingProxyType(
    {metric.name: metric for family in FAMILIES for metric in family.metrics}
)
"""Every metric, by name."""
COPIES = frozenset(name for name, metric in METRICS.items() if metric.finds_copies)
"""Metrics that count documents of a shard that other shards hold, too."""
PERSONAL = frozenset(name for name, metric in METRICS.items() if metric.personal)
"""Metrics of personal data, whose small counts are not shown; keys and tokens are none."""
STATISTICS: MappingProxyType[tuple[str, str], Statistic] = MappingProxyType(
    {(item.metric, item.stat): item for metric in METRICS.values() for item in metric.statistics}
)
"""Every statistic, by (metric, stat)."""
SHARD_STATISTICS: tuple[ShardStatistic, ...] = tuple(item for family in FAMILIES for item in family.shard_statistics)
"""The statistics that the table of shards has a column for."""
FAMILY_OF: MappingProxyType[str, Family] = MappingProxyType(
    {metric.name: family for family in FAMILIES for metric in family.metrics}
)
"""The family of each metric."""
TOKEN_UNITS = frozenset({"tokens", "bytes/token", "nats", "hits per million tokens"})
"""Units that tokens are in."""
_NUMBER = re.compile(r"_[1-9][0-9]*$")


def statistic(metric: str, stat: str) -> Statistic | None:
    """Return a statistic by its name; those of padding are named after context lengths of the user's choice."""
    known = METRICS.get(metric)
    if known is None:
        return None
    if known.numbered:
        kind = _NUMBER.sub("", stat)
        same = (item for item in known.statistics if kind != stat and _NUMBER.sub("", item.stat) == kind)
        return next((replace(item, stat=stat) for item in same), None)
    return STATISTICS.get((metric, stat))


def stats_of(metric: str, pattern: str = "*") -> tuple[Statistic, ...]:
    """Return the statistics of a metric whose names a shell pattern matches."""
    known = METRICS.get(metric)
    return () if known is None else tuple(item for item in known.statistics if fnmatchcase(item.stat, pattern))


def is_of_tokens(metric: str, stat: str, unit: str, rule: str | None) -> bool:
    """Return whether a number counts tokens, so that it depends on the tokenizer."""
    known, kind = METRICS.get(metric), statistic(metric, stat)
    counts = known is not None and known.counts_tokens is not None and known.counts_tokens(rule)
    return unit in TOKEN_UNITS or counts or (kind is not None and kind.over_tokens)


def by_stage() -> dict[str, Family]:
    """Return the families that have a stage, by the stage's name."""
    return {family.stage_name: family for family in FAMILIES if family.stage}


def all_shown() -> tuple[Shown, ...]:
    """Return what is shown of each family, in their order."""
    return tuple(definition.SHOWN for definition in _DEFINITIONS)
