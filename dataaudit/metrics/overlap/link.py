"""The link step of overlap and contamination: joins the matches, and returns the rates of protected sets and splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.overlap.leakage import CommonText, Limits, common_text, documents_with, overlap
from dataaudit.metrics.overlap.stage import (
    COPIED,
    COPIES,
    COUNTS,
    GRAM_ROWS,
    HELD_OUT,
    HELD_OUT_VERSION,
    ITEM,
    ITEMS_VERSION,
    MATCH_ROWS,
    ROWS,
    SEEN,
    Overlap,
    link_copies,
    link_grams,
    link_matches,
)
from dataaudit.scan.corpus.protected.eval_items import FOUND, ITSELF, NONE, ItemIndex, Judged
from dataaudit.scan.corpus.protected.ngram_index import EDITED, GRAM, SPAN
from dataaudit.scan.cross_shard.step import LinkContext, LinkResult, LinkStep, Protected, SetFacts, kept_sources
from dataaudit.scan.stages.partial import fold_table

NAME = "benchmark_contamination"
PARTS = ("question", "answer", "both")
TIERS = ("verbatim", "similar")
_NOT_FOUND = len(TIERS)
_COVERAGE = ("indexed", "short", "context", "too_short", "boilerplate", "absent")


@dataclass(frozen=True, slots=True)
class _Matches:
    """The matches of the m items, by question, answer and both."""

    best: np.ndarray
    """uint8[m, 2] of :class:`Judged`: of the question, and of the answer that matches best."""
    findable: np.ndarray
    """bool[m, 3] of :func:`can_be_judged`."""
    tiers: np.ndarray
    """int64[m, 3] the best tier, 2 for none."""
    documents: np.ndarray
    """int64[m, 3] training documents."""


def contamination(
    items: ItemIndex, sets: Sequence[SetFacts], counts: pa.Table, *, common_above: int, version: str
) -> list[Metric]:
    """Return the metrics of every set."""
    own = counts.filter(pc.equal(counts["kind"], ITEM))
    metrics: list[Metric] = []
    best, findable = items.best_judged(), can_be_judged(items)
    whole = _Matches(best, findable, *_tiers(items, own))
    for number, facts in enumerate(sets):
        scope = Scope(set=facts.name)
        metrics += _coverage(items, number, facts, whole, version)
        metrics += _rates(items, number, whole, scope, common_above, version)
        in_set = pa.array(items.sets[own["target"].to_numpy()] == number)
        matches = int(own.filter(in_set)["documents"].to_numpy().sum())  # the table of overlaps may list fewer
        metrics.append(count(NAME, "matches", matches, scope=scope, unit="matches", n=len(facts.ids), version=version))
    for source in sorted(pc.unique(own["source"]).to_pylist()):
        of_source = _Matches(best, findable, *_tiers(items, own.filter(pc.equal(own["source"], source))))
        for number, facts in enumerate(sets):
            if (of_source.documents[items.sets == number] > 0).any():
                scope = Scope(set=facts.name, source=source)
                metrics += _rates(items, number, of_source, scope, None, version)
    return metrics


def _tiers(items: ItemIndex, counts: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the best tier, and the documents, of each part of every item."""
    tiers = np.full((len(items.sets), len(PARTS)), _NOT_FOUND, dtype=np.int64)
    documents = np.zeros((len(items.sets), len(PARTS)), dtype=np.int64)
    target, part, tier, number = (counts[name].to_numpy() for name in ("target", "part", "tier", "documents"))
    np.minimum.at(tiers, (target, part), tier)
    np.add.at(documents, (target, part), number)
    return tiers, documents


def can_be_judged(items: ItemIndex) -> np.ndarray:
    """Return bool[m, 3]: items of which a rule can find the question, the answer, or both, in any surroundings.

    A question that is found only beside its answer, or alone between line breaks, does not count. A short answer counts
    when the item has a question: it is found near the question alone, and is no leak without it.
    """
    question = np.isin(items.judged[:, 0], ITSELF)  # of each pair
    has_two = (items.texts != NONE).all(axis=1) & (items.texts[:, 0] != items.texts[:, 1])
    beside = np.isin(items.judged, FOUND) & has_two[:, None]
    answer = np.isin(items.judged[:, 1], ITSELF) | beside[:, 1]
    both = (question | beside[:, 0]) & answer
    return items.any_of(np.column_stack([question, answer, both]))


