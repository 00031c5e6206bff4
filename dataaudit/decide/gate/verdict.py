"""The verdict: the state of every rule, with the numbers that decided it, as plain values that every writer reads.

Names come from the data, and nothing here is made safe to print: each writer escapes for its own format.
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
    """Its case went beyond its ceiling."""
    EXPIRED = "expired"


LOST = "lost"
"""Reason of a case that has a number in the baseline alone."""
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
    """``split/uri``."""
    count: int
    noun: str
    """What is counted, in the plural: ``documents with copied spans``."""
    fresh: bool = False
    """Whether the baseline has no shard of this content or name."""
    changed: bool = False
    """Whether the baseline has a shard of this name with other content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One rule at one place."""

    rule: str
    stat: str
    """Statistic that was read; the rule's may be a pattern."""
    scope: Scope
    shard_uri: str | None = None
    """``split/uri`` where the scope is a shard."""
    state: State
    reason: str = ""
    """Code, where the number could not be judged or is of a special kind; see ``dataaudit explain reasons``."""
    why: str = ""
    """Why the manifest has no number: ``stage secrets is off``."""
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
    judged: float | None = None
    """The number that was compared with the limit: value, a bound, a change or a distance."""
    fingerprint: str = ""
    """16 hex digits that name this violation in a waiver; the same for the same rule and scope in any manifest."""
    waived: bool = False
    """Whether a waiver covers it; such a case stays shown and does not decide."""
    evidence: tuple[Evidence, ...] = ()
    """The shards with most of it, where the manifest lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """What became of a rule."""

    rule: Rule
    state: State
    """Of its worst case that is not waived; pass when all of them are waived."""
    counts: dict[State, int]
    """Cases by state; a waived case counts by its own state."""
    waived: int = 0
    """Cases that a waiver covers."""
    cases: tuple[Case, ...]
    """All that do not pass, worst first; or the nearest to the limit when all pass. There may be 10^5."""
    waits: bool = False
    """Whether it needs a baseline that the policy does not demand yet."""

    @property
    def is_required(self) -> bool:
        """Whether it has to be judged: by the policy, or because of a lost number or another detector."""
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
    version: str
    documents: int
    shards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardBehind:
    """A shard that holds some of what broke the rules that stop the release."""

    shard: int
    uri: str
    rules: tuple[str, ...]
    """Names, in the policy's order."""
    weight: float
    """Its part of all that broke each rule, these parts added up: 1 is all of a rule."""
    fresh: bool = False
    changed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSeen:
    """A quarantine list that the manifest was compared with: nothing that it leaves out is released."""

    digest: str
    """``sha256:`` and the sha256 of the file."""
    lines: tuple[str, ...]
    """Ids of its lines, sorted: they may not be lost later."""
    changed: tuple[str, ...] = ()
    """Shards, ``split/uri``, that it names under another digest: it does not leave out their rows of today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySeen:
    """The record of a canary that the policy demanded."""

    id: str
    verdict: str
    pairs: int
    """Seeds of the changed code that were compared with healthy ones."""
    on: str
    """The day that its last seed was trained, UTC, ISO 8601."""


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
    """The day that waivers were checked for, beside the clock's, ISO 8601."""
    rules: tuple[RuleResult, ...]
    """In the policy's order; a rule that the gate adds itself stands last."""
    waivers: tuple[WaiverResult, ...]
    remarks: tuple[str, ...] = ()
    """Sentences about what no rule covers, and about an odd comparison."""
    quarantine_lists: tuple[ListSeen, ...] = ()
    """The policy's and the given list, as far as there are such."""
    canary: CanarySeen | None = None
    """None where the policy demands no canary."""
    shards_behind: tuple[ShardBehind, ...] = ()
    """By weight, then by the number of rules that they broke: at most 10,000."""
    num_shards_behind: int = 0
    """All of them."""

    @property
    def codes(self) -> tuple[ExitCode, ...]:
        """Every exit code for which there is a cause, in order."""
        states = {state for result in self.rules for state in result.open_states}
        strict = self.fail_on == "warn"
        unknown = (result for result in self.rules if State.NOT_EVALUATED in result.open_states)
        exceeded = State.FAILED in states or (strict and State.WARNED in states)
        expired = any(waiver.state == WaiverState.EXPIRED for waiver in self.waivers)
        causes = {
            ExitCode.BUDGET_EXCEEDED: exceeded or expired,
            ExitCode.NOT_EVALUATED: any(strict or result.is_required for result in unknown),
            ExitCode.NOTHING_EVALUATED: self.subject.documents == 0 or not self._has_judged,
        }
        return tuple(code for code, is_cause in causes.items() if is_cause) or (ExitCode.PASS,)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code: 4 when there was no document or no rule could be judged, else 3 before 1 before 0."""
        if self.subject.documents == 0:
            return ExitCode.NOTHING_EVALUATED
        order = (ExitCode.NOT_EVALUATED, ExitCode.BUDGET_EXCEEDED, ExitCode.NOTHING_EVALUATED)
        return next((code for code in order if code in self.codes), ExitCode.PASS)

    @property
    def _has_judged(self) -> bool:
        """Whether some rule of the policy had a number to judge, or needs a baseline."""
        judged = (State.PASSED, State.WARNED, State.FAILED)
        own = [result for result in self.rules if not result.rule.is_added]
        return any(result.waits or any(result.counts.get(state) for state in judged) for result in own)

    @property
    def passed(self) -> bool:
        """Whether the manifest may be released."""
        return self.exit_code == ExitCode.PASS

    @property
    def waiting(self) -> tuple[str, ...]:
        """Names of the rules that need a baseline."""
        return tuple(result.rule.name for result in self.rules if result.waits)

    def count(self, state: State) -> int:
        """Return how many rules have a state."""
        return sum(result.state == state for result in self.rules)
