"""The link step of overlap and contamination: what was seen of held-out documents and evaluation items, joined."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from dataaudit.corpus.protected.match_batch import GRAM, SPAN
from dataaudit.link.joins import Join
from dataaudit.link.step import LinkContext, LinkResult, LinkStep, Protected, kept_sources
from dataaudit.manifest.metric import Metric, Scope, ratio
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.contamination.records import NAME, PARTS, TIERS, contamination
from dataaudit.metrics.overlap.joins import COUNTS, ROWS, SEEN, link_grams, link_matches
from dataaudit.metrics.overlap.leakage import overlap
from dataaudit.metrics.overlap.stage import GRAM_ROWS, HELD_OUT_VERSION, ITEM, MATCH_ROWS, Overlap
from dataaudit.stages.partial import fold_table

_RULES = ("verbatim", "similar", "context", "alone")
_HELD_OUT_RULES = {GRAM: "ngram", SPAN: "span"}
_COMMON_LEAST = 100
_COMMON_ONE_IN = 1_000
"""A gram or item is common when more training documents hold it than 100, and than one in a thousand."""


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
    matches = context.join(
        Join(
            kind="link-overlap-matches",
            function=partial(link_matches, max_rows=stage.max_rows),
            identity=[stage.version, stage.max_rows],
            files=context.files(MATCH_ROWS),
            rows=total,
        )
    )
    yield from ()
    kept = kept_sources(context.survey, context.config.max_sources)
    seen, counts = grams.table("seen", SEEN), matches.table("counts", COUNTS)
    if kept is not None:
        seen, counts = fold_table(seen, kept), fold_table(counts, kept)
    common_above = max(_COMMON_LEAST, total // _COMMON_ONE_IN)
    metrics = contamination(
        protected.index.items, protected.sets, counts, common_above=common_above, version=stage.version
    )
    metrics += _set_documents(context, protected, total, stage)
    if protected.shards:
        splits, split_of = _splits(context, protected)
        metrics += overlap(
            protected.index.held_out, splits, split_of, seen, common_above=common_above, version=HELD_OUT_VERSION
        )
    if total == 0:
        metrics = [_not_evaluated(record) for record in metrics]
    columns = _columns(context, shards, protected)
    table = overlap_table(context, protected, matches.table("rows", ROWS))
    return LinkResult(tables={"overlap": table}, metrics=metrics, columns=columns)


def _columns(context: LinkContext, shards: np.ndarray, protected: Protected) -> pa.Table:
    """Return columns of the table of shards, for the ordinals of those that were looked at."""
    table = context.survey.by_shard[context.stage.name, "documents"]
    names = [("held_out", "held_out_copies")] if protected.shards else []
    names += [("similar", "contaminated")] if protected.sets else []
    summed = table.group_by("shard", use_threads=False).aggregate([(name, "sum") for name, _ in names])
    places, columns = np.searchsorted(shards, summed["shard"].to_numpy()), {"shard": shards}
    for name, column in names:
        columns[column] = np.zeros(len(shards), dtype=np.int64)
        columns[column][places] = summed[f"{name}_sum"].to_numpy()
    return pa.table(columns)


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


def _set_documents(context: LinkContext, protected: Protected, total: int, stage: Overlap) -> list[Metric]:
    """Return the share of training documents that hold an item, by set."""
    counts = np.zeros((len(protected.sets), len(TIERS)), dtype=np.int64)
    table = context.survey.by_split[stage.name, "sets"]
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
            version=stage.version,
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
                "tier": "similar" if rule == "ngram" else "verbatim",
                "rule": rule,
            }
        found.append(row | names | {"score": min(1.0, row.pop("common") / row.pop("of"))})
    return pa.Table.from_pylist(found, schema=TABLES["overlap"].schema)
