"""Every statistic that a manifest can hold: its unit, and the scopes that it is kept for.

What reads a manifest (a policy, for one) can so tell a number that is missing from one that never was, and a name that
is written wrongly from both. docs/reference/metrics.md says the same in words; a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

Population = Literal["all", "training", "held_out"]
Shape = frozenset[str]
_SOURCES = "all, split, source, split and source"
_LANGUAGES = f"{_SOURCES}, language, split and language"
_SHARES = "language, split and language, source and language, split and source and language"
_ENTITIES = f"{_SOURCES}, entity, split and entity, source and entity, split and source and entity"
_RULES = f"{_SOURCES}, rule, split and rule, source and rule, split and source and rule"
_JUDGED = f"{_SOURCES}, language"
_CLASSES = f"{_JUDGED}, entity, split and entity, source and entity, split and source and entity, language and entity"
_CONFIRMED = "all, entity, split and entity, source and entity, split and source and entity, language and entity"
_PARTS = "set and entity"
_ITEMS = "set and entity and rule"
_HIT = "hits per million tokens"
_CONTEXTS = (2048, 4096, 8192)
_TIERS = ("validated", "contextual", "pattern")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """One statistic of a metric."""

    metric: str
    stat: str
    unit: str
    shapes: frozenset[Shape]
    """The sets of scope fields for which there are records; the empty one stands for the whole dataset."""
    population: Population = "all"
    """Which splits it speaks of."""
    sources_of: Population = "all"
    """Splits whose sources its scopes name: what of held-out data stands in training is told by training's sources."""
    absent_is_zero: frozenset[str] = frozenset()
    """Scope fields whose values have a record only where there is something: no record means none of it, as long as
    it was looked for, and there is a record without the field."""
    is_amount: bool = False
    """Whether it says how much of the corpus a source or language is: of one that the manifest does not list, 0."""


_Row = tuple[str, str, str, str, Population]
"""Metric, stats, unit, shapes, population."""


def _volume() -> Iterator[_Row]:
    yield "documents", "count", "documents", _LANGUAGES, "all"
    yield "documents", "empty with_nul", "documents", _SOURCES, "all"
    yield "bytes", "count", "bytes", _LANGUAGES, "all"
    yield "tokens", "count", "tokens", _LANGUAGES, "all"
    yield "source_mix_share", "share", "ratio", "source, split and source", "all"
    yield "source_mix_share", "declared", "ratio", "split and source", "training"
    yield "language_share", "share", "ratio", _SHARES, "all"
    yield "language_share", "detector_agreement", "ratio", "all, split", "all"
    yield "bytes_per_token", "ratio", "bytes/token", _LANGUAGES, "all"
    yield "bytes_per_token", "p1 p50 p99", "bytes/token", _SOURCES, "all"
    yield "seq_len_p50_p95", "p1 p5 p25 p50 p75 p95 p99 max", "tokens", _SOURCES, "all"
    for way, shapes in (
        ("padded", _SOURCES),
        ("padded_batch", "all, split"),
        ("packed", "all, split"),
        ("concatenated", _SOURCES),
    ):
        yield "pad_fraction", " ".join(f"{way}_{length}" for length in _CONTEXTS), "ratio", shapes, "all"
    yield "token_kl_drift", "kl js kl_bias kl_excess", "nats", _SOURCES, "all"


def _quality() -> Iterator[_Row]:
    yield "filter_reject_rate", "rate", "ratio", _RULES, "all"
    yield "filter_upstream", "reject_rate", "ratio", "rule", "all"
    yield "exact_dup_rate", "rate", "ratio", _SOURCES, "all"
    yield "exact_dup_rate", "documents", "documents", _SOURCES, "all"
    yield "exact_dup_rate", "within_split_rate", "ratio", "split, split and source", "all"


def _near_duplicates() -> Iterator[_Row]:
    yield "near_dup_rate", "rate", "ratio", _SOURCES, "all"
    yield "near_dup_rate", "documents no_words", "documents", _SOURCES, "all"
    yield "near_dup_rate", "same_words largest_cluster", "documents", "all", "all"
    yield "near_dup_rate", "candidate_pairs verified_pairs truncated_pairs", "pairs", "all", "all"
    yield "near_dup_rate", "clusters", "clusters", "all", "all"
    yield "near_dup_rate", "clusters_by_size", "clusters", "rule", "all"
    yield "near_dup_rate", "weakest_link precision", "ratio", "all", "all"
    yield "near_dup_rate", "bands band_rows", "count", "all", "all"
    yield "near_dup_rate", "chance_to_meet", "ratio", "rule", "all"
    yield "near_dup_rate", "recall", "ratio", "all, rule", "all"
    yield "near_dup_rate", "in_reference", "ratio", "all, split", "all"
    yield "near_dup_component_rate", "rate", "ratio", _SOURCES, "all"


def _leakage() -> Iterator[_Row]:
    yield "train_val_overlap", "ngram span", "ratio", "all, set, source and set", "held_out"
    yield "train_val_overlap", "near_dup ngram_without_common span_without_common", "ratio", "all, set", "held_out"
    yield "train_val_overlap", "common_grams", "13-grams", "all, set", "held_out"
    yield "train_val_overlap", "documents too_short no_words", "documents", "all, set", "held_out"
    yield "train_val_overlap", "train_documents", "ratio", _SOURCES, "training"
    yield "benchmark_contamination", "rate", "ratio", f"{_ITEMS}, source and {_ITEMS}", "training"
    yield "benchmark_contamination", "rate_without_common", "ratio", _ITEMS, "training"
    yield "benchmark_contamination", "items repeated", "items", "set", "training"
    yield "benchmark_contamination", "lost", "items", "set, set and rule", "training"
    yield "benchmark_contamination", "common indexed short too_short boilerplate absent", "items", _PARTS, "training"
    yield "benchmark_contamination", "matches", "matches", "set", "training"
    yield (
        "benchmark_contamination",
        "train_documents",
        "ratio",
        "rule, split and rule, source and rule, split and source and rule, set and rule",
        "training",
    )


