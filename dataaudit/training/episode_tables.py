"""What shards, blocks, sources and documents add to an episode, and what the manifest says of a shard."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.metrics.peers import COLUMNS, Peers, robust
from dataaudit.robust import Floats, Ints, Mask
from dataaudit.training.accounting import Account, Stretches
from dataaudit.training.deciding import Unit, sorted_parts, unit_rows
from dataaudit.training.findings import Document, Place, ShardMetric, Share
from dataaudit.training.replay_findings import number
from dataaudit.training.run_data import Data

LISTED = 20
"""Documents, blocks and shards that are listed of an episode."""
_PLACES = 3
_METRICS = (
    "bytes_per_token",
    "seq_len_p50",
    "exact_dup_rate",
    "near_dup_rate",
    "repeat_token_share",
    "token_kl_drift",
    "filter_reject_rate",
    "toxicity_screen",
    "contaminated",
    "held_out_copies",
)
"""Metrics of a shard that are shown; those of personal data and secrets, whose small counts are hidden, are left to
`dataaudit inspect`."""
_COUNTED = frozenset({"contaminated", "held_out_copies"})
_UNBOUNDED = frozenset({"bytes_per_token", "seq_len_p50", "token_kl_drift"})
_RATE_FLOOR = 0.02
"""Least robust standard deviation of a rate: that of a small shard moves by chance alone."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What shards, blocks, sources and documents add to an episode."""

    data: Data
    stretches: Stretches
    weights: Floats
    account: Account | None = None
    """None where losses are not finite."""
    common: float = 0.0

    def all(self, chosen: Mask) -> dict[str, Any]:
        """Return every table, documents of some stretches alone.

        Args:
            chosen: bool[n]
        """
        rows = self.data.log.run.block_rows
        shards, blocks = self._sorted(self.stretches.units(0)), self._sorted(self.stretches.units(rows))
        documents = [one for one in self._sorted(np.where(chosen, self.stretches.units(1), -1)) if one >= 0]
        return {
            "num_shards": sum(one >= 0 for one in shards),
            "num_blocks": sum(one >= 0 for one in blocks),
            "num_documents": len(documents),
            "shards": tuple(self.unit(Unit(number=one, rows=0)) for one in shards[:LISTED]),
            "blocks": tuple(self.unit(Unit(number=one, rows=rows)) for one in blocks[:LISTED]),
            "sources": self._sources(),
            "documents": tuple(self._document(Unit(number=one, rows=1)) for one in documents[:LISTED]),
        }

    def unit(self, unit: Unit) -> Share:
        """Return what a block or a shard adds."""
        return Share(**self._named(unit), **self._sums(unit.of(self.stretches)))

    def _sources(self) -> tuple[Share, ...]:
        names, source = self.data.log.run.sources, self.stretches.source
        codes = np.where((source >= 0) & (source < len(names)), source, -1)
        return tuple(
            Share(name=names[code] if code >= 0 else "", **self._sums(codes == code))
            for code in self._sorted(codes)[:LISTED]
        )

    def _document(self, unit: Unit) -> Document:
        mask = unit.of(self.stretches)
        held = self.stretches.take(np.flatnonzero(mask)[:_PLACES])
        names = ("step", "rank", "micro_batch", "batch_row", "start", "targets", "offset")
        columns = zip(*(getattr(held, name).tolist() for name in names), strict=True)
        places = tuple(Place(**dict(zip(names, one, strict=True))) for one in columns)
        return Document(**self._named(unit), **self._sums(mask), places=places)

    def _named(self, unit: Unit) -> dict[str, Any]:
        """Return what says which unit it is."""
        shard = unit.shard
        first, last = unit_rows(unit)
        if unit.rows > 1 and last is not None and self.data.rows[shard] > first:
            last = min(last, int(self.data.rows[shard]) - 1)
        twins: list[int] = np.flatnonzero(self.data.twins == shard).tolist()
        return {
            "name": self.data.names[shard] if shard >= 0 else "",
            "shard": shard,
            "first_row": first,
            "last_row": last,
            "twins": tuple(one for one in twins if one != shard),
        }

    def _sorted(self, numbers: Ints) -> list[int]:
        """Return the distinct numbers, that with the largest part first."""
        parts = self.weights if self.account is None else self.account.parts(self.common)
        return sorted_parts(numbers, parts)

    def _sums(self, mask: Mask) -> dict[str, Any]:
        weight, targets = float(self.weights[mask].sum()), int(self.stretches.targets[mask].sum())
        steps = len(np.unique(self.stretches.step[mask]))
        sums = {"steps": steps, "targets": targets, "weight": round(weight, 12)}
        if self.account is None:
            return {**sums, "loss": None, "expected": None, "part": None, "share": None}
        loss = float(np.dot(self.weights[mask], self.stretches.loss[mask])) / weight
        above = float(np.dot(self.weights[mask], self.account.residuals[mask])) / weight
        part = float(self.account.parts(self.common)[mask].sum())
        share = part / self.account.excess if self.account.excess > 0 else math.nan
        values = {"loss": loss, "expected": loss - above, "part": part, "share": share}
        return {**sums, **{name: number(value) for name, value in values.items()}}


def shard_metrics(manifest: Manifest, shard: int) -> tuple[ShardMetric, ...]:
    """Return metrics of a shard beside the medians of its peers, what is farthest from them first."""
    table = manifest.table("shards", [*COLUMNS, "documents", *_METRICS])
    documents = table["documents"].to_numpy()
    groups = Peers.of(table).groups
    among = (groups == groups[shard]) & (documents > 0) & (np.arange(len(groups)) != shard)
    found = []
    for name in _METRICS:
        values = pc.cast(table[name], pa.float64()).to_numpy(zero_copy_only=False)
        if name in _COUNTED:
            values = values / np.maximum(documents, 1)
        others = values[among & np.isfinite(values)]
        if not math.isfinite(values[shard]) or not len(others):
            continue
        median, spread = robust(others)
        spread = max(spread, 0.0 if name in _UNBOUNDED else _RATE_FLOOR)
        away = number((float(values[shard]) - median) / spread) if spread > 0 else None
        found.append(ShardMetric(metric=name, value=round(float(values[shard]), 12), median=median, deviations=away))
    return tuple(sorted(found, key=lambda one: -abs(one.deviations or 0.0)))