def _coverage(items: ItemIndex, number: int, facts: SetFacts, matches: _Matches, version: str) -> list[Metric]:
    """Return how many items there are, and how many of them can be found in which way."""
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
        judged = matches.best[chosen, part]
        metrics += [
            number_of(stat, int((judged == Judged[stat.upper()]).sum()), replace(scope, entity=name))
            for stat in _COVERAGE
        ]
        beside = (judged == Judged.CONTEXT) & (matches.tiers[chosen, part] < _NOT_FOUND)
        metrics.append(number_of("context_found", int(beside.sum()), replace(scope, entity=name)))
    return metrics


def _rates(
    items: ItemIndex, number: int, matches: _Matches, scope: Scope, common_above: int | None, version: str
) -> list[Metric]:
    """Return the rates of a set; those without common items only where a limit is given."""
    chosen = items.sets == number
    metrics = []
    for part, name in enumerate(PARTS):
        if part and (matches.best[chosen, 1] == Judged.ABSENT).all():
            continue
        own, findable = replace(scope, entity=name), matches.findable[chosen, part]
        tiers, number_of, common = matches.tiers[chosen, part], int(findable.sum()), None
        if common_above is not None:
            common = matches.documents[chosen, part] > common_above
            number = int(common.sum())
            metrics.append(count(NAME, "common", number, scope=own, unit="items", n=number_of, version=version))
        for tier, rule in enumerate(TIERS):
            hits = {"rate": findable & (tiers <= tier)}
            if common is not None:
                hits["rate_without_common"] = hits["rate"] & ~common
            rate = partial(ratio, NAME, scope=replace(own, rule=rule), unit="ratio", version=version)
            metrics += [rate(stat, int(hit.sum()), number_of) for stat, hit in hits.items()]
    return metrics


_RULES = ("verbatim", "similar", "context", "alone")
_SCORES = (("score", "common", "of"), ("score_without_common", "own", "own_of"))
_HELD_OUT_RULES = {GRAM: "ngram", SPAN: "span", EDITED: "edited"}


