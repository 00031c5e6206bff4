"""What families of pattern findings share: their statistics by tier."""

from __future__ import annotations

from dataaudit.metrics.family import ENTITIES, SOURCES, Draws, Statistic, statistics

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
