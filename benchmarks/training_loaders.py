"""What tags, run log and losses of stretches add to a step, by loader: bare against audited, paired in one process.

    python benchmarks/training_loaders.py MANIFEST [--rounds 12] [--steps 16] [--only plain datasets mds trainer]

MANIFEST is that of `make demo-train`; steps are of 8 rows of 256 tokens, model and optimizer the same. Blocks of steps
of both loops alternate, and which goes first does, too. Bare and audited read the same records by the same library; the
bare loop has no columns of tags, no collator of ours and no monitor. CPU seconds are those of all threads, the log's
with them; loaders run in the process. Said are medians of the ratios of neighbouring blocks, with quartiles.

`mds` needs mosaicml-streaming, `trainer` and `datasets` transformers and datasets.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1] / "pipelines"))
from demo_train import CONTEXT, ROWS, Model
from training import Untagged

from dataaudit.training import Corpus, Documents, PackedDocuments, TrainingMonitor, byte_encoder, open_manifest
from dataaudit.training.loaders.collator import TaggedCollator

Batch = dict[str, torch.Tensor]
Block = Callable[[], tuple[float, float]]
"""Runs a block of steps; returns CPU and wall seconds of it."""
_TAGS = ("shard", "row", "source", "epoch")


def options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--only", nargs="*", default=["plain", "datasets", "mds", "trainer"])
    return parser.parse_args()


def padded(records: list[dict[str, Any]]) -> Batch:
    """Cut records to a row, and pad them."""
    ids = np.zeros((len(records), CONTEXT), np.int64)
    labels = np.full((len(records), CONTEXT), -100)
    for row, one in enumerate(records):
        tokens = np.asarray(one["input_ids"], np.int64)
        ids[row, : len(tokens)] = labels[row, : len(tokens)] = tokens
    return {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}


def cut(record: dict[str, Any]) -> dict[str, Any]:
    """Cut a record to a row."""
    return record | {"input_ids": record["input_ids"][:CONTEXT]}


def bare(records: list[dict[str, Any]]) -> Batch:
    """Pad what has been cut, and know nothing of tags."""
    return padded([cut(one) for one in records])


def audited(collate: TaggedCollator, records: list[dict[str, Any]]) -> Batch:
    """Pad what has been cut, with tags."""
    found: Batch = collate([cut(one) for one in records])
    return found


def endless(make: Callable[[], Iterator[Batch]]) -> Iterator[Batch]:
    """Read pass after pass."""
    while True:
        yield from make()


def loop(batches: Iterator[Batch], steps: int, monitor: TrainingMonitor | None, *, shifted: bool) -> Block:
    """Return blocks of a plain loop; `shifted` labels are those of the loader."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def block() -> tuple[float, float]:
        began, wall = time.process_time(), time.perf_counter()
        for batch in itertools.islice(batches, steps):
            logits = model(batch["input_ids"])
            labels = batch["labels"]
            if not shifted:
                logits, labels = logits[:, :-1], labels[:, 1:]
            each = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
            loss = each.sum() / (labels != -100).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if monitor is not None:
                monitor.batch(batch["tags"], losses=each.view(labels.shape))
                monitor.step(loss)
        return time.process_time() - began, time.perf_counter() - wall

    return block


def plain(corpus: Corpus, folder: Path, steps: int, stack: contextlib.ExitStack) -> tuple[Block, Block]:
    """Packed rows of our own."""
    documents = Documents(corpus, "train", byte_encoder(end=0))

    def batches(rows: Any) -> Iterator[Batch]:
        return endless(lambda: iter(torch.utils.data.DataLoader(rows, ROWS, drop_last=True)))

    monitor = stack.enter_context(TrainingMonitor(folder / "run", corpus))
    rows = [kind(documents, CONTEXT) for kind in (Untagged, PackedDocuments)]
    return (
        loop(batches(rows[0]), steps, None, shifted=True),
        loop(batches(rows[1]), steps, monitor, shifted=True),
    )


def streamed(corpus: Corpus, folder: Path, steps: int, stack: contextlib.ExitStack) -> tuple[Block, Block]:
    """A stream of `datasets` with a shuffle buffer."""
    from dataaudit.training.loaders.hub import tagged_stream

    documents = Documents(corpus, "train", byte_encoder(end=0))
    tagged = tagged_stream(documents, order="shuffled", epochs=4).shuffle(seed=0, buffer_size=100)
    collate = TaggedCollator(padded)
    monitor = stack.enter_context(TrainingMonitor(folder / "run", corpus, shift="inner"))

    def batches(rows: Any, make: Callable[[list[dict[str, Any]]], Batch]) -> Iterator[Batch]:
        return endless(lambda: iter(torch.utils.data.DataLoader(rows, ROWS, collate_fn=make)))

    return (
        loop(batches(tagged.remove_columns(list(_TAGS)), bare), steps, None, shifted=False),
        loop(batches(tagged, lambda records: audited(collate, records)), steps, monitor, shifted=False),
    )


