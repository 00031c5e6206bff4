"""Error events of one log, in a single pass with bounded memory: tracebacks put together, the launcher's summary read.

Lines of several ranks may be interleaved: with a prefix each rank is a stream of its own; without, the tracebacks that
are open share their frames, and each exception closes one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dataaudit.base.files import read_safely
from dataaudit.base.redact import HIDDEN, without_secrets
from dataaudit.base.text import clean
from dataaudit.live import log_patterns as p
from dataaudit.live.log_lines import Clock, Line, blocks, is_labelled, line_of, time_of, with_year
from dataaudit.live.log_patterns import ErrorClass, Level, Stage

MOST_EVENTS = 2_048
"""Different events of a log; further ones are counted."""
SHOWN = 240
"""Characters of a message."""
SURVIVED_LINES = 10
"""Lines of progress after which an error was survived."""
_TAIL_LINES = 12
_FRAMES = 64
_CUT_LINES = 500
"""Lines after which a traceback without an end is given up."""
_SUMMARIES = -1
"""In place of a rank: the launcher's summary."""
_SUMMARY = re.compile(r"^  (?P<key>time|host|rank|exitcode|error_file|traceback)\s*: (?P<value>.*)")
_RESTART = re.compile(r"[Ww]orker group FAILED.*will restart|Restarting worker group")
_BEHIND = re.compile(r"\[rank(\d+)\]: Traceback ")
_RANK_FILE = re.compile(r"rank[_-]?(\d+)|attempt_\d+/(\d+)/\w+\.(?:log|json)$")
_ATTEMPT_FILE = re.compile(r"attempt_(\d+)/")
_NAMES_RANK = re.compile(r"\b[Rr]ank[ =:]\s?(\d{1,6})\b(?: (?:of|/) ?(\d{1,6})\b)?")
_WAITED = re.compile(r"[Tt]imed out (?:waiting|after) (\d+) ?ms|ran for (\d+) milliseconds|wait timeout after (\d+)ms|watchdog got stuck for (\d+) sec")
_WORK = re.compile(r"last enqueued (?:NCCL )?work: (\d+)|SeqNum=(\d+)")
_SIGNAL = re.compile(r"Signal (\d+) \(\w+\) received")
_QUOTED = re.compile(r"(?<![A-Za-z])(['\"])(?:(?!\1).){64,}(?:\1|$)")
_SECRET = re.compile(
    r"(?i)\b((?:[\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|credential|signature)|authorization)['\"]?\s*[:=]\s*['\"]?(?:bearer )?)[^\s'\",&]+"
    r"|\b()(?:hf_|sk-|gh[pousr]_|xox[abp]-|AKIA|ASIA|eyJ)[\w./+-]{12,}"
)  # fmt: skip
_HEAD = re.compile(r"^\[?[EWIF]\d{4} [\d:.]+ (?:\d+ )?\S+:\d+\] ")
_SHAPE = re.compile(r"\d+|0x[0-9a-f]+|\[[^\]]*\]:?\d*")
_SIGTERM = 15


@dataclass(slots=True, kw_only=True)
class LogEvent:
    """An error of one rank, or one of the launcher's messages; repetitions are counted."""

    file: str
    line: int
    error: ErrorClass
    stage: Stage
    rank: int | None
    node: str
    time: float | None
    """Seconds since 1970, UTC; None: no line of the log names a time before it."""
    what: str
    """Its message, cut, without secrets."""
    count: int = 1
    attempt: int = 0
    survived: bool = False
    """The run went on after it."""
    consequence: bool = False
    cause: int | None = None
    """Of a consequence: place of its cause in the list."""
    level: Level = Level.CAUSE
    named: bool = False
    """The launcher named it as the first that it observed."""
    pid: int | None = None
    zoned: bool = True
    order: int = 0
    """Lines of progress before it."""
    guessed: bool = False
    """Its stage is that of the lines before it."""

    @property
    def shape(self) -> tuple[ErrorClass, str]:
        """What repetitions have in common: the class, and the message without numbers."""
        return self.error, _SHAPE.sub("#", self.what)[:120]


@dataclass(slots=True)
class _Trace:
    """A traceback that is read, and the exceptions of its chain."""

    line: Line
    rank: int | None
    frames: list[tuple[str, str]] = field(default_factory=list)
    chain: list[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=list)
    left: int = _TAIL_LINES
    summary: dict[str, str] | None = None
    chained: bool = False
    shared: bool = False
    """Other tracebacks of the same stream were open, so its frames may be theirs."""
    order: int = 0


