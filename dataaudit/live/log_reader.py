"""Reads a log in a single pass with bounded memory: tracebacks put together, the launcher's summary understood.

Lines of several ranks may be interleaved: with a prefix each rank is a stream of its own; without, the tracebacks that
are open share their frames, and each exception closes one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dataaudit.base.files import read_safely
from dataaudit.live import log_patterns as p
from dataaudit.live.log_events import SURVIVED_LINES, Log, LogEvent, display
from dataaudit.live.log_lines import Clock, Line, behind_time, blocks, is_labelled, line_of, time_of, with_year
from dataaudit.live.log_patterns import ErrorClass, Level, Stage

_TAIL_LINES = 12
_FRAMES = 64
_RULED = 4_096
"""Characters of a line in which rules look."""
_CUT_LINES = 500
"""Lines after which a traceback without an end is given up."""
_SUMMARIES = -1
"""In place of a rank: the launcher's summary."""
_SUMMARY = re.compile(r"^  (time|host|rank|exitcode|error_file|traceback)\s*: (.*)")
_ROOT, _OTHERS = "Root Cause (first observed failure):", "Failures:"
_RESTART = re.compile(r"[Ww]orker group FAILED.*will restart|Restarting worker group")
_BEHIND = re.compile(r"\[rank(\d{1,6})\]: Traceback ")
"""Behind a progress bar."""
_RANK_FILE = re.compile(r"rank[_-]?(\d{1,6})|attempt_\d+/(\d{1,6})/\w+\.(?:log|json)$")
_ATTEMPT_FILE = re.compile(r"attempt_(\d{1,6})/")
_SIGNAL = re.compile(r"Signal (\d+) \(\w+\) received")
_SIGTERM = "15"
_MOST_PREFIXES = 1_024
_NODE, _PID = re.compile(r"([\w.-]+): $"), re.compile(r"pid=(\d{1,9})")


@dataclass(slots=True)
class _Trace:
    """A traceback that is read, and the exceptions of its chain."""

    line: Line
    rank: int | None
    order: int
    clock: Clock | None
    """The newest time before it."""
    entry: dict[str, str] | None = None
    """Of the launcher's summary."""
    prefix: str = ""
    frames: list[tuple[str, str]] = field(default_factory=list)
    chain: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)
    left: int = _TAIL_LINES
    chained: bool = False
    shared: bool = False
    """Other tracebacks of the same stream were open, so its frames may be theirs."""


def read_log(path: Path, zone_seconds: float = 0.0) -> Log:
    """Read the events of a log.

    Args:
        path: A log, or an error file of torch elastic (``error.json``).
        zone_seconds: What local time is ahead of UTC, for times without a zone; where the log also has times with
            one, these decide.

    Raises:
        ConfigError: The file cannot be read.
    """
    return _Reader(path, zone_seconds).read()


