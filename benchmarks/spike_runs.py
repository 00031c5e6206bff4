"""Real runs for the study of spikes: small GPTs over bytes of text, clean, with faults, with a jump of the rate.

    OMP_NUM_THREADS=1 python benchmarks/spike_runs.py FOLDER [--documentation /usr/share/doc] [--limit 48] ...

Trains one run after the other and goes on where it stopped: a run that is done has ``truth.json`` in its folder. Then
`benchmarks/spike_power.py` reads them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from common import options
from spike_corpus import BLOCK_ROWS, BLOCKS, FAULTS, SHARDS, Faulty, Rows, write_corpus
from torch import nn
from torch.nn import functional

from dataaudit.training import TrainingMonitor, byte_encoder, open_manifest
from dataaudit.training.packing import SHARD, START, UNUSED

CONTEXT, ROWS, STEPS = 128, 8, 1_600
WIDTH, LAYERS, HEADS = 64, 2, 4
LEARNING_RATE, WARM_UP_STEPS = 3e-3, 50
BUFFER = 64
"""Documents of the shuffle buffer: a shard's."""
JUMP_STEPS = 4
Order = Literal["shuffled", "buffered", "sequential"]
ORDERS: tuple[Order, ...] = ("shuffled", "buffered", "sequential")


@dataclass(frozen=True)
class Run:
    """What a run is."""

    order: Order
    seed: int
    fault: str = ""
    bad: int = 0
    """Blocks that are planted."""
    masked: bool = False
    """Whether attention ends where a document begins."""
    jump: float = 1.0
    """Times the learning rate, for a few steps, twice."""
    rows: int = ROWS

    @property
    def name(self) -> str:
        """Of its folder."""
        kind = self.fault.replace(" ", "-") or ("jump" if self.jump != 1 else "clean")
        return f"{kind}-{self.order}-{'masked-' if self.masked else ''}{self.bad}-{self.rows}-{self.seed}"


def runs() -> Iterator[Run]:
    """Yield all runs, those that are needed most first."""
    for seed, (order, masked) in enumerate(
        [("shuffled", False), ("shuffled", True), ("buffered", False), ("sequential", False)]
    ):
        yield Run(order=order, seed=seed, masked=masked)
    for place, fault in enumerate(FAULTS):
        yield Run(order="buffered", seed=100 + place, fault=fault, bad=3)
    yield Run(order="shuffled", seed=200, jump=10)
    yield Run(order="buffered", seed=201, jump=20)
    for seed in range(4, 12):
        yield Run(order=ORDERS[seed % 3], seed=seed, masked=seed in (6, 7))
    for seed, jump in ((202, 10), (203, 20), (204, 40), (205, 10)):
        yield Run(order=ORDERS[seed % 3], seed=seed, jump=jump)
    for place, fault in enumerate(FAULTS):
        yield Run(order="shuffled", seed=110 + place, fault=fault, bad=3)
    for place, fault in enumerate(FAULTS):
        yield Run(order="sequential", seed=120 + place, fault=fault, bad=3)
    for place, fault in enumerate(FAULTS):
        yield Run(order="buffered", seed=130 + place, fault=fault, bad=1)
    for seed in range(12, 16):
        yield Run(order=ORDERS[seed % 3], seed=seed)


class Block(nn.Module):
    """A layer of a GPT."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Attend, then transform."""
        rows, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(rows, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*heads, attn_mask=mask, is_causal=mask is None)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        found: torch.Tensor = x + self.mlp(self.norm2(x))
        return found


class Model(nn.Module):
    """A GPT over bytes, of 140,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return logits."""
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x, mask)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def document_mask(tags: torch.Tensor) -> torch.Tensor:
    """Return who may attend to whom where no document sees another one: bool[rows, 1, context, context]."""
    starts = torch.where(tags[..., SHARD] == UNUSED, CONTEXT, tags[..., START])
    place = torch.arange(CONTEXT)
    document = (place[None, None, :] >= starts[:, :, None]).sum(1)
    causal = place[:, None] >= place[None, :]
    return ((document[:, :, None] == document[:, None, :]) & causal)[:, None]