@dataclass(slots=True)
class Log:
    """What one log holds."""

    path: str
    lines: int = 0
    first: float | None = None
    last: float | None = None
    events: list[LogEvent] = field(default_factory=list)
    dropped: int = 0
    nodes: dict[int, str] = field(default_factory=dict)
    """Node by rank."""
    ranks: set[int] = field(default_factory=set)
    """Ranks that some line names."""
    silent: set[int] = field(default_factory=set)
    """Ranks that the launcher ended and that reported nothing."""
    work: dict[int, int] = field(default_factory=dict)
    """Newest collective that a rank reports as begun."""
    waited: float = 0.0
    """Longest time that a rank waited for others, seconds."""
    progress: int = 0
    """Lines that name a step and a loss."""
    attempts: int = 1


def display(text: str) -> str:
    """Return a message for people: one line, cut, without secrets and without long quotations of data."""
    text = _SECRET.sub(lambda match: f"{match[1] or ''}{HIDDEN}", without_secrets(" ".join(_HEAD.sub("", text).split())))
    text = _QUOTED.sub(lambda match: f"{match[1]}...{match[1]} ({len(match[0]) - 2} characters)", text)
    return clean(text, SHOWN)


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
        place = path.as_posix()
        named, attempt = _RANK_FILE.search(place), _ATTEMPT_FILE.search(place)
        self._rank = int(named[1] or named[2]) if named else None
        self._attempt = int(attempt[1]) if attempt else 0
        self._near = path.stat().st_mtime if path.exists() else 0.0
        self._clock: Clock | None = None
        self._first_zoned = True
        self._offsets: list[float] = []
        self._progress, self._stage = 0, Stage.START
        self._failed = False
        self._open: dict[int | None, list[_Trace]] = {}
        self._tail: dict[int | None, _Trace] = {}
        self._summary: dict[str, str] | None = None
        self._named = False
        self._index: dict[tuple[object, ...], LogEvent] = {}

    def read(self) -> Log:
        if self._path.suffix == ".json" and (lines := self._error_file()) is not None:
            for number, text in enumerate(lines, 1):
                self._take(Line(number, text, None, time_of(text)))
            self.log.lines = len(lines)
        else:
            self._stream()
        self._finish()
        return self.log

    def _stream(self) -> None:
        labelled: bool | None = None
        for number, lines in blocks(self._path):
            if labelled is None:
                labelled = is_labelled(lines)
            self.log.lines = number + len(lines) - 1
            data = b"\n".join(lines)
            if number > 1 and not self._open and not self._tail and self._summary is None and not self._hit(data):
                self._skim(number, lines, data, labelled=labelled)
                continue
            for place, raw in enumerate(lines):
                if p.PROGRESS.search(raw[:4096]):
                    self._advance(1)
                self._take(line_of(number + place, raw, labelled=labelled))
            if not any(trace.chained for trace in self._tail.values()):  # the next blocks may be skipped
                self._flush()
            last = number + len(lines)
            self._open = {key: own for key, own in self._open.items() if last - own[0].line.number < _CUT_LINES}

    @staticmethod
    def _hit(data: bytes) -> bool:
        return any(word in data for word in p.TRIGGERS)

    def _skim(self, number: int, lines: list[bytes], data: bytes, *, labelled: bool) -> None:
        """Take from a block without events how far the run got, the stage, and the time."""
        self._advance(len(p.PROGRESS.findall(data)))
        if any(word in data for word in p.STAGE_WORDS):
            for raw in lines:
                if any(word in raw for word in p.STAGE_WORDS):
                    self._set_stage(line_of(number, raw, labelled=labelled).text)
        for place in range(len(lines) - 1, max(-1, len(lines) - 200), -1):
            line = line_of(number + place, lines[place], labelled=labelled)
            if line.time is not None:
                self._tick(line.time)
                break

    def _error_file(self) -> list[str] | None:
        """Return the lines of an error file of torch elastic; None where it is another JSON."""
        try:
            message = json.loads(read_safely(self._path))["message"]
            extra = message["extraInfo"]
            self._clock = Clock(float(extra["timestamp"]), zoned=True)
            return str(extra["py_callstack"]).splitlines()
        except (ValueError, KeyError, TypeError, OSError):
            return None

    def _advance(self, lines: int) -> None:
        if not lines:
            return
        if self._failed:  # the launcher began anew
            self._failed, self._attempt = False, self._attempt + 1
        self._progress += lines
        if self._stage is not Stage.EVALUATION:
            self._stage = Stage.UNKNOWN

    def _set_stage(self, text: str) -> None:
        for pattern, stage in p.STAGES:
            if pattern.search(text.partition(": ")[2] or text) or pattern.search(text):
                self._stage = stage
                return

    def _tick(self, clock: Clock) -> None:
        """Take the time of a line, and what it says of the zone of others."""
        clock = with_year(clock, self._clock.seconds if self._clock else self._near)
        if self._clock is not None and clock.zoned != self._clock.zoned:
            apart = (clock.seconds - self._clock.seconds) * (-1 if clock.zoned else 1)
            if abs(apart) <= 14.5 * 3600 and abs(apart - round(apart / 900) * 900) < 60:
                self._offsets.append(round(apart / 900) * 900)
        self._clock = clock
        if self.log.first is None:
            self.log.first = clock.seconds
            self._first_zoned = clock.zoned
        self.log.last = clock.seconds

    def _take(self, line: Line) -> None:
        text = line.text
        if line.time is not None:
            self._tick(line.time)
        if line.rank is not None:
            self.log.ranks.add(line.rank)
        rank = self._rank if line.rank is None else line.rank
        if self._in_trace(line, rank) or self._in_summary(line):
            return
        if p.TRACEBACK in text:
            within = _BEHIND.search(text)  # behind a progress bar
            self._begin(line, int(within[1]) if within else rank, None)
            return
        if "ank" in text:
            for match in _NAMES_RANK.finditer(text[:512]):
                self.log.ranks.add(int(match[1]))
                if match[2] and int(match[2]) <= 1 << 16:
                    self.log.ranks.update(range(int(match[2])))
        if _RESTART.search(text):
            self._flush()
            self._failed = False
            self._attempt += 1
        self._set_stage(text)
        raw = text.encode("utf-8", "replace")
        if (what := p.WHAT.match(text)) and (judged := p.judge(what["text"])) is not None:
            self._add(line, rank, *judged, stage=None, text=what["text"])
        for rule in p.RULES:
            if any(word in raw for word in rule.words) and (match := rule.pattern.search(text)):
                self._by_rule(line, rank, rule, match)
                break
        else:
            if work := _WORK.search(text):
                self._note_work(text, rank, work)

    def _by_rule(self, line: Line, rank: int | None, rule: p.Rule, match: re.Match[str]) -> None:
        parts: Mapping[str, str | None] = match.groupdict()
        named = parts.get("rank") or parts.get("rank2")
        rank = int(named) if named else rank
        if rule.level is Level.LAUNCHER or rule.level is Level.DEATH:  # what went before it is complete
            self._flush()
        if rule.error is ErrorClass.COMMUNICATION:
            self._waits(line.text)
            if work := _WORK.search(line.text):
                self._note_work(line.text, rank, work)
        if "failed (exitcode" in line.text:
            self._failed = True
        node, pid = parts.get("node") or "", parts.get("pid")
        if rank is not None and node:
            self.log.nodes[rank] = node
        text = line.text
        self._add(line, rank, rule.error, rule.level, stage=rule.stage, text=text, node=node, pid=pid)

    def _note_work(self, text: str, rank: int | None, work: re.Match[str]) -> None:
        own = re.search(r"Rank (\d+)\]", text)
        rank = int(own[1]) if own else rank
        if rank is not None:
            self.log.ranks.add(rank)
            self.log.work[rank] = max(self.log.work.get(rank, 0), int(work[1] or work[2]))

    def _waits(self, text: str) -> None:
        if match := _WAITED.search(text):
            value = next(float(group) for group in match.groups() if group)
            self.log.waited = max(self.log.waited, value if match[4] else value / 1000)

    def _begin(self, line: Line, rank: int | None, summary: dict[str, str] | None) -> None:
        """Open a traceback, or go on with the chain that announced it."""
        stream = rank if summary is None else _SUMMARIES
        tail = self._tail.pop(stream, None)
        if tail is not None and not tail.chained:
            self._end(tail)
            tail = None
        if tail is None:
            tail = _Trace(line, rank, summary=summary, order=self._progress)
        tail.chained, tail.frames = False, []
        self._open.setdefault(stream, []).append(tail)

    def _in_trace(self, line: Line, rank: int | None) -> bool:
        """Take a line of a traceback that is open, or of the message behind one."""
        stream = _SUMMARIES if _SUMMARIES in self._open or _SUMMARIES in self._tail else rank
        text = line.text.removeprefix("  ") if stream == _SUMMARIES else line.text
        if stream in self._open:
            return self._in_open(stream, line, text)
        tail = self._tail.get(stream)
        if tail is None:
            return False
        tail.left -= 1
        if p.CHAIN.match(text):
            tail.chained = True
            if p.TRACEBACK in text:
                self._begin(line, rank, tail.summary)
            return True
        if stream == _SUMMARIES and p.TRACEBACK in text and tail.chained:
            self._begin(line, None, tail.summary)
            return True
        raw = text.encode("utf-8", "replace")
        left = stream == _SUMMARIES and not line.text.startswith("  ")
        if tail.left <= 0 or line.time is not None or p.PROGRESS.search(raw) or left:
            self._end(self._tail.pop(stream))
            return False
        if any(word in raw for word in p.TRIGGERS):
            if not tail.chained:
                self._end(self._tail.pop(stream))
            return False
        said, frames = tail.chain[-1]
        tail.chain[-1] = (f"{said} {text.strip()}"[:4096].rstrip(), frames)
        return True

    def _in_open(self, stream: int | None, line: Line, text: str) -> bool:
        opened = self._open[stream]
        if p.TRACEBACK in text:
            if stream is None:
                opened.append(_Trace(line, None, order=self._progress))
                for trace in opened:
                    trace.shared = True
                return True
            del self._open[stream]  # it was cut
            return False
        if frame := p.FRAME.match(text):
            for trace in opened:
                del trace.frames[_FRAMES:]
                trace.frames.append((frame["file"], frame["function"] or ""))
            return True
        if opened[0].frames and (exception := p.EXCEPTION.match(text)):
            trace = opened.pop(0)
            said = f"{exception['module']}{exception['name']}: {exception['text'] or ''}"
            trace.chain.append((said, tuple(trace.frames)))
            if not opened:
                del self._open[stream]
            if (before := self._tail.pop(stream, None)) is not None:
                self._end(before)
            trace.left = _TAIL_LINES
            self._tail[stream] = trace
            return True
        inside = not text or text.startswith("  ")
        opened[0].left -= not inside
        if opened[0].left < -_CUT_LINES:
            del self._open[stream]
        return inside

    def _end(self, trace: _Trace) -> None:
        """Make an event of a traceback: of the first exception of its chain whose class is known."""
        judged = [(p.judge(text, frames), text, frames) for text, frames in trace.chain]
        known = [item for item in judged if item[0] is not None]
        if not known or (trace.summary is None and any(item[0] is None for item in judged)):
            return
        chosen, text, frames = next((item for item in known if item[0] and item[0][0] is not ErrorClass.UNKNOWN), known[0])
        if "in DataLoader worker process" in text and text != trace.chain[-1][0]:
            text = trace.chain[-1][0]
        everything = [frame for _, own in trace.chain for frame in own]
        if trace.summary is not None:
            self._from_summary(trace.line, trace.summary, text, everything, chosen)
        elif chosen is not None:
            if chosen[0] is ErrorClass.COMMUNICATION:
                self._waits(text)
            stage = Stage.UNKNOWN if trace.shared else p.stage_of(everything or frames)
            self._add(trace.line, trace.rank, *chosen, stage=stage, text=text, order=trace.order)

    def _in_summary(self, line: Line) -> bool:
        """Take a line of the summary by which torchrun ends."""
        if line.text.startswith(("Failures:", "Root Cause (first observed failure):")):
            self._summary, self._named = {}, line.text.startswith("Root")
            return True
        if self._summary is None:
            return False
        if match := _SUMMARY.match(line.text):
            key, value = match["key"], match["value"].strip()
            if key == "time":
                self._summary = {}
            self._summary[key] = value
            if key == "traceback":
                self._summary["named"] = "yes" if self._named else ""
                if value.startswith(p.TRACEBACK):
                    self._begin(line, None, self._summary)
                else:
                    self._from_summary(line, self._summary, value, [], None)
            return True
        if line.text.startswith("=====") and self._summary:
            self._summary = None
            return True
        return line.text.startswith(("[", "-----", "  "))

    def _from_summary(
        self,
        line: Line,
        entry: dict[str, str],
        text: str,
        frames: list[tuple[str, str]],
        judged: tuple[ErrorClass, Level] | None,
    ) -> None:
        number = re.match(r"\d+", entry.get("rank", ""))
        rank = int(number[0]) if number else None
        pid = re.search(r"pid: (\d+)", entry.get("exitcode", ""))
        node = entry.get("host", "")
        if rank is not None:
            self.log.ranks.add(rank)
            self.log.nodes[rank] = node
        signal = _SIGNAL.search(text)
        if signal is not None and int(signal[1]) == _SIGTERM:
            if rank is not None:
                self.log.silent.add(rank)
            return
        if signal is not None:
            judged = ErrorClass.KILLED, Level.DEATH
        elif not frames and judged is None:
            if any(event.rank == rank and event.level is not Level.LAUNCHER for event in self.log.events):
                return
            judged, text = (ErrorClass.UNKNOWN, Level.DEATH), f"exit code {entry.get('exitcode', '?')}, no traceback"
        if judged is None:
            return
        clock = time_of(entry.get("time", ""))
        stage = p.stage_of(frames)
        values = {"node": node, "pid": pid[1] if pid else None, "named": bool(entry.get("named")), "clock": clock}
        self._add(line, rank, *judged, stage=stage, text=text, summary=True, **values)  # type: ignore[arg-type]

    def _add(
        self,
        line: Line,
        rank: int | None,
        error: ErrorClass,
        level: Level,
        *,
        stage: Stage | None,
        text: str,
        node: str = "",
        pid: str | None = None,
        named: bool = False,
        clock: Clock | None = None,
        summary: bool = False,
        order: int | None = None,
    ) -> None:
        """Add an event, or count it as a repetition; what the launcher sums up gives rank, node and time to it."""
        clock = clock or self._clock
        event = LogEvent(
            file=self.log.path,
            line=line.number,
            error=error,
            stage=stage or self._stage,
            rank=rank,
            node=node,
            time=None if clock is None else clock.seconds,
            what=display(text),
            attempt=self._attempt,
            level=level,
            pid=int(pid) if pid else None,
            zoned=clock is None or clock.zoned,
            order=self._progress if order is None else order,
            guessed=stage is None,
        )
        known = self._known(event, summary=summary)
        if known is None:
            if len(self.log.events) >= MOST_EVENTS:
                self.log.dropped += 1
                return
            event.named = named
            self.log.events.append(event)
            self._index[event.attempt, event.rank, event.shape] = event
            return
        if not summary:
            known.count += 1
            return
        known.named |= named
        known.node, known.pid = node or known.node, event.pid or known.pid
        if clock is not None:
            known.time, known.zoned = event.time, event.zoned
        if known.guessed and not event.guessed:
            known.stage, known.guessed = event.stage, False

    def _known(self, event: LogEvent, *, summary: bool) -> LogEvent | None:
        """Return the event that this one repeats; a summary names the rank of one that had none."""
        key = event.attempt, event.rank, event.shape
        if (known := self._index.get(key)) is not None or not summary:
            return known
        for other in self.log.events:
            if other.attempt == event.attempt and event.pid is not None and other.pid == event.pid and other.level is event.level:
                other.rank = event.rank
                return other
        unnamed = self._index.get((event.attempt, None, event.shape))
        if unnamed is None:
            return None
        if unnamed.count > 1:
            unnamed.count -= 1
            return None
        del self._index[event.attempt, None, event.shape]
        unnamed.rank = event.rank
        self._index[key] = unnamed
        return unnamed

    def _flush(self) -> None:
        """Make events of the tracebacks whose messages may go on."""
        tails, self._tail = self._tail, {}
        for trace in tails.values():
            self._end(trace)

    def _finish(self) -> None:
        self._flush()
        log = self.log
        log.progress, log.attempts = self._progress, self._attempt + 1
        zone = sorted(self._offsets)[len(self._offsets) // 2] if self._offsets else self._zone
        for event in log.events:
            if event.time is not None and not event.zoned:
                event.time -= zone
            event.node = event.node or (log.nodes.get(event.rank, "") if event.rank is not None else "")
            event.survived = self._progress - event.order >= SURVIVED_LINES and not event.named and event.attempt == self._attempt
        if log.first is not None and log.last is not None:
            log.first -= 0 if self._first_zoned else zone
            log.last -= 0 if self._clock is None or self._clock.zoned else zone

