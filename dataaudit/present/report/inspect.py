"""``dataaudit inspect``: what a manifest knows of one shard, or of one document of it. Never its text.

What is returned is what ``--json`` prints; :mod:`dataaudit.present.report.inspect_blocks` makes pages of the same.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.errors import ManifestError
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.locate import find_place
from dataaudit.manifest.reading import RESTORE
from dataaudit.metrics.disclosure import Count, about, hide, suppressed
from dataaudit.metrics.overlap.evidence import ShardNames
from dataaudit.metrics.pii.cells import pii_cells, shard_counts
from dataaudit.metrics.pii.definition import ANALYZER
from dataaudit.metrics.recomputed import LOST
from dataaudit.metrics.records import JUDGED
from dataaudit.metrics.registry import SHARD_STATISTICS
from dataaudit.metrics.shown import STATUSES, reason_text
from dataaudit.present.report.highlights import outliers
from dataaudit.present.report.inspect_blocks import COUNTED, render_row, render_shard

LISTED = 10
"""Other members of a group, other shards, and rows of each kind that are listed; the rest is counted."""
_COMPARED = tuple(statistic.column for statistic in SHARD_STATISTICS if statistic.compared)
"""Columns of the shards that are set beside those of the split's other shards."""
_FURTHER = "further records"
_LOOKED_FOR = {
    "exact": "exact_dup_rate",
    "neighbours": "near_dup_rate",
    "hotspots": "repeat_token_share",
    "held_out_copies": "held_out_copies",
    "items": "contaminated",
    "pii": "pii",
    "secrets": "secrets",
}
"""What a build looks for in documents, and the column of the shards that has a value then."""
Entry = dict[str, Any]


def inspect_place(folder: Path, place: str, *, as_json: bool) -> str:
    """Return the facts of a shard, or of a document."""
    manifest = load_manifest(folder)
    names = ShardNames(manifest)
    match = find_place(place, manifest.table("shards", ["shard", "split", "uri"]))
    shard = _shard(manifest, match.shard, names)
    if match.row is not None:
        value: Entry = {"id": manifest.id, "shard": shard, "row": _row(manifest, shard, match.row, names)}
        return t.as_json(value) if as_json else render_row(value)
    value = {
        "id": manifest.id,
        "shard": shard,
        "medians_of_others": _medians_of_others(manifest, shard),
        "outliers": [row for row in outliers(manifest) if row["shard"] == match.shard],
        "rules": _rules(manifest, shard),
        "judged": _judged(manifest, match.shard),
        "duplicates": _duplicates(manifest, match.shard, names),
    }
    return t.as_json(value) if as_json else render_shard(value, manifest.place)


def _shard(manifest: Manifest, ordinal: int, names: ShardNames) -> Entry:
    """Return the shard's row with the meaning of its status and its losses."""
    row: Entry = manifest.table("shards").slice(ordinal, 1).to_pylist()[0]
    losses = _rows(manifest.table("ledger"), shard=ordinal).to_pylist()
    losses.sort(key=lambda loss: (loss["reason"], *_place_order(loss["place"])))
    return {
        **row,
        **_personal_data(manifest, row),
        "name": names.of(ordinal),
        "root": manifest.run.roots.get(row["split"], ""),
        "status_meaning": STATUSES.get(row["status"], ""),
        "losses": [
            {"reason": loss["reason"], "meaning": reason_text(loss["reason"])}
            | {name: loss[name] for name in ("place", "records", "bytes")}
            for loss in losses
        ],
    }


def _place_order(place: str) -> tuple[int, int, str]:
    """Sort ``record 9`` before ``record 10``, and what names no record last."""
    word, _, number = place.partition(" ")
    known = word == "record" and number.isdecimal()
    return (0, int(number), "") if known else (1, 0, place)


def _rows(table: pa.Table, **values: Any) -> pa.Table:
    """Return the rows that have some values."""
    for name, value in values.items():
        table = table.filter(pc.equal(table[name], value))
    return table


def _others(manifest: Manifest, shard: Entry, *columns: str) -> list[Entry]:
    """Return the split's other shards that have documents."""
    table = _rows(manifest.table("shards", ["shard", "split", "documents", *columns]), split=shard["split"])
    rows: list[Entry] = table.filter(pc.greater(table["documents"], 0)).to_pylist()
    return [row for row in rows if row["shard"] != shard["shard"]]


def _medians_of_others(manifest: Manifest, shard: Entry) -> dict[str, float | None]:
    """Return the median of each compared column over the split's other shards; None where none has a value."""
    rows, medians = _others(manifest, shard, *_COMPARED), {}
    for name in _COMPARED:
        values = [row[name] / (row["documents"] if name in COUNTED else 1) for row in rows if row[name] is not None]
        medians[name] = statistics.median(values) if values else None
    return medians


