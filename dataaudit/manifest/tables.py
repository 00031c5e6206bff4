"""Arrow schemas of every table of a manifest, with the key that sorts and identifies its rows.

Tables name documents as ``shard`` (int32, the row of ``shards``) and ``row`` (int64, in the shard's
reading order). Offsets are in bytes of the text's UTF-8. No table holds document text.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

_STRING = pa.string()
_COUNT = pa.int64()
_RATIO = pa.float64()


def _f(name: str, kind: pa.DataType, meaning: str, *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={"meaning": meaning})


def _counts_by(name: str, meaning: str) -> pa.DataType:
    counts = [_f(unit, _COUNT, unit) for unit in ("documents", "bytes", "tokens")]
    return pa.list_(pa.struct([_f(name, _STRING, meaning), *counts]))


_FOUND = pa.list_(
    pa.struct(
        [
            _f("entity", _STRING, "entity type"), _f("tier", _STRING, "validated, contextual or pattern"),
            _f("hits", _COUNT, "findings"), _f("documents", _COUNT, "documents that hold one"),
        ]
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """Name, schema and key of one table."""

    name: str
    """Name in the manifest; the file is ``<name>.parquet``."""
    schema: pa.Schema
    """Columns in their order; every field's metadata says what it means."""
    key: tuple[str, ...]
    """Columns (dotted into structs) that identify a row and sort the table."""
    about: str
    """One line for the format page."""


_SHARD = _f("shard", pa.int32(), "row of shards")
_ROW = _f("row", _COUNT, "record of the shard, in reading order, bad records counted")
_SPAN = [_f("start", _COUNT, "first byte"), _f("end", _COUNT, "byte after the last")]

SHARDS = TableSpec(
    name="shards",
    about="A row per shard: what it is, what became of it, and every per-shard metric.",
    key=("shard",),
    schema=pa.schema(
        [
            _f("shard", pa.int32(), "ordinal: shards are ordered by (split, uri)"),
            _f("uri", _STRING, "URI relative to the root; `#copy=2` marks a second listing of one file"),
            _f("split", _STRING, "split"),
            _f("format", _STRING, "parquet, arrow, jsonl, text, datasets or unknown"),
            _f("compression", _STRING, "none, gzip, zstd, bzip2 or xz"),
            _f("size", _COUNT, "stored bytes; of a streamed dataset the bytes of its texts"),
            _f("sha256", _STRING, "of the stored bytes, hex; of a streamed dataset its rows_digest; empty: unread"),
            _f("rows_digest", _STRING, "sha256 over the documents' texts and sources in order", null=True),
            _f("schema_fingerprint", _STRING, "sha256 of the column names and types, hex", null=True),
            _f("status", _STRING, "ok, partial, quarantined or skipped"),
            _f("reason", _STRING, "reason code when not ok"),
            _f("rows", _COUNT, "records read, bad ones included"),
            _f("documents", _COUNT, "documents that entered the metrics"),
            _f("bytes", _COUNT, "UTF-8 bytes of their text"),
            _f("tokens", _COUNT, "tokens without special ones"),
            _f("bad_records", _COUNT, "records that could not be used"),
            _f(
                "sources",
                _counts_by("source", "source"),
                "counts per source, sorted by source",
            ),
            _f(
                "languages",
                _counts_by("language", "language code, `und` when unsure"),
                "counts per language, sorted by language; null when languages were not looked for",
                null=True,
            ),
            _f("bytes_per_token", _RATIO, "bytes / tokens", null=True),
            _f("bytes_per_token_p50", _RATIO, "median over documents", null=True),
            _f("seq_len_p50", _RATIO, "median tokens of a document", null=True),
            _f("seq_len_p95", _RATIO, "95th percentile of tokens", null=True),
            _f("seq_len_max", _COUNT, "longest document, tokens", null=True),
            _f("exact_dup_rate", _RATIO, "documents seen before in the manifest's order / all", null=True),
            _f("near_dup_rate", _RATIO, "documents with an earlier verified near-duplicate / all", null=True),
            _f(
                "repeat_token_share", _RATIO, "tokens inside repeated spans / tokens; null for held-out data", null=True
            ),
            _f("token_kl_drift", _RATIO, "KL(tokens || tokens of its split in the reference), nats", null=True),
            _f("token_js_drift", _RATIO, "their Jensen-Shannon divergence, nats", null=True),
            _f("token_kl_bias", _RATIO, "KL that chance alone gives a shard of this size, nats", null=True),
            _f("filter_reject_rate", _RATIO, "documents that some quality rule would reject / all", null=True),
            _f(
                "filters",
                pa.list_(pa.struct([_f("rule", _STRING, "rule"), _f("documents", _COUNT, "documents rejected")])),
                "documents that each quality rule, and any rule of each set, would reject; sorted by rule",
                null=True,
            ),
            _f(
                "toxicity_screen",
                _RATIO,
                "mean calibrated P(toxic) of the screen over its documents; no judge looked",
                null=True,
            ),
            _f("toxicity_screened", _COUNT, "documents that the toxicity screen could judge", null=True),
            _f(
                "pii_hits",
                _RATIO,
                "personal data found, hits per million tokens; reserved values are left out",
                null=True,
            ),
            _f("pii_documents", _COUNT, "documents that hold some", null=True),
            _f("pii", _FOUND, "personal data by entity and tier, sorted; reserved values are left out", null=True),
            _f("secret_hits", _COUNT, "secrets found; placeholders and allowed ones are left out", null=True),
            _f("secrets_validated", _COUNT, "of these, those whose structure confirms them", null=True),
            _f("secrets", _FOUND, "secrets by entity and tier, sorted", null=True),
            _f("held_out_copies", _COUNT, "training documents with a copied span of a held-out one", null=True),
            _f("contaminated", _COUNT, "training documents that hold an item of an evaluation set", null=True),
        ]
    ),
)

