"""``dataaudit inspect``: what a manifest knows of one shard, or of one document of it. Never its text."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.errors import ManifestError
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.locate import find_place
from dataaudit.manifest.reading import RESTORE
from dataaudit.metrics.overlap.evidence import ShardNames
from dataaudit.metrics.shown import STATUSES, reason_text
from dataaudit.present.report.inspect_blocks import render_row, render_shard
from dataaudit.present.report.inspect_found import document_found, medians_of_others, shard_judged, shown_columns
from dataaudit.present.report.standouts import outliers

OTHERS = 10
"""Other members of a group, and other shards, that are listed."""
_FURTHER = "further records"


def inspect_place(folder: Path, place: str, *, as_json: bool) -> str:
    """Return the facts of a shard, or of a document."""
    manifest = load_manifest(folder)
    names = ShardNames(manifest)
    found = find_place(place, manifest.table("shards", ["shard", "split", "uri"]))
    facts = _shard(manifest, found.shard, names)
    if found.row is not None:
        value: dict[str, Any] = {"id": manifest.id, "shard": facts, "row": _row(manifest, facts, found.row, names)}
        return t.as_json(value) if as_json else render_row(value)
    value = {
        "id": manifest.id,
        "shard": facts,
        "medians_of_others": medians_of_others(manifest, facts),
        "outliers": [asdict(outlier) for outlier in outliers(manifest) if outlier.shard == found.shard],
        "rules": _rules(manifest, facts),
        "judged": shard_judged(manifest, found.shard),
        "duplicates": _duplicates(manifest, found.shard, names),
    }
    return t.as_json(value) if as_json else render_shard(value, manifest.place)


def _shard(manifest: Manifest, ordinal: int, names: ShardNames) -> dict[str, Any]:
    """Return the shard's row with the meaning of its status and its losses."""
    row: dict[str, Any] = manifest.table("shards").slice(ordinal, 1).to_pylist()[0]
    ledger = manifest.table("ledger")
    losses = ledger.filter(pc.equal(ledger["shard"], ordinal)).to_pylist()
    losses.sort(key=lambda loss: (loss["reason"], *_place_order(loss["place"])))
    return {
        **row,
        **shown_columns(manifest, row),
        "name": names.of(ordinal),
        "root": manifest.run.roots.get(row["split"], ""),
        "status_meaning": STATUSES.get(row["status"], ""),
        "losses": [
            {
                "reason": loss["reason"],
                "meaning": reason_text(loss["reason"]),
                **{name: loss[name] for name in ("place", "records", "bytes")},
            }
            for loss in losses
        ],
    }