def _rules(manifest: Manifest, shard: Entry) -> list[Entry] | None:
    """Return the quality rules, highest share of the documents first; None when there is nothing to speak of."""
    if shard["filters"] is None or not shard["documents"]:
        return None
    rates: dict[str, list[float]] = {}
    for row in _others(manifest, shard, "filters"):
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


def _personal_data(manifest: Manifest, row: Entry) -> Entry:
    """Return what stands in place of a shard's columns of personal data, rounded, small counts left out."""
    if row["pii"] is None:
        return {}
    if (cells := pii_cells(manifest)) is None:  # without cells small counts look like others
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


def _judged(manifest: Manifest, shard: int) -> list[Entry]:
    """Return what judges found in sampled documents of a shard, by detector and class; small counts are left out."""
    table = _rows(manifest.table("findings", ["detector", "class", "tier", "shard", "row"]), tier=JUDGED)
    grouped = table.group_by(["detector", "class", "shard"], use_threads=False)
    cells: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for row in grouped.aggregate([("row", "count_distinct"), ("row", "count")]).to_pylist():
        own = cells.setdefault((row["detector"], row["class"]), {})
        own[row["shard"]] = (row["row_count_distinct"], row["row_count"])
    judged = []
    for (detector, name), by_shard in sorted(cells.items()):
        documents, hits = by_shard.get(shard, (0, 0))
        order = list(by_shard).index(shard) if shard in by_shard else len(by_shard)
        hidden = hide([*by_shard.values(), (0, 0)]) if detector == ANALYZER else None
        if hidden is not None:
            documents, hits = about(documents), about(hits)
        count = Count(hits=hits, documents=documents, per_million=None, share=None)
        if hidden is not None and order in hidden.cells:
            count = suppressed(below=hidden.below)
        if count.suppressed or count.hits:
            judged.append({"judge": detector, "class": name, **_pair(count)})
    return judged


def _pair(count: Count) -> Entry:
    """Return hits and documents; null, with a mark, where they are suppressed."""
    pair: Entry = {"hits": count.hits, "documents": count.documents}
    return pair | ({"suppressed": True, "fewer_than": count.fewer_than} if count.suppressed else {})


def _duplicates(manifest: Manifest, ordinal: int, names: ShardNames) -> Entry:
    """Return, for each kind of group, how many documents of the shard repeat others, and where those are."""
    table = manifest.table("clusters")
    answer: Entry = {}
    for kind in pc.unique(table["kind"]).to_pylist():
        groups = _rows(table, kind=kind)
        own = _rows(groups, shard=ordinal)
        repeats = _rows(own, kept=False)
        keepers = _rows(groups, kept=True)
        keeper_of = dict(zip(keepers["cluster"].to_pylist(), keepers["shard"].to_pylist(), strict=True))
        kept_in = Counter[int]()
        for cluster in repeats["cluster"].to_pylist():
            if (shard := keeper_of.get(cluster)) is None:
                raise ManifestError(f"table clusters: the group {cluster} of kind {kind} keeps no document", RESTORE)
            kept_in[shard] += 1
        others = groups.filter(
            pc.and_(pc.not_equal(groups["shard"], ordinal), pc.is_in(groups["cluster"], own["cluster"]))
        )
        shared = others.group_by("shard").aggregate([("cluster", "count_distinct")]).to_pylist()
        answer[kind] = {
            "documents_in_groups": own.num_rows,
            "documents_to_drop": repeats.num_rows,
            "kept_in": _ranked(kept_in.items(), names),
            "shares_groups_with": _ranked([(row["shard"], row["cluster_count_distinct"]) for row in shared], names),
        }
    return answer


def _ranked(pairs: Iterable[tuple[int, int]], names: ShardNames) -> Entry:
    """Return the shards with the highest counts, and how many shards there are."""
    ranked = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    top = [{"shard": shard, "name": names.of(shard), "count": number} for shard, number in ranked[:LISTED]]
    return {"shards": len(ranked), "top": top}


def _row(manifest: Manifest, shard: Entry, row: int, names: ShardNames) -> Entry:
    """Return what is known of one row: whether it exists, was usable, and repeats others; None: that is not known."""
    losses = [loss for loss in shard["losses"] if loss["place"] == f"record {row}"]
    unlisted = sum(loss["records"] for loss in shard["losses"] if loss["place"] == _FURTHER)
    unread = shard["status"] in LOST
    place = {"shard": shard["shard"], "row": row}
    return {
        "row": row,
        "exists": True if row < shard["rows"] else None if unread else False,
        "bad": [loss["reason"] for loss in losses],
        "bad_meaning": [loss["meaning"] for loss in losses],
        "bad_records_not_listed": unlisted,
        "in_metrics": False if unread or losses or row >= shard["rows"] else None if unlisted else True,
        "groups": _groups(manifest, place, names),
        "found": {
            "neighbours": _first_rows(_neighbours(manifest, place), names),
            "overlap": _first_rows(_in_it(manifest, place)),
            "copied_by": _first_rows(_copied_by(manifest, shard, row), names),
            "hotspots": _first_rows(_hotspots(manifest, place)),
            "findings": _first_rows(_findings(manifest, place)),
            "looked_for": _looked_for(manifest, shard),
        },
    }