METRICS = TableSpec(
    name="metrics",
    about="Every metric record of the dataset, its splits and its sources.",
    key=(
        "metric", "stat", "scope.split", "scope.source", "scope.language", "scope.shard", "scope.set",
        "scope.entity", "scope.rule",
    ),
    schema=pa.schema(
        [
            _f("metric", _STRING, "name, public API"),
            _f("stat", _STRING, "statistic of the metric, public API"),
            _f(
                "scope",
                pa.struct(
                    [
                        _f("split", _STRING, "split", null=True),
                        _f("source", _STRING, "source", null=True),
                        _f("language", _STRING, "language", null=True),
                        _f("shard", pa.int32(), "row of shards", null=True),
                        _f("set", _STRING, "protected set", null=True),
                        _f("entity", _STRING, "entity type", null=True),
                        _f("rule", _STRING, "rule", null=True),
                    ]
                ),
                "what the value speaks of; null means all",
            ),
            _f("unit", _STRING, "unit of value, low and high"),
            _f("value", _RATIO, "the number", null=True),
            _f("low", _RATIO, "lower bound", null=True),
            _f("high", _RATIO, "upper bound", null=True),
            _f("confidence", _RATIO, "coverage of the interval", null=True),
            _f("n", _COUNT, "observations"),
            _f("denominator", _COUNT, "what was divided by"),
            _f("method", _STRING, "exact, sampled or estimated"),
            _f("status", _STRING, "ok, not_evaluated or not_applicable"),
            _f("reason", _STRING, "code when there is no value"),
            _f("version", _STRING, "version of the definition"),
        ]
    ),
)  # fmt: skip

SOURCES = TableSpec(
    name="sources",
    about="Documents, bytes and tokens per split and source.",
    key=("split", "source"),
    schema=pa.schema(
        [
            _f("split", _STRING, "split"),
            _f("source", _STRING, "source"),
            _f("documents", _COUNT, "documents"),
            _f("bytes", _COUNT, "UTF-8 bytes of text"),
            _f("tokens", _COUNT, "tokens"),
        ]
    ),
)

LANGUAGES = TableSpec(
    name="languages",
    about="Documents, bytes and tokens per split, source and language.",
    key=("split", "source", "language"),
    schema=pa.schema(
        [
            _f("split", _STRING, "split"),
            _f("source", _STRING, "source"),
            _f("language", _STRING, "language code, `und` when unsure"),
            _f("documents", _COUNT, "documents"),
            _f("bytes", _COUNT, "UTF-8 bytes of text"),
            _f("tokens", _COUNT, "tokens"),
        ]
    ),
)

LENGTHS = TableSpec(
    name="lengths",
    about="Distribution of tokens per document: exact values, or buckets once there are over 10^5.",
    key=("split", "source", "low", "high"),
    schema=pa.schema(
        [
            _f("split", _STRING, "split"),
            _f("source", _STRING, "source"),
            _f("low", _COUNT, "least tokens of the bucket"),
            _f("high", _COUNT, "most tokens of the bucket; equal to low when exact"),
            _f("documents", _COUNT, "documents in it"),
        ]
    ),
)

