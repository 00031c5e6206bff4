"""Tables of what was found in documents: duplicates, leaks, repeated spans, findings, strata of a judged sample."""

from __future__ import annotations

import pyarrow as pa

from dataaudit.manifest.table_spec import COUNT, RATIO, ROW, SHARD, SPAN, STRING, TableSpec, field

CLUSTERS = TableSpec(
    name="clusters",
    about="Duplicate groups: every member, and which one is kept.",
    key=("kind", "cluster", "shard", "row"),
    schema=pa.schema(
        [
            field("kind", STRING, "exact or near"),
            field("cluster", COUNT, "number of the group, by its first member"),
            SHARD,
            ROW,
            field("kept", pa.bool_(), "True for the one member to keep"),
        ]
    ),
)

PAIRS = TableSpec(
    name="pairs",
    about="Near-duplicate pairs with their Jaccard similarity.",
    key=("left_shard", "left_row", "right_shard", "right_row"),
    schema=pa.schema(
        [
            field("left_shard", pa.int32(), "row of shards"),
            field("left_row", COUNT, "record"),
            field("right_shard", pa.int32(), "row of shards"),
            field("right_row", COUNT, "record"),
            field("jaccard", RATIO, "similarity of the shingle sets"),
            field("verified", pa.bool_(), "True when computed exactly"),
        ]
    ),
)

NEAR_SOURCES = TableSpec(
    name="near_sources",
    about="Near-duplicates by their split and source, and by those of their earliest near-duplicate.",
    key=("split", "source", "earlier_split", "earlier_source"),
    schema=pa.schema(
        [
            field("split", STRING, "split of the document"),
            field("source", STRING, "source of the document"),
            field("earlier_split", STRING, "split of its earliest near-duplicate"),
            field("earlier_source", STRING, "source of its earliest near-duplicate"),
            field("documents", COUNT, "documents"),
        ]
    ),
)

SIGNATURES = TableSpec(
    name="signatures",
    about="The shards whose MinHash signatures the manifest keeps, in `signatures/<shard>.parquet`.",
    key=("shard",),
    schema=pa.schema(
        [
            SHARD,
            field("documents", COUNT, "documents that have words, and so a signature"),
            field("digest", STRING, "sha256 over the file's rows, classes and signatures"),
        ]
    ),
)

OVERLAP = TableSpec(
    name="overlap",
    about="Matches between training documents and protected sets.",
    key=("set", "item", "part", "tier", "rule", "shard", "row", "start", "end"),
    schema=pa.schema(
        [
            field("set", STRING, "evaluation set, or held-out split"),
            field("item", STRING, "item of the set; shard:row of a held-out document"),
            field("part", STRING, "question, answer or both; document for a held-out split"),
            field("tier", STRING, "verbatim or similar"),
            field("rule", STRING, "verbatim, similar, context, alone; span, ngram, whole for a held-out document"),
            SHARD,
            ROW,
            *SPAN,
            field("score", RATIO, "words (of ngram: 13-grams) in common / those of the part"),
        ]
    ),
)


def _affected(name: str, kind: pa.DataType, meaning: str) -> pa.DataType:
    counts = [field("documents", COUNT, "documents that hold it"), field("occurrences", COUNT, "occurrences")]
    return pa.list_(pa.struct([field(name, kind, meaning), *counts]))


HOTSPOTS = TableSpec(
    name="hotspots",
    about="Spans of 50 words and more that many training documents hold, the most widely held first.",
    key=("hotspot",),
    schema=pa.schema(
        [
            field("hotspot", COUNT, "number, from 1: by documents, then occurrences, most first, then by first place"),
            field("hash", STRING, "of its words: 64 bits, hex"),
            field("words", COUNT, "length in words"),
            field("documents", COUNT, "documents that hold it"),
            field("occurrences", COUNT, "occurrences"),
            field("tokens", COUNT, "tokens of all its occurrences, each word of a document once"),
            field("variants", COUNT, "other spans merged into it: shorter, a little longer, or shifted"),
            field(
                "shards",
                _affected("shard", pa.int32(), "row of shards"),
                "the ten shards with the most documents that hold it, most first",
            ),
            field(
                "sources",
                _affected("source", STRING, "source"),
                "the ten sources with the most documents that hold it, most first",
            ),
        ]
    ),
)

HOTSPOT_MEMBERS = TableSpec(
    name="hotspot_members",
    about="Where each repeated span occurs.",
    key=("hotspot", "shard", "row", "start", "end"),
    schema=pa.schema([field("hotspot", COUNT, "number of hotspots"), SHARD, ROW, *SPAN]),
)

FINDINGS = TableSpec(
    name="findings",
    about="Detector findings: positions, classes and scores, never text.",
    key=("detector", "class", "tier", "shard", "row", "start", "end"),
    schema=pa.schema(
        [
            field("detector", STRING, "pii, secrets, or the judge that looked at a sample"),
            field("class", STRING, "entity type, or class of the judge"),
            field("tier", STRING, "validated, contextual or pattern; judged: a judge said so of a sampled document"),
            SHARD,
            ROW,
            *SPAN,
            field("score", RATIO, "confidence"),
            field("reserved", pa.bool_(), "True for an example, a reserved value or an allowed one: in no rate"),
            field("hmac", STRING, "first 16 bytes of HMAC-SHA256 of the normal form, hex; only with a key", null=True),
        ]
    ),
)

JUDGED = TableSpec(
    name="judged",
    about="What the rates of a judge's sample rest on: the size of every stratum, documents judged, positive ones.",
    key=("metric", "class", "split", "source", "language", "level"),
    schema=pa.schema(
        [
            field("metric", STRING, "data_toxicity_rate or pii_hit_rate"),
            field("class", STRING, "class of the judge or entity type"),
            field("split", STRING, "split"),
            field("source", STRING, "source; `other` stands for those with few documents"),
            field("language", STRING, "language code; `other` stands for those with few documents"),
            field("level", COUNT, "level that the screen gave; -1: not screened"),
            field("documents", COUNT, "documents of the stratum"),
            field("tokens", COUNT, "their tokens"),
            field("judged", COUNT, "documents that the judge looked at"),
            field("judged_tokens", COUNT, "tokens of these"),
            field("positive", COUNT, "of these, documents of the class"),
            field("hits", COUNT, "findings in them; 0 for a class of whole documents"),
        ]
    ),
)
