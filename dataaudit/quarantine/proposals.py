"""From a verdict to proposals: the shards that broke a per-shard rule, for somebody to look at.

A proposal holds nothing back. `quarantine accept` puts it in force, `quarantine lift` turns it down; the gate does not
make one again while one is open, in force, or was turned down with the same numbers.

Not proposed are: cases that are waived, that warn, or that could not be evaluated; shards that the build could not read
(lists leave them out anyway); and, for rules about duplicates, shards that have the same digest as another one (an
entry would hold back both, and the data with them) and held-out shards (what they share with training data is mended
there).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataaudit.gate.verdict import Case, RuleResult, State, Verdict
from dataaudit.manifest.load import Manifest
from dataaudit.quarantine.changes import Author, Change, Wish, propose
from dataaudit.quarantine.entry import Evidence
from dataaudit.quarantine.selection import COLUMNS, digests_of
from dataaudit.quarantine.targets import target_of
from dataaudit.yamlfile import NAME_PATTERN

_DUPLICATES = frozenset({"exact_dup_rate", "near_dup_rate"})
_PERSONAL = frozenset({"pii_hit_rate"})
"""Metrics whose value for a single shard may point at people; the proposal names metric and limit alone."""
TWIN = "twin"
HELD_OUT = "held_out"
UNREAD = "unread"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A shard that broke a rule and is not proposed."""

    name: str
    """``split/uri``."""
    rule: str
    """The rule."""
    why: str
    """``twin``: another shard has its digest; ``held_out``: its duplicates are mended in training data; ``unread``: it
    has no digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """What a verdict proposes."""

    wishes: tuple[Wish, ...]
    """By rule, then by shard; a shard that broke two rules is there twice."""
    passed_over: tuple[PassedOver, ...]
    """Likewise."""


def proposals(verdict: Verdict, shards: Sequence[Mapping[str, Any]], held_out: Collection[str]) -> Proposed:
    """Return what to propose for the shards that failed a per-shard rule. Pure.

    Args:
        verdict: What a policy said of a manifest.
        shards: Rows of its table of shards, in order, with :data:`dataaudit.quarantine.selection.COLUMNS`.
        held_out: Names of its held-out splits.
    """
    times = Counter(digest for row in shards for digest in set(digests_of(dict(row)).values()))
    wishes, passed_over = [], []
    for result in verdict.rules:
        for case in sorted(_failed(result), key=_ordinal):
            row = dict(shards[_ordinal(case)])
            digests = digests_of(row)
            why = "" if digests else UNREAD
            if digests and result.rule.metric in _DUPLICATES:
                twin = any(times[digest] > 1 for digest in digests.values())
                why = HELD_OUT if row["split"] in held_out else TWIN if twin else ""
            if why:
                passed_over.append(PassedOver(name=f"{row['split']}/{row['uri']}", rule=case.rule, why=why))
            else:
                code = result.rule.metric if re.fullmatch(NAME_PATTERN, result.rule.metric) else "gate"
                wishes.append(Wish(target=target_of(row), reason=code, evidence=_evidence(verdict, result, case)))
    return Proposed(wishes=tuple(wishes), passed_over=tuple(passed_over))


def write_proposals(path: Path, verdict: Verdict, manifest: Manifest, author: Author) -> tuple[Change, Proposed]:
    """Append the proposals of a verdict to a list.

    Args:
        path: The list; it is made when there is none and something is proposed.
        verdict: What a policy said of the manifest.
        manifest: The manifest.
        author: Who ran the gate.

    Returns:
        What was appended, with what was there already; and what the verdict proposes.

    Raises:
        QuarantineError: The list cannot be written.
        ManifestError: The table of shards cannot be read.
    """
    concerned = any(True for result in verdict.rules for _ in _failed(result))
    rows = manifest.table("shards", COLUMNS).to_pylist() if concerned else []
    found = proposals(verdict, rows, [split.name for split in manifest.core.splits if split.held_out])
    if not found.wishes:
        return Change(added=()), found
    return propose(path, found.wishes, author), found


def _failed(result: RuleResult) -> list[Case]:
    return [
        case for case in result.cases if case.scope.shard is not None and case.state == State.FAILED and not case.waived
    ]


def _ordinal(case: Case) -> int:
    assert case.scope.shard is not None
    return case.scope.shard


def _evidence(verdict: Verdict, result: RuleResult, case: Case) -> Evidence:
    rule = result.rule
    shown = rule.metric not in _PERSONAL
    return Evidence(
        metric=rule.metric,
        stat=case.stat,
        unit=case.unit or None,
        value=case.value if shown else None,
        judged=case.judged if shown and case.judged != case.value else None,
        comparator=rule.comparator,
        limit=rule.limit,
        limit_kind=rule.limit_kind,
        rule=rule.name,
        policy=verdict.policy_digest,
        manifest=verdict.subject.id,
    )
