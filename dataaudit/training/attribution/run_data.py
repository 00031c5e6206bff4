"""A run log beside the manifest that the run was trained on: its curve, its stretches, its shards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import ManifestMismatch, RunLogError
from dataaudit.base.statistics import Ints
from dataaudit.base.text import plural
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.runlog.format import WINDOW_STEPS
from dataaudit.runlog.reader import RunLog, load_run
from dataaudit.training.attribution.curve import Curve, Judged, curve_of, judge_run
from dataaudit.training.attribution.loss_decomposition import Stretches, Unit, block_of, shard_of
from dataaudit.training.attribution.run_facts import reported_of
from dataaudit.training.corpus import lowest_equal


@dataclass(frozen=True)
class Data:
    """A run log beside the manifest that the run was trained on."""

    log: RunLog
    manifest: Manifest
    reference: RunLog | None = None
    """Of a healthy run that the run is compared with."""

    @cached_property
    def curve(self) -> Curve:
        """Every step's loss."""
        return curve_of(self.log.table("steps"), self.log.table("events"))

    @cached_property
    def judged(self) -> Judged:
        """The curve with the detector's verdicts."""
        return judge_run(self.log, self.curve)

    @cached_property
    def stretches(self) -> Stretches:
        """All stretches whose loss is known, by step; those of shards with equal bytes under the lowest ordinal."""
        table = self.log.table("stretches")
        table = table.filter(pc.and_(pc.is_valid(table["loss"]), pc.greater(table["targets"], 0)))
        order = np.argsort(table["step"].to_numpy(), kind="stable")
        columns = {name: table[name].to_numpy()[order].astype(np.int64) for name in Stretches.__slots__[:-1]}
        shard, twins = columns["shard"], self.twins
        if len(shard) and not -1 <= int(shard.min()) <= int(shard.max()) < len(twins):
            raise RunLogError(
                f"{self.log.folder} names the shards {shard.min()} to {shard.max()}, the manifest has"
                f" {plural(len(twins), 'shard')}",
                "Its stretches are damaged.",
            )
        columns["shard"] = np.append(twins, -1)[shard]
        return Stretches(**columns, loss=table["loss"].to_numpy()[order].astype(np.float64))

    def of_steps(self, steps: Ints) -> Stretches:
        """Return the stretches of some steps."""
        return self.stretches.take(np.isin(self.stretches.step, steps))

    @cached_property
    def amounts(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Step (or first step of a window), shard, source and targets of all that was trained on."""
        stretches, sums = self.log.table("stretches"), self.log.table("sums")
        shard, source, targets = (
            np.concatenate([table[name].to_numpy().astype(np.int64) for table in (stretches, sums)])
            for name in ("shard", "source", "targets")
        )
        step = np.concatenate([stretches["step"].to_numpy(), sums["window"].to_numpy()]).astype(np.int64)
        return step // WINDOW_STEPS if len(sums) else step, shard, source, targets

    @cached_property
    def opened(self) -> pa.Table:
        """Shards that loaders got, with their columns in the manifest."""
        shards = self.manifest.table("shards", ["shard", "split", "documents", "tokens", "sources", "languages"])
        if "held" not in self.log.shards.column_names:
            return shards
        return shards.filter(pc.equal(self.log.shards["held"], ""))

    @cached_property
    def splits(self) -> list[str]:
        """Splits of the opened shards."""
        return sorted(set(self.opened["split"].to_pylist()))

    @cached_property
    def same_tokens(self) -> bool:
        """Whether ids are meant to be those of the manifest's tokenizer."""
        own, name = self.manifest.core.tokenizer, reported_of(self.log.table("events")).get("tokenizer", "")
        return name in ("", own.name, own.sha256, f"sha256:{own.sha256}")

    @cached_property
    def twins(self) -> Ints:
        """By ordinal: the lowest with equal bytes; its own when no other has, or it was not read."""
        return lowest_equal(self.manifest.table("shards", ["sha256"])["sha256"])

    @cached_property
    def rows(self) -> Ints:
        """Records by ordinal."""
        rows: Ints = self.manifest.table("shards", ["rows"])["rows"].to_numpy()
        return rows

    def whole(self, unit: Unit) -> Unit:
        """Return a block as its shard where that has no other block."""
        if unit.rows and 0 < self.rows[unit.shard] <= unit.rows:
            return Unit(number=unit.shard, rows=0)
        return unit

    def named(self, shard: int, first_row: int | None = None, rows: int = 0) -> dict[str, Any]:
        """Return what names a shard in a record, or rows of it from the first on: as many as a block has by default."""
        last = None
        if first_row is not None:
            last = min(first_row + (rows or self.log.run.block_rows), max(int(self.rows[shard]), first_row + 1)) - 1
        name = self.names[shard] if shard >= 0 else ""
        return {"name": name, "shard": shard, "first_row": first_row, "last_row": last}

    def named_unit(self, unit: int) -> dict[str, Any]:
        """Return what names a block by its number, or a shard by -1 - ordinal."""
        if unit < 0:
            return self.named(-1 - unit)
        return self.named(shard_of(unit), block_of(unit) * self.log.run.block_rows)

    @cached_property
    def names(self) -> list[str]:
        """``split/uri`` by ordinal."""
        table = self.manifest.table("shards", ["split", "uri"])
        return [
            f"{split}/{uri}" for split, uri in zip(table["split"].to_pylist(), table["uri"].to_pylist(), strict=True)
        ]


def load_data(log: Path, manifest: Path, reference: Path | None = None) -> Data:
    """Load a run log and the manifest that it has to be of."""
    data = Data(load_run(log), load_manifest(manifest), None if reference is None else load_run(reference))
    trained, opened = data.log.run.manifest, data.manifest.id
    if trained is None:
        raise RunLogError(
            f"{log} is the log of a run that opened no manifest: its batches have no tags",
            "Train on what `open_manifest` opens: `dataaudit explain training`. Of Megatron, nanoGPT, OLMo-core or"
            f" torchtitan: `dataaudit reconstruct NEW-FOLDER --manifest {manifest} --order olmo ...` writes a log with"
            " the documents of each step: `dataaudit explain reconstruct`.",
        )
    if trained != opened:
        raise RunLogError(
            f"{log} is the log of a run on the manifest {trained}, {manifest} is {opened}",
            "Name the manifest that the run was trained on: ordinals of shards mean nothing in another one.",
        )
    copied, shards = data.log.shards, data.manifest.table("shards", ["shard", "sha256"])
    for name in {"shard", "sha256"} & set(copied.column_names):
        if copied[name].to_pylist() != shards[name].to_pylist():
            raise ManifestMismatch(
                f"the table of shards in {log} is not that of {manifest}", "One of them was changed."
            )
    return data
