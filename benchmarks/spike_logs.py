"""Logs of real runs for the study of spikes: kept small, regrouped to larger batches, resampled.

A kept log is one ``.npz`` of integers and float16 losses, without text. :func:`data_of` makes of it what ``attribute``
reads, with a manifest that knows shards by number alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit.manifest.tables import TABLES as _MANIFEST
from dataaudit.runlog.format import TABLES, RunFile
from dataaudit.runlog.reader import load_run
from dataaudit.training.attribution.loss_decomposition import Stretches
from dataaudit.training.attribution.residual_outliers import Documents, document_residuals
from dataaudit.training.attribution.run_data import Data

BLOCK_ROWS = 8
COLUMNS = {
    "step": np.uint16,
    "micro_batch": np.uint8,
    "batch_row": np.uint8,
    "start": np.uint8,
    "shard": np.uint8,
    "row": np.uint8,
    "source": np.uint8,
    "epoch": np.uint8,
    "targets": np.uint8,
    "loss": np.float16,
}


@dataclass(frozen=True)
class Log:
    """Stretches of a run, and two numbers a step."""

    columns: dict[str, np.ndarray]
    norms: np.ndarray
    """float[steps] gradient norm of each step, from 1."""
    rates: np.ndarray
    """float[steps] learning rate."""
    sources: tuple[str, ...]
    order: str
    """Of the run: shuffled, buffered, sequential."""
    fault: str = ""
    masked: bool = False
    blocks: tuple[tuple[int, int], ...] = ()
    """Shard and block of what was planted."""
    jumps: tuple[int, ...] = ()
    """Steps from which the learning rate was too high."""
    rows: int = 64
    """Documents of a shard."""

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    @property
    def steps(self) -> int:
        """How many there are."""
        return int(self["step"].max())

    @cached_property
    def planted(self) -> np.ndarray:
        """bool[stretches] which belong to what was planted."""
        chosen = np.zeros(len(self["step"]), dtype=bool)
        for shard, block in self.blocks:
            chosen |= (self["shard"] == shard) & (self["row"] // BLOCK_ROWS == block)
        return chosen

    @cached_property
    def curve(self) -> np.ndarray:
        """float64[steps] the loss."""
        weight = np.bincount(self["step"], self["targets"])[1:]
        total = np.bincount(self["step"], self["targets"] * self["loss"].astype(float))[1:]
        return total / np.maximum(weight, 1)

    def share(self, chosen: np.ndarray) -> np.ndarray:
        """float64[steps] share of the targets of some stretches."""
        part = np.bincount(self["step"], self["targets"] * chosen, minlength=self.steps + 1)[1:]
        return part / np.bincount(self["step"], self["targets"])[1:]

    def regrouped(self, times: int) -> Log:
        """Return the log of steps that are so many times as large; the losses are those of the smaller ones."""
        if times == 1:
            return self
        whole = self.steps // times
        kept = self["step"] <= whole * times
        columns = {name: one[kept] for name, one in self.columns.items()}
        at = columns["step"].astype(np.int64) - 1
        columns |= {"step": at // times + 1, "micro_batch": at % times}
        norms, rates = (one[: whole * times].reshape(whole, times).mean(1) for one in (self.norms, self.rates))
        return replace(self, columns=columns, norms=norms, rates=rates)

    def stretches(self) -> Stretches:
        """Return what the residual test reads."""
        columns = {name: one.astype(np.int64) for name, one in self.columns.items() if name != "loss"}
        zero = np.zeros(len(self["step"]), dtype=np.int64)
        return Stretches(**columns, rank=zero, offset=zero, loss=self["loss"].astype(np.float64))

    def documents(self) -> Documents:
        """Return the residuals of its documents."""
        return document_residuals(self.stretches(), BLOCK_ROWS)

    def save(self, path: Path) -> None:
        """Write it."""
        columns = {name: self[name].astype(kind) for name, kind in COLUMNS.items()}
        said = {
            name: getattr(self, name) for name in ("sources", "order", "fault", "masked", "blocks", "jumps", "rows")
        }
        text = np.frombuffer(json.dumps(said).encode(), dtype=np.uint8)
        numbers = {"norms": self.norms.astype(np.float16), "rates": self.rates.astype(np.float32)}
        np.savez_compressed(path, said=text, **columns, **numbers)


def load(path: Path) -> Log:
    """Read a kept log, or the folder of a real run."""
    if path.is_dir():
        return _of_run(path)
    with np.load(path) as held:
        said = json.loads(held["said"].tobytes())
        columns = {name: held[name].astype(float if name == "loss" else np.int64) for name in COLUMNS}
        norms, rates = held["norms"].astype(float), held["rates"].astype(float)
    said |= {
        "sources": tuple(said["sources"]),
        "blocks": tuple((shard, block) for shard, block in said["blocks"]),
        "jumps": tuple(said["jumps"]),
    }
    return Log(columns=columns, norms=norms, rates=rates, **said)


def _of_run(folder: Path) -> Log:
    truth = json.loads((folder / "truth.json").read_text())
    run, log = truth["run"], load_run(folder)
    table = log.table("stretches").sort_by([(name, "ascending") for name in ("step", "batch_row", "start")])
    columns = {name: table[name].to_numpy().astype(float if name == "loss" else np.int64) for name in COLUMNS}
    values = log.table("values").sort_by("step")
    metric = np.array(values["metric"].to_pylist())
    norms, rates = (values["value"].to_numpy()[metric == one] for one in ("grad_global_norm", "learning_rate"))
    return Log(
        columns=columns,
        norms=norms,
        rates=rates,
        sources=tuple(log.run.sources),
        order=run["order"],
        fault=run["fault"],
        masked=run["masked"],
        blocks=tuple((shard, block) for shard, block in truth["blocks"]),
        jumps=tuple(truth["jumps"]),
    )


class _Shards:
    """Stands for a manifest: shards by number."""

    id = "sha256:" + "0" * 64
    core = SimpleNamespace(
        tokenizer=SimpleNamespace(name="bytes", sha256="", vocab_size=256, special_ids=()), mixture={}
    )

    def __init__(self, shards: int, rows: int) -> None:
        names = [f"part-{one:03d}" for one in range(shards)]
        digests = [f"{one + 1:064x}" for one in range(shards)]
        split = ["train"] * shards
        self._table = pa.table(
            {
                "shard": np.arange(shards),
                "sha256": digests,
                "rows": [rows] * shards,
                "split": split,
                "uri": names,
                "documents": [rows] * shards,
                "tokens": pa.nulls(shards, pa.int64()),
            }
        )

    def metrics(self, _: str) -> tuple[()]:
        """Return no record."""
        return ()

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Return columns of the table of shards; metrics are null. Of others no row."""
        if name != "shards":
            types = {"split": pa.string(), "source": pa.string()}
            return pa.schema([(one, types.get(one, pa.int64())) for one in columns or ()]).empty_table()
        held = {one: self._table[one] for one in self._table.column_names if columns is None or one in columns}
        unknown = [one for one in columns or () if one not in held]
        kinds = {"sources": _MANIFEST["shards"].schema.field("sources").type}
        return pa.table(held | {one: pa.nulls(len(self._table), kinds.get(one, pa.float64())) for one in unknown})


