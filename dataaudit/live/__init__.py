"""The live run: alerts with evidence, actions, checkpoints that restore, heartbeats, errors in logs, trackers.

Needs no torch but where a checkpoint's state is compared, and nothing here stops, slows or changes a run. ``dataaudit
watch`` judges a run from another process, ``dataaudit triage-log`` says what failed first in a run's logs, ``dataaudit
checkpoints`` which checkpoint is good.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from dataaudit.live.action_kinds import (
        Call,
        LowerRate,
        Pause,
        ProtectLastGood,
        RaiseSampling,
        SaveCheckpoint,
        SkipBatches,
        Stop,
    )
    from dataaudit.live.actions import Action, Actions, StopRun
    from dataaudit.live.agreement import Agreement, Asked
    from dataaudit.live.alerts import Alerts
    from dataaudit.live.checkpoint_files import Checkpoint
    from dataaudit.live.checkpoints import Checkpoints
    from dataaudit.live.heartbeats import Heartbeat, HeartbeatReport, Heartbeats, RankState
    from dataaudit.live.log_triage import Triage, failing_nodes, triage
    from dataaudit.live.probe_batch import Probe, ProbeBatch
    from dataaudit.live.proposals import PrepareRollback, ProposeCanary, ProposeQuarantine
    from dataaudit.live.reproducibility import reproducibility_manifest
    from dataaudit.live.rules import load_alerts
    from dataaudit.live.run_rates import live_values, metrics_ingest_lag, restart_rate
    from dataaudit.live.sinks.files import JSONLinesSink
    from dataaudit.live.sinks.mlflow import MLflowSink
    from dataaudit.live.sinks.prometheus import PrometheusSink
    from dataaudit.live.sinks.tensorboard import TensorBoardSink
    from dataaudit.live.sinks.tracker import TrackerSink
    from dataaudit.live.sinks.wandb import WandbSink
    from dataaudit.live.state_digests import load_state, save_state

__all__ = [
    "Action",
    "Actions",
    "Agreement",
    "Alerts",
    "Asked",
    "Call",
    "Checkpoint",
    "Checkpoints",
    "Heartbeat",
    "HeartbeatReport",
    "Heartbeats",
    "JSONLinesSink",
    "LowerRate",
    "MLflowSink",
    "Pause",
    "PrepareRollback",
    "Probe",
    "ProbeBatch",
    "PrometheusSink",
    "ProposeCanary",
    "ProposeQuarantine",
    "ProtectLastGood",
    "RaiseSampling",
    "RankState",
    "SaveCheckpoint",
    "SkipBatches",
    "Stop",
    "StopRun",
    "TensorBoardSink",
    "TrackerSink",
    "Triage",
    "WandbSink",
    "failing_nodes",
    "live_values",
    "load_alerts",
    "load_state",
    "metrics_ingest_lag",
    "reproducibility_manifest",
    "restart_rate",
    "save_state",
    "triage",
]

_KINDS = (
    "Call",
    "LowerRate",
    "Pause",
    "ProtectLastGood",
    "RaiseSampling",
    "SaveCheckpoint",
    "SkipBatches",
    "Stop",
)
_HOMES = {
    **dict.fromkeys(("Action", "Actions", "StopRun"), "actions"),
    **dict.fromkeys(("Agreement", "Asked"), "agreement"),
    **dict.fromkeys(_KINDS, "action_kinds"),
    **dict.fromkeys(("PrepareRollback", "ProposeCanary", "ProposeQuarantine"), "proposals"),
    "Alerts": "alerts",
    "Checkpoint": "checkpoint_files",
    "Checkpoints": "checkpoints",
    "load_alerts": "rules",
    "reproducibility_manifest": "reproducibility",
    **dict.fromkeys(("Probe", "ProbeBatch"), "probe_batch"),
    **dict.fromkeys(("load_state", "save_state"), "state_digests"),
    **dict.fromkeys(("Heartbeat", "HeartbeatReport", "Heartbeats", "RankState"), "heartbeats"),
    **dict.fromkeys(("Triage", "failing_nodes", "triage"), "log_triage"),
    "JSONLinesSink": "sinks.files",
    "MLflowSink": "sinks.mlflow",
    "PrometheusSink": "sinks.prometheus",
    "TensorBoardSink": "sinks.tensorboard",
    "TrackerSink": "sinks.tracker",
    "WandbSink": "sinks.wandb",
    **dict.fromkeys(("live_values", "metrics_ingest_lag", "restart_rate"), "run_rates"),
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name when it is first asked for."""
        import sys
        from importlib import import_module

        if name not in __all__:  # Python names the nearest of __dir__
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        return getattr(import_module(f"dataaudit.live.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the names that are for use, whether imported yet or not."""
    return sorted(__all__)
