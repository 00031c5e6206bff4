"""What link steps and the driver see of the partials of all shards: few tables by shard, sums of some by split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

Place = tuple[str, str]
"""Names of a stage and of a table of its partials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Tables of partials of all shards that were read, as far as a family's definition names them."""

    by_shard: Mapping[Place, pa.Table] = field(default_factory=dict)
    """The rows of each shard, by shard, before them the column ``shard``, int32."""
    by_split: Mapping[Place, pa.Table] = field(default_factory=dict)
    """The rows of each split merged, by split, before them the column ``split``."""

    def total(self, stage: str, table: str, column: str) -> int:
        """Return the sum of a column over all splits."""
        return int(pc.sum(self.by_split[stage, table][column]).as_py() or 0)

    def source_totals(self) -> dict[str, int]:
        """Return the tokens of each source."""
        table = self.by_split["volume", "volume"].group_by("source", use_threads=False).aggregate([("tokens", "sum")])
        return dict(zip(table["source"].to_pylist(), table["tokens_sum"].to_pylist(), strict=True))
