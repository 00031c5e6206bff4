"""Error events of a log: put together as lines are read, repetitions counted, secrets left out."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from dataaudit.base.redact import HIDDEN, without_secrets
from dataaudit.base.text import clean
from dataaudit.live.log_patterns import ErrorClass, Level, Stage

MOST_EVENTS: Final = 2_048
"""Different events of a log; further ones are counted."""
SURVIVED_LINES: Final = 10
"""Lines of progress after which an error was survived."""
_READ, _SHOWN = 4_096, 240
_FAR_FEWER = 1_000
"""Collectives by which those that timed out may lie behind those that were begun."""
_QUOTED = re.compile(r"(?<![A-Za-z])(['\"])(?:(?!\1).){64,}(?:\1|$)")
_SECRET = re.compile(
    r"(?i)\b((?:[\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|credential|signature)|authorization)['\"]?\s*[:=]"
    r"\s*['\"]?(?:bearer )?)[^\s'\",&]+|\b()(?:hf_|sk-|gh[pousr]_|xox[abp]-|AKIA|ASIA|eyJ)[\w./+-]{12,}"
)
_HEAD = re.compile(r"^\[?[EWIF]\d{4} [\d:.]+ (?:\d+ )?\S+:\d+\] |\[/\S{1,200}\.cc:\d+\] ")
"""Where in the launcher or in gloo a message comes from."""
_SHAPE = re.compile(r"\d+|0x[0-9a-f]+|\[[^\]]*\]:?\d*")
_NAMES_RANK = re.compile(r"\b[Rr]ank[ =:]\s?(\d{1,6})\b(?: (?:of|/) ?(\d{1,5})\b)?")
_WAITED = re.compile(
    r"imed out (?:waiting|after) (\d{1,12}) ?ms|ran for (\d{1,12}) milliseconds|wait timeout after (\d{1,12})ms"
)
_WORK = re.compile(r"last enqueued (?:NCCL )?work: (\d{1,18})\b|SeqNum=(\d{1,18})\b")
_ABSENT = re.compile(r"Rank (\d{1,6}) failed to pass monitoredBarrier")
_WORK_RANK = re.compile(r"(?:PG GUID ([^\s(]+).{0,80}?)?Rank (\d{1,6})\]")
"""Which group of ranks, and the rank in it: that of the run in the group of all alone."""


@dataclass(slots=True, kw_only=True)
class LogEvent:
    """An error of one rank, or one of the launcher's messages."""

    file: str
    line: int
    error: ErrorClass
    level: Level
    what: str
    """Its message, cut, without secrets."""
    stage: Stage
    guessed: bool = False
    """Its stage is that of the lines before it."""
    rank: int | None = None
    node: str = ""
    pid: int | None = None
    time: float | None = None
    """Seconds since 1970, UTC; None: no line of the log names a time before it."""
    zoned: bool = True
    attempt: int = 0
    order: int = 0
    """Lines of progress before it."""
    count: int = 1
    minutes: dict[int, int] = field(default_factory=dict)
    """How often it came by the minute since 1970, as far as times are known."""
    named: bool = False
    """The launcher named it as the first that it observed."""
    survived: bool = False
    """The run went on after it."""
    cause: int | None = None
    """Of a consequence: place of its cause in the list."""

    @property
    def consequence(self) -> bool:
        """Whether it only follows from another event."""
        return self.cause is not None

    @property
    def key(self) -> tuple[object, ...]:
        """What repetitions have in common: attempt, rank, class, and the message without numbers."""
        return self.attempt, self.rank, self.error, _SHAPE.sub("#", self.what)[:120]

    def came(self, time: float | None, times: int = 1) -> None:
        """Count in which minute it came."""
        if time is not None:
            minute = int(time // 60)
            self.minutes[minute] = self.minutes.get(minute, 0) + times

    def since(self, time: float, first: float) -> int:
        """Return how often it came behind a time; what has no time of its own came at the first of the log."""
        timed = sum(self.minutes.values())
        known = sum(times for minute, times in self.minutes.items() if minute > time // 60)
        return known + (self.count - timed) * ((first if self.time is None else self.time) > time)

    def merge(self, other: LogEvent) -> None:
        """Take from the launcher's summary of this event, or another log's, what is not known."""
        self.named |= other.named
        self.node, self.pid = self.node or other.node, self.pid or other.pid
        if self.guessed and not other.guessed:
            self.stage, self.guessed = other.stage, False


@dataclass(slots=True)
class Waits:
    """What the lines of an attempt report of ranks that wait, and that are waited for."""

    nodes: dict[int, str] = field(default_factory=dict)
    """Node by rank."""
    silent: set[int] = field(default_factory=set)
    """Ranks that the launcher ended and that reported nothing."""
    work: dict[tuple[str, int], int] = field(default_factory=dict)
    """Newest collective of a group of ranks that a rank reports as begun: each group counts its own."""
    seconds: float = 0.0
    """Longest time that a rank waited for others."""

    def began(self, group: str, rank: int, number: int) -> None:
        """Take that a rank began a collective; far fewer than before are those of a later start."""
        known = self.work.get((group, rank), 0)
        later = number < known / 2 and known - number > _FAR_FEWER
        self.work[group, rank] = number if later else max(known, number)

    def merge(self, other: Waits) -> None:
        """Take what another log reports of the attempt."""
        self.nodes |= {rank: node for rank, node in other.nodes.items() if node}
        self.silent |= other.silent
        for place, number in other.work.items():
            self.work[place] = max(self.work.get(place, 0), number)
        self.seconds = max(self.seconds, other.seconds)


@dataclass(slots=True)
class Log:
    """What one log holds, or several of one run."""

    path: str = ""
    lines: int = 0
    first: float | None = None
    last: float | None = None
    events: list[LogEvent] = field(default_factory=list)
    dropped: int = 0
    ranks: set[int] = field(default_factory=set)
    """Ranks that some line names."""
    waits: defaultdict[int, Waits] = field(default_factory=lambda: defaultdict(Waits))
    """By attempt: a start may have other nodes, and counts its collectives anew."""
    progress: int = 0
    """Lines that name a step and a loss."""
    attempts: int = 1
    _index: dict[tuple[object, ...], LogEvent] = field(default_factory=dict)

    def note(self, text: str, rank: int | None, attempt: int) -> None:
        """Take what a line of a rank, where that is known, reports of ranks, of waiting and of collectives."""
        waits = self.waits[attempt]
        if "ank" in text:
            for match in _NAMES_RANK.finditer(text[:512]):
                self.ranks.add(int(match[1]))
                self.ranks.update(range(int(match[2] or 0)))
        if absent := _ABSENT.search(text):
            waits.silent.add(int(absent[1]))
        if waited := _WAITED.search(text):
            waits.seconds = max(waits.seconds, int(waited[1] or waited[2] or waited[3]) / 1000)
        if work := _WORK.search(text):
            own = _WORK_RANK.search(text)
            rank = int(own[2]) if own and rank is None else rank
            if rank is not None:
                self.ranks.add(rank)
                waits.began((own and own[1]) or "", rank, int(work[1] or work[2]))

    def node_of(self, event: LogEvent) -> str:
        """Return the node of an event's rank in its attempt; empty where that is not known."""
        return "" if event.rank is None else self.waits[event.attempt].nodes.get(event.rank, "")

    def add(self, event: LogEvent) -> None:
        """Add an event, or count it as a repetition."""
        if event.rank is not None and event.node:
            self.waits[event.attempt].nodes[event.rank] = event.node
        if (known := self._index.get(event.key)) is not None:
            known.count += 1
            known.came(event.time)
        elif len(self.events) >= MOST_EVENTS:
            self.dropped += 1
        else:
            self.events.append(event)
            self._index[event.key] = event
            event.came(event.time)

    def add_summary(self, event: LogEvent, attempt: int) -> None:
        """Add what the launcher sums up of an attempt: rank, node and time of an event that is known, mostly."""
        known = self._index.get(event.key)
        if known is None and event.pid is not None:
            own = (other for other in self.events if (other.pid, other.level) == (event.pid, event.level))
            known = next((other for other in own if other.attempt == event.attempt), None)
        unnamed = self._index.get((event.attempt, None, *event.key[2:])) if known is None else None
        if unnamed is not None and unnamed.count > 1:
            unnamed.count -= 1
            unnamed.came(unnamed.time, -1)
            unnamed = None
        known = known or unnamed
        if known is None:
            event.attempt = attempt
            self.add(event)
            return
        del self._index[known.key]
        known.rank = event.rank
        self._index[known.key] = known
        known.merge(event)
        if event.time is not None:
            known.time, known.zoned = event.time, event.zoned


def display(text: str) -> str:
    """Return a message for people: one line, cut, without secrets and without long quotations of data."""
    text = without_secrets(" ".join(_HEAD.sub("", text[:_READ]).split()))
    text = _SECRET.sub(lambda match: f"{match[1] or ''}{HIDDEN}", text)
    text = _QUOTED.sub(lambda match: f"{match[1]}...{match[1]} ({len(match[0]) - 2} characters)", text)
    return clean(text, _SHOWN)
