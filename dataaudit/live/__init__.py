"""The live run: alerts with evidence, while a model trains; nothing here stops, slows or changes the run."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from dataaudit.live.alerts import Alerts
    from dataaudit.live.rules import load_alerts

__all__ = ["Alerts", "load_alerts"]

_HOMES = {"Alerts": "alerts", "load_alerts": "rules"}

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
