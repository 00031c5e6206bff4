"""The policy in YAML: the rules that a manifest has to keep to be released."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import read_safely
from dataaudit.base.text import clean
from dataaudit.base.yamlfile import NAME_PATTERN, explain, load_yaml, nearest
from dataaudit.decide.gate import BUILTIN
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.core import Digest, Model
from dataaudit.manifest.metric import rounded
from dataaudit.manifest.token_proof import Kind

NAME_LIMIT = 100
"""Characters that the name of a policy or rule may have."""
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=NAME_LIMIT)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
Truth = Annotated[bool, Field(strict=True)]
Field_ = Literal["split", "source", "language", "shard", "set", "entity", "rule"]
Comparator = Literal["<=", "<", ">=", ">", "=="]
Limit = Literal["budget", "change", "relative_change", "robust_sd"]
LIMITS: tuple[Limit, ...] = ("budget", "change", "relative_change", "robust_sd")
LONGEST_WAIVER = dt.timedelta(days=180)
"""How far ahead the last day of a waiver may lie, from the day on which the gate runs."""
COVERAGE = "coverage_unread_bytes"
COVERAGE_NAME = "coverage"
"""Of the rule that the gate adds; it may be waived too."""


def _as_list(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _no_number(value: object) -> object:
    """Refuse a number where a day is meant: it would be taken for seconds since 1970."""
    if isinstance(value, int | float):
        raise PydanticCustomError("day", "expected a day, such as 2027-01-31")
    return value


Day = Annotated[dt.date, BeforeValidator(_no_number, json_schema_input_type=dt.date)]
_One = Annotated[str, Field(min_length=1)]
_Many = Annotated[tuple[_One, ...], Field(min_length=1)]
Names = Annotated[_Many, BeforeValidator(_as_list, json_schema_input_type=_One | _Many)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Digests = Annotated[
    tuple[_Digest, ...],
    Field(min_length=1),
    BeforeValidator(_as_list, json_schema_input_type=_Digest | tuple[_Digest, ...]),
]
_Fields = Annotated[tuple[Field_, ...], BeforeValidator(_as_list, json_schema_input_type=Field_ | tuple[Field_, ...])]


class Severity(StrEnum):
    """What it means that a budget is exceeded."""

    FAIL = "fail"
    WARN = "warn"


def _optional(description: str, **more: Any) -> Any:
    """Return a field that is None when it is not given."""
    return Field(default=None, description=description, **more)


class ScopeRule(Model):
    """What a rule speaks of: without any key the whole dataset."""

    per: _Fields = Field(
        default=(), description="One case for each value of these fields: split, source, language, shard, set, entity."
    )
    split: Names | None = _optional("Only these splits.")
    source: Names | None = _optional("Only these sources.")
    language: Names | None = _optional("Only these languages.")
    set: Names | None = _optional("Only these protected sets or held-out splits.")
    entity: Names | None = _optional("Only these entity types.")
    rule: Names | None = _optional("Only these rules, tiers or reasons.")

    def fixed(self) -> dict[str, tuple[str, ...]]:
        """Return the fields whose values are named."""
        named = {name: getattr(self, name) for name in ("split", "source", "language", "set", "entity", "rule")}
        return {name: values for name, values in named.items() if values is not None}

    @property
    def fields(self) -> frozenset[str]:
        """The fields that every case of the rule has."""
        return frozenset(self.per) | frozenset(self.fixed())


def _one_limit(schema: dict[str, Any]) -> None:
    schema["oneOf"] = [{"required": [name], "properties": {name: {"type": "number"}}} for name in LIMITS]


class Rule(Model):
    """One rule: a statistic of a metric, and how far it may go. Exactly one of the four limits is given."""

    model_config = ConfigDict(json_schema_extra=_one_limit)

    name: Name
    metric: Text = Field(description="Name of the metric, as `dataaudit explain metrics` lists them.")
    stat: Text = Field(description="Statistic of it; `*` stands for any text: `packed_*`.")
    unit: Text = Field(
        description="Unit of the metric, checked against the manifest: nobody mixes up percent and ratio."
    )
    scope: ScopeRule = ScopeRule()
    comparator: Comparator = Field(
        default="<=", description="How the judged number has to stand to the limit for the rule to hold."
    )
    budget: Finite | None = _optional("Limit of the value, in the metric's unit.")
    change: Positive | None = _optional("Limit of the difference to the baseline, in the metric's unit.")
    relative_change: Positive | None = _optional(
        "Limit of (value - baseline) / baseline; 0.5 lets it grow to 1.5 times the baseline."
    )
    robust_sd: Positive | None = _optional(
        "Limit of a shard's distance from the median of its source, in robust standard deviations"
        " (1.4826 x the median absolute deviation)."
    )
    budget_from: Literal["declared"] | None = _optional(
        "`declared`: a change is that from the share which the build's config declares for the source, not"
        " from a baseline."
    )
    warn: Finite | None = _optional(
        "A first limit of the same kind, beyond which the rule warns; beyond the other one it fails."
    )
    direction: Literal["up", "down", "either"] = Field(
        default="either", description="Which change counts, for change, relative_change and robust_sd."
    )
    severity: Severity = Severity.FAIL
    bound: Literal["against", "value", "low", "high"] = Field(
        default="against",
        description="Which number of a value with an interval is judged: `against` is the bound nearer to the limit's"
        " wrong side. A value without an interval is judged itself, and its reason says so.",
    )
    required: Truth = Field(
        default=True, description="Whether the gate ends with code 3 when the rule cannot be evaluated."
    )
    baseline: Literal["required", "optional"] = Field(
        default="required", description="With `optional`, a rule of change waits when there is no baseline yet."
    )
    allow_empty: Truth = Field(default=False, description="Whether a denominator of 0 is skipped, not an error.")
    allow_lost: Text | None = _optional(
        "Why the manifest may lack a number that the baseline has; without it that is exit code 3, also"
        " of a rule that is not required."
    )
    max_bad_records: Positive | None = _optional(
        "Of `coverage_unread_bytes.bytes`: share of a shard's records, and of its bytes, that may be bad"
        " without counting as unread.",
        le=1,
    )
    owner: Text | None = None
    reason: Text | None = _optional("Why the rule exists.")
    runbook: Text | None = _optional("What to do: an address, a path or a command.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if problems := [f"rule `{self.name}`: {problem}" for problem in self._problems()]:
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        given = [name for name in LIMITS if getattr(self, name) is not None]
        if len(given) != 1:
            yield f"expected exactly one of {', '.join(LIMITS)}, found {', '.join(given) or 'none'}"
            return
        kind = self.limit_kind
        if kind != "budget" and not self.is_upper:
            yield "a limit of change is compared with `<=` or `<`"
        if kind == "budget" and self.direction != "either":
            yield "`direction` goes with a change, not with a budget"
        if kind == "robust_sd" and "shard" not in self.scope.per:
            yield "`robust_sd` needs `scope: {per: shard}`"
        if set(self.scope.per) & set(self.scope.fixed()):
            yield "a field is either named or in `per`, not both"
        if self.budget_from is not None and kind not in {"change", "relative_change"}:
            yield "`budget_from: declared` goes with `change` or `relative_change`: how far a share may be from it"
        if self.warn is not None:
            yield from self._warn_problems(self.warn)

    def _warn_problems(self, warn: float) -> Iterator[str]:
        if self.comparator == "==":
            yield "`warn` does not go with `==`"
        elif warn >= self.limit if self.is_upper else warn <= self.limit:
            side = "below" if self.is_upper else "above"
            yield f"`warn` is {warn:g}, expected a number {side} the limit, {self.limit:g}"
        if self.severity == Severity.WARN:
            yield "`warn` is the first of two limits; a rule of `severity: warn` has one"
        if self.metric == COVERAGE:
            yield "`warn` does not go with unread bytes: nobody knows what is in them"

    @property
    def limit_kind(self) -> Limit:
        """Which of the four limits is given."""
        return next(name for name in LIMITS if getattr(self, name) is not None)

    @property
    def limit(self) -> float:
        """The number of the limit."""
        return float(getattr(self, self.limit_kind))

    @property
    def is_upper(self) -> bool:
        """Whether a number has to stay below the limit; of ``==`` it is not."""
        return self.comparator in {"<=", "<"}

    @property
    def needs_baseline(self) -> bool:
        """Whether the rule compares with a baseline."""
        return self.limit_kind in {"change", "relative_change"} and self.budget_from is None

    @property
    def first_limit(self) -> float:
        """The lower of two limits: that of a warning."""
        return self.limit if self.warn is None else self.warn

    @property
    def is_added(self) -> bool:
        """Whether the gate added the rule itself."""
        return self.model_copy(update={"name": COVERAGE_NAME}) == _COVERAGE_RULE


_COVERAGE_RULE = Rule(
    name=COVERAGE_NAME,
    metric=COVERAGE,
    stat="shard_bytes",
    unit="bytes",
    budget=0.0,
    reason="Every shard has to be read. The gate adds this rule to a policy that has none about coverage.",
)


class Waiver(Model):
    """One known violation that somebody answers for, until a day."""

    fingerprint: str = Field(pattern=r"^[0-9a-f]{16}$", description="Of the case, as the gate prints it.")
    rule: Name = Field(description="The rule that it waives, for the reader; has to agree with the fingerprint.")
    owner: Text
    reason: Text
    expires: Day = Field(
        description="The last day on which it holds, UTC, at most 180 days ahead; after it the gate fails."
    )
    up_to: Finite | None = _optional(
        "Ceiling: the waiver covers the case as long as the judged number is not beyond it, in the unit of"
        " the rule's limit."
    )

    def covers(self, rule: Rule, judged: float | None) -> bool:
        """Return whether a number that does not keep a rule's limit keeps the ceiling."""
        if self.up_to is None:
            return True
        if judged is None:
            return False
        ceiling = rounded(self.up_to)
        if rule.comparator == "==":
            return abs(judged - rule.limit) <= abs(ceiling - rule.limit)
        return judged <= ceiling if rule.is_upper else judged >= ceiling


