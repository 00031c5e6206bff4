"""Probes of checkpoints: losses, memorisation, contamination and safety of a model, beside its corpus's manifest.

A :class:`ProbeSuite` runs at checkpoints, and its cheap part also between steps of a training loop, whose bits stay.
``dataaudit probe CHECKPOINT --manifest DIR`` does the same for a checkpoint on disk. Every number has an interval and
an ``eval_artifact_hash``: numbers of different hashes are never compared.
"""

from __future__ import annotations

from dataaudit.base.lazy import lazy_names

TYPE_CHECKING = False

if TYPE_CHECKING:
    from dataaudit.probes.canary_task import CanaryTask
    from dataaudit.probes.checkpoints import load_checkpoint
    from dataaudit.probes.cloze import Cloze
    from dataaudit.probes.contamination import Contamination, TextSet
    from dataaudit.probes.endpoint import EndpointModel
    from dataaudit.probes.frozen import Frozen
    from dataaudit.probes.held_out import HeldOutLoss
    from dataaudit.probes.memorization import Memorization
    from dataaudit.probes.models import Decoding, ProbeModel, Tokenizer
    from dataaudit.probes.report import EvalArtifacts, ProbeReport
    from dataaudit.probes.suite import ProbeSuite
    from dataaudit.probes.toxicity import PromptToxicity

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
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "canary_task": ("CanaryTask",),
            "checkpoints": ("load_checkpoint",),
            "cloze": ("Cloze",),
            "contamination": ("Contamination", "TextSet"),
            "endpoint": ("EndpointModel",),
            "frozen": ("Frozen",),
            "held_out": ("HeldOutLoss",),
            "memorization": ("Memorization",),
            "models": ("Decoding", "ProbeModel", "Tokenizer"),
            "report": ("EvalArtifacts", "ProbeReport"),
            "suite": ("ProbeSuite",),
            "toxicity": ("PromptToxicity",),
        },
    )
