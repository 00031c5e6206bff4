"""``benchmark_contamination``: from what was found of each item to the numbers of each evaluation set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.corpus.protected.items import FOUND, ITSELF, NONE, Items, Judged
from dataaudit.link.step import SetFacts
from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.metrics.overlap.stage import ITEM

NAME = "benchmark_contamination"
PARTS = ("question", "answer", "both")
TIERS = ("verbatim", "similar")
_NOT_FOUND = len(TIERS)
_COVERAGE = ("indexed", "short", "context", "too_short", "boilerplate", "absent")


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of every item: question, answer and both."""

    best: np.ndarray
    """uint8[m, 2] of :class:`Judged`: of the question, and of the answer by which it is found best."""
    findable: np.ndarray
    """bool[m, 3] of :func:`can_be_judged`."""
    tiers: np.ndarray
    """int64[m, 3] the best tier, 2 for none."""
    documents: np.ndarray
    """int64[m, 3] training documents."""


def contamination(
    items: Items, sets: Sequence[SetFacts], counts: pa.Table, *, common_above: int, version: str
) -> list[Metric]:
    """Return the metrics of every set.

    Args:
        items: The items of all sets.
        sets: What else is known of them, in the same order.
        counts: Of :data:`dataaudit.metrics.overlap.joins.COUNTS`, of all partitions.
        common_above: Training documents above which an item is common.
        version: Of the definition.
    """
    own = counts.filter(pc.equal(counts["kind"], ITEM))
    metrics: list[Metric] = []
    best, findable = items.best_judged(), can_be_judged(items)
    whole = _Found(best, findable, *_tiers(items, own))
    for number, facts in enumerate(sets):
        metrics += _coverage(items, number, facts, whole, version)
        metrics += _rates(items, number, whole, Scope(set=facts.name), common_above, version)
        metrics += _unlisted(own, items, number, facts, version)
    for source in sorted(pc.unique(own["source"]).to_pylist()):
        found = _Found(best, findable, *_tiers(items, own.filter(pc.equal(own["source"], source))))
        for number, facts in enumerate(sets):
            if (found.documents[items.sets == number] > 0).any():
                scope = Scope(set=facts.name, source=source)
                metrics += _rates(items, number, found, scope, None, version)
    return metrics


def _unlisted(own: pa.Table, items: Items, number: int, facts: SetFacts, version: str) -> list[Metric]:
    """Return how many matches of a set there are; the table of overlaps may list fewer."""
    chosen = own.filter(pa.array(items.sets[own["target"].to_numpy()] == number))
    matches = int(chosen["documents"].to_numpy().sum())
    return [
        count(NAME, "matches", matches, scope=Scope(set=facts.name), unit="matches", n=len(facts.ids), version=version)
    ]


def _tiers(items: Items, counts: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the best tier, and the documents, of each part of every item."""
    tiers = np.full((len(items.sets), len(PARTS)), _NOT_FOUND, dtype=np.int64)
    documents = np.zeros((len(items.sets), len(PARTS)), dtype=np.int64)
    target, part, tier, found = (counts[name].to_numpy() for name in ("target", "part", "tier", "documents"))
    np.minimum.at(tiers, (target, part), tier)
    np.add.at(documents, (target, part), found)
    return tiers, documents


def can_be_judged(items: Items) -> np.ndarray:
    """Return bool[m, 3]: items whose question, answer, or both a rule can find wherever they stand.

    A question that is found only beside its answer, or alone between line breaks, is none of them. A short answer is
    one where the item has a question: it counts as found near that alone, and is no leak without it.
    """
    question = np.isin(items.judged[:, 0], ITSELF)  # of each pair
    has_two = (items.texts != NONE).all(axis=1) & (items.texts[:, 0] != items.texts[:, 1])
    beside = np.isin(items.judged, FOUND) & has_two[:, None]
    answer = np.isin(items.judged[:, 1], ITSELF) | beside[:, 1]
    both = (question | beside[:, 0]) & answer
    return items.any_of(np.column_stack([question, answer, both]))


def _coverage(items: Items, number: int, facts: SetFacts, found: _Found, version: str) -> list[Metric]:
    """Return how many items there are and what can be done with them."""
    chosen = items.sets == number
    scope, total = Scope(set=facts.name), len(facts.ids)
    lost = sum(facts.lost.values())

    def number_of(stat: str, value: int, own: Scope) -> Metric:
        return count(NAME, stat, value, scope=own, unit="items", n=total, version=version)

    metrics = [
        number_of("items", total, scope),
        number_of("repeated", total - int(chosen.sum()), scope),
        number_of("lost", lost, scope),
    ]
    metrics += [number_of("lost", value, replace(scope, rule=reason)) for reason, value in sorted(facts.lost.items())]
    for part, name in enumerate(PARTS[:2]):
        judged = found.best[chosen, part]
        metrics += [
            number_of(stat, int((judged == Judged[stat.upper()]).sum()), replace(scope, entity=name))
            for stat in _COVERAGE
        ]
        beside = (judged == Judged.CONTEXT) & (found.tiers[chosen, part] < _NOT_FOUND)
        metrics.append(number_of("context_found", int(beside.sum()), replace(scope, entity=name)))
    return metrics


def _rates(
    items: Items, number: int, found: _Found, scope: Scope, common_above: int | None, version: str
) -> list[Metric]:
    """Return the rates of a set; those without common items only where a limit is given."""
    chosen = items.sets == number
    judged = found.findable[chosen]
    tiers, documents = found.tiers[chosen], found.documents[chosen]
    metrics = []
    for part, name in enumerate(PARTS):
        if part and (found.best[chosen, 1] == Judged.ABSENT).all():
            continue
        own = replace(scope, entity=name)
        common = np.zeros(len(documents), dtype=bool)
        if common_above is not None:
            common = documents[:, part] > common_above
            metrics.append(
                count(
                    NAME,
                    "common",
                    int(common.sum()),
                    scope=own,
                    unit="items",
                    n=int(judged[:, part].sum()),
                    version=version,
                )
            )
        for tier, rule in enumerate(TIERS):
            hit = tiers[:, part] <= tier
            stats = [("rate", hit)] + ([] if common_above is None else [("rate_without_common", hit & ~common)])
            metrics += [
                ratio(
                    NAME,
                    stat,
                    int((chosen_hits & judged[:, part]).sum()),
                    int(judged[:, part].sum()),
                    scope=replace(own, rule=rule),
                    unit="ratio",
                    version=version,
                )
                for stat, chosen_hits in stats
            ]
    return metrics
