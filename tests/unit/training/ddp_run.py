"""One of two processes of a run: they disagree, are stopped, agree, and train on rows that do not divide evenly.

Then both hold the same documents back. A process that is alone goes on from the checkpoint of the two, or the two from
a checkpoint of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from test_trainer import CONTEXT, trainer_of
from torch.utils.data import Subset

from dataaudit.base.errors import CorpusRefused
from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.loaders.trainer import audit_trainer
from dataaudit.training.opening import open_manifest
from dataaudit.training.packing import OFFSET, ROW, SHARD, PackedDocuments

LENGTH = 21
"""Rows: two processes with batches of four make three steps of them, and read three rows twice."""


def main(made: Path, held: Path, folder: Path, *more: str) -> None:
    """Run: with a further word, only go on from the second step's checkpoint."""

    def opened(**how):
        return open_manifest(made / "m", require="verified", cache=folder / "cache", **how)

    def audited(corpus, run="run", steps=3):
        documents = Documents(corpus, "train", byte_encoder(end=0), cache=folder / f"tokens-{rank}")
        rows = Subset(PackedDocuments(documents, CONTEXT, shift="inner"), range(LENGTH))
        more = {"gradient_accumulation_steps": 1, "max_steps": steps, "save_strategy": "steps", "save_steps": 1}
        more |= {"ddp_backend": "gloo"} if os.environ["WORLD_SIZE"] != "1" else {}
        return audit_trainer(trainer_of(folder, rows, **more), folder / run, corpus, profile_every=2), rows

    rank = int(os.environ["RANK"])
    if more:
        trainer, _ = audited(opened(), steps=5)
        trainer.train(resume_from_checkpoint=str(folder / "out" / more[0]))
        return
    trainer, _ = audited(opened(quarantine=held) if rank else opened())
    with pytest.raises(CorpusRefused, match="rank 1 opened another corpus than rank 0"):
        trainer.train()
    assert not (folder / "run").exists()
    trainer, rows = audited(opened())
    trainer.train()
    if rank == 0:
        names = {tuple(tag[[SHARD, ROW, OFFSET]].tolist()) for row in rows for tag in row["tags"] if tag[SHARD] >= 0}
        (folder / "rows.json").write_text(json.dumps(sorted(names)))
    (folder / "out").rename(folder / "kept") if rank == 0 else None
    dist.barrier()
    trainer, _ = audited(opened(quarantine=held), "held")
    trainer.train()
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder / "out")
        (folder / "kept").rename(folder / "out")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), *sys.argv[4:])