def _first_rows(rows: list[Entry], names: ShardNames | None = None) -> Entry:
    first = [row if names is None else row | {"name": names.of(row["shard"])} for row in rows[:LISTED]]
    return {"count": len(rows), "first": first, "not_listed": len(rows) - len(first)}


def _groups(manifest: Manifest, place: Entry, names: ShardNames) -> list[Entry]:
    """Return every group of duplicates the document is in."""

    def document(member: Entry) -> Entry:
        return {"shard": member["shard"], "row": member["row"], "name": names.of(member["shard"])}

    table, groups = manifest.table("clusters"), []
    for own in _rows(table, **place).to_pylist():
        members = _rows(table, kind=own["kind"], cluster=own["cluster"]).to_pylist()
        others = [member for member in members if member | place != member]
        groups.append(
            {
                "kind": own["kind"],
                "cluster": own["cluster"],
                "documents": len(members),
                "this_one_is_kept": own["kept"],
                "kept": document(next(member for member in members if member["kept"])),
                "others": [document(other) for other in others[:LISTED]],
                "others_not_listed": max(0, len(others) - LISTED),
            }
        )
    return groups


def _neighbours(manifest: Manifest, place: Entry) -> list[Entry]:
    """Return the documents of its pairs, most alike first, and whether its cluster keeps each."""
    table, near = manifest.table("pairs"), _rows(manifest.table("clusters"), kind="near")
    pairs = [
        {"shard": pair[f"{other}_shard"], "row": pair[f"{other}_row"]}
        | {name: pair[name] for name in ("jaccard", "verified")}
        for own, other in (("left", "right"), ("right", "left"))
        for pair in _rows(table, **{f"{own}_{name}": value for name, value in place.items()}).to_pylist()
    ]
    clusters = _rows(near, **place)["cluster"]
    keepers = _rows(near.filter(pc.is_in(near["cluster"], clusters)), kept=True).to_pylist()
    kept = {(keeper["shard"], keeper["row"]) for keeper in keepers}
    pairs.sort(key=lambda pair: (-pair["jaccard"], pair["shard"], pair["row"]))
    return [pair | {"kept": (pair["shard"], pair["row"]) in kept} for pair in pairs]


def _in_it(manifest: Manifest, place: Entry) -> list[Entry]:
    """Return what is protected and stands in the document, the surest matches first."""
    names = ["set", "item", "part", "tier", "rule", "start", "end", "score", "score_without_common"]
    rows: list[Entry] = _rows(manifest.table("overlap"), **place).select(names).to_pylist()
    return sorted(rows, key=lambda row: (row["tier"] != "verbatim", -row["score"]))


def _copied_by(manifest: Manifest, shard: Entry, row: int) -> list[Entry]:
    """Return the training documents that hold a piece of a held-out document, most of it first."""
    item = f"{shard['shard']}:{row}"
    copies = _rows(manifest.table("overlap"), part="document", item=item, set=shard["split"])
    names = ["shard", "row", "rule", "start", "end", "score", "score_without_common"]
    rows: list[Entry] = copies.select(names).to_pylist()
    return sorted(rows, key=lambda row: -row["score"])


def _hotspots(manifest: Manifest, place: Entry) -> list[Entry]:
    """Return the repeated spans in the document, those of most documents first."""
    members = _rows(manifest.table("hotspot_members"), **place).to_pylist()
    spots = manifest.table("hotspots", ["hotspot", "words", "documents", "occurrences"])
    wanted = pa.array([member["hotspot"] for member in members], pa.int64())
    by_number = {spot["hotspot"]: spot for spot in spots.filter(pc.is_in(spots["hotspot"], wanted)).to_pylist()}
    return [by_number[member["hotspot"]] | {"start": member["start"], "end": member["end"]} for member in members]


def _findings(manifest: Manifest, place: Entry) -> list[Entry]:
    """Return all findings in one document, in the order of their bytes, those of judges last."""
    names = ["detector", "class", "tier", "shard", "row", "start", "end", "score", "reserved"]
    rows = _rows(manifest.table("findings", names), **place).drop_columns(["shard", "row"]).to_pylist()
    return sorted(
        rows, key=lambda row: (row["tier"] == JUDGED, *(row[n] for n in ("start", "end", "detector", "class")))
    )


def _looked_for(manifest: Manifest, shard: Entry) -> list[str]:
    """Return the names of what the build looked for in this shard."""
    names = [name for name, column in _LOOKED_FOR.items() if shard[column] is not None]
    held_out = {split.name for split in manifest.core.splits if split.held_out}
    copies = manifest.table("shards", ["held_out_copies"])["held_out_copies"]
    return [*names, "copied_by"] if shard["split"] in held_out and copies.null_count < len(copies) else names
