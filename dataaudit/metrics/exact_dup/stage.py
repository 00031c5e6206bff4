"""``exact_dup_rate``: documents with the normal form of an earlier document in the manifest's order, of any shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.manifest.locate import is_new, rows_of, shards_of
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.tables import TABLES
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.texts import DIGEST_BYTES, normal_digests
from dataaudit.scan.cross_shard.joins import Joined
from dataaudit.scan.cross_shard.keyed import key_matrix, read_placed
from dataaudit.scan.cross_shard.step import LinkContext, LinkResult, LinkStep
from dataaudit.scan.kernels.pairing import earlier_duplicates
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
        ones, zeros = np.ones(len(batch), dtype=np.int64), np.zeros(len(batch), dtype=np.int64)
        shape = _SHAPES["exact_dup"]
        columns = [batch.sources().cast(pa.string()), ones, zeros, zeros]
        return {"exact_dup": group(shape, pa.table(columns, schema=shape.schema()))}

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


def exact_duplicates(context: LinkContext) -> LinkStep:
    """Join the keys of all shards that were read; nothing has to be read again."""
    documents = context.survey.total(context.stage.name, "exact_dup", "documents")
    joined = context.join("exact", link_exact, context.files(KEYS), documents)
    yield from ()
    members = joined.table("members", MEMBERS)
    clusters = cluster_rows("exact", members["place"].to_numpy(), members["first"].to_numpy())
    return LinkResult(tables={"clusters": clusters}, extra={"exact_dup": joined.table("counts", COUNTS)})


def cluster_rows(kind: str, places: np.ndarray, firsts: np.ndarray) -> pa.Table:
    """Return the manifest's ``clusters`` of members and the first of each: numbered by firsts, which are kept."""
    order = np.lexsort((places, firsts))
    places, firsts = places[order], firsts[order]
    numbers = np.cumsum(is_new(firsts)) - 1
    columns = [[kind] * len(places), numbers, shards_of(places), rows_of(places), places == firsts]
    return pa.table(columns, schema=TABLES["clusters"].schema)


_COUNTS = TableShape(keys={"shard": pa.int32(), "source": pa.string()}, sums=("duplicates", "duplicates_in_split"))
COUNTS = _COUNTS.schema()
MEMBERS = pa.schema([("first", pa.int64()), ("place", pa.int64())])
"""Documents of groups of two and more, with the first of their group."""


def link_exact(files: pa.Table, start: int, stop: int) -> Joined:
    """Join all documents whose key's first byte is in [start, stop)."""
    read = read_placed(files, ExactDup.emits[KEYS], start, stop)
    if read.table.num_rows == 0:
        return Joined(tables={"counts": COUNTS.empty_table(), "members": MEMBERS.empty_table()})
    places = read.places
    keys = np.concatenate([key_matrix(chunk) for chunk in read.table["key"].chunks])
    seen, seen_in_split, first = earlier_duplicates(keys, read.shards, read.rows, read.splits)
    in_split = seen_in_split[seen].astype(np.int64)
    sources = read.table["source"].filter(pa.array(seen))
    counts = pa.table([read.shards[seen], sources, np.ones_like(in_split), in_split], schema=COUNTS)
    shared = seen.copy()
    shared[first[seen]] = True
    chosen = np.flatnonzero(shared)
    members = pa.table([places[first[chosen]], places[chosen]], schema=MEMBERS)
    return Joined(tables={"counts": group(_COUNTS, counts), "members": members})
