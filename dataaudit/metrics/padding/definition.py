"""Padding: the share of a batch that is no token of a document, by context length and way of batching."""

from __future__ import annotations

from dataaudit.metrics.family import SOURCES, Family, MetricDefinition, statistics

METRIC = "pad_fraction"
CONTEXTS = (2048, 4096, 8192)
_WAYS = {"padded": SOURCES, "padded_batch": "all, split", "packed": "all, split", "concatenated": SOURCES}

FAMILY = Family(
    name="padding",
    metrics=(
        MetricDefinition(
            name=METRIC,
            statistics=tuple(
                one
                for way, shapes in _WAYS.items()
                for one in statistics(
                    METRIC,
                    " ".join(f"{way}_{length}" for length in CONTEXTS),
                    "ratio",
                    shapes,
                    over_tokens=True,
                )
            ),
            area="tokens",
            numbered=True,
        ),
    ),
    stage="dataaudit.metrics.padding.stage:Padding",
    stage_name="padding",
    harmless=frozenset({"contexts"}),
    shown="dataaudit.metrics.padding.facts:SHOWN",
)
