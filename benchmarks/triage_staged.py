"""Staged regressions, and the cause that `dataaudit triage` names: a healthy run beside runs with a single fault.

    python benchmarks/triage_staged.py OUT --seeds 0 1 2 3 4

Every run trains the laboratory's model with experts on two sources of Python's own text, is probed at its end, and is
compared with a healthy run of another seed. Thresholds were chosen on seeds 1000 to 1002, which the table never shows.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import head, options, row
from torch import nn

import dataaudit
from dataaudit.lab.model import Model, Run, Size
from dataaudit.lab.scenarios import FAULTS
from dataaudit.live import ProbeBatch
from dataaudit.probes import Frozen, HeldOutLoss, ProbeModel, ProbeSuite, Tokenizer
from dataaudit.probes.corpus import Corpus
from dataaudit.probes.triage.run import triage
from dataaudit.training import Documents, PackedDocuments, TrainingMonitor, byte_encoder, open_manifest
from dataaudit.vitals import Mapping, Vitals, VitalsConfig

SOURCES = ("code", "docs")
DOCUMENTS, SHARD_DOCUMENTS = 600, 60
LEAST, MOST = 120, 600
"""Characters of a document."""
MODULES = ("argparse", "ast", "datetime", "difflib", "inspect", "pathlib", "pdb", "tarfile", "typing", "zipfile")
STEPS, ONSET = 480, 120
END = 0
OTHER_SEED = 500
"""What a seed's baseline is seeded with, more."""
SIZE = Size()
CAUSES = {
    "none": "none",
    "harness": "evaluation",
    "shard_mix": "data: mixture",
    "attention": "internals: attention",
    "router": "internals: router",
    "too_small": "architecture: too small",
}
"""What is staged, and the cause that is right."""
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "none": ({},),
    "harness": ({"context": 8}, {"dtype": "bfloat16"}, {"end": 1}, {"prompts": 7}, {"context": 16}),
    "shard_mix": ({"shares": (1, 7)}, {"shares": (6, 2)}, {"shares": (2, 6)}),
    "attention": ({"biased_sums": 0.01}, {"stored_bits": 256}, {"biased_sums": 0.02}),
    "router": ({"router_rate_grows": 1.03}, {"router_rate_grows": 1.02}),
    "too_small": ({"layers": 1, "width": 16}, {"width": 16}, {"layers": 1, "width": 24}),
}
"""How each is staged, seed by seed."""


def texts(source: str) -> list[str]:
    """Return ASCII texts of a source: functions of Python's library, or pieces of its help topics."""

    def functions() -> Iterator[str]:
        for name in MODULES:
            text = inspect.getsource(import_module(name))
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef):
                    yield (ast.get_source_segment(text, node) or "")[:MOST]

    if source == "code":
        every = list(functions())
    else:
        topics = import_module("pydoc_data.topics").topics
        whole = "\n\n".join(topics[key] for key in sorted(topics))
        every = [whole[at : at + MOST] for at in range(0, len(whole), MOST)]
    every = [text for text in every if len(text) >= LEAST and text.isascii()]
    return [every[at] for at in np.random.default_rng(0).permutation(len(every))[:DOCUMENTS]]


def prepare(out: Path) -> Path:
    """Write the corpus, declare its mixture, and build the manifest; return its folder."""
    manifest = out / "manifest"
    if manifest.exists():
        return manifest
    splits: dict[str, Any] = {}
    for source in SOURCES:
        every = texts(source)
        cut = len(every) * 9 // 10
        for split, own in ((source, every[:cut]), ("val", every[cut:])):
            for first in range(0, len(own), SHARD_DOCUMENTS):
                lines = [json.dumps({"text": text, "source": source}) for text in own[first : first + SHARD_DOCUMENTS]]
                path = out / "data" / split / f"{source}-{first:04d}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join([*lines, ""]))
            fields = {"text": "text", "source": {"column": "source"}}
            splits[split] = {"paths": [str(out / f"data/{split}/*.jsonl")], **fields}
    splits["val"]["held_out"] = True
    mixture = {source: {"weight": 0.5} for source in SOURCES}
    dataaudit.build({"splits": splits, "mixture": mixture}, manifest, workers=0, state=out / "state")
    return manifest


