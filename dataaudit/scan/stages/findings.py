"""Findings of pattern detectors for their stages: counted by source, entity and tier, and as keyed rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.scan.annotators import FINDINGS, num_tokens
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.detectors.patterns.entity import FindingBatch, Tier
from dataaudit.scan.stages.groups import KEY_BYTES, Groups, digest_keys
from dataaudit.scan.stages.partial import Partial, TableShape, group

TABLE = "findings"
"""Name of the keyed table."""
HMAC_BYTES = 16
FINDING_ROWS = pa.schema(
    [
        ("key", pa.binary(KEY_BYTES)),
        ("row", pa.int64()),
        ("entity", pa.string()),
        ("tier", pa.int64()),
        ("reserved", pa.bool_()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("score", pa.float64()),
        ("keyed", pa.binary(HMAC_BYTES)),
    ]
)
"""Keyed rows, one for each finding; ``keyed`` is null without the user's key."""
TIERS = tuple(tier.name.lower() for tier in Tier)
"""The surest first."""
ANY = ""
"""All entities or tiers together."""
SHAPES = {
    "found": TableShape(
        keys={"source": pa.string(), "entity": pa.string(), "tier": pa.string()}, sums=("hits", "documents", "reserved")
    ),
    "totals": TableShape(keys={"source": pa.string()}, sums=("documents", "bytes", "tokens", "truncated")),
}


def own_findings(batch: DocBatch, detector: str) -> FindingBatch:
    """Return the findings of one detector."""
    findings = batch.get(FINDINGS)
    chosen = np.array([name == detector for name in findings.detectors], dtype=bool)[findings.codes]
    names = ("documents", "codes", "tiers", "reserved", "starts", "ends", "scores")
    return replace(
        findings,
        keyed=None if findings.keyed is None else findings.keyed[chosen],
        **{name: getattr(findings, name)[chosen] for name in names},
    )


def count_findings(batch: DocBatch, findings: FindingBatch) -> dict[str, pa.Table]:
    """Return the partial of a batch: hits and their documents; reserved values are only counted.

    A document counts once for an entity and tier, once for an entity in any tier, once for a tier, once in all.
    """
    sources, entities = np.array(batch.source_names, dtype=object), np.array(findings.entities, dtype=object)
    source, entity = sources[batch.source_codes[findings.documents]], entities[findings.codes]
    tier = np.array(TIERS, dtype=object)[findings.tiers]
    real = ~findings.reserved
    pieces = [SHAPES["found"].schema().empty_table()]
    none = np.full(len(entity), ANY, dtype=object)
    for by_entity, by_tier in ((entity, tier), (entity, none), (none, tier), (none, none)):
        table = pa.table(
            {
                "source": pa.array(source, pa.string()),
                "entity": pa.array(by_entity, pa.string()),
                "tier": pa.array(by_tier, pa.string()),
                "hits": real.astype(np.int64),
                "documents": _first_of(findings.documents, by_entity, by_tier, real),
                "reserved": (~real).astype(np.int64),
            }
        )
        pieces.append(table.cast(SHAPES["found"].schema()))
    totals = {
        "source": batch.sources().cast(pa.string()),
        "documents": np.ones(len(batch), dtype=np.int64),
        "bytes": batch.num_bytes(),
        "tokens": num_tokens(batch),
        "truncated": findings.truncated.astype(np.int64),
    }
    return {
        "found": group(SHAPES["found"], pa.concat_tables(pieces)),
        "totals": group(SHAPES["totals"], pa.table(totals).cast(SHAPES["totals"].schema())),
    }