def leaks(context: LinkContext) -> LinkStep:
    """Join the rows of the stage; nothing has to be read again."""
    stage, protected = context.stage, context.protected
    assert isinstance(stage, Overlap)
    assert protected is not None
    shards = np.fromiter((shard.ordinal for shard in context.read()), dtype=np.int64)
    total = context.survey.total(stage.name, "documents", "documents")
    rows = len(protected.index.held_out.grams.table.keys) * max(1, len(shards) // 8)
    grams = context.join("overlap-grams", link_grams, context.files(GRAM_ROWS), rows)
    held_out, limits, seen = protected.index.held_out, Limits.of(total), grams.table("seen", SEEN)
    documents = documents_with(held_out, seen)
    common = common_text(held_out, documents, limits)
    text = CommonText.of(held_out, common, limits.very_wide)
    matches = context.join(
        "overlap-matches",
        partial(link_matches, max_rows=stage.max_rows, common=text),
        context.files(MATCH_ROWS),
        total,
        identity=[stage.max_rows, text.digest],
        copies=COPIES,
    )
    copies = context.join("overlap-copies", link_copies, matches.files("copies"), total)
    yield from ()
    kept = kept_sources(context.survey, context.config.max_sources)
    counts, copied = matches.table("counts", COUNTS), copies.table("copied", COPIED)
    if kept is not None:
        seen, counts = fold_table(seen, kept), fold_table(counts, kept)
    metrics = contamination(
        protected.index.items, protected.sets, counts, common_above=limits.very_wide, version=ITEMS_VERSION
    )
    metrics += _set_documents(context, protected, total)
    if protected.shards:
        splits, split_of = _splits(context, protected)
        edited = _edited(counts, len(split_of))
        metrics += overlap(
            held_out, splits, split_of, seen, documents, common=common, edited=edited, version=HELD_OUT_VERSION
        )
    if total == 0:
        metrics = [_not_evaluated(record) for record in metrics]
    table = overlap_table(context, protected, matches.table("rows", ROWS))
    counted = {"held_out_copies": (copied, "held_out")} if protected.shards else {}
    if protected.sets:
        counted["contaminated"] = (context.survey.by_shard[stage.name, "documents"], "similar")
    columns = {"shard": shards} | {name: _by_shard(shards, *number) for name, number in counted.items()}
    extra = {"documents": copied} if protected.shards else {}
    return LinkResult(tables={"overlap": table}, metrics=metrics, columns=pa.table(columns), extra=extra)


def _edited(counts: pa.Table, documents: int) -> dict[str, np.ndarray]:
    """Return bool[d] by statistic: the held-out documents of which some training document has an edited copy."""
    rows = counts.filter(pc.and_(pc.equal(counts["kind"], HELD_OUT), pc.equal(counts["part"], EDITED)))
    marks = {}
    for stat, number in (("edited", "documents"), ("edited_without_common", "own")):
        marks[stat] = np.zeros(documents, dtype=bool)
        marks[stat][rows.filter(pc.greater(rows[number], 0))["target"].to_numpy()] = True
    return marks


def _by_shard(shards: np.ndarray, table: pa.Table, name: str) -> np.ndarray:
    """Return int64[n], the sums of a column by shard, of ascending ordinals."""
    sums = np.zeros(len(shards), dtype=np.int64)
    np.add.at(sums, np.searchsorted(shards, table["shard"].to_numpy()), table[name].to_numpy())
    return sums


def _not_evaluated(record: Metric) -> Metric:
    """Return a rate without a value: without training documents, 0 would mean nothing."""
    if record.unit != "ratio" or record.status != "ok":
        return record
    return replace(
        record, value=None, low=None, high=None, confidence=None, status="not_evaluated", reason="no_training_documents"
    )


def _splits(context: LinkContext, protected: Protected) -> tuple[list[str], np.ndarray]:
    """Return the held-out splits, and the split of every indexed document; -1 where its shard is unread."""
    read = {shard.ordinal for shard in context.shards if shard.partials}
    splits = sorted({shard.split for shard in protected.shards})
    numbers = [splits.index(shard.split) if shard.ordinal in read else -1 for shard in protected.shards]
    return splits, np.array(numbers, dtype=np.int64)[protected.index.held_out.shards]


def _set_documents(context: LinkContext, protected: Protected, total: int) -> list[Metric]:
    """Return the share of training documents that hold an item, by set."""
    counts = np.zeros((len(protected.sets), len(TIERS)), dtype=np.int64)
    table = context.survey.by_split[context.stage.name, "sets"]
    for tier, name in enumerate(TIERS):
        np.add.at(counts[:, tier], table["set"].to_numpy(), table[name].to_numpy())
    rate = partial(ratio, NAME, "train_documents", unit="ratio", version=ITEMS_VERSION)
    return [
        rate(int(counts[number, tier]), total, scope=Scope(set=facts.name, rule=name))
        for number, facts in enumerate(protected.sets)
        for tier, name in enumerate(TIERS)
    ]


def overlap_table(context: LinkContext, protected: Protected, rows: pa.Table) -> pa.Table:
    """Return the listed matches as the manifest's table."""
    items, held_out = protected.index.items, protected.index.held_out
    read = {shard.ordinal for shard in context.shards if shard.partials}
    listed: list[dict[str, object]] = []
    for row in rows.to_pylist():
        target = row.pop("target")
        if row.pop("kind") == ITEM:
            facts = protected.sets[int(items.sets[target])]
            names = {
                "set": facts.name,
                "item": facts.ids[int(items.numbers[target])],
                "part": PARTS[row["part"]],
                "tier": TIERS[row["tier"]],
                "rule": _RULES[row["rule"]],
            }
        else:
            shard = protected.shards[int(held_out.shards[target])]
            if shard.ordinal not in read:
                continue
            rule = _HELD_OUT_RULES.get(row["rule"], "whole")
            names = {
                "set": shard.split,
                "item": f"{shard.ordinal}:{int(held_out.rows[target])}",
                "part": "document",
                "tier": "similar" if rule in {"ngram", "edited"} else "verbatim",
                "rule": rule,
            }
        scores = {name: min(1.0, row.pop(part) / (row.pop(of) or 1)) for name, part, of in _SCORES}
        listed.append(row | names | scores)
    return pa.Table.from_pylist(listed, schema=TABLES["overlap"].schema)
