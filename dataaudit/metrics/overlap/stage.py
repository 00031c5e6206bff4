"""Leaks into training: the training documents that hold text of held-out splits and evaluation sets.

The stage emits the matches of every document, and the joins here count and list them by partition. The link step
computes the rates of protected sets (:mod:`dataaudit.metrics.overlap.leakage`); see ``dataaudit explain leakage``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.manifest.locate import is_new, places_of
from dataaudit.manifest.metric import HELD_OUT_SAMPLED
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.overlap.leakage import CommonText
from dataaudit.scan.annotators import MATCHES, WORDS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.protected.ngram_index import EDITED, GRAM, MatchBatch
from dataaudit.scan.cross_shard.joins import Joined
from dataaudit.scan.cross_shard.keyed import key_array, read_all, read_placed, spread
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

HELD_OUT_VERSION, COPIES_VERSION, ITEMS_VERSION = "2", "3", "2"
"""Versions of ``train_val_overlap``, of its ``train_documents``, and of ``benchmark_contamination``."""
GRAM_ROWS, MATCH_ROWS = "grams", "matches"
"""Names of the keyed tables."""
ITEM, HELD_OUT = 0, 1
"""Kinds of targets of matches."""
_KEY_BYTES = 8
_SHAPES = {
    "documents": TableShape(keys={"source": pa.string()}, sums=("documents", "held_out", "verbatim", "similar")),
    "sets": TableShape(keys={"source": pa.string(), "set": pa.int64()}, sums=("verbatim", "similar")),
}
_KEYED = [("key", pa.binary(_KEY_BYTES)), ("row", pa.int64()), ("source", pa.string()), ("kind", pa.uint8())]
_NUMBERS = ("part", "tier", "rule", "start", "end", "common", "of", "crowded", "first", "length")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap(StageDefaults):
    """Finds held-out documents and evaluation items in training documents.

    Runs on splits that are not held out, of builds that protect something.
    """

    max_grams: int = 20_000_000
    """13-grams of held-out documents in the index; of more documents a sample is looked for."""
    max_rows: int = 1_000
    """Training documents that are listed for each held-out document, or part of an item."""

    name: ClassVar[str] = "overlap"
    version: ClassVar[str] = "5"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS, MATCHES)
    training_only: ClassVar[bool] = True
    emits: ClassVar[Mapping[str, pa.Schema]] = {
        GRAM_ROWS: pa.schema([*_KEYED, ("entry", pa.uint32()), ("documents", pa.int64())]),
        MATCH_ROWS: pa.schema([*_KEYED, *((name, pa.int64()) for name in ("target", *_NUMBERS))]),
    }

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 1_000 <= self.max_grams <= 1_000_000_000:
            raise ValueError(f"max_grams: expected 1,000 to 1,000,000,000, found {self.max_grams}")
        if self.max_rows < 1:
            raise ValueError(f"max_rows: expected at least 1, found {self.max_rows}")

    def shapes(self) -> Mapping[str, TableShape]:
        """Training documents by source: all, those with items, also by set; the link step adds those with copies."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Count the documents that hold protected items."""
        matches = _matches(batch)
        sources = batch.sources().cast(pa.string())
        items = matches.items
        verbatim, similar = (_marked(items[items[:, 4] <= tier, 0], len(batch)) for tier in (0, 1))
        ones = np.ones(len(batch), dtype=np.int64)
        documents = {
            "source": sources,
            "documents": ones,
            "held_out": np.zeros(len(batch), dtype=np.int64),
            "verbatim": verbatim,
            "similar": similar,
        }
        pairs = np.unique(items[:, [0, 1]], axis=0)
        exact = {tuple(pair) for pair in items[items[:, 4] == 0][:, [0, 1]].tolist()}
        sets = {
            "source": sources.take(pa.array(pairs[:, 0])),
            "set": pairs[:, 1],
            "verbatim": np.array([tuple(pair) in exact for pair in pairs.tolist()], dtype=np.int64),
            "similar": np.ones(len(pairs), dtype=np.int64),
        }
        return {
            "documents": group(_SHAPES["documents"], pa.table(documents)),
            "sets": group(_SHAPES["sets"], pa.table(sets)),
        }

    def emit(self, batch: DocBatch) -> dict[str, pa.Table]:
        """Return the protected grams of the batch, with the number of documents that hold each, and every match."""
        matches = _matches(batch)
        return {GRAM_ROWS: _gram_rows(batch, matches.entries), MATCH_ROWS: _match_rows(batch, matches)}

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the share of training documents that hold protected text, of the scope and of each source."""
        table = partial["documents"]
        held_out, groups = (Groups.of(table, context.scope, version) for version in (COPIES_VERSION, ITEMS_VERSION))
        documents = groups.sums(table, "documents")

        def rate(metric: str, name: str, own: Groups) -> MetricRows:
            return own.ratios(metric, "train_documents", groups.sums(table, name), documents)

        metrics = [rate("train_val_overlap", "held_out", held_out)] if "held_out" in context.protects else []
        if "held_out_sample" in context.protects:
            value = groups.sums(table, "held_out") / np.maximum(documents, 1)
            named = ("train_val_overlap", "train_documents", "ratio")
            metrics = [held_out.unbounded(*named, value, documents, reason=HELD_OUT_SAMPLED)]
        if "items" in context.protects:
            metrics += [
                rate("benchmark_contamination", tier, groups.among(rule=tier)) for tier in ("verbatim", "similar")
            ]
        return MetricRows.joined(metrics)

    def shard_columns(self, partial: Partial) -> dict[str, int | None]:
        """Nothing: the partial does not know what the build protects, so the link step fills the columns."""
        del partial
        return {}


def _matches(batch: DocBatch) -> MatchBatch:
    return batch.get(MATCHES)


def _marked(documents: np.ndarray, num_documents: int) -> np.ndarray:
    marked = np.zeros(num_documents, dtype=np.int64)
    marked[documents] = 1
    return marked


def _keys(kinds: np.ndarray, numbers: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return evenly spread keys: the finaliser of SplitMix64 over kind and number."""
    value = kinds.astype(np.uint64) << np.uint64(56) | numbers.astype(np.uint64)
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(_KEY_BYTES), len(value), [None, pa.py_buffer(value.astype(">u8"))]
    )


