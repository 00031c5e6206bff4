"""Exact duplicates: documents whose text, white space aside, was seen before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.render.blocks import Table, column, table_of
from dataaudit.base.render.line import Line, Name, say, share
from dataaudit.base.text import plural
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.family import SOURCES, Family, ShardColumn, ShardStatistic, declare, statistics
from dataaudit.metrics.recomputed import Condition, Follows, Number, keeps, of_shard, quotient, total
from dataaudit.metrics.records import of_clusters
from dataaudit.metrics.shown import MANY, Highlight, Kind, Oddity, OddShard, Part, Shown, above, split_and_uri

_IS_EXACT = Condition(lambda: pc.field("kind") == "exact")
_IS_KEPT = Condition(lambda: pc.field("kept"))
_MEMBERS, _COPIES = Number("clusters", "", _IS_EXACT), Number("clusters", "", _IS_EXACT & ~_IS_KEPT)
_CLUSTERS, _DOCUMENTS = Number("clusters", "", _IS_EXACT, ("cluster",)), Number("shards", "documents")

FAMILY = Family(
    name="exact_dup",
    metrics=(
        declare(
            "exact_dup_rate",
            statistics("rate", "ratio", SOURCES, headline=True, draws="documents"),
            statistics("documents", "documents", SOURCES),
            statistics("within_split_rate", "ratio", "split, split and source", draws="documents"),
            reading=6,
            evidence=ShardColumn(column="exact_dup_rate", noun="documents seen before", listed="within_split_rate"),
            documents=of_clusters("exact"),
            finds_copies=True,
            area="duplicates",
            columns=(ShardStatistic("rate", "exact_dup_rate", head="exact copies", compared=True),),
        ),
    ),
    stage="dataaudit.metrics.exact_dup.stage:ExactDup",
    stage_name="exact_dup",
    link="dataaudit.metrics.exact_dup.stage:exact_duplicates",
    by_split=("exact_dup",),
    checked_with=("clusters", "shards"),
    checks=(
        *(Follows("exact_dup_rate", stat, _COPIES, _DOCUMENTS) for stat in ("rate", "documents")),
        Follows("exact_dup_rate", "within_split_rate", total(_MEMBERS, _CLUSTERS, -1), _DOCUMENTS, "split"),
        of_shard("exact_dup_rate", quotient(_COPIES, _DOCUMENTS)),
        *keeps("exact"),
    ),
    looked_for=True,
)

METRIC = "exact_dup_rate"
TOP = 5
REPEATED = 0.5
"""Exact-duplicate rate from which a shard stands out."""
_SHARED = "half and more of the documents repeat earlier ones word for word"


@once
def repeated_share(manifest: Manifest) -> float | None:
    """Return the share of all documents that repeat the text of an earlier document; None without any document."""
    return next((record.value for record in manifest.metrics(METRIC, "rate", Scope())), None)


@once
def most_duplicated(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the rows of the shards with the highest exact-duplicate rate, of equal ones the largest first."""
    table = manifest.table("shards", ["shard", "split", "uri", "documents", METRIC])
    table = table.filter(pc.fill_null(pc.greater(table[METRIC], 0), pa.scalar(value=False)))
    order = [(METRIC, "descending"), ("documents", "descending"), ("shard", "ascending")]
    rows: list[dict[str, Any]] = table.sort_by(order)[:TOP].to_pylist()
    return rows


def _table(manifest: Manifest) -> list[Table]:
    """Return the shards with the highest rate."""
    rows = most_duplicated(manifest)
    table = table_of(
        "Shards with the highest exact-duplicate rate",
        rows,
        column("shard"),
        column("split/uri", split_and_uri, Name),
        column("documents"),
        column("dups overall", METRIC, share),
        noun="shard",
    )
    return [table] if rows else []


def _highlights(manifest: Manifest) -> Iterator[Highlight]:
    rate, most = repeated_share(manifest), next(iter(most_duplicated(manifest)), None)
    if rate is not None and most is not None and (rate > MANY or most[METRIC] > REPEATED):
        yield Highlight(
            kind=Kind.EXACT_DUPLICATES,
            part="shards",
            size=rate,
            shard=most["shard"],
            place=split_and_uri(most),
            text=say("{} of all documents repeat an earlier one", share(rate)),
            link=say(", {} of", share(most[METRIC])),
        )


def _odd_shards(manifest: Manifest) -> Iterator[OddShard]:
    table = manifest.table("shards", ["documents", METRIC])
    for shard, rate in above(table[METRIC], REPEATED):
        documents = plural(table["documents"][shard].as_py(), "document")
        text = say("{} of its {} repeat earlier ones word for word", share(rate), documents)
        yield OddShard(shard=shard, kind=Oddity.COPIES, size=rate, text=text, shared=_SHARED)


def _sentences(manifest: Manifest) -> Iterator[Line]:
    if (rate := repeated_share(manifest)) is not None:
        yield say("{} of the documents are exact duplicates of an earlier one, white space aside.", share(rate))


SHOWN = Shown(
    parts=(Part(name="shards", area="duplicates", blocks=_table),),
    sentences=_sentences,
    highlights=_highlights,
    odd_shards=_odd_shards,
    long_facts={"most_duplicated": most_duplicated},
)
