"""``exact_dup_rate``: documents whose normalised text was seen before in the manifest's order.

The family of exact duplicates: documents of equal normal form, of whatever shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.tables import TABLES
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.texts import DIGEST_BYTES, normal_digests
from dataaudit.scan.kernels.pairing import earlier_twins
from dataaudit.scan.link.joins import Join, Joined
from dataaudit.scan.link.keyed import key_matrix
from dataaudit.scan.link.places import read_placed
from dataaudit.scan.link.step import LinkContext, LinkResult, LinkStep
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

KEYS = "keys"
"""Name of the keyed table."""
_SHAPES = {
    "exact_dup": TableShape(keys={"source": pa.string()}, sums=("documents", "duplicates", "duplicates_in_split"))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactDup(StageDefaults):
    """Emits a 128-bit digest of every document's normal form; the link step finds those that recur.

    The order is the manifest's: by (split, uri), then by row. ``rate`` counts a document when an earlier one
    anywhere in the dataset has the same normal form, ``within_split_rate`` when an earlier one of its own
    split has.
    """

    name: ClassVar[str] = "exact_dup"
    version: ClassVar[str] = "1"
    emits: ClassVar[Mapping[str, pa.Schema]] = {
        KEYS: pa.schema([("key", pa.binary(DIGEST_BYTES)), ("row", pa.int64()), ("source", pa.string())])
    }

    def shapes(self) -> Mapping[str, TableShape]:
        """Counts by source; ``map`` counts documents, the link step adds the duplicates."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Count the documents."""
        ones = np.ones(len(batch), dtype=np.int64)
        zeros = np.zeros(len(batch), dtype=np.int64)
        table = pa.table(
            {
                "source": batch.sources().cast(pa.string()),
                "documents": ones,
                "duplicates": zeros,
                "duplicates_in_split": zeros,
            }
        )
        return {"exact_dup": group(_SHAPES["exact_dup"], table)}

    def emit(self, batch: DocBatch) -> dict[str, pa.Table]:
        """Return the digest of every document's normal form, with its row and source."""
        digests = normal_digests(batch.texts)
        keys = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(DIGEST_BYTES), len(batch), [None, pa.py_buffer(np.ascontiguousarray(digests))]
        )
        rows = {"key": keys, "row": pa.array(batch.rows), "source": batch.sources().cast(pa.string())}
        return {KEYS: pa.table(rows)}

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the rates of the scope and of each source."""
        table = partial["exact_dup"]
        groups = Groups.of(table, context.scope, self.version)
        documents, duplicates, in_split = (groups.sums(table, name) for name in _SHAPES["exact_dup"].sums)
        metrics = [
            groups.ratios("exact_dup_rate", "rate", duplicates, documents),
            groups.counts("exact_dup_rate", "documents", duplicates, documents, "documents"),
        ]
        if context.scope.split is not None:
            metrics.append(groups.ratios("exact_dup_rate", "within_split_rate", in_split, documents))
        return MetricRows.joined(metrics)

    def shard_columns(self, partial: Partial) -> dict[str, float | int | None]:
        """Fill exact_dup_rate."""
        table = partial["exact_dup"]
        documents, duplicates = (sum(table[name].to_pylist()) for name in ("documents", "duplicates"))
        return {"exact_dup_rate": duplicates / documents if documents else None}


_KIND = "link-exact"


def exact_duplicates(
    context: LinkContext,
) -> LinkStep:
    """Join the keys of all shards that were read; nothing has to be read again."""
    documents = context.survey.total(context.stage.name, "exact_dup", "documents")
    join = Join(
        kind=_KIND, function=link_exact, identity=context.stage.version, files=context.files(KEYS), rows=documents
    )
    joined = context.join(join)
    yield from ()
    clusters = clusters_table(joined.table("members", MEMBERS))
    return LinkResult(tables={"clusters": clusters}, extra={"exact_dup": joined.table("counts", COUNTS)})


def clusters_table(members: pa.Table) -> pa.Table:
    """Number the groups by their first member and mark the one to keep."""
    schema = TABLES["clusters"].schema
    if members.num_rows == 0:
        return schema.empty_table()
    order = [(name, "ascending") for name in ("first_shard", "first_row", "shard", "row")]
    ordered = members.take(pc.sort_indices(members, sort_keys=order))
    kept = pc.and_(pc.equal(ordered["shard"], ordered["first_shard"]), pc.equal(ordered["row"], ordered["first_row"]))
    numbers = pc.subtract(pc.cumulative_sum(pc.cast(kept, pa.int64())), 1)
    kind = pa.array(["exact"] * ordered.num_rows)
    columns = {"kind": kind, "cluster": numbers, "shard": ordered["shard"], "row": ordered["row"], "kept": kept}
    return pa.table(columns).cast(schema)


COUNTS = pa.schema(
    [
        ("shard", pa.int32()),
        ("source", pa.string()),
        ("duplicates", pa.int64()),
        ("duplicates_in_split", pa.int64()),
    ]
)
MEMBERS = pa.schema(
    [("first_shard", pa.int32()), ("first_row", pa.int64()), ("shard", pa.int32()), ("row", pa.int64())]
)


def link_exact(files: pa.Table, start: int, stop: int) -> Joined:
    """Join all documents whose key's first byte is in [start, stop)."""
    read = read_placed(files, ExactDup.emits[KEYS], start, stop)
    if read.table.num_rows == 0:
        return Joined(tables={"counts": COUNTS.empty_table(), "members": MEMBERS.empty_table()})
    shards, rows, splits = read.shards, read.rows, read.splits
    keys = _matrix(read.table["key"].chunks)
    seen, seen_in_split, first = earlier_twins(keys, shards, rows, splits)
    counts = _counts(shards[seen], read.table["source"].filter(pa.array(seen)), seen_in_split[seen])
    return Joined(tables={"counts": counts, "members": _members(seen, first, shards, rows)})


def _matrix(chunks: Iterable[pa.Array]) -> np.ndarray:
    return np.concatenate([key_matrix(chunk) for chunk in chunks])


def _counts(shards: np.ndarray, sources: pa.ChunkedArray, in_split: np.ndarray) -> pa.Table:
    table = pa.table(
        {
            "shard": shards,
            "source": sources,
            "duplicates": np.ones(len(shards), np.int64),
            "in_split": in_split,
        }
    )
    table = table.set_column(3, "duplicates_in_split", pc.cast(table["in_split"], pa.int64()))
    grouped = table.group_by(["shard", "source"], use_threads=False).aggregate(
        [("duplicates", "sum"), ("duplicates_in_split", "sum")]
    )
    names = ["shard", "source", "duplicates_sum", "duplicates_in_split_sum"]
    return grouped.select(names).rename_columns(COUNTS.names).cast(COUNTS)


def _members(seen: np.ndarray, first: np.ndarray, shards: np.ndarray, rows: np.ndarray) -> pa.Table:
    shared = np.zeros(len(seen), dtype=bool)
    shared[first[seen]] = True
    chosen = np.flatnonzero(shared | seen)
    leaders = first[chosen]
    columns = (shards[leaders], rows[leaders], shards[chosen], rows[chosen])
    return pa.table(dict(zip(MEMBERS.names, columns, strict=True))).cast(MEMBERS)
