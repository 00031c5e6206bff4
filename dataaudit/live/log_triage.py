"""What failed first in a run's logs, what only followed, and which nodes fail again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dataaudit.base.errors import ConfigError
from dataaudit.base.text import clean, count, decimal, plural
from dataaudit.live.log_events import Log, LogEvent, read_log
from dataaudit.live.log_patterns import ErrorClass, Level, Stage

SCHEMA_VERSION: Final = 1
_EVIDENCE = frozenset({ErrorClass.OUT_OF_MEMORY, ErrorClass.DEVICE, ErrorClass.PREEMPTION})
"""Classes that say why a process was killed."""
_OF_PROCESSES = frozenset({ErrorClass.OUT_OF_MEMORY, ErrorClass.DEVICE, ErrorClass.KILLED})
_LOGS = ("*.log", "*.out", "*.err", "*.txt", "*.gz", "error.json")
_SHOWN = 12
_INNER = frozenset({"order", "zoned", "level", "guessed"})
_WEAKER = {ErrorClass.UNKNOWN, ErrorClass.CODE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Triage:
    """Error events of a run, their causes, and their rates."""

    files: tuple[str, ...]
    lines: int
    events: tuple[LogEvent, ...]
    """In the order in which they happened, as far as it is known."""
    roots: tuple[int, ...]
    """Places of the first failure of each attempt, the newest attempt last."""
    suspects: tuple[int, ...]
    """Ranks that reported nothing while others waited for them, in the newest attempt."""
    hours: float | None
    """From the first time to the last; None where the logs name none."""
    first_time: float | None
    last_time: float | None
    dropped: int
    """Events beyond what is kept."""
    attempts: int = 1

    @property
    def root(self) -> LogEvent | None:
        """The first failure of the newest attempt; None: nothing ended the run."""
        return self.events[self.roots[-1]] if self.roots else None

    @property
    def exit_code(self) -> int:
        """0: no event; 1: some; 4: there was no line to read."""
        return 1 if self.events else 0 if self.lines else 4

    def error_event_rate(self) -> dict[str, float | None]:
        """Return errors an hour by class, consequences left out; None where the logs name no times."""
        counts: Counter[str] = Counter()
        for event in self.events:
            counts[event.error.value] += 0 if event.consequence else event.count
        return {name: number / self.hours if self.hours else None for name, number in counts.items()}

    def counted(self) -> list[tuple[str, str, int | None, int, int]]:
        """Return (class, stage, rank, events, of these consequences), sorted by events."""
        totals: Counter[tuple[str, str, int | None]] = Counter()
        follow: Counter[tuple[str, str, int | None]] = Counter()
        for event in self.events:
            key = (event.error.value, event.stage.value, event.rank)
            totals[key] += event.count
            follow[key] += event.count if event.consequence else 0
        return [(*key, number, follow[key]) for key, number in sorted(totals.items(), key=lambda item: (-item[1], str(item)))]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            **{name: value for name, value in asdict(self).items() if name != "events"},
            "events": [
                {name: value for name, value in asdict(event).items() if name not in _INNER}
                for event in self.events
            ],
            "error_event_rate": self.error_event_rate(),
            "exit_code": self.exit_code,
        }


@dataclass(slots=True)
class _Merged:
    """Logs of one run, put together."""

    events: list[LogEvent] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    work: dict[int, int] = field(default_factory=dict)
    waited: float = 0.0
    nodes: dict[int, str] = field(default_factory=dict)


def log_files(paths: Iterable[Path]) -> list[Path]:
    """Return the logs that paths name: files, and in folders everything that is named like a log.

    Raises:
        ConfigError: A path is absent, or a folder has no log.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted({item for pattern in _LOGS for item in path.rglob(pattern) if item.is_file()})
            if not inside:
                raise ConfigError(f"no log in {path}", f"Files there would be named {', '.join(_LOGS)}; name others.")
            found += inside
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def triage(paths: Sequence[Path], *, zone_seconds: float = 0.0) -> Triage:
    """Read the logs of one run and say what failed first.

    Args:
        paths: Logs, or folders of them.
        zone_seconds: What local time is ahead of UTC, for times that name no zone.

    Raises:
        ConfigError: A log cannot be read.
    """
    logs = [read_log(path, zone_seconds) for path in log_files(paths)]
    merged = _merge(logs)
    roots = []
    attempts = sorted({event.attempt for event in merged.events})
    suspects: list[int] = []
    for attempt in attempts:
        own = [event for event in merged.events if event.attempt == attempt and not event.survived]
        suspects = _suspects(own, merged) if attempt == attempts[-1] else []
        root = _root(own)
        if root is not None and root.level is Level.FOLLOWS and suspects:
            root = _hang(root, suspects, own, merged)
        if root is None:
            continue
        place = merged.events.index(root)
        roots.append(place)
        for event in own:
            if event is not root:
                event.consequence, event.cause = True, place
    times = [time for log in logs for time in (log.first, log.last) if time is not None]
    first, last = (min(times), max(times)) if times else (None, None)
    return Triage(
        files=tuple(log.path for log in logs),
        lines=sum(log.lines for log in logs),
        events=tuple(merged.events),
        roots=tuple(roots),
        suspects=tuple(suspects),
        hours=(last - first) / 3600 if first is not None and last is not None and last > first else None,
        first_time=first,
        last_time=last,
        dropped=sum(log.dropped for log in logs),
        attempts=max((log.attempts for log in logs), default=1),
    )


