"""How long documents are: percentiles of tokens, and of bytes per token."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from dataaudit.base.render.blocks import Block, Column, Figure, Section, Steps, column, empty_section, table_of
from dataaudit.base.render.line import Name, decimal, say
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.family import LANGUAGES, SOURCES, Family, ShardStatistic, declare, statistics
from dataaudit.metrics.recomputed import (
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
    return Follows("seq_len_p50_p95", stat, low, _DOCUMENTS, SOURCES, most=high, adds_up=False)


def _at_rank(percent: int, edge: str) -> Quantity:
    """Return an edge of the bucket that the document of a rank is in."""

    def edges(tables: ManifestTables, shape: Shape) -> Numbers:
        groups = tables.once(("buckets", edge, shape), lambda: _buckets(tables, edge, shape))
        return {key: values[bisect_left(sums, max(1, -(-percent * sums[-1] // 100)))] for key, values, sums in groups}

    return edges


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
        declare(
            "bytes_per_token",
            statistics("ratio", "bytes/token", LANGUAGES, headline=True),
            statistics("p1 p50 p99", "bytes/token", SOURCES),
            area="shards",
            columns=(
                ShardStatistic(
                    "ratio",
                    "bytes_per_token",
                    of="tokens",
                    longest="seq_len_max",
                    head="bytes per token",
                    shown_as="number",
                ),
                ShardStatistic("p50", "bytes_per_token_p50", of="tokens"),
            ),
        ),
        declare(
            "seq_len_p50_p95",
            statistics("p1 p5 p25", "tokens", SOURCES),
            statistics("p50", "tokens", SOURCES, headline=True),
            statistics("p75", "tokens", SOURCES),
            statistics("p95", "tokens", SOURCES, headline=True),
            statistics("p99 max", "tokens", SOURCES),
            reading=9,
            area="lengths",
            columns=(
                ShardStatistic("p50", "seq_len_p50", head="median length", shown_as="count", spare=True),
                ShardStatistic("p95", "seq_len_p95"),
                ShardStatistic("max", "seq_len_max"),
            ),
        ),
    ),
    stage="dataaudit.metrics.lengths.stage:Lengths",
    stage_name="lengths",
    tables={"lengths": "lengths"},
    harmless=frozenset({"max_distinct"}),
    checked_with=("lengths", "sources", "shards"),
    checks=(
        *(_quantile(f"p{percent}", percent) for percent in (1, 5, 25, 50, 75, 95, 99)),
        _quantile("max", 100),
        Agrees("documents of lengths and sources", _DOCUMENTS, Number("sources", "documents"), SOURCES),
        Follows("bytes_per_token", "ratio", Number("sources", "bytes"), Number("sources", "tokens"), SOURCES),
        of_shard("bytes_per_token", quotient(Number("shards", "bytes"), Number("shards", "tokens"))),
    ),
)

PER_OCTAVE, _SERIES = 2, 6
_STATS = ("p1", "p5", "p25", "p50", "p75", "p95", "p99", "max")


def _section(manifest: Manifest) -> Section:
    """Return percentiles and the distribution of lengths."""
    values = {
        (record.scope.split or "", record.stat): record.value
        for record in records_in(manifest, "seq_len_p50_p95", (), ("split",))
    }
    if (half := values.get(("", "p50"))) is None:
        return empty_section("lengths", "Lengths", "There is no document with a length.")
    splits = [split.name for split in manifest.core.splits]

    def percentile(stat: str) -> Column:
        return column(stat, lambda split: decimal(values.get((split, stat))))

    table = table_of(
        "Percentiles, in tokens",
        splits,
        column("split", Name, kind="name"),
        *map(percentile, _STATS),
        most=None,
        folded=True,
        noun="split",
    )
    text = "Half of the documents have {} tokens or less, 95 % have {} or less."
    lead = say(text, decimal(half), decimal(values.get(("", "p95"))))
    block: Block = table
    if (steps := _distribution(manifest, splits)) is not None:
        note = "Share of each split's documents by length; the axis is logarithmic."
        title = "Tokens of a document"
        block = Figure(id="chart-lengths", title=title, chart=steps, says=lead, table=table, note=note)
    return Section(id="lengths", title="Lengths", lead=lead, blocks=(block,))


def _distribution(manifest: Manifest, splits: Sequence[str]) -> Steps | None:
    bins = documents_by_length(manifest)
    known = [name for name in splits if sum(bins.get(name, {}).values())][:_SERIES]
    if not known:
        return None
    used = [number for own in bins.values() for number in own]
    span = range(min(used), max(used) + 1)
    series = [(Name(split), tuple(bins[split][number] / bins[split].total() for number in span)) for split in known]
    return Steps(edges=edges_of(span), series=tuple(series), unit="tokens of a document")


def documents_by_length(manifest: Manifest) -> dict[str, Counter[int]]:
    """Return the documents of each split by :func:`half_octave` of their tokens."""
    table = manifest.table("lengths", ["split", "low", "high", "documents"])
    bins: dict[str, Counter[int]] = {}
    for row in table.group_by(["split", "low", "high"]).aggregate([("documents", "sum")]).to_pylist():
        number = half_octave(math.sqrt(max(1, row["low"]) * max(1, row["high"])))
        bins.setdefault(row["split"], Counter())[number] += row["documents_sum"]
    return bins


def half_octave(value: float) -> int:
    """Return the number of the bin of half an octave that a value is in; 0 of 1 and less."""
    return math.floor(math.log2(max(1.0, value)) * PER_OCTAVE)


def edges_of(span: range, unit: float = 1.0) -> tuple[float, ...]:
    """Return the edges of bins of :func:`half_octave`."""
    return tuple(unit * 2.0 ** (number / PER_OCTAVE) for number in (*span, span[-1] + 1))


def _shard_values(manifest: Manifest) -> list[ShardValues]:
    name = "bytes_per_token"
    table = manifest.table("shards", [name, "seq_len_max", "tokens"])
    values, longest, tokens = (floats(table[column]) for column in table.column_names)
    return [ShardValues(column=name, text="bytes per token", values=values, largest=longest / np.maximum(tokens, 1))]


SHOWN = Shown(parts=(Part(area="lengths", blocks=lambda manifest: [_section(manifest)]),), shard_values=_shard_values)
