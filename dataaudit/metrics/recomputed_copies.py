"""Duplicates and repeats, of all and of splits, as the tables of clusters, pairs and hotspots determine them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.recomputed import (
    PAIRED,
    Bound,
    Recomputed,
    Shards,
    as_count,
    as_ratio,
    column_of,
    of_splits,
    read_shards,
    totals,
)


def exact_duplicates(manifest: Manifest) -> Recomputed:
    """Exact duplicates of all, of a split and of a shard from ``clusters``."""
    shards = read_shards(manifest, "split", "documents", "exact_dup_rate")
    clusters = manifest.table("clusters")
    groups = clusters.filter(pc.equal(clusters["kind"], "exact"))
    own = _by_shard(groups.filter(pc.invert(groups["kept"])))
    found = _duplicate_records("exact_dup_rate", shards, own, with_count=True)
    found.columns["exact_dup_rate"] = column_of(
        manifest, {row["shard"]: own.get(row["shard"], 0) / row["documents"] for row in shards if row["documents"]}
    )
    splits = manifest.table("shards", ["split"])["split"].take(groups["shard"])
    in_split = groups.append_column("split", splits).group_by("split")
    counts = in_split.aggregate([("cluster", "count"), ("cluster", "count_distinct")]).to_pylist()
    repeated = {row["split"]: row["cluster_count"] - row["cluster_count_distinct"] for row in counts}
    for split, documents in _sum_by(shards, "split", "documents").items():
        value, scope = repeated.get(split, 0), Scope(split=split)
        found.records.append(as_ratio("exact_dup_rate", "within_split_rate", value, documents, scope))
    found.sums.extend(_kept(groups))
    return found


def near_duplicates(manifest: Manifest) -> Recomputed:
    """Near-duplicates from ``near_sources``, components from ``clusters``; rates of shards add up to them."""
    shards = read_shards(manifest, "split", "documents", "no_words", "near_dup_rate")
    shards = [{**row, "worded": row["documents"] - (row["no_words"] or 0)} for row in shards]
    counted = (
        manifest.metrics("near_dup_rate", "no_words") if any(row["no_words"] is not None for row in shards) else ()
    )
    without = {one.scope: int(one.value or 0) for one in counted}
    near = totals(manifest.table("near_sources").to_pylist(), "source", sums=("documents",))
    found = Recomputed()
    for scope, counts in totals(manifest.table("sources").to_pylist(), "source").items():
        value = near.get(scope, {"documents": 0})["documents"]
        documents = counts["documents"] - without.get(scope, 0)
        found.records.append(as_count("near_dup_rate", "documents", value, scope, documents))
        found.records.append(as_ratio("near_dup_rate", "rate", value, documents, scope))
    for split in {row["split"] for row in shards}:
        rows = [row for row in shards if row["split"] == split]
        no_words = sum(row["no_words"] or 0 for row in rows)
        found.sums.append((f"documents without words, split {split}", no_words, without.get(Scope(split=split), 0)))
        rates = sum(round((row["near_dup_rate"] or 0) * row["worded"]) for row in rows)
        told = near.get(Scope(split=split), {"documents": 0})["documents"]
        found.sums.append((f"near-duplicates of shards and of near_sources, split {split}", rates, told))
    clusters = manifest.table("clusters")
    groups = clusters.filter(pc.equal(clusters["kind"], "near"))
    own = _by_shard(groups.filter(pc.invert(groups["kept"])))
    found.records.extend(_duplicate_records("near_dup_component_rate", shards, own, among="worded").records)
    sizes = groups.group_by("cluster").aggregate([("shard", "count")])["shard_count"].to_pylist()
    documents = sum(row["documents"] for row in shards)
    found.records.append(as_count("near_dup_rate", "clusters", len(sizes), Scope(), documents))
    found.records.append(as_count("near_dup_rate", "largest_cluster", max(sizes, default=0), Scope(), documents))
    for label, low, high in _size_classes(max(sizes, default=0)):
        number = sum(low <= size <= high for size in sizes)
        found.records.append(as_count("near_dup_rate", "clusters_by_size", number, Scope(rule=label), len(sizes)))
    values = {one.stat: one.value or 0 for one in manifest.metrics("near_dup_rate", scope=Scope())}
    verified = pc.sum(manifest.table("pairs", PAIRED)["verified"]).as_py() or 0
    shown = values.get("verified_pairs", 0) + values.get("same_words", 0)
    found.sums.append(("verified pairs and documents of the same words, and pairs", shown, verified))
    found.sums.extend(_kept(groups))
    return found


def repeated_spans(manifest: Manifest) -> Recomputed:
    """Repeated spans from ``hotspots`` and ``hotspot_members``, the tokens in them from ``shards``; of all and splits.

    Shorter spans and variants, which no table lists, are in the documents too: the members are the fewest there are.
    """
    spots = manifest.table("hotspots", ["hotspot", "documents", "occurrences"]).to_pylist()
    metric, held_out = "doc_repeat_hotspots", {split.name for split in manifest.core.splits if split.held_out}
    found = Recomputed(undivided={"hotspots", "largest", "largest_share"})
    members = manifest.table("hotspot_members", ["hotspot", "shard", "row"])
    splits = manifest.table("shards", ["split"])["split"].take(members["shard"])
    rows = members.append_column("split", splits).group_by(["hotspot", "shard", "row", "split"], use_threads=False)
    places = rows.aggregate([([], "count_all")])
    shards = read_shards(manifest, "split", "documents", "tokens", "repeat_token_share")
    for scope, own in of_splits([row for row in shards if row["split"] not in held_out]).items():
        documents, tokens = (sum(row[name] for row in own) for name in ("documents", "tokens"))
        held = places if scope.split is None else places.filter(pc.field("split") == scope.split)
        by_spot = held.group_by("hotspot").aggregate([("count_all", "count"), ("count_all", "sum")])
        repeated = sum(round((row["repeat_token_share"] or 0) * row["tokens"]) for row in own)
        most = pc.max(by_spot["count_all_count"]).as_py() or 0
        occurrences = pc.sum(by_spot["count_all_sum"]).as_py() or 0
        found.records.extend(
            [
                as_count(metric, "hotspots", by_spot.num_rows, scope, documents),
                as_count(metric, "occurrences", occurrences, scope, documents),
                as_count(metric, "largest", most, scope, documents),
                as_count(metric, "tokens", repeated, scope, tokens),
                as_ratio(metric, "largest_share", most, documents, scope),
                as_ratio(metric, "token_share", repeated, tokens, scope),
            ]
        )
        least = held.group_by(["shard", "row"]).aggregate([]).num_rows
        found.bounds.append(Bound(metric=metric, stat="documents", scope=scope, least=least))
    sums = places.group_by("hotspot").aggregate([("count_all", "count"), ("count_all", "sum")]).to_pylist()
    told = {row["hotspot"]: (row["count_all_count"], row["count_all_sum"]) for row in sums}
    for row in spots:
        words = f"hotspot {row['hotspot']} and its members"
        documents, occurrences = told.pop(row["hotspot"], (0, 0))
        found.sums.append((f"documents of {words}", row["documents"], documents))
        found.sums.append((f"occurrences of {words}", row["occurrences"], occurrences))
    found.sums.append(("members of no hotspot", sum(occurrences for _, occurrences in told.values()), 0))
    return found


def _duplicate_records(
    metric: str, shards: Shards, own: Mapping[int, int], *, among: str = "documents", with_count: bool = False
) -> Recomputed:
    found = Recomputed()
    for scope, rows in of_splits(shards).items():
        value, documents = sum(own.get(row["shard"], 0) for row in rows), sum(row[among] for row in rows)
        found.records.append(as_ratio(metric, "rate", value, documents, scope))
        if with_count:
            found.records.append(as_count(metric, "documents", value, scope, documents))
    return found


def _size_classes(largest: int) -> Iterator[tuple[str, int, int]]:
    """Yield the classes of cluster sizes, 2, 3 to 4, 5 to 8 and so on, up to the largest: name, least, most."""
    low, high = 2, 2
    while low <= largest:
        yield (f"documents={low}" if low == high else f"documents={low}-{high}"), low, high
        low, high = high + 1, 2 * high


def _kept(groups: pa.Table) -> Iterator[tuple[str, float, float]]:
    """Yield whether as many members are kept as there are groups, one of each."""
    kept = groups.filter(groups["kept"])
    yield "documents that clusters keep and clusters", kept.num_rows, pc.count_distinct(groups["cluster"]).as_py()
    yield (
        "clusters that keep a document and clusters",
        *(pc.count_distinct(table["cluster"]).as_py() for table in (kept, groups)),
    )


def _by_shard(rows: pa.Table) -> dict[int, int]:
    counts = rows.group_by("shard").aggregate([("shard", "count")])
    return dict(zip(counts["shard"].to_pylist(), counts["shard_count"].to_pylist(), strict=True))


def _sum_by(rows: Shards, by: str, column: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in rows:
        sums[row[by]] = sums.get(row[by], 0) + row[column]
    return sums
