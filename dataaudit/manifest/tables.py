"""Arrow schemas of every table of a manifest, with the key that sorts and identifies its rows.

Tables name documents as ``shard`` (int32, the row of ``shards``) and ``row`` (int64, in the shard's
reading order). Offsets are in bytes of the text's UTF-8. No table holds document text.
"""

from __future__ import annotations

import pyarrow as pa

from dataaudit.manifest.found_tables import (
    CLUSTERS,
    FINDINGS,
    HOTSPOT_MEMBERS,
    HOTSPOTS,
    JUDGED,
    NEAR_SOURCES,
    OVERLAP,
    PAIRS,
    SIGNATURES,
)
from dataaudit.manifest.table_spec import COUNT, RATIO, SHARD, STRING, TableSpec, field


def _counts_by(name: str, meaning: str) -> pa.DataType:
    counts = [field(unit, COUNT, unit) for unit in ("documents", "bytes", "tokens")]
    return pa.list_(pa.struct([field(name, STRING, meaning), *counts]))


_FOUND = pa.list_(
    pa.struct(
        [
            field("entity", STRING, "entity type"),
            field("tier", STRING, "validated, contextual or pattern"),
            field("hits", COUNT, "findings"),
            field("documents", COUNT, "documents that hold one"),
        ]
    )
)

SHARDS = TableSpec(
    name="shards",
    about="A row per shard: what it is, what became of it, and every per-shard metric.",
    key=("shard",),
    schema=pa.schema(
        [
            field("shard", pa.int32(), "ordinal: shards are ordered by (split, uri)"),
            field("uri", STRING, "URI relative to the root; `#copy=2` marks a second listing of one file"),
            field("split", STRING, "split"),
            field("format", STRING, "parquet, arrow, jsonl, text, datasets or unknown"),
            field("compression", STRING, "none, gzip, zstd, bzip2 or xz"),
            field("size", COUNT, "stored bytes; of a streamed dataset the bytes of its texts"),
            field("sha256", STRING, "of the stored bytes, hex; of a streamed dataset its rows_digest; empty: unread"),
            field("rows_digest", STRING, "sha256 over the documents' texts and sources in order", null=True),
            field("schema_fingerprint", STRING, "sha256 of the column names and types, hex", null=True),
            field("status", STRING, "ok, partial, quarantined or skipped"),
            field("reason", STRING, "reason code when not ok"),
            field("rows", COUNT, "records read, bad ones included"),
            field("documents", COUNT, "documents that entered the metrics"),
            field("bytes", COUNT, "UTF-8 bytes of their text"),
            field("tokens", COUNT, "tokens without special ones"),
            field("bad_records", COUNT, "records that could not be used"),
            field(
                "sources",
                _counts_by("source", "source"),
                "counts per source, sorted by source",
            ),
            field(
                "languages",
                _counts_by("language", "language code, `und` when unsure"),
                "counts per language, sorted by language; null when languages were not looked for",
                null=True,
            ),
            field("bytes_per_token", RATIO, "bytes / tokens", null=True),
            field("bytes_per_token_p50", RATIO, "median over documents", null=True),
            field("seq_len_p50", RATIO, "median tokens of a document", null=True),
            field("seq_len_p95", RATIO, "95th percentile of tokens", null=True),
            field("seq_len_max", COUNT, "longest document, tokens", null=True),
            field("exact_dup_rate", RATIO, "documents seen before in the manifest's order / all", null=True),
            field("near_dup_rate", RATIO, "documents with an earlier verified near-duplicate / all", null=True),
            field(
                "repeat_token_share", RATIO, "tokens inside repeated spans / tokens; null for held-out data", null=True
            ),
            field("token_kl_drift", RATIO, "KL(tokens || tokens of its split in the reference), nats", null=True),
            field("token_js_drift", RATIO, "their Jensen-Shannon divergence, nats", null=True),
            field("token_kl_bias", RATIO, "KL that chance alone gives a shard of this size, nats", null=True),
            field("filter_reject_rate", RATIO, "documents that some quality rule would reject / all", null=True),
            field(
                "filters",
                pa.list_(pa.struct([field("rule", STRING, "rule"), field("documents", COUNT, "documents rejected")])),
                "documents that each quality rule, and any rule of each set, would reject; sorted by rule",
                null=True,
            ),
            field(
                "toxicity_screen",
                RATIO,
                "mean calibrated P(toxic) of the screen over its documents; no judge looked",
                null=True,
            ),
            field("toxicity_screened", COUNT, "documents that the toxicity screen could judge", null=True),
            field(
                "pii_hits",
                RATIO,
                "personal data found, hits per million tokens; reserved values are left out",
                null=True,
            ),
            field("pii_documents", COUNT, "documents that hold some", null=True),
            field("pii", _FOUND, "personal data by entity and tier, sorted; reserved values are left out", null=True),
            field("secret_hits", COUNT, "secrets found; placeholders and allowed ones are left out", null=True),
            field("secrets_validated", COUNT, "of these, those whose structure confirms them", null=True),
            field("secrets", _FOUND, "secrets by entity and tier, sorted", null=True),
            field("held_out_copies", COUNT, "training documents with a copied span of a held-out one", null=True),
            field("contaminated", COUNT, "training documents that hold an item of an evaluation set", null=True),
        ]
    ),
)

