"""Leaks into training: what of held-out splits and evaluation sets training documents hold.

``train_val_overlap`` and ``benchmark_contamination`` themselves, which speak of what is protected, are computed in the
link step (:mod:`dataaudit.metrics.overlap.leakage`); here are the training documents. Words:
``dataaudit explain leakage``.

What training documents hold of protected sets, of one partition of it: counts, and the first places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.manifest.locate import places_of
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.overlap.leakage import CommonText
from dataaudit.scan.annotators import MATCHES, WORDS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.protected.ngram_index import EDITED, GRAM, MatchBatch
from dataaudit.scan.link.joins import Joined
from dataaudit.scan.link.places import key_array, read_all, read_placed, spread
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

HELD_OUT_VERSION, COPIES_VERSION, ITEMS_VERSION = "2", "3", "2"
"""Of the definitions of ``train_val_overlap``, of its ``train_documents``, and of ``benchmark_contamination``."""
GRAM_ROWS, MATCH_ROWS = "grams", "matches"
"""Names of the keyed tables."""
ITEM, HELD_OUT = 0, 1
"""Kinds of targets of matches."""
_KEY_BYTES = 8
_SHAPES = {
    "documents": TableShape(keys={"source": pa.string()}, sums=("documents", "held_out", "verbatim", "similar")),
    "sets": TableShape(keys={"source": pa.string(), "set": pa.int64()}, sums=("verbatim", "similar")),
}
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
        GRAM_ROWS: pa.schema(
            [
                ("key", pa.binary(_KEY_BYTES)),
                ("row", pa.int64()),
                ("source", pa.string()),
                ("kind", pa.uint8()),
                ("entry", pa.uint32()),
                ("documents", pa.int64()),
            ]
        ),
        MATCH_ROWS: pa.schema(
            [
                ("key", pa.binary(_KEY_BYTES)),
                ("row", pa.int64()),
                ("source", pa.string()),
                ("kind", pa.uint8()),
                ("target", pa.int64()),
                *((name, pa.int64()) for name in _NUMBERS),
            ]
        ),
    }

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 1_000 <= self.max_grams <= 1_000_000_000:
            raise ValueError(f"max_grams: expected 1,000 to 1,000,000,000, found {self.max_grams}")
        if self.max_rows < 1:
            raise ValueError(f"max_rows: expected at least 1, found {self.max_rows}")

    def shapes(self) -> Mapping[str, TableShape]:
        """Training documents by source: all, those with copies, those with items, these by set, too.

        Those with a copied span or an edited copy are added by the link step, which knows what is common.
        """
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Count the documents that hold something."""
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
        """Return the protected grams that were seen, with how many documents hold each, and every match."""
        matches = _matches(batch)
        return {GRAM_ROWS: _gram_rows(batch, matches.entries), MATCH_ROWS: _match_rows(batch, matches)}

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the share of training documents that hold something, of the scope and of each source."""
        table = partial["documents"]
        held_out, groups = (Groups.of(table, context.scope, version) for version in (COPIES_VERSION, ITEMS_VERSION))
        documents = groups.sums(table, "documents")

        def rate(metric: str, name: str, own: Groups) -> MetricRows:
            return own.ratios(metric, "train_documents", groups.sums(table, name), documents)

        metrics = [rate("train_val_overlap", "held_out", held_out)] if "held_out" in context.protects else []
        if "items" in context.protects:
            metrics += [
                rate("benchmark_contamination", tier, groups.among(rule=tier)) for tier in ("verbatim", "similar")
            ]
        return MetricRows.joined(metrics)

    def shard_columns(self, partial: Partial) -> dict[str, int | None]:
        """Fill none here: what a build does not protect has no number, and the partial does not know."""
        del partial
        return {}


def _matches(batch: DocBatch) -> MatchBatch:
    return batch.get(MATCHES)


def _marked(documents: np.ndarray, num_documents: int) -> np.ndarray:
    marked = np.zeros(num_documents, dtype=np.int64)
    marked[documents] = 1
    return marked


def _keys(kinds: np.ndarray, numbers: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return keys that fall evenly on partitions: the finaliser of SplitMix64 over kind and number."""
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
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (np.diff(entries[:, 0]) != 0) | (np.diff(entries[:, 2]) != 0) | (np.diff(codes) != 0)
    starts = np.flatnonzero(fresh)
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
    """Return a row for each match: of an item, or of a held-out document."""
    items, held = matches.items, matches.held_out
    zeros, sames = np.zeros((len(items), 3), dtype=np.int64), np.zeros((len(held), 2), dtype=np.int64)
    numbers = np.concatenate(
        [
            np.hstack([items[:, [2, 3, 4, 5, 6, 7, 8, 9]], zeros]),
            np.hstack([held[:, [2]], sames, held[:, [0, 3, 4, 5, 6, 7, 8, 9]]]),
        ]
    )
    kinds = np.repeat(np.array([ITEM, HELD_OUT], dtype=np.uint8), [len(items), len(held)])
    documents = np.concatenate([items[:, 0], held[:, 1]])
    columns = {
        "key": _keys(kinds, numbers[:, 0]),
        "row": batch.rows[documents],
        "source": batch.sources().cast(pa.string()).take(pa.array(documents)),
        "kind": kinds,
        "target": numbers[:, 0],
    }
    columns |= {name: numbers[:, index] for index, name in enumerate(_NUMBERS, 1)}
    return pa.table(columns, schema=Overlap.emits[MATCH_ROWS])


