"""Evidence of an incident: what is on disk, and forced to it, before anything is sent.

::

    RUNLOG/alerts/INCIDENT/incident.json       alerts, rules, digests of the run, what is missing and why
    RUNLOG/alerts/INCIDENT/runbook.md          what it means, what to look at first, what is safe to do
    RUNLOG/alerts/INCIDENT/numbers.csv         all numbers of the steps before; numbers-after.csv, once they are there
    RUNLOG/alerts/INCIDENT/layer.csv           of these, what vitals saw of the layers concerned
    RUNLOG/alerts/INCIDENT/events.csv          events of these steps
    RUNLOG/alerts/INCIDENT/batches.csv         documents of the newest batches: shard, row, source, loss
    RUNLOG/alerts/INCIDENT/attribution.json    what ``dataaudit attribute`` said of the run so far
    RUNLOG/alerts/INCIDENT/log.txt             the end of the process's own log
    RUNLOG/alerts/INCIDENT/ranks.csv           what each rank was doing at its last heartbeat
    RUNLOG/alerts/INCIDENT/deliveries.jsonl    what was sent where, and what became of it
    RUNLOG/alerts/INCIDENT/actions.jsonl       what the run did by itself, or why not
    RUNLOG/alerts/INCIDENT/resolved.json       when it was over

The folder appears whole: it is written beside its place and renamed. Of two processes that see the same incident the
second finds it there, and sends only what the first did not.
"""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import os
import platform
import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from dataaudit import __version__
from dataaudit.base.errors import CatchErrors, RunLogError
from dataaudit.base.files import open_safely, read_safely, sync_folder, write_synced
from dataaudit.base.redact import without_secrets
from dataaudit.live.feed import Feed
from dataaudit.live.heartbeats import BEATS_FOLDER, Heartbeats
from dataaudit.live.incidents import FOLDER, INCIDENT_FILE, Incident, replace_synced
from dataaudit.live.judging import of_rank
from dataaudit.live.rules import Evidence, runbook
from dataaudit.runlog.following import Rows, stored_stretches
from dataaudit.runlog.format import ATTRIBUTION_FILE, RUN_FILE, STRETCHES
from dataaudit.runlog.reader import RunLog, load_run

_CLAIM_SECONDS = 60.0
"""After which another process sends what was begun to be sent, and was not."""
_LOG_LINES, _LOG_BYTES = 500, 64 << 10
_PLAIN = (str, int, float, type(None))
_VALUES = ("rank", "step", "metric", "layer", "head", "stat", "value")
_STRETCHES = tuple(STRETCHES.schema.names)
_EVENTS = ("rank", "step", "time", "kind", "detail")
_RANKS = ("rank", "node", "pid", "state", "step", "step_seconds", "beat_seconds", "where", "why")
_STEPS = ("time", "micro_batches", "targets", "scored", "loss_sum", "user_loss", "merged")
DELIVERIES_FILE = "deliveries.jsonl"


class LogTail(logging.Handler):
    """Keeps the newest records of the process's own log, as lines."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record; arguments that are no plain values are left out: the text of a tensor waits for a device."""
        with CatchErrors():
            given = record.args.values() if isinstance(record.args, Mapping) else record.args or ()
            if not all(isinstance(own, _PLAIN) for own in (record.msg, *given)):
                message = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
                record = logging.makeLogRecord({**vars(record), "msg": f"{message} (not shown)", "args": ()})
            self._lines.append(self.format(record)[:4_000])

    def text(self) -> str:
        """Return the newest lines."""
        return "".join(f"{line}\n" for line in list(self._lines))


def tail_of(path: Path) -> str:
    """Return the end of a file of text; why not, where it cannot be read."""
    try:
        with open(path, "rb", opener=open_safely) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}\n"


