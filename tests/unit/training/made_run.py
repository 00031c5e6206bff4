"""Runs that were never trained: a manifest, and a run log with losses by a known law and something planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import made_manifest
import numpy as np

from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.runlog.format import RunFile
from dataaudit.runlog.writer import RankWriter, create_run, event

BLOCK_ROWS = 16
SOURCES = ("code", "web")
DOCUMENTS = 400
"""Of each shard."""


def make_shards(folder: Path, number: int = 12, *, twins: tuple[int, int] | None = None, **more: object) -> str:
    """Publish a manifest of shards, two of which may hold the same bytes; return its id."""
    digests = [f"{one:064x}" for one in range(1, number + 1)]
    if twins is not None:
        digests[twins[1]] = digests[twins[0]]
    values = [
        {"documents": DOCUMENTS, "tokens": 40_000, "sha256": digest, "bytes_per_token": 4.0 + 0.01 * (place % 5)}
        for place, digest in enumerate(digests)
    ]
    for name, by_shard in more.items():
        for place, value in dict(by_shard).items():
            values[place][name] = value
    shards = [made_manifest.shard(one.pop("uri", f"part-{place:03d}.jsonl"), **one) for place, one in enumerate(values)]
    return made_manifest.make(folder, shards)


def begin_run(folder: Path, audited: Manifest | None = None, **about: object) -> None:
    """Create the log of a run on a manifest, or on none that is there."""
    usual = {"dataset": "made@1", "sources": SOURCES, "block_rows": BLOCK_ROWS, "ranks": 1, "program": "0"}
    usual |= {"manifest": audited and audited.id, "started": "2026-11-22T00:00:00Z"}
    shards = audited and audited.table("shards", ["shard", "split", "uri", "sha256"])
    create_run(folder, RunFile.model_validate(usual | about), shards)


@dataclass(kw_only=True)
class Batch:
    """The stretches of one step of one rank, as columns; what is planted changes them."""

    step: int
    rank: int
    columns: dict[str, np.ndarray]
    random: np.random.Generator

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]


@dataclass(kw_only=True)
class Made:
    """How a run is made."""

    steps: int = 200
    ranks: int = 1
    batch_rows: int = 8
    places: int = 3
    """Stretches of a row."""
    context: int = 512
    shards: int = 12
    noise: float = 0.25
    """Standard deviation of a document's loss."""
    seed: int = 0
    scored: Callable[[int], bool] = field(default=lambda step: True)
    again: range = range(0)
    """Steps whose scores are of weights that were updated since."""
    user: Callable[[int, float], float | None] = field(default=lambda step, loss: loss)

    def batch(self, step: int, rank: int) -> Batch:
        """Return a step's stretches, nothing planted."""
        random = np.random.default_rng((self.seed, step, rank))
        number = self.batch_rows * self.places
        cuts = np.sort(random.integers(1, self.context, (self.batch_rows, self.places - 1)), axis=1)
        edges = np.concatenate(
            [np.zeros((self.batch_rows, 1), int), cuts, np.full((self.batch_rows, 1), self.context)], axis=1
        )
        targets = np.diff(edges, axis=1).ravel()
        source = random.integers(0, len(SOURCES), number)
        start = edges[:, :-1].ravel()
        columns = {
            "step": np.full(number, step),
            "micro_batch": np.zeros(number, int),
            "batch_row": np.repeat(np.arange(self.batch_rows), self.places),
            "start": start,
            "shard": random.integers(0, self.shards, number),
            "row": random.integers(0, DOCUMENTS, number),
            "offset": np.zeros(number, int),
            "source": source,
            "epoch": np.zeros(number, int),
            "targets": targets,
        }
        spread = self.noise * np.sqrt(0.3 + 0.7 * 100 / (100 + targets))
        usual = 2.4 + 3.0 * (step + 30.0) ** -0.5 - 0.6 * (source == 0) + 0.3 * (start == 0) + 2.0 / (targets + 8.0)
        columns["loss"] = usual + random.normal(size=number) * spread
        return Batch(step=step, rank=rank, columns=columns, random=random)