def _gram_rows(batch: DocBatch, entries: np.ndarray) -> pa.Table:
    """Add up the documents of a batch that hold a gram, by source."""
    codes = batch.source_codes[entries[:, 1]].astype(np.int64)
    order = np.lexsort((entries[:, 1], codes, entries[:, 2], entries[:, 0]))
    entries, codes = entries[order], codes[order]
    starts = np.flatnonzero(is_new(entries[:, 0], entries[:, 2], codes))
    kinds, numbers = entries[starts, 0], entries[starts, 2]
    names = pa.array(batch.source_names, pa.string())
    return pa.table(
        {
            "key": _keys(kinds, numbers),
            "row": batch.rows[entries[starts, 1]],
            "source": names.take(pa.array(codes[starts])),
            "kind": kinds.astype(np.uint8),
            "entry": numbers.astype(np.uint32),
            "documents": np.diff(np.append(starts, len(order))),
        },
        schema=Overlap.emits[GRAM_ROWS],
    )


def _match_rows(batch: DocBatch, matches: MatchBatch) -> pa.Table:
    """Return a row for each match of an item or a held-out document."""
    items, held_out = matches.items, matches.held_out
    zeros, sames = np.zeros((len(items), 3), dtype=np.int64), np.zeros((len(held_out), 2), dtype=np.int64)
    numbers = np.concatenate(
        [
            np.hstack([items[:, [2, 3, 4, 5, 6, 7, 8, 9]], zeros]),
            np.hstack([held_out[:, [2]], sames, held_out[:, [0, 3, 4, 5, 6, 7, 8, 9]]]),
        ]
    )
    kinds = np.repeat(np.array([ITEM, HELD_OUT], dtype=np.uint8), [len(items), len(held_out)])
    documents = np.concatenate([items[:, 0], held_out[:, 1]])
    columns = {
        "key": _keys(kinds, numbers[:, 0]),
        "row": batch.rows[documents],
        "source": batch.sources().cast(pa.string()).take(pa.array(documents)),
        "kind": kinds,
        "target": numbers[:, 0],
    }
    columns |= {name: numbers[:, index] for index, name in enumerate(_NUMBERS, 1)}
    return pa.table(columns, schema=Overlap.emits[MATCH_ROWS])