HISTOGRAM = TableSpec(
    name="histogram",
    about="Token counts per split and source: the reference for drift.",
    key=("split", "source", "token"),
    schema=pa.schema(
        [
            _f("split", _STRING, "split"),
            _f("source", _STRING, "source"),
            _f("token", pa.int32(), "token id"),
            _f("count", _COUNT, "occurrences"),
        ]
    ),
)

DRIFT = TableSpec(
    name="drift",
    about="The tokens that make up most of the divergence from the reference, per split and source.",
    key=("split", "source", "token"),
    schema=pa.schema(
        [
            _f("split", _STRING, "split; null for the whole dataset", null=True),
            _f("source", _STRING, "source; null for all of the split", null=True),
            _f("token", pa.int32(), "token id"),
            _f(
                "piece",
                _STRING,
                "its entry in the vocabulary, escaped where it is not printable; empty when it has none",
            ),
            _f("count", _COUNT, "occurrences"),
            _f("reference_count", _COUNT, "occurrences in the reference"),
            _f("kl", _RATIO, "what it adds to KL, nats; negative where it became rarer"),
            _f("js", _RATIO, "what it adds to the Jensen-Shannon divergence, nats"),
            _f("rank", _COUNT, "from 1, by js"),
        ]
    ),
)

CLUSTERS = TableSpec(
    name="clusters",
    about="Duplicate groups: every member, and which one is kept.",
    key=("kind", "cluster", "shard", "row"),
    schema=pa.schema(
        [
            _f("kind", _STRING, "exact or near"),
            _f("cluster", _COUNT, "number of the group, by its first member"),
            _SHARD,
            _ROW,
            _f("kept", pa.bool_(), "True for the one member to keep"),
        ]
    ),
)

PAIRS = TableSpec(
    name="pairs",
    about="Near-duplicate pairs with their Jaccard similarity.",
    key=("left_shard", "left_row", "right_shard", "right_row"),
    schema=pa.schema(
        [
            _f("left_shard", pa.int32(), "row of shards"),
            _f("left_row", _COUNT, "record"),
            _f("right_shard", pa.int32(), "row of shards"),
            _f("right_row", _COUNT, "record"),
            _f("jaccard", _RATIO, "similarity of the shingle sets"),
            _f("verified", pa.bool_(), "True when computed exactly"),
        ]
    ),
)

NEAR_SOURCES = TableSpec(
    name="near_sources",
    about="Near-duplicates by their split and source, and by those of their earliest near-duplicate.",
    key=("split", "source", "earlier_split", "earlier_source"),
    schema=pa.schema(
        [
            _f("split", _STRING, "split of the document"),
            _f("source", _STRING, "source of the document"),
            _f("earlier_split", _STRING, "split of its earliest near-duplicate"),
            _f("earlier_source", _STRING, "source of its earliest near-duplicate"),
            _f("documents", _COUNT, "documents"),
        ]
    ),
)

SIGNATURES = TableSpec(
    name="signatures",
    about="The shards whose MinHash signatures the manifest keeps, in `signatures/<shard>.parquet`.",
    key=("shard",),
    schema=pa.schema(
        [
            _SHARD,
            _f("documents", _COUNT, "documents that have words, and so a signature"),
            _f("digest", _STRING, "sha256 over the file's rows, classes and signatures"),
        ]
    ),
)

OVERLAP = TableSpec(
    name="overlap",
    about="Matches between training documents and protected sets.",
    key=("set", "item", "part", "tier", "rule", "shard", "row", "start", "end"),
    schema=pa.schema(
        [
            _f("set", _STRING, "evaluation set, or held-out split"),
            _f("item", _STRING, "item of the set; shard:row of a held-out document"),
            _f("part", _STRING, "question, answer or both; document for a held-out split"),
            _f("tier", _STRING, "verbatim or similar"),
            _f("rule", _STRING, "verbatim, similar, context, alone; span, ngram, whole for a held-out document"),
            _SHARD,
            _ROW,
            *_SPAN,
            _f("score", _RATIO, "words (of ngram: 13-grams) in common / those of the part"),
        ]
    ),
)


def _affected(name: str, kind: pa.DataType, meaning: str) -> pa.DataType:
    counts = [_f("documents", _COUNT, "documents that hold it"), _f("occurrences", _COUNT, "occurrences")]
    return pa.list_(pa.struct([_f(name, kind, meaning), *counts]))


