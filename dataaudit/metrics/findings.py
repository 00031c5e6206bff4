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


def found_of(detector: str, column: str, tier: str = "", *, reserved: bool = False, of_entity: bool = False) -> Number:
    """Return the hits or documents that a detector's patterns found: of a tier or all, reserved values or others."""
    rows = (pc.field("detector") == detector) & (pc.field("tier") == tier) & (pc.field("reserved") == reserved)
    return Number("found", column, rows & ((pc.field("entity") != "") == of_entity))


def pattern_checks(metric: str, detector: str, among: str, column: str) -> Iterator[Check]:
    """Yield that the statistics of findings, and a column of lists of shards, follow from the rows of ``findings``."""
    documents, hits = Number("shards", "documents"), Number("shards", among)
    for of_entity, shapes in ((False, "all, split"), (True, "entity, split and entity")):
        reserved = found_of(detector, "hits", reserved=True, of_entity=of_entity)
        yield Follows(metric, "reserved", reserved, documents, shapes)
        for tier in ("", *TIERS):
            prefix = f"{tier}_" if tier else ""
            for name, whole in (("hits", hits), ("documents", documents)):
                yield Follows(
                    metric, f"{prefix}{name}", found_of(detector, name, tier, of_entity=of_entity), whole, shapes
                )
    kinds = (pc.field("entity") != "") & (pc.field("tier") != "") & ~pc.field("reserved")
    found = Number("found", "hits", (pc.field("detector") == detector) & kinds)
    yield Agrees(f"hits of shards: {column}", Number(f"shards.{column}", "hits"), found, "shard and entity and tier")