class Writer:
    """Writes evidence of incidents of a run.

    Args:
        runlog: Folder of the run log.
        feed: Whose newest rows are the evidence.
        window: How many steps and batches.
        digest: Of the rules that judge.
        log: A file whose end is kept; without it that of the process's own log.
        tail: The process's own log.
    """

    def __init__(
        self, runlog: Path, feed: Feed, window: Evidence, digest: str, *, log: Path | None = None, tail: LogTail | None
    ) -> None:
        self.runlog, self.folder = runlog, runlog / FOLDER
        self.failures: list[str] = []
        """What could not be written."""
        self._feed, self._window, self._digest = feed, window, digest
        self._log, self._tail = log, tail
        self._after: dict[str, Incident] = {}
        self._missing: dict[str, dict[str, str]] = {}

    def path(self, incident: Incident) -> Path:
        """Return the folder of an incident."""
        return self.folder / incident.id

    def publish(self, incident: Incident) -> bool:
        """Write the folder of a new incident; return whether it is new, and not another process's."""
        place = self.path(incident)
        self._after[incident.id] = incident
        if place.exists():
            return False
        draft = self.folder / f".{incident.id}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
        with CatchErrors() as call:
            draft.mkdir(parents=True)
            missing = self._missing.setdefault(incident.id, {})
            for name, make, why in self._files(incident):
                with CatchErrors() as part:
                    if data := make():
                        write_synced(draft / name, data)
                    else:
                        missing[name] = why
                if part.error is not None:
                    missing[name] = getattr(part.error, "strerror", None) or part.origin
            write_synced(draft / INCIDENT_FILE, self._document(incident))
            sync_folder(draft)
            try:
                os.rename(draft, place)
            except OSError:
                if not place.exists():
                    raise
                shutil.rmtree(draft, ignore_errors=True)
                return False
            sync_folder(self.folder)
        if call.error is not None:
            self.failures.append(f"{incident.id}: {getattr(call.error, 'strerror', None) or call.origin}")
            with suppress(OSError):
                shutil.rmtree(draft)
        return True

    def renew(self, incident: Incident) -> None:
        """Write the record of an incident anew."""
        with CatchErrors() as call:
            if (place := self.path(incident)).is_dir() and incident.id in self._missing:  # it is this process's own
                replace_synced(place / INCIDENT_FILE, self._document(incident))
        if call.error is not None:
            self.failures.append(f"{incident.id}: {call.origin}")

    def see(self, step: int, *, closing: bool = False) -> None:
        """Write what followed upon incidents whose window is over."""
        for incident in list(self._after.values()):
            over = step >= incident.first_step + self._window.steps
            if not (over or closing):
                continue
            del self._after[incident.id]
            name = self.path(incident) / "numbers-after.csv"
            with CatchErrors():
                if name.parent.is_dir() and not name.exists() and step > incident.first_step:
                    steps = range(incident.first_step, incident.first_step + self._window.steps + 1)
                    write_synced(name, _csv(_VALUES, list(_numbers(self._feed, steps))))

    def _files(self, incident: Incident) -> Iterator[tuple[str, Callable[[], bytes], str]]:
        """Yield name, what makes it, and why it is not there where that is nothing."""
        first, last = incident.first_step, incident.latest_step
        steps = range(max(0, min(first, last) - self._window.steps), last + self._window.steps + 1)
        layers = {alert.layer for alert in incident.alerts if alert.layer >= 0}
        numbers = list(_numbers(self._feed, steps))
        vitals = [row for row in numbers if row[3] in layers]
        events = list(_rows(self._feed, "events", _EVENTS[1:], steps))
        tags = "no tagged batches of these steps: `monitor.batch(tags, ...)` hands them over"
        log = "the process's own log was not seen: `dataaudit watch --log FILE` names it"
        yield "runbook.md", lambda: _runbooks(incident).encode(), ""
        yield "numbers.csv", lambda: _csv(_VALUES, numbers), "no number of these steps came"
        yield "layer.csv", lambda: _csv(_VALUES, vitals), "no alert names a layer"
        yield "events.csv", lambda: _csv(_EVENTS, events), "no event of these steps came"
        yield "batches.csv", lambda: self._batches(incident), tags
        yield "attribution.json", lambda: _read_if(self.runlog / ATTRIBUTION_FILE), "`dataaudit attribute` did not run"
        yield "log.txt", self._log_text, log
        yield "ranks.csv", self._ranks, "no rank beats in `beats`, below the run log: `Heartbeat` of dataaudit.live"

    def _ranks(self) -> bytes:
        """Return what each rank was doing at its last beat."""
        folder = self.runlog / BEATS_FOLDER
        ranks = Heartbeats(folder).read().ranks if folder.is_dir() else ()
        return _csv(_RANKS, [tuple(getattr(own, name) for name in _RANKS) for own in ranks])

    def _log_text(self) -> bytes:
        text = tail_of(self._log) if self._log is not None else self._tail.text() if self._tail is not None else ""
        return without_secrets(text).encode()

    def _batches(self, incident: Incident) -> bytes:
        """Return the documents of the newest batches up to the incident, the gravest alert's rank."""
        rank, last = incident.gravest.rank, incident.latest_step
        steps = range(max(0, min(incident.first_step, last) - self._window.batches + 1), last + 1)
        rows = [item for item in self._feed.kept.of("stretches") if item.rank == rank and item.last_step in steps]
        rows = rows or stored_stretches(self.runlog, rank, steps)
        log = self._run()
        documents = _documents(rows, [] if log is None else _shards(log), self.sources())
        return _csv((*_STRETCHES, "shard_name", "source_name"), list(documents))

    def sources(self) -> tuple[str, ...]:
        """Return the names of the run's sources; none where it has none."""
        log = self._run()
        return ("",) if log is None else log.run.sources or ("",)

    def _run(self) -> RunLog | None:
        try:
            return load_run(self.runlog)
        except RunLogError:
            return None

    def _document(self, incident: Incident) -> bytes:
        log = self._run()
        stored = _read_if(self.runlog / RUN_FILE)
        run = {} if log is None else {"dataset": log.run.dataset, "manifest": log.run.manifest, **log.run.digests}
        rules = {alert.rule.name: alert.rule for alert in incident.alerts}.values()
        dumped: dict[str, Any] = {"mode": "json", "by_alias": True, "exclude_none": True, "exclude_defaults": True}
        digest = f"sha256:{hashlib.sha256(stored).hexdigest()}" if stored else ""
        document = {
            **incident.document(),
            "action": incident.gravest.rule.action,
            "rules": [rule.model_dump(**dumped) for rule in rules],
            "run": run,
            "digests": {"run.json": digest, "alerts.yaml": self._digest},
            "missing": self._missing.get(incident.id, {}),
            "dropped_rows": self._feed.kept.dropped,
            "program": __version__,
            "written_by": f"process {os.getpid()}",
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY) + b"\n"


