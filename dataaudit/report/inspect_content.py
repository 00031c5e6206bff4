"""What was found in the documents of one shard, and in one document: kinds and places, never text."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.report.few import FEW, Count, about, hide, suppressed
from dataaudit.report.pii_cells import pii_cells, shard_counts

PII, SECRETS, JUDGE_OF_PII = "pii", "secrets", "presidio"
JUDGED = "judged"
"""Tier of what a judge said of a sampled document."""


def shown_columns(manifest: Manifest, row: dict[str, Any]) -> dict[str, Any]:
    """Return what stands in place of a shard's columns of personal data, rounded, small counts left out.

    Args:
        manifest: Of the shard.
        row: Of the table of shards.
    """
    if row["pii"] is None or (cells := pii_cells(manifest)) is None:
        return {}
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
        count = Count(hits=hits, documents=documents, per_million=None, share=None)
        if detector == JUDGE_OF_PII:
            hidden = hide([*by_shard.values(), (0, 0)])
            order = list(by_shard).index(shard) if shard in by_shard else len(by_shard)
            count = suppressed(below=hidden.below) if order in hidden.cells else _rounded(documents, hits)
        if count.suppressed or count.hits:
            found.append({"judge": detector, "class": name, **_pair(count)})
    return found


def document_findings(manifest: Manifest, shard: int, row: int) -> list[dict[str, Any]]:
    """Return all findings in one document, in the order of their places."""
    table = manifest.table(
        "findings", ["detector", "class", "tier", "shard", "row", "start", "end", "score", "reserved"]
    )
    own = table.filter(pc.and_(pc.equal(table["shard"], shard), pc.equal(table["row"], row)))
    found: list[dict[str, Any]] = own.drop_columns(["shard", "row"]).to_pylist()
    return sorted(
        found, key=lambda one: (one["tier"] == JUDGED, one["start"], one["end"], one["detector"], one["class"])
    )


def _rounded(documents: int, hits: int) -> Count:
    return Count(hits=about(hits), documents=about(documents), per_million=None, share=None)


def _pair(count: Count) -> dict[str, Any]:
    """Return hits and documents; suppressed ones are null and say so."""
    pair: dict[str, Any] = {"hits": count.hits, "documents": count.documents}
    return pair | ({"suppressed": True, "fewer_than": count.fewer_than} if count.suppressed else {})


def is_small(one: dict[str, Any]) -> bool:
    """Tell whether a suppressed pair certainly has few documents."""
    return one.get("fewer_than") == FEW
