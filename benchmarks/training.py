"""What tags, the run log and all that is recorded besides add to a step, by loader, paired in one process.

    OMP_NUM_THREADS=1 python benchmarks/training.py MANIFEST [--rounds 20] [--steps 16]
        [--only plain live datasets mds trainer]

MANIFEST is that of `make demo-train`; steps are of 8 rows of 256 tokens, model and optimizer the same. Blocks of steps
of all loops of a loader alternate, and which goes first does, too. All read the same records by the same library; the
bare loop has no columns of tags, no collator of ours and no monitor. `plain` has three loops beside it: tags and log;
these and the losses of segments, from the loop's own per-token losses; these and all that is recorded besides, with
labels and the optimizer handed over, and the loader timed. `live` has all of `watch_run`, but for vitals' hooks, and
the same with every tracker that is installed (run it with the interpreter that `make test-frameworks` makes). The other
loaders have the second of these.

CPU seconds are those of all threads, the log's with them; `live` counts the loop's own thread. Loaders run in the
process. The table has medians of the
ratios of neighbouring blocks, with quartiles. They carry the machine's noise, so for `plain` the added calls are timed
by themselves too, with the losses of no model.

`mds` needs mosaicml-streaming, `trainer` and `datasets` transformers and datasets.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import has, head, options, row
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1] / "pipelines"))
from demo_train import CONTEXT, ROWS, Model

from dataaudit.live import (
    Actions,
    JSONLinesSink,
    MLflowSink,
    PrometheusSink,
    SkipBatches,
    TensorBoardSink,
    TrackerSink,
    WandbSink,
)
from dataaudit.training import (
    Corpus,
    Documents,
    PackedDocuments,
    TrainingMonitor,
    WatchedRun,
    byte_encoder,
    open_manifest,
    watch_run,
)
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.logthread import BATCH_STEPS
from dataaudit.vitals import Mapping, VitalsConfig

Batch = dict[str, torch.Tensor]
Block = Callable[[], tuple[float, float]]
"""Runs a block of steps; returns CPU and wall seconds of it."""
Follow = Callable[[torch.optim.Optimizer], TrainingMonitor]
Loops = dict[str, Block]
"""By name, the bare loop first."""
_TAGS = ("shard", "row", "source", "epoch")


class Untagged(PackedDocuments):
    """The same rows, whose tags are not made."""

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """Return a row."""
        tokens = self.window(index * self.context, (index + 1) * self.context + 1).astype("int64")
        return {"input_ids": tokens[:-1], "labels": tokens[1:]}


def padded(records: list[dict[str, Any]]) -> Batch:
    """Cut records to a row, and pad them."""
    ids = np.zeros((len(records), CONTEXT), np.int64)
    labels = np.full((len(records), CONTEXT), -100)
    for number, record in enumerate(records):
        tokens = np.asarray(record["input_ids"], np.int64)
        ids[number, : len(tokens)] = labels[number, : len(tokens)] = tokens
    return {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}


def cut(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Cut records to a row."""
    return [record | {"input_ids": record["input_ids"][:CONTEXT]} for record in records]


def bare(records: list[dict[str, Any]]) -> Batch:
    """Pad what has been cut, and know nothing of tags."""
    return padded(cut(records))


def audited(records: list[dict[str, Any]]) -> Batch:
    """Pad what has been cut, with tags."""
    found: Batch = TaggedCollator(padded)(cut(records))
    return found


def endless(make: Callable[[], Any]) -> Iterator[Batch]:
    """Read pass after pass."""
    while True:
        yield from make()


def hand_over(monitor: TrainingMonitor, tags: Any, labels: torch.Tensor, losses: torch.Tensor, kind: str) -> None:
    """Give a monitor what it records of a step."""
    own = None if kind == "log" else losses.view(labels.shape)
    monitor.batch(tags, losses=own, labels=labels if kind == "all" else None)
    monitor.step(losses.sum() / (labels != -100).sum())


def loop(
    batches: Iterator[Batch], steps: int, follow: Follow | None = None, *, kind: str = "losses", inner: bool = False
) -> Block:
    """Return blocks of a plain loop.

    Args:
        batches: Rows and tags.
        steps: Of a block.
        follow: Makes a monitor; None for the bare loop.
        kind: What is handed over: ``log``, ``losses``, ``all``.
        inner: Whether the labels are the inputs, so that the loop shifts them.
    """
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    monitor = None if follow is None else follow(optimizer)

    def block() -> tuple[float, float]:
        began, wall = time.process_time(), time.perf_counter()
        for batch in itertools.islice(batches, steps):
            if monitor is not None and kind == "all":
                monitor.arrived()
            logits, labels = model(batch["input_ids"]), batch["labels"]
            if inner:
                logits, labels = logits[:, :-1], labels[:, 1:]
            losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
            loss = losses.sum() / (labels != -100).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if monitor is not None:
                hand_over(monitor, batch["tags"], labels, losses, kind)
        return time.process_time() - began, time.perf_counter() - wall

    return block


