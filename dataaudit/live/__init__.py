"""The live run: alerts with evidence, actions, checkpoints that restore, heartbeats, errors in logs, trackers.

Needs no torch but where a checkpoint's state is compared, and nothing here stops, slows or changes a run. ``dataaudit
watch`` judges a run from another process, ``dataaudit triage-log`` says what failed first in a run's logs, ``dataaudit
checkpoints`` which checkpoint is good.
"""

from __future__ import annotations

from dataaudit.base.lazy import lazy_names

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

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "action_kinds": (
                *("Call", "LowerRate", "Pause", "ProtectLastGood"),
                *("RaiseSampling", "SaveCheckpoint", "SkipBatches", "Stop"),
            ),
            "actions": ("Action", "Actions", "StopRun"),
            "agreement": ("Agreement", "Asked"),
            "alerts": ("Alerts",),
            "checkpoint_files": ("Checkpoint",),
            "checkpoints": ("Checkpoints",),
            "heartbeats": ("Heartbeat", "HeartbeatReport", "Heartbeats", "RankState"),
            "log_triage": ("Triage", "failing_nodes", "triage"),
            "probe_batch": ("Probe", "ProbeBatch"),
            "proposals": ("PrepareRollback", "ProposeCanary", "ProposeQuarantine"),
            "reproducibility": ("reproducibility_manifest",),
            "rules": ("load_alerts",),
            "run_rates": ("live_values", "metrics_ingest_lag", "restart_rate"),
            "sinks.files": ("JSONLinesSink",),
            "sinks.mlflow": ("MLflowSink",),
            "sinks.prometheus": ("PrometheusSink",),
            "sinks.tensorboard": ("TensorBoardSink",),
            "sinks.tracker": ("TrackerSink",),
            "sinks.wandb": ("WandbSink",),
            "state_digests": ("load_state", "save_state"),
        },
    )