class Policy(Model):
    """A whole policy file."""

    policy: Name = Field(description="Name of the policy.")
    version: str = Field(default="1", description="Version that the team gives it.")
    description: Text | None = None
    rules: tuple[Rule, ...] = Field(min_length=1)
    waivers: tuple[Waiver, ...] = ()
    require_signature: Truth | None = _optional(
        "Whether manifest and baseline have to be signed, by attestation.json; who runs it says by whom."
    )
    same_text_column: Truth | None = _optional(
        "Whether all splits of manifest and baseline have to read a column of the same name as their text."
    )
    quarantine_list: Text | None = _optional(
        "File of a quarantine list, relative to the policy's folder: what it holds back is not released."
    )
    token_proof: Text | None = _optional(
        "Record of `dataaudit map`, relative to the policy's folder: it has to prove that token files hold"
        " what the manifest audited."
    )
    canary: Text | None = _optional(
        "Record of `dataaudit canary run`, relative to the policy's folder: it has to be of this manifest, and to pass."
    )
    canary_days: Annotated[int, Field(strict=True, ge=1)] | None = _optional(
        "Days that the record of a canary may be old; without it any number."
    )
    canary_seeds: Annotated[int, Field(strict=True, ge=3)] | None = _optional(
        "Pairs of seeds that the record of a canary has at least; 8 by default."
    )
    canary_baseline: Digest | None = _optional(
        "Id of the baseline, `canary baseline` shows it: the only healthy runs that count."
    )
    detectors: dict[Text, Digests] | None = _optional(
        "Detectors that have to have searched, by the name and sha256 that a manifest says; of several digests any."
    )
    token_proof_refuses: tuple[Kind, ...] | None = _optional(
        "Kinds of difference that refuse the record of token files, all when absent. A held-out document in"
        " a file refuses it in any case.",
        min_length=1,
    )
    _folder: Path = PrivateAttr(default_factory=Path)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("token_proof_refuses", "canary_days", "canary_seeds", "canary_baseline"):
            record = name.rpartition("_")[0]  # the key that names what it speaks of
            if getattr(self, name) is not None and getattr(self, record) is None:
                raise ValueError(f"{name} without {record}: name the record, `{record}: FILE`")
        if problems := [*_problems([rule.name for rule in self.rules], self.rules, self.waivers)]:
            raise ValueError("\n".join(problems))
        return self

    @property
    def complete_rules(self) -> tuple[Rule, ...]:
        """The rules, and a rule about coverage when none bounds it for the whole dataset."""
        for rule in self.rules:
            whole = rule.metric == COVERAGE and not rule.scope.fields and rule.required
            if whole and rule.limit_kind == "budget" and rule.comparator not in {">=", ">"}:
                return self.rules
        name = COVERAGE_NAME
        while any(rule.name == name for rule in self.rules):
            name += "-of-all-shards"
        return (*self.rules, _COVERAGE_RULE.model_copy(update={"name": name}))

    def path_of(self, key: Literal["quarantine_list", "token_proof", "canary"]) -> Path | None:
        """Return the path of a file that the policy demands; None when it demands none."""
        named = getattr(self, key)
        return None if named is None else self._folder / named

    def from_folder(self, folder: Path) -> Self:
        """Set the folder of the policy's file; without a file it is the working folder."""
        self._folder = folder
        return self

    @property
    def digest(self) -> str:
        """``sha256:`` and the digest of the policy in canonical JSON; waivers are a part of it.

        A key of :data:`LATER_KEYS` that is not given is left out, so that a policy keeps its digest.
        """
        return digest_json(_without_absent(self.model_dump(mode="json")))


