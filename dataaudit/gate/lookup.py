"""The record of a scope, what its absence means, and what it is compared with in a baseline."""

from __future__ import annotations

from dataclasses import replace

from dataaudit.gate.facts import Facts
from dataaudit.gate.judge import EMPTY, NEW, NO_BASELINE, Compared
from dataaudit.manifest.catalogue import Statistic
from dataaudit.manifest.metric import Metric, Scope

_OTHER_TOKENIZER = "other_tokenizer"
_OTHER_DEFINITION = "other_definition"
_BASELINE_MISSING = "baseline_missing"


def record_of(stat: Statistic, facts: Facts, scope: Scope) -> Metric | None:
    """Return the record of a scope; 0 where its absence says that there is none of it.

    A part of a share has no record where it has nothing. That is known from elsewhere: from the tables of sources
    and languages, or from the entities that were looked for and the record of the statistic for all of them together.
    """
    found = facts.find(stat.metric, stat.stat, scope) or why_not_at_all(stat, facts, scope)
    zero = [name for name in stat.absent_is_zero if getattr(scope, name) is not None]
    if found is not None or not zero:
        return found
    if stat.metric in {"source_mix_share", "language_share"}:
        whole = next((one for one in facts.records.get((stat.metric, stat.stat), {}).values()), None)
        if whole is None or _is_listed(facts, scope, zero[0]):
            return None
    else:
        whole = facts.find(stat.metric, stat.stat, replace(scope, **dict.fromkeys(zero)))
        if whole is None or whole.status != "ok" or (scope.entity is not None and scope.entity not in facts.entities):
            return None
    return Metric(
        metric=stat.metric, stat=stat.stat, scope=scope, unit=stat.unit, value=0.0, n=whole.n,
        denominator=whole.denominator, version=whole.version,
    )  # fmt: skip


def why_not_at_all(stat: Statistic, facts: Facts, scope: Scope) -> Metric | None:
    """Return why a part has no number, where the whole dataset has none for a reason that holds for its parts."""
    whole = facts.find(stat.metric, stat.stat, Scope())
    if whole is None or whole.status == "ok" or whole.reason == EMPTY:
        return None
    return replace(whole, scope=scope)


def _is_listed(facts: Facts, scope: Scope, name: str) -> bool:
    """Return whether the manifest's own tables say that there is some of it, so that a record is missing."""
    by_split = facts.sources if name == "source" else facts.languages
    splits = (scope.split,) if scope.split is not None else tuple(by_split)
    return any(getattr(scope, name) in by_split.get(split, ()) for split in splits)


def compared_with(stat: Statistic, scope: Scope, record: Metric | None, now: Facts, baseline: Facts | None) -> Compared:
    """Return what a record is compared with in the baseline, or why there is nothing."""
    if baseline is None:
        return Compared(reason=NO_BASELINE)
    if "token" in stat.unit and now.tokenizer != baseline.tokenizer:
        return Compared(reason=_OTHER_TOKENIZER)
    other = record_of(stat, baseline, scope)
    if other is None:
        return Compared(reason=_BASELINE_MISSING if _was_there(stat, scope, baseline) else NEW)
    if other.value is None:
        return Compared(reason=f"baseline_{other.reason}" if other.status == "not_evaluated" else other.reason)
    if record is not None and (record.version, record.unit) != (other.version, other.unit):
        return Compared(reason=_OTHER_DEFINITION)
    return Compared(value=other.value)


def _was_there(stat: Statistic, scope: Scope, facts: Facts) -> bool:
    """Return whether a manifest had this part of the corpus, so that a record is missing."""
    if scope.split is not None and scope.split not in facts.held_out:
        return False
    listed = [_is_listed(facts, scope, name) for name in ("source", "language") if getattr(scope, name) is not None]
    sets = facts.protected if stat.metric == "benchmark_contamination" else facts.splits("held_out")
    return all(listed) and (scope.set is None or scope.set in sets)
