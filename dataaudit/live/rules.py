"""``alerts.yaml``: rules over numbers and events of a run, and what is done when a rule fires.

A rule names a metric of the run log, or a kind of event, and has one condition. It is judged rank by rank; without
``over`` each layer and head by itself. A condition is a function of the steps that it is given, so the same log gives
the same alerts, whoever reads it and whenever; only an absence in seconds asks the clock.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from dataaudit.base.errors import ConfigError
from dataaudit.base.redact import has_secrets
from dataaudit.base.yamlfile import NAME_PATTERN, explain, load_yaml, read_named
from dataaudit.manifest.core import Model

DEFAULTS = "alerts.yaml"
_REFERENCE = r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$"
SOURCE_PATTERN = r"^(own|definition|literature|receipt( [0-9a-f]{8,64})?)$"
_OF_ENVIRONMENT: dict[str, Any] = {"anyOf": [{"type": "string", "pattern": _REFERENCE}, {"type": "null"}]}
CONDITIONS: Final = ("threshold", "ratio", "change", "absent", "not_finite", "count")
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=60)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Steps = Annotated[int, Field(strict=True, ge=1)]


def _as_list(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Texts = Annotated[tuple[Text, ...], BeforeValidator(_as_list, json_schema_input_type=Text | tuple[Text, ...])]


class _Bounds(Model):
    above: Finite | None = Field(default=None, description="The condition is met by values above this,")
    below: Finite | None = Field(default=None, description="or below this.")
    for_: Steps = Field(default=1, alias="for", description="Steps, from the first value that meets it to the latest.")
    for_seconds: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = Field(
        default=0.0, description="Seconds by the log's own times, from the first such value to the latest."
    )

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.above is None and self.below is None:
            raise ValueError("give `above`, `below`, or both")
        return self

    def met(self, value: float) -> bool:
        """Return whether a value is beyond a bound."""
        return (self.above is not None and value > self.above) or (self.below is not None and value < self.below)

    def words(self) -> str:
        """Return the bounds in words."""
        both = (("above", self.above), ("below", self.below))
        return " or ".join(f"{word} {bound:g}" for word, bound in both if bound is not None)


class Threshold(_Bounds):
    """The value itself."""


class Ratio(_Bounds):
    """The value over the median of a healthy span of the same run."""

    healthy: Steps | tuple[Steps, Steps] = Field(
        default=500, description="Steps of the healthy span, from the first that is judged; or its first and last step."
    )
    by: float = Field(default=0.0, ge=0.0, description="Least distance from the median, in the value's own unit.")


class Change(_Bounds):
    """The value less the value so many steps before."""

    over: Steps = Field(description="Steps between both values.")
    relative: bool = Field(default=False, description="Whether the change is divided by the value before.")


class Absent(Model):
    """No value where there should be one: for so many steps of the rank, or for so many seconds."""

    steps: Steps | None = None
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.steps is None) == (self.seconds is None):
            raise ValueError("give either `steps` or `seconds`")
        return self


class Count(Model):
    """So many events within so many steps."""

    at_least: Steps = 1
    within: Steps = 1


class Silence(Model):
    """Alerts of the rule are counted, and neither an incident nor sent."""

    until_step: Steps | None = Field(default=None, description="Up to this step.")
    until: dt.datetime | None = Field(default=None, description="Up to this time, such as 2027-01-31T08:00:00Z.")
    why: str = Field(default="", description="For who reads it later.")

    def holds(self, step: int, now: dt.datetime) -> bool:
        """Return whether the rule is silent."""
        until = self.until if self.until is None or self.until.tzinfo else self.until.replace(tzinfo=dt.UTC)
        return (self.until_step is None or step <= self.until_step) and (until is None or now <= until)


class Rule(Model):
    """A rule: a metric or an event, one condition, and what an alert of it means."""

    name: Name
    about: Text = Field(description="What it means that it fires, one sentence: the first line of a message.")
    severity: Literal[0, 1, 2] = Field(description="0: stop, protect the last checkpoint. 1: contain. 2: investigate.")
    metric: Text | None = Field(default=None, description="Metric of the run log; `*`, with `absent`: any row.")
    event: Text | None = Field(default=None, description="Kind of an event of the run log: flagged, nan_inf, alarm.")
    where: dict[str, str | int | float | bool] = Field(
        default={}, description="Of an event: what its detail has to hold, by key."
    )
    layer: int | None = Field(default=None, description="Only this layer; -1: what is of the whole model.")
    head: int | None = Field(default=None, description="Only this head; -1: what is of whole layers.")
    stat: Text | None = Field(default=None, description="Only this statistic.")
    over: Literal["any", "max", "min", "mean"] = Field(
        default="any", description="Layers and heads: `any` judges each by itself, the others their aggregate."
    )
    mean_over: Steps = Field(default=1, description="Steps over which the mean is judged, in place of each value.")
    threshold: Threshold | None = None
    ratio: Ratio | None = None
    change: Change | None = None
    absent: Absent | None = None
    not_finite: Literal[True] | None = Field(default=None, description="The value is NaN or infinite.")
    count: Count | None = Field(default=None, description="Of an event; without it each event fires.")
    after_step: int = Field(default=0, ge=0, description="Judge only steps behind this: a warm-up.")
    fed_by: Texts = Field(
        default=(), description="Of an event: metrics or events that show that somebody looks for it."
    )
    required: bool = Field(default=False, description="Whether `watch --once` exits with 3 where it is not fed.")
    runbook: Name | None = Field(default=None, description="Of the shipped runbooks; by default that of its name.")
    action: str = Field(default="", description="What to do at first, one sentence.")
    actions: Texts = Field(
        default=(), description="What the run does by itself, in order; only what the loop handed over to `Actions`."
    )
    source: Annotated[str, Field(pattern=SOURCE_PATTERN, max_length=80)] = Field(
        default="own",
        description="Where the limit comes from: `own`, `definition` (what the metric means), `literature`, or "
        "`receipt DIGEST` of `dataaudit lab`, which `dataaudit lab check` then demands.",
    )
    group: Name | None = Field(default=None, description="Alerts of a group are one incident; the name by default.")
    cool_down: Steps = Field(default=1_000, description="Steps within which a further alert joins the incident.")
    silence: Silence | None = None

    @property
    def grouped(self) -> str:
        """The group."""
        return self.group or self.name

    @property
    def condition(self) -> str:
        """Name of the condition."""
        return next((name for name in CONDITIONS if getattr(self, name) is not None), "count")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = [name for name in CONDITIONS if getattr(self, name) is not None]
        if (self.metric is None) == (self.event is None):
            raise ValueError("give either `metric` or `event`")
        if self.event is not None and set(given) - {"count"}:
            raise ValueError(f"an event is counted: leave out {given[0]}")
        if self.metric is not None and (len(given) != 1 or "count" in given):
            named = ", ".join(name for name in CONDITIONS if name != "count")
            raise ValueError(f"a metric needs one condition, one of {named}; found {', '.join(given) or 'none'}")
        if self.metric == "*" and given != ["absent"]:
            raise ValueError("`*`, any row, goes with `absent`")
        if self.event is None and self.where:
            raise ValueError("`where` is of events")
        return self

    def words(self) -> str:
        """Return the condition as the file has it."""
        own = getattr(self, self.condition) or Count()
        shown = own if own is True else own.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
        return f"{self.metric or self.event}, {self.condition}: {json.dumps(shown)}"


class Destination(Model):
    """Where messages go."""

    name: Name
    to: Literal["slack", "pagerduty", "webhook", "command"]
    severity: Literal[0, 1, 2] = Field(default=2, description="The least grave incidents that are sent there.")
    url: str | None = Field(default=None, description="slack, webhook: `${NAME}`, or an address without secrets.")
    key: str | None = Field(
        default=None, description="pagerduty: the integration key, as `${NAME}`.", json_schema_extra=_OF_ENVIRONMENT
    )
    secret: str | None = Field(
        default=None, description="webhook: signs with HMAC-SHA256, as `${NAME}`.", json_schema_extra=_OF_ENVIRONMENT
    )
    command: Texts = Field(default=(), description="command: program and arguments; facts are in its environment.")
    resolved: bool = Field(default=False, description="Whether a message follows when an incident is over.")
    timeout: Annotated[float, Field(gt=0, le=120)] = Field(default=10.0, description="Seconds of an attempt.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        needs = {"slack": "url", "pagerduty": "key", "webhook": "url", "command": "command"}[self.to]
        if not getattr(self, needs):
            raise ValueError(f"`to: {self.to}` needs `{needs}`")
        for name in ("key", "secret"):  # no pattern of the field: its error would quote the value
            if (own := getattr(self, name)) is not None and not _named(own):
                raise ValueError(f"`{name}` is a secret: put it in the environment and write `{name}: ${{NAME}}`")
        if self.url is not None and not _named(self.url):
            if self.to == "slack" or has_secrets(self.url):
                raise ValueError("the address is a secret: put it in the environment and write `url: ${NAME}`")
            if not self.url.startswith(("https://", "http://")):
                raise ValueError("expected an address that begins with https://, or `${NAME}`")
        return self


def _named(text: str) -> bool:
    return re.fullmatch(_REFERENCE, text) is not None


class Evidence(Model):
    """What is kept of a run beside an incident."""

    steps: Steps = Field(default=200, description="Steps before and after, of all numbers.")
    batches: Steps = Field(default=8, description="Newest steps whose batches are listed with shard, row and source.")


class AlertsFile(Model):
    """``alerts.yaml``: rules, where messages go, and what is kept as evidence."""

    version: Literal[1]
    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]
    deliver: tuple[Destination, ...] = ()
    evidence: Evidence = Evidence()
    require_receipts: bool = Field(
        default=False,
        description="Whether `dataaudit lab check` demands a receipt of every metric that a rule relies on.",
    )

    @model_validator(mode="after")
    def _unique(self) -> Self:
        for what, items in (("rule", self.rules), ("destination", self.deliver)):
            twice = [name for name, number in Counter(item.name for item in items).items() if number > 1]
            if twice:
                raise ValueError(f"two {what}s have the name `{twice[0]}`")
        known = runbooks()
        for rule in self.rules:
            if rule.runbook is not None and rule.runbook not in known:
                raise ValueError(f"rule {rule.name}: no runbook `{rule.runbook}` (known: {', '.join(known)})")
        return self


def runbooks() -> tuple[str, ...]:
    """Return the names of the shipped runbooks."""
    files = resources.files("dataaudit.live").joinpath("runbooks").iterdir()
    return tuple(sorted(path.name.removesuffix(".md") for path in files if path.name.endswith(".md")))


def runbook(rule: Rule) -> str:
    """Return the runbook of a rule; what the rule says where none is shipped."""
    name = rule.runbook or rule.name
    if name in runbooks():
        return resources.files("dataaudit.live").joinpath("runbooks", f"{name}.md").read_text("utf-8")
    return (
        f"# {rule.name}\n\n{rule.about}\n\nThe rule: {rule.words()}.\n\nSafe action: {rule.action or 'none stated'}\n"
    )


def default_text() -> str:
    """Return the shipped rules as the text of an ``alerts.yaml``, with comments."""
    return resources.files("dataaudit.live").joinpath(DEFAULTS).read_text("utf-8")


def parse_alerts(text: str, *, where: str) -> AlertsFile:
    """Return the rules of the text of an ``alerts.yaml``.

    Raises:
        ConfigError: It is none; the message names every problem.
    """
    try:
        return AlertsFile.model_validate(load_yaml(text, where=where))
    except ValidationError as error:
        lines = explain(error, AlertsFile)
        hint = "`dataaudit alerts draft` writes one; `dataaudit schema alerts` is its form."
        raise ConfigError(f"{where} is no file of alerts:\n  " + "\n  ".join(lines), hint) from None


def load_alerts(path: Path | str | None) -> AlertsFile:
    """Return the rules of a file; the shipped ones without a file."""
    if path is None:
        return parse_alerts(default_text(), where="the shipped rules")
    text = read_named(Path(path), "the file of alerts").decode("utf-8", "replace")
    return parse_alerts(text, where=str(path))


def alerts_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``alerts.yaml``."""
    return AlertsFile.model_json_schema(by_alias=True)