def train(run: Run, manifest: Path, folder: Path, steps: int) -> None:
    """Train one run, and say beside its log what is true of it."""
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(run.seed)
    corpus = open_manifest(manifest, require="verified")
    documents = Faulty(corpus, "train", byte_encoder(end=0))
    blocks = _planted(documents, run)
    documents.spoil(run.fault, blocks, run.seed)
    order = "sequential" if run.order == "buffered" else run.order
    rows = Rows(documents, CONTEXT, seed=run.seed, epochs=2 * (run.rows // ROWS), order=order)
    if run.order == "buffered":
        rows.buffer(BUFFER, run.seed)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    jumps = [700 + 37 * (run.seed % 5), 1_250] if run.jump != 1 else []
    began = time.monotonic()
    said: Literal["", "documents"] = "documents" if run.order == "shuffled" else ""
    with TrainingMonitor(folder, corpus, block_rows=BLOCK_ROWS, order=said) as monitor:
        for step in range(steps):
            batch = torch.utils.data.default_collate([rows[step * run.rows + one] for one in range(run.rows)])
            rate = LEARNING_RATE * min(1.0, (step + 1) / WARM_UP_STEPS)
            rate *= run.jump if any(one <= step + 1 < one + JUMP_STEPS for one in jumps) else 1.0
            for group in optimizer.param_groups:
                group["lr"] = rate
            logits = model(batch["input_ids"], document_mask(batch["tags"]) if run.masked else None)
            losses = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
            monitor.batch(batch["tags"], losses=losses.view(run.rows, CONTEXT))
            loss = losses.mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            monitor.step(loss, grad_global_norm=norm, learning_rate=rate)
    truth = {"run": asdict(run), "blocks": blocks, "jumps": jumps, "seconds": round(time.monotonic() - began, 1)}
    truth["last_loss"] = round(float(loss.detach()), 4)
    (folder / "truth.json").write_text(json.dumps(truth) + "\n")
    print(f"{run.name}: loss {truth['last_loss']}, {truth['seconds']} s", flush=True)


def _planted(documents: Faulty, run: Run) -> list[tuple[int, int]]:
    """Return shard and block of what is planted: of prose, in the middle of the shards, one in a shard."""
    drawn = np.random.default_rng(run.seed)
    starts = documents.starts
    prose = [
        place
        for place in range(len(documents.shards))
        if documents.corpus.sources[documents.places([int(starts[place])])[0][2]] == "prose"
    ]
    chosen = drawn.choice(prose[len(prose) // 4 :], run.bad, replace=False)
    return sorted((int(documents.shards[one]), int(drawn.integers(0, BLOCKS))) for one in chosen)


def build(out: Path, *folders: Path) -> None:
    """Write the corpus and its manifest."""
    data = out / "data" / "train"
    decoys = write_corpus(data, *folders)
    (out / "decoys.json").write_text(json.dumps(decoys) + "\n")
    config = {
        "dataset": {"name": "spike-power", "version": "1"},
        "splits": {
            "train": {"paths": [f"{data.resolve()}/*.jsonl"], "source": {"pattern": r"-(?P<source>[a-z]+)\.jsonl"}}
        },
    }
    (out / "config.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-P", "-m", "dataaudit", "build", str(out / "config.yaml"), "--manifest"]
    subprocess.run([*command, str(out / "manifest"), "--workers", "0", "--quiet"], check=False)
    assert (out / "manifest").exists()


def main() -> None:
    """Train what is not trained yet."""
    folders = {"documentation": "/usr/share/doc", "manuals": "/usr/share/man", "checksums": "/var/lib/dpkg/info"}
    places = {name: (Path, Path(place)) for name, place in folders.items()}
    given = options(__doc__, out=Path, limit=(int, None), steps=STEPS, **places)
    if not (given.out / "manifest").exists():
        build(given.out, given.documentation, given.manuals, given.checksums)
        print(f"{sum(SHARDS.values()) * BLOCKS} blocks")
    for run in list(runs())[: given.limit]:
        folder = given.out / "runs" / run.name
        if not (folder / "truth.json").exists():
            train(run, given.out / "manifest", folder, given.steps)


if __name__ == "__main__":
    main()
