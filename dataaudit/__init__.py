"""dataaudit: audits LLM pre-training corpora and writes a versioned, reproducible manifest.

One direction of flow, a room a step; a room imports what stands to its right::

    cli, api -> engine -> training -> present, vitals -> decide -> metrics -> scan, runlog -> manifest -> base

``engine`` plans and runs a build: it alone knows Dask. ``scan`` reads shards, ``metrics`` says what is counted, and
``manifest`` is the only way from there to what reads results. Import layers are kept by import-linter.
"""

TYPE_CHECKING = False  # type checkers take it for true; importing typing would cost more than all the rest

if TYPE_CHECKING:
    from dataaudit.api import (
        Build,
        Difference,
        Manifest,
        QuarantineList,
        Verdict,
        build,
        diff,
        failing,
        gate,
        load,
        quarantine,
        report,
        sign,
    )
    from dataaudit.base.errors import ConfigError, DataAuditError

__version__ = "0.2.0"

__all__ = [
    "Build",
    "ConfigError",
    "DataAuditError",
    "Difference",
    "Manifest",
    "QuarantineList",
    "Verdict",
    "__version__",
    "build",
    "diff",
    "failing",
    "gate",
    "load",
    "quarantine",
    "report",
    "sign",
]

if not TYPE_CHECKING:  # a type checker that saw it would let every name pass

    def __getattr__(name: str) -> object:
        """Import a name of the API when it is first asked for; ``import dataaudit`` alone imports nothing."""
        import sys
        from importlib import import_module

        if name not in __all__:  # Python names the nearest of __dir__
            raise AttributeError(f"module 'dataaudit' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        return getattr(import_module("dataaudit.base.errors" if name.endswith("Error") else "dataaudit.api"), name)


def __dir__() -> list[str]:
    """Return the names that are for use, whether imported yet or not."""
    return sorted(__all__)
