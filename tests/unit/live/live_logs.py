"""Run logs of made-up runs, with their alerts judged in the process and from another."""

import numpy as np

from dataaudit.live.alerts import Alerts
from dataaudit.live.rules import AlertsFile
from dataaudit.live.watch import Watch
from dataaudit.runlog.format import RunFile
from dataaudit.runlog.writer import RankWriter, create_run, event

SPARSE = {"skipped_updates": 0.0, "opt_state_finite": 1.0}


def file_of(*rules, **more):
    """Return a file of rules, given as mappings."""
    given = [{"name": f"rule{at}", "about": "About it.", "severity": 1, **rule} for at, rule in enumerate(rules)]
    return AlertsFile.model_validate({"version": 1, "rules": given, **more})


class Run:
    """Writes the log of a rank, step by step.

    Args:
        folder: Of the run log.
        first: Its first step; of a further attempt above 1, or with `resumed`.
    """

    def __init__(self, folder, rank=0, ranks=1, first=1, alerts=None, resumed=False):
        self.folder, self.step = folder, first - 1
        if rank == 0 and first == 1 and not resumed:
            create_run(folder, made_run(ranks), None)
        self.writer = RankWriter(folder, rank, first, 1)
        if alerts is not None:
            alerts.joins(rank, self.writer.attempt)
            self.writer.observers.append(alerts.take)
        self.happen("resumed" if resumed or first > 1 else "started", sparse=SPARSE)

    def happen(self, kind, /, **detail):
        """Write an event of the newest step."""
        self.writer.add("events", event(self.step, kind, detail))

    def value(self, metric, values, stat="value", step=None, heads=False):
        """Write a value, or one for each layer."""
        values = np.atleast_1d(np.asarray(values, np.float64))
        number, whole = len(values), len(values) == 1
        layers = np.full(1, -1) if whole else np.zeros(number) if heads else np.arange(number)
        rows = {
            "step": np.full(number, self.step if step is None else step),
            "metric": [metric] * number,
            "layer": layers,
            "head": np.arange(number) if heads else np.full(number, -1),
            "stat": [stat] * number,
            "value": values,
        }
        self.writer.add("values", rows)

    def end_step(self, loss=3.0, targets=1_000, time=None, **values):
        """End a step with its numbers."""
        self.step += 1
        for name, value in values.items():
            self.value(name, value)
        row = {
            "step": [self.step],
            "time": [1e9 + self.step if time is None else time],
            "micro_batches": [1],
            "targets": [targets],
            "scored": [0],
            "loss_sum": [0.0],
            "user_loss": None if loss is None else [loss],
            "merged": [0],
        }
        self.writer.add_step(self.step, row)

    def steps(self, number, **numbers):
        """End so many steps, then the run; a number is a value, or a function of the step that may return None."""
        for step in range(self.step + 1, self.step + 1 + number):
            given = {name: at(step) if callable(at) else at for name, at in numbers.items()}
            self.end_step(**{name: value for name, value in given.items() if value is not None})
        self.close()

    def close(self):
        """End the log as a run ends it."""
        self.happen("closed")
        self.writer.close()


def steps(number, **numbers):
    """Return a script of :meth:`Run.steps`."""
    return lambda run: run.steps(number, **numbers)


def at(values, *steps):
    """Return a function of the step: a value at some steps, else none."""
    return lambda step: values if step in steps else None


def made_run(ranks=1):
    """Return what a run is."""
    return RunFile(
        manifest=None,
        dataset="made",
        digests={"code": "sha256:" + "1" * 64},
        sources=("web",),
        block_rows=1,
        ranks=ranks,
        started="2026-11-27T00:00:00Z",
        program="0",
    )


BESIDE = {"heartbeat_missing", "ingest_lag", "restart_storm", "repeated_errors"}
"""Rules that a watch feeds from what lies around a log."""


def told(response):
    """Return what a response saw: alerts by incident, and how rules stand that rows of a log feed."""
    incidents = {
        own.id: (own.severity, own.number, [alert.document() for alert in own.alerts]) for own in response.incidents.all
    }
    return incidents, [state._asdict() for state in response.judge.states() if state.rule not in BESIDE]


def in_the_process(folder, file, script, deliver=()):
    """Return what alerts see in the process of a run that does a script."""
    with Alerts(folder, file, deliver=deliver) as alerts:
        run = Run(folder, alerts=alerts)
        script(run)
    assert not alerts.failures
    assert not alerts.lost
    return told(alerts.response)


def from_another(folder, file):
    """Return what a watch sees of a log that is there."""
    watch = Watch(folder, file, send=False)
    watch.look()
    watch.close()
    return told(watch.response)


def judged(folder, file, script):
    """Return the alerts of a script, as (rule, step, first step, value), and the states, judged both ways."""
    own = in_the_process(folder, file, script)
    assert own == from_another(folder, file)
    incidents, states = own
    alerts = [alert for _, _, alerts in incidents.values() for alert in alerts]
    return [(own["rule"], own["step"], own["first_step"], own["value"]) for own in alerts], states