def _repeats() -> Iterator[_Row]:
    for unit in ("hotspots", "documents", "occurrences", "tokens"):
        yield "doc_repeat_hotspots", unit, unit, _SOURCES, "training"
    yield "doc_repeat_hotspots", "token_share largest_share", "ratio", _SOURCES, "training"
    yield "doc_repeat_hotspots", "largest", "documents", _SOURCES, "training"
    yield "doc_repeat_hotspots", "floor", "documents", "all", "training"
    yield "doc_repeat_hotspots", "below_floor", "windows", "all", "training"


def _content() -> Iterator[_Row]:
    yield "data_toxicity_rate", "screened_share screen_positive screen", "ratio", _SOURCES, "all"
    yield "data_toxicity_rate", "rate", "ratio", _CLASSES, "all"
    yield "data_toxicity_rate", "rate_at_0.1 rate_at_0.25 rate_at_0.75 rate_at_0.9", "ratio", _JUDGED, "all"
    for metric, unit, share in (("pii_hit_rate", _HIT, "ratio"), ("secret_hit_rate", "hits", "documents")):
        yield metric, " ".join(("hits", *(f"{tier}_hits" for tier in _TIERS))), unit, _ENTITIES, "all"
        yield metric, " ".join(("documents", *(f"{tier}_documents" for tier in _TIERS))), share, _ENTITIES, "all"
        yield metric, "reserved", "hits", _ENTITIES, "all"
        yield metric, "truncated", "documents", _SOURCES, "all"
    yield "pii_hit_rate", "analyzer_documents", "ratio", _CLASSES, "all"
    yield "pii_hit_rate", "analyzer_hits", _HIT, _CLASSES, "all"
    yield "pii_hit_rate", "confirmed", "ratio", _CONFIRMED, "all"
    for metric in ("data_toxicity_rate", "pii_hit_rate"):
        yield metric, "judge_reads judged_share", "ratio", "all", "all"
        yield metric, "judge_failed judge_partly", "documents", "all", "all"


def _coverage() -> Iterator[_Row]:
    yield "coverage_unread_bytes", "bytes", "bytes", "all, rule", "all"
    yield "coverage_unread_bytes", "shard_bytes", "bytes", "all, split", "all"


_AMOUNTS = frozenset(
    {
        ("documents", "count"),
        ("bytes", "count"),
        ("tokens", "count"),
        ("source_mix_share", "share"),
        ("language_share", "share"),
    }
)
_WITH_MATCHES = frozenset(
    {
        ("train_val_overlap", "ngram"),
        ("train_val_overlap", "span"),
        ("benchmark_contamination", "rate"),
    }
)
_BY_PATTERN = frozenset({"pii_hit_rate", "secret_hit_rate"})
_OF_SAMPLE = frozenset({"analyzer_documents", "analyzer_hits", "confirmed"})


def _absent_is_zero(metric: str, stat: str) -> frozenset[str]:
    if metric == "coverage_unread_bytes":
        return frozenset({"rule"})
    if (metric, stat) in _WITH_MATCHES:
        return frozenset({"source"})
    return frozenset({"entity"}) if metric in _BY_PATTERN and stat not in _OF_SAMPLE else frozenset()


def shapes_of(words: str) -> frozenset[Shape]:
    """Return the sets of fields of ``all, split, split and source``."""
    return frozenset(frozenset(() if one == "all" else one.split(" and ")) for one in words.split(", "))


CATALOGUE: dict[tuple[str, str], Statistic] = {
    (metric, stat): Statistic(
        metric=metric,
        stat=stat,
        unit=unit,
        shapes=shapes_of(shapes),
        population=population,
        sources_of="training" if metric == "train_val_overlap" else population,
        absent_is_zero=_absent_is_zero(metric, stat),
        is_amount=(metric, stat) in _AMOUNTS,
    )
    for rows in (_volume, _quality, _near_duplicates, _leakage, _repeats, _content, _coverage)
    for metric, stats, unit, shapes, population in rows()
    for stat in stats.split()
}
"""Statistics by (metric, stat)."""

METRICS: tuple[str, ...] = tuple(dict.fromkeys(metric for metric, _ in CATALOGUE))
"""Names of all metrics."""


def statistic(metric: str, stat: str) -> Statistic | None:
    """Return a statistic by its name; those of padding are named after context lengths of the user's choice."""
    base = re.sub(r"_[1-9][0-9]*$", f"_{_CONTEXTS[0]}", stat) if metric == "pad_fraction" else stat
    found = CATALOGUE.get((metric, base))
    return None if found is None else replace(found, stat=stat)


def stats_of(metric: str, pattern: str = "*") -> tuple[Statistic, ...]:
    """Return the statistics of a metric whose names a shell pattern matches."""
    return tuple(one for one in CATALOGUE.values() if one.metric == metric and fnmatchcase(one.stat, pattern))
