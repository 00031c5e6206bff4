"""The live run: alerts with evidence, heartbeats of ranks, error events of logs, how often a run restarts.

Needs no torch, and nothing here stops, slows or changes a run. ``dataaudit watch`` judges a run from another process,
``dataaudit triage-log`` says what failed first in a run's logs.
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
    from dataaudit.live.heartbeats import Heartbeat, HeartbeatReport, Heartbeats, RankState
    from dataaudit.live.log_triage import Triage, failing_nodes, triage
    from dataaudit.live.proposals import PrepareRollback, ProposeCanary, ProposeQuarantine
    from dataaudit.live.rules import load_alerts
    from dataaudit.live.run_rates import live_values, metrics_ingest_lag, restart_rate

__all__ = [
    "Action",
    "Actions",
    "Agreement",
    "Alerts",
    "Asked",
    "Call",
    "Heartbeat",
    "HeartbeatReport",
    "Heartbeats",
    "LowerRate",
    "Pause",
    "PrepareRollback",
    "ProposeCanary",
    "ProposeQuarantine",
    "ProtectLastGood",
    "RaiseSampling",
    "RankState",
    "SaveCheckpoint",
    "SkipBatches",
    "Stop",
    "StopRun",
    "Triage",
    "failing_nodes",
    "live_values",
    "load_alerts",
    "metrics_ingest_lag",
    "restart_rate",
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
    "load_alerts": "rules",
    **dict.fromkeys(("Heartbeat", "HeartbeatReport", "Heartbeats", "RankState"), "heartbeats"),
    **dict.fromkeys(("Triage", "failing_nodes", "triage"), "log_triage"),
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