class Staged(Run):
    """What a fault of the laboratory is planted in: a model and its optimizer."""

    def __init__(self, model: Model, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer


def batches(corpus: Any, seed: int, shares: tuple[int, int], length: int) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches with so many rows of each source."""
    packed = [
        PackedDocuments(Documents(corpus, source, byte_encoder(END)), length, seed=seed, epochs=8, stretches=16)
        for source in SOURCES
    ]
    at = [0, 0]
    while True:
        rows = []
        for place, number in enumerate(shares):
            rows += [packed[place][(at[place] + item) % len(packed[place])] for item in range(number)]
            at[place] += number
        yield {name: torch.from_numpy(np.stack([item[name] for item in rows])) for name in rows[0]}


def train(
    manifest: Path,
    folder: Path,
    seed: int,
    *,
    size: Size = SIZE,
    shares: tuple[int, int] = (4, 4),
    steps: int = STEPS,
    onset: int = ONSET,
    **faults: float,
) -> Model:
    """Train a run, keep its log, and return the model.

    Args:
        manifest: Folder of the manifest.
        folder: Of the run log.
        seed: Of weights and of the order.
        size: Of the model.
        shares: Rows of each source in a batch.
        steps: Of the run; the learning rate falls to 0 in the newer half.
        onset: Step from which on faults are planted.
        faults: Strength by name of the laboratory's faults.
    """
    torch.manual_seed(seed)
    model = Model(size, sparse=True)
    routers = {id(item) for item in model.routers()}
    groups = [[item for item in model.parameters() if (id(item) in routers) == last] for last in (False, True)]
    optimizer = torch.optim.AdamW([{"params": own} for own in groups], lr=size.rate, betas=(0.9, 0.95), fused=True)
    corpus = open_manifest(manifest, require="verified", splits=SOURCES)
    mapping = Mapping(layers="blocks", attention="attention", heads=size.heads, mlp="mlp", router="mlp.router")
    config = VitalsConfig(preset="medium", adapt=False, escalate=0, sampled_rows=8, window=64, mapping=mapping)
    staged = Staged(model, optimizer)
    with (
        TrainingMonitor(folder, corpus, optimizer=optimizer) as monitor,
        Vitals(model, optimizer, config, [monitor]) as vitals,
    ):
        for step, batch in zip(range(1, steps + 1), batches(corpus, seed, shares, size.length), strict=False):
            for name, strength in faults.items():
                if step >= onset:
                    FAULTS[name](staged, strength, step - onset)
            for group in optimizer.param_groups if step > steps // 2 else ():
                group["lr"] *= (steps + 1 - step) / (steps + 2 - step)
            with vitals.step():
                logits = model(batch["input_ids"])
                losses = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
                losses = losses.view(batch["labels"].shape)
                monitor.batch(batch["tags"], losses=losses, labels=batch["labels"])
                (losses.mean() + size.balance * sum(block.mlp.aux for block in model.blocks)).backward()
                optimizer.step()
                optimizer.zero_grad()
            monitor.step(losses.mean())
    return model


def probe(
    manifest: Path,
    folder: Path,
    model: Model,
    *,
    context: int = SIZE.length,
    dtype: str = "float32",
    end: int = END,
    prompts: int = 0,
) -> None:
    """Probe a model with a harness, and write the report beside the run's log."""
    tokenizer = Tokenizer.of_bytes(end)
    own = ProbeModel(model.to(getattr(torch, dtype)), tokenizer, context=context, name=folder.name)
    corpus = Corpus(folder=manifest, tokenizer=tokenizer)
    held_out = corpus.sample(held_out=True, seed=prompts)
    assert held_out is not None
    chosen = held_out.rows[prompts : prompts + 16]
    batch = ProbeBatch.of_rows([item[:context] for item in chosen], tokenizer.digest)
    suite = ProbeSuite([Frozen(batch=batch), HeldOutLoss(documents=held_out)], manifest=corpus.manifest.id)
    suite.run(own, STEPS, out=folder / "probes")


def stage(manifest: Path, out: Path, seed: int, what: str, **more: int) -> Path:
    """Make a staged run with its log and its probes, unless it is there; return its log's folder."""
    folder = out / f"{what}-{seed}"
    if (folder / "probes").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    chosen = VARIANTS[what][seed % len(VARIANTS[what])]
    given: dict[str, Any] = {} if what == "harness" else dict(chosen)
    if what == "too_small":
        given = {"size": dataclasses.replace(SIZE, heads=2, expert_inner=8, **chosen)}
    model = train(manifest, folder, seed, **given, **more)
    probe(manifest, folder, model, **(chosen if what == "harness" else {}))
    return folder


def main() -> None:
    """Stage, triage, and print a row for each kind of regression."""
    given = options(__doc__, out=Path, seeds=[0, 1, 2, 3, 4], only=list(CAUSES))
    given.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    manifest = prepare(given.out)
    head("staged", "right cause", "right", "named, seed by seed")
    for what in given.only:
        named = []
        for seed in given.seeds:
            baseline = stage(manifest, given.out, seed + OTHER_SEED, "none")
            result = triage(stage(manifest, given.out, seed, what), manifest, baseline=baseline)
            named.append(result.cause or f"undecidable ({', '.join(check.name for check in result.missing)})")
        right = sum(cause.startswith(CAUSES[what]) for cause in named)
        row(what, CAUSES[what], f"{right} of {len(named)}", "; ".join(named))


if __name__ == "__main__":
    main()
