"""How long documents are, in tokens, by split."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dataaudit.manifest.load import Manifest
from dataaudit.metrics.records import records_in
from dataaudit.metrics.shown import Part, ShardValues, Shown, floats
from dataaudit.render.blocks import Block, Figure, Section, Steps, Table, names, numbers
from dataaudit.render.line import Name, decimal, say

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
    for one in held:
        middle = max(1.0, math.sqrt(max(1, one["low"]) * max(1, one["high"])))
        index = math.floor(math.log2(middle) * _BINS_PER_OCTAVE)
        own = bins.setdefault(one["split"], {})
        own[index] = own.get(index, 0) + one["documents_sum"]
    known = [one for one in splits if sum(bins.get(one, {}).values())][:_SERIES]
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
