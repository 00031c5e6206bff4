"""Probes of checkpoints: losses, memorisation, contamination and safety of a model, beside its corpus's manifest.

A :class:`ProbeSuite` runs at checkpoints, and its cheap part also between steps of a training loop, whose bits stay.
``dataaudit probe CHECKPOINT --manifest DIR`` does the same for a checkpoint on disk. Every number has an interval and
an ``eval_artifact_hash``: numbers of different hashes are never compared.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from dataaudit.probes.artifacts import EvalArtifacts
    from dataaudit.probes.canary_task import CanaryTask
    from dataaudit.probes.checkpoints import load_checkpoint
    from dataaudit.probes.cloze import Cloze
    from dataaudit.probes.contamination import Contamination, TextSet
    from dataaudit.probes.decoding import Decoding
    from dataaudit.probes.endpoint import EndpointModel
    from dataaudit.probes.frozen import Frozen
    from dataaudit.probes.held_out import HeldOutLoss
    from dataaudit.probes.memorization import Memorization
    from dataaudit.probes.models import ProbeModel, Tokenizer
    from dataaudit.probes.report import ProbeReport
    from dataaudit.probes.suite import ProbeSuite
    from dataaudit.probes.toxicity import PromptToxicity

_HOMES = {
    "CanaryTask": "canary_task",
    "Cloze": "cloze",
    "Contamination": "contamination",
    "Decoding": "decoding",
    "EndpointModel": "endpoint",
    "EvalArtifacts": "artifacts",
    "Frozen": "frozen",
    "HeldOutLoss": "held_out",
    "Memorization": "memorization",
    "ProbeModel": "models",
    "ProbeReport": "report",
    "ProbeSuite": "suite",
    "PromptToxicity": "toxicity",
    "TextSet": "contamination",
    "Tokenizer": "models",
    "load_checkpoint": "checkpoints",
}
__all__ = [
    "CanaryTask",
    "Cloze",
    "Contamination",
    "Decoding",
    "EndpointModel",
    "EvalArtifacts",
    "Frozen",
    "HeldOutLoss",
    "Memorization",
    "ProbeModel",
    "ProbeReport",
    "ProbeSuite",
    "PromptToxicity",
    "TextSet",
    "Tokenizer",
    "load_checkpoint",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name when it is first asked for."""
        import sys
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        return getattr(import_module(f"dataaudit.probes.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Return the names that are for use, whether imported yet or not."""
    return sorted(_HOMES)
