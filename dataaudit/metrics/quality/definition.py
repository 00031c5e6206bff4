"""Quality: documents that published rules would reject, and what filters before this build rejected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from dataaudit.base.render.blocks import Bar, Block, Column, Figure, Section, bars, column, empty_section, table_of
from dataaudit.base.render.line import Line, Name, join, say, share
from dataaudit.manifest.core import UpstreamFilterRecord
from dataaudit.manifest.load import Manifest, once
from dataaudit.metrics.family import RULES, Broken, Counted, Family, ShardStatistic, Tables, declare, statistics
from dataaudit.metrics.overlap.evidence import shards_with
from dataaudit.metrics.recomputed import Condition, Follows, Number, product
from dataaudit.metrics.shown import SHORT, Part, ShardValues, Shown, floats

METRIC = "filter_reject_rate"
_RUNS = "repeated_ngrams"
"""The rule set that looks at tokens; a record without a rule is of any rule, this set too."""


def _rejected(case: Broken, tables: Tables) -> tuple[str, dict[int, int]]:
    """Count the documents of each shard that the case's rule would reject, or any."""
    shards = tables.shards
    flat, parents = pc.list_flatten(shards["filters"]), pc.list_parent_indices(shards["filters"]).to_numpy()
    kept = pc.equal(pc.struct_field(flat, "rule"), case.scope.rule or "").to_numpy()
    kept &= pc.greater(pc.struct_field(flat, "documents"), 0).to_numpy()
    if case.scope.split is not None:
        kept &= pc.equal(shards["split"], case.scope.split).to_numpy()[parents]
    if case.scope.source is not None:
        kept &= shards_with(shards, case.scope.source)[parents]
    documents = pc.struct_field(flat, "documents").to_numpy()
    counts = zip(parents[kept].tolist(), documents[kept].tolist(), strict=True)
    return "documents that a quality rule rejects", dict(counts)


_SEEN = Number("shards", "documents", Condition(lambda: pc.field("filters").is_valid()))
_REJECTED = Number("shards", product("filter_reject_rate", "documents"))

FAMILY = Family(
    name="quality",
    metrics=(
        declare(
            METRIC,
            statistics("rate", "ratio", RULES, draws="documents"),
            in_words=True,
            reading=8,
            evidence=Counted(count=_rejected, columns=("filters",)),
            counts_tokens=lambda rule: rule is None or rule.startswith(_RUNS),
            area="quality",
            columns=(ShardStatistic("rate", "filter_reject_rate", head="would reject", spare=True),),
        ),
        declare(
            "filter_upstream",
            statistics("reject_rate", "ratio", "rule"),
            by_stage=False,
        ),
    ),
    stage="dataaudit.metrics.quality.stage:Filters",
    stage_name="filters",
    kernels=("filters",),
    checked_with=("shards",),
    checks=(
        Follows(METRIC, "rate", _REJECTED, _SEEN),
        Follows(METRIC, "rate", Number("shards.filters", "documents"), _SEEN, "rule, split and rule"),
    ),
    looked_for=True,
)

_BARS, _SAID = 15, 5
_LEAST_SD = 0.02


@once
def rules(manifest: Manifest) -> list[dict[str, Any]]:
    """Return every quality rule (``set.rule``, or a set for any of its rules; empty: any rule) with its rates by split.

    The whole dataset stands under ''. In the order of names, any rule first.
    """
    rates: dict[str, dict[str, float | None]] = {}
    for record in manifest.metric_rows().where(metric=METRIC, stat="rate", source=None):
        rates.setdefault(record.scope.rule or "", {})[record.scope.split or ""] = record.value
    return [{"rule": name, "rates": rates[name]} for name in sorted(rates)]


def _section(manifest: Manifest) -> Section:
    """Return the share of documents that each rule would reject."""
    every, title = rules(manifest), "Quality rules"
    if not every:
        return empty_section("quality", title, "Quality rules were not applied in this build.")
    splits = [split.name for split in manifest.core.splits]
    whole = "" if "" in every[0]["rates"] else splits[0]
    sets = [item for item in every if item["rule"] and "." not in item["rule"]][:_SAID]
    parts = (say("{} would reject {}", Name(item["rule"], 40), share(item["rates"].get(whole))) for item in sets)
    lead = say("No document was removed. {}.", join("; ", parts))
    blocks = (_figure(every, [*splits, ""] if len(splits) > 1 else splits, whole), *_upstream(manifest))
    return Section(id="quality", title=title, lead=lead, blocks=blocks)


def _figure(every: Sequence[dict[str, Any]], splits: Sequence[str], whole: str) -> Block:
    def rate(split: str) -> Column:
        return column(Name(split, 24) if split else "(all)", lambda item: share(item["rates"].get(split)))

    table = table_of(
        "Documents that each rule would reject",
        every,
        column("rule", lambda item: Name(item["rule"]) if item["rule"] else "any of all rules", kind="name"),
        *map(rate, splits),
        most=None,
        noun="rule",
        whole=True,
        note="share of documents that each rule would reject; nothing was removed",
        folded=True,
    )
    single = [(item["rule"], item["rates"].get(whole) or 0) for item in every if "." in item["rule"]]
    chosen = [pair for pair in sorted(single, key=lambda pair: (-pair[1], pair[0])) if pair[1]][:_BARS]
    if not chosen:
        return table
    made = (Bar(Name(name.partition(".")[2]), value, say("{}: {}", Name(name), share(value))) for name, value in chosen)
    return Figure(
        id="chart-quality",
        title="The rules that would reject most",
        chart=bars("share of documents", made, percent=True),
        says=join("; ", (say("{} {}", Name(name, 60), share(value)) for name, value in chosen[:_SAID])),
        table=table,
        note=f"The first {len(chosen)} of {len(single)} rules.",
    )


def _upstream(manifest: Manifest) -> list[Block]:
    """Return the filters that ran before the build, as declared."""
    declared = manifest.core.upstream_filters

    def removed(record: UpstreamFilterRecord) -> Line:
        return share(1 - record.documents_out / record.documents_in if record.documents_in else None)

    table = table_of(
        "Filters that ran before, as the config declares them",
        declared,
        column("filter", "name", Name),
        column("version", lambda record: Name(record.version, 40), kind="name"),
        column("documents in"),
        column("documents out"),
        column("removed", removed),
        noun="filter",
    )
    return [table] if declared else []


def _shard_values(manifest: Manifest) -> Iterator[ShardValues]:
    """Yield for each set of rules the share of documents that it rejects."""
    table = manifest.table("shards", ["documents", "filters"])
    documents = floats(table["documents"])
    filters = table["filters"].combine_chunks()
    parents = pc.list_parent_indices(filters).to_numpy(zero_copy_only=False)
    items = pc.list_flatten(filters)
    named = pc.struct_field(items, "rule").dictionary_encode()
    rejected = floats(pc.struct_field(items, "documents"))
    codes = named.indices.to_numpy(zero_copy_only=False)
    for name, code in sorted((name, code) for code, name in enumerate(named.dictionary.to_pylist()) if "." not in name):
        own = (codes == code) & (documents[parents] > 0)
        values = np.full(table.num_rows, np.nan)
        values[parents[own]] = rejected[own] / documents[parents[own]]
        text = say("{} rejects", Name(name, SHORT, ends=True))
        yield ShardValues(column=name, text=text, values=values, least_sd=_LEAST_SD, documents=documents)


SHOWN = Shown(
    parts=(Part(name="quality", area="quality", blocks=lambda manifest: [_section(manifest)]),),
    shard_values=_shard_values,
    facts={"rules": rules},
)
