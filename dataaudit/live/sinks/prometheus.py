"""Prometheus: the newest numbers of a run, at a port of this machine or in a text file for the node exporter."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.base.extras import require
from dataaudit.live.sinks.series import Histogram
from dataaudit.live.sinks.tracker import TrackerSink
from dataaudit.live.sinks.worker import DROPPED_FIRST
from dataaudit.vitals.metric import Key

LOOPBACK = "127.0.0.1"
_OTHER = re.compile(r"\W", re.ASCII)
_LABELS = ("run", "rank", "stat", "layer", "head")


class PrometheusSink(TrackerSink):
    """Offers the newest value of each series as ``dataaudit_METRIC{run, rank, stat, layer, head}``.

    ``dataaudit_step`` is the newest step, ``dataaudit_events_total{kind}`` counts events, and
    ``dataaudit_lost_total{what}`` what this sink lost. Histograms add up over the run.

    Args:
        port: Of 127.0.0.1, where Prometheus asks; 0: a free one, which :attr:`port` holds once it is open.
        file: Written anew every :attr:`every` seconds, for the node exporter: its name ends with ``.prom``.
        run: Name of the run, a label.
        rank: Of this process; by default the environment's RANK.
        options: Those of :class:`dataaudit.live.TrackerSink`.

    Raises:
        ConfigError: Neither a port nor a file is named, or the file's name does not end with ``.prom``.
        MissingExtra: The package ``prometheus-client`` is not installed.
    """

    NAME = "Prometheus"

    def __init__(
        self,
        *,
        port: int | None = None,
        file: str | os.PathLike[str] | None = None,
        run: str = "",
        rank: int | None = None,
        **options: Any,
    ) -> None:
        require("PrometheusSink", "prometheus")
        if port is None and file is None:
            raise ConfigError("PrometheusSink needs a `port` on 127.0.0.1, or a `file` for the node exporter")
        if file is not None and Path(file).suffix != ".prom":
            raise ConfigError(f"the node exporter reads files that end with .prom, found {Path(file).name}")
        super().__init__(**options)
        self.port, self.file = port, None if file is None else Path(file)
        self._place = {"run": run, "rank": str(int(os.environ.get("RANK", "0")) if rank is None else rank)}
        self._lock = threading.Lock()
        """Of what the port's threads read."""
        self._numbers: dict[Key, float] = {}
        self._histograms: dict[tuple[str, str], Histogram] = {}
        self._events: Counter[str] = Counter()
        self._step = 0

    def open(self) -> None:
        """Open the port."""
        from prometheus_client import CollectorRegistry, start_http_server

        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._server: Any = None
        if self.port is not None:
            self._server, _ = start_http_server(self.port, LOOPBACK, self._registry)
            self.port = self._server.server_port

    def write_values(self, step: int, numbers: Mapping[Key, float]) -> None:
        """Keep the newest numbers."""
        with self._lock:
            self._step = max(self._step, step)
            self._numbers.update(numbers)

    def write_histogram(self, _step: int, _name: str, histogram: Histogram) -> None:
        """Add to the histogram of the run; those of layers, whose edges differ at each step, are left to others."""
        with self._lock:
            key = (histogram.metric, histogram.stat)
            known = self._histograms.get(key)
            if known is None and np.isfinite(histogram.edges[-1]):
                return
            if known is not None and np.array_equal(known.edges, histogram.edges):
                histogram = histogram._replace(counts=known.counts + histogram.counts)
            self._histograms[key] = histogram

    def write_event(self, _step: int, kind: str, _detail: Mapping[str, Any]) -> None:
        """Count an event."""
        with self._lock:
            self._events[kind] += 1

    def flush(self) -> None:
        """Write the file."""
        if self.file is not None:
            from prometheus_client import write_to_textfile

            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_to_textfile(str(self.file), self._registry)

    def shut(self) -> None:
        """Close the port; the file stays."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def collect(self) -> Iterator[Any]:
        """Yield the families of metrics, as a registry of ``prometheus_client`` asks for them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        with self._lock:
            numbers, histograms = dict(self._numbers), list(self._histograms.values())
            events, step = dict(self._events), self._step
            lost = {what: self.lost[what] for what in DROPPED_FIRST}
        families: dict[str, Any] = {}
        of_name = dict.fromkeys(("dataaudit_step", "dataaudit_events", "dataaudit_lost"), "")
        for key, value in numbers.items():
            name, own = _family(key.metric, key.stat)
            metric = key.metric.partition(".")[0]
            if of_name.setdefault(name, metric) != metric:  # a series twice is none: all that is offered is refused
                name += f"_{hashlib.sha256(metric.encode()).hexdigest()[:8]}"
            of = families.setdefault(name, GaugeMetricFamily(name, f"{key.metric} of a training run", labels=_LABELS))
            of.add_metric(
                [*self._place.values(), own, *(str(at) if at >= 0 else "" for at in (key.layer, key.head))], value
            )
        yield from families.values()
        for item in histograms:
            name, own = _family(item.metric, item.stat)
            made = HistogramMetricFamily(f"{name}_{_OTHER.sub('_', own)}", f"{item.metric}", labels=_LABELS[:2])
            limits = [*(f"{edge:g}" for edge in item.edges[1:-1]), "+Inf"]
            buckets = list(zip(limits, np.cumsum(item.counts).tolist(), strict=True))
            made.add_metric([*self._place.values()], buckets, None)
            yield made
        newest = GaugeMetricFamily("dataaudit_step", "newest step of a training run", labels=_LABELS[:2])
        newest.add_metric([*self._place.values()], step)
        yield newest
        for name, label, counts in (("events", "kind", events), ("lost", "what", lost)):
            counter = CounterMetricFamily(
                f"dataaudit_{name}", f"{name} of a training run", labels=(*_LABELS[:2], label)
            )
            for what, number in counts.items():
                counter.add_metric([*self._place.values(), what], number)
            yield counter


def _family(metric: str, stat: str) -> tuple[str, str]:
    """Return the name of a metric's family, and the label of a statistic; ``val_loss.web`` is ``web`` of a family."""
    name, _, own = metric.partition(".")
    stat = "/".join(part for part in (own, stat if stat != "value" or not own else "") if part)
    return f"dataaudit_{_OTHER.sub('_', name)}", stat