class _Reader:
    """Reads one log."""

    def __init__(self, path: Path, zone_seconds: float) -> None:
        self.log = Log(str(path))
        self._path, self._zone = path, zone_seconds
        named, attempt = (form.search(path.as_posix()) for form in (_RANK_FILE, _ATTEMPT_FILE))
        self._rank = int(named[1] or named[2]) if named else None
        self._attempt = int(attempt[1]) if attempt else 0
        self._clock: Clock | None = None
        self._first: Clock | None = None
        self._offsets: list[float] = []
        self._stage = Stage.START
        self._failed = False
        self._open: dict[int | str | None, list[_Trace]] = {}
        self._tail: dict[int | str | None, _Trace] = {}
        self._prefixes: set[str] = set()
        self._entry: dict[str, str] | None = None
        self._section = ""

    def read(self) -> Log:
        lines = self._error_file() if self._path.suffix == ".json" else None
        if lines is None:
            self._stream()
        for number, text in enumerate(lines or (), 1):
            self.log.lines = number
            self._take(Line(number, text, None, None))
        self._flush()
        self._finish()
        return self.log

    def _error_file(self) -> list[str] | None:
        """Return the lines of an error file of torch elastic; None where it is another JSON."""
        try:
            extra = json.loads(read_safely(self._path))["message"]["extraInfo"]
            self._tick(Clock(float(extra["timestamp"]), zoned=True))
            return str(extra["py_callstack"]).splitlines()
        except (ValueError, KeyError, TypeError, OSError, OverflowError, RecursionError):
            return None

    def _stream(self) -> None:
        labelled = False
        for number, data in blocks(self._path):
            if number > 1 and not (self._open or self._tail or self._entry is not None or p.has_trigger(data)):
                self.log.lines = number + data.count(b"\n")
                self._skim(number, data, labelled=labelled)
                continue
            lines = data.split(b"\n")
            labelled = labelled or (number == 1 and is_labelled(lines))
            self.log.lines = number + len(lines) - 1
            for at, raw in enumerate(lines, number):
                for piece in raw.split(b"\r") if b"\r" in raw else (raw,):  # of progress bars
                    self._advance(p.PROGRESS.search(piece[:4096]) is not None)
                    self._take(line_of(at, piece, labelled=labelled))
            if not any(trace.chained for trace in self._tail.values()):  # the next blocks may be skipped
                self._flush()
            first = self.log.lines - _CUT_LINES
            self._open = {stream: own for stream, own in self._open.items() if own[0].line.number > first}

    def _skim(self, number: int, data: bytes, *, labelled: bool) -> None:
        """Take from a block without events how far the run got, the stage, and the time."""
        counts = bool(self.log.events) or self._failed  # lines are counted from the first event on
        self._advance(len(p.PROGRESS.findall(data)) if counts else p.PROGRESS.search(data) is not None)
        if any(word in data for word in p.STAGE_WORDS):
            for raw in data.split(b"\n"):
                if any(word in raw for word in p.STAGE_WORDS):
                    self._set_stage(line_of(number, raw, labelled=labelled).text)
        lines = (line_of(number, raw, labelled=labelled) for raw in reversed(data.rsplit(b"\n", 200)[1:]))
        if (clock := next((line.time for line in lines if line.time is not None), None)) is not None:
            self._tick(clock)

    def _advance(self, lines: int) -> None:
        if lines and self._failed:  # the launcher began anew
            self._failed, self._attempt = False, self._attempt + 1
        self.log.progress += lines
        if lines and self._stage is not Stage.EVALUATION:
            self._stage = Stage.UNKNOWN

    def _set_stage(self, text: str) -> None:
        self._stage = next((stage for pattern, stage in p.STAGES if pattern.search(text)), self._stage)

    def _tick(self, clock: Clock) -> None:
        """Take the time of a line, and what it says of the zone of others."""
        before = self._clock
        clock = with_year(clock, before.seconds if before else self._path.stat().st_mtime)
        if before is not None and clock.zoned != before.zoned:
            apart = (clock.seconds - before.seconds) * (-1 if clock.zoned else 1)
            quarters = round(apart / 900) * 900
            if abs(apart - quarters) < 60 and abs(quarters) <= 14 * 3600:
                self._offsets.append(quarters)
        self._clock, self._first = clock, self._first or clock

    def _take(self, line: Line) -> None:
        if line.time is not None:
            self._tick(line.time)
        rank = self._rank if line.rank is None else line.rank
        self.log.ranks |= set() if rank is None else {rank}
        if behind := _BEHIND.search(line.text):
            rank, line = int(behind[1]), line._replace(text=p.TRACEBACK)
        line, prefix = self._unprefixed(line)
        if self._in_trace(line, rank, prefix) or self._in_summary(line):
            return
        if p.TRACEBACK in line.text:
            self._begin(line, rank, prefix=prefix)
            return
        if _RESTART.search(line.text):
            self._flush()
            self._failed, self._attempt = False, self._attempt + 1
        self._set_stage(line.text)
        self.log.note(line.text, rank, self._attempt)
        if (what := p.WHAT.match(line.text)) and (judged := p.judge(what[1])) is not None:
            self.log.add(self._event(line, judged, what[1], rank=rank))
            return
        text = line.text[:_RULED]
        raw = text.encode("utf-8", "replace")
        for rule in p.RULES:
            if any(word in raw for word in rule.words) and (match := rule.pattern.search(text)):
                self._by_rule(line, rank, rule, match.groupdict())
                return

    def _unprefixed(self, line: Line) -> tuple[Line, str]:
        """Return a line without what a tool puts before each, behind its time, and that; a traceback shows it."""
        at = line.text.find(p.TRACEBACK)
        if not self._prefixes and at < 1:
            return line, ""
        body = behind_time(line.text)
        length = at - len(line.text) + len(body)
        known = self._entry is not None or line.text.endswith("Original ", 0, at)
        if length > 0 and not known and len(self._prefixes) < _MOST_PREFIXES:
            self._prefixes.add(body[:length])
        for length in {len(prefix) for prefix in self._prefixes}:
            if (prefix := body[:length]) in self._prefixes:
                return line._replace(text=body[length:], time=None), prefix
        return line, ""

    def _by_rule(self, line: Line, rank: int | None, rule: p.Rule, parts: dict[str, str | None]) -> None:
        if rule.level in {Level.LAUNCHER, Level.DEATH}:  # what went before it is complete
            self._flush()
        self._failed |= "failed (exitcode" in line.text
        if parts.get("rank") and (rank is None or rule.level is not Level.FOLLOWS):  # else the rank in its group
            rank = int(parts["rank"] or "")
        pid, node = parts.get("pid"), parts.get("node") or ""
        about: dict[str, Any] = {"rank": rank, "node": node, "pid": int(pid) if pid else None}
        own = self._event(line, (rule.error, rule.level), line.text, **about)
        own.stage = rule.stage or own.stage
        self.log.add(own)

    def _event(self, line: Line, judged: tuple[ErrorClass, Level], text: str, **more: Any) -> LogEvent:
        stage, clock = more.pop("stage", None), more.pop("clock", None) or self._clock
        more = {"order": self.log.progress, "attempt": self._attempt} | more
        more |= {"file": self.log.path, "line": line.number}
        more |= {"stage": stage or self._stage, "guessed": stage is None}
        if clock is not None:
            more |= {"time": clock.seconds, "zoned": clock.zoned}
        return LogEvent(error=judged[0], level=judged[1], what=display(text), **more)

    def _begin(self, line: Line, rank: int | None, entry: dict[str, str] | None = None, *, prefix: str = "") -> None:
        """Open a traceback, or go on with the chain that announced it."""
        stream: int | str | None = _SUMMARIES if entry is not None else prefix or rank
        trace = self._tail.pop(stream, None)
        if trace is not None and not trace.chained:
            self._end(trace)
            trace = None
        trace = trace or _Trace(line, rank, self.log.progress, self._clock, entry, prefix)
        trace.chained, trace.frames = False, []
        self._open.setdefault(stream, []).append(trace)

    def _in_trace(self, line: Line, rank: int | None, prefix: str) -> bool:
        """Take a line of a traceback that is open, or of the message behind one."""
        summed = _SUMMARIES in self._open or _SUMMARIES in self._tail
        stream: int | str | None = _SUMMARIES if summed else prefix or rank
        text = line.text.removeprefix("  ") if summed else line.text
        if stream not in self._open and p.FRAME.match(text):  # only the first line had something before it
            for other in [key for key, own in self._open.items() if isinstance(key, str) and not own[0].frames]:
                self._open[stream] = self._open.pop(other)
        if stream in self._open:
            return self._in_open(stream, line, text)
        if (tail := self._tail.get(stream)) is None:
            return False
        tail.left -= 1
        tail.chained |= p.CHAIN.match(text) is not None
        if tail.chained:
            if p.TRACEBACK in text:
                self._begin(line, rank, tail.entry, prefix=prefix)
            return True
        raw = text.encode("utf-8", "replace")
        ends = line.time is not None or p.PROGRESS.search(raw) or any(word in raw for word in p.TRIGGERS)
        if tail.left <= 0 or ends or (summed and not line.text.startswith("  ")):
            self._end(self._tail.pop(stream))
            return False
        said, frames = tail.chain[-1]
        tail.chain[-1] = f"{said} {text.strip()}"[:4096].rstrip(), frames
        return True

    def _in_open(self, stream: int | str | None, line: Line, text: str) -> bool:
        opened = self._open[stream]
        if p.TRACEBACK in text:
            if stream is not None:  # what was open was cut
                del self._open[stream]
                return False
            opened.append(_Trace(line, None, self.log.progress, self._clock))
            for trace in opened:
                trace.shared = True
        elif frame := p.FRAME.match(text):
            for trace in opened:
                del trace.frames[_FRAMES:]
                trace.frames.append((frame["file"], frame["function"] or ""))
        elif opened[0].frames and (exception := p.EXCEPTION.match(text)):
            trace = opened.pop(0)
            trace.chain.append((f"{exception['name']}: {exception['text'] or ''}", list(trace.frames)))
            trace.left = _TAIL_LINES
            if not opened:
                del self._open[stream]
            if (before := self._tail.pop(stream, None)) is not None:
                self._end(before)
            self._tail[stream] = trace
        else:
            return not text or text.startswith("  ")
        return True

    def _flush(self) -> None:
        """Make events of the tracebacks whose messages may go on."""
        while self._tail:
            self._end(self._tail.pop(next(iter(self._tail))))

    def _end(self, trace: _Trace) -> None:
        """Make an event of a traceback: of the first exception of its chain whose class is known."""
        judged = [(p.judge(text, frames), text) for text, frames in trace.chain]
        known = [(own, text) for own, text in judged if own is not None]
        if not known or (trace.entry is None and len(known) < len(judged)):  # a launcher's own
            return
        own, text = next((item for item in known if item[0][0] is not ErrorClass.UNKNOWN), known[0])
        text = trace.chain[-1][0] if "in DataLoader worker process" in text else text
        frames = [frame for _, several in trace.chain for frame in several]
        if trace.entry is not None:
            self._sum_up(trace.line, trace.entry, own, text, p.stage_of(frames))
            return
        if own[0] is ErrorClass.COMMUNICATION:
            self.log.note(text, trace.rank, self._attempt)
        stage = Stage.UNKNOWN if trace.shared else p.stage_of(frames)
        node, pid = _NODE.match(trace.prefix), _PID.search(trace.prefix)
        more = {"node": node[1] if node else "", "pid": int(pid[1]) if pid else None, "clock": trace.clock}
        more |= {"rank": trace.rank, "stage": stage, "order": trace.order}
        self.log.add(self._event(trace.line, own, text, **more))

    def _in_summary(self, line: Line) -> bool:
        """Take a line of the summary by which torchrun ends."""
        if line.text.startswith((_OTHERS, _ROOT)):
            self._entry, self._section = {}, line.text.strip()
            return True
        if self._entry is None:
            return False
        if (match := _SUMMARY.match(line.text)) is None:
            if line.text.startswith("====="):
                self._entry = None
            return line.text.startswith(("[", "-----", "=====", "  "))
        key, value = match[1], match[2].strip()
        self._entry = {} if key == "time" else self._entry
        self._entry |= {key: value, "section": self._section}
        if key == "traceback" and value.startswith(p.TRACEBACK):
            self._begin(line, None, self._entry)
        elif key == "traceback":
            self._sum_up(line, self._entry, None, value, None)
        return True

    def _sum_up(
        self, line: Line, entry: dict[str, str], own: tuple[ErrorClass, Level] | None, text: str, stage: Stage | None
    ) -> None:
        """Take an entry of the summary."""
        number, pid = (
            re.match(r"\d{1,6}\b", entry.get("rank", "")),
            re.search(r"pid: (\d{1,9})", entry.get("exitcode", "")),
        )
        if number is None:
            return
        rank, node = int(number[0]), entry.get("host", "")
        named = _ATTEMPT_FILE.search(entry.get("error_file", ""))
        attempt = int(named[1]) if named else self._attempt
        self.log.ranks.add(rank)
        self.log.waits[attempt].nodes[rank] = node
        if signal := _SIGNAL.search(text):
            if signal[1] == _SIGTERM:
                self.log.waits[attempt].silent.add(rank)
                return
            own = ErrorClass.KILLED, Level.DEATH
        elif own is None:
            if any(event.rank == rank and event.level is not Level.LAUNCHER for event in self.log.events):
                return
            own, text = (ErrorClass.UNKNOWN, Level.DEATH), f"exit code {entry.get('exitcode', '?')}, no traceback"
        clock, process = time_of(entry.get("time", "")), int(pid[1]) if pid else None
        event = self._event(line, own, text, rank=rank, node=node, pid=process, stage=stage, clock=clock)
        event.named = entry["section"] == _ROOT
        self.log.add_summary(event, attempt)

    def _finish(self) -> None:
        """Settle what only the whole log says: zones, nodes, what was survived."""
        log, zone = self.log, sorted(self._offsets)[len(self._offsets) // 2] if self._offsets else self._zone
        log.attempts = 1 + max([self._attempt, *(event.attempt for event in log.events)])
        for event in log.events:
            ahead = 0 if event.zoned else zone
            event.time = None if event.time is None else event.time - ahead
            event.minutes = {minute - int(ahead // 60): times for minute, times in event.minutes.items()}
            event.node = event.node or log.node_of(event)
            went_on = log.progress - event.order >= SURVIVED_LINES and event.attempt == self._attempt
            event.survived = went_on and not event.named
        if self._first is not None and self._clock is not None:
            log.first, log.last = (clock.seconds - (0 if clock.zoned else zone) for clock in (self._first, self._clock))
