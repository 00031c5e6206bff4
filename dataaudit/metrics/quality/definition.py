"""Quality: documents that published rules would reject, and what filters before this build rejected."""

from __future__ import annotations

import pyarrow.compute as pc

from dataaudit.metrics.family import (
    RULES,
    Broken,
    Counted,
    Family,
    MetricDefinition,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.overlap.evidence import shards_with
from dataaudit.metrics.recomputed import Follows, Number, product

METRIC = "filter_reject_rate"
_RUNS = "repeated_ngrams"
"""The rule set that looks at tokens; a record without a rule is of any rule, this one too."""


def _counts_tokens(rule: str | None) -> bool:
    return rule is None or rule.startswith(_RUNS)


def _rejected(case: Broken, tables: Tables) -> tuple[str, dict[int, int]]:
    """Count the documents of each shard that the case's rule would reject, or any."""
    shards = tables.shards
    flat, parents = pc.list_flatten(shards["filters"]), pc.list_parent_indices(shards["filters"]).to_numpy()
    kept = pc.equal(pc.struct_field(flat, "rule"), case.scope.rule or "").to_numpy()
    kept &= pc.greater(pc.struct_field(flat, "documents"), 0).to_numpy()
    if case.scope.split is not None:
        kept &= pc.equal(shards["split"], case.scope.split).to_numpy()[parents]
    if case.scope.source is not None:
        kept &= shards_with(shards, case.scope.source)[parents]
    documents = pc.struct_field(flat, "documents").to_numpy()
    counts = zip(parents[kept].tolist(), documents[kept].tolist(), strict=True)
    return "documents that a quality rule rejects", dict(counts)


_SEEN = Number("shards", "documents", pc.field("filters").is_valid())
_REJECTED = Number("shards", product("filter_reject_rate", "documents"))

FAMILY = Family(
    name="quality",
    metrics=(
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=statistics(METRIC, "rate", "ratio", RULES, draws="documents"),
            reading=8,
            evidence=Counted(count=_rejected, columns=("filters",)),
            counts_tokens=_counts_tokens,
            area="quality",
        ),
        MetricDefinition(
            name="filter_upstream",
            statistics=statistics("filter_upstream", "reject_rate", "ratio", "rule"),
            by_stage=False,
        ),
    ),
    shard_statistics=(
        ShardStatistic(metric=METRIC, stat="rate", column="filter_reject_rate", head="would reject", spare=True),
    ),
    stage="dataaudit.metrics.quality.stage:Filters",
    stage_name="filters",
    shown="dataaudit.metrics.quality.facts:SHOWN",
    checked_with=("shards",),
    checks=(
        Follows(METRIC, "rate", _REJECTED, _SEEN),
        Follows(METRIC, "rate", Number("shards.filters", "documents"), _SEEN, "rule, split and rule"),
    ),
    looked_for=True,
)
