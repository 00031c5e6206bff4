"""Heartbeats of ranks: a small file of each, and who is missing, stalled or slow, since when.

A thread writes a rank's file every few seconds with how far the loop has come, which the loop leaves in memory. So
a process that is gone (its file stays as it is), a loop that hangs (the file is new, the step old) and a slow rank
differ.
Nobody compares clocks of two nodes: a file's age is the file system's time, by a file of the reader's own, and the age
of a step is a monotonic interval of the rank. A file name holds rank, attempt and launch, so that a listing suffices::

    FOLDER/00003-0001-5be1c2d4.beat      rank 3, attempt 1
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import orjson

from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.base.files import open_safely, write_whole
from dataaudit.base.text import clean, plural

_NAME: Final = re.compile(r"(\d{5,})-(\d{4,})-([0-9a-f]{8})\.beat")
_LAUNCH = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_RESTART_COUNT")
ALONE: Final = "00000000"
"""Of a process that no launcher has started."""
_FIELDS: Final = ("rank", "ranks", "node", "pid", "every", "beats", "starts", "step", "since", "pace", "where", "end")
_STARTS = 64
_CLOSING_SECONDS = 10.0
_SHOWN_FRAMES = 3
_INSTALLED: Final = (sys.prefix, sys.base_prefix, "<frozen ")
BEATS_FOLDER = "beats"
"""Where ranks beat, below the folder of the run log."""
SLOW = 1.5
"""Times the median time of a step from which on a rank is slow."""


class State(StrEnum):
    """What a rank is doing."""

    OK = "ok"
    STARTING = "starting"
    MISSING = "missing"
    STALLED = "stalled"
    SLOW = "slow"
    FAILED = "failed"
    ENDED = "ended"


class Heartbeat:
    """Writes a rank's file from a thread; the loop only calls :meth:`step`, which does no I/O and never waits.

    ::

        with Heartbeat("runs/7b/beats", rank, ranks=world_size) as beat:
            for step, batch in enumerate(batches, 1):
                ...
                beat.step(step)

    Args:
        folder: Shared by the ranks of a run.
        rank: Of this process.
        every: Seconds between two beats.
        ranks: Processes of the run, so that a rank that never came is missed; those that came, by default.
        attempt: Which start of the run it is, from 0; by default one more than the newest of another launch (of
            torchrun, of SLURM) or of this rank.

    Attributes:
        lost: Beats that could not be written.

    Raises:
        ConfigError: ``rank`` or ``every`` is out of range.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        rank: int,
        every: float = 10.0,
        *,
        ranks: int | None = None,
        attempt: int | None = None,
    ) -> None:
        if not 0 <= rank < (ranks or 1 << 24) or not 0.01 <= every <= 3600:
            raise ConfigError(f"heartbeat: expected 0 <= rank < ranks and 0.01 to 3,600 seconds, found {rank}, {every}")
        self.lost = 0
        self._folder, self._rank, self._every, self._ranks, self._attempt = Path(folder), rank, every, ranks, attempt
        self._now: tuple[int, float] | None = None
        self._pace: float | None = None
        self._starts: list[float] = [time.time()]
        self._begun = time.monotonic()
        self._beats, self._path, self._end = 0, self._folder, ""
        self._loop = threading.get_ident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dataaudit-heartbeat", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        well = kind is None or (isinstance(error, SystemExit) and not error.code)
        self.close("" if well or kind is None else kind.__name__)

    def step(self, number: int) -> None:
        """Note that a step is done; its number and time stay in memory until the next beat."""
        self._now = number, time.monotonic()

    def close(self, failure: str = "") -> None:
        """Write the last beat, which says that the rank has ended, and of which error; waits ten seconds at most."""
        self._end = failure or "ended"
        self._stop.set()
        self._thread.join(_CLOSING_SECONDS)

    def _run(self) -> None:
        with CatchErrors() as call:
            self._begin()
        self.lost += call.error is not None
        before = self._now
        while True:
            ended = self._stop.is_set()
            with CatchErrors() as call:
                if self._path == self._folder:
                    self._begin()
                write_whole(self._path, orjson.dumps(self._content(before)))
            self.lost += call.error is not None
            before = self._now
            if ended:
                return
            self._stop.wait(self._every)

    def _begin(self) -> None:
        """Choose the attempt by a listing, take over its starts, and delete this rank's file of the one before."""
        launch = launch_key()
        self._folder.mkdir(parents=True, exist_ok=True)
        names = _listing(self._folder)
        if self._attempt is None:
            same = [attempt for _, attempt, key in names if key == launch != ALONE]
            others = [] if same or launch == ALONE else [attempt + 1 for _, attempt, _ in names]
            self._attempt = max([0, *same, *others, *(attempt + 1 for rank, attempt, _ in names if rank == self._rank)])
        own = [_path(self._folder, *name) for name in sorted(names) if name[0] == self._rank]
        for path in own:
            self._starts = [*_read(path)[0].get("starts", ()), self._starts[-1]][-_STARTS:]
        self._path = _path(self._folder, self._rank, self._attempt, launch)
        write_whole(self._path, orjson.dumps(self._content(None)))
        for path in set(own) - {self._path}:
            path.unlink(missing_ok=True)

    def _content(self, before: tuple[int, float] | None) -> dict[str, Any]:
        self._beats += 1
        now, moment = self._now, time.monotonic()
        if now is not None and before is not None and now[0] > before[0]:
            pace = (now[1] - before[1]) / (now[0] - before[0])
            self._pace = pace if self._pace is None else 0.5 * (self._pace + pace)
        step, since = (None, self._begun) if now is None else now
        own = (self._rank, self._ranks, socket.gethostname(), os.getpid(), self._every, self._beats, self._starts)
        where = "" if self._end else _where(self._loop)
        return dict(zip(_FIELDS, (*own, step, moment - since, self._pace, where, self._end), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """What is known of a rank."""

    rank: int
    state: State
    why: str
    node: str = ""
    pid: int | None = None
    step: int | None = None
    """Last step that was done; None: none yet."""
    beat_seconds: float | None = None
    """Since its last beat; None: it never came."""
    step_seconds: float | None = None
    """Since its last step, or its start."""
    pace: float | None = None
    """Seconds a step."""
    where: str = ""
    """What the loop's thread was doing at the last beat, innermost last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReport:
    """States of all ranks of the newest attempt."""

    attempt: int
    ranks: tuple[RankState, ...]
    older: int
    """Files of older attempts, of ranks that the newest has no more."""
    unreadable: int
    starts: tuple[float, ...]
    """When its attempts began, by the clock of its first rank, seconds since 1970."""

    def of(self, *states: State) -> list[RankState]:
        """Return the ranks in some states."""
        return [rank for rank in self.ranks if rank.state in states]

    @property
    def heartbeat_missing(self) -> int:
        """Ranks that do not beat and have not ended."""
        return len(self.of(State.MISSING))

    @property
    def blackout(self) -> bool:
        """Whether no rank beats: the run, or what it writes to, is gone."""
        return 0 < len(self.ranks) == self.heartbeat_missing

    @property
    def behind(self) -> list[RankState]:
        """Ranks with the lowest step, where some have a higher one: what the others wait for."""
        steps = {rank.step or 0 for rank in self.ranks if rank.state is not State.ENDED}
        return [rank for rank in self.ranks if (rank.step or 0) == min(steps)] if len(steps) > 1 else []

    def text(self) -> str:
        """Return it for a terminal: counts, then every rank that is not well."""
        counts = Counter(rank.state.value for rank in self.ranks)
        parts = ", ".join(f"{number:,} {state}" for state, number in counts.most_common())
        lines = [f"{plural(len(self.ranks), 'rank')}, attempt {self.attempt}: {parts or 'no heartbeat'}"]
        if self.blackout:
            lines.append("no rank beats: the run has stopped, or its file system does not answer")
        for rank in self.of(State.MISSING, State.FAILED, State.STALLED, State.SLOW)[:64]:
            node = f" on {clean(rank.node)}, pid {rank.pid}" if rank.node else ""
            lines.append(f"  rank {rank.rank}{node}: {rank.state.value}, {rank.why}")
        return "\n".join(lines) + "\n"


class _Seen(NamedTuple):
    """A beat that was read."""

    content: Mapping[str, Any]
    moment: float
    """When it was new, by this process's monotonic clock."""


class Heartbeats:
    """Reads the heartbeats of a run, again and again: what it saw before makes it independent of every clock.

    Args:
        folder: Where the ranks write.
        missing: Beats that a rank may leave out.
        stalled: Seconds without a step from which on a loop has stalled; 20 of its own steps, at least 60, by default.
    """

    def __init__(self, folder: str | os.PathLike[str], *, missing: float = 3.0, stalled: float | None = None) -> None:
        self._folder, self._missing, self._stalled = Path(folder), missing, stalled
        self._seen: dict[int, _Seen] = {}

    def read(self, now: float | None = None) -> HeartbeatReport:
        """Return the state of every rank.

        Args:
            now: Time of the file system, seconds since 1970; by default that of a file which is written for it. In a
                folder that cannot be written it is this machine's clock, and only a second reading corrects that.

        Raises:
            ConfigError: The folder cannot be listed.
        """
        try:
            names = _listing(self._folder)
        except OSError as error:
            raise ConfigError(
                f"heartbeats {self._folder}: {error.strerror or error}", "Name the folder of `Heartbeat(folder, rank)`."
            ) from None
        now = self._time() if now is None else now
        attempt = max((number for _, number, _ in names), default=0)
        newest = sorted((rank, key) for rank, number, key in names if number == attempt)
        beats: dict[int, _Seen] = {}
        for rank, key in newest:
            content, modified = _read(_path(self._folder, rank, attempt, key))
            if content:
                beats[rank] = self._age(self._seen.get(rank), content, now - modified)
        self._seen = beats
        contents = [seen.content for seen in beats.values()]
        expected = max([1 + max(beats, default=-1), *(int(content["ranks"] or 0) for content in contents)])
        older = {rank: number for rank, number, _ in sorted(names) if number < attempt and rank not in beats}
        paces = [content["pace"] for content in contents if content["pace"]]
        median = statistics.median(paces) if len(paces) > 1 else None
        young = bool(beats) and all(content["beats"] <= self._missing for content in contents)
        absent = State.STARTING if young else State.MISSING
        states = {rank: self._state(rank, seen, median) for rank, seen in beats.items()}
        for rank in set(range(expected)) - set(states):
            known = f"it beat in attempt {older[rank]} and has not begun attempt {attempt}" if rank in older else ""
            states[rank] = RankState(rank=rank, state=absent, why=known or "it never beat")
        return HeartbeatReport(
            attempt=attempt,
            ranks=tuple(states[rank] for rank in sorted(states)),
            older=sum(rank >= expected for rank in older),
            unreadable=len(newest) - len(beats),
            starts=tuple(beats[min(beats)].content["starts"]) if beats else (),
        )

    def _age(self, before: _Seen | None, content: Mapping[str, Any], age: float) -> _Seen:
        """Return a beat with its age: of one that was read before, since then; of a new one, by its file."""
        if before is None or before.content["pid"] != content["pid"]:
            return _Seen(content, time.monotonic() - max(0.0, age))
        same = before.content["beats"] == content["beats"]
        return _Seen(content, before.moment if same else time.monotonic())

    def _state(self, rank: int, seen: _Seen, median: float | None) -> RankState:
        content, age = seen.content, time.monotonic() - seen.moment
        step, pace, end = content["step"], content["pace"], content["end"]
        idle = float(content["since"]) + age
        done = "no step yet" if step is None else f"last step {step:,}"
        state, why = State.OK if step is not None else State.STARTING, done
        if end:
            state = State.ENDED if end == "ended" else State.FAILED
            why = done if state is State.ENDED else f"{done}, ended by {end}"
        elif age > self._missing * content["every"]:
            state, why = State.MISSING, f"no beat for {age:,.0f} s, {done}: the process or its node is gone"
        elif idle > (self._stalled or max(60.0, 20.0 * (pace or 0.0), 3.0 * content["every"])):
            where = content["where"] or "code without Python"
            state, why = State.STALLED, f"beats, {done}, none for {idle:,.0f} s, in {clean(where)}"
        elif pace and median and pace > SLOW * median:
            state, why = State.SLOW, f"{done}, {pace:.3g} s a step, the median is {median:.3g} s"
        return RankState(
            rank=rank,
            state=state,
            why=why,
            beat_seconds=age,
            step_seconds=idle,
            **{name: content[name] for name in ("node", "pid", "step", "pace", "where")},
        )

    def _time(self) -> float:
        """Return the file system's time: that of a file which is written now."""
        path = self._folder / f".reader-{socket.gethostname()}-{os.getpid()}"
        try:
            path.write_bytes(b"")
            return path.stat().st_mtime
        except OSError:
            return time.time()
        finally:
            with suppress(OSError):
                path.unlink()


def launch_key() -> str:
    """Return what the processes of a launch have in common, and no other launch; empty without a launcher."""
    names = [os.environ.get(name, "") for name in _LAUNCH]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:8] if any(names) else ALONE


def _path(folder: Path, rank: int, attempt: int, launch: str) -> Path:
    return folder / f"{rank:05d}-{attempt:04d}-{launch}.beat"


def _listing(folder: Path) -> list[tuple[int, int, str]]:
    """Return (rank, attempt, launch) of every file."""
    matches = [match for name in os.listdir(folder) if (match := _NAME.fullmatch(name))]
    return [(int(match[1]), int(match[2]), match[3]) for match in matches]


def _read(path: Path) -> tuple[Mapping[str, Any], float]:
    """Return a beat and the time of its file; nothing where it cannot be read."""
    try:
        with open(path, "rb", opener=open_safely) as file:
            content, modified = orjson.loads(file.read(1 << 16)), os.fstat(file.fileno()).st_mtime
        return (content, modified) if set(_FIELDS) == set(content) else ({}, 0.0)
    except (OSError, ValueError, TypeError):
        return {}, 0.0


def _where(thread: int) -> str:
    """Return where a thread is: its innermost frame, and the innermost ones of code that is not installed."""
    shown: list[str] = []
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - frames of other threads have no public name
    while frame is not None and len(shown) < _SHOWN_FRAMES:
        code = frame.f_code
        if not shown or not code.co_filename.startswith(_INSTALLED):
            shown.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(shown))
