"""One of four processes: two groups that read different rows, each a pair that computes one model.

A pair is tensor-parallel, or two stages of a pipeline.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.loaders.ranks import StreamedRows, log_rank
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.training.opening import open_manifest
from dataaudit.training.packing import PackedDocuments

CONTEXT, ROWS, STEPS = 64, 4, 6


class Model(nn.Module):
    """Bytes, two layers, bytes."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, 16)
        self.up, self.down, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 256)

    def forward(self, ids):
        """Return logits."""
        found = self.embed(ids)
        return self.head(found + self.down(torch.relu(self.up(found))))


class First(nn.Module):
    """What of the model is before its head."""

    def __init__(self, whole):
        super().__init__()
        self.embed, self.up, self.down = whole.embed, whole.up, whole.down

    def forward(self, ids):
        """Return hidden states."""
        found = self.embed(ids)
        return found + self.down(torch.relu(self.up(found)))


def losses_of(model, batch):
    """Return the loss of each label: [B, T]."""
    return _losses(model(batch["input_ids"]), batch)


def _losses(logits, batch):
    each = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    return each.view(batch["labels"].shape)


def trained(folder, model, corpus, documents, place, ranks, data_rank):
    """Train on this group's rows; the one that logs, logs."""
    rows = StreamedRows(PackedDocuments(documents, CONTEXT), ROWS, rank=data_rank, ranks=ranks)
    monitor = TrainingMonitor(folder, corpus, rank=place[0], ranks=place[1]) if place else None
    for _, batch in zip(range(STEPS), torch.utils.data.DataLoader(rows, ROWS), strict=False):
        losses = losses_of(model, batch)
        if monitor is not None:
            monitor.batch(batch["tags"], losses=losses.detach())
        losses.mean().backward()
        if monitor is not None:
            monitor.step(losses.mean().detach())
    if monitor is not None:
        monitor.close()


def piped(folder, stage, corpus, documents, place, ranks, data_rank):
    """Train on this group's rows as a stage of its pipeline; both stages read the batch, the last one logs."""
    rows = StreamedRows(PackedDocuments(documents, CONTEXT), ROWS, rank=data_rank, ranks=ranks)
    schedule = ScheduleGPipe(
        stage, n_microbatches=2, loss_fn=lambda found, wanted: nn.functional.cross_entropy(found.mT, wanted)
    )
    monitor = TrainingMonitor(folder, corpus, rank=place[0], ranks=place[1]) if place else None
    for _, batch in zip(range(STEPS), torch.utils.data.DataLoader(rows, ROWS), strict=False):
        if monitor is None:
            schedule.step(batch["input_ids"])
            continue
        losses = []
        logits = schedule.step(target=batch["labels"], losses=losses)
        monitor.batch(batch["tags"], logits=logits.detach(), labels=batch["labels"])
        monitor.step(torch.stack(losses).mean().detach())
    if monitor is not None:
        monitor.close()


def main(made: Path, folder: Path, kind: str) -> None:
    """Run."""
    torch.manual_seed(0)
    model = Model()
    rank = int(os.environ["RANK"])
    corpus = open_manifest(made / "m", require="verified", cache=folder / "cache")
    documents = Documents(corpus, "train", byte_encoder(end=0), cache=folder / f"tokens-{rank}")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", kind))
    group = mesh.get_coordinate()[0]
    if rank in (0, 2):  # the same model, whole, as what the pairs must log
        trained(folder / "whole", model, corpus, documents, (group, 2), 2, group)
    place = log_rank(mesh)
    (folder / f"place-{rank}.json").write_text(json.dumps(place))
    if kind == "pp":
        number = mesh.get_coordinate()[1]
        part = (First(model), model.head)[number]
        stage = PipelineStage(part, number, 2, torch.device("cpu"), group=mesh["pp"].get_group())
        piped(folder / "run", stage, corpus, documents, place, 2, group)
        dist.barrier()
        dist.destroy_process_group()
        return
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel(), "head": ColwiseParallel(output_layouts=Replicate())}
    parallelize_module(model, mesh["tp"], plan)
    trained(folder / "run", model, corpus, documents, place, 2, group)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]), sys.argv[3])
