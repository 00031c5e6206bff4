"""One of two processes of a run: they disagree, are stopped, agree, and train on rows that do not divide evenly."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from test_trainer import CONTEXT, trainer_of
from torch.utils.data import Subset

from dataaudit.errors import CorpusRefused
from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.loaders.trainer import audit_trainer
from dataaudit.training.opening import open_manifest
from dataaudit.training.packing import PackedDocuments
from dataaudit.training.tags import OFFSET, ROW, SHARD

LENGTH = 21
"""Rows: two processes with batches of four make three steps of them, and read three rows twice."""


def main(made: Path, held: Path, folder: Path) -> None:
    """Run."""

    def opened(**how):
        return open_manifest(made / "m", require="verified", cache=folder / "cache", **how)

    def audited(corpus):
        documents = Documents(corpus, "train", byte_encoder(end=0), cache=folder / f"tokens-{rank}")
        rows = Subset(PackedDocuments(documents, CONTEXT, shift="inner"), range(LENGTH))
        more = {"gradient_accumulation_steps": 1, "max_steps": 3, "ddp_backend": "gloo"}
        return audit_trainer(trainer_of(folder, rows, **more), folder / "run", corpus, profile_every=2), rows

    rank = int(os.environ["RANK"])
    trainer, _ = audited(opened(quarantine=held) if rank else opened())
    with pytest.raises(CorpusRefused, match="rank 1 opened another corpus than rank 0"):
        trainer.train()
    assert not (folder / "run").exists()
    trainer, rows = audited(opened())
    trainer.train()
    if rank == 0:
        names = {tuple(tag[[SHARD, ROW, OFFSET]].tolist()) for row in rows for tag in row["tags"] if tag[SHARD] >= 0}
        (folder / "rows.json").write_text(json.dumps(sorted(names)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
