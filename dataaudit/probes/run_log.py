"""A run log of probes: numbers of checkpoints by step, from several commands; alerts judge it, ``watch`` follows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import ConfigError
from dataaudit.live.alerts import Alerts
from dataaudit.live.rules import load_alerts
from dataaudit.probes.report import ProbeReport, probed_detail, values_of
from dataaudit.runlog.format import RUN_FILE
from dataaudit.runlog.reader import load_run
from dataaudit.vitals.sinks import RunLogSink


def log_report(report: ProbeReport, folder: Path, rules: Path | None = None) -> None:
    """Add the numbers of a report to a run log of probes; those of later steps stay, of this step are replaced.

    Rules see the numbers of the step before, too, so that a change between two commands fires.

    Args:
        report: Of a checkpoint.
        folder: Of the run log; made when it is absent.
        rules: An ``alerts.yaml``; the shipped rules when None. What fires is written and sent as in a training run.

    Raises:
        ConfigError: The folder holds something else, or cannot be written; or the step is below 2.
    """
    if report.step < 2:
        raise ConfigError("--run keeps numbers by step, and none was given", "Name it: --step N, 2 or more.")
    known = (folder / RUN_FILE).exists()
    stored = load_run(folder).table("values") if known else None
    steps = np.zeros(0) if stored is None else stored["step"].to_numpy()
    earlier = steps[steps < report.step]
    with (
        Alerts(folder, load_alerts(rules)) as alerts,
        RunLogSink(folder, "probes", first_step=report.step if known else 1, alerts=alerts) as sink,
    ):
        alerts.joins(0, 0)  # an incident that an earlier command sent is the same one
        if stored is not None and len(earlier):
            alerts.take("values", _columns(stored.filter(pa.array(steps == earlier.max()))))
        rows, number = values_of(report.numbers)
        if number:
            sink.add_values({"step": np.full(number, report.step, np.int64), **rows})
        sink.add_event(report.step, "probed", probed_detail(report))
        if stored is not None and (steps > report.step).any():
            sink.add_values(_columns(stored.filter(pa.array(steps > report.step)).sort_by("step")))


def _columns(table: pa.Table) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name]
        made[name] = column.to_pylist() if pa.types.is_string(column.type) else column.to_numpy()
    return made
