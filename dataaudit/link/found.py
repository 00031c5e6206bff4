"""The findings of pattern detectors, gathered from all shards."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.link.joined import Joined
from dataaudit.link.places import read_placed, rows_of, shards_of
from dataaudit.stages.found import FINDING_ROWS

GATHERED = pa.schema([("shard", pa.int32()), *[FINDING_ROWS.field(name) for name in FINDING_ROWS.names[1:]]])


def gather_findings(files: pa.Table, start: int, stop: int) -> Joined:
    """Return the findings of one partition with the shards and rows that they are in.

    Args:
        files: Of schema :data:`dataaudit.link.joined.LINK_FILES`.
        start: First value of the key's first byte.
        stop: Value after the last.

    Returns:
        ``findings``: of schema :data:`GATHERED`, sorted by shard, row and start.

    Raises:
        DamagedRowsError: Files are absent or damaged.
    """
    placed = read_placed(files, FINDING_ROWS, start, stop)
    order = np.lexsort((placed.table["end"].to_numpy(), placed.table["start"].to_numpy(), placed.places))
    table = placed.table.take(pa.array(order))
    places = placed.places[order]
    table = table.set_column(1, "row", pa.array(rows_of(places))).set_column(0, "shard", pa.array(shards_of(places)))
    return Joined(tables={"findings": table.select(GATHERED.names).cast(GATHERED)})
