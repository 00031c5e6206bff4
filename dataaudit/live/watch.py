"""``dataaudit watch``: follows a run log from another process, and judges it by the same rules as the run itself.

What lies around the log is judged with it: heartbeats, the age of its rows, restarts, errors that the run prints.
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dataaudit.base.errors import CatchErrors, DataAuditError, ExitCode
from dataaudit.base.text import clean, plural
from dataaudit.live.alerts import Response, boxes_of
from dataaudit.live.delivery import Boxes
from dataaudit.live.feed import Feed
from dataaudit.live.heartbeats import BEATS_FOLDER, Heartbeats
from dataaudit.live.incidents import acknowledged
from dataaudit.live.judging import State
from dataaudit.live.log_triage import triage
from dataaudit.live.rules import AlertsFile, Rule, load_alerts
from dataaudit.live.run_rates import live_values, restart_rate
from dataaudit.runlog.following import Follower
from dataaudit.runlog.format import RUN_FILE
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import Columns

_SEND_SECONDS, _CLOSE_SECONDS = 30.0, 40.0
EVERY_SECONDS = 60.0
"""Between two readings of what is read whole: the starts of a run, its text log."""
MOST_LOG_BYTES = 1 << 28


@dataclass
class Watched:
    """What a run log shows by some rules."""

    runlog: str
    steps: int
    ranks: list[dict[str, Any]]
    incidents: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    silenced: dict[str, int]
    damaged: list[str]
    deliveries: list[dict[str, Any]] = field(default_factory=list)
    exit_code: ExitCode = ExitCode.PASS

    def document(self) -> dict[str, Any]:
        """Return it in plain types."""
        return {**vars(self), "exit_code": int(self.exit_code)}


def wait_for(runlog: Path, interval: float, show: Callable[[str], None]) -> None:
    """Wait until a run log is there; show once that it is not."""
    if not (runlog / RUN_FILE).exists():
        show(f"{runlog}: no run log is there yet; `watch` waits for it, and Ctrl-C ends it")
    while not (runlog / RUN_FILE).exists():
        time.sleep(interval)


class Surroundings:
    """Reads what is around a run log, each part where it is there.

    Args:
        runlog: Folder of the run log; heartbeats lie in ``beats`` below it.
        log: A file that the run prints to.
    """

    def __init__(self, runlog: Path, log: Path | None) -> None:
        self._runlog, self._log = runlog, log
        self._beats = Heartbeats(runlog / BEATS_FOLDER)
        self._read_at = float("-inf")
        self._restarts: float | None = None
        self._errors: Mapping[str, float | None] = {}

    def rows(self, feed: Feed, now: float) -> tuple[Columns, dict[str, int]]:
        """Return rows of the table of values, for the newest step of a run, and the rank that each is worst of."""
        beats = None
        if (self._runlog / BEATS_FOLDER).is_dir():
            with suppress(DataAuditError):
                beats = self._beats.read()
        if now - self._read_at >= EVERY_SECONDS:
            self._read_at = now
            self._read_whole(now, () if beats is None else beats.starts)
        running = {rank: own for rank, own in feed.ranks.items() if feed.runs(rank) and not own.closed}
        lag = {rank: max(0.0, now - own.heard) for rank, own in running.items()}
        worst = {"metrics_ingest_lag": max(lag, key=lambda rank: lag[rank])} if lag else {}
        if missing := [own.rank for own in beats.ranks if own.state == "missing"] if beats else []:
            worst["heartbeat_missing"] = missing[0]
        errors = self._errors
        return live_values(feed.newest_step, beats=beats, lag=lag, restarts=self._restarts, errors=errors), worst

    def _read_whole(self, now: float, starts: Sequence[float]) -> None:
        known, self._restarts, self._errors = self._errors, None, {}  # what was read before is not so any more
        with suppress(DataAuditError, OSError):
            self._restarts = restart_rate(self._runlog, starts, now)
        with suppress(DataAuditError, OSError):
            if self._log is not None and self._log.stat().st_size <= MOST_LOG_BYTES:
                read = triage([self._log])
                gone = dict.fromkeys(known.keys() - {"any"}, 0.0)  # classes that the log names no more
                self._errors = {**gone, **(read.error_event_rate() or {"any": 0.0})} if read.lines else {}


class Watch:
    """Follows a run log.

    Args:
        runlog: Its folder.
        file: The rules.
        log: A file whose end is evidence.
        send: Whether messages are sent.

    Raises:
        RunLogError: There is no run log, or it is damaged.
        ConfigError: The environment lacks a variable that the rules name.
    """

    def __init__(self, runlog: Path, file: AlertsFile, *, log: Path | None = None, send: bool = True) -> None:
        run = load_run(runlog).run
        boxes = boxes_of(file) if send else Boxes()
        self._follower = Follower(runlog)
        self.response = Response(runlog, file, boxes, ranks=run.ranks, log=log)
        self._surroundings = Surroundings(runlog, log)
        self._began = _seconds(run.started)
        self.failed = ""
        """What the newest look failed by, where others look after it."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules."""
        return self.response.file.rules

    @property
    def judged_step(self) -> int:
        """The step up to which rules were judged."""
        return self.response.feed.newest_step

    def states(self) -> list[State]:
        """Return how each rule stands."""
        return self.response.judge.states()

    def look(self) -> None:
        """Judge what came since the last time."""
        feed = self.response.feed
        self.response.take(feed.follow(self._follower.read()))
        now = time.time()
        first, since, attempt = feed.ranks.get(0), self._began, 0
        if first is not None and first.attempt > 0:
            since, attempt = max(since, first.started or first.began), first.attempt
        for rank in range(feed.expected or 1):  # of a rank that wrote nothing the silence began with the newest start
            own = feed.ranks.get(rank)
            if own is None or (own.closed and own.attempt < attempt and own.heard < since):
                self.response.take(feed.begin(rank, -1, since))
        self.response.take(feed.around(*self._surroundings.rows(feed, now)))
        self.response.tick(now)

    def follow(self, interval: float, ended: threading.Event, show: Callable[[str], None]) -> None:
        """Look again and again until the run is closed on all ranks, or somebody ends it; show what is new."""
        shown, failed = 0, ""
        while not ended.is_set():
            with CatchErrors() as call:
                self.look()
            if call.error is not None and call.origin != failed:
                show(f"a look failed ({call.origin}), and is tried again\n")
            failed = call.origin
            for incident in self.response.incidents.all[shown:]:
                show(_line(self.response.facts(incident)))
            shown = len(self.response.incidents.all)
            feed = self.response.feed
            ranks = dict(feed.ranks)
            if ranks and all(own.closed or not feed.runs(rank) for rank, own in ranks.items()):
                break
            ended.wait(interval)

    def close(self) -> Watched:
        """Write and send what waits, and return what was seen."""
        self.response.close()
        self.response.boxes.close(_SEND_SECONDS)
        feed, states = self.response.feed, self.states()
        incidents = []
        for incident in self.response.incidents.all:
            known = acknowledged(self.response.evidence.path(incident))
            ack = None if known is None else {"who": known.who, "note": known.note, "time": known.time}
            incidents.append({**self.response.facts(incident), "acknowledged": ack})
        required = {rule.name for rule in self.response.file.rules if rule.required}
        unfed = {state.rule for state in states if state.state == "not_evaluated"}
        code = ExitCode.NOT_EVALUATED if unfed & required or self._follower.damaged else ExitCode.PASS
        if len(unfed) == len(states) and not self._follower.damaged:
            code = ExitCode.NOTHING_EVALUATED
        if any(own["acknowledged"] is None for own in incidents):
            code = ExitCode.BUDGET_EXCEEDED
        ranks = [
            {"rank": rank, "step": own.step, "attempt": own.attempt, "closed": own.closed, "heard": own.heard}
            for rank, own in sorted(feed.ranks.items())
        ]
        return Watched(
            runlog=str(self.response.runlog),
            steps=feed.newest_step,
            ranks=ranks,
            incidents=incidents,
            rules=[state._asdict() for state in states],
            silenced=dict(self.response.silenced),
            damaged=self._follower.damaged,
            deliveries=self.response.boxes.report(),
            exit_code=code,
        )