SEEN = pa.schema([("kind", pa.uint8()), ("entry", pa.uint32()), ("source", pa.string()), ("documents", pa.int64())])
COUNTS = pa.schema(
    [
        ("kind", pa.uint8()),
        ("target", pa.int64()),
        ("part", pa.int64()),
        ("tier", pa.int64()),
        ("source", pa.string()),
        ("documents", pa.int64()),
        ("crowded", pa.int64()),
        ("own", pa.int64()),
    ]
)
ROWS = pa.schema(
    [("kind", pa.uint8()), ("target", pa.int64())]
    + [(name, pa.int64()) for name in ("part", "tier", "rule")]
    + [("shard", pa.int32()), ("row", pa.int64())]
    + [(name, pa.int64()) for name in ("start", "end", "common", "of", "own", "own_of")]
)
COPIES = pa.schema([("key", pa.binary(8)), ("shard", pa.int32()), ("row", pa.int64()), ("source", pa.string())])
COPIED = pa.schema([("shard", pa.int32()), ("source", pa.string()), ("held_out", pa.int64())])


def link_grams(files: pa.Table, start: int, stop: int) -> Joined:
    """Add up the documents that hold a protected gram, over all shards."""
    rows = read_placed(files, Overlap.emits[GRAM_ROWS], start, stop).table
    seen = rows.group_by(["kind", "entry", "source"], use_threads=False).aggregate([("documents", "sum")])
    seen = seen.rename_columns({"documents_sum": "documents"}).select(SEEN.names).cast(SEEN)
    order = [(name, "ascending") for name in ("kind", "entry", "source")]
    return Joined(tables={"seen": seen.sort_by(order)})


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
    group = _run_starts(kinds, targets, parts)
    number = np.repeat(np.arange(len(group)), np.diff(np.append(group, len(kinds))))
    rank = np.empty(len(kinds), dtype=np.int64)
    rank[np.lexsort((last, number))] = np.arange(len(kinds)) - group[number]
    listed = placed.filter(pa.array(rank < max_rows)).select(ROWS.names).cast(ROWS)
    is_edited = (kinds == HELD_OUT) & (placed["rule"].to_numpy() == EDITED)
    first = _run_starts(kinds, targets, parts, shards, rows, is_edited)
    once = placed.take(pa.array(first)).drop_columns(["own", "part"])
    counted = once.append_column("documents", pa.array(np.ones(once.num_rows, dtype=np.int64)))
    counted = counted.append_column("own", pa.array(np.maximum.reduceat(~last, first).astype(np.int64)))
    counted = counted.append_column("part", pa.array(np.where(is_edited, EDITED, parts)[first]))
    keys = ["kind", "target", "part", "tier", "source"]
    counts = counted.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in _SUMS])
    counts = counts.rename_columns({f"{name}_sum": name for name in _SUMS})
    counts = counts.select(COUNTS.names).cast(COUNTS).sort_by([(name, "ascending") for name in keys])
    return Joined(tables={"counts": counts, "rows": listed}, keyed={"copies": copies})


_SUMS = ("documents", "crowded", "own")
_NUMBERS_OF_ITEMS = ("rule", "target", "common", "of", "first", "length")


def _without_common(placed: pa.Table, common: CommonText) -> tuple[pa.Table, pa.Table]:
    """Add what matches share without common text, ``own`` of ``own_of``; return with it the rows of copies."""
    kinds, rules, shared, of = (placed[name].to_numpy() for name in ("kind", "rule", "common", "of"))
    is_document = kinds == HELD_OUT
    own, own_of = shared.copy(), of.copy()
    numbers = [placed[name].to_numpy()[is_document] for name in _NUMBERS_OF_ITEMS]
    own[is_document], own_of[is_document] = common.without(*numbers)
    copied = placed.filter(pa.array(is_document & (rules != GRAM) & (own > 0)))
    keys = key_array(spread(places_of(copied["shard"].to_numpy(), copied["row"].to_numpy())))
    copies = pa.table([keys, copied["shard"], copied["row"], copied["source"]], schema=COPIES)
    return placed.append_column("own", pa.array(own)).append_column("own_of", pa.array(own_of)), copies


def link_copies(files: pa.Table, start: int, stop: int) -> Joined:
    """Count the training documents that hold a copy of held-out text that is not common."""
    once = read_all(files, COPIES, start, stop).group_by(["shard", "row", "source"], use_threads=False).aggregate([])
    counted = once.group_by(["shard", "source"], use_threads=False).aggregate([([], "count_all")])
    counted = counted.rename_columns({"count_all": "held_out"}).select(COPIED.names).cast(COPIED)
    return Joined(tables={"copied": counted.sort_by([("shard", "ascending"), ("source", "ascending")])})


def _run_starts(*columns: np.ndarray) -> np.ndarray:
    fresh = np.ones(len(columns[0]), dtype=bool)
    fresh[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(fresh)