def _first_of(documents: np.ndarray, entity: np.ndarray, tier: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Return int64[f]: 1 at the first real finding of each document, entity and tier."""
    seen: set[tuple[int, str, str]] = set()
    first = np.zeros(len(documents), dtype=np.int64)
    for index in np.flatnonzero(real).tolist():
        name = (int(documents[index]), entity[index], tier[index])
        if name not in seen:
            seen.add(name)
            first[index] = 1
    return first


def finding_rows(batch: DocBatch, findings: FindingBatch) -> pa.Table:
    """Return the keyed rows of the findings of a batch, of schema :data:`FINDING_ROWS`."""
    assert batch.digests is not None
    size = len(findings.documents)
    if findings.keyed is None:
        keyed = pa.nulls(size, pa.binary(HMAC_BYTES))
    else:
        data = pa.py_buffer(np.ascontiguousarray(findings.keyed))
        keyed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(HMAC_BYTES), size, [None, data])
    columns = (
        digest_keys(batch.digests[findings.documents]),
        batch.rows[findings.documents],
        pa.array(findings.entities, pa.string()).take(pa.array(findings.codes)),
        findings.tiers,
        findings.reserved,
        findings.starts,
        findings.ends,
        findings.scores,
        keyed,
    )
    return pa.table(dict(zip(FINDING_ROWS.names, columns, strict=True))).cast(FINDING_ROWS)


Counts = dict[tuple[str, str], dict[str, int]]
"""Hits, documents and reserved by (entity, tier)."""


def counts_by_source(partial: Partial) -> dict[str, tuple[Counts, dict[str, int]]]:
    """Return, by source, the counts and the totals: documents, bytes, tokens, truncated documents."""
    sources: dict[str, tuple[Counts, dict[str, int]]] = {}
    for row in partial["totals"].to_pylist():
        sources[row.pop("source")] = ({}, row)
    for row in partial["found"].to_pylist():
        sources[row.pop("source")][0][row.pop("entity"), row.pop("tier")] = row
    return sources


def whole_counts(by_source: Mapping[str, tuple[Counts, Mapping[str, int]]]) -> tuple[Counts, dict[str, int]]:
    """Return the counts and the totals of all sources together."""
    counts: Counts = {}
    totals = dict.fromkeys(SHAPES["totals"].sums, 0)
    for own, sizes in by_source.values():
        for key, numbers in own.items():
            known = counts.setdefault(key, dict.fromkeys(numbers, 0))
            for name, number in numbers.items():
                known[name] += number
        for name, number in sizes.items():
            totals[name] += number
    return counts, totals


@dataclass(frozen=True, slots=True)
class Tiered:
    """Findings of a tier, or of all, in the whole scope and in each source: of all entities, and of each."""

    tier: str
    """Tier, or :data:`ANY`."""
    groups: Groups
    """Of a source, or none for the whole, and an entity, or none for all."""
    places: np.ndarray
    """int64[g] index of each group's totals."""
    sums: Mapping[str, np.ndarray]
    """int64[g] hits, documents and reserved by name."""


def by_tier(partial: Partial, groups: Groups) -> list[Tiered]:
    """Return the findings of all tiers together, then of each; rows of all entities are there, if only with zeros."""
    table, size = partial["found"], len(groups)
    names = SHAPES["found"].sums
    pieces = [
        table.drop_columns(["source"]).append_column("group", pa.array(indices))
        for indices in (np.zeros(table.num_rows, dtype=np.int64), groups.places(table))
    ]
    for tier in (ANY, *TIERS):
        none = {"entity": pa.array([ANY] * size), "tier": pa.array([tier] * size)}
        none |= {name: pa.array(np.zeros(size, dtype=np.int64)) for name in names}
        pieces.append(pa.table({**none, "group": np.arange(size)}).select(pieces[0].column_names))
    keys = ["group", "entity", "tier"]
    every = pa.concat_tables(pieces).group_by(keys, use_threads=False).aggregate([(name, "sum") for name in names])
    tiers = []
    for tier in (ANY, *TIERS):
        rows = every.filter(pc.equal(every["tier"], tier)).combine_chunks()
        indices, entity = rows["group"].combine_chunks(), rows["entity"].combine_chunks()
        entity = pc.if_else(pc.equal(entity, ANY), pa.scalar(None, pa.string()), entity)
        own = replace(groups, names=groups.names.take(indices), others={"entity": entity})
        tiers.append(Tiered(tier, own, indices.to_numpy(), {name: rows[f"{name}_sum"].to_numpy() for name in names}))
    return tiers


def with_tiers(counts: Counts) -> list[tuple[tuple[str, str], dict[str, int]]]:
    """Return the counts sorted by entity and tier; every tier of all entities together is there, if only with zeros."""
    none = dict.fromkeys(SHAPES["found"].sums, 0)
    return sorted(({(ANY, tier): none for tier in (ANY, *TIERS)} | counts).items())


def column_rows(partial: Partial) -> list[Mapping[str, Any]]:
    """Return hits and documents by entity and tier, of entities with hits, for a column of the shards."""
    return [
        {"entity": entity, "tier": tier, **{name: counts[name] for name in ("hits", "documents")}}
        for (entity, tier), counts in sorted(whole_counts(counts_by_source(partial))[0].items())
        if entity and tier and counts["hits"]
    ]
