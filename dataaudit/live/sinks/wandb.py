"""Weights & Biases: a run of its own, or that of the loop; steps are those of the run log, in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dataaudit.base.extras import require
from dataaudit.live.sinks.series import Histogram, bounded
from dataaudit.live.sinks.tracker import TrackerSink


class WandbSink(TrackerSink):
    """Logs scalars, histograms and events to W&B.

    Every row has its ``step``, which is the axis of our series: W&B drops what comes late for a step of its own.

    Args:
        run: Of ``wandb.init``, which is neither configured nor ended; its names begin with ``dataaudit/``. None: a run
            is begun, and ended.
        init: For ``wandb.init``: ``{"project": "7b", "mode": "offline"}``.
        options: Those of :class:`dataaudit.live.TrackerSink`.

    Raises:
        MissingExtra: The package ``wandb`` is not installed.
    """

    NAME = "W&B"

    def __init__(self, run: Any | None = None, *, init: Mapping[str, Any] | None = None, **options: Any) -> None:
        require("WandbSink", "wandb")
        super().__init__(**({} if run is None else {"prefix": "dataaudit/"}) | options)
        self.run: Any = run
        self._own, self._init = run is None, dict(init or {})
        self._events: Counter[str] = Counter()

    def open(self) -> None:
        """Begin the run, and name the axis of our series."""
        if self._own:
            import wandb

            self.run = wandb.init(**self._init)
        self.run.define_metric(f"{self.prefix}step", hidden=True)
        self.run.define_metric(f"{self.prefix}*", step_metric=f"{self.prefix}step")

    def write_scalars(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log a row."""
        self.run.log({f"{self.prefix}step": step, **numbers})

    def write_histogram(self, step: int, name: str, histogram: Histogram) -> None:
        """Log a histogram; it has a name of its own, since a series is either of numbers or of histograms."""
        import wandb

        made = wandb.Histogram(np_histogram=(histogram.counts, bounded(histogram.edges)))
        self.run.log({f"{self.prefix}step": step, f"{name}/histogram": made})

    def write_event(self, step: int, kind: str, detail: Mapping[str, Any]) -> None:
        """Log how many events of the kind there were, and keep the newest in the run's summary."""
        self._events[kind] += 1
        self.run.log({f"{self.prefix}step": step, f"{self.prefix}events/{kind}": self._events[kind]})
        self.run.summary[f"{self.prefix}newest/{kind}"] = {"step": step, **detail}

    def shut(self) -> None:
        """End a run that was begun here."""
        if self._own:
            self.run.finish()
