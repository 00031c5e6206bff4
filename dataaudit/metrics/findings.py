"""What families of pattern findings share: their statistics by tier."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc

from dataaudit.metrics.family import ENTITIES, SOURCES, Draws, Statistic, statistics
from dataaudit.metrics.recomputed import Agrees, Check, Follows, Number

TIERS = ("validated", "contextual", "pattern")
"""How sure a finding is, the surest first."""
TRUNCATED = "truncated"
"""Statistic that counts the documents that were not searched whole."""
LOWER_BOUNDS = frozenset(
    {"reserved", *(f"{tier}{stat}" for tier in ("", *(f"{tier}_" for tier in TIERS)) for stat in ("hits", "documents"))}
)
"""Statistics that are lower bounds where there are such documents."""


def pattern_statistics(metric: str, *, hits: str, documents: str, draws: Draws = "") -> tuple[Statistic, ...]:
    """Return the statistics of findings: hits and documents in all and by tier, reserved values, cut documents.

    Args:
        metric: The metric.
        hits: Unit of hits.
        documents: Unit of documents.
        draws: Of what a share of documents is drawn.
    """
    entity = frozenset({"entity"})
    return (
        *statistics(
            metric, " ".join(("hits", *(f"{tier}_hits" for tier in TIERS))), hits, ENTITIES, absent_is_zero=entity
        ),
        *statistics(
            metric,
            " ".join(("documents", *(f"{tier}_documents" for tier in TIERS))),
            documents,
            ENTITIES,
            absent_is_zero=entity,
            draws=draws,
        ),
        *statistics(metric, "reserved", "hits", ENTITIES, absent_is_zero=entity),
        *statistics(metric, TRUNCATED, "documents", SOURCES, absent_is_zero=entity),
    )


def own_findings(detector: str, tier: str = "") -> pc.Expression:
    """Return which rows of ``findings`` a detector's patterns found, of a tier or of all, reserved values aside."""
    found = (pc.field("detector") == detector) & (pc.field("tier") != "judged") & ~pc.field("reserved")
    return found & (pc.field("tier") == tier) if tier else found


def own_hits(detector: str, tier: str = "") -> Number:
    """Return how many rows those are."""
    return Number("findings", "", own_findings(detector, tier))


def pattern_checks(metric: str, detector: str, among: str, column: str) -> Iterator[Check]:
    """Yield that the statistics of findings, and a column of lists of shards, follow from the rows of ``findings``."""
    documents, shapes = Number("shards", "documents"), "all, split, entity, split and entity"
    reserved = (pc.field("detector") == detector) & (pc.field("tier") != "judged") & pc.field("reserved")
    yield Follows(metric, "reserved", Number("findings", "", reserved), documents, shapes)
    for tier in ("", *TIERS):
        prefix, rows = f"{tier}_" if tier else "", own_findings(detector, tier)
        yield Follows(metric, f"{prefix}hits", own_hits(detector, tier), Number("shards", among), shapes)
        yield Follows(metric, f"{prefix}documents", Number("findings", "", rows, ("shard", "row")), documents, shapes)
    hits = Number(f"shards.{column}", "hits")
    yield Agrees(f"hits of shards: {column}", hits, own_hits(detector), "shard and entity and tier")
