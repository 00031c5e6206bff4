"""Which cases a rule has: the scopes for which there ought to be a number, whether there is one or not.

They come from other parts of the manifest than the records themselves (splits and evaluation sets of the core, tables
of sources and languages), so a record that is missing is a case that cannot be judged, and never a case less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from itertools import product
from operator import attrgetter
from typing import Any

from dataaudit.errors import ConfigError
from dataaudit.gate.facts import MIXTURE, Facts
from dataaudit.gate.policy import COVERAGE, Policy, Rule
from dataaudit.gate.shards import shard_statistics
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.family import MetricDefinition, Shape, Statistic
from dataaudit.metrics.registry import METRICS, SHARD_STATISTICS, statistic, stats_of
from dataaudit.yamlfile import nearest

_ALL_FIELDS = attrgetter(*Scope.__slots__)
_FIELDS = ("split", "source", "language", "set", "entity", "rule")


def check_entities(policy: Policy, now: Facts, baseline: Facts | None, where: str) -> None:
    """Hold the entities that a policy names against those that are known: of a name written wrongly nothing is found.

    Raises:
        ConfigError: A rule names an entity that neither ships nor was looked for in either manifest.
    """
    problems = []
    for rule in policy.rules:
        metric = METRICS[rule.metric]
        if not metric.entities or not all(is_of_patterns(metric, one.stat) for one in chosen_statistics(rule)):
            continue
        looked_for = (one.entities.get(rule.metric, frozenset()) for one in (now, baseline) if one is not None)
        known = metric.entities.union(*looked_for)
        problems += [
            f"  rule `{rule.name}`: no entity of `{rule.metric}` is named `{name}`{nearest(name, sorted(known))}"
            for name in rule.scope.entity or ()
            if name not in known
        ]
    if problems:
        raise ConfigError("\n".join([f"{where}: {len(problems)} problem(s)", *problems]))


def is_of_patterns(metric: MetricDefinition, stat: str) -> bool:
    """Return whether the entities of a statistic are those of the patterns; a model's are its own."""
    return not metric.searches_with or metric.decided_by is None or metric.searches_with in metric.decided_by(stat)


def rule_problems(rule: Rule) -> Iterator[str]:
    """Yield what of a rule no manifest could ever have."""
    known = stats_of(rule.metric)
    if not known:
        yield f"no metric is named `{rule.metric}`{nearest(rule.metric, list(METRICS))}"
        return
    chosen = chosen_statistics(rule)
    if not chosen:
        yield f"`{rule.metric}` has no stat `{rule.stat}`{nearest(rule.stat, [one.stat for one in known])}"
        return
    units = sorted({one.unit for one in chosen})
    if units != [rule.unit]:
        yield f"`{rule.metric}.{rule.stat}` is in {' and '.join(units)}, the rule's unit is `{rule.unit}`"
    yield from _limit_problems(rule)
    if "shard" in rule.scope.per:
        yield from _shard_problems(rule)
        return
    for one in chosen:
        if rule.scope.fields not in one.shapes:
            kept = ", ".join(map(_words, sorted(one.shapes, key=lambda shape: (len(shape), _words(shape)))))
            yield f"`{one.metric}.{one.stat}` is not kept per {_words(rule.scope.fields)}, but for: {kept}"


def _limit_problems(rule: Rule) -> Iterator[str]:
    limits = (rule.budget, rule.change, rule.warn if rule.limit_kind in {"budget", "change"} else None)
    for limit in limits if rule.unit == "ratio" else ():
        if limit is not None and not 0 <= limit <= 1:
            yield f"a ratio lies between 0 and 1, the limit is {limit:g}; five percent are 0.05"
    if rule.budget_from is not None and (
        (rule.metric, rule.stat) != (MIXTURE, "share") or rule.scope.fields != {"split", "source"}
    ):
        yield f"`budget_from: declared` goes with `{MIXTURE}.share` per split and source"
    if rule.max_bad_records is not None and (rule.metric, rule.stat, rule.scope.fields) != (
        COVERAGE,
        "bytes",
        frozenset(),
    ):
        yield f"`max_bad_records` goes with `{COVERAGE}.bytes` of the whole dataset"
    if rule.max_bad_records is not None and (rule.limit_kind != "budget" or rule.comparator not in {"<=", "<"}):
        yield "`max_bad_records` goes with a `budget` and `<=`"


