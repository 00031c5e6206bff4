"""Documents of equal word sequences: one partition of their digests, joined. They are near-duplicates of each other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.kernels.pairing import earlier_twins
from dataaudit.link.joins import Joined
from dataaudit.link.keyed import key_matrix
from dataaudit.link.places import read_placed
from dataaudit.manifest.places import rows_of, shards_of
from dataaudit.metrics.near_dup.rows import DOCUMENTS

CLASS_MEMBERS = pa.schema([("first", pa.int64()), ("place", pa.int64()), ("source", pa.string())])
"""Every document of a class of two or more, with the class's first."""


def link_classes(files: pa.Table, start: int, stop: int) -> Joined:
    """Return ``members``: those of all classes of two or more whose digest's first byte is in [start, stop).

    Args:
        files: Of schema :data:`dataaudit.link.joins.LINK_FILES`.
        start: First value of the first byte.
        stop: Value after the last.

    Raises:
        DamagedFileError: Files are absent or damaged; it names all of them.
    """
    placed = read_placed(files, DOCUMENTS, start, stop)
    if len(placed.places) == 0:
        return Joined(tables={"members": CLASS_MEMBERS.empty_table()})
    keys = np.concatenate([key_matrix(chunk) for chunk in placed.table["key"].chunks if len(chunk)])
    seen, _, first = earlier_twins(keys, shards_of(placed.places), rows_of(placed.places), placed.splits)
    shared = seen.copy()
    shared[first[seen]] = True
    chosen = np.flatnonzero(shared)
    columns = [placed.places[first[chosen]], placed.places[chosen], placed.table["source"].take(pa.array(chosen))]
    return Joined(tables={"members": pa.table(columns, schema=CLASS_MEMBERS)})
