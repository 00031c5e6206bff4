"""MLflow: metrics of a run, in batches, to a tracking server, a database such as SQLite, or a folder."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson

from dataaudit.base.extras import require
from dataaudit.live.sinks.series import Histogram, moments
from dataaudit.live.sinks.tracker import TrackerSink

_BATCH, _TAGS, _LONGEST_TAG, _LONGEST_NAME = 1_000, 100, 5_000, 250
_OTHER = re.compile(r"[^\w\-. :/]", re.ASCII)


class MLflowSink(TrackerSink):
    """Logs scalars as metrics, histograms as three percentiles, events as counts with the newest in a tag.

    Args:
        uri: Of the tracking server, ``sqlite:///runs.db`` for one; None: as MLflow is set.
        experiment: Its name, which is made where it is new.
        run: Id of a run that goes on, and is not ended; None: a run is begun, and ended.
        name: Of a run that is begun.
        options: Those of :class:`dataaudit.live.TrackerSink`.

    Raises:
        MissingExtra: The package ``mlflow`` is not installed.
    """

    NAME = "MLflow"

    def __init__(
        self,
        uri: str | None = None,
        *,
        experiment: str = "dataaudit",
        run: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> None:
        require("MLflowSink", "mlflow")
        super().__init__(**options)
        self.run, self._own = run, run is None
        self._uri, self._experiment, self._name = uri, experiment, name
        self._metrics: list[Any] = []
        self._tags: dict[str, str] = {}
        self._events: Counter[str] = Counter()

    def open(self) -> None:
        """Connect, and begin the run."""
        from mlflow.entities import Metric, RunTag
        from mlflow.tracking import MlflowClient

        self._metric, self._tag = Metric, RunTag
        self._client = MlflowClient(self._uri)
        if self.run is None:
            known = self._client.get_experiment_by_name(self._experiment)
            experiment = self._client.create_experiment(self._experiment) if known is None else known.experiment_id
            self.run = self._client.create_run(experiment, run_name=self._name).info.run_id

    def write_scalars(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take metrics of a step."""
        now = int(time.time() * 1e3)
        self._metrics += [self._metric(_named(name), value, now, step) for name, value in numbers.items()]

    def write_histogram(self, step: int, name: str, histogram: Histogram) -> None:
        """Take percentiles, for MLflow has no histograms."""
        self.write_scalars(step, {f"{name}/{share}": value for share, value in moments(histogram).items()})

    def write_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Take how many events of the kind there were, and the newest as a tag."""
        self._events[kind] += 1
        self.write_scalars(step, {f"{self.prefix}events/{kind}": self._events[kind]})
        text = orjson.dumps({"step": step, **detail}, option=orjson.OPT_SORT_KEYS).decode()
        self._tags[_named(f"{self.prefix}newest/{kind}")] = text[:_LONGEST_TAG]

    def flush(self) -> None:
        """Log all that was taken, in as many batches as MLflow asks for."""
        metrics, self._metrics = self._metrics, []
        tags, self._tags = [self._tag(*item) for item in self._tags.items()], {}
        while metrics or tags:
            self._client.log_batch(self.run, metrics=metrics[:_BATCH], tags=tags[:_TAGS])
            metrics, tags = metrics[_BATCH:], tags[_TAGS:]

    def shut(self) -> None:
        """End a run that was begun here."""
        if self._own:
            self._client.set_terminated(self.run)


def _named(name: str) -> str:
    """Return a name that MLflow takes, another one for each; what it does not take becomes ``_`` and a digest."""
    plain = _OTHER.sub("_", os.path.normpath(name))
    if plain == name and len(name) <= _LONGEST_NAME and not name.startswith(("/", "..")):
        return name
    return f"{plain.lstrip('./')[: _LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
