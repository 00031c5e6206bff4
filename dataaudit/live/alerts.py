"""Alerts of a run: the judge, incidents, evidence and delivery together, in the process or beside it.

::

    with Alerts("runs/7b", "alerts.yaml") as alerts, TrainingMonitor("runs/7b", corpus, alerts=alerts) as monitor:
        ...

:class:`Response` is the part that has no thread and knows no source: ``dataaudit watch`` feeds it from a growing log,
:class:`Alerts` from the rows that the process itself writes.
"""

from __future__ import annotations

import atexit
import datetime as dt
import hashlib
import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any, Final, Self

import numpy as np
import orjson

from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.live.actions import Actions
from dataaudit.live.agreement import Asked
from dataaudit.live.delivery import Boxes, Message, called, missing_variables, outbox
from dataaudit.live.evidence import LogTail, Writer
from dataaudit.live.feed import Feed, Happened, Item, Stepped
from dataaudit.live.incidents import REMIND_SECONDS, REMINDERS, Incident, Incidents, News, Over, acknowledged, stored_id
from dataaudit.live.judging import Alert, Judge, State
from dataaudit.live.rules import AlertsFile, load_alerts
from dataaudit.runlog.following import Follower
from dataaudit.runlog.writer import Columns, event
from dataaudit.vitals.sinks import Reporter, Sink

_WAITING_ITEMS = 8_192
_TICK_SECONDS = 1.0
_RECALLED_BYTES = 1 << 20
"""Of a part of the log of the attempts before, read at a time."""
_CLOSE_SECONDS = 10.0
_LOG = logging.getLogger("dataaudit")
_WORDS: Final = {
    "opened": "",
    "graver": "graver now: ",
    "reminder": "nobody acknowledged: ",
    "acted": "the run acted: ",
    "resolved": "over: ",
}
_OUTCOMES = frozenset({"done", "refused", "failed", "abandoned"})
_TABLES = frozenset({"steps", "values", "events", "stretches", "lengths"})