_LATER = (
    "allow_lost budget_from canary canary_baseline canary_days canary_seeds detectors max_bad_records quarantine_list"
    " require_signature same_text_column token_proof token_proof_refuses up_to warn"
)
LATER_KEYS = frozenset(_LATER.split())
"""Keys that came after policies were pinned by digest; all are None when they are not given."""


def _without_absent(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_absent(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_absent(item) for key, item in value.items() if item is not None or key not in LATER_KEYS}


def _problems(names: Sequence[str], rules: Sequence[Rule], waivers: Sequence[Waiver]) -> Iterator[str]:
    for name, number in Counter(names).items():
        if number > 1:
            yield f"two rules are named `{name}`"
    for waiver in waivers:
        if waiver.rule not in names and not waiver.rule.startswith(COVERAGE_NAME):
            known = nearest(waiver.rule, sorted(set(names)))
            yield f"a waiver names the rule `{waiver.rule}`, which is not here{known}"
    for name, number in Counter(waiver.fingerprint for waiver in waivers).items():
        if number > 1:
            yield f"two waivers have the fingerprint {name}"
    named = {rule.name: rule for rule in reversed(rules)}
    for waiver in waivers:
        rule = named.get(waiver.rule)
        if waiver.up_to is None or rule is None or rule.comparator == "==":
            continue
        limit = rule.first_limit
        if waiver.up_to <= limit if rule.is_upper else waiver.up_to >= limit:
            yield (
                f"the waiver {waiver.fingerprint} of the rule `{rule.name}`: `up_to` is {waiver.up_to:g}, expected a"
                f" number beyond the rule's limit, {limit:g}"
            )


def term_problems(waivers: Iterable[Waiver], on: dt.date | None) -> Iterator[str]:
    """Yield which waivers end too late, seen from a day; nothing without a day."""
    for waiver in waivers:
        if on is not None and waiver.expires - on > LONGEST_WAIVER:
            yield (
                f"the waiver {waiver.fingerprint} of the rule `{waiver.rule}`: it ends on {waiver.expires},"
                f" {(waiver.expires - on).days:,} days from now; expected at most {LONGEST_WAIVER.days}"
            )


def load_policy(path: Path, more: Check | None = None, on: dt.date | None = None) -> Policy:
    """Read a policy file; more and on are as of :func:`check_values`."""
    try:
        text = read_safely(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        meant = nearest(str(path), BUILTIN).partition(" (known")[0] if isinstance(error, FileNotFoundError) else ""
        hint = f"Name a file, or a policy that comes with the package: {', '.join(BUILTIN)}."
        raise ConfigError(f"the policy {path} cannot be read: {reason}{meant}", hint) from None
    return parse_policy(text, where=str(path), more=more, on=on).from_folder(path.parent)


def parse_policy(text: str, *, where: str, more: Check | None = None, on: dt.date | None = None) -> Policy:
    """Return the policy of a YAML document."""
    return check_values(load_yaml(text, where=where), where=where, more=more, on=on)


def check_values(plain: Any, *, where: str, more: Check | None = None, on: dt.date | None = None) -> Policy:
    """Return the policy of the plain values of a document."""
    rules, waivers = _entries(plain, "rules"), _entries(plain, "waivers")
    try:
        policy = Policy.model_validate(plain)
    except ValidationError as error:
        lines = [part for line in explain(error, Policy) for part in _by_name(line, rules, waivers).split("\n")]
        lines += dict.fromkeys(line for line in _of_others(rules, waivers, more, on) if line not in lines)
    else:
        lines = [f"rule `{rule.name}`: {problem}" for rule in policy.rules for problem in (more(rule) if more else ())]
        lines += term_problems(policy.waivers, on)
        if not lines:
            return policy
    raise ConfigError("\n".join([f"{where}: {len(lines)} problem(s)", *(f"  {line}" for line in lines)])) from None


Check = Callable[[Rule], Iterator[str]]
_POSITION = re.compile(r"^(rules|waivers)\.(\d+)\.?")
_SPOKEN_OF = ("name", "metric", "stat", "unit", "scope")
"""Keys that say what a rule speaks of, whatever its limit is."""


def _entries(plain: Any, key: str) -> list[Any]:
    entries = plain.get(key) if isinstance(plain, dict) else None
    return entries if isinstance(entries, list) else []


def _by_name(line: str, rules: Sequence[Any], waivers: Sequence[Any]) -> str:
    """Return a problem with the name of its rule in place of a number, be it the rule's or that of its waiver."""
    match = _POSITION.match(line)
    if match is None:
        return line.removeprefix("(top level): ")
    of_waiver = match[1] == "waivers"
    among = waivers if of_waiver else rules
    record = among[int(match[2])] if int(match[2]) < len(among) else None
    name = record.get("rule" if of_waiver else "name") if isinstance(record, dict) else None
    if record is None or not isinstance(name, str) or not name:
        return line
    rest = line[match.end() :].removeprefix(": ")
    if rest.startswith(f"rule `{name}`"):
        return rest
    whose = f"the waiver {clean(str(record.get('fingerprint')), 16)} of the " if of_waiver else ""
    return f"{whose}rule `{clean(name, 100)}`: {rest}"


def _of_others(
    plain_rules: Sequence[Any], plain_waivers: Sequence[Any], more: Check | None, on: dt.date | None
) -> Iterator[str]:
    """Yield problems that a model's validation does not report: in single rules, and in rules and waivers together."""
    rules = []
    for plain in plain_rules:
        rule = _valid(Rule, plain)
        if rule is not None:
            rules.append(rule)
        elif isinstance(plain, dict):  # its limit is wrong, perhaps; a limit that any rule may have shows what else is
            rule = _valid(Rule, {key: plain[key] for key in _SPOKEN_OF if key in plain} | {"budget": 0})
        if rule is not None and more is not None:
            yield from (f"rule `{rule.name}`: {problem}" for problem in more(rule))
    waivers = [waiver for plain in plain_waivers if (waiver := _valid(Waiver, plain)) is not None]
    names = [str(plain["name"]) for plain in plain_rules if isinstance(plain, dict) and "name" in plain]
    yield from _problems(names, rules, waivers)
    yield from term_problems(waivers, on)


_Kind = TypeVar("_Kind", bound=BaseModel)


def _valid(kind: type[_Kind], plain: Any) -> _Kind | None:
    try:
        return kind.model_validate(plain)
    except ValidationError:
        return None
