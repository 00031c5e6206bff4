"""Training on a corpus that passed: open it, tag batches, keep a run log, name the block behind a spike.

Needs no torch until a tensor is handed over. ``dataaudit attribute`` reads the log: ``dataaudit explain training``.
"""

from __future__ import annotations

from dataaudit.training.corpus import Corpus
from dataaudit.training.documents import Documents, Encoder, byte_encoder
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.training.opening import open_manifest
from dataaudit.training.packing import PackedDocuments
from dataaudit.training.tokenfile import TokenFile, write_tokens

__all__ = [
    "Corpus",
    "Documents",
    "Encoder",
    "PackedDocuments",
    "TokenFile",
    "TrainingMonitor",
    "byte_encoder",
    "open_manifest",
    "write_tokens",
]