class WatchProcess:
    """A :class:`Watch` in a child process: evidence and messages are its own, states come through a pipe.

    Args:
        runlog: Folder of the run log.
        file: An ``alerts.yaml``; the shipped rules without a file.
        log: A file whose end is evidence.
        send: Whether messages are sent.
        interval: Seconds between two looks.

    Raises:
        ConfigError: The rules are none.
    """

    def __init__(self, runlog: Path, file: Path | None, *, log: Path | None, send: bool, interval: float) -> None:
        self.rules: tuple[Rule, ...] = load_alerts(file).rules
        self.judged_step = 0
        """The step up to which rules were judged."""
        self.failed = ""
        """What the newest look failed by, if it did; "ended" where the process is gone."""
        self._states: list[State] = []
        context = multiprocessing.get_context("spawn")  # threads of this process are not copied
        self._pipe, other = context.Pipe()
        arguments = (other, runlog, file, log, send, interval)
        self._process = context.Process(target=_judge, args=arguments, name="dataaudit-judge", daemon=True)
        self._process.start()
        other.close()

    def states(self) -> list[State]:
        """Return how each rule stands, as of the newest look that is done; nothing before the first."""
        with suppress(EOFError, OSError):
            while self._pipe.poll():
                self._states, self.judged_step, self.failed = self._pipe.recv()
        if not self._process.is_alive():
            self.failed = "ended"
        return self._states

    def close(self) -> None:
        """End it when what waits is written and sent, or after some seconds."""
        with suppress(OSError):
            self._pipe.send(None)
        self._process.join(_CLOSE_SECONDS)
        self._process.terminate()
        self._pipe.close()