def mds(corpus: Corpus, folder: Path, steps: int, stack: contextlib.ExitStack) -> tuple[Block, Block]:
    """Mosaic's streaming, its own shuffle; the bare loop reads files without the columns."""
    import streaming

    from dataaudit.training.loaders.hub import tagged_records
    from dataaudit.training.loaders.stored import write_mds

    documents = Documents(corpus, "train", byte_encoder(end=0))
    write_mds(documents, folder / "tagged")
    with streaming.MDSWriter(out=str(folder / "bare"), columns={"input_ids": "ndarray:int32"}) as writer:
        for record in tagged_records(documents):
            writer.write({"input_ids": record["input_ids"].astype(np.int32)})
    monitor = stack.enter_context(TrainingMonitor(folder / "run", corpus, shift="inner"))
    collate = TaggedCollator(padded)

    def batches(name: str, make: Callable[[list[dict[str, Any]]], Batch]) -> Iterator[Batch]:
        rows = streaming.StreamingDataset(local=str(folder / name), batch_size=ROWS, shuffle=True)
        return endless(lambda: iter(streaming.StreamingDataLoader(rows, batch_size=ROWS, collate_fn=make)))

    return (
        loop(batches("bare", bare), steps, None, shifted=False),
        loop(batches("tagged", lambda records: audited(collate, records)), steps, monitor, shifted=False),
    )


def trainer(corpus: Corpus, folder: Path, steps: int, _stack: contextlib.ExitStack) -> tuple[Block, Block]:
    """Transformers' Trainer: a run a block; its first steps are left out."""
    import transformers

    from dataaudit.training.loaders.trainer import audit_trainer

    warm = 3
    documents = Documents(corpus, "train", byte_encoder(end=0))
    numbers = itertools.count()

    class Clock(transformers.TrainerCallback):
        """Takes the time after the first steps, and in the end."""

        def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            """Take it."""
            if state.global_step in (warm, warm + steps):
                self.times = [*getattr(self, "times", []), (time.process_time(), time.perf_counter())]

    def stacked(records: list[dict[str, Any]]) -> Batch:
        return {name: torch.from_numpy(np.stack([one[name] for one in records])) for name in ("input_ids", "labels")}

    def block(*, audit: bool) -> tuple[float, float]:
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=256, n_positions=CONTEXT, n_embd=96, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
        )
        arguments = transformers.TrainingArguments(
            folder / "out",
            max_steps=warm + steps,
            per_device_train_batch_size=ROWS,
            remove_unused_columns=False,
            save_strategy="no",
            logging_steps=10_000,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        clock = Clock()
        made = transformers.Trainer(
            transformers.GPT2LMHeadModel(config),
            arguments,
            train_dataset=PackedDocuments(documents, CONTEXT, shift="inner"),
            data_collator=TaggedCollator() if audit else stacked,
            callbacks=[clock],
        )
        if audit:
            audit_trainer(made, folder / f"run-{next(numbers)}", corpus)
        with contextlib.redirect_stdout(None):
            made.train()
        (cpu, wall), (cpu_end, wall_end) = clock.times
        return cpu_end - cpu, wall_end - wall

    return lambda: block(audit=False), lambda: block(audit=True)


LOADERS = {"plain": plain, "datasets": streamed, "mds": mds, "trainer": trainer}


def main() -> None:
    """Time the loops and print a table."""
    arguments = options()
    corpus = open_manifest(arguments.manifest, require="verified")
    print(f"{'loader':10}{'bare ms':>9}{'CPU':>8}{'quartiles':>18}{'wall':>8}")
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            pair = LOADERS[name](corpus, Path(folder), arguments.steps, stack)
            for one in pair:
                one()
            found: list[list[tuple[float, float]]] = [[], []]
            for number in range(arguments.rounds):
                for which in (0, 1) if number % 2 else (1, 0):
                    found[which].append(pair[which]())
        ratios = [[mine[at] / bare_one[at] for bare_one, mine in zip(*found, strict=True)] for at in (0, 1)]
        low, _, high = statistics.quantiles(ratios[0], n=4)
        ms = statistics.median(cpu for cpu, _ in found[0]) / arguments.steps * 1e3
        cpu, wall = map(statistics.median, ratios)
        print(f"{name:10}{ms:9.1f}{cpu:8.4f}{low:9.4f} to {high:.4f}{wall:8.4f}", flush=True)


if __name__ == "__main__":
    main()