METRICS = TableSpec(
    name="metrics",
    about="Every metric record of the dataset, its splits and its sources.",
    key=(
        "metric",
        "stat",
        "scope.split",
        "scope.source",
        "scope.language",
        "scope.shard",
        "scope.set",
        "scope.entity",
        "scope.rule",
    ),
    schema=pa.schema(
        [
            field("metric", STRING, "name, public API"),
            field("stat", STRING, "statistic of the metric, public API"),
            field(
                "scope",
                pa.struct(
                    [
                        field("split", STRING, "split", null=True),
                        field("source", STRING, "source", null=True),
                        field("language", STRING, "language", null=True),
                        field("shard", pa.int32(), "row of shards", null=True),
                        field("set", STRING, "protected set", null=True),
                        field("entity", STRING, "entity type", null=True),
                        field("rule", STRING, "rule", null=True),
                    ]
                ),
                "what the value speaks of; null means all",
            ),
            field("unit", STRING, "unit of value, low and high"),
            field("value", RATIO, "the number", null=True),
            field("low", RATIO, "lower bound", null=True),
            field("high", RATIO, "upper bound", null=True),
            field("confidence", RATIO, "coverage of the interval", null=True),
            field("n", COUNT, "observations"),
            field("denominator", COUNT, "what was divided by"),
            field("method", STRING, "exact, sampled or estimated"),
            field("status", STRING, "ok, not_evaluated or not_applicable"),
            field("reason", STRING, "code when there is no value"),
            field("version", STRING, "version of the definition"),
        ]
    ),
)

SOURCES = TableSpec(
    name="sources",
    about="Documents, bytes and tokens per split and source.",
    key=("split", "source"),
    schema=pa.schema(
        [
            field("split", STRING, "split"),
            field("source", STRING, "source"),
            field("documents", COUNT, "documents"),
            field("bytes", COUNT, "UTF-8 bytes of text"),
            field("tokens", COUNT, "tokens"),
        ]
    ),
)

LANGUAGES = TableSpec(
    name="languages",
    about="Documents, bytes and tokens per split, source and language.",
    key=("split", "source", "language"),
    schema=pa.schema(
        [
            field("split", STRING, "split"),
            field("source", STRING, "source"),
            field("language", STRING, "language code, `und` when unsure"),
            field("documents", COUNT, "documents"),
            field("bytes", COUNT, "UTF-8 bytes of text"),
            field("tokens", COUNT, "tokens"),
        ]
    ),
)

LENGTHS = TableSpec(
    name="lengths",
    about="Distribution of tokens per document: exact values, or buckets once there are over 10^5.",
    key=("split", "source", "low", "high"),
    schema=pa.schema(
        [
            field("split", STRING, "split"),
            field("source", STRING, "source"),
            field("low", COUNT, "least tokens of the bucket"),
            field("high", COUNT, "most tokens of the bucket; equal to low when exact"),
            field("documents", COUNT, "documents in it"),
        ]
    ),
)

HISTOGRAM = TableSpec(
    name="histogram",
    about="Token counts per split and source: the reference for drift.",
    key=("split", "source", "token"),
    schema=pa.schema(
        [
            field("split", STRING, "split"),
            field("source", STRING, "source"),
            field("token", pa.int32(), "token id"),
            field("count", COUNT, "occurrences"),
        ]
    ),
)

DRIFT = TableSpec(
    name="drift",
    about="The tokens that make up most of the divergence from the reference, per split and source.",
    key=("split", "source", "token"),
    schema=pa.schema(
        [
            field("split", STRING, "split; null for the whole dataset", null=True),
            field("source", STRING, "source; null for all of the split", null=True),
            field("token", pa.int32(), "token id"),
            field(
                "piece",
                STRING,
                "its entry in the vocabulary, escaped where it is not printable; empty when it has none",
            ),
            field("count", COUNT, "occurrences"),
            field("reference_count", COUNT, "occurrences in the reference"),
            field("kl", RATIO, "what it adds to KL, nats; negative where it became rarer"),
            field("js", RATIO, "what it adds to the Jensen-Shannon divergence, nats"),
            field("rank", COUNT, "from 1, by js"),
        ]
    ),
)

LEDGER = TableSpec(
    name="ledger",
    about="What was not read: every loss with its place and reason.",
    key=("shard", "reason", "place"),
    schema=pa.schema(
        [
            SHARD,
            field("reason", STRING, "reason code"),
            field("place", STRING, "where: a line, a row group, a byte; the first places when there are many"),
            field("records", COUNT, "records lost; -1 when it cannot be known"),
            field("bytes", COUNT, "bytes lost: stored ones of a whole shard, decoded ones of a record"),
        ]
    ),
)

TABLES: dict[str, TableSpec] = {
    spec.name: spec
    for spec in (
        SHARDS,
        METRICS,
        SOURCES,
        LANGUAGES,
        LENGTHS,
        HISTOGRAM,
        DRIFT,
        CLUSTERS,
        PAIRS,
        NEAR_SOURCES,
        SIGNATURES,
        OVERLAP,
        HOTSPOTS,
        HOTSPOT_MEMBERS,
        FINDINGS,
        JUDGED,
        LEDGER,
    )
}
"""Every table of a manifest; each is written in every manifest, empty where nothing filled it."""