class _Tables:
    """Stands for a run log that was read."""

    torn_bytes = 0
    folder = Path("no-run-log")

    def __init__(self, log: Log, run: RunFile, shards: pa.Table) -> None:
        self.run, self.shards = run, shards
        self._tables = {name: _with_rank(TABLES[name].schema.empty_table()) for name in TABLES}
        number, steps = len(log["step"]), np.arange(1, log.steps + 1)
        zero = np.zeros(number, dtype=np.int64)
        stretches = {**log.columns, "offset": zero, "rank": zero, "loss": log["loss"].astype(float)}
        self._tables["stretches"] = pa.table({name: pa.array(one) for name, one in stretches.items()})
        targets = np.bincount(log["step"], log["targets"])[1:].astype(np.int64)
        none = np.zeros(len(steps), dtype=np.int64)
        self._tables["steps"] = pa.table(
            {
                "rank": none,
                "step": steps,
                "time": none.astype(float),
                "micro_batches": none + 1,
                "targets": targets,
                "scored": targets,
                "loss_sum": log.curve * targets,
                "user_loss": log.curve,
                "merged": none,
            }
        )
        whole = {"layer": np.repeat(none - 1, 2), "head": np.repeat(none - 1, 2), "rank": np.repeat(none, 2)}
        self._tables["values"] = pa.table(
            {
                "step": np.concatenate([steps, steps]),
                "metric": ["grad_global_norm"] * len(steps) + ["learning_rate"] * len(steps),
                "stat": [""] * 2 * len(steps),
                "value": np.concatenate([log.norms, log.rates]),
                **whole,
            }
        )

    def table(self, name: str) -> pa.Table:
        """Return a table."""
        return self._tables[name]


def _with_rank(table: pa.Table) -> pa.Table:
    return table.add_column(0, pa.field("rank", pa.int32()), pa.array([], pa.int32()))


def data_of(log: Log) -> Data:
    """Return what ``attribute`` reads."""
    run = RunFile(
        manifest=_Shards.id,
        dataset="study@1",
        sources=log.sources,
        block_rows=BLOCK_ROWS,
        ranks=1,
        order="documents" if log.order == "shuffled" else "",
        started="2026-11-24T00:00:00Z",
        program="0",
    )
    shards: Any = _Shards(int(log["shard"].max()) + 1, log.rows)
    tables: Any = _Tables(log, run, shards.table("shards"))
    return Data(tables, shards)