_SEEN = TableShape(keys={"kind": pa.uint8(), "entry": pa.uint32(), "source": pa.string()}, sums=("documents",))
_COUNTS = TableShape(
    keys={"kind": pa.uint8(), **dict.fromkeys(("target", "part", "tier"), pa.int64()), "source": pa.string()},
    sums=("documents", "crowded", "own"),
)
_COPIED = TableShape(keys={"shard": pa.int32(), "source": pa.string()}, sums=("held_out",))
SEEN, COUNTS, COPIED = _SEEN.schema(), _COUNTS.schema(), _COPIED.schema()
ROWS = pa.schema(
    [
        ("kind", pa.uint8()),
        *((name, pa.int64()) for name in ("target", "part", "tier", "rule")),
        *(("shard", pa.int32()), ("row", pa.int64())),
        *((name, pa.int64()) for name in ("start", "end", "common", "of", "own", "own_of")),
    ]
)
COPIES = pa.schema([("key", pa.binary(8)), ("shard", pa.int32()), ("row", pa.int64()), ("source", pa.string())])


def link_grams(files: pa.Table, start: int, stop: int) -> Joined:
    """Add up the documents that hold a protected gram, over all shards."""
    return Joined(tables={"seen": group(_SEEN, read_placed(files, Overlap.emits[GRAM_ROWS], start, stop).table)})


def link_matches(files: pa.Table, start: int, stop: int, *, max_rows: int, common: CommonText) -> Joined:
    """Count the documents that hold a protected item or document, and list the first of them."""
    read = read_placed(files, Overlap.emits[MATCH_ROWS], start, stop)
    if read.table.num_rows == 0:
        empty = {"counts": COUNTS.empty_table(), "rows": ROWS.empty_table()}
        return Joined(tables=empty, keyed={"copies": COPIES.empty_table()})
    placed = read.table.drop_columns(["key", "row"])
    placed = placed.append_column("shard", pa.array(read.shards)).append_column("row", pa.array(read.rows))
    order = ["kind", "target", "part", "shard", "row", "tier", "rule", "start", "end"]
    placed = placed.sort_by([(name, "ascending") for name in order])
    kinds, targets, parts, shards, rows = (placed[name].to_numpy() for name in order[:5])
    placed, copies = _without_common(placed, common)
    last = placed["own"].to_numpy() == 0
    starts = np.flatnonzero(is_new(kinds, targets, parts))
    number = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(kinds))))
    rank = np.empty(len(kinds), dtype=np.int64)
    rank[np.lexsort((last, number))] = np.arange(len(kinds)) - starts[number]
    listed = placed.filter(pa.array(rank < max_rows)).select(ROWS.names).cast(ROWS)
    is_edited = (kinds == HELD_OUT) & (placed["rule"].to_numpy() == EDITED)
    first = np.flatnonzero(is_new(kinds, targets, parts, shards, rows, is_edited))
    once = placed.take(pa.array(first)).drop_columns(["own", "part"])
    counted = once.append_column("documents", pa.array(np.ones(once.num_rows, dtype=np.int64)))
    counted = counted.append_column("own", pa.array(np.maximum.reduceat(~last, first).astype(np.int64)))
    counted = counted.append_column("part", pa.array(np.where(is_edited, EDITED, parts)[first]))
    counts = group(_COUNTS, counted.select(COUNTS.names))
    return Joined(tables={"counts": counts, "rows": listed}, keyed={"copies": copies})


def _without_common(placed: pa.Table, common: CommonText) -> tuple[pa.Table, pa.Table]:
    """Return matches with their share without common text, ``own`` of ``own_of``, and the rows of copies."""
    kinds, rules, shared, of = (placed[name].to_numpy() for name in ("kind", "rule", "common", "of"))
    is_document = kinds == HELD_OUT
    own, own_of = shared.copy(), of.copy()
    names = ("rule", "target", "common", "of", "first", "length")
    numbers = [placed[name].to_numpy()[is_document] for name in names]
    own[is_document], own_of[is_document] = common.without(*numbers)
    copied = placed.filter(pa.array(is_document & (rules != GRAM) & (own > 0)))
    keys = key_array(spread(places_of(copied["shard"].to_numpy(), copied["row"].to_numpy())))
    copies = pa.table([keys, copied["shard"], copied["row"], copied["source"]], schema=COPIES)
    return placed.append_column("own", pa.array(own)).append_column("own_of", pa.array(own_of)), copies


def link_copies(files: pa.Table, start: int, stop: int) -> Joined:
    """Count the training documents that hold a copy of held-out text that is not common."""
    once = read_all(files, COPIES, start, stop).group_by(["shard", "row", "source"], use_threads=False).aggregate([])
    counted = once.append_column("held_out", pa.array(np.ones(once.num_rows, dtype=np.int64)))
    return Joined(tables={"copied": group(_COPIED, counted.select(COPIED.names))})
