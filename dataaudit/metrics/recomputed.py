"""Numbers that other tables determine, computed again from those tables alone.

The definition of a family lists its relations: which tables determine which records of ``metrics`` and which columns of
``shards``. A manifest whose digests all fit may still contradict itself; then one of its tables was edited. What a
whole corpus determines and no table holds (percentiles of density, drift from a reference that is not there,
duplicates of a source) is in no relation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.manifest.tables import HELD_BACK
from dataaudit.metrics.unusual_language import COLUMN, COLUMNS, unusual_language_shares

COUNTS = ("documents", "bytes", "tokens")
TIERS = ("validated", "contextual", "pattern")
FAULTS = {
    "markup_lines": "text_lines",
    "markup_documents": "documents",
    "encoded_documents": "documents",
    "wordless_documents": "documents",
    **{
        f"{kind}_{unit}": unit
        for kind in ("mojibake", "replacement", "control", "invisible", "escapes", "entities", "tags", "base64")
        for unit in ("documents", "bytes")
    },
}
"""Statistics of encoding faults, which are columns of ``shards``, and the column that each is a share of."""
LOST = ("quarantined", "skipped")
PAIRED = ("verified", "left_shard", "left_row", "right_shard", "right_row")
Shards = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a record counts, its numerator where it is a share, is so much at least and at most."""

    metric: str
    stat: str
    scope: Scope
    least: int
    most: int | None = None
    """None where the tables do not tell: they list some of what was counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """What some tables say of numbers that stand elsewhere too."""

    records: list[Metric] = field(default_factory=list)
    """Records as the tables determine them; their version is left out of account."""
    columns: dict[str, list[float | int | None]] = field(default_factory=dict)
    """Columns of ``shards``, a value for each row; None where nothing is determined."""
    sums: list[tuple[str, float, float]] = field(default_factory=list)
    """Two tables that have to agree: in words, and both numbers."""
    undivided: set[str] = field(default_factory=set)
    """Statistics whose records of sources do not add up to that of all."""
    bounds: list[Bound] = field(default_factory=list)
    """Numbers of which the tables tell the least, or the most, that they can be."""
    open: set[str] = field(default_factory=set)
    """Metrics of which there may be records that these tables do not determine."""


def volumes(manifest: Manifest) -> Recomputed:
    """Counts and shares of sources from ``sources``; that table from the sources of ``shards``."""
    by_scope = totals(manifest.table("sources").to_pylist(), "source")
    found = Recomputed()
    for scope, own in by_scope.items():
        found.records.extend([as_count(name, "count", own[name], scope, own["documents"]) for name in COUNTS])
        if scope.source is not None:
            whole = by_scope[Scope(split=scope.split)]["tokens"]
            found.records.append(as_ratio("source_mix_share", "share", own["tokens"], whole, scope))
    declared = [*_declared(manifest)]
    found.records.extend(declared)
    told = len(manifest.metrics("source_mix_share", "declared"))
    found.sums.append(("declared shares and those of the core's mixture", told, len(declared)))
    shards = read_shards(manifest, "sources", *COUNTS)
    _agree(found, "sources", by_scope, totals(_listed(shards, "sources"), "source"))
    for name in COUNTS:
        found.columns[name] = column_of(
            manifest, {row["shard"]: sum(one[name] for one in row["sources"]) for row in shards}
        )
    return found


def densities(manifest: Manifest) -> Recomputed:
    """Bytes per token from ``sources``; those of shards from the sources of ``shards``."""
    found = Recomputed()
    for scope, own in totals(manifest.table("sources").to_pylist(), "source").items():
        found.records.append(as_ratio("bytes_per_token", "ratio", own["bytes"], own["tokens"], scope))
    shards = read_shards(manifest, "bytes", "tokens")
    by_shard = {row["shard"]: row["bytes"] / row["tokens"] for row in shards if row["tokens"]}
    found.columns["bytes_per_token"] = column_of(manifest, by_shard)
    return found


def languages(manifest: Manifest) -> Recomputed:
    """Counts, density and shares of languages from ``languages``; their sums are those of other tables."""
    rows = manifest.table("languages").to_pylist()
    by_language, whole = totals(rows, "language"), totals(rows, "source")
    found = Recomputed()
    for scope, own in by_language.items():
        if scope.language is None:
            continue
        found.records.extend([as_count(name, "count", own[name], scope, own["documents"]) for name in COUNTS])
        found.records.append(as_ratio("bytes_per_token", "ratio", own["bytes"], own["tokens"], scope))
        total = by_language[Scope(split=scope.split)]["tokens"]
        found.records.append(as_ratio("language_share", "share", own["tokens"], total, scope))
    for scope, own in totals(rows, "source", "language").items():
        if scope.source is not None and scope.language is not None:
            total = whole[Scope(split=scope.split, source=scope.source)]["tokens"]
            found.records.append(as_ratio("language_share", "share", own["tokens"], total, scope))
    _agree(found, "languages", whole, totals(manifest.table("sources").to_pylist(), "source"))
    shards = [row for row in read_shards(manifest, "languages") if row["languages"] is not None]
    _agree(found, "languages", by_language, totals(_listed(shards, "languages"), "language"))
    table = manifest.table("shards", [*COLUMNS, COLUMN])
    found.columns[COLUMN] = [None if math.isnan(one) else one for one in unusual_language_shares(table).tolist()]
    return found


def lengths(manifest: Manifest) -> Recomputed:
    """Percentiles of length and the longest document from ``lengths``, where its buckets are single values."""
    rows = manifest.table("lengths").to_pylist()
    found = Recomputed(undivided={"p1", "p5", "p25", "p50", "p75", "p95", "p99", "max"})
    groups: dict[Scope, list[dict[str, Any]]] = {}
    for row in rows:
        for scope in _scopes(row, "source"):
            groups.setdefault(scope, []).append(row)
    for scope, own in groups.items():
        if any(row["low"] != row["high"] for row in own):
            found.open.add("seq_len_p50_p95")
            continue
        own.sort(key=lambda row: int(row["low"]))
        documents = sum(row["documents"] for row in own)
        stats = {f"p{percent}": -(-percent * documents // 100) for percent in (1, 5, 25, 50, 75, 95, 99)}
        for stat, rank in {**stats, "max": documents}.items():
            value = _at_rank(own, max(1, rank))
            found.records.append(as_number("seq_len_p50_p95", stat, value, scope, documents))
    sizes = {scope: sum(row["documents"] for row in own) for scope, own in groups.items()}
    for scope, counts in totals(manifest.table("sources").to_pylist(), "source").items():
        words = f"documents of lengths and of sources, {_words(scope)}"
        found.sums.append((words, sizes.get(scope, 0), counts["documents"]))
    return found


def rejections(manifest: Manifest) -> Recomputed:
    """What quality rules would reject, of all and of a split, from the counts of ``shards``."""
    shards = [row for row in read_shards(manifest, "split", "documents", "filters") if row["filters"] is not None]
    found, sums, documents = Recomputed(), dict[Scope, int](), dict[str | None, int]()
    for row in shards:
        for split in (None, row["split"]):
            documents[split] = documents.get(split, 0) + row["documents"]
            for one in row["filters"]:
                scope = Scope(split=split, rule=one["rule"] or None)
                sums[scope] = sums.get(scope, 0) + one["documents"]
    for scope, value in sums.items():
        found.records.append(as_ratio("filter_reject_rate", "rate", value, documents[scope.split], scope))
    return found


def faults(manifest: Manifest) -> Recomputed:
    """Encoding faults of all and of a split, from the counts of ``shards``."""
    shards = read_shards(manifest, "text_lines", "documents", "bytes", *FAULTS)
    found = Recomputed()
    for scope, rows in of_splits([row for row in shards if row["text_lines"] is not None]).items():
        is_blank = not any(row["text_lines"] for row in rows)
        for stat, of in FAULTS.items():
            value, whole = (sum(row[name] or 0 for row in rows) for name in (stat, of))
            whole = 0 if is_blank and stat != "wordless_documents" else whole
            found.records.append(as_ratio("encoding_faults", stat, value, whole, scope))
    return found


def screened(manifest: Manifest) -> Recomputed:
    """What the toxicity screen could judge and what it says, of all and of a split, from ``shards``."""
    shards = read_shards(manifest, "split", "documents", "toxicity_screened", "toxicity_screen")
    found = Recomputed(undivided={"screen"})
    for scope, rows in of_splits(shards).items():
        judged, documents = (sum(row[name] or 0 for row in rows) for name in ("toxicity_screened", "documents"))
        found.records.append(as_ratio("data_toxicity_rate", "screened_share", judged, documents, scope))
        millionths = sum(
            round((row["toxicity_screen"] or 0) * (row["toxicity_screened"] or 0) * 1_000_000) for row in rows
        )
        if judged:
            found.records.append(as_number("data_toxicity_rate", "screen", millionths / 1e6 / judged, scope, judged))
    return found


def secrets(manifest: Manifest) -> Recomputed:
    """Secrets of all, of a split and of a shard, by entity and tier, from ``findings``."""
    found, by_shard = _findings(manifest, "secrets", "secret_hit_rate", "secrets")
    found.columns["secret_hits"] = column_of(manifest, {shard: own["", ""]["hits"] for shard, own in by_shard.items()})
    found.columns["secrets_validated"] = column_of(
        manifest, {shard: own["", TIERS[0]]["hits"] for shard, own in by_shard.items()}
    )
    return found


def personal_data(manifest: Manifest) -> Recomputed:
    """Personal data of all, of a split and of a shard, by entity and tier, from ``findings``."""
    found, by_shard = _findings(manifest, "pii", "pii_hit_rate", "pii")
    tokens = {row["shard"]: row["tokens"] for row in read_shards(manifest, "tokens")}
    found.columns["pii_documents"] = column_of(
        manifest, {shard: own["", ""]["documents"] for shard, own in by_shard.items()}
    )
    found.columns["pii_hits"] = column_of(
        manifest,
        {shard: own["", ""]["hits"] / tokens[shard] * 1e6 for shard, own in by_shard.items() if tokens.get(shard)},
    )
    return found


def unread(manifest: Manifest) -> Recomputed:
    """Bytes that were not read, from ``ledger`` and the sizes of ``shards``."""
    shards = manifest.table("shards", ["shard", "split", "size", "status", "reason", "bad_records"]).to_pylist()
    shards = [row for row in shards if row["reason"] != HELD_BACK]
    planned, lost = sum(row["size"] for row in shards), {row["shard"]: row for row in shards if row["status"] in LOST}
    by_reason, bad, read = dict[str, int](), dict[int, int](), {row["shard"] for row in shards}
    for row in manifest.table("ledger").to_pylist():
        if row["shard"] not in lost and row["shard"] in read:
            by_reason[row["reason"]] = by_reason.get(row["reason"], 0) + row["bytes"]
            bad[row["shard"]] = bad.get(row["shard"], 0) + row["records"]
    for row in lost.values():
        by_reason[row["reason"]] = by_reason.get(row["reason"], 0) + row["size"]
    found, metric = Recomputed(), "coverage_unread_bytes"
    found.records.append(as_count(metric, "bytes", sum(by_reason.values()), Scope(), planned))
    found.records.extend(
        [as_count(metric, "bytes", value, Scope(rule=name), planned) for name, value in by_reason.items()]
    )
    for scope, rows in of_splits(shards).items():
        value = sum(row["size"] for row in rows if row["status"] in LOST)
        found.records.append(as_count(metric, "shard_bytes", value, scope, planned))
    for row in shards:
        if row["shard"] not in lost:
            words = f"bad records of shard {row['shard']} and of ledger"
            found.sums.append((words, row["bad_records"], bad.get(row["shard"], 0)))
    return found


def held_back(row: Mapping[str, Any]) -> dict[str, int]:
    """Return how many shards, 0 or 1, and documents of a row of ``shards`` the list of the build held back."""
    if row["status"] in LOST:
        return {"shards": int(row["reason"] == HELD_BACK), "documents": 0}
    return {"shards": 0, "documents": row["rows"] - row["documents"] - row["bad_records"]}


def held_back_shards(manifest: Manifest) -> Recomputed:
    """What the quarantine list of the build held back, from ``shards``; none where the core names nothing in force."""
    columns = ["split", "status", "reason", "rows", "documents", "bad_records"]
    shards = manifest.table("shards", columns).to_pylist()
    found = Recomputed()
    for scope, rows in of_splits(shards).items():
        counts = [held_back(row) for row in rows] if manifest.core.quarantine else []
        for stat in ("shards", "documents"):
            value = sum(one[stat] for one in counts)
            found.records.append(as_count("held_back_shards", stat, value, scope, 0))
    return found


def token_counts(manifest: Manifest) -> Recomputed:
    """Tokens of ``histogram`` are those of ``sources``, of all and of a split: its sources may be folded."""
    table = manifest.table("histogram")
    sums = table.group_by(["split"]).aggregate([("count", "sum")]).to_pylist()
    counted = totals([row | {"count": row["count_sum"]} for row in sums], sums=("count",))
    found = Recomputed()
    for scope, own in totals(manifest.table("sources").to_pylist()).items():
        told = counted.get(scope, {"count": 0})["count"]
        found.sums.append((f"tokens of histogram and of sources, {_words(scope)}", told, own["tokens"]))
    return found


def _declared(manifest: Manifest) -> Iterator[Metric]:
    """Yield the declared shares of the sources of each training split, from the core."""
    weights = {source: entry["weight"] for source, entry in manifest.core.mixture.items() if "weight" in entry}
    whole = sum(weights.values())
    for split in manifest.core.splits:
        for source, weight in weights.items() if whole and not split.held_out else ():
            yield as_number("source_mix_share", "declared", weight / whole, Scope(split=split.name, source=source), 0)


def _findings(
    manifest: Manifest, detector: str, metric: str, column: str
) -> tuple[Recomputed, dict[int, dict[tuple[str, str], dict[str, int]]]]:
    """Return counts by entity and tier, the empty name for all, of scopes; and those of each shard that was read."""
    shards = read_shards(manifest, "split", "documents", "tokens", column)
    by_shard = {row["shard"]: _no_findings() for row in shards if row[column] is not None}
    table = manifest.table("findings", ["detector", "class", "tier", "shard", "row", "reserved"])
    table = table.filter(pc.and_(pc.equal(table["detector"], detector), pc.not_equal(table["tier"], "judged")))
    for entity in ("class", ""):
        for tier in ("tier", ""):
            names = [name for name in ("shard", entity, tier) if name]
            hits = table.group_by([*names, "reserved"]).aggregate([("row", "count"), ("row", "count_distinct")])
            for row in hits.to_pylist():
                key = (row["class"] if entity else "", row["tier"] if tier else "")
                own = by_shard.setdefault(row["shard"], _no_findings()).setdefault(key, _none())
                if row["reserved"]:
                    own["reserved"] += row["row_count"]
                else:
                    own["hits"], own["documents"] = row["row_count"], row["row_count_distinct"]
    found = Recomputed()
    for scope, rows in of_splits(shards).items():
        added: dict[tuple[str, str], dict[str, int]] = _no_findings()
        for row in rows:
            for key, own in by_shard.get(row["shard"], {}).items():
                held = added.setdefault(key, _none())
                for name, value in own.items():
                    held[name] += value
        documents, tokens = (sum(row[name] for row in rows) for name in ("documents", "tokens"))
        for (entity, tier), own in added.items():
            named = Scope(split=scope.split, entity=entity or None)
            prefix = f"{tier}_" if tier else ""
            found.records.extend(_of_findings(metric, prefix, own, named, documents, tokens))
    found.sums.extend(
        (
            f"{column} of shard {row['shard']} and of findings: {key}",
            told.get(key, 0),
            by_shard[row["shard"]].get(key, _none())["hits"],
        )
        for row in shards
        if row[column] is not None
        for told in [{(one["entity"], one["tier"]): one["hits"] for one in row[column]}]
        for key in {*told, *(key for key in by_shard[row["shard"]] if all(key))}
        if by_shard[row["shard"]].get(key, _none())["hits"] or key in told
    )
    return found, by_shard


def _of_findings(
    metric: str, prefix: str, own: Mapping[str, int], scope: Scope, documents: int, tokens: int
) -> Iterator[Metric]:
    if metric == "pii_hit_rate":
        if tokens:
            yield as_number(metric, f"{prefix}hits", own["hits"] / tokens * 1e6, scope, tokens)
        yield as_ratio(metric, f"{prefix}documents", own["documents"], documents, scope)
    else:
        yield as_count(metric, f"{prefix}hits", own["hits"], scope, documents)
        yield as_count(metric, f"{prefix}documents", own["documents"], scope, documents)
    if not prefix:
        yield as_count(metric, "reserved", own["reserved"], scope, documents)


def _none() -> dict[str, int]:
    return {"hits": 0, "documents": 0, "reserved": 0}


def _no_findings() -> dict[tuple[str, str], dict[str, int]]:
    return {("", tier): _none() for tier in ("", *TIERS)}


def read_shards(manifest: Manifest, *columns: str) -> Shards:
    """Return some columns of the shards that were read."""
    names = list(dict.fromkeys(("shard", "split", "status", *columns)))
    return [row for row in manifest.table("shards", names).to_pylist() if row["status"] not in LOST]


def column_of(manifest: Manifest, values: Mapping[int, float | int]) -> list[float | int | None]:
    """Return a column of ``shards``: the value of each shard, None without one."""
    return [values.get(shard) for shard in range(manifest.core.tables["shards"].rows)]


def of_splits(shards: Shards) -> dict[Scope, Shards]:
    """Return the shards of everything and of each split."""
    found: dict[Scope, Shards] = {Scope(): shards}
    for row in shards:
        found.setdefault(Scope(split=row["split"]), []).append(row)
    return found


def _listed(shards: Shards, column: str) -> Shards:
    """Return the items of a column of lists, with their split."""
    return [one | {"split": row["split"]} for row in shards for one in row[column]]


def _scopes(row: Mapping[str, Any], *names: str) -> Iterator[Scope]:
    """Yield the scopes that a row counts in: with and without its split, and with and without each further name."""
    for split in (None, row["split"]):
        for chosen in range(1 << len(names)):
            yield Scope(split=split, **{name: row[name] for place, name in enumerate(names) if chosen >> place & 1})


def totals(rows: Shards, *names: str, sums: tuple[str, ...] = COUNTS) -> dict[Scope, dict[str, int]]:
    """Return the sums of some columns, of every scope that a row counts in."""
    found: dict[Scope, dict[str, int]] = {Scope(): dict.fromkeys(sums, 0)}
    for row in rows:
        for scope in _scopes(row, *names):
            own = found.setdefault(scope, dict.fromkeys(sums, 0))
            for name in sums:
                own[name] += row[name]
    return found


def _agree(
    found: Recomputed, table: str, left: Mapping[Scope, Mapping[str, int]], right: Mapping[Scope, Mapping[str, int]]
) -> None:
    """Add that two ways to count the same scopes agree."""
    none = dict.fromkeys(COUNTS, 0)
    for scope in {**left, **right}:
        for name in COUNTS:
            words = f"{name} of {table} and of what it adds up, {_words(scope)}"
            found.sums.append((words, left.get(scope, none)[name], right.get(scope, none)[name]))


def _at_rank(rows: Shards, rank: int) -> int:
    """Return the value of the document of a rank, from 1, of rows in order of their value."""
    seen = 0
    for row in rows:
        seen += row["documents"]
        if seen >= rank:
            return int(row["low"])
    return 0


def _words(scope: Scope) -> str:
    return ", ".join(f"{name} {value}" for name, value in scope.as_dict().items()) or "all"


def as_count(metric: str, stat: str, value: int, scope: Scope, n: int) -> Metric:
    """Return a count as the tables determine it."""
    return count(metric, stat, value, scope=scope, unit="", n=n, version="")


def as_ratio(metric: str, stat: str, value: int, whole: int, scope: Scope) -> Metric:
    """Return a share as the tables determine it."""
    return ratio(metric, stat, value, whole, scope=scope, unit="", version="")


def as_number(metric: str, stat: str, value: float, scope: Scope, whole: int) -> Metric:
    """Return another number as the tables determine it."""
    return Metric(metric=metric, stat=stat, scope=scope, unit="", value=value, n=whole, denominator=whole, version="")