def _merge(logs: Sequence[Log]) -> _Merged:
    """Put logs together: events in their order, the same failure in two logs once, nodes of ranks known to all."""
    merged = _Merged()
    placed: list[tuple[float, int, int, LogEvent]] = []
    progress = any(log.progress for log in logs)
    for number, log in enumerate(logs):
        for event in log.events:
            if event.guessed and progress and not log.progress:  # another log says how far the run was
                event.stage = Stage.UNKNOWN
        merged.ranks |= log.ranks | {event.rank for event in log.events if event.rank is not None}
        merged.silent |= log.silent
        merged.work |= log.work
        merged.waited = max(merged.waited, log.waited)
        merged.nodes |= {rank: node for rank, node in log.nodes.items() if node}
        newest = float("-inf")
        for event in sorted(log.events, key=lambda event: event.line):
            newest = max(newest, event.time if event.time is not None and not event.named else newest)
            placed.append((newest, number, event.line, event))
    seen: dict[tuple[object, ...], LogEvent] = {}
    for _, number, _, event in sorted(placed, key=lambda item: item[:3]):
        key = (event.attempt, event.rank, event.shape)
        other = seen.get(key)
        if other is not None and event.rank is not None and other.file != logs[number].path:
            other.named |= event.named
            other.node = other.node or event.node
            if other.guessed and not event.guessed:
                other.stage, other.guessed = event.stage, False
            continue
        seen.setdefault(key, event)
        merged.events.append(event)
        if event.rank is not None and not event.node:
            event.node = merged.nodes.get(event.rank, "")
    return merged


def _root(events: Sequence[LogEvent]) -> LogEvent | None:
    """Return the first failure of an attempt, with the rank and node that others of its class name."""
    root = _first(events)
    if root is not None and root.error in _OF_PROCESSES:
        for event in events:
            if event.error is root.error and event.rank is not None and root.rank in {None, event.rank}:
                root.rank, root.node = event.rank, root.node or event.node
    return root


def _first(events: Sequence[LogEvent]) -> LogEvent | None:
    near = [event for event in events if event.level <= Level.DEATH]
    if not near:
        follows = [event for event in events if event.level is Level.FOLLOWS]
        return follows[0] if follows else None
    first = near[0]
    if first.error is ErrorClass.KILLED or first.level is Level.DEATH:
        why = [event for event in near if event.error in _EVIDENCE and event.level is Level.CAUSE]
        same = [event for event in why if event.pid is not None and event.pid == first.pid]
        own = [event for event in near if event.level is Level.CAUSE and event.rank == first.rank and event.rank is not None]
        for event in (*same, *why, *own):
            event.rank = first.rank if event.rank is None else event.rank
            event.node = event.node or first.node
            return event
    named = [event for event in near if event.named]
    if named and named[0] is not first and first.error in _WEAKER and first.rank is not None:
        return named[0]
    return first