def _shard_problems(rule: Rule) -> Iterator[str]:
    if rule.scope.fields - {"shard", "split"}:
        yield "`per: shard` goes with `split` alone"
    if not shard_statistics(rule):
        kept = ", ".join(f"{one.metric}.{one.stat}" for one in SHARD_STATISTICS)
        yield f"`{rule.metric}.{rule.stat}` is not kept per shard; these are: {kept}"
    if rule.needs_baseline:
        yield "shards are not compared with those of a baseline; `robust_sd` compares them with each other"


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
    """Return the scopes to judge, sorted: those that ought to have a record, and all that have one."""
    fields, fixed = rule.scope.fields, rule.scope.fixed()
    found = {scope for scope in facts.records.get((stat.metric, stat.stat), {}) if _speaks_of(rule, scope)}
    splits = fixed.get("split") or facts.splits(stat.population)
    parts = _parts(rule, stat, facts)
    for split in splits if "split" in fields else (None,):
        inside = facts.splits(stat.sources_of) if split is None else (split,)
        for place in _places(fixed, fields, facts, inside):
            found.update(Scope(split=split, **place, **part) for part in parts)
        if split is not None and split in fixed.get("split", ()) and all(scope.split != split for scope in found):
            found.add(Scope(split=split))  # a split that is named and has no part, or does not exist
    return sorted(found, key=scope_key)


def _speaks_of(rule: Rule, scope: Scope) -> bool:
    """Return whether a rule speaks of a record's scope."""
    values = scope.as_dict()
    named = rule.scope.fixed()
    return values.keys() == rule.scope.fields and all(values[name] in wanted for name, wanted in named.items())


def _places(
    fixed: dict[str, tuple[str, ...]], fields: frozenset[str], facts: Facts, splits: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return the sources and languages of some splits, as far as a rule tells them apart."""
    sources = {source for split in splits for source in facts.sources.get(split, ())}
    pairs = {pair for split in splits for pair in facts.languages.get(split, ())}
    if {"source", "language"} <= fields and not {"source", "language"} & fixed.keys():
        return [{"source": source, "language": language} for source, language in pairs]
    known = {"source": sources, "language": {language for _, language in pairs}}
    names = [name for name in known if name in fields]
    return [
        dict(zip(names, values, strict=True)) for values in product(*(fixed.get(name, known[name]) for name in names))
    ]


def _parts(rule: Rule, stat: Statistic, facts: Facts) -> list[dict[str, Any]]:
    """Return the sets, entities and rules of a rule.

    Evaluation sets are listed in the core; which parts and tiers each has, only its records say. A set without any
    is one part, which has no number.
    """
    fixed = rule.scope.fixed()
    names: list[str] = [name for name in ("set", "entity", "rule") if name in rule.scope.fields]
    if "set" not in names or names == ["set"] or {"entity", "rule"} & set(names) <= fixed.keys():
        values = [fixed.get(name) or _values(name, stat, facts) for name in names]
        return [dict(zip(names, one, strict=True)) for one in product(*values)]
    held = {
        tuple((name, str(getattr(scope, name))) for name in names)
        for scope in facts.records.get((stat.metric, stat.stat), {})
        if all(getattr(scope, name) is not None for name in names)
    }
    parts = [
        dict(one) for one in held if all(dict(one)[name] in named for name, named in fixed.items() if name in names)
    ]
    known = {part["set"] for part in parts}
    sets = fixed.get("set") or _values("set", stat, facts)
    return [*parts, *({"set": name} for name in sets if name not in known)]


def _values(name: str, stat: Statistic, facts: Facts) -> Collection[str | None]:
    """Return the sets, entities or rules that a statistic is kept for; None, all together, where there is nothing."""
    if name == "set":
        return facts.sets_of(stat.metric)
    own = _held(name, facts, stat.metric, stat.stat)
    if name not in stat.absent_is_zero:
        return own
    if name == "rule":
        return own or (None,)
    looked_for = facts.entities.get(stat.metric, frozenset())
    stats = {stat_ for metric, stat_ in facts.records if metric == stat.metric}
    found = {value for other in stats for value in _held(name, facts, stat.metric, other)} & looked_for
    return own | found or looked_for


def _held(name: str, facts: Facts, metric: str, stat: str) -> set[str]:
    return {value for scope in facts.records.get((metric, stat), {}) if (value := getattr(scope, name)) is not None}


def scope_key(scope: Scope) -> tuple[tuple[bool, str], ...]:
    """Return what scopes are sorted by."""
    return tuple((value is not None, str(value)) for value in _ALL_FIELDS(scope))


def _words(shape: Shape) -> str:
    return " and ".join(name for name in _FIELDS if name in shape) or "the whole dataset"
