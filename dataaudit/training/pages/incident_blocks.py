"""Events and incidents of a run on its page: severity, what, where, since when, how far now, what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Block, Cell, Point, Section, Tone, table_of
from dataaudit.base.render.line import Line, Name, join, say
from dataaudit.base.statistics import Floats
from dataaudit.training.pages.grids import LEAST_VALUES, Grid
from dataaudit.training.pages.run_blocks import table
from dataaudit.vitals.incidents import LINGERS
from dataaudit.vitals.metrics import declared

KINDS = ("alarm", "nan_inf", "warning")
"""Events that belong to an incident."""
RUNBOOK = "dataaudit explain what-an-incident-means"
SEVERITIES = ("stop, and keep the last good checkpoint", "contain it", "look into it", "a hint")
_ABOUT: dict[str, tuple[str, str]] = {
    "not_finite": (
        "A number is no longer finite, and spoils every update after it.",
        "Stop. Go on from the last checkpoint without that batch; look at the loss scale and at that part in float32.",
    ),
    "state": (
        "The optimizer keeps a moment that is not finite: every later update of that layer is spoilt.",
        "Stop. Go on from a checkpoint before that step.",
    ),
    "lost": (
        "The optimizer has no moments of these weights any more: its first updates are large, in any direction.",
        "Load the optimizer's state of the checkpoint. Without it, go on with a new warm-up.",
    ),
    "rate": (
        "The learning rate is three times as large as a step before, or a third, and no schedule explains it.",
        "Compare the schedule's step with the run's: a resume, or a second call of the scheduler, moves it.",
    ),
    "tying": (
        "Two layers that shared their weights train apart.",
        "Tie them again before the optimizer is made, and go on from a checkpoint before that step.",
    ),
    "dead": (
        "Half the units of an MLP or more give nothing: its weights get no gradient.",
        "Look at its bias and at the size of the last updates; go back to a checkpoint where they were alive.",
    ),
    "unused": (
        "The router passes an expert by: it gets no gradient, and its memory and work are for nothing.",
        "Compare the loss that balances loads, the router's rate and its bias with those of a healthy run.",
    ),
    "collapse": (
        "Attention looks at one key in effect: its gradient vanishes.",
        "Look at the largest logit beside it; norms of queries and keys, or QK-clip, hold it.",
    ),
    "frozen": (
        "The layer does not train: nothing moves its weights.",
        "Look at `requires_grad`, the groups of the optimizer, and where the graph is cut.",
    ),
    "fold": (
        "The number is four times its recent median or a quarter of it, more than the learning rate explains.",
        "Look at what changed at that step: code, data, a resume. Compare with a run without it.",
    ),
    "jump": (
        "The number left what its own past and the learning rate let expect, at once.",
        "Look at the batch of that step and at the layers that followed.",
    ),
    "drift": (
        "The number moves away from what its own past and the learning rate let expect.",
        "See whether it goes on. A head whose logits grow will pass 100: lower the rate, or clip that head.",
    ),
    "limit": (
        "The value passed a threshold of the literature.",
        "See whether it goes on; the source of the threshold is in the event.",
    ),
}
_ALONE = (
    "A single series of its layer moved, and nothing else did. Heads change their work, and outliers come, while a"
    " model learns: there is nothing to do unless more of that layer follows."
)
_SAID = {"frozen": "its weights are not trained any more", "unused": "it was sent no token in a window of steps"}
_MOST = 8
"""Followers that an incident lists."""


@dataclass(frozen=True, slots=True)
class Incident:
    """Alarms that belong together, in the order in which they began."""

    number: int
    severity: int
    alarms: tuple[Mapping[str, Any], ...]
    """Details, with ``step``: that of the event."""
    others: int
    """Further alarms that events count and do not list."""

    @property
    def first(self) -> Mapping[str, Any]:
        """What began first."""
        return self.alarms[0]

    def cause(self, grids: Mapping[tuple[str, str], Grid]) -> Mapping[str, Any]:
        """Return what began first in the layer of the gravest alarm, of what is not over; of all, when all are over."""
        alarms = [alarm for alarm in self.alarms if not _is_over(alarm, grids)] or self.alarms
        layer = min(alarms, key=_severity).get("layer")
        return next(alarm for alarm in alarms if alarm.get("layer") == layer or _integer(layer) < 0)


def _meaning(alarm: Mapping[str, Any]) -> str:
    """Return what an alarm means, and what to do."""
    rule = str(alarm.get("rule"))
    if rule in {"drift", "jump"} and alarm.get("incident") == 0 and not alarm.get("begins"):
        return _ALONE
    return " ".join(_ABOUT.get(rule, _ABOUT["jump"]))


def incidents_of(events: Sequence[Mapping[str, Any]]) -> list[Incident]:
    """Return the incidents of a run, the most severe first, then the earliest."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for event in events:
        detail = event["detail"]
        if event["kind"] not in KINDS or (event["kind"] == "warning" and not detail.get("incident")):
            continue
        named = detail.get("incident")
        group = (str(named),) if isinstance(named, int) and named > 0 else _series(detail)
        alarm = {"rule": "not_finite" if event["kind"] == "nan_inf" else "jump", **detail, "step": event["step"]}
        if not isinstance(alarm.get("first_step"), int):
            alarm["first_step"] = event["step"]
        groups.setdefault(group, []).append(alarm)
    known = {(_series(alarm), alarm["first_step"]) for group, own in groups.items() if len(group) == 1 for alarm in own}
    for group in [group for group in groups if len(group) > 1]:  # a drift that waited for another alarm, and had one
        groups[group] = [alarm for alarm in groups[group] if (group, alarm["first_step"]) not in known]
    parts = [part for group, own in groups.items() for part in (_apart(own) if len(group) == 1 else [own]) if part]
    incidents = []
    for own in parts:
        own.sort(key=lambda item: (item["first_step"], _integer(item.get("layer")), item["step"]))
    for at, own in enumerate(sorted(parts, key=lambda own: (_is_hint(own), own[0]["first_step"])), 1):
        first: dict[tuple[str, ...], dict[str, Any]] = {}
        for alarm in own:
            first.setdefault(_series(alarm), alarm)
        severity = min(_severity(record) for record in own)
        others = sum(max(0, _integer(record.get("others"), 0)) for record in own)
        incidents.append(Incident(at, severity, tuple(first.values()), others))
    return sorted(incidents, key=lambda item: (item.severity, item.first["first_step"]))


