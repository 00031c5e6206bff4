"""What ``dataaudit watch`` sees of a run beside its rows: heartbeats, the age of its log, restarts, printed errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dataaudit.base.errors import DataAuditError
from dataaudit.live.feed import Feed
from dataaudit.live.heartbeats import BEATS_FOLDER, Heartbeats
from dataaudit.live.log_triage import triage
from dataaudit.live.run_rates import live_values, restart_rate
from dataaudit.runlog.writer import Columns

EVERY_SECONDS = 60.0
"""Between two readings of what is read whole: the starts of a run, its text log."""
MOST_LOG_BYTES = 1 << 28


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

    def rows(self, feed: Feed, now: float) -> Columns:
        """Return rows of the table of values, for the newest step of a run."""
        beats = None
        if (self._runlog / BEATS_FOLDER).is_dir():
            with suppress(DataAuditError):
                beats = self._beats.read()
        if now - self._read_at >= EVERY_SECONDS:
            self._read_at = now
            self._read_whole(now, () if beats is None else beats.starts)
        running = {rank: own for rank, own in feed.ranks.items() if feed.runs(rank) and not own.closed}
        return live_values(
            max((own.step for own in feed.ranks.values()), default=0),
            beats=beats,
            lag={rank: max(0.0, now - own.heard) for rank, own in running.items()},
            restarts=self._restarts,
            errors=self._errors,
        )

    def _read_whole(self, now: float, starts: Sequence[float]) -> None:
        with suppress(DataAuditError, OSError):
            self._restarts = restart_rate(self._runlog, starts, now)
        with suppress(DataAuditError, OSError):
            if self._log is not None and self._log.stat().st_size <= MOST_LOG_BYTES:
                read = triage([self._log])
                self._errors = read.error_event_rate() or ({"any": 0.0} if read.lines else {})
