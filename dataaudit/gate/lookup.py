"""The record of a scope, what its absence means, and what it is compared with in a baseline."""

from __future__ import annotations

from dataclasses import replace

from dataaudit.gate.facts import MIXTURE, Facts
from dataaudit.gate.judge import AT_LEAST, EMPTY, NEW, NO_BASELINE, Compared
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.comparable import Meaning, Meant
from dataaudit.metrics.family import Statistic

_BASELINE_MISSING = "baseline_missing"


def record_of(stat: Statistic, facts: Facts, scope: Scope) -> Metric | None:
    """Return the record of a scope; 0 where its absence says that there is none of it.

    A part that has nothing has no record. That it has nothing is known from elsewhere: from the tables of sources and
    languages, or from what was looked for and the record of the statistic for all parts together.
    """
    found = facts.find(stat.metric, stat.stat, scope) or why_not_at_all(stat, facts, scope)
    if found is not None:
        return found
    if stat.zero_version and not facts.has(stat.metric) and scope.split in {None, *facts.held_out}:
        return replace(_zero(stat, scope, None), version=stat.zero_version)
    if stat.is_amount:
        return _no_amount(stat, facts, scope)
    zero = [name for name in stat.absent_is_zero if getattr(scope, name) is not None]
    if not zero or not _was_looked_for(stat, facts, scope):
        return None
    whole = facts.find(stat.metric, stat.stat, replace(scope, **dict.fromkeys(zero)))
    if whole is None or whole.status != "ok":
        return None if whole is None else replace(whole, scope=scope)
    return _zero(stat, scope, whole)


def _no_amount(stat: Statistic, facts: Facts, scope: Scope) -> Metric | None:
    """Return 0 for a source or language that the manifest does not list; None where it does, or cannot tell."""
    unknown = scope.split is not None and scope.split not in facts.held_out
    unnamed = facts.is_folded and scope.source is not None
    unnamed = unnamed or (scope.language is not None and scope.language not in facts.detectable)
    records = facts.records.get((stat.metric, stat.stat), {})
    if not records or unknown or unnamed or scope.source is scope.language is None or _is_listed(facts, scope):
        return None
    fields = scope.as_dict().keys()
    near = (one for place, one in records.items() if place.split == scope.split and place.as_dict().keys() == fields)
    whole = facts.find(stat.metric, stat.stat, Scope(split=scope.split)) or next(near, None)
    return _zero(stat, scope, whole)


def _zero(stat: Statistic, scope: Scope, whole: Metric | None) -> Metric:
    """Return a record of nothing, of as much as another record speaks of."""
    zero = Metric(metric=stat.metric, stat=stat.stat, scope=scope, unit=stat.unit, value=0.0)
    if whole is None:
        return zero
    return replace(zero, n=whole.n, denominator=whole.denominator, version=whole.version)


def _was_looked_for(stat: Statistic, facts: Facts, scope: Scope) -> bool:
    """Return whether a part would have a record if there were any of it: names may be written wrongly."""
    if scope.entity is not None and "entity" in stat.absent_is_zero:
        return scope.entity in facts.entities.get(stat.metric, ())
    if scope.source is not None and "source" in stat.absent_is_zero:
        return any(scope.source in facts.sources.get(split, ()) for split in facts.splits(stat.sources_of))
    return True


def why_not_at_all(stat: Statistic, facts: Facts, scope: Scope) -> Metric | None:
    """Return why a part has no number, where the whole dataset has none for a reason that holds for its parts."""
    whole = facts.find(stat.metric, stat.stat, Scope())
    if whole is None or whole.status == "ok" or whole.reason == EMPTY:
        return None
    return replace(whole, scope=scope)


def _is_listed(facts: Facts, scope: Scope) -> bool:
    """Return whether the manifest's own tables say that there is some of a source, of a language, or of both."""
    splits = facts.held_out if scope.split is None else (scope.split,)
    if scope.language is None:
        return any(scope.source in facts.sources.get(split, ()) for split in splits)
    pairs = (pair for split in splits for pair in facts.languages.get(split, ()))
    return any(scope.source in {None, source} and scope.language == language for source, language in pairs)


def declared_for(scope: Scope, now: Facts) -> Compared:
    """Return the share that the build's config declares for a source of a split, 0 where it does not name it."""
    found = now.find(MIXTURE, "declared", scope)
    if found is not None:
        return Compared(value=found.value)
    has_any = any(place.split == scope.split for place in now.records.get((MIXTURE, "declared"), {}))
    return Compared(value=0.0) if has_any else Compared(reason="no_mixture")


def is_in_corpus(facts: Facts, scope: Scope) -> bool:
    """Return whether a manifest lists the split, the source and the language of a scope, as far as it names them."""
    if scope.split is not None and scope.split not in facts.held_out:
        return False
    return scope.source is scope.language is None or _is_listed(facts, scope)


def compared_with(
    stat: Statistic, scope: Scope, record: Metric | None, baseline: Facts | None, meaning: Meaning | None
) -> Compared:
    """Return what a record is compared with in the baseline, or why there is nothing."""
    if baseline is None or meaning is None:
        return Compared(reason=NO_BASELINE)
    other = record_of(stat, baseline, scope)
    if other is None:
        return Compared(reason=_BASELINE_MISSING if is_part(stat, baseline, scope) else NEW)
    if baseline.is_at_least(stat.metric, stat.stat, scope):
        return Compared(reason=f"baseline_{AT_LEAST}")
    if other.value is None:
        return Compared(reason=f"baseline_{other.reason}" if other.status == "not_evaluated" else other.reason)
    was, now = (Meant(one.unit, one.version) for one in (other, record or other))
    if why_not := meaning.between(was, now, stat.metric, stat.stat, scope.as_dict()):
        return Compared(reason=why_not)
    return Compared(value=other.value, denominator=other.denominator)


def is_part(stat: Statistic, facts: Facts, scope: Scope) -> bool:
    """Return whether the corpus has the split, source, language or set that a scope names: its record is missing."""
    return is_in_corpus(facts, scope) and (scope.set is None or scope.set in facts.sets_of(stat.metric))