def plain(corpus: Corpus, folder: Path, steps: int, stack: contextlib.ExitStack) -> Loops:
    """Packed rows of our own."""
    documents = Documents(corpus, "train", byte_encoder(end=0))

    def batches(rows: Any) -> Iterator[Batch]:
        return endless(lambda: torch.utils.data.DataLoader(rows, ROWS, drop_last=True))

    loops = {"bare": loop(batches(Untagged(documents, CONTEXT)), steps)}
    for kind in ("log", "losses", "all"):

        def follow(optimizer: Any, kind: str = kind) -> TrainingMonitor:
            watched = optimizer if kind == "all" else None
            return stack.enter_context(TrainingMonitor(folder / kind, corpus, optimizer=watched))

        loops[kind] = loop(batches(PackedDocuments(documents, CONTEXT)), steps, follow, kind=kind)
    return loops


def live(corpus: Corpus, folder: Path, steps: int, stack: contextlib.ExitStack) -> Loops:
    """Packed rows of our own, and all that watches a run: tags, log, alerts, heartbeats, actions."""
    documents = Documents(corpus, "train", byte_encoder(end=0))
    vitals = VitalsConfig(preset="medium", mapping=Mapping(layers="none", attention="attention", heads=4, mlp="mlp"))

    def follow(rows: Any, run: WatchedRun | None, model: Model, optimizer: torch.optim.Optimizer) -> Block:
        loader = torch.utils.data.DataLoader(rows, ROWS, drop_last=True)
        batches = endless(lambda: loader if run is None else run.loader(loader))
        clip = torch.nn.utils.clip_grad_norm_ if run is None else run.clip_grad_norm_

        def block() -> tuple[float, float]:
            began, wall = time.thread_time(), time.perf_counter()
            for batch in itertools.islice(batches, steps):
                with contextlib.nullcontext() if run is None else run.step():
                    labels = batch["labels"]
                    logits = model(batch["input_ids"]).flatten(0, 1)
                    losses = functional.cross_entropy(logits, labels.flatten(), reduction="none").view(labels.shape)
                    if run is not None:
                        run.batch(batch["tags"], losses=losses, labels=labels)
                    loss = losses.mean()
                    optimizer.zero_grad()
                    loss.backward()
                    clip(model.parameters(), 1.0)
                    optimizer.step()
                    if run is not None:
                        run.log(loss)
            return time.thread_time() - began, time.perf_counter() - wall

        return block

    sinks = [stack.enter_context(sink) for sink in trackers(folder)]
    loops: Loops = {}
    for kind in ("bare", "watch_run", f"watch_run, {len(sinks)} sinks"):
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        run, rows = None, Untagged(documents, CONTEXT)
        if kind != "bare":
            actions, rows = Actions(folder / kind, SkipBatches(1)), PackedDocuments(documents, CONTEXT)
            given: dict[str, Any] = {"sinks": sinks} if "sinks" in kind else {}
            watched = watch_run(
                model, optimizer, corpus, "medium", folder=folder / kind, actions=actions, vitals=vitals, **given
            )
            run = stack.enter_context(watched)
        loops[kind] = follow(rows, run, model, optimizer)
    return loops


def trackers(folder: Path) -> Iterator[TrackerSink]:
    """Yield a sink of each tracker that is installed, with the files in a folder."""
    makes: dict[str, Callable[[], TrackerSink]] = {
        "json": lambda: JSONLinesSink(folder / "run.jsonl"),
        "tensorboard": lambda: TensorBoardSink(folder / "tensorboard"),
        "wandb": lambda: WandbSink(init={"mode": "offline", "dir": str(folder)}),
        "mlflow": lambda: MLflowSink(f"sqlite:///{folder}/runs.db"),
        "prometheus_client": lambda: PrometheusSink(file=folder / "run.prom"),
    }
    for library, make in makes.items():
        if importlib.util.find_spec(library) is not None:
            yield make()


def streamed(corpus: Corpus, folder: Path, steps: int, stack: contextlib.ExitStack) -> Loops:
    """A stream of `datasets` with a shuffle buffer."""
    from dataaudit.training.loaders.hub import tagged_stream

    documents = Documents(corpus, "train", byte_encoder(end=0))
    tagged = tagged_stream(documents, order="shuffled", epochs=4).shuffle(seed=0, buffer_size=100)
    monitor = stack.enter_context(TrainingMonitor(folder / "run", corpus, shift="inner"))

    def batches(rows: Any, make: Callable[[list[dict[str, Any]]], Batch]) -> Iterator[Batch]:
        return endless(lambda: torch.utils.data.DataLoader(rows, ROWS, collate_fn=make))

    return {
        "bare": loop(batches(tagged.remove_columns(list(_TAGS)), bare), steps, inner=True),
        "losses": loop(batches(tagged, audited), steps, lambda _: monitor, inner=True),
    }


