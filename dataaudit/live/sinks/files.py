"""JSON lines, and files that stay whole: what a full disk cuts off is taken back."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from dataaudit.live.sinks.series import Histogram
from dataaudit.live.sinks.tracker import TrackerSink


class WholeFile:
    """Appends records to a file; of records that cannot be written whole, nothing stays in it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._records: list[bytes] = []

    def add(self, record: bytes) -> None:
        """Take a record, which :meth:`flush` writes."""
        self._records.append(record)

    def flush(self) -> None:
        """Write all records, or none of them.

        Raises:
            OSError: They cannot be written.
        """
        data, self._records = b"".join(self._records), []
        size = os.fstat(self._file).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, size)
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class JSONLinesSink(TrackerSink):
    """Writes JSON, a line for the numbers of a step, for a histogram, for an event; null is what is not finite.

    Args:
        path: Of the file, which grows where it exists.
        options: Those of :class:`dataaudit.live.TrackerSink`.
    """

    NAME = "the file of JSON lines"

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        super().__init__(**options)
        self.path = Path(path)

    def open(self) -> None:
        """Open the file; a last line that a killed run left unfinished ends there."""
        self._file = WholeFile(self.path)
        if self.path.is_file() and self.path.stat().st_size:
            with open(self.path, "rb") as file:
                file.seek(-1, os.SEEK_END)
                self._file.add(b"" if file.read(1) == b"\n" else b"\n")

    def write_scalars(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write ``{"step", "time", "values": {name: number}}``."""
        self._add({"step": step, "time": time.time(), "values": dict(numbers)})

    def write_histogram(self, step: int, name: str, histogram: Histogram) -> None:
        """Write ``{"step", "time", "histogram", "edges", "counts"}``."""
        edges, counts = histogram.edges.tolist(), histogram.counts.tolist()
        self._add({"step": step, "time": time.time(), "histogram": name, "edges": edges, "counts": counts})

    def write_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Write ``{"step", "time", "event", "detail"}``."""
        self._add({"step": step, "time": time.time(), "event": kind, "detail": dict(detail)})

    def _add(self, record: dict[str, Any]) -> None:
        self._file.add(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY))

    def flush(self) -> None:
        """Write the lines."""
        self._file.flush()

    def shut(self) -> None:
        """Close the file."""
        self._file.close()