class Deliveries:
    """What was sent of an incident, beside its evidence, by whichever process came first."""

    _lock = threading.Lock()

    def __init__(self, folder: Path) -> None:
        self._path = folder / DELIVERIES_FILE

    def done(self, destination: str, severity: int, news: str) -> bool:
        """Return whether somebody sent this already."""
        for line in _read_if(self._path).splitlines():
            with suppress(ValueError):
                record = orjson.loads(line)
                same = [record.get(name) for name in ("to", "news", "sent")] == [destination, news, True]
                if same and record.get("severity", 3) <= severity:
                    return True
        return False

    def claim(self, destination: str, severity: int, news: str, own: set[Path]) -> bool:
        """Return whether this process is to send: no other began to, or it began long ago, or it is dead."""
        path = self._path.with_name(f".{destination}-{news}-{severity}.sending")
        with CatchErrors():
            if path in own:
                return True
            try:
                with path.open("x") as file:
                    file.write(f"{platform.node()} {os.getpid()}")
                own.add(path)
            except FileExistsError:
                host, _, process = path.read_text("utf-8").rpartition(" ")
                dead = host == platform.node() and not Path(f"/proc/{process}").exists()
                return time.time() - path.stat().st_mtime > _CLAIM_SECONDS or dead
        return True

    def add(self, record: dict[str, Any]) -> None:
        """Append a record."""
        with self._lock, CatchErrors(), self._path.open("ab") as file:
            file.write(orjson.dumps(record) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _read_if(path: Path) -> bytes:
    try:
        return read_safely(path)
    except OSError:
        return b""


def _runbooks(incident: Incident) -> str:
    """Return the runbooks of an incident, the gravest first, under what was seen."""
    rules = {alert.rule.name: alert.rule for alert in sorted(incident.alerts, key=lambda own: own.rule.severity)}
    alerts = [alert.document() for alert in incident.alerts[:20]]
    seen = "".join(f"- step {own['step']:,}, {of_rank(own['rank'])}: {own['seen']}\n" for own in alerts)
    head = f"Incident `{incident.id}`, severity {incident.severity}.\n\n{seen}\n"
    texts = dict.fromkeys(runbook(rule) for rule in rules.values())
    return head + "\n\n---\n\n".join(texts)


def _csv(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """Return rows as CSV; nothing where there is none."""
    if not rows:
        return b""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue().encode()


def _rows(feed: Feed, table: str, names: Sequence[str], steps: range) -> Iterator[tuple[Any, ...]]:
    """Yield rank and columns of the rows that are kept of some steps; ``step`` is the first column."""
    for rows in feed.kept.of(table):
        if rows.last_step >= steps.start:
            columns = [np.ma.asarray(rows.columns[name]).tolist() for name in names]
            yield from ((rows.rank, *row) for row in zip(*columns, strict=True) if row[0] in steps)


def _numbers(feed: Feed, steps: range) -> Iterator[tuple[Any, ...]]:
    yield from _rows(feed, "values", _VALUES[1:], steps)
    for rows in feed.kept.of("steps"):
        for name in _STEPS:
            column = rows.columns[name]
            known = [] if column is None else np.ma.asarray(column).tolist()
            for step, value in zip(np.asarray(rows.columns["step"]).tolist(), known, strict=False):
                if step in steps and value is not None:
                    yield rows.rank, int(step), f"steps.{name}", -1, -1, "value", value


def _shards(log: RunLog) -> list[str]:
    try:
        return [str(uri) for uri in log.shards["uri"].to_pylist()]
    except (RunLogError, KeyError):
        return []


def _documents(rows: Sequence[Rows], shards: Sequence[str], sources: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for item in rows:
        given = [item.columns[name] for name in _STRETCHES]
        length = len(np.asarray(item.columns["step"]))
        columns = [[None] * length if own is None else np.ma.asarray(own).tolist() for own in given]
        for row in zip(*columns, strict=True):
            names = ((shards, row[4]), (sources, row[7]))
            yield *row, *(known[at] if 0 <= at < len(known) else "" for known, at in names)