class Response:
    """Judges items of a feed, and does what alerts ask for: evidence first, then messages.

    Args:
        runlog: Folder of the run log.
        file: The rules.
        boxes: Where messages go.
        ranks: Processes of the run; None where only this process's own rows come.
        log: A file whose end is evidence.
        tail: The process's own log.
        actions: What a rule may have done.
    """

    def __init__(
        self,
        runlog: Path,
        file: AlertsFile,
        boxes: Boxes,
        *,
        ranks: int | None = None,
        log: Path | None = None,
        tail: LogTail | None = None,
        actions: Actions | None = None,
    ) -> None:
        self.runlog, self.file, self.boxes = runlog, file, boxes
        self.name = runlog.resolve().name
        wanted = {rule.metric for rule in file.rules if rule.metric} | {name for r in file.rules for name in r.fed_by}
        window = file.evidence
        self.feed = Feed(wanted, ranks, steps=window.steps, batches=window.batches)
        self.judge = Judge(file.rules, self.feed)
        self.incidents = Incidents()
        self.silenced: Counter[str] = Counter()
        """Alerts of rules that were silent, by rule."""
        digest = hashlib.sha256(orjson.dumps(file.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)).hexdigest()
        self.evidence = Writer(runlog, self.feed, window, f"sha256:{digest}", log=log, tail=tail)
        self._in_process, self._actions = tail is not None, actions
        self._becomes: dict[tuple[str, str], str] = {}
        """What becomes of an action that an incident's rule names, by both."""
        self._done: dict[tuple[str, str], str] = {}
        """What the run logged of them; a log that is followed may say so before the alert is judged."""
        self._acted: set[str] = set()
        """Incidents of which the run did something that was not sent yet."""
        self._over = Over(runlog, file.rules)

    def take(self, items: Iterable[Item]) -> None:
        """Take items of the feed."""
        if not self.feed.sources:
            self.feed.sources = self.evidence.sources()
        for item in items:
            for alert in self.judge.see(item):
                self._respond(alert)
            if isinstance(item, Stepped):
                self.evidence.see(item.step)
                self._tell_done()
                for incident, why in self._over.see(item.step, self.judge.firing, self.judge.unfed):
                    self._resolve(incident, why)
            elif isinstance(item, Happened) and item.kind == "action":
                self._note_done(item.step, item.detail)

    def tick(self, now: float) -> None:
        """Look at the clock: what was not heard of, and whom to remind."""
        for alert in self.judge.tick(now):
            self._respond(alert)
        self._tell_done()
        for incident in self.incidents.all[-32:]:
            if incident.severity or incident.reminders >= REMINDERS or now - incident.sent_at < REMIND_SECONDS:
                continue
            firing = any(self.judge.firing(alert.rule) for alert in incident.alerts)
            if firing and acknowledged(self.evidence.path(incident)) is None:
                incident.reminders += 1
                self._send(incident, "reminder")

    def close(self) -> None:
        """Look at the clock once more, and write what followed upon incidents."""
        self.tick(time.time())
        self.evidence.see(self.feed.newest_step, closing=True)

    def _respond(self, alert: Alert) -> None:
        silence = alert.rule.silence
        if silence is not None and silence.holds(alert.step, dt.datetime.now(dt.UTC)):
            self.silenced[alert.rule.name] += 1
            return
        attempt = max(0, self.feed.ranks[alert.rank].attempt)
        group = [rule for rule in self.file.rules if rule.grouped == alert.rule.grouped]
        firing = any(self.judge.firing(rule, besides=int(rule is alert.rule)) for rule in group)
        incident, news, changed = self.incidents.join(alert, attempt, firing=firing)
        if news == "opened":
            incident.id = stored_id(self.runlog, incident, {own.id for own in self.incidents.all})
            if self.evidence.publish(incident) and self._in_process:
                book = self.evidence.path(incident) / "runbook.md"
                _LOG.warning("step %d: alert, severity %d: %s: %s", alert.step, incident.severity, alert.words, book)
        elif changed or incident.number & (incident.number - 1) == 0:
            self.evidence.renew(incident)
        self._ask(alert, incident)
        self._over.add(incident)
        if news is not None:
            known = acknowledged(self.evidence.path(incident))
            if known is None or incident.severity < known.severity:
                self._send(incident, news)

    def _ask(self, alert: Alert, incident: Incident) -> None:
        """Ask for the actions that a rule names; of those that the loop did not hand over nothing is done."""
        for name in alert.rule.actions:
            if self._actions is None or (incident.id, name) in self._becomes:
                self._becomes.setdefault((incident.id, name), self._done.get((incident.id, name), "suggested"))
                continue
            asked = Asked(
                action=name,
                step=alert.step,
                rank=alert.rank,
                rule=alert.rule.name,
                incident=incident.id,
                folder=str(self.evidence.path(incident).absolute()),
                first_step=alert.first_step,
                why=f"{alert.rule.name}: {alert.words}",
            )
            self._becomes[incident.id, name] = self._actions.ask(asked)

    def _note_done(self, step: int, record: Mapping[str, Any]) -> None:
        """Take what became of an action, as the run logged it."""
        asked, result = (str(record.get("incident")), str(record.get("action"))), record.get("result")
        if asked in self._done or result not in _OUTCOMES:
            return
        self._done[asked] = f"{result} at step {step:,}: {record.get('words')}"
        if asked in self._becomes:
            self._becomes[asked] = self._done[asked]
            self._acted.add(asked[0])

    def _tell_done(self) -> None:
        """Send what the run did by itself, of each incident in a message."""
        for incident in self.incidents.all if self._acted else ():
            if incident.id in self._acted:
                incident.acted += 1
                self._send(incident, "acted")
        self._acted.clear()

    def _resolve(self, incident: Incident, why: str) -> None:
        folder = self.evidence.path(incident)
        facts = {
            "news": "resolved",
            "incident": incident.id,
            "severity": incident.severity,
            "group": incident.group,
            "about": why,
            "action": "",
            "alerts": [],
            "number": 0,
            "run": self.name,
            "runlog": str(self.runlog),
            "evidence": str(folder),
            "ack": "",
        }
        title = f"SEV{incident.severity} {_WORDS['resolved']}{incident.group} of {self.name}"
        self.boxes.put(Message(incident.severity, title, facts, folder))

    def _send(self, incident: Incident, news: News) -> None:
        incident.sent_at = time.time()
        step = f"{incident.gravest.rule.name} at step {incident.first_step:,}"
        title = f"SEV{incident.severity} {_WORDS[news]}{step} of {self.name}"
        self.boxes.put(Message(incident.severity, title, self.facts(incident, news), self.evidence.path(incident)))

    def facts(self, incident: Incident, news: News = "opened") -> dict[str, Any]:
        """Return what a message says of an incident, in plain types."""
        rule = incident.gravest.rule
        failed = next((own for own in reversed(self.evidence.failures) if own.startswith(f"{incident.id}:")), "")
        return {
            "news": {"reminder": f"reminder-{incident.reminders}", "acted": f"acted-{incident.acted}"}.get(news, news),
            "incident": incident.id,
            "severity": incident.severity,
            "group": incident.group,
            "rule": rule.name,
            "about": rule.about,
            "action": rule.action,
            "actions": {name: own for (known, name), own in self._becomes.items() if known == incident.id},
            "step": incident.gravest.step,
            "first_step": incident.first_step,
            "number": incident.number,
            "alerts": [alert.document() for alert in incident.alerts[:10]],
            "run": self.name,
            "runlog": str(self.runlog),
            "evidence": f"not written: {failed}" if failed else str(self.evidence.path(incident)),
            "ack": f"dataaudit alerts ack {quote(str(self.runlog))} {incident.id} --who NAME --note TEXT",
        }


