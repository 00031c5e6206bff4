"""The live run: heartbeats of ranks, error events of logs, how often a run restarts.

Needs no torch. ``dataaudit triage-log`` says what failed first in a run's logs.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from dataaudit.live.heartbeats import Heartbeat, HeartbeatReport, Heartbeats, RankState
    from dataaudit.live.log_triage import Triage, failing_nodes, triage
    from dataaudit.live.run_rates import metrics_ingest_lag, restart_rate

_MODULES = {
    "heartbeats": ("Heartbeat", "HeartbeatReport", "Heartbeats", "RankState"),
    "log_triage": ("Triage", "failing_nodes", "triage"),
    "run_rates": ("metrics_ingest_lag", "restart_rate"),
}
__all__ = [
    "Heartbeat",
    "HeartbeatReport",
    "Heartbeats",
    "RankState",
    "Triage",
    "failing_nodes",
    "metrics_ingest_lag",
    "restart_rate",
    "triage",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name when it is first asked for."""
        import sys
        from importlib import import_module

        module = next((module for module, names in _MODULES.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        return getattr(import_module(f"dataaudit.live.{module}"), name)


def __dir__() -> list[str]:
    """Return the names that are for use, whether imported yet or not."""
    return sorted(__all__)
