"""Vitals of a model while it trains: numbers that come from the mechanism, taken without changing a bit of the run."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from dataaudit.vitals.config import MuP, VitalsConfig
    from dataaudit.vitals.sinks import MemorySink, RunLogSink
    from dataaudit.vitals.structure import Mapping
    from dataaudit.vitals.vitals import Vitals

__all__ = ["Mapping", "MemorySink", "MuP", "RunLogSink", "Vitals", "VitalsConfig"]

_HOMES = {
    "Mapping": "structure",
    "MemorySink": "sinks",
    "MuP": "config",
    "RunLogSink": "sinks",
    "VitalsConfig": "config",
}

if not TYPE_CHECKING:  # alarms and baselines are of NumPy alone: the package itself needs no torch

    def __getattr__(name: str) -> object:
        """Import a name when it is first asked for."""
        import sys
        from importlib import import_module

        if name not in __all__:  # Python names the nearest of __dir__
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        return getattr(import_module(f"dataaudit.vitals.{_HOMES.get(name, 'vitals')}"), name)


def __dir__() -> list[str]:
    """Return the names that are for use, whether imported yet or not."""
    return sorted(__all__)