HOTSPOTS = TableSpec(
    name="hotspots",
    about="Spans of 50 words and more that many training documents hold, the most widely held first.",
    key=("hotspot",),
    schema=pa.schema(
        [
            _f("hotspot", _COUNT, "number, from 1: by documents, then occurrences, most first, then by first place"),
            _f("hash", _STRING, "of its words: 64 bits, hex"),
            _f("words", _COUNT, "length in words"),
            _f("documents", _COUNT, "documents that hold it"),
            _f("occurrences", _COUNT, "occurrences"),
            _f("tokens", _COUNT, "tokens of all its occurrences, each word of a document once"),
            _f("variants", _COUNT, "other spans merged into it: shorter, a little longer, or shifted"),
            _f(
                "shards",
                _affected("shard", pa.int32(), "row of shards"),
                "the ten shards with the most documents that hold it, most first",
            ),
            _f(
                "sources",
                _affected("source", _STRING, "source"),
                "the ten sources with the most documents that hold it, most first",
            ),
        ]
    ),
)

HOTSPOT_MEMBERS = TableSpec(
    name="hotspot_members",
    about="Where each repeated span occurs.",
    key=("hotspot", "shard", "row", "start", "end"),
    schema=pa.schema([_f("hotspot", _COUNT, "number of hotspots"), _SHARD, _ROW, *_SPAN]),
)

FINDINGS = TableSpec(
    name="findings",
    about="Detector findings: positions, classes and scores, never text.",
    key=("detector", "class", "tier", "shard", "row", "start", "end"),
    schema=pa.schema(
        [
            _f("detector", _STRING, "pii, secrets, or the judge that looked at a sample"),
            _f("class", _STRING, "entity type, or class of the judge"),
            _f("tier", _STRING, "validated, contextual or pattern; judged: a judge said so of a sampled document"),
            _SHARD,
            _ROW,
            *_SPAN,
            _f("score", _RATIO, "confidence"),
            _f("reserved", pa.bool_(), "True for an example, a reserved value or an allowed one: in no rate"),
            _f("hmac", _STRING, "first 16 bytes of HMAC-SHA256 of the normal form, hex; only with a key", null=True),
        ]
    ),
)

JUDGED = TableSpec(
    name="judged",
    about="What the rates of a judge's sample rest on: the size of every stratum, documents judged, positive ones.",
    key=("metric", "class", "split", "source", "language", "level"),
    schema=pa.schema(
        [
            _f("metric", _STRING, "data_toxicity_rate or pii_hit_rate"),
            _f("class", _STRING, "class of the judge or entity type"),
            _f("split", _STRING, "split"),
            _f("source", _STRING, "source; `other` stands for those with few documents"),
            _f("language", _STRING, "language code; `other` stands for those with few documents"),
            _f("level", _COUNT, "level that the screen gave; -1: not screened"),
            _f("documents", _COUNT, "documents of the stratum"),
            _f("tokens", _COUNT, "their tokens"),
            _f("judged", _COUNT, "documents that the judge looked at"),
            _f("judged_tokens", _COUNT, "tokens of these"),
            _f("positive", _COUNT, "of these, documents of the class"),
            _f("hits", _COUNT, "findings in them; 0 for a class of whole documents"),
        ]
    ),
)

LEDGER = TableSpec(
    name="ledger",
    about="What was not read: every loss with its place and reason.",
    key=("shard", "reason", "place"),
    schema=pa.schema(
        [
            _SHARD,
            _f("reason", _STRING, "reason code"),
            _f("place", _STRING, "where: a line, a row group, a byte; the first places when there are many"),
            _f("records", _COUNT, "records lost; -1 when it cannot be known"),
            _f("bytes", _COUNT, "bytes lost: stored ones of a whole shard, decoded ones of a record"),
        ]
    ),
)

TABLES: dict[str, TableSpec] = {
    spec.name: spec
    for spec in (
        SHARDS, METRICS, SOURCES, LANGUAGES, LENGTHS, HISTOGRAM, DRIFT, CLUSTERS, PAIRS, NEAR_SOURCES, SIGNATURES,
        OVERLAP, HOTSPOTS, HOTSPOT_MEMBERS, FINDINGS, JUDGED, LEDGER,
    )
}  # fmt: skip
"""Every table of a manifest; each is written in every manifest, empty where nothing filled it."""