def mds(corpus: Corpus, folder: Path, steps: int, stack: contextlib.ExitStack) -> Loops:
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

    def batches(name: str, make: Callable[[list[dict[str, Any]]], Batch]) -> Iterator[Batch]:
        rows = streaming.StreamingDataset(local=str(folder / name), batch_size=ROWS, shuffle=True)
        return endless(lambda: streaming.StreamingDataLoader(rows, batch_size=ROWS, collate_fn=make))

    return {
        "bare": loop(batches("bare", bare), steps, inner=True),
        "losses": loop(batches("tagged", audited), steps, lambda _: monitor, inner=True),
    }


def trainer(corpus: Corpus, folder: Path, steps: int, _: contextlib.ExitStack) -> Loops:
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

    return {"bare": lambda: block(audit=False), "losses": lambda: block(audit=True)}


LOADERS = {"plain": plain, "live": live, "datasets": streamed, "mds": mds, "trainer": trainer}
NEEDS = {"datasets": "datasets", "mds": "streaming", "trainer": "transformers"}
"""Modules of other packages."""


def print_calls(corpus: Corpus, folder: Path) -> None:
    """Print the CPU milliseconds that tags, the added calls and the log's thread take a step, with losses at hand."""
    rows = PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), CONTEXT, epochs=4)
    began = time.thread_time()
    for index in range(2_000):
        rows.tags(index % len(rows) * CONTEXT + 1, (index % len(rows) + 1) * CONTEXT + 1)
    tags = (time.thread_time() - began) / 2_000 * ROWS * 1e3
    numbers = itertools.cycle(range(len(rows)))
    for kind in ("log", "all"):
        optimizer = torch.optim.AdamW(Model().parameters()) if kind == "all" else None
        with TrainingMonitor(folder / f"calls-{kind}", corpus, optimizer=optimizer) as monitor:
            clock = time.pthread_getcpuclockid(next(t.ident for t in threading.enumerate() if "runlog" in t.name))
            for _ in range(2):  # once to warm up
                spent, thread = 0.0, time.clock_gettime(clock)
                for _ in range(BATCH_STEPS):
                    batch = torch.utils.data.default_collate([rows[next(numbers)] for _ in range(ROWS)])
                    losses, began = torch.rand(ROWS * CONTEXT), time.thread_time()
                    hand_over(monitor, batch["tags"], batch["labels"], losses, kind)
                    spent += time.thread_time() - began
                monitor.state_dict()
            calls, log = (1e3 * part / BATCH_STEPS for part in (spent, time.clock_gettime(clock) - thread))
        print(f"{kind}, CPU ms a step: tags {tags:.3f}, calls {calls:.3f}, the log's thread {log:.3f}")


def main() -> None:
    """Time the loops and print a table."""
    given = options(__doc__, manifest=Path, rounds=20, steps=16, only=(str, list(LOADERS), *LOADERS))
    corpus = open_manifest(given.manifest, require="verified")
    head("loader, loop", "bare, CPU ms a step", "CPU, median of ratios", "quartiles", "wall")
    for name in given.only:
        if name in NEEDS and not has(NEEDS[name], "--group loaders mosaicml-streaming"):
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            loops = LOADERS[name](corpus, Path(folder), given.steps, stack)
            for block in loops.values():
                block()
            found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in loops}
            for number in range(given.rounds):
                first = number % len(loops)
                for kind in [*loops, *loops][first : first + len(loops)]:
                    found[kind].append(loops[kind]())
        ms = statistics.median(cpu for cpu, _ in found["bare"]) / given.steps * 1e3
        for kind in [*loops][1:]:
            pairs = zip(found["bare"], found[kind], strict=True)
            cpus, walls = zip(*((cpu / bare, wall / least) for (bare, least), (cpu, wall) in pairs), strict=True)
            low, middle, high = np.quantile(cpus, [0.25, 0.5, 0.75])
            cells = f"{ms:.1f}", f"{middle:.4f}", f"{low:.4f} to {high:.4f}", f"{statistics.median(walls):.4f}"
            row(f"{name}, {kind}", *cells)
    if "plain" in given.only:
        with tempfile.TemporaryDirectory() as folder:
            print_calls(corpus, Path(folder))


if __name__ == "__main__":
    main()
