"""Arrow schemas of every table of a manifest, with the key that sorts and identifies its rows.

Tables name documents as ``shard`` (int32, the row of ``shards``) and ``row`` (int64, in the shard's
reading order). Offsets are in bytes of the text's UTF-8. No table holds document text.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dataaudit.manifest.formats import FORMATS, UNKNOWN

STRING = pa.string()
COUNT = pa.int64()
RATIO = pa.float64()


def field(name: str, kind: pa.DataType, meaning: str, *, null: bool = False) -> pa.Field:
    """Return a column with its meaning."""
    return pa.field(name, kind, nullable=null, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """Name, schema and key of one table."""

    name: str
    """Its file is ``<name>.parquet``."""
    schema: pa.Schema
    """The metadata of each field is its meaning."""
    key: tuple[str, ...]
    """Columns (dotted into structs) that identify a row and sort the table."""
    about: str
    """One line for the format page."""


HELD_BACK = "quarantine_list"
"""Reason of a skipped shard that the quarantine list of the build holds back: neither read nor unread."""
SHARD = field("shard", pa.int32(), "row of shards")
ROW = field("row", COUNT, "record of the shard, in reading order, bad records counted")
SPLIT = field("split", STRING, "split")
SOURCE = field("source", STRING, "source")
LANGUAGE = field("language", STRING, "language code, `und` when unsure")
SPAN = [field("start", COUNT, "first byte"), field("end", COUNT, "byte after the last")]


_COUNTS = [
    field("documents", COUNT, "documents"),
    field("bytes", COUNT, "UTF-8 bytes of text"),
    field("tokens", COUNT, "tokens"),
]


def _counts_by(column: pa.Field) -> pa.DataType:
    counts = [field(unit, COUNT, unit) for unit in ("documents", "bytes", "tokens")]
    return pa.list_(pa.struct([column, *counts]))


def _faults(kind: str, meaning: str) -> tuple[pa.Field, pa.Field]:
    """Return the columns that count documents with some kind of fault, and its bytes."""
    return (
        field(f"{kind}_documents", COUNT, f"documents with {meaning}", null=True),
        field(f"{kind}_bytes", COUNT, f"bytes of {meaning}", null=True),
    )


_HITS = pa.list_(
    pa.struct(
        [
            field("entity", STRING, "entity type"),
            field("tier", STRING, "validated, contextual or pattern"),
            field("hits", COUNT, "findings"),
            field("documents", COUNT, "documents that hold one"),
        ]
    )
)


def _affected(column: pa.Field) -> pa.DataType:
    counts = [field("documents", COUNT, "documents that hold it"), field("occurrences", COUNT, "occurrences")]
    return pa.list_(pa.struct([column, *counts]))


def _table(name: str, about: str, key: str, *columns: pa.Field) -> TableSpec:
    return TableSpec(name=name, schema=pa.schema(columns), key=tuple(key.split()), about=about)


TABLES: dict[str, TableSpec] = {
    spec.name: spec
    for spec in (
        _table(
            "shards",
            "A row per shard: what it is, what became of it, and every per-shard metric.",
            "shard",
            field("shard", pa.int32(), "ordinal: shards are ordered by (split, uri)"),
            field("uri", STRING, "URI relative to the root; `#copy=2` marks a second listing of one file"),
            SPLIT,
            field("format", STRING, f"{', '.join(FORMATS)} or {UNKNOWN}"),
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
            field("sources", _counts_by(SOURCE), "counts per source, sorted by source"),
            field(
                "languages",
                _counts_by(LANGUAGE),
                "counts per language, sorted by language; null when languages were not looked for",
                null=True,
            ),
            field(
                "unusual_language_share",
                RATIO,
                "documents in a language beyond the usual share of that language in its source / all",
                null=True,
            ),
            field("bytes_per_token", RATIO, "bytes / tokens", null=True),
            field("bytes_per_token_p50", RATIO, "median over documents", null=True),
            field("seq_len_p50", RATIO, "median tokens of a document", null=True),
            field("seq_len_p95", RATIO, "95th percentile of tokens", null=True),
            field("seq_len_max", COUNT, "longest document, tokens", null=True),
            field("exact_dup_rate", RATIO, "documents seen before in the manifest's order / all", null=True),
            field("near_dup_rate", RATIO, "those with an earlier verified near-duplicate / all with words", null=True),
            field("near_dup_undecided", COUNT, "documents that may be near-duplicates: pairs were left out", null=True),
            field("no_words", COUNT, "documents without a word, which near-duplicates leave out", null=True),
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
            field("text_lines", COUNT, "lines that are not blank", null=True),
            field("markup_lines", COUNT, "of these, those that begin or end with a tag", null=True),
            field("markup_documents", COUNT, "documents of which a quarter of the lines are markup", null=True),
            field("encoded_documents", COUNT, "documents of which a quarter of the bytes are base64", null=True),
            field("wordless_documents", COUNT, "documents without a word", null=True),
            *_faults("mojibake", "text that a wrong decoder made"),
            *_faults("replacement", "U+FFFD"),
            *_faults("control", "control characters and noncharacters"),
            *_faults("invisible", "invisible characters"),
            *_faults("escapes", "characters written out in ASCII"),
            *_faults("entities", "entities of HTML"),
            *_faults("tags", "tags of HTML or XML"),
            *_faults("base64", "runs of base64 or hexadecimal digits"),
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
            field("pii", _HITS, "personal data by entity and tier, sorted; reserved values are left out", null=True),
            field("secret_hits", COUNT, "secrets found; placeholders and allowed ones are left out", null=True),
            field("secrets_validated", COUNT, "of these, those whose structure confirms them", null=True),
            field("secrets", _HITS, "secrets by entity and tier, sorted", null=True),
            field(
                "held_out_copies",
                COUNT,
                "training documents with a span or an edited copy of a held-out one, not common",
                null=True,
            ),
            field("contaminated", COUNT, "training documents that hold an item of an evaluation set", null=True),
        ),
        _table(
            "metrics",
            "Every metric record of the dataset, its splits and its sources.",
            "metric stat scope.split scope.source scope.language scope.shard scope.set scope.entity scope.rule",
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
            field("reason", STRING, "code when there is no value, or an inexact one has no interval"),
            field("version", STRING, "version of the definition"),
        ),
        _table(
            "sources",
            "Documents, bytes and tokens per split and source.",
            "split source",
            SPLIT,
            SOURCE,
            *_COUNTS,
        ),
        _table(
            "languages",
            "Documents, bytes and tokens per split, source and language.",
            "split source language",
            SPLIT,
            SOURCE,
            LANGUAGE,
            *_COUNTS,
        ),
        _table(
            "lengths",
            "Distribution of tokens per document: exact values, or buckets once there are over 10^5.",
            "split source low high",
            SPLIT,
            SOURCE,
            field("low", COUNT, "least tokens of the bucket"),
            field("high", COUNT, "most tokens of the bucket; equal to low when exact"),
            field("documents", COUNT, "documents in it"),
        ),
        _table(
            "histogram",
            "Token counts per split and source: the reference for drift.",
            "split source token",
            SPLIT,
            SOURCE,
            field("token", pa.int32(), "token id"),
            field("count", COUNT, "occurrences"),
        ),
        _table(
            "drift",
            "The tokens that make up most of the divergence from the reference, per split and source.",
            "split source token",
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
        ),
        _table(
            "clusters",
            "Duplicate groups: every member, and which one is kept.",
            "kind cluster shard row",
            field("kind", STRING, "exact or near"),
            field("cluster", COUNT, "number of the group, by its first member"),
            SHARD,
            ROW,
            field("kept", pa.bool_(), "True for the one member to keep"),
        ),
        _table(
            "pairs",
            "Near-duplicate pairs with their Jaccard similarity.",
            "left_shard left_row right_shard right_row",
            field("left_shard", pa.int32(), "row of shards"),
            field("left_row", COUNT, "record"),
            field("right_shard", pa.int32(), "row of shards"),
            field("right_row", COUNT, "record"),
            field("jaccard", RATIO, "similarity of the shingle sets"),
            field("verified", pa.bool_(), "True when computed exactly"),
        ),
        _table(
            "near_sources",
            "Near-duplicates by their split and source, and by those of the earliest near-duplicate that was compared.",
            "split source earlier_split earlier_source",
            field("split", STRING, "split of the document"),
            field("source", STRING, "source of the document"),
            field("earlier_split", STRING, "split of its earliest near-duplicate that was compared"),
            field("earlier_source", STRING, "source of its earliest near-duplicate that was compared"),
            field("documents", COUNT, "documents"),
        ),
        _table(
            "signatures",
            "The shards whose MinHash signatures the manifest keeps, in `signatures/<shard>.parquet`.",
            "shard",
            SHARD,
            field("documents", COUNT, "documents that have words, and so a signature"),
            field("digest", STRING, "sha256 over the file's rows, classes and signatures"),
        ),
        _table(
            "overlap",
            "Matches between training documents and protected sets.",
            "set item part tier rule shard row start end",
            field("set", STRING, "evaluation set, or held-out split"),
            field("item", STRING, "item of the set; shard:row of a held-out document"),
            field("part", STRING, "question, answer or both; document for a held-out split"),
            field("tier", STRING, "verbatim or similar"),
            field(
                "rule", STRING, "verbatim, similar, context, alone; span, ngram, whole, edited for a held-out document"
            ),
            SHARD,
            ROW,
            *SPAN,
            field("score", RATIO, "words (of ngram: 13-grams) in common / those of the part"),
            field("score_without_common", RATIO, "the same without text that very many training documents hold"),
        ),
        _table(
            "hotspots",
            "Spans of 50 words and more that many training documents hold, the most widely held first.",
            "hotspot",
            field("hotspot", COUNT, "number, from 1: by documents, then occurrences, most first, then by first place"),
            field("hash", STRING, "of its words: 64 bits, hex"),
            field("words", COUNT, "length in words"),
            field("documents", COUNT, "documents that hold it"),
            field("occurrences", COUNT, "occurrences"),
            field("tokens", COUNT, "tokens of all its occurrences, each word of a document once"),
            field("variants", COUNT, "other spans merged into it: shorter, a little longer, or shifted"),
            field(
                "shards",
                _affected(SHARD),
                "the ten shards with the most documents that hold it, most first",
            ),
            field(
                "sources",
                _affected(SOURCE),
                "the ten sources with the most documents that hold it, most first",
            ),
        ),
        _table(
            "hotspot_members",
            "Where each repeated span occurs.",
            "hotspot shard row start end",
            field("hotspot", COUNT, "number of hotspots"),
            SHARD,
            ROW,
            *SPAN,
        ),
        _table(
            "findings",
            "Detector findings: positions, classes and scores, never text.",
            "detector class tier shard row start end",
            field("detector", STRING, "pii, secrets, or the judge that looked at a sample"),
            field("class", STRING, "entity type, or class of the judge"),
            field("tier", STRING, "validated, contextual or pattern; judged: a judge said so of a sampled document"),
            SHARD,
            ROW,
            *SPAN,
            field("score", RATIO, "confidence"),
            field("reserved", pa.bool_(), "True for an example, a reserved value or an allowed one: in no rate"),
            field("hmac", STRING, "first 16 bytes of HMAC-SHA256 of the normal form, hex; only with a key", null=True),
        ),
        _table(
            "judged",
            "What the rates of a judge's sample rest on: the size of every stratum, documents judged, positive ones.",
            "metric class split source language level",
            field("metric", STRING, "data_toxicity_rate or pii_hit_rate"),
            field("class", STRING, "class of the judge or entity type"),
            SPLIT,
            field("source", STRING, "source; `other` stands for those with few documents"),
            field("language", STRING, "language code; `other` stands for those with few documents"),
            field("level", COUNT, "level that the screen gave; -1: not screened"),
            field("documents", COUNT, "documents of the stratum"),
            field("tokens", COUNT, "their tokens"),
            field("judged", COUNT, "documents that the judge looked at"),
            field("judged_tokens", COUNT, "tokens of these"),
            field("positive", COUNT, "of these, documents of the class"),
            field("hits", COUNT, "findings in them; 0 for a class of whole documents"),
        ),
        _table(
            "ledger",
            "What was not read: every loss with its place and reason.",
            "shard reason place",
            SHARD,
            field("reason", STRING, "reason code"),
            field("place", STRING, "where: a line, a row group, a byte; the first places when there are many"),
            field("records", COUNT, "records lost; -1 when it cannot be known"),
            field("bytes", COUNT, "bytes lost: stored ones of a whole shard, decoded ones of a record"),
        ),
    )
}
"""Every table of a manifest; each is written in every manifest, empty where nothing filled it."""
