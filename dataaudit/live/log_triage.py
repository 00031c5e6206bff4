"""What failed first in a run's logs, what only followed, and which nodes fail again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dataaudit.base.errors import ConfigError
from dataaudit.base.text import clean, count, decimal, plural
from dataaudit.live.log_events import Log, LogEvent, Waits
from dataaudit.live.log_patterns import ErrorClass, Level, Stage
from dataaudit.live.log_reader import read_log

_EVIDENCE: Final = frozenset({ErrorClass.OUT_OF_MEMORY, ErrorClass.DEVICE, ErrorClass.PREEMPTION})
"""Classes that say why a process was killed."""
_OF_PROCESSES: Final = frozenset({ErrorClass.OUT_OF_MEMORY, ErrorClass.DEVICE, ErrorClass.KILLED})
_WEAK: Final = frozenset({ErrorClass.UNKNOWN, ErrorClass.CODE})
_LOGS: Final = ("*.log", "*.out", "*.err", "*.txt", "*.gz", "error.json")
_SHOWN = 12
_INNER: Final = ("order", "zoned", "level", "guessed", "minutes")


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
    """Ranks that the others waited for, in the newest attempt."""
    attempts: int
    first_time: float | None
    """Seconds since 1970, UTC; None where the logs name no time."""
    last_time: float | None
    dropped: int
    """Events beyond what is kept."""

    @property
    def root(self) -> LogEvent | None:
        """The first failure of the newest attempt that has one; None: nothing ended the run."""
        return self.events[self.roots[-1]] if self.roots else None

    @property
    def hours(self) -> float | None:
        """From the first time to the last; None where the logs do not say."""
        return ((self.last_time or 0) - (self.first_time or 0)) / 3600 or None

    @property
    def exit_code(self) -> int:
        """0: no event; 1: some; 4: there was no line to read."""
        return 1 if self.events else 0 if self.lines else 4

    def error_event_rate(self) -> dict[str, float | None]:
        """Return the errors within the newest hour of the logs by class, without consequences; None: without times."""
        counts: Counter[str] = Counter()
        first, since = self.first_time or 0.0, (self.last_time or 0.0) - 3_600
        for event in self.events:
            counts[event.error.value] += 0 if event.consequence else event.since(since, first)
        return {name: float(number) if self.hours else None for name, number in counts.items()}

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        events = [{name: value for name, value in asdict(event).items() if name not in _INNER} for event in self.events]
        return {**asdict(self), "events": events, "error_event_rate": self.error_event_rate()}


def log_files(paths: Iterable[Path]) -> list[Path]:
    """Return the logs that paths name: files, and in folders everything that is named like a log.

    Raises:
        ConfigError: A folder has no log.
    """
    logs: list[Path] = []
    for path in paths:
        inside = sorted({item for pattern in _LOGS for item in path.rglob(pattern) if item.is_file()})
        if path.is_dir() and not inside:
            raise ConfigError(f"no log in {path}", f"Files there would be named {', '.join(_LOGS)}; name others.")
        logs += inside if path.is_dir() else [path]
    return list(dict.fromkeys(logs))


def triage(paths: Sequence[Path], *, zone_seconds: float = 0.0) -> Triage:
    """Read the logs of one run and say what failed first.

    Args:
        paths: Logs, or folders of them.
        zone_seconds: What local time is ahead of UTC, for times that name no zone.

    Raises:
        ConfigError: A log cannot be read.
    """
    logs = [read_log(path, zone_seconds) for path in log_files(paths)]
    run = _merged(logs)
    roots, suspects = [], []
    for attempt in sorted({event.attempt for event in run.events}):
        own = [event for event in run.events if event.attempt == attempt and not event.survived]
        behind = _behind(run.waits[attempt])
        suspects = _suspects(own, run, behind)
        root = _root(own)
        if root is not None and root.level is Level.FOLLOWS and suspects:
            root = _hang(root, suspects, behind, run.waits[attempt])
            run.events.insert(run.events.index(own[0]), root)
        if root is not None:
            roots.append((root, own))
    places = {id(event): place for place, event in enumerate(run.events)}
    for root, own in roots:
        for event in own:
            event.cause = None if event is root else places[id(root)]
    times = [time for log in logs for time in (log.first, log.last) if time is not None]
    return Triage(
        files=tuple(log.path for log in logs),
        lines=sum(log.lines for log in logs),
        events=tuple(run.events),
        roots=tuple(places[id(root)] for root, _ in roots),
        suspects=tuple(suspects),
        attempts=max((log.attempts for log in logs), default=1),
        first_time=min(times, default=None),
        last_time=max(times, default=None),
        dropped=sum(log.dropped for log in logs),
    )


def _merged(logs: Sequence[Log]) -> Log:
    """Put logs together: events in their order, the same failure in two logs once, nodes of ranks known to all."""
    run, placed = Log(), []
    progress = any(log.progress for log in logs)
    for number, log in enumerate(logs):
        run.ranks |= log.ranks
        for attempt, waits in log.waits.items():
            run.waits[attempt].merge(waits)
        newest = float("-inf")
        for event in sorted(log.events, key=lambda event: event.line):
            newest = max(newest, newest if event.time is None or event.named else event.time)
            placed.append((newest, number, event.line, event))
            if event.guessed and progress and not log.progress:  # another log says how far the run was
                event.stage = Stage.UNKNOWN
    seen: dict[tuple[object, ...], LogEvent] = {}
    for *_, event in sorted(placed, key=lambda item: item[:3]):
        other = seen.setdefault(event.key, event)
        if other is not event and event.rank is not None:
            other.merge(event)
            continue
        run.events.append(event)
        event.node = event.node or run.node_of(event)
    return run


def _root(events: Sequence[LogEvent]) -> LogEvent | None:
    """Return the first failure of an attempt, with the rank and node that others of its class name."""
    near = [event for event in events if event.level <= Level.DEATH]
    if not near:
        return min(events, key=lambda event: event.level, default=None)
    first = near[0]
    root = next((event for event in near if event.named), first) if first.error in _WEAK else first
    if first.level is Level.DEATH or first.error is ErrorClass.KILLED:
        why = [event for event in near if event.error in _EVIDENCE and event.level is Level.CAUSE]
        why.sort(key=lambda event: event.pid is None or event.pid != first.pid)
        own = [event for event in near if event.level is Level.CAUSE and event.rank == first.rank is not None]
        root = next(iter([*why, *own]), first)
        root.rank, root.node = first.rank if root.rank is None else root.rank, root.node or first.node
    for event in events:
        if root.error is event.error in _OF_PROCESSES and event.rank is not None and root.rank in {None, event.rank}:
            root.rank, root.node = event.rank, root.node or event.node
    return root


def _behind(waits: Waits) -> dict[int, int]:
    """Return the ranks that began fewer collectives than others of a group, and how many they began."""
    groups: dict[str, dict[int, int]] = {}
    for (group, rank), number in waits.work.items():
        groups.setdefault(group, {})[rank] = number
    if len(groups) > 1:  # lines that name no group may be of any
        groups.pop("", None)
    return {
        rank: number
        for own in groups.values()
        for rank, number in own.items()
        if number == min(own.values()) < max(own.values())
    }


def _suspects(events: Sequence[LogEvent], run: Log, behind: Mapping[int, int]) -> list[int]:
    """Return the ranks that the others waited for: they began fewer collectives, or reported nothing."""
    reported = {event.rank for event in events if event.level is Level.FOLLOWS}
    if not reported or any(event.level <= Level.DEATH for event in events):
        return []
    if behind:
        return sorted(behind)
    quiet = sorted(run.waits[events[0].attempt].silent - reported) or sorted(run.ranks - reported)
    return quiet if len(quiet) < max(2, len(run.ranks)) else []


def _hang(first: LogEvent, suspects: Sequence[int], behind: Mapping[int, int], waits: Waits) -> LogEvent:
    """Return an event of the rank that the others waited for."""
    rank = suspects[0]
    why = f"began only {behind[rank]:,} collectives" if behind else "reported nothing"
    names = f"rank {', '.join(map(str, suspects[:8]))}"
    own = {name: getattr(first, name) for name in ("file", "line", "stage", "attempt")}
    return LogEvent(
        **own,
        error=ErrorClass.COMMUNICATION,
        level=Level.CAUSE,
        what=f"{names} {why} while others waited {decimal(waits.seconds)} s: it hung, or was slower than they wait",
        rank=rank,
        node=waits.nodes.get(rank, ""),
        time=None if first.time is None else first.time - waits.seconds,
    )


def failing_nodes(runs: Sequence[Triage]) -> dict[str, int]:
    """Return the nodes on which the first failure of two runs or more was, with the number of runs."""
    counts = Counter(node for run in runs for node in {run.events[place].node for place in run.roots} - {""})
    return {node: number for node, number in counts.most_common() if number > 1}


def triage_text(result: Triage) -> str:
    """Return a triage as text for a terminal."""
    span = "" if result.first_time is None else f", {_moment(result.first_time)} to {_moment(result.last_time)} UTC"
    where = f"{plural(result.lines, 'line')} of {plural(len(result.files), 'log')}{span}"
    lines = [f"{plural(sum(event.count for event in result.events), 'error event')} in {where}"]
    for place in result.roots:
        root = result.events[place]
        title = "first failure" + (f" of attempt {root.attempt + 1}" if result.attempts > 1 else "")
        when = "" if root.time is None else f"{_moment(root.time)} UTC, "
        lines += ["", f"{title}: {root.error.value}, {_who(root)}, {when}stage {root.stage.value}"]
        lines += [f"  {root.what}", f"  {clean(root.file)}:{root.line}"]
        lines += _listed("  what only followed", [event for event in result.events if event.cause == place])
    if result.root is None or result.root.attempt + 1 < result.attempts:
        lines += ["", f"attempt {result.attempts} has had no failure so far"] if result.events else []
    lines += _listed("after these the run went on", [event for event in result.events if event.survived])
    if result.dropped:
        lines += ["", f"{plural(result.dropped, 'further event')} beyond what is kept: name fewer files at once"]
    return "\n".join(lines) + "\n"


def _listed(title: str, events: Sequence[LogEvent]) -> list[str]:
    if not events:
        return []
    lines = [f"{title}: {plural(sum(event.count for event in events), 'event')}"]
    lines += [f"    {_who(event):<20} {event.error.value:<14} {event.what[:90]}" for event in events[:_SHOWN]]
    return [*lines, *([f"    and {count(len(events) - _SHOWN)} more: --json"] if len(events) > _SHOWN else [])]


def _moment(seconds: float | None) -> str:
    return f"{datetime.fromtimestamp(seconds or 0.0, UTC):%Y-%m-%d %H:%M:%S}"


def _who(event: LogEvent) -> str:
    rank = "rank unknown" if event.rank is None else f"rank {event.rank}"
    return rank + (f" on {clean(event.node)}" if event.node else "")
