"""What the tables say of one shard and of one document: kinds and places, never text."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.metrics.disclosure import FEW, Count, about, hide, suppressed
from dataaudit.metrics.pii.cells import pii_cells, shard_counts
from dataaudit.metrics.registry import SHARD_STATISTICS

LISTED = 10
"""Rows of each kind that are listed; the rest is counted."""
COMPARED = tuple(statistic.column for statistic in SHARD_STATISTICS if statistic.compared)
"""Columns of the shards that are set beside those of the split's other shards."""
COUNTED = frozenset(statistic.column for statistic in SHARD_STATISTICS if statistic.compared and statistic.per_document)
"""Those of them that count documents: compared as shares of a shard's documents."""

JUDGE_OF_PII = "presidio"
JUDGED = "judged"
"""Tier of what a judge said of a sampled document."""

Names = Callable[[int], str]
"""``split/uri`` by ordinal."""


def document_found(manifest: Manifest, shard: dict[str, Any], row: int, names: Names) -> dict[str, Any]:
    """Return everything but groups of duplicates that the tables hold on a document."""
    place = (shard["shard"], row)
    return {
        "neighbours": _bounded(_neighbours(manifest, *place), names),
        "overlap": _bounded(_in_it(manifest, *place)),
        "copied_by": _bounded(_copied_by(manifest, shard, row), names),
        "hotspots": _bounded(_hotspots(manifest, *place)),
        "findings": _bounded(document_findings(manifest, *place)),
        "looked_for": _looked_for(manifest, shard),
    }


def medians_of_others(manifest: Manifest, shard: dict[str, Any]) -> dict[str, float | None]:
    """Return the median of each compared column over the split's other shards; None where none has a value."""
    table = manifest.table("shards", ["shard", "split", "documents", *COMPARED])
    other = pc.and_(pc.equal(table["split"], shard["split"]), pc.not_equal(table["shard"], shard["shard"]))
    rows = table.filter(pc.and_(other, pc.greater(table["documents"], 0))).to_pylist()
    medians = {}
    for name in COMPARED:
        values = [row[name] / (row["documents"] if name in COUNTED else 1) for row in rows if row[name] is not None]
        medians[name] = statistics.median(values) if values else None
    return medians


def _bounded(rows: list[dict[str, Any]], names: Names | None = None) -> dict[str, Any]:
    first = [row if names is None else row | {"name": names(row["shard"])} for row in rows[:LISTED]]
    return {"count": len(rows), "first": first, "not_listed": len(rows) - len(first)}


def _at(table: pa.Table, shard: int, row: int, prefix: str = "") -> pa.Table:
    return table.filter(pc.and_(pc.equal(table[f"{prefix}shard"], shard), pc.equal(table[f"{prefix}row"], row)))


def _neighbours(manifest: Manifest, shard: int, row: int) -> list[dict[str, Any]]:
    """Return the documents of its pairs, most alike first, and whether each is the one that its cluster keeps."""
    table = manifest.table("pairs")
    found = [
        {
            "shard": pair[f"{side}_shard"],
            "row": pair[f"{side}_row"],
            "jaccard": pair["jaccard"],
            "verified": pair["verified"],
        }
        for own, side in (("left", "right"), ("right", "left"))
        for pair in _at(table, shard, row, f"{own}_").to_pylist()
    ]
    clusters = manifest.table("clusters")
    near = clusters.filter(pc.equal(clusters["kind"], "near"))
    own_clusters = _at(near, shard, row)["cluster"]
    keepers = near.filter(pc.and_(near["kept"], pc.is_in(near["cluster"], own_clusters))).to_pylist()
    kept = {(keeper["shard"], keeper["row"]) for keeper in keepers}
    found.sort(key=lambda record: (-record["jaccard"], record["shard"], record["row"]))
    return [record | {"kept": (record["shard"], record["row"]) in kept} for record in found]


def _in_it(manifest: Manifest, shard: int, row: int) -> list[dict[str, Any]]:
    """Return what is protected and stands in the document, in the table's order."""
    names = ["set", "item", "part", "tier", "rule", "start", "end", "score", "score_without_common"]
    found: list[dict[str, Any]] = _at(manifest.table("overlap"), shard, row).select(names).to_pylist()
    return found


def _copied_by(manifest: Manifest, shard: dict[str, Any], row: int) -> list[dict[str, Any]]:
    """Return the training documents that hold a piece of a held-out one."""
    table = manifest.table("overlap")
    own = pc.and_(pc.equal(table["part"], "document"), pc.equal(table["item"], f"{shard['shard']}:{row}"))
    copies = table.filter(pc.and_(own, pc.equal(table["set"], shard["split"])))
    names = ["shard", "row", "rule", "start", "end", "score", "score_without_common"]
    found: list[dict[str, Any]] = copies.select(names).to_pylist()
    return found


