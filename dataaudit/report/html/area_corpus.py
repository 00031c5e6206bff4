"""What the corpus is made of: sources beside what was declared, languages, lengths of documents."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope
from dataaudit.report.html.pieces import (
    Bars,
    Block,
    Column,
    Figure,
    Grid,
    Prose,
    Section,
    Steps,
    cell,
    first,
    label,
    more,
    name,
    named,
    numbers,
    percent,
    row,
)
from dataaudit.report.quality import Languages, languages
from dataaudit.report.view import OFF_SHARE, Overview, Share, Volume, is_off, off_by

_BARS = 15
_ROWS = 50
_BINS_PER_OCTAVE = 2
_STATS = ("p1", "p5", "p25", "p50", "p75", "p95", "p99", "max")


def mixture_section(view: Overview) -> Section:
    """Return the sources: found share beside declared share, and the splits."""
    shares = view.sources
    trained = any(not split.held_out for split in view.splits)
    kind = "training" if trained else "held-out"
    off = [one for one in shares if is_off(one)]
    lead = f"{t.plural(len(shares), 'source')} of {kind} tokens."
    points = f"{OFF_SHARE * 100:.0f} percentage points"
    if off:
        verb = "is" if len(off) == 1 else "are"
        away = "; ".join(_away(one) for one in first(_by_distance(off), 3))
        many = f"{t.count(len(off))} of {t.plural(len(shares), 'source')}"
        lead = f"{many} {verb} over {points} from the declared share: {away}."
    elif any(one.declared is not None for one in shares):
        lead += f" Every share is within {points} of the declared one."
    blocks: tuple[Block, ...] = (_splits(view.splits, view.totals),)
    if shares:
        blocks = (_sources(shares, kind), *blocks)
    return Section(id="mixture", title="Mixture", lead=lead, tone="warn" if off else "", blocks=blocks)


def language_section(manifest: Manifest) -> Section:
    """Return the languages of the training data."""
    found = languages(manifest)
    title = "Languages"
    if found is None or not found.parts:
        return Section(id="languages", title=title, lead="Languages were not detected in this build.", tone="quiet")
    top = found.parts[0]
    lead = f"{named(top.language)} has {percent(top.share)} of the {_kind(found)} tokens; {_spoken(found)}."
    shown = first(found.parts, _ROWS)
    rows = tuple(
        row(named(one.language), t.count(one.documents), t.size(one.bytes), t.count(one.tokens), percent(one.share))
        for one in shown
    )
    table = Grid(
        title="Languages by tokens",
        rows=rows,
        more=more(found.parts, shown, "language"),
        folded=True,
        columns=(name("language"), *numbers("documents", "text", "tokens", "share of tokens")),
    )
    bars = found.parts[:_BARS]
    chart = Bars(
        labels=tuple(label(one.language) for one in bars),
        values=tuple(one.share or 0.0 for one in bars),
        shown=tuple(percent(one.share) for one in bars),
        unit=f"share of {_kind(found)} tokens",
        percent=True,
    )
    figure = Figure(
        id="chart-languages",
        title="Languages",
        chart=chart,
        table=table,
        says=lead,
        note=f"The first {len(bars)} of {len(found.parts)}." if len(bars) < len(found.parts) else "",
    )
    return Section(id="languages", title=title, lead=lead, blocks=(figure, Prose(text=_detectors(found), tone="quiet")))


def length_section(manifest: Manifest, view: Overview) -> Section:
    """Return how long the documents are, in tokens, by split."""
    found = {
        (record.scope.split or "", record.stat): record.value
        for record in manifest.metrics("seq_len_p50_p95")
        if record.scope == Scope(split=record.scope.split)
    }
    splits = [split.name for split in view.splits]
    rows = tuple(row(named(split), *(t.decimal(found.get((split, stat))) for stat in _STATS)) for split in splits)
    table = Grid(title="Percentiles, in tokens", columns=(name("split"), *numbers(*_STATS)), rows=rows, folded=True)
    whole = found.get(("", "p50")), found.get(("", "p95"))
    if whole[0] is None:
        return Section(id="lengths", title="Lengths", lead="There is no document with a length.", tone="quiet")
    lead = f"Half of the documents have {t.decimal(whole[0])} tokens or less, 95 % have {t.decimal(whole[1])} or less."
    steps = _lengths(manifest, splits)
    blocks: tuple[Block, ...] = (table,)
    if steps is not None:
        figure = Figure(
            id="chart-lengths",
            title="Tokens of a document",
            chart=steps,
            says=lead,
            table=table,
            note="Share of each split's documents by length; the axis is logarithmic.",
        )
        blocks = (figure,)
    return Section(id="lengths", title="Lengths", lead=lead, blocks=blocks)


def _sources(shares: Sequence[Share], kind: str) -> Figure:
    declared = any(one.declared is not None for one in shares)
    columns: list[Column] = [name("source"), *numbers("documents", "text", "tokens", "share of tokens")]
    columns += numbers("declared", "off by") if declared else ()
    shown = first(shares, _ROWS)
    rows = []
    for one in shown:
        cells = [named(one.source), t.count(one.documents), t.size(one.bytes), t.count(one.tokens), percent(one.share)]
        if declared:
            cells.append(percent(one.declared))
        off = cell(_points(one), "warn" if is_off(one) else "")
        rows.append(row(*cells, *((off,) if declared else ())))
    table = Grid(
        title=f"Sources by share of {kind} tokens",
        columns=tuple(columns),
        rows=tuple(rows),
        more=more(shares, shown, "source"),
        note="off by: found less declared, in percentage points." if declared else "",
    )
    bars = shares[:_BARS]
    chart = Bars(
        labels=tuple(label(one.source) for one in bars),
        values=tuple(one.share or 0.0 for one in bars),
        shown=tuple(_said(one) for one in bars),
        unit=f"share of {kind} tokens",
        percent=True,
        marks=tuple(one.declared for one in bars) if declared else (),
        marks_mean="declared",
        loud=tuple(is_off(one) for one in bars),
    )
    says = "; ".join(f"{label(one.source)}: {_said(one)}" for one in bars[:5])
    return Figure(
        id="chart-mixture",
        title=f"Sources by share of {kind} tokens",
        chart=chart,
        says=says,
        table=table,
        note="Bar: found; line: declared; orange: more than two percentage points apart." if declared else "",
    )


def _splits(splits: Sequence[Volume], whole: Volume) -> Grid:
    volumes = [*splits, whole] if len(splits) > 1 else list(splits)
    rows = tuple(
        row(
            named(one.name) or "all",
            "held out" if one.held_out else ("" if one.held_out is None else "training"),
            t.count(one.shards),
            t.count(one.documents),
            t.size(one.bytes),
            t.count(one.tokens),
            t.decimal(one.bytes_per_token),
            percent(one.exact_dup_rate),
        )
        for one in volumes
    )
    columns = (
        name("split"),
        Column(head="use", kind="word"),
        *numbers("shards", "documents", "text", "tokens", "bytes per token", "exact copies"),
    )
    return Grid(
        title="Splits",
        columns=columns,
        rows=rows,
        note="exact copies: documents whose text was seen before, in any split, white space aside.",
    )


def _lengths(manifest: Manifest, splits: Sequence[str]) -> Steps | None:
    """Return the distribution of lengths by split, in bins of half an octave."""
    table = manifest.table("lengths", ["split", "low", "high", "documents"])
    held = table.group_by(["split", "low", "high"]).aggregate([("documents", "sum")]).to_pylist()
    bins: dict[str, dict[int, int]] = {}
    for one in held:
        middle = max(1.0, math.sqrt(max(1, one["low"]) * max(1, one["high"])))
        index = math.floor(math.log2(middle) * _BINS_PER_OCTAVE)
        own = bins.setdefault(one["split"], {})
        own[index] = own.get(index, 0) + one["documents_sum"]
    used = [index for own in bins.values() for index in own]
    if not used:
        return None
    span = range(min(used), max(used) + 1)
    series = []
    for split in [one for one in splits if one in bins][:6]:
        total = sum(bins[split].values())
        series.append((label(split), tuple(bins[split].get(index, 0) / total for index in span)))
    edges = tuple(2.0 ** (index / _BINS_PER_OCTAVE) for index in (*span, span[-1] + 1))
    return Steps(edges=edges, series=tuple(series), unit="tokens of a document")


def _by_distance(shares: Sequence[Share]) -> list[Share]:
    return sorted(shares, key=lambda one: -abs(off_by(one)))


def _points(one: Share) -> str:
    if one.share is None or one.declared is None:
        return t.NOTHING
    return f"{(one.share - one.declared) * 100:+.2f} pp"


def _away(one: Share) -> str:
    return f"{named(one.source, 40)} {percent(one.share)} instead of {percent(one.declared)}"


def _said(one: Share) -> str:
    return percent(one.share) + ("" if one.declared is None else f", declared {percent(one.declared)}")


def _kind(found: Languages) -> str:
    return "training" if found.trained else "held-out"


def _spoken(found: Languages) -> str:
    others = len(found.parts) - 1
    return "no other language was found" if not others else f"{t.plural(others, 'other language')} share the rest"


def _detectors(found: Languages) -> str:
    text = f"Decided by {named(found.detectors[0])}; und: not sure enough, or no letters."
    record = found.agreement
    if record is not None and len(found.detectors) > 1:
        text += (
            f" {named(found.detectors[1])} agrees on {percent(record.value)} of {t.plural(record.n, 'document')}"
            f" sampled (95 % interval {percent(record.low)} to {percent(record.high)})."
        )
    return text
