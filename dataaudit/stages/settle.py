"""Exact value-to-count maps that turn into buckets once they have too many values."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.kernels.lengths import bucket_bounds


def settle_lengths(table: pa.Table, max_distinct: int) -> pa.Table:
    """Bucket every source that has over ``max_distinct`` distinct values, or that was bucketed before.

    Columns: source, low, high and counts. Commutes with merging: distinct values never become fewer, and a
    bucketed source is known by a bucket that is wider than one value.
    """
    wide = pc.greater(table["high"], table["low"])
    per_source = pa.table({"source": table["source"], "wide": wide}).group_by("source", use_threads=False)
    sizes = per_source.aggregate([("wide", "count"), ("wide", "any")])
    crowded = pc.or_(pc.greater(sizes["wide_count"], max_distinct), sizes["wide_any"])
    chosen = sizes.filter(crowded)["source"]
    if len(chosen) == 0:
        return table
    mask = pc.is_in(table["source"], chosen.combine_chunks())
    coarse, rest = table.filter(mask), table.filter(pc.invert(mask))
    low, high = bucket_bounds(coarse["low"].to_numpy())
    coarse = coarse.set_column(1, "low", pa.array(low)).set_column(2, "high", pa.array(high))
    return pa.concat_tables([rest, coarse])