def _hotspots(manifest: Manifest, shard: int, row: int) -> list[dict[str, Any]]:
    """Return the repeated spans in the document, the most widely held first."""
    members = _at(manifest.table("hotspot_members"), shard, row).to_pylist()
    spots = manifest.table("hotspots", ["hotspot", "words", "documents", "occurrences"])
    wanted = pa.array([member["hotspot"] for member in members], pa.int64())
    by_number = {spot["hotspot"]: spot for spot in spots.filter(pc.is_in(spots["hotspot"], wanted)).to_pylist()}
    return [by_number[member["hotspot"]] | {"start": member["start"], "end": member["end"]} for member in members]


def _looked_for(manifest: Manifest, shard: dict[str, Any]) -> list[str]:
    """Return the names of what the build looked for in this shard."""
    columns = {
        "exact": "exact_dup_rate",
        "neighbours": "near_dup_rate",
        "hotspots": "repeat_token_share",
        "held_out_copies": "held_out_copies",
        "items": "contaminated",
        "pii": "pii",
        "secrets": "secrets",
    }
    found = [name for name, column in columns.items() if shard[column] is not None]
    held_out = {split.name for split in manifest.core.splits if split.held_out}
    copies = manifest.table("shards", ["held_out_copies"])["held_out_copies"]
    if shard["split"] in held_out and copies.null_count < len(copies):
        found.append("copied_by")
    return found


def shown_columns(manifest: Manifest, row: dict[str, Any]) -> dict[str, Any]:
    """Return what stands in place of a shard's columns of personal data, rounded, small counts left out."""
    if row["pii"] is None:
        return {}
    if (cells := pii_cells(manifest)) is None:  # without cells small counts cannot be told from others
        return dict.fromkeys(("pii", "pii_hits", "pii_documents"))
    total, counts = shard_counts(cells, row["shard"], row["documents"], row["tokens"])
    return {
        "pii_hits": total.per_million,
        "pii_documents": total.documents,
        "pii": [
            {"entity": entity, "tier": tier, **_pair(count)}
            for (entity, tier), count in counts.items()
            if count.suppressed or count.hits
        ],
        "pii_rounded": True,
        "pii_suppressed": total.suppressed,
    }


def shard_judged(manifest: Manifest, shard: int) -> list[dict[str, Any]]:
    """Return what judges found in sampled documents of a shard, by detector and class; small counts are left out."""
    table = manifest.table("findings", ["detector", "class", "tier", "shard", "row"])
    table = table.filter(pc.equal(table["tier"], JUDGED))
    grouped = table.group_by(["detector", "class", "shard"], use_threads=False)
    cells: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for row in grouped.aggregate([("row", "count_distinct"), ("row", "count")]).to_pylist():
        own = cells.setdefault((row["detector"], row["class"]), {})
        own[row["shard"]] = (row["row_count_distinct"], row["row_count"])
    found = []
    for (detector, name), by_shard in sorted(cells.items()):
        documents, hits = by_shard.get(shard, (0, 0))
        order = list(by_shard).index(shard) if shard in by_shard else len(by_shard)
        hidden = hide([*by_shard.values(), (0, 0)]) if detector == JUDGE_OF_PII else None
        if hidden is not None:
            documents, hits = about(documents), about(hits)
        count = Count(hits=hits, documents=documents, per_million=None, share=None)
        if hidden is not None and order in hidden.cells:
            count = suppressed(below=hidden.below)
        if count.suppressed or count.hits:
            found.append({"judge": detector, "class": name, **_pair(count)})
    return found


def document_findings(manifest: Manifest, shard: int, row: int) -> list[dict[str, Any]]:
    """Return all findings in one document, in the order of their places."""
    table = manifest.table(
        "findings", ["detector", "class", "tier", "shard", "row", "start", "end", "score", "reserved"]
    )
    found: list[dict[str, Any]] = _at(table, shard, row).drop_columns(["shard", "row"]).to_pylist()
    return sorted(
        found, key=lambda item: (item["tier"] == JUDGED, item["start"], item["end"], item["detector"], item["class"])
    )


def _pair(count: Count) -> dict[str, Any]:
    """Return hits and documents; suppressed ones are null and say so."""
    pair: dict[str, Any] = {"hits": count.hits, "documents": count.documents}
    return pair | ({"suppressed": True, "fewer_than": count.fewer_than} if count.suppressed else {})


def is_small(record: dict[str, Any]) -> bool:
    """Tell whether a suppressed pair certainly has few documents."""
    return record.get("fewer_than") == FEW
