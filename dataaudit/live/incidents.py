"""Incidents: alerts that belong together are opened, sent and acknowledged as one.

An alert joins the open incident of its group and attempt; else it opens one. An incident is open while the condition of
a rule of it is met, and ``cool_down`` steps after its latest alert. It is sent when it opens and when it becomes
graver. Of the gravest that nobody acknowledged a reminder is sent, a few times.

``RUNLOG/alerts/INCIDENT/ack.json`` says who acknowledged; the judge reads it there, in whichever process it runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import read_safely, replacing, sync_file
from dataaudit.base.text import clean, utc_now
from dataaudit.live.judging import Alert
from dataaudit.live.rules import Rule

FOLDER = "alerts"
ACK_FILE, INCIDENT_FILE = "ack.json", "incident.json"
REMIND_SECONDS, REMINDERS = 1_800.0, 3
_KEPT_ALERTS = 50
News = Literal["opened", "graver", "reminder", "acted", "resolved"]
RESOLVED_FILE = "resolved.json"


@dataclass
class Incident:
    """Alerts of a group that came close to each other."""

    id: str
    group: str
    attempt: int
    severity: int
    first_step: int
    latest_step: int
    opened: str
    """UTC, ISO 8601."""
    alerts: list[Alert] = field(default_factory=list)
    """The first alerts of it."""
    number: int = 0
    """Alerts of it."""
    ranks: set[int] = field(default_factory=set)
    reminders: int = 0
    acted: int = 0
    """Messages that said what the run did."""
    sent_at: float = 0.0

    @property
    def gravest(self) -> Alert:
        """The alert that says most: the gravest, of these the first."""
        return min(self.alerts, key=lambda alert: (alert.rule.severity, alert.first_step))

    def takes(self, alert: Alert, attempt: int, *, firing: bool) -> bool:
        """Return whether an alert belongs to it."""
        far = alert.step - self.latest_step
        near = -alert.rule.cool_down <= far <= alert.rule.cool_down
        return self.group == alert.rule.grouped and self.attempt == attempt and (near or firing)

    def add(self, alert: Alert) -> bool:
        """Take an alert; return whether it says something that was not known: another rule, or another rank."""
        ranks = set() if alert.no_rank else {alert.rank}
        new = not ranks <= self.ranks or all(alert.rule.name != own.rule.name for own in self.alerts)
        self.number += 1
        self.ranks |= ranks
        self.severity = min(self.severity, alert.rule.severity)
        self.first_step = min(self.first_step, alert.first_step)
        self.latest_step = max(self.latest_step, alert.step)
        if len(self.alerts) < _KEPT_ALERTS or (new and len(self.alerts) < 4 * _KEPT_ALERTS):
            self.alerts.append(alert)
        return new

    def document(self) -> dict[str, Any]:
        """Return it in plain types."""
        names = ("id", "group", "attempt", "severity", "first_step", "latest_step", "opened", "number")
        return {
            **{name: getattr(self, name) for name in names},
            "ranks": sorted(self.ranks),
            "alerts": [alert.document() for alert in self.alerts],
        }


class Incidents:
    """Groups alerts."""

    def __init__(self) -> None:
        self.all: list[Incident] = []

    def join(self, alert: Alert, attempt: int, *, firing: bool) -> tuple[Incident, News | None, bool]:
        """Return the incident of an alert, whether it is to be sent, and whether its record changed.

        Args:
            alert: The alert.
            attempt: Of the run on its rank.
            firing: Whether the condition of a rule of the group has been met all the time, by another series.
        """
        for known in reversed(self.all):
            if known.takes(alert, attempt, firing=firing):
                graver = alert.rule.severity < known.severity
                changed = known.add(alert)
                return known, "graver" if graver else None, changed or graver
        suffix = f"-attempt{attempt}" if attempt > 0 else ""
        severity = alert.rule.severity
        made = Incident(
            id=f"step{alert.step:08d}-{alert.rule.grouped}{suffix}",
            group=alert.rule.grouped,
            attempt=attempt,
            severity=severity,
            first_step=alert.first_step,
            latest_step=alert.step,
            opened=utc_now(),
        )
        made.add(alert)
        self.all.append(made)
        return made, "opened", True


class Over:
    """Returns incidents that are over: no rule of the group fires, or is fed, and ``cool_down`` steps have gone by.

    Those that an earlier start of the run left open are over then, too. ``resolved.json`` says so, for all processes.
    """

    def __init__(self, runlog: Path, rules: Sequence[Rule]) -> None:
        self._runlog = runlog
        self._rules: defaultdict[str, list[Rule]] = defaultdict(list)
        for rule in rules:
            self._rules[rule.grouped].append(rule)
        self._open: dict[str, Incident] | None = None

    def add(self, incident: Incident) -> None:
        """Take an incident that is open."""
        self._known()[incident.id] = incident

    def see(
        self, step: int, firing: Callable[[Rule], bool], unfed: Callable[[Rule], str]
    ) -> Iterator[tuple[Incident, str]]:
        """Take a step that ended, and yield the incidents that are over, or not fed any more, and why."""
        for own in list(self._known().values()):
            rules = self._rules[own.group]
            wait = max((rule.cool_down for rule in rules), default=0)
            if step <= own.latest_step + wait or any(map(firing, rules)):
                continue
            del self._known()[own.id]
            cause = next(filter(None, map(unfed, rules)), "")
            why = f"It is not judged any more, and may go on: {cause}." if cause else "The condition is met no longer."
            file = self._runlog / FOLDER / own.id / RESOLVED_FILE
            with suppress(OSError):
                if file.parent.is_dir() and not file.exists():
                    replace_synced(file, orjson.dumps({"time": utc_now(), "step": step, "why": why}) + b"\n")
            yield own, why

    def _known(self) -> dict[str, Incident]:
        if self._open is None:  # rows came, so there is a run log
            self._open = {}
            for name, record in stored_incidents(self._runlog).items():
                with suppress(KeyError, TypeError, ValueError):
                    if not (self._runlog / FOLDER / name / RESOLVED_FILE).exists():
                        severity, latest = int(record["severity"]), int(record["latest_step"])
                        self._open[name] = Incident(name, str(record["group"]), 0, severity, latest, latest, "")
        return self._open


@dataclass(frozen=True)
class Acknowledged:
    """Who acknowledged an incident, and at which severity."""

    who: str
    note: str
    time: str
    severity: int


def acknowledged(folder: Path) -> Acknowledged | None:
    """Return the acknowledgement in the folder of an incident; None where there is none, or none that can be read."""
    try:
        record = orjson.loads(read_safely(folder / ACK_FILE))
        return Acknowledged(str(record["who"]), str(record["note"]), str(record["time"]), int(record["severity"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def acknowledge(runlog: Path, incident: str, who: str, note: str) -> Acknowledged:
    """Write that somebody takes care of an incident.

    Raises:
        ConfigError: There is no such incident, or its folder cannot be written.
    """
    known = stored_incidents(runlog)
    if incident not in known:
        named = ", ".join(clean(name) for name in sorted(known)) or "none"
        raise ConfigError(
            f"{runlog} has no incident `{clean(incident)}`: {named}",
            "`dataaudit watch RUNLOG --alert --once` lists them.",
        )
    if not who.strip():
        raise ConfigError("--who: expected a name")
    made = Acknowledged(who, note, utc_now(), int(known[incident].get("severity", 0)))
    folder = runlog / FOLDER / incident
    try:
        replace_synced(folder / ACK_FILE, orjson.dumps(made, option=orjson.OPT_INDENT_2) + b"\n")
    except OSError as error:
        raise ConfigError(f"{folder / ACK_FILE} cannot be written: {error.strerror or error}") from None
    return made


def stored_incidents(runlog: Path, ending: str = "") -> dict[str, dict[str, Any]]:
    """Return the incidents whose folders lie beside a run log, by id; those that cannot be read are left out."""
    found = {}
    try:
        folders = sorted((runlog / FOLDER).iterdir())
    except OSError:
        return {}
    for folder in folders:
        if folder.name.startswith(".") or not folder.name.endswith(ending):
            continue
        try:
            record = orjson.loads(read_safely(folder / INCIDENT_FILE))
        except (OSError, ValueError):
            continue
        if isinstance(record, dict):
            found[folder.name] = record
    return found


def stored_id(runlog: Path, incident: Incident, own: Collection[str]) -> str:
    """Return the id under which another process stored a new incident; its own where none did.

    Rows of a step may come in another order there, and another alert of the group first.
    """
    ending = f"-{incident.group}" + (f"-attempt{incident.attempt}" if incident.attempt else "")
    for name, record in stored_incidents(runlog, ending).items():
        with suppress(KeyError, TypeError):
            room = incident.gravest.rule.cool_down
            near = record["first_step"] - room <= incident.first_step <= record["latest_step"] + room
            if near and name not in own and record["group"] == incident.group:
                return name
    return incident.id


def replace_synced(path: Path, data: bytes) -> None:
    """Write a file whole, in place of what has its name, and force it to disk first."""
    with replacing(path) as file:
        file.write(data)
        sync_file(file)