def boxes_of(file: AlertsFile, functions: Sequence[Callable[[dict[str, Any]], object]] = ()) -> Boxes:
    """Return the outboxes of a file, and of functions.

    Raises:
        ConfigError: The environment lacks a variable that the file names.
    """
    if missing := missing_variables(file.deliver):
        raise ConfigError(
            f"the environment has no variable {', '.join(missing)}, which `deliver` names",
            "Set it where the process starts; its value is shown nowhere. `watch --no-send` looks without it.",
        )
    named = [called(getattr(item, "__name__", "function"), item) for item in functions]
    return Boxes([*map(outbox, file.deliver), *named])


class Alerts:
    """Judges the rows of the process's own run, in a thread of its own; nothing waits for it.

    Hand it to ``TrainingMonitor(..., alerts=)`` or ``RunLogSink(..., alerts=)``, which give it all that they log.
    Without either it is a sink for vitals: ``Vitals(..., sinks=[alerts])``.

    Args:
        folder: Of the run log; evidence lies in ``alerts`` below it.
        rules: An ``alerts.yaml``, or what it holds; the shipped rules by default.
        deliver: Functions that are called with the facts of a message, beside the destinations of the file.
        sinks: Get an event ``alert`` with the facts of each message: the trackers of the run.
        rank: Of this process, where it is only a sink.
        actions: What a rule may have done, where its ``actions:`` name it; without it nothing is.

    Raises:
        ConfigError: The rules are none, or the environment lacks a variable that they name.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        rules: str | os.PathLike[str] | AlertsFile | None = None,
        *,
        deliver: Sequence[Callable[[dict[str, Any]], object]] = (),
        sinks: Sequence[Sink] = (),
        rank: int = 0,
        actions: Actions | None = None,
    ) -> None:
        file = rules if isinstance(rules, AlertsFile) else load_alerts(None if rules is None else Path(rules))
        self.lost = 0
        """Rows that came faster than they were judged, or could not be."""
        self.failures: Counter[str] = Counter()
        """What failed inside, by class and line; it cost itself."""
        self.actions = actions
        self._rank, self._attempt = rank, 0
        self._tail = LogTail()
        logging.getLogger().addHandler(self._tail)
        reporter = Reporter(sinks)

        def trackers(facts: dict[str, Any]) -> None:
            reporter.event(facts["step"], "alert", facts)

        boxes = boxes_of(file, [*deliver, *([trackers] if sinks else [])])
        self.response = Response(Path(folder), file, boxes, tail=self._tail, actions=actions)
        self._queue: queue.Queue[tuple[str, Columns, float] | None] = queue.Queue(_WAITING_ITEMS)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="dataaudit-alerts", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # what an error ends is sent, too

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def joins(self, rank: int, attempt: int) -> None:
        """Take which rank's log is observed, and which start of the run this is."""
        self._rank, self._attempt = rank, attempt

    def take(self, table: str, columns: Columns) -> None:
        """Take rows of a table of the run log as they are written."""
        if table not in _TABLES or self._closed:
            return
        try:
            self._queue.put_nowait((table, columns, time.time()))
        except queue.Full:
            self.lost += 1

    def add_values(self, columns: Columns) -> None:
        """Take rows of the table of values, as vitals hand them over."""
        self.take("values", columns)

    def add_histogram(self, step: int, metric: str, stat: str, edges: np.ndarray, counts: np.ndarray) -> None:
        """Take a histogram, which no rule judges."""

    def add_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Take an event."""
        self.take("events", event(step, kind, detail))

    def states(self) -> list[State]:
        """Return how each rule stands: ok, firing, or not evaluated and why."""
        return self.response.judge.states()

    def close(self) -> None:
        """Judge what came, send what waits for ten seconds at most, and end."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        with suppress(queue.Full):  # a disk that does not answer ends no run's end
            self._queue.put(None, timeout=_CLOSE_SECONDS)
        self._thread.join(3 * _CLOSE_SECONDS)
        if self.actions is not None:
            self.actions.end()
        logging.getLogger().removeHandler(self._tail)
        self.response.boxes.close(_CLOSE_SECONDS)

    def _run(self) -> None:
        ticked = time.monotonic()
        while True:
            item, ends = None, False
            with suppress(queue.Empty):
                item = self._queue.get(timeout=_TICK_SECONDS)
                ends = item is None
            with CatchErrors() as call:
                if item is not None:
                    self._take(*item)
                elif ends:
                    self.response.close()
                if time.monotonic() - ticked >= _TICK_SECONDS:
                    ticked = time.monotonic()
                    self.response.tick(time.time())
            if call.error is not None:
                self._failed(call)
            if ends:
                return

    def _recall(self) -> None:
        """Take from the log of the attempts before what was healthy; what fired then fires no more."""
        self.response.take(())  # it knows the names of sources then
        judge, feed, follower = self.response.judge, self.response.feed, Follower(self.response.runlog, {self._rank})
        follower.most, until = _RECALLED_BYTES, judge.healthy_until()
        for rows in follower.read() if until else ():
            if rows.attempt >= self._attempt or rows.last_step > until:
                return
            for item in feed.follow([rows]):
                judge.see(item)

    def _take(self, table: str, columns: Columns, came: float) -> None:
        feed = self.response.feed
        if self._attempt > 0 and not feed.ranks:
            self._recall()
        self.response.take(feed.begin(self._rank, self._attempt, came))
        self.response.take(feed.take(table, self._rank, columns, came))

    def _failed(self, call: CatchErrors) -> None:
        if not self.failures:
            _LOG.warning("alerts: rows could not be judged (%s); training goes on", call.origin)
        self.failures[call.origin] += 1
        self.lost += 1
