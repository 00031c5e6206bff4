"""TensorBoard: an event file beside those of others, as its own package writes them; no TensorFlow, no torch."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from dataaudit.base.extras import require
from dataaudit.live.sinks.files import WholeFile
from dataaudit.live.sinks.series import Histogram, bounded
from dataaudit.live.sinks.tracker import TrackerSink


class TensorBoardSink(TrackerSink):
    """Writes scalars (float64), histograms and events (as text) for TensorBoard.

    Args:
        folder: Of the run below ``--logdir``; none that another writer writes into, of which TensorBoard would read
            the newest file alone.
        options: Those of :class:`dataaudit.live.TrackerSink`.

    Raises:
        MissingExtra: The package ``tensorboard`` is not installed.
    """

    NAME = "TensorBoard"

    def __init__(self, folder: str | os.PathLike[str], **options: Any) -> None:
        require("TensorBoardSink", "tensorboard")
        super().__init__(**options)
        self.folder = Path(folder)

    def open(self) -> None:
        """Begin an event file."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
        from tensorboard.plugins.scalar.metadata import create_summary_metadata as of_scalars
        from tensorboard.plugins.text.metadata import create_summary_metadata as of_texts
        from tensorboard.util.tensor_util import make_tensor_proto

        self._event, self._bins, self._summary, self._tensor = Event, HistogramProto, Summary, make_tensor_proto
        self._scalar, self._text = of_scalars("", ""), of_texts("", "")
        self._tagged: set[str] = set()
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{id(self)}"
        self._file = WholeFile(self.folder / name)
        self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self.flush()

    def write_scalars(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write numbers of a step."""
        values = [self._value(name, np.float64(value), self._scalar) for name, value in numbers.items()]
        self._summarise(step, values)

    def write_histogram(self, step: int, name: str, histogram: Histogram) -> None:
        """Write a histogram; its sums take each value to be the middle of its bin."""
        edges, counts = bounded(histogram.edges), histogram.counts
        middles = (edges[1:] + edges[:-1]) / 2
        made = self._bins(
            min=edges[0],
            max=edges[-1],
            num=counts.sum(),
            sum=(counts * middles).sum(),
            sum_squares=(counts * middles**2).sum(),
            bucket_limit=edges[1:].tolist(),
            bucket=counts.tolist(),
        )
        self._summarise(step, [self._summary.Value(tag=name, histo=made)])

    def write_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Write an event as text, below ``events/KIND``."""
        text = orjson.dumps(dict(detail), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        self._summarise(step, [self._value(f"{self.prefix}events/{kind}", [b"```\n" + text + b"\n```"], self._text)])

    def _value(self, tag: str, value: Any, metadata: Any) -> Any:
        new = tag not in self._tagged  # what a tag is stands at its first value
        self._tagged.add(tag)
        return self._summary.Value(tag=tag, tensor=self._tensor(value), metadata=metadata if new else None)

    def _summarise(self, step: int, values: list[Any]) -> None:
        self._add(self._event(wall_time=time.time(), step=step, summary=self._summary(value=values)))

    def _add(self, event: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        self._file.add(record.getvalue())

    def flush(self) -> None:
        """Write the records; where that fails, what tags are is written again."""
        try:
            self._file.flush()
        except OSError:
            self._tagged.clear()
            raise

    def shut(self) -> None:
        """Close the file."""
        self._file.close()
