"""What runs on a worker before the scan: reading held-out documents and evaluation sets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.protected.sets import UnknownColumnError, read_items
from dataaudit.corpus.readers import PartStats, read_part
from dataaudit.engine.index import stat_file
from dataaudit.engine.store import PartialStore
from dataaudit.engine.units import HeldOutUnit, Outcome, SetUnit
from dataaudit.engine.work import as_value, hash_file
from dataaudit.kernels.words import split_words

HELD_OUT, ITEMS = "held-out-words", "protected-items"
"""Kinds of entries in the store."""


def read_held_out(unit: HeldOutUnit) -> Outcome:
    """Store the words of the documents of a part."""
    return as_value(lambda: _read_held_out(unit))


def _read_held_out(unit: HeldOutUnit) -> Outcome:
    stats = PartStats()
    rows, lengths, hashes = ([np.zeros(0, dtype=kind)] for kind in (np.int64, np.int64, np.uint64))
    for batch in read_part(unit.request, LossLog(), stats):
        words = split_words(batch.byte_values(), batch.byte_offsets())
        rows.append(batch.rows)
        lengths.append(words.num_words())
        hashes.append(words.hashes.copy())
    if stat_file(unit.request.path) != unit.stat and hash_file(unit.request.path) != unit.sha256:
        raise ShardUnreadable(Reason.CHANGED)
    tables = {
        "documents": pa.table({"row": np.concatenate(rows), "words": np.concatenate(lengths)}),
        "words": pa.table({"hash": np.concatenate(hashes)}),
    }
    PartialStore(unit.state).write(HELD_OUT, unit.key, {"records": stats.records}, tables)
    return Outcome()


def read_set(unit: SetUnit) -> Outcome:
    """Store the items of an evaluation set, or which column is not there."""
    return as_value(lambda: _read_set(unit))


def _read_set(unit: SetUnit) -> Outcome:
    store = PartialStore(unit.state)
    try:
        found = read_items(unit.paths, unit.fields)
    except UnknownColumnError as error:
        store.write(ITEMS, unit.key, {"unknown": error.column, "known": list(error.known)}, {})
        return Outcome()
    columns = {name: [getattr(item, name) for item in found.items] for name in ("id", "question", "answer")}
    schema = pa.schema([(name, pa.large_string()) for name in columns])
    losses = found.losses
    first = min((places[0][0] for places in losses.places.values()), default=-1)
    meta = {
        "sha256": found.sha256,
        "lost": {str(reason): count for reason, count in sorted(losses.records.items())},
        "first": f"record {first}" if first >= 0 else "",
    }
    store.write(ITEMS, unit.key, meta, {"items": pa.table(columns, schema=schema)})
    return Outcome()
