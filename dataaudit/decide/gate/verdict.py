"""The verdict: what became of every rule, with the numbers that decided it. Plain values; every writer reads these.

Nothing here is made safe to print: names come from the data. Each writer escapes for its own format.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dataaudit.base.errors import ExitCode
from dataaudit.base.render.result import Result
from dataaudit.decide.gate.policy import Rule, Waiver
from dataaudit.manifest.metric import Scope


class State(StrEnum):
    """What became of a case, and of a rule."""

    PASSED = "pass"
    WARNED = "warn"
    FAILED = "fail"
    NOT_EVALUATED = "not_evaluated"
    NOT_APPLICABLE = "not_applicable"


class WaiverState(StrEnum):
    """What became of a waiver."""

    USED = "used"
    UNUSED = "unused"
    EXCEEDED = "exceeded"
    """Its case went beyond its ceiling: it covers it no more."""
    EXPIRED = "expired"


LOST = "lost"
"""Reason of a case that the baseline has a number of and the manifest has none."""
DEMANDED = "other_than_demanded"
"""Reason of a case that rests on another detector than the policy demands."""
BINDING = frozenset({LOST, DEMANDED})
"""Reasons that stop the release of rules, too, that are not required."""
ORDER = (State.FAILED, State.NOT_EVALUATED, State.WARNED, State.PASSED, State.NOT_APPLICABLE)
"""From worst to best; a rule has the state of its worst case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One place to look at: a shard and how much of it counts."""

    shard: int
    """Row of the table of shards."""
    uri: str
    """``split/uri`` of it."""
    count: int
    """How many."""
    noun: str
    """Of what, in the plural: ``documents with copied spans``."""
    fresh: bool = False
    """Whether the baseline has no shard of this content or name: what broke the rule came with it."""
    changed: bool = False
    """Whether the baseline has a shard of this name with other content: what broke the rule may have been there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One rule at one place."""

    rule: str
    """Name of the rule."""
    stat: str
    """Statistic that was read; the rule's may be a pattern."""
    scope: Scope
    """Where."""
    shard_uri: str | None = None
    """``split/uri`` where the scope is a shard."""
    state: State
    reason: str = ""
    """Code, where the number could not be judged or is of a special kind; see ``dataaudit explain reasons``."""
    why: str = ""
    """What the manifest tells of why there is no number: ``stage secrets is off``."""
    unit: str = ""
    """Of value, low, high and baseline."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    method: str = "exact"
    """exact, sampled or estimated."""
    denominator: int = 0
    baseline: float | None = None
    """The baseline's value, for rules of change; the median of its peers, for rules of robust_sd."""
    baseline_denominator: int = 0
    """What the baseline's value was divided by."""
    judged: float | None = None
    """The number that was compared with the limit: value, a bound, a change or a distance; None without one."""
    fingerprint: str = ""
    """16 hex digits that name this violation in a waiver; the same for the same rule and place in any manifest."""
    waived: bool = False
    """Whether a waiver that holds covers it; such a case stays shown and does not decide."""
    evidence: tuple[Evidence, ...] = ()
    """The shards that hold most of it, where the manifest tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """What became of a rule."""

    rule: Rule
    state: State
    """Of its worst case that is not waived; pass when all of them are waived."""
    counts: dict[State, int]
    """Cases by state, waived ones by the state that they would have had."""
    waived: int = 0
    """Cases that a waiver covers."""
    cases: tuple[Case, ...]
    """All that do not pass, worst first; or the one nearest to the limit when all pass. There may be 10^5."""
    waits: bool = False
    """Whether it waits for a baseline that the policy does not demand yet."""

    @property
    def is_required(self) -> bool:
        """Whether it has to be judged: by the policy, or as a number was lost or a detector is not the demanded one."""
        return self.rule.required or any(case.reason in BINDING for case in self.cases)

    @property
    def open_states(self) -> frozenset[State]:
        """The states of all cases that are not waived and do not pass, beside the worst, which is the rule's."""
        return frozenset({self.state, *(case.state for case in self.cases if not case.waived)})


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiverResult:
    """What became of a waiver."""

    waiver: Waiver
    state: WaiverState


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The manifest that was judged, or the baseline."""

    id: str
    name: str
    """Of the dataset."""
    version: str
    documents: int
    shards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardBehind:
    """A shard that holds some of what broke the rules that stop the release."""

    shard: int
    """Row of the table of shards."""
    uri: str
    """``split/uri`` of it."""
    rules: tuple[str, ...]
    """Names of the rules, in the policy's order."""
    weight: float
    """Its part of all that broke each rule, these parts added up: 1 is all of one rule."""
    fresh: bool = False
    """Whether the baseline has no shard of this content or name."""
    changed: bool = False
    """Whether the baseline has a shard of this name with other content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSeen:
    """A quarantine list that the manifest was compared with: nothing that it leaves out is released."""

    digest: str
    """``sha256:`` and the sha256 of the file."""
    lines: tuple[str, ...]
    """Ids of its lines, sorted: a list that lacks one of them later has lost lines."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Verdict(Result):
    """What a policy says of a manifest."""

    line_by = "dataaudit.decide.gate.writers.words:line"
    blocks_by = "dataaudit.decide.gate.writers.blocks:verdict_blocks"

    policy: str
    policy_version: str
    policy_digest: str
    subject: Subject
    baseline: Subject | None
    fail_on: str
    """``fail`` or ``warn``: the least severity that ends with code 1."""
    on: str
    """The day that waivers were held against, beside the clock's, ISO 8601."""
    rules: tuple[RuleResult, ...]
    """In the policy's order; a rule that the gate adds itself stands last."""
    waivers: tuple[WaiverResult, ...]
    remarks: tuple[str, ...] = ()
    """What no rule speaks of, and what is odd about the comparison, in sentences."""
    quarantine_lists: tuple[ListSeen, ...] = ()
    """The one of the policy and the one that was given, as far as there are such."""
    shards_behind: tuple[ShardBehind, ...] = ()
    """Shards that most rules which stop the release sit in, then by weight: at most 10,000."""
    num_shards_behind: int = 0
    """How many there are in all."""

    @property
    def codes(self) -> tuple[ExitCode, ...]:
        """Every exit code for which there is a cause, in order."""
        found = set()
        states = {state for result in self.rules for state in result.open_states}
        strict = self.fail_on == "warn"
        if self.subject.documents == 0 or not self._has_judged:
            found.add(ExitCode.NOTHING_EVALUATED)
        if State.FAILED in states or (strict and State.WARNED in states):
            found.add(ExitCode.BUDGET_EXCEEDED)
        if any(waiver.state == WaiverState.EXPIRED for waiver in self.waivers):
            found.add(ExitCode.BUDGET_EXCEEDED)
        if any(
            State.NOT_EVALUATED in rule_result.open_states and (rule_result.is_required or strict)
            for rule_result in self.rules
        ):
            found.add(ExitCode.NOT_EVALUATED)
        return tuple(sorted(found)) or (ExitCode.PASS,)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code: 4 when there was no document or no rule could be judged, else 3 before 1 before 0."""
        if self.subject.documents == 0:
            return ExitCode.NOTHING_EVALUATED
        order = (ExitCode.NOT_EVALUATED, ExitCode.BUDGET_EXCEEDED, ExitCode.NOTHING_EVALUATED)
        return next((code for code in order if code in self.codes), ExitCode.PASS)

    @property
    def _has_judged(self) -> bool:
        """Whether some rule of the policy had a number to judge, or waits for one to compare with."""
        judged = (State.PASSED, State.WARNED, State.FAILED)
        own = [result for result in self.rules if not result.rule.is_added]
        return any(result.waits or any(result.counts.get(state) for state in judged) for result in own)

    @property
    def passed(self) -> bool:
        """Whether the manifest may be released."""
        return self.exit_code == ExitCode.PASS

    @property
    def waiting(self) -> tuple[str, ...]:
        """Names of the rules that wait for a baseline."""
        return tuple(result.rule.name for result in self.rules if result.waits)

    def count(self, state: State) -> int:
        """Return how many rules have a state."""
        return sum(result.state == state for result in self.rules)
