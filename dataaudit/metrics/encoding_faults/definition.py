"""Encoding faults: text in the wrong characters, and markup or encoded data that an extractor left in."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.metrics import recomputed
from dataaudit.metrics.family import (
    SOURCES,
    Broken,
    Counted,
    Family,
    MetricDefinition,
    Relation,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.overlap.evidence import shards_with

METRIC = "encoding_faults"
_DOCUMENTS = " ".join(f"{kind}_documents" for kind in recomputed.FAULTS)
_BYTES = " ".join(f"{kind}_bytes" for kind in recomputed.FAULTS)


def _counted(case: Broken, tables: Tables) -> tuple[str, dict[int, int]]:
    """Return what a statistic counts, and how much of it each shard has."""
    shards, kept = tables.shards, pc.greater(tables.shards[case.stat], 0)
    if case.scope.split is not None:
        kept = pc.and_(kept, pc.equal(shards["split"], case.scope.split))
    values = pc.if_else(pc.fill_null(kept, pa.scalar(value=False)), shards[case.stat], 0).to_numpy()
    if case.scope.source is not None:
        values = values * shards_with(shards, case.scope.source)
    kind, _, unit = case.stat.rpartition("_")
    return f"{unit} with {kind}", {shard: number for shard, number in enumerate(values.tolist()) if number}


def _of_shard(stat: str, of: str = "documents") -> ShardStatistic:
    return ShardStatistic(metric=METRIC, stat=stat, column=stat, of=of, per_document=True, by_chance=True)


FAMILY = Family(
    name="encoding_faults",
    metrics=(
        MetricDefinition(
            name=METRIC,
            statistics=(
                *statistics(METRIC, _DOCUMENTS, "ratio", SOURCES, draws="documents"),
                *statistics(METRIC, f"{_BYTES} markup_lines", "ratio", SOURCES),
            ),
            reading=8,
            evidence=Counted(
                count=_counted,
                columns=(*_DOCUMENTS.split(), *_BYTES.split(), "markup_lines"),
            ),
            area="encoding",
        ),
    ),
    shard_statistics=(
        _of_shard("mojibake_documents"),
        _of_shard("replacement_documents"),
        _of_shard("control_documents"),
        _of_shard("entities_documents"),
        _of_shard("markup_lines", of="text_lines"),
        _of_shard("base64_bytes", of="bytes"),
    ),
    stage="dataaudit.metrics.encoding_faults.stage:EncodingFaults",
    stage_name="encoding_faults",
    shown="dataaudit.metrics.encoding_faults.facts:SHOWN",
    relations=(Relation(tables=("shards",), metrics=(METRIC,), recompute=recomputed.faults),),
    looked_for=True,
)
