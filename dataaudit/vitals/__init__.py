"""Vitals of a model while it trains: numbers that come from the mechanism, taken without changing a bit of the run."""

from __future__ import annotations

from dataaudit.base.lazy import lazy_names

TYPE_CHECKING = False

if TYPE_CHECKING:
    from dataaudit.vitals.config import MuP, VitalsConfig
    from dataaudit.vitals.sinks import MemorySink, RunLogSink
    from dataaudit.vitals.structure import Mapping
    from dataaudit.vitals.vitals import Vitals

__all__ = ["Mapping", "MemorySink", "MuP", "RunLogSink", "Vitals", "VitalsConfig"]

if not TYPE_CHECKING:  # alarms and baselines are of NumPy alone: the package itself needs no torch
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "config": ("MuP", "VitalsConfig"),
            "sinks": ("MemorySink", "RunLogSink"),
            "structure": ("Mapping",),
            "vitals": ("Vitals",),
        },
    )