def _suspects(events: Sequence[LogEvent], merged: _Merged) -> list[int]:
    """Return the ranks that the others waited for: they began fewer collectives, or reported nothing."""
    if not any(event.level is Level.FOLLOWS for event in events) or any(event.level <= Level.DEATH for event in events):
        return []
    if len(set(merged.work.values())) > 1:
        least = min(merged.work.values())
        return sorted(rank for rank, work in merged.work.items() if work == least)
    reported = {event.rank for event in events if event.level is Level.FOLLOWS}
    quiet = sorted(merged.silent - reported) or sorted(merged.ranks - reported)
    return quiet if len(quiet) < max(2, len(merged.ranks)) else []


def _hang(first: LogEvent, suspects: Sequence[int], own: list[LogEvent], merged: _Merged) -> LogEvent:
    """Put an event of the rank that the others waited for before the rest."""
    rank = suspects[0]
    work = merged.work.get(rank)
    why = f"began only {work:,} collectives" if work is not None else "reported nothing"
    names = ", ".join(map(str, suspects[:8]))
    event = LogEvent(
        file=first.file,
        line=first.line,
        error=ErrorClass.COMMUNICATION,
        stage=first.stage,
        rank=rank,
        node=merged.nodes.get(rank, ""),
        time=None if first.time is None else first.time - merged.waited,
        what=f"rank {names} {why} while others waited {decimal(merged.waited)} s: it hung, or was slower than they wait",
        attempt=first.attempt,
        level=Level.CAUSE,
    )
    merged.events.insert(merged.events.index(first), event)
    own.append(event)
    return event


def failing_nodes(runs: Sequence[Triage]) -> dict[str, int]:
    """Return the nodes on which the first failure of two runs or more was, with the number of runs."""
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update({run.events[place].node for place in run.roots} - {""})
    return {node: number for node, number in counts.most_common() if number > 1}


def triage_text(result: Triage) -> str:
    """Return a triage as text for a terminal."""
    span = "" if result.first_time is None else f", {moment(result.first_time)} to {moment(result.last_time)} UTC"
    total = sum(event.count for event in result.events)
    lines = [f"{plural(total, 'error event')} in {plural(result.lines, 'line')} of {plural(len(result.files), 'log')}{span}"]
    survived = [event for event in result.events if event.survived]
    for place in result.roots:
        root = result.events[place]
        follow = [event for event in result.events if event.cause == place]
        title = "first failure" + (f" of attempt {root.attempt + 1}" if result.attempts > 1 else "")
        lines += ["", f"{title}: {root.error.value}, {_who(root)}, {_when(root)}stage {root.stage.value}"]
        lines += [f"  {root.what}", f"  {clean(root.file)}:{root.line}"]
        if follow:
            lines.append(f"  what only followed: {plural(sum(event.count for event in follow), 'event')}")
            lines += [f"    {_who(event):<20} {event.error.value:<14} {event.what[:90]}" for event in follow[:_SHOWN]]
            lines += [f"    and {count(len(follow) - _SHOWN)} more: --json"] if len(follow) > _SHOWN else []
    if result.events and not result.roots:
        lines += ["", "nothing of this ended the run"]
    if result.root is not None and result.root.attempt + 1 < result.attempts:
        lines += ["", f"attempt {result.attempts} has had no failure so far"]
    if survived:
        lines += ["", f"after these the run went on: {plural(sum(event.count for event in survived), 'event')}"]
        lines += [f"  {_who(event):<20} {event.error.value:<14} {event.what[:90]}" for event in survived[:_SHOWN]]
    if result.events:
        lines += ["", f"{'class':<14} {'stage':<11} {'rank':>5} {'events':>7} {'of these followed':>18}"]
        for error, stage, rank, number, followed in result.counted()[: 2 * _SHOWN]:
            shown = "-" if rank is None else str(rank)
            lines.append(f"{error:<14} {stage:<11} {shown:>5} {count(number):>7} {count(followed):>18}")
    if result.dropped:
        lines += ["", f"{plural(result.dropped, 'further event')} beyond what is kept: name fewer files at once"]
    return "\n".join(lines) + "\n"


def moment(seconds: float | None) -> str:
    """Return a time as text, UTC."""
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def _who(event: LogEvent) -> str:
    rank = "rank unknown" if event.rank is None else f"rank {event.rank}"
    return rank + (f" on {clean(event.node)}" if event.node else "")


def _when(event: LogEvent) -> str:
    return "" if event.time is None else f"{moment(event.time)} UTC, "
