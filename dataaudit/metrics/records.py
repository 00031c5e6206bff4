"""Records of a metric by scope and statistic; documents behind a number, as tables list them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.family import Broken, Tables

Records = Mapping[str, Metric]
"""Of a scope, by statistic."""


def by_scope(rows: Iterable[Metric]) -> dict[Scope, dict[str, Metric]]:
    """Return records of a metric by scope and statistic."""
    records: dict[Scope, dict[str, Metric]] = {}
    for record in rows:
        records.setdefault(record.scope, {})[record.stat] = record
    return records


def records_in(manifest: Manifest, metric: str, *shapes: tuple[str, ...]) -> MetricRows:
    """Return the records of a metric whose scopes have exactly the fields of any of some shapes."""
    rows = manifest.metric_rows().where(metric=metric)
    return MetricRows.joined([rows.shaped(*fields) for fields in shapes])


def only(scope: Scope, field: str) -> bool:
    """Return whether a scope has this field and no other."""
    return list(scope.as_dict()) == [field]


def number(records: Records, stat: str) -> int:
    """Return the value of a record as a count, 0 without a record."""
    record = records.get(stat)
    return 0 if record is None else int(record.value or 0)


LISTED = pa.schema([pa.field("shard", pa.int32()), pa.field("row", pa.int64()), pa.field("kind", pa.string())])
"""Documents: shard, row, and what is wrong with each, a code or the class of a finding."""
JUDGED = "judged"
"""Tier of what a judge finds in a document of its sample."""
Documents = Callable[[Broken, Tables], pa.Table]


def listed(shards: Any, rows: Any, kinds: Any) -> pa.Table:
    """Return documents in the manifest's order, each once for each kind."""
    kind = pa.repeat(kinds, len(rows)) if isinstance(kinds, str) else kinds
    table = pa.table([shards, rows, kind], names=LISTED.names).cast(LISTED)
    return table.group_by(LISTED.names).aggregate([]).sort_by([(name, "ascending") for name in LISTED.names])


def of_findings(
    detector: str, judged: Collection[str] = (), *, judge: str = ""
) -> Callable[[Broken, Tables], pa.Table]:
    """Return what lists documents by the findings of patterns, or of a judge of a sample."""

    def documents(case: Broken, tables: Tables) -> pa.Table:
        table = tables.table("findings")
        if case.stat in judged:
            return _findings(table, (pc.field("detector") == judge) & (pc.field("tier") == JUDGED), case)
        tier, _, counted = case.stat.rpartition("_")
        if counted not in {"hits", "documents", "reserved"}:
            return LISTED.empty_table()
        kept = (pc.field("detector") == detector) & (pc.field("tier") != JUDGED)
        kept &= pc.field("reserved") == (counted == "reserved")
        return _findings(table, kept & (pc.field("tier") == tier) if tier else kept, case)

    return documents


def of_judge(case: Broken, tables: Tables, *, patterns: Collection[str]) -> pa.Table:
    """Return the documents of a judge's sample that it found positive; detectors of patterns are no judges.

    Findings have the positive documents of each class: those of a lower threshold are not all there.
    """
    name, _, least = case.stat.partition("_at_")
    if name != "rate":
        return LISTED.empty_table()
    kept = (pc.field("tier") == JUDGED) & ~pc.field("detector").isin(sorted(patterns))
    return _findings(tables.table("findings"), kept & (pc.field("score") >= float(least or 0)), case)


def of_clusters(kind: str) -> Documents:
    """Return what lists the members of clusters that are not to be kept; within a split, all but its first."""

    def documents(case: Broken, tables: Tables) -> pa.Table:
        groups = tables.table("clusters").filter(pc.field("kind") == kind)
        name = f"{kind}_duplicate"
        if not case.stat.startswith("within_split"):
            groups = groups.filter(~pc.field("kept"))
            return listed(groups["shard"], groups["row"], name)
        groups = groups.append_column("split", tables.shards["split"].take(groups["shard"]))
        groups = groups.sort_by([(column, "ascending") for column in ("split", "cluster", "shard", "row")])
        keys = list(zip(groups["split"].to_pylist(), groups["cluster"].to_pylist(), strict=True))
        later = pa.array([index > 0 and key == keys[index - 1] for index, key in enumerate(keys)], pa.bool_())
        groups = groups.filter(later)
        return listed(groups["shard"], groups["row"], name)

    return documents


def near_duplicates(case: Broken, tables: Tables) -> pa.Table:
    """Return the documents with an earlier verified near-duplicate."""
    if case.stat == "in_reference":
        return LISTED.empty_table()
    pairs = tables.table("pairs").filter(pc.field("verified"))
    left, right = ([pairs[f"{side}_{name}"].to_numpy() for name in ("shard", "row")] for side in ("left", "right"))
    later = (right[0] > left[0]) | ((right[0] == left[0]) & (right[1] > left[1]))
    shards, rows = (np.where(later, *both) for both in zip(right, left, strict=True))
    return listed(shards, rows, "near_duplicate")


def repeated_spans(_: Broken, tables: Tables) -> pa.Table:
    """Return the documents that hold a span which the table of hotspots lists."""
    members = tables.table("hotspot_members")
    return listed(members["shard"], members["row"], "repeated_span")


def _findings(table: pa.Table, kept: pc.Expression, case: Broken) -> pa.Table:
    if case.scope.entity is not None:
        kept &= pc.field("class") == case.scope.entity
    rows = table.filter(kept)
    return listed(rows["shard"], rows["row"], rows["class"])
