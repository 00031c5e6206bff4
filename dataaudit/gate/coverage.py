"""What was not read was not audited: the rule about it that every gate has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dataaudit.gate.policy import Policy, Rule
from dataaudit.manifest.metric import Metric, Scope

if TYPE_CHECKING:
    from dataaudit.gate.facts import Partial

COVERAGE = "coverage_unread_bytes"
UNKNOWN_BYTES = "unknown_bytes"
"""Reason of a number that lacks a shard which was not read and whose size is not known."""
_NAME = "coverage"
_RULE = Rule(
    name=_NAME,
    metric=COVERAGE,
    stat="shard_bytes",
    unit="bytes",
    budget=0.0,
    reason="Every shard has to be read. The gate adds this rule to a policy that has none about coverage.",
)


def complete_rules(policy: Policy) -> tuple[Rule, ...]:
    """Return the rules of a policy, and one about coverage when none bounds it for the whole dataset."""
    if any(_limits_coverage(rule) for rule in policy.rules):
        return policy.rules
    name = _NAME
    while any(rule.name == name for rule in policy.rules):
        name += "-of-all-shards"
    return (*policy.rules, _RULE.model_copy(update={"name": name}))


def without_tolerated(rule: Rule, record: Metric | None, partial: Iterable[Partial]) -> Metric | None:
    """Return a record of unread bytes without the bad records that a rule tolerates.

    A shard of which more is bad counts as unread as a whole, whatever the build's `reader.max_bad_records` let pass: a
    record without a text loses no byte.
    """
    if rule.max_bad_records is None or record is None or record.value is None:
        return record
    value = record.value
    for shard in partial:
        value += -shard.bad_bytes + (shard.size if shard.share > rule.max_bad_records else 0)
    return replace(record, value=max(0.0, value))


def is_of_unknown_size(metric: str, scope: Scope, unsized: Iterable[tuple[str, str]]) -> bool:
    """Return whether a number of unread bytes lacks a shard whose bytes nobody knows: a link to nothing, a pipe."""
    own = (scope.split in {None, split} and scope.rule in {None, reason} for split, reason in unsized)
    return metric == COVERAGE and any(own)


def beyond_tolerance(rule: Rule, counts: Mapping[int, int], partial: Iterable[Partial]) -> Mapping[int, int]:
    """Return unread bytes by shard as :func:`without_tolerated` counts them."""
    if rule.max_bad_records is None:
        return counts
    own = {shard.shard: shard.size if shard.share > rule.max_bad_records else 0 for shard in partial}
    return {shard: number for shard, number in {**counts, **own}.items() if number}


def is_added(rule: Rule) -> bool:
    """Return whether the gate added a rule itself."""
    return rule.model_copy(update={"name": _NAME}) == _RULE


def _limits_coverage(rule: Rule) -> bool:
    """Return whether a rule bounds from above what of the whole dataset may be unread, baseline or not."""
    whole = rule.metric == COVERAGE and not rule.scope.fields
    return whole and rule.required and rule.limit_kind == "budget" and rule.comparator not in {">=", ">"}
