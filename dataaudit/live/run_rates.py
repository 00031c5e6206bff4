"""How far a run log lags behind, how often a run restarts, and rows of these for a sink and its alerts."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dataaudit.base.errors import RunLogError
from dataaudit.live.heartbeats import HeartbeatReport
from dataaudit.runlog.parts import part_numbers, part_path, rank_folder, read_header, read_part
from dataaudit.runlog.reader import load_run, ranks_at
from dataaudit.runlog.writer import Columns, whole_values

_HOUR = 3600.0


def metrics_ingest_lag(runlog: str | os.PathLike[str], now: float | None = None) -> dict[int, float | None]:
    """Return the age of the newest row of every rank of a run's newest start, seconds; None: it has written nothing.

    Of a log without steps, whose other rows have no time, it is the age of the newest file.

    Args:
        runlog: Folder of the run log.
        now: Seconds since 1970; this machine's clock by default.

    Raises:
        RunLogError: There is no run log, or it is damaged.
    """
    log = load_run(Path(runlog))
    now = time.time() if now is None else now
    (ranks,) = ranks_at(np.array([np.iinfo(np.int64).max]), log.table("events"), log.run.ranks).tolist()
    newest = {rank: _newest(rank_folder(log.folder, rank)) for rank in range(ranks)}
    return {rank: None if moment is None else max(0.0, now - moment) for rank, moment in newest.items()}


def restart_rate(
    runlog: str | os.PathLike[str] | None = None, starts: Sequence[float] = (), now: float | None = None
) -> float | None:
    """Return how often a run restarted within the newest hour, however old it is; None: no start is known.

    Args:
        runlog: Folder of a run log: every attempt of its first rank is a start.
        starts: Further starts, seconds since 1970, such as :attr:`HeartbeatReport.starts`; of both, the more count.
        now: Seconds since 1970; this machine's clock by default.

    Raises:
        RunLogError: The run log is absent or damaged.
    """
    logged: list[float] = []
    if runlog is not None:
        log = load_run(Path(runlog))
        logged = sorted(_starts(rank_folder(log.folder, min(log.ranks))).values()) if log.ranks else []
    chosen = max(logged, sorted(starts), key=len)
    if not chosen:
        return None
    now = time.time() if now is None else now
    return float(sum(start >= now - _HOUR for start in chosen[1:]))


def live_values(
    step: int,
    *,
    beats: HeartbeatReport | None = None,
    lag: Mapping[int, float | None] | None = None,
    restarts: float | None = None,
    errors: Mapping[str, float | None] | None = None,
) -> Columns:
    """Return rows of a run log's table of values, for ``add_values`` of a sink; what is not known has none.

    Args:
        step: The newest step of the run.
        beats: Their ``heartbeat_missing``.
        lag: Of :func:`metrics_ingest_lag`; the largest is taken.
        restarts: Of :func:`restart_rate`.
        errors: Of :meth:`Triage.error_event_rate`; the class is the statistic.
    """
    known = [age for age in (lag or {}).values() if age is not None]
    rows: list[tuple[str, str, float | None]] = [
        ("heartbeat_missing", "ranks", None if beats is None else beats.heartbeat_missing),
        ("metrics_ingest_lag", "max", max(known, default=None)),
        ("restart_rate", "per_hour", restarts),
        *(("error_event_rate", name, rate) for name, rate in (errors or {}).items()),
    ]
    return whole_values(step, [(metric, stat, value) for metric, stat, value in rows if value is not None])


def _newest(folder: Path) -> float | None:
    for number in reversed(part_numbers(folder, "steps")):
        if len(times := _times(folder, number)):
            return times[-1]
    paths = [
        part_path(folder, table, number) for table in ("values", "events") for number in part_numbers(folder, table)
    ]
    return max((path.stat().st_mtime for path in paths), default=None)


def _starts(folder: Path) -> dict[int, float]:
    """Return when each attempt of a rank began: its first step's time, or that of its file."""
    starts: dict[int, float] = {}
    for number in part_numbers(folder, "steps"):
        path = part_path(folder, "steps", number)
        if (header := read_header(path)) is not None:
            starts.setdefault(header.attempt, next(iter(_times(folder, number)), path.stat().st_mtime))
    return starts


def _times(folder: Path, number: int) -> list[float]:
    """Return when the steps of a part ended, seconds since 1970."""
    try:
        part = read_part(part_path(folder, "steps", number), "steps")
    except OSError as error:
        raise RunLogError(f"{folder} cannot be read: {error.strerror or error}") from None
    return [] if part is None else part.table["time"].to_pylist()
