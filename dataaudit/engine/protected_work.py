"""What runs on a worker before the scan: reading held-out documents and evaluation sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.protected.edited import PlainWords
from dataaudit.corpus.protected.sets import SetFileError, read_items
from dataaudit.corpus.readers import PartStats, read_part
from dataaudit.corpus.storage.files import stat_file
from dataaudit.engine.store import PartialStore
from dataaudit.engine.units import HeldOutUnit, Outcome, SetUnit
from dataaudit.engine.work import as_value, hash_file
from dataaudit.kernels.markup import normal_words
from dataaudit.kernels.words import split_words, without_marks

HELD_OUT, HELD_OUT_RECORDS, ITEMS = "held-out-words", "held-out-records", "protected-items"
"""Kinds of entries in the store; where the words of a part are, its records are."""

MAX_COLUMN_NAME = 80
"""Characters of a column's name that are kept for an error."""
_MAX_KNOWN = 1_000


def read_held_out(unit: HeldOutUnit) -> Outcome:
    """Store the words of the documents of a part."""
    return as_value(lambda: _read_held_out(unit))


def _read_held_out(unit: HeldOutUnit) -> Outcome:
    stats, losses = PartStats(), LossLog()
    rows, lengths, hashes = ([np.zeros(0, dtype=kind)] for kind in (np.int64, np.int64, np.uint64))
    plain_lengths, plain_hashes, places = ([np.zeros(0, dtype=kind)] for kind in (np.int64, np.uint64, np.uint32))
    for read in read_part(unit.request, losses, stats):
        batch = read.without(unit.request.without)
        text = batch.byte_values(), batch.byte_offsets()
        words = split_words(*text)
        plain = PlainWords.of(without_marks(normal_words(words, *text), words, *text), words)
        rows.append(batch.rows)
        lengths.append(words.num_words())
        hashes.append(words.hashes.copy())
        plain_lengths.append(np.diff(plain.offsets))
        plain_hashes.append(plain.words.copy())
        places.append(plain.places)
    if stat_file(unit.request.path) != unit.stat and hash_file(unit.request.path) != unit.sha256:
        raise ShardUnreadable(Reason.CHANGED)
    tables = {
        "documents": pa.table(
            {"row": np.concatenate(rows), "words": np.concatenate(lengths), "plain": np.concatenate(plain_lengths)}
        ),
        "words": pa.table({"hash": np.concatenate(hashes)}),
        "plain": pa.table({"hash": np.concatenate(plain_hashes), "place": np.concatenate(places)}),
    }
    store = PartialStore(unit.state)
    meta = {"records": stats.records, "bad": sum(losses.records.values())}
    meta |= {"text_bytes": stats.text_bytes, "bad_bytes": sum(losses.num_bytes.values())}
    store.write(HELD_OUT_RECORDS, unit.key, meta, {})
    store.write(HELD_OUT, unit.key, meta, tables)
    return Outcome()


def read_set(unit: SetUnit) -> Outcome:
    """Store the items of an evaluation set, or what is wrong with which file of it."""
    return as_value(lambda: _read_set(unit))


def _read_set(unit: SetUnit) -> Outcome:
    store = PartialStore(unit.state)
    try:
        found = read_items(unit.paths, unit.fields)
    except SetFileError as error:
        wrong: dict[str, Any] = {"file": error.number}
        if isinstance(error.cause, ShardUnreadable):
            wrong |= {"reason": str(error.cause.reason), "place": error.cause.place}
        else:
            known = [name[:MAX_COLUMN_NAME] for name in error.cause.known[:_MAX_KNOWN]]
            wrong |= {"unknown": error.cause.column, "known": known, "columns": len(error.cause.known)}
        store.write(ITEMS, unit.key, {"wrong": wrong}, {})
        return Outcome()
    columns = {name: [getattr(item, name) for item in found.items] for name in ("id", "question", "answers")}
    text = pa.large_string()
    schema = pa.schema([("id", text), ("question", text), ("answers", pa.large_list(text))])
    meta = {
        "sha256": found.sha256,
        "lost": {str(reason): count for reason, count in sorted(found.losses.records.items())},
        "first": found.first_lost,
    }
    store.write(ITEMS, unit.key, meta, {"items": pa.table(columns, schema=schema)})
    return Outcome()
