"""How long documents are: percentiles of tokens, and of bytes per token.

How long documents are, in tokens, by split.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from dataaudit.base.render.blocks import Block, Figure, Section, Steps, Table, names, numbers
from dataaudit.base.render.line import Name, decimal, say
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.family import LANGUAGES, SOURCES, Family, MetricDefinition, ShardStatistic, statistics
from dataaudit.metrics.recomputed import (
    BY_SOURCE,
    Agrees,
    Follows,
    ManifestTables,
    Number,
    Numbers,
    Quantity,
    Shape,
    of_shard,
    quotient,
)
from dataaudit.metrics.records import records_in
from dataaudit.metrics.shown import Part, ShardValues, Shown, floats

_DOCUMENTS = Number("lengths", "documents")


def _quantile(stat: str, percent: int) -> Follows:
    low, high = _at_rank(percent, "low"), _at_rank(percent, "high")
    return Follows("seq_len_p50_p95", stat, low, _DOCUMENTS, BY_SOURCE, most=high, adds_up=False)


def _at_rank(percent: int, edge: str) -> Quantity:
    """Return an edge of the bucket that the document of a rank is in."""

    def found(tables: ManifestTables, shape: Shape) -> Numbers:
        groups = tables.once(("buckets", edge, shape), lambda: _buckets(tables, edge, shape))
        return {key: values[bisect_left(sums, max(1, -(-percent * sums[-1] // 100)))] for key, values, sums in groups}

    return found


def _buckets(tables: ManifestTables, edge: str, shape: Shape) -> list[tuple[tuple[str, ...], list[int], list[int]]]:
    """Return the buckets of each group, ascending: an edge of each, and the documents up to it."""
    groups: dict[tuple[str, ...], tuple[list[int], list[int]]] = {}
    rows = tables.rows("lengths").sort_by("low")
    columns = (rows[name].to_pylist() for name in (edge, "documents", *shape))
    for value, documents, *key in zip(*columns, strict=True):
        values, counts = groups.setdefault(tuple(key), ([], []))
        values.append(value)
        counts.append(documents)
    return [(key, values, [*accumulate(counts)]) for key, (values, counts) in groups.items()]


FAMILY = Family(
    name="lengths",
    metrics=(
        MetricDefinition(
            name="bytes_per_token",
            statistics=(
                *statistics("bytes_per_token", "ratio", "bytes/token", LANGUAGES, headline=True),
                *statistics("bytes_per_token", "p1 p50 p99", "bytes/token", SOURCES),
            ),
            area="shards",
        ),
        MetricDefinition(
            name="seq_len_p50_p95",
            statistics=(
                *statistics("seq_len_p50_p95", "p1 p5 p25", "tokens", SOURCES),
                *statistics("seq_len_p50_p95", "p50", "tokens", SOURCES, headline=True),
                *statistics("seq_len_p50_p95", "p75", "tokens", SOURCES),
                *statistics("seq_len_p50_p95", "p95", "tokens", SOURCES, headline=True),
                *statistics("seq_len_p50_p95", "p99 max", "tokens", SOURCES),
            ),
            reading=9,
            area="lengths",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric="bytes_per_token",
            stat="ratio",
            column="bytes_per_token",
            of="tokens",
            head="bytes per token",
            shown_as="number",
        ),
        ShardStatistic(metric="bytes_per_token", stat="p50", column="bytes_per_token_p50", of="tokens"),
        ShardStatistic(
            metric="seq_len_p50_p95",
            stat="p50",
            column="seq_len_p50",
            head="median length",
            shown_as="count",
            spare=True,
        ),
        ShardStatistic(metric="seq_len_p50_p95", stat="p95", column="seq_len_p95"),
        ShardStatistic(metric="seq_len_p50_p95", stat="max", column="seq_len_max"),
    ),
    stage="dataaudit.metrics.lengths.stage:Lengths",
    stage_name="lengths",
    tables={"lengths": "lengths"},
    harmless=frozenset({"max_distinct"}),
    shown="dataaudit.metrics.lengths.definition:SHOWN",
    checked_with=("lengths", "sources", "shards"),
    checks=(
        *(_quantile(f"p{percent}", percent) for percent in (1, 5, 25, 50, 75, 95, 99)),
        _quantile("max", 100),
        Agrees("documents of lengths and sources", _DOCUMENTS, Number("sources", "documents"), BY_SOURCE),
        Follows("bytes_per_token", "ratio", Number("sources", "bytes"), Number("sources", "tokens"), BY_SOURCE),
        of_shard("bytes_per_token", quotient(Number("shards", "bytes"), Number("shards", "tokens"))),
    ),
)

_BINS_PER_OCTAVE = 2
_SERIES = 6
_STATS = ("p1", "p5", "p25", "p50", "p75", "p95", "p99", "max")


def _section(manifest: Manifest) -> Section:
    """Return percentiles and the distribution of lengths."""
    found = {
        (record.scope.split or "", record.stat): record.value
        for record in records_in(manifest, "seq_len_p50_p95", (), ("split",))
    }
    half, most = found.get(("", "p50")), found.get(("", "p95"))
    if half is None:
        none = "There is no document with a length."
        return Section(id="lengths", title="Lengths", lead=none, tone="quiet")
    splits = [split.name for split in manifest.core.splits]
    table = Table(
        title="Percentiles, in tokens",
        columns=(*names("split"), *numbers(*_STATS)),
        rows=tuple((Name(split), *(decimal(found.get((split, stat))) for stat in _STATS)) for split in splits),
        folded=True,
        noun="split",
    )
    text = "Half of the documents have {} tokens or less, 95 % have {} or less."
    lead = say(text, decimal(half), decimal(most))
    steps = _distribution(manifest, splits)
    block: Block = table
    if steps is not None:
        note = "Share of each split's documents by length; the axis is logarithmic."
        title = "Tokens of a document"
        block = Figure(id="chart-lengths", title=title, chart=steps, says=lead, table=table, note=note)
    return Section(id="lengths", title="Lengths", lead=lead, blocks=(block,))


def _distribution(manifest: Manifest, splits: Sequence[str]) -> Steps | None:
    """Return the distribution of lengths by split, in bins of half an octave."""
    table = manifest.table("lengths", ["split", "low", "high", "documents"])
    held = table.group_by(["split", "low", "high"]).aggregate([("documents", "sum")]).to_pylist()
    bins: dict[str, dict[int, int]] = {}
    for item in held:
        middle = max(1.0, math.sqrt(max(1, item["low"]) * max(1, item["high"])))
        index = math.floor(math.log2(middle) * _BINS_PER_OCTAVE)
        own = bins.setdefault(item["split"], {})
        own[index] = own.get(index, 0) + item["documents_sum"]
    known = [name for name in splits if sum(bins.get(name, {}).values())][:_SERIES]
    used = [index for own in bins.values() for index in own]
    if not known:
        return None
    span = range(min(used), max(used) + 1)
    series = []
    for split in known:
        total = sum(bins[split].values())
        series.append((Name(split), tuple(bins[split].get(index, 0) / total for index in span)))
    edges = tuple(2.0 ** (index / _BINS_PER_OCTAVE) for index in (*span, span[-1] + 1))
    return Steps(edges=edges, series=tuple(series), unit="tokens of a document")


def _shard_values(manifest: Manifest) -> list[ShardValues]:
    name = "bytes_per_token"
    values = floats(manifest.table("shards", [name])[name])
    return [ShardValues(column=name, text="bytes per token", values=values)]


SHOWN = Shown(parts=(Part(area="lengths", blocks=lambda manifest: [_section(manifest)]),), shard_values=_shard_values)