def _rules(manifest: Manifest, shard: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the quality rules, highest share of the documents first; None when there is nothing to speak of."""
    if shard["filters"] is None or not shard["documents"]:
        return None
    table = manifest.table("shards", ["shard", "split", "documents", "filters"])
    other = pc.and_(pc.equal(table["split"], shard["split"]), pc.not_equal(table["shard"], shard["shard"]))
    rates: dict[str, list[float]] = {}
    for row in table.filter(pc.and_(other, pc.greater(table["documents"], 0))).to_pylist():
        for item in row["filters"] or ():
            rates.setdefault(item["rule"], []).append(item["documents"] / row["documents"])
    return [
        {
            "rule": item["rule"],
            "documents": item["documents"],
            "rate": item["documents"] / shard["documents"],
            "median_of_others": statistics.median(rates[item["rule"]]) if item["rule"] in rates else None,
        }
        for item in sorted(shard["filters"], key=lambda item: (-item["documents"], item["rule"]))
    ]


def _duplicates(manifest: Manifest, ordinal: int, names: ShardNames) -> dict[str, Any]:
    """Return, for each kind of group, how many documents of the shard repeat others, and where those are."""
    table = manifest.table("clusters")
    answer: dict[str, Any] = {}
    for kind in pc.unique(table["kind"]).to_pylist():
        groups = table.filter(pc.equal(table["kind"], kind))
        own = groups.filter(pc.equal(groups["shard"], ordinal))
        repeats = own.filter(pc.invert(own["kept"]))
        keepers = groups.filter(pc.and_(groups["kept"], pc.is_in(groups["cluster"], repeats["cluster"])))
        keeper_of = dict(zip(keepers["cluster"].to_pylist(), keepers["shard"].to_pylist(), strict=True))
        kept_in: dict[int, int] = {}
        for cluster in repeats["cluster"].to_pylist():
            if (shard := keeper_of.get(cluster)) is None:
                raise ManifestError(f"table clusters: the group {cluster} of kind {kind} keeps no document", RESTORE)
            kept_in[shard] = kept_in.get(shard, 0) + 1
        others = groups.filter(
            pc.and_(pc.not_equal(groups["shard"], ordinal), pc.is_in(groups["cluster"], own["cluster"]))
        )
        shared = others.group_by("shard").aggregate([("cluster", "count_distinct")])
        answer[kind] = {
            "documents_in_groups": own.num_rows,
            "documents_to_drop": repeats.num_rows,
            "kept_in": _ranked(kept_in.items(), names),
            "shares_groups_with": _ranked(
                zip(shared["shard"].to_pylist(), shared["cluster_count_distinct"].to_pylist(), strict=True),
                names,
            ),
        }
    return answer


def _ranked(pairs: Iterable[tuple[int, int]], names: ShardNames) -> dict[str, Any]:
    """Return the shards with the highest counts, and how many shards there are."""
    ranked = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    top = [{"shard": shard, "name": names.of(shard), "count": number} for shard, number in ranked[:OTHERS]]
    return {"shards": len(ranked), "top": top}


def _row(manifest: Manifest, shard: dict[str, Any], row: int, names: ShardNames) -> dict[str, Any]:
    """Return what is known of one row: whether it exists, was usable, and repeats others; None: that is not known."""
    listed = [loss for loss in shard["losses"] if loss["place"] == f"record {row}"]
    unlisted = sum(loss["records"] for loss in shard["losses"] if loss["place"] == _FURTHER)
    unread = shard["status"] in ("quarantined", "skipped")
    return {
        "row": row,
        "exists": True if row < shard["rows"] else None if unread else False,
        "bad": [loss["reason"] for loss in listed],
        "bad_meaning": [loss["meaning"] for loss in listed],
        "bad_records_not_listed": unlisted,
        "in_metrics": False if unread or listed or row >= shard["rows"] else None if unlisted else True,
        "groups": _groups(manifest, shard["shard"], row, names),
        "found": document_found(manifest, shard, row, names.of),
    }


def _groups(manifest: Manifest, shard: int, row: int, names: ShardNames) -> list[dict[str, Any]]:
    """Return every group of duplicates the document is in."""
    table = manifest.table("clusters")
    here = pc.and_(pc.equal(table["shard"], shard), pc.equal(table["row"], row))
    groups = []
    for own in table.filter(here).to_pylist():
        same = pc.and_(pc.equal(table["kind"], own["kind"]), pc.equal(table["cluster"], own["cluster"]))
        members = table.filter(same).to_pylist()
        others = [member for member in members if (member["shard"], member["row"]) != (shard, row)]
        kept = next(member for member in members if member["kept"])
        groups.append(
            {
                "kind": own["kind"],
                "cluster": own["cluster"],
                "documents": len(members),
                "this_one_is_kept": own["kept"],
                "kept": _document(kept, names),
                "others": [_document(other, names) for other in others[:OTHERS]],
                "others_not_listed": max(0, len(others) - OTHERS),
            }
        )
    return groups


def _document(member: dict[str, Any], names: ShardNames) -> dict[str, Any]:
    return {"shard": member["shard"], "row": member["row"], "name": names.of(member["shard"])}


def _place_order(place: str) -> tuple[int, int, str]:
    """Sort ``record 9`` before ``record 10``, and what names no record last."""
    word, _, number = place.partition(" ")
    known = word == "record" and number.isdecimal()
    return (0, int(number), "") if known else (1, 0, place)
