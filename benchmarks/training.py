"""What tags, the run log and losses of stretches add to a step of about 50 ms on a CPU, paired in one run.

    python benchmarks/training.py MANIFEST [--rounds 20] [--steps 16]

MANIFEST is that of `make demo-train`; its model takes steps of 8 rows of 256 tokens. Blocks of steps alternate between
four loops: rows whose tags are not made and no monitor; tags and the log; these and the losses of stretches from the
loop's own per-token losses; these and all that is recorded besides, with labels and the optimizer handed over, and the
loader timed. All compute the same losses. CPU seconds are those of all threads, the log's with them. The
median of the ratios of neighbouring blocks carries the machine's noise, so the added calls are timed by themselves too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1] / "pipelines"))
from demo_train import CONTEXT, ROWS, Model

from dataaudit.training import Corpus, Documents, PackedDocuments, TrainingMonitor, byte_encoder, open_manifest
from dataaudit.training.logthread import BATCH_STEPS


class Untagged(PackedDocuments):
    """The same rows, whose tags are not made."""

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """Return a row."""
        tokens = self.window(index * self.context, (index + 1) * self.context + 1).astype("int64")
        return {"input_ids": tokens[:-1], "labels": tokens[1:]}


def options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=16)
    return parser.parse_args()


class Loops:
    """The loops, which share a model and have the same batches.

    Args:
        corpus: What was opened.
        model: Of all of them.
        optimizers: One that is followed, and one that is not.
    """

    def __init__(self, corpus: Corpus, model: Model, optimizers: dict[str, torch.optim.Optimizer]) -> None:
        documents = Documents(corpus, "train", byte_encoder(end=0))
        self.rows = {kind: PackedDocuments(documents, CONTEXT, epochs=4) for kind in ("log", "losses", "all")}
        self.rows["bare"] = Untagged(documents, CONTEXT, epochs=4)
        self.model, self.optimizers = model, optimizers
        self.spent = {"batch": 0.0, "step": 0.0}

    def run(self, kind: str, first: int, monitor: TrainingMonitor, steps: int, *, trains: bool = True) -> None:
        """Take some steps; or hand over what a monitor is handed, with the losses of no model."""
        optimizer = self.optimizers[kind if kind == "all" else "others"]
        for step in range(first, first + steps):
            rows = self.rows[kind]
            batch = torch.utils.data.default_collate([rows[step * ROWS + row] for row in range(ROWS)])
            if kind == "all":
                monitor.arrived()
            if trains:
                logits = self.model(batch["input_ids"])
                losses = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
                optimizer.zero_grad()
                losses.mean().backward()
                optimizer.step()
            else:
                losses = torch.rand(ROWS * CONTEXT)
            if kind != "bare":
                began = time.thread_time()
                monitor.batch(
                    batch["tags"],
                    losses=None if kind == "log" else losses.view(ROWS, CONTEXT),
                    labels=batch["labels"] if kind == "all" else None,
                )
                between = time.thread_time()
                monitor.step(losses.mean())
                self.spent["batch"] += between - began
                self.spent["step"] += time.thread_time() - between

    def calls(self, kind: str, monitor: TrainingMonitor, thread: int) -> dict[str, float]:
        """Return milliseconds of CPU that the added calls, and the log's thread, take a step."""
        monitor.state_dict()
        self.spent.update(batch=0.0, step=0.0)
        clock = time.pthread_getcpuclockid(thread)
        before = time.clock_gettime(clock)
        self.run(kind, 0, monitor, BATCH_STEPS, trains=False)
        monitor.state_dict()
        spent = {**self.spent, "thread": time.clock_gettime(clock) - before}
        return {name: seconds / BATCH_STEPS * 1e3 for name, seconds in spent.items()}


def main() -> None:
    """Time the loops and print a table."""
    arguments = options()
    torch.manual_seed(0)
    corpus = open_manifest(arguments.manifest, require="verified")
    model = Model()
    optimizers = {kind: torch.optim.AdamW(model.parameters(), lr=1e-3) for kind in ("others", "all")}
    loops = Loops(corpus, model, optimizers)
    with (
        tempfile.TemporaryDirectory() as folder,
        TrainingMonitor(Path(folder) / "run", corpus) as plain,
        TrainingMonitor(Path(folder) / "all", corpus, optimizer=optimizers["all"]) as whole,
    ):
        monitors = {"bare": plain, "log": plain, "losses": plain, "all": whole}
        for kind, monitor in monitors.items():
            loops.run(kind, 0, monitor, arguments.steps)
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in monitors}
        for number in range(arguments.rounds):
            kinds = list(monitors)
            for kind in kinds[number % 4 :] + kinds[: number % 4]:
                began, wall = time.process_time(), time.perf_counter()
                loops.run(kind, (number + 1) * arguments.steps, monitors[kind], arguments.steps)
                found[kind].append((time.process_time() - began, time.perf_counter() - wall))
        threads = [one.ident for one in threading.enumerate() if "runlog" in one.name]
        calls = {
            kind: loops.calls(kind, monitors[kind], thread)
            for kind, thread in zip(("log", "all"), threads, strict=True)
        }
    tell(found, calls, tag_seconds(loops.rows["log"]), arguments)


def tell(
    found: dict[str, list[tuple[float, float]]],
    calls: dict[str, dict[str, float]],
    tags: float,
    arguments: argparse.Namespace,
) -> None:
    """Print what was measured."""
    bare = statistics.median(wall for _, wall in found["bare"]) / arguments.steps * 1e3
    cpu = statistics.median(seconds for seconds, _ in found["bare"]) / arguments.steps * 1e3
    print(f"a bare step: {bare:.1f} ms, CPU {cpu:.1f} ms (median of {arguments.rounds} blocks of {arguments.steps})")
    for kind in ("log", "losses", "all"):
        ratios = (
            statistics.median(one[place] / other[place] for one, other in zip(found[kind], found["bare"], strict=True))
            for place in (0, 1)
        )
        print("{}: CPU x {:.4f}, wall x {:.4f}".format(kind, *ratios))
    for kind, parts in calls.items():
        total = tags + sum(parts.values())
        named = ", ".join(f"{name} {seconds:.3f} ms" for name, seconds in parts.items())
        print(f"{kind}, CPU a step: tags {tags:.3f} ms, {named}; together {total:.3f} ms, {total / cpu:.2%} of a step")


def tag_seconds(rows: PackedDocuments) -> float:
    """Return milliseconds that the tags of a batch take."""
    began = time.thread_time()
    for index in range(2_000):
        rows.tags(index * CONTEXT + 1, (index + 1) * CONTEXT + 1)
    return (time.thread_time() - began) / 2_000 * ROWS * 1e3


if __name__ == "__main__":
    main()