def _judge(pipe: Connection, runlog: Path, file: Path | None, log: Path | None, send: bool, interval: float) -> None:
    """Look again and again, until the other side says or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the other side ends this
    watch = Watch(runlog, load_alerts(file), log=log, send=send)
    try:
        while True:
            with CatchErrors() as call:
                watch.look()
            states, step = watch.states(), watch.judged_step
            pipe.send((states, step, "" if call.error is None else call.origin))
            if pipe.poll(interval):
                pipe.recv()
                return
    except (EOFError, OSError):
        return
    finally:
        watch.close()


def _seconds(started: str) -> float:
    """Return when a run began, seconds since 1970; now, where that is not known."""
    try:
        return dt.datetime.fromisoformat(started).timestamp()
    except ValueError:
        return time.time()


def _line(facts: dict[str, Any]) -> str:
    seen = facts["alerts"][0]["seen"]
    return clean(f"SEV{facts['severity']}  {facts['incident']}: {seen}") + f"\n      {clean(facts['evidence'])}\n"


def watched_text(watched: Watched) -> str:
    """Return what was seen as lines for a terminal."""
    states = ("firing", "ok", "not_evaluated")
    by_state = {name: [own for own in watched.rules if own["state"] == name] for name in states}
    number = len(watched.incidents)
    head = f"{clean(watched.runlog)}: step {watched.steps:,}, {plural(len(watched.ranks), 'rank')}, "
    lines = [head + (plural(number, "incident") if number else "no incident")]
    for own in watched.incidents:
        ack = own["acknowledged"]
        lines.append(_line(own).rstrip("\n"))
        lines.append(f"      {'acknowledged by ' + clean(ack['who']) if ack else clean(own['ack'])}")
    counts = ", ".join(f"{len(rules)} {name.replace('_', ' ')}" for name, rules in by_state.items())
    lines.append(f"rules: {counts}")
    width = max((len(own["rule"]) for own in by_state["not_evaluated"]), default=0)
    lines += [f"  not evaluated  {own['rule']:<{width}}  {clean(own['why'])}" for own in by_state["not_evaluated"]]
    lines += [f"  silenced  {name}: {plural(own, 'alert')}" for name, own in watched.silenced.items()]
    lines += [f"  damaged  {clean(name)}: what follows in it is not judged" for name in watched.damaged]
    for own in watched.deliveries:
        rest = f", last failure: {own['failure']}" if own["failure"] else ""
        lines.append(
            f"  sent  {clean(own['name'])}: {own['sent']}, waiting {own['waiting']}, dropped {own['dropped']}{rest}"
        )
    return "\n".join(lines) + "\n"
