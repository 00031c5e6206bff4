"""Training on a corpus that passed: open it, tag batches, keep a run log, name the block behind a spike.

Needs no torch until a tensor is handed over. ``dataaudit attribute`` reads the log: ``dataaudit explain training``.
"""

from __future__ import annotations

from dataaudit.base.lazy import lazy_names
from dataaudit.training.corpus import Corpus
from dataaudit.training.documents import Documents, Encoder, byte_encoder
from dataaudit.training.flops import ModelFlops
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.training.opening import open_manifest
from dataaudit.training.packing import PackedDocuments
from dataaudit.training.replay.protocol import Trained
from dataaudit.training.tokenfile import TokenFile, write_tokens

TYPE_CHECKING = False

if TYPE_CHECKING:
    from dataaudit.training.replay.loop import LoopReplay
    from dataaudit.training.watching import WatchedRun, watch_run

__all__ = [
    "Corpus",
    "Documents",
    "Encoder",
    "LoopReplay",
    "ModelFlops",
    "PackedDocuments",
    "TokenFile",
    "Trained",
    "TrainingMonitor",
    "WatchedRun",
    "byte_encoder",
    "open_manifest",
    "watch_run",
    "write_tokens",
]

if not TYPE_CHECKING:  # the loop's replay needs torch, what watches a run the room `live`
    __getattr__, _ = lazy_names(__name__, {"replay.loop": ("LoopReplay",), "watching": ("WatchedRun", "watch_run")})


def __dir__() -> list[str]:
    """Return the names that are for use, whether imported yet or not."""
    return sorted(__all__)
