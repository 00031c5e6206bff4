"""The live run: alerts, heartbeats of ranks, error events of logs, restarts, and sinks that hand numbers to trackers.

Needs no torch, and nothing here stops, slows or changes a run. ``dataaudit watch`` judges a run from another process,
``dataaudit triage-log`` says what failed first in a run's logs.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from dataaudit.live.alerts import Alerts
    from dataaudit.live.heartbeats import Heartbeat, HeartbeatReport, Heartbeats, RankState
    from dataaudit.live.log_triage import Triage, failing_nodes, triage
    from dataaudit.live.rules import load_alerts
    from dataaudit.live.run_rates import live_values, metrics_ingest_lag, restart_rate
    from dataaudit.live.sinks.files import JSONLinesSink
    from dataaudit.live.sinks.mlflow import MLflowSink
    from dataaudit.live.sinks.prometheus import PrometheusSink
    from dataaudit.live.sinks.tensorboard import TensorBoardSink
    from dataaudit.live.sinks.tracker import TrackerSink
    from dataaudit.live.sinks.wandb import WandbSink

__all__ = [
    "Alerts",
    "Heartbeat",
    "HeartbeatReport",
    "Heartbeats",
    "JSONLinesSink",
    "MLflowSink",
    "PrometheusSink",
    "RankState",
    "TensorBoardSink",
    "TrackerSink",
    "Triage",
    "WandbSink",
    "failing_nodes",
    "live_values",
    "load_alerts",
    "metrics_ingest_lag",
    "restart_rate",
    "triage",
]

_HOMES = {
    "Alerts": "alerts",
    "load_alerts": "rules",
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
