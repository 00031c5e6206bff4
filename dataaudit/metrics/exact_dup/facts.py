"""Shards with the most documents whose text was seen before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.render.blocks import Table, names, numbers
from dataaudit.render.line import Name, share

TOP = 5
REPEATED = 0.5
"""Exact-duplicate rate from which a shard stands out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicated:
    """A shard with duplicates."""

    shard: int
    split: str
    uri: str
    documents: int
    exact_dup_rate: float


def most_duplicated(manifest: Manifest) -> list[Duplicated]:
    """Return the shards with the highest exact-duplicate rate, those without any left out."""
    columns = ["shard", "split", "uri", "documents", "exact_dup_rate"]
    table = manifest.table("shards", columns)
    table = table.filter(pc.fill_null(pc.greater(table["exact_dup_rate"], 0), pa.scalar(value=False)))
    order = [("exact_dup_rate", "descending"), ("shard", "ascending")]
    return [Duplicated(**row) for row in table.sort_by(order).slice(0, TOP).to_pylist()]


def table(found: Sequence[Duplicated]) -> Table:
    """Return the shards with the highest rate."""
    return Table(
        title="Shards with the highest exact-duplicate rate",
        columns=(*numbers("shard"), *names("split/uri"), *numbers("documents", "dups overall")),
        rows=tuple(
            (one.shard, Name(f"{one.split}/{one.uri}"), one.documents, share(one.exact_dup_rate)) for one in found
        ),
        noun="shard",
    )