def write_run(
    folder: Path,
    manifest: Path,
    made: Made,
    *plants: Callable[[Batch], None],
    lacking: Callable[[int, int], bool] = lambda step, rank: False,
    norms: Callable[[int], float] | None = None,
    rates: Callable[[int], float] | None = None,
    order: str = "",
    first: int = 1,
    create: bool = True,
    **writer: int,
) -> None:
    """Write the log of a run.

    Args:
        folder: Of the log.
        manifest: Folder of the manifest.
        made: The run.
        plants: Each changes the stretches of a step, one after another.
        lacking: Whether a rank wrote nothing of a step.
        norms: Gradient norm of a step.
        rates: Learning rate of a step.
        order: What was put in order at random.
        first: Step that this attempt begins with.
        create: Whether it is a new log.
        writer: Of RankWriter.
    """
    if create:
        begin_run(folder, load_manifest(manifest), ranks=made.ranks, order=order)
    for rank in range(made.ranks):
        log = RankWriter(folder, rank, first, BLOCK_ROWS, **writer)
        for step in range(first, made.steps + 1):
            if lacking(step, rank):
                continue
            batch = made.batch(step, rank)
            for plant in plants:
                plant(batch)
            _write_step(log, made, batch)
            if norms is not None:
                log.add("values", value_row(step, norms(step)))
            if rates is not None:
                log.add("values", value_row(step, rates(step), "learning_rate", ""))
            if step % 100 == 0:
                assert log.flush()
        log.close()


def _write_step(log: RankWriter, made: Made, batch: Batch) -> None:
    columns, step = batch.columns, batch.step
    targets, loss = columns["targets"], columns["loss"].astype(np.float32).astype(float)
    scored = made.scored(step)
    total = float(np.dot(targets, np.where(targets > 0, loss, 0.0)))
    user = made.user(step, total / targets.sum())
    log.add("stretches", {**columns, "loss": np.ma.masked_array(loss, mask=np.full(len(loss), not scored))})
    row = {
        "step": [step],
        "time": [0.0],
        "micro_batches": [1],
        "targets": [int(targets.sum())],
        "scored": [int(targets.sum()) if scored else 0],
        "loss_sum": [total if scored else 0.0],
        "user_loss": np.ma.masked_array([user or 0.0], mask=[user is None]),
        "merged": [int(targets[columns["shard"] < 0].sum())],
    }
    if scored and step in made.again:
        log.add("events", event(step, "scored", {"updates": 2}))
    log.add_step(step, {name: value if name == "user_loss" else np.array(value) for name, value in row.items()})


def value_row(step: int, value: float, metric: str = "grad_global_norm", stat: str = "l2") -> dict[str, object]:
    """Return the row of a number of the whole model."""
    return {
        "step": np.array([step]),
        "metric": [metric],
        "layer": np.array([-1]),
        "head": np.array([-1]),
        "stat": [stat],
        "value": np.array([value]),
    }


def bad_rows(steps: range, shard: int = 5, *, rows: int = 3, above: float = 3.0) -> Callable[[Batch], None]:
    """Return what makes some rows of each of some steps come from one shard, with losses that are too high."""

    def plant(batch: Batch) -> None:
        if batch.step in steps:
            own = batch["batch_row"] < rows
            batch["shard"][own] = shard
            batch["loss"][own] += above

    return plant


def bad_block(steps: range, shard: int = 5, block: int = 7, *, rows: int = 3, above: float = 3.0):
    """Return what makes some rows of each of some steps come from one block."""
    spoil = bad_rows(steps, shard, rows=rows, above=above)

    def plant(batch: Batch) -> None:
        spoil(batch)
        if batch.step in steps:
            own = batch["batch_row"] < rows
            batch["row"][own] = block * BLOCK_ROWS + batch["row"][own] % BLOCK_ROWS

    return plant


def worse_state(steps: range, above: float = 1.5) -> Callable[[Batch], None]:
    """Return what raises every loss."""

    def plant(batch: Batch) -> None:
        if batch.step in steps:
            batch.columns["loss"] = batch["loss"] + above

    return plant
