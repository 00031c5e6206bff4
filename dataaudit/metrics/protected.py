"""The link step of overlap and contamination: what was seen of held-out documents and evaluation items, joined."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.corpus.protected.match_batch import EDITED, GRAM, SPAN
from dataaudit.link.joins import Join
from dataaudit.link.step import LinkContext, LinkResult, LinkStep, Protected, kept_sources
from dataaudit.manifest.metric import Metric, Scope, ratio
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.contamination.records import NAME, PARTS, TIERS, contamination
from dataaudit.metrics.overlap.common import CommonText, Limits, common_text
from dataaudit.metrics.overlap.joins import COPIED, COPIES, COUNTS, ROWS, SEEN, link_copies, link_grams, link_matches
from dataaudit.metrics.overlap.leakage import documents_with, overlap
from dataaudit.metrics.overlap.stage import (
    GRAM_ROWS,
    HELD_OUT,
    HELD_OUT_VERSION,
    ITEM,
    ITEMS_VERSION,
    MATCH_ROWS,
    Overlap,
)
from dataaudit.stages.partial import fold_table

_RULES = ("verbatim", "similar", "context", "alone")
_SCORES = (("score", "common", "of"), ("score_without_common", "own", "own_of"))
_HELD_OUT_RULES = {GRAM: "ngram", SPAN: "span", EDITED: "edited"}


def leaks(context: LinkContext) -> LinkStep:
    """Join what the stage found; nothing has to be read again."""
    stage, protected = context.stage, context.protected
    assert isinstance(stage, Overlap)
    assert protected is not None
    shards = np.fromiter((shard.ordinal for shard in context.read()), dtype=np.int64)
    total = context.survey.total(stage.name, "documents", "documents")
    rows = len(protected.index.held_out.grams.table.keys) * max(1, len(shards) // 8)
    grams = context.join(
        Join(
            kind="link-overlap-grams",
            function=link_grams,
            identity=stage.version,
            files=context.files(GRAM_ROWS),
            rows=rows,
        )
    )
    held, limits, seen = protected.index.held_out, Limits.of(total), grams.table("seen", SEEN)
    documents = documents_with(held, seen)
    common = common_text(held, documents, limits)
    text = CommonText.of(held, common, limits.very_wide)
    matches = context.join(
        Join(
            kind="link-overlap-matches",
            function=partial(link_matches, max_rows=stage.max_rows, common=text),
            identity=[stage.version, stage.max_rows, text.digest],
            files=context.files(MATCH_ROWS),
            rows=total,
            emits={"copies": COPIES},
        )
    )
    copies = context.join(
        Join(
            kind="link-overlap-copies",
            function=link_copies,
            identity=stage.version,
            files=matches.files("copies"),
            rows=total,
        )
    )
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
            held, splits, split_of, seen, documents, common=common, edited=edited, version=HELD_OUT_VERSION
        )
    if total == 0:
        metrics = [_not_evaluated(record) for record in metrics]
    table = overlap_table(context, protected, matches.table("rows", ROWS))
    found = {"held_out_copies": (copied, "held_out")} if protected.shards else {}
    if protected.sets:
        found["contaminated"] = (context.survey.by_shard[stage.name, "documents"], "similar")
    columns = {"shard": shards} | {name: _by_shard(shards, *counted) for name, counted in found.items()}
    extra = {"documents": copied} if protected.shards else {}
    return LinkResult(tables={"overlap": table}, metrics=metrics, columns=pa.table(columns), extra=extra)


def _edited(counts: pa.Table, documents: int) -> dict[str, np.ndarray]:
    """Return bool[d] by statistic: the held-out documents of which some training document has an edited copy."""
    rows = counts.filter(pc.and_(pc.equal(counts["kind"], HELD_OUT), pc.equal(counts["part"], EDITED)))
    found = {}
    for stat, number in (("edited", "documents"), ("edited_without_common", "own")):
        found[stat] = np.zeros(documents, dtype=bool)
        found[stat][rows.filter(pc.greater(rows[number], 0))["target"].to_numpy()] = True
    return found


def _by_shard(shards: np.ndarray, table: pa.Table, name: str) -> np.ndarray:
    """Return int64[n], the sums of a column of a table for the ordinals of the shards that were looked at."""
    sums = np.zeros(len(shards), dtype=np.int64)
    np.add.at(sums, np.searchsorted(shards, table["shard"].to_numpy()), table[name].to_numpy())
    return sums


def _not_evaluated(record: Metric) -> Metric:
    """Return a rate as one that nothing is known of: without training documents, 0 would be no good news."""
    if record.unit != "ratio" or record.status != "ok":
        return record
    return replace(
        record, value=None, low=None, high=None, confidence=None, status="not_evaluated", reason="no_training_documents"
    )


def _splits(context: LinkContext, protected: Protected) -> tuple[list[str], np.ndarray]:
    """Return the held-out splits, and the split of every document that was looked for; -1 where its shard is unread."""
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
    return [
        ratio(
            NAME,
            "train_documents",
            int(counts[number, tier]),
            total,
            scope=Scope(set=facts.name, rule=name),
            unit="ratio",
            version=ITEMS_VERSION,
        )
        for number, facts in enumerate(protected.sets)
        for tier, name in enumerate(TIERS)
    ]


def overlap_table(context: LinkContext, protected: Protected, rows: pa.Table) -> pa.Table:
    """Return the listed matches as the manifest's table."""
    items, held = protected.index.items, protected.index.held_out
    read = {shard.ordinal for shard in context.shards if shard.partials}
    found: list[dict[str, object]] = []
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
            shard = protected.shards[int(held.shards[target])]
            if shard.ordinal not in read:
                continue
            rule = _HELD_OUT_RULES.get(row["rule"], "whole")
            names = {
                "set": shard.split,
                "item": f"{shard.ordinal}:{int(held.rows[target])}",
                "part": "document",
                "tier": "similar" if rule in {"ngram", "edited"} else "verbatim",
                "rule": rule,
            }
        scores = {name: min(1.0, row.pop(part) / (row.pop(of) or 1)) for name, part, of in _SCORES}
        found.append(row | names | scores)
    return pa.Table.from_pylist(found, schema=TABLES["overlap"].schema)
