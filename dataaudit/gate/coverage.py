"""What was not read was not audited: the rule about it that every gate has."""

from __future__ import annotations

from dataaudit.gate.policy import Policy, Rule

COVERAGE = "coverage_unread_bytes"
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


def is_added(rule: Rule) -> bool:
    """Return whether the gate added a rule itself."""
    return rule.model_copy(update={"name": _NAME}) == _RULE


def _limits_coverage(rule: Rule) -> bool:
    """Return whether a rule bounds from above what of the whole dataset may be unread, baseline or not."""
    whole = rule.metric == COVERAGE and not rule.scope.fields
    return whole and rule.required and rule.limit_kind == "budget" and rule.comparator not in {">=", ">"}
