"""Encoding faults: text in the wrong characters, and markup or encoded data that an extractor left in."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.metrics.family import (
    SOURCES,
    Broken,
    Counted,
    Family,
    MetricDefinition,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.overlap.evidence import shards_with
from dataaudit.metrics.recomputed import FAULTS, Follows, Number, given

METRIC = "encoding_faults"
NO_WORDS = "no_words"
COMPARED = {
    "mojibake_documents": "documents with mojibake",
    "replacement_documents": "documents with replacement characters",
    "control_documents": "documents with control characters",
    "invisible_documents": "documents with invisible characters",
    "escapes_documents": "documents with escapes left in",
    "entities_documents": "documents with entities left in",
    "markup_documents": "documents of markup",
    "encoded_documents": "documents of base64",
    "wordless_documents": "documents without words",
}
"""Columns that the shards of a source are compared by, as shares of their documents, in words."""


def _counted(case: Broken, tables: Tables) -> tuple[str, dict[int, int]]:
    """Return what a statistic counts, and how much of it each shard has."""
    shards = tables.shards
    kept = pc.fill_null(pc.greater(shards[case.stat], 0), pa.scalar(value=False)).to_numpy()
    if case.scope.split is not None:
        kept &= pc.equal(shards["split"], case.scope.split).to_numpy()
    if case.scope.source is not None:
        kept &= shards_with(shards, case.scope.source)
    kind, _, unit = case.stat.rpartition("_")
    values = shards[case.stat].to_pylist()
    return COMPARED.get(case.stat, f"{unit} of {kind}"), {shard: values[shard] for shard in kept.nonzero()[0].tolist()}


def _share(stat: str, of: str) -> Follows:
    """A split without a line of text has no share but that of documents without words."""
    searched = pc.field("text_lines").is_valid()
    value, whole, lines = (Number("shards", name, searched) for name in (stat, of, "text_lines"))
    return Follows(METRIC, stat, value, whole if stat == "wordless_documents" else given(whole, lines))


FAMILY = Family(
    name="encoding_faults",
    metrics=(
        MetricDefinition(
            name=METRIC,
            statistics=tuple(
                one
                for stat, of in FAULTS.items()
                for one in statistics(METRIC, stat, "ratio", SOURCES, draws="documents" if of == "documents" else "")
            ),
            reading=8,
            evidence=Counted(count=_counted, columns=tuple(FAULTS)),
            area="encoding",
        ),
    ),
    shard_statistics=tuple(
        ShardStatistic(
            metric=METRIC, stat=stat, column=stat, per_document=True, by_chance=True, noun=noun, absent=NO_WORDS
        )
        for stat, noun in COMPARED.items()
    ),
    stage="dataaudit.metrics.encoding_faults.stage:EncodingFaults",
    stage_name="encoding_faults",
    shown="dataaudit.metrics.encoding_faults.facts:SHOWN",
    checked_with=("shards",),
    checks=tuple(_share(*names) for names in FAULTS.items()),
    looked_for=True,
)