def _apart(alarms: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the incidents that have a number in common: each start of a run, and each rank, counts its own."""
    parts: list[list[dict[str, Any]]] = []
    latest = -math.inf
    for alarm in sorted(alarms, key=lambda item: item["step"]):
        if alarm["first_step"] > latest + LINGERS:
            parts.append([])
        parts[-1].append(alarm)
        latest = alarm["step"]
    return parts


def _is_hint(alarms: Sequence[Mapping[str, Any]]) -> bool:
    return min(map(_severity, alarms)) == len(SEVERITIES) - 1


def incident_points(result: Sequence[Incident], grids: Mapping[tuple[str, str], Grid]) -> list[Point]:
    """Return a sentence for each incident."""
    points = []
    for incident in result:
        cause = incident.cause(grids)
        now = _now(cause, grids)
        text = say(
            "{}, since step {}: {}{}{}.",
            _where(cause),
            cause["first_step"],
            _what(cause),
            f"; now {now}" if now else "",
            _beside(incident, cause),
        )
        meaning = _meaning(cause)
        tone: Tone = "bad" if incident.severity < 3 else "" if meaning is _ALONE else "warn"
        points.append(
            Point(
                head=f"Severity {incident.severity}",
                text=text,
                tone=tone,
                section="incidents",
                reason=meaning,
                runbook=Cell(text=RUNBOOK),
            )
        )
    return points


def incident_section(result: Sequence[Incident], grids: Mapping[tuple[str, str], Grid]) -> Section | None:
    """Return the section of incidents; without any, None."""
    if not result:
        return None
    blocks = [_table(incident, incident.cause(grids), grids) for incident in result[:_MOST]]
    hints = sum(_is_hint(incident.alarms) for incident in result)
    grave, number = min(incident.severity for incident in result), len(result) - hints
    lead = f"{t.plural(number, 'incident')}, the gravest of severity {grave}: {SEVERITIES[grave]}."
    lead = (lead if number else "No incident.") + (f" {t.plural(hints, 'hint')}." if hints else "")
    tone: Tone = "bad" if number else "warn"
    return Section(id="incidents", title="Incidents", lead=lead, tone=tone, blocks=tuple(blocks))


def _table(incident: Incident, cause: Mapping[str, Any], grids: Mapping[tuple[str, str], Grid]) -> Block:
    """Return the alarms of an incident as a table."""
    severity = f"severity {incident.severity}, {SEVERITIES[incident.severity]}"
    return table(
        "A hint" if _is_hint(incident.alarms) else say("Incident {}: {}", incident.number, severity),
        list(incident.alarms[:_MOST]),
        ("since step", "number", lambda alarm: alarm["first_step"]),
        ("where", "name", _where),
        ("what", "text", lambda alarm: say("{}{}", "Look here: " if alarm is cause else "", _what(alarm))),
        ("expected", "word", _expected),
        ("then", "word", lambda alarm: _number(alarm.get("value"))),
        ("now", "word", lambda alarm: _now(alarm, grids) or _number(alarm.get("value"))),
        number=len(incident.alarms),
        noun="alarm",
        note=_meaning(cause),
    )


def coverage_section(events: Sequence[Mapping[str, Any]]) -> Section | None:
    """Return how many series are judged and what would judge the rest; None where the run does not report it."""
    metrics: dict[str, Any] = {}
    step = 0
    for event in events:
        coverage = event["detail"].get({"coverage": "metrics", "vitals": "coverage"}.get(event["kind"], ""))
        if isinstance(coverage, dict) and coverage:
            metrics, step = coverage, event["step"]
    rows = [
        (Name(str(name), 60), _integer(row.get("series"), 0), _integer(row.get("judged"), 0), str(row.get("why", "")))
        for name, row in metrics.items()
        if isinstance(row, dict)
    ]
    if not rows:
        return None
    series, judged = sum(row[1] for row in rows), sum(row[2] for row in rows)
    by_metric = table(
        "By metric",
        [row for row in rows if row[1] > 0],
        ("metric", "name", lambda row: row[0]),
        ("series", "number", lambda row: row[1]),
        ("judged", "number", lambda row: row[2]),
        ("the rest", "text", lambda row: Name(row[3], 300)),
        note=say(
            "A series that is not judged has fixed rules: not finite, thresholds of the literature, a fourfold of its"
            " recent median, dead units, collapse. Of these alone: {}.",
            join(", ", [row[0] for row in rows if row[1] <= 0]),
        ),
    )
    lead = f"At step {step:,}, {judged:,} of {series:,} series were judged against what is expected of them."
    tone: Tone = "good" if judged == series else "warn"
    return Section(id="coverage", title="Coverage", lead=lead, tone=tone, blocks=(by_metric,))


def marks_of(result: Sequence[Incident], metric: str) -> dict[tuple[int, int], int]:
    """Return by layer and head the first step of an alarm of a metric."""
    marks: dict[tuple[int, int], int] = {}
    for record in (alarm for incident in result for alarm in incident.alarms):
        if record.get("metric") == metric:
            place = _integer(record.get("layer")), _integer(record.get("head"))
            marks[place] = min(marks.get(place, record["first_step"]), record["first_step"])
    return marks


def _expected(alarm: Mapping[str, Any]) -> str:
    if "threshold" in alarm:
        return f"up to {_number(alarm['threshold'])}"
    low, high = (_number(alarm.get(name)) for name in ("low", "high"))
    return f"{low} to {high}" if low and high and low != high else low


def _beside(incident: Incident, cause: Mapping[str, Any]) -> Line:
    """Return what else an incident has beside its cause: what began before it, and what followed."""
    at = next(number for number, alarm in enumerate(incident.alarms) if alarm is cause)
    before, rest = incident.alarms[:at], incident.alarms[at + 1 :]
    places = list(dict.fromkeys(map(_where, before)))[:3]
    earlier = say(". {} began before it ({})", t.plural(at, "alarm"), join("; ", places)) if at else ""
    number = len(rest) + incident.others
    if not number:
        return earlier
    named = list(dict.fromkeys(f"{alarm.get('metric')}" for alarm in rest))[:3]
    return say(
        "{}. {} followed{}",
        earlier,
        t.plural(number, "alarm"),
        say(" ({})", join(", ", (Name(each, 60) for each in named))) if named else "",
    )


def _what(alarm: Mapping[str, Any]) -> Line:
    rule, metric = str(alarm.get("rule")), Name(str(alarm.get("metric", "")), 60)
    if "what" in alarm:
        return Name(str(alarm["what"]), 200)
    value = _number(alarm.get("value"))
    batch = f" in micro-batch {alarm['micro_batch']}" if isinstance(alarm.get("micro_batch"), int) else ""
    if rule == "not_finite":
        return say("{} is not finite{}", metric, batch)
    if rule == "rate":
        return say("the learning rate went from {} to {}", _number(alarm.get("before")), value)
    if rule in _SAID:
        return _SAID[rule]
    if "threshold" in alarm:
        return say("{} is {}, beyond {}", metric, value, _number(alarm["threshold"]))
    low, high = _number(alarm.get("low")), _number(alarm.get("high"))
    expected = say(", expected {} to {}", low, high) if low and high else ""
    return say("{} is {}{}", metric, value or "off", expected)


def _newest(alarm: Mapping[str, Any], grids: Mapping[tuple[str, str], Grid]) -> Floats:
    """Return the newest eight values of an alarm's series, the last one last; fewer where there are fewer."""
    grid = grids.get((str(alarm.get("metric")), str(alarm.get("stat"))))
    place = _integer(alarm.get("layer")), _integer(alarm.get("head"))
    if grid is None or place not in grid.places:
        return np.zeros(0)
    values: Floats = grid.values[grid.places.index(place)]
    return values[np.isfinite(values)][-LEAST_VALUES:]


def _now(alarm: Mapping[str, Any], grids: Mapping[tuple[str, str], Grid]) -> str:
    """Return the newest value of an alarm's series; nothing where there is none."""
    values = _newest(alarm, grids)
    return _number(float(values[-1])) if len(values) else ""


def _is_over(alarm: Mapping[str, Any], grids: Mapping[tuple[str, str], Grid]) -> bool:
    """Tell whether a series is back in the band that it left: the median of its newest eight values."""
    values, low, high = _newest(alarm, grids), alarm.get("low"), alarm.get("high")
    if not isinstance(low, int | float) or not isinstance(high, int | float) or low >= high or not len(values):
        return False
    return bool(low <= np.median(values) <= high)


def _series(alarm: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(alarm.get(name)) for name in ("metric", "layer", "head", "stat"))


def _where(alarm: Mapping[str, Any]) -> str:
    return where_line(alarm.get("layer"), alarm.get("head"), declared(str(alarm.get("metric"))).part)


def where_line(layer: Any, head: Any, part: str = "head") -> str:
    """Return which layer and head, or other part of it, in words."""
    numbers = (("layer", _integer(layer)), (part, _integer(head)))
    return ", ".join(f"{what} {number}" for what, number in numbers if number >= 0) or "whole model"


def _severity(alarm: Mapping[str, Any]) -> int:
    severity = _integer(alarm.get("severity"))
    return severity if 0 <= severity < len(SEVERITIES) else 0 if alarm["rule"] == "not_finite" else 2


def _integer(value: Any, otherwise: int = -1) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _number(value: Any) -> str:
    known = isinstance(value, int | float) and math.isfinite(value)
    if not known:
        return ""
    return "no end" if abs(value) > 1e300 else f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def happened(events: Sequence[dict[str, Any]]) -> Section | None:
    """Return the run's events, newest last."""
    if not events:
        return None
    rows = sorted(events, key=lambda item: (item["step"], item["time"]))
    listed = table_of(
        "Events",
        [row for row in rows if row["kind"] not in {"vitals", "coverage"}],
        ("step", "number", lambda row: row["step"]),
        ("rank", "number", lambda row: row["rank"]),
        ("kind", "name", lambda row: Name(row["kind"], 40)),
        ("detail", "text", lambda row: Name(words_of(row["detail"]), 200)),
        empty="There is none.",
    )
    return Section(id="events", title="Events", lead="What the run wrote, newest last.", blocks=(listed,))


def words_of(detail: dict[str, Any]) -> str:
    """Return what an event holds, as words."""
    return "; ".join(f"{name} {_value(value)}" for name, value in sorted(detail.items()))


def _value(value: Any) -> str:
    """Return what an event holds under a name, without the marks of a programming language."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(map(_value, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)
