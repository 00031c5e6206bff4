"""Which cases a rule has: the scopes for which there ought to be a number, whether there is one or not.

They come from other parts of the manifest than the records themselves (splits and evaluation sets of the core, tables
of sources and languages), so a record that is missing is a case that cannot be judged, and never a case less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from dataaudit.errors import ConfigError
from dataaudit.gate.facts import Facts
from dataaudit.gate.policy import Policy, Rule
from dataaudit.gate.shards import shard_statistics
from dataaudit.manifest.catalogue import METRICS, Shape, Statistic, statistic, stats_of
from dataaudit.manifest.metric import Scope
from dataaudit.yamlfile import nearest

_FIELDS = ("split", "source", "language", "set", "entity", "rule")


def check_policy(policy: Policy, where: str) -> None:
    """Hold a policy against the catalogue of metrics: a name that is written wrongly would never be judged.

    Raises:
        ConfigError: A rule names what no manifest holds; every such rule is named.
    """
    problems = [f"  rule `{rule.name}`: {problem}" for rule in policy.rules for problem in _problems(rule)]
    if problems:
        raise ConfigError("\n".join([f"{where}: {len(problems)} problem(s)", *problems]))


def _problems(rule: Rule) -> Iterator[str]:
    known = stats_of(rule.metric)
    if not known:
        yield f"no metric is named `{rule.metric}`{nearest(rule.metric, METRICS)}"
        return
    chosen = chosen_statistics(rule)
    if not chosen:
        yield f"`{rule.metric}` has no stat `{rule.stat}`{nearest(rule.stat, [one.stat for one in known])}"
        return
    units = sorted({one.unit for one in chosen})
    if units != [rule.unit]:
        yield f"`{rule.metric}.{rule.stat}` is in {' and '.join(units)}, the rule's unit is `{rule.unit}`"
    if "shard" in rule.scope.per:
        if rule.scope.fields - {"shard", "split"}:
            yield "`per: shard` goes with `split` alone"
        if not shard_statistics(rule):
            yield f"`{rule.metric}.{rule.stat}` is not kept per shard"
        if rule.needs_baseline:
            yield "shards are not compared with those of a baseline; `robust_sd` compares them with each other"
        return
    for one in chosen:
        if rule.scope.fields not in one.shapes:
            yield f"`{one.metric}.{one.stat}` is not kept per {_words(rule.scope.fields)}, but for: {_shapes(one)}"


def chosen_statistics(rule: Rule) -> tuple[Statistic, ...]:
    """Return the statistics that a rule speaks of, as the catalogue knows them."""
    if "*" in rule.stat:
        return stats_of(rule.metric, rule.stat)
    found = statistic(rule.metric, rule.stat)
    return () if found is None else (found,)


def judged_stats(rule: Rule, facts: Facts) -> tuple[str, ...]:
    """Return the names of the statistics that a manifest has for a rule; of a pattern those that it holds."""
    if "*" not in rule.stat:
        return (rule.stat,)
    held = {stat for metric, stat in facts.records if metric == rule.metric and statistic(metric, stat)}
    return tuple(sorted(stat for stat in held if fnmatchcase(stat, rule.stat)))


def expected_scopes(rule: Rule, stat: Statistic, facts: Facts) -> list[Scope]:
    """Return the scopes for which a manifest ought to have a record, sorted."""
    fixed, per = rule.scope.fixed(), rule.scope.per
    splits = fixed.get("split") or facts.splits(stat.population)
    outer = splits if "split" in rule.scope.fields else (None,)
    found: set[Scope] = set()
    for split in outer:
        inside = splits if split is None else (split,)
        choices: dict[str, Any] = {
            name: fixed.get(name) or _values(name, stat, facts, inside)
            for name in _FIELDS[1:]
            if name in fixed or name in per
        }
        for values in product(*choices.values()):
            found.add(replace(Scope(split=split), **dict(zip(choices, values, strict=True))))
    return sorted(found, key=scope_key)


def _values(name: str, stat: Statistic, facts: Facts, splits: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values that a field takes in some splits."""
    if name == "source":
        return tuple({source for split in splits for source in facts.sources.get(split, ())})
    if name == "language":
        return tuple({language for split in splits for language in facts.languages.get(split, ())})
    if name == "set":
        return facts.protected if stat.metric == "benchmark_contamination" else facts.splits("held_out")
    return tuple(
        {
            value
            for (metric, _), records in facts.records.items()
            if metric == stat.metric
            for scope in records
            if (value := getattr(scope, name)) is not None
        }
    )


def scope_key(scope: Scope) -> tuple[tuple[bool, str], ...]:
    """Return what scopes are sorted by."""
    return tuple((value is not None, str(value)) for value in (getattr(scope, name) for name in Scope.__slots__))


def _shapes(stat: Statistic) -> str:
    ordered = sorted(stat.shapes, key=lambda shape: (len(shape), _words(shape)))
    return ", ".join(_words(shape) for shape in ordered)


def _words(shape: Shape) -> str:
    return " and ".join(name for name in _FIELDS if name in shape) or "the whole dataset"
