"""The training demo: a corpus with one bad shard, a small GPT that is trained on it, and a run log of it.

    python pipelines/demo_train.py corpus --out demo-train
    python pipelines/demo_train.py train --manifest demo-train/manifest --run demo-train/run
    dataaudit attribute demo-train/run --manifest demo-train/manifest --replay pipelines/demo_train.py:replay

The corpus is text of Python's own library: functions and docstrings. One shard holds compressed bytes decoded as text,
as a crawler leaves them that took an archive for a page. Shards are read three at a time, so the bad one is a third of
some twenty batches. (If all documents were shuffled, it would be 1 % of every batch, and no spike would show.)
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import signal
import sysconfig
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dataaudit.training import (
    Documents,
    LoopReplay,
    PackedDocuments,
    Trained,
    TrainingMonitor,
    byte_encoder,
    open_manifest,
)
from dataaudit.vitals import Mapping, Vitals, VitalsConfig

SHARDS = {"code": 54, "docs": 34}
SHARD_BYTES = 15_000
DOCUMENT_BYTES = (300, 1_500)
BAD = ("code", 47)
CONTEXT, ROWS, STEPS = 256, 8, 420
OPEN_SHARDS = 3
WIDTH, LAYERS, HEADS = 128, 2, 4
LEARNING_RATE, WARM_UP_STEPS = 3e-3, 40
CHECKPOINT_STEPS = 60
HEALTHY_STEPS = (100, 340)
"""After warm-up and before the bad shard: what vitals hold later values against."""


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    corpus = commands.add_parser("corpus", help="write the corpus")
    corpus.add_argument("--out", type=Path, required=True)
    run = commands.add_parser("train", help="train on it")
    run.add_argument("--manifest", type=Path, required=True)
    run.add_argument("--run", type=Path, required=True, help="folder of the run log")
    run.add_argument("--policy", default="release-gate")
    run.add_argument("--quarantine", type=Path)
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--steps", type=int, default=STEPS)
    run.add_argument("--kill-at", type=int, help="end the process with SIGKILL after this step")
    arguments = parser.parse_args()
    if arguments.command == "corpus":
        write_corpus(arguments.out)
    else:
        train(arguments)


def write_corpus(out: Path) -> None:
    """Write the shards; the same for the same Python."""
    found = {"code": functions(), "docs": docstrings()}
    seen: set[str] = set()
    for source, texts in found.items():
        for number in range(SHARDS[source]):
            split = "val" if number == SHARDS[source] - 1 else "train"
            path = out / "data" / split / source / f"part-{number:03d}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            documents, size = [], 0
            while size < SHARD_BYTES:
                text = next(texts)
                start = text[:100]
                if start in seen:
                    continue
                seen.add(start)
                if (source, number) == BAD:
                    text = zlib.compress(text.encode() * 3)[: len(text) // 2].decode("latin-1")
                documents.append(text)
                size += len(text.encode())
            path.write_text("".join(json.dumps({"text": one}) + "\n" for one in documents))
    print(f"{sum(SHARDS.values())} shards in {out}/data; the bad one is {BAD[0]}/part-{BAD[1]:03d}.jsonl")


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules of Python's library, in an order that depends on their names alone."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(
        path for path in folder.rglob("*.py") if "site-packages" not in path.parts and "test" not in str(path)
    )
    random.Random(0).shuffle(paths)
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
            yield text, ast.parse(text)
        except (SyntaxError, ValueError, OSError):
            continue


def functions() -> Iterator[str]:
    """Yield the sources of functions of a fitting length."""
    for text, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is None:
                yield from fitting(ast.get_source_segment(text, node) or "")


def docstrings() -> Iterator[str]:
    """Yield docstrings of a fitting length."""
    for _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                yield from fitting(ast.get_docstring(node) or "")


def fitting(text: str) -> Iterator[str]:
    """Yield a text unless it is too short; the beginning of one that is too long."""
    least, most = DOCUMENT_BYTES
    if len(text) >= least:
        yield text[:most]


class Attention(nn.Module):
    """Attention of a layer to what came before."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [rows, length, WIDTH] of the same."""
        rows, length, _ = x.shape
        query, key, value = self.qkv(x).view(rows, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        found: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return found


class Block(nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, then transform."""
        x = x + self.attention(self.norm1(x))
        found: torch.Tensor = x + self.mlp(self.norm2(x))
        return found


class Model(nn.Module):
    """A GPT over bytes, of about half a million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


Clip = Callable[..., torch.Tensor]
"""torch.nn.utils.clip_grad_norm_, or the monitor's, which keeps the norm."""


class Loop:
    """What trains, and what a replay of it needs: the same update, from the same checkpoints."""

    def __init__(self, manifest: Path, *, policy: str, quarantine: Path | None, seed: int) -> None:
        torch.manual_seed(seed)
        self.corpus = open_manifest(manifest, require="passed", policy=policy, quarantine=quarantine)
        documents = Documents(self.corpus, "train", byte_encoder(end=0))
        self.rows = PackedDocuments(
            documents, CONTEXT, seed=seed, epochs=2, order="interleaved", open_shards=OPEN_SHARDS
        )
        self.model = Model()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1
        )

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }

    def restore(self, checkpoint: Path) -> dict[str, Any]:
        """Be as a checkpoint says; return all of it."""
        saved: dict[str, Any] = torch.load(checkpoint)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["random"])
        return saved

    def losses(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss of each label: [ROWS, CONTEXT]."""
        logits = self.model(batch["input_ids"])
        return functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none").view(
            ROWS, CONTEXT
        )

    def update(self, step: int, losses: torch.Tensor, clip: Clip) -> tuple[torch.Tensor, torch.Tensor]:
        """Make a step; return its loss and the norm of the gradient."""
        loss = losses.mean()
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, step / WARM_UP_STEPS)
        self.optimizer.zero_grad()
        loss.backward()
        norm = clip(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss, norm


def replay(manifest: Path, run: Path) -> LoopReplay:
    """Return the replay of a run: dataaudit attribute RUN --manifest DIR --replay pipelines/demo_train.py:replay."""
    loop = Loop(manifest, policy="release-gate", quarantine=None, seed=0)

    def step(number: int, batches: list[dict[str, torch.Tensor]]) -> Trained:
        loss, norm = loop.update(number, loop.losses(batches[0]), nn.utils.clip_grad_norm_)
        return Trained(loss=loss.item(), values={"grad_global_norm": norm.item()})

    return LoopReplay(
        rows=loop.rows,
        batch_rows=ROWS,
        model=loop.model,
        stateful=[loop.optimizer],
        checkpoints={int(path.stem): path for path in checkpoints_of(run)},
        restore=loop.restore,
        train=step,
        manifest=manifest,
    )


def checkpoints_of(run: Path) -> list[Path]:
    """Return the checkpoints of a run, the newest last."""
    return sorted(run.with_name(run.name + ".checkpoints").glob("*.pt"))


def train(arguments: argparse.Namespace) -> None:
    """Train, from the newest checkpoint where there is one."""
    loop = Loop(arguments.manifest, policy=arguments.policy, quarantine=arguments.quarantine, seed=arguments.seed)
    folder = arguments.run.with_name(arguments.run.name + ".checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    saved: dict[str, Any] = {"step": 0, "monitor": None, "vitals": None}
    if checkpoints := checkpoints_of(arguments.run):
        saved = loop.restore(checkpoints[-1])
    indices = range(ROWS * saved["step"], ROWS * arguments.steps)
    loader = torch.utils.data.DataLoader(torch.utils.data.Subset(loop.rows, indices), ROWS, num_workers=2)
    began = time.monotonic()
    parts = Mapping(layers="blocks", attention="attention", heads=HEADS, mlp="mlp")
    settings = VitalsConfig(
        preset="medium", adapt=False, healthy=HEALTHY_STEPS, mapping=parts, first_step=saved["step"] + 1
    )
    with (
        TrainingMonitor(
            arguments.run,
            loop.corpus,
            state=saved["monitor"],
            resume=arguments.run.exists(),
            planned_tokens=arguments.steps * ROWS * CONTEXT,
            optimizer=loop.optimizer,
        ) as monitor,
        Vitals(loop.model, loop.optimizer, settings, [monitor]) as vitals,
    ):
        if saved["vitals"] is not None:
            vitals.load_state_dict(saved["vitals"])
        for batch in monitor.loader(loader):
            with vitals.step():
                losses = loop.losses(batch)
                monitor.batch(batch["tags"], losses=losses, labels=batch["labels"])
                loss, _ = loop.update(monitor.steps + 1, losses, monitor.clip_grad_norm_)
            monitor.step(loss)
            if monitor.steps % CHECKPOINT_STEPS == 0:
                print(f"step {monitor.steps}: loss {loss.item():.3f}, {time.monotonic() - began:.0f} s", flush=True)
                state = {**loop.state(), "step": monitor.steps, "vitals": vitals.state_dict()}
                torch.save({**state, "monitor": monitor.state_dict()}, folder / "new")
                (folder / "new").replace(folder / f"{monitor.steps:05d}.pt")
            if monitor.steps == arguments.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
