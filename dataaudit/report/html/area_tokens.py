"""Tokens: who counted them, drift from the reference, padding."""

from __future__ import annotations

import pyarrow.compute as pc

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope
from dataaudit.report.drift import ALARM_NATS, Drift, drifts, moved, why_no_drift
from dataaudit.report.html.pieces import (
    Bars,
    Block,
    Facts,
    Figure,
    Grid,
    Section,
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
from dataaudit.report.meanings import encoder_text
from dataaudit.report.view import Overview

_TOKENS = 15
_ROWS = 30
_WAYS = {
    "padded": "padded to the context",
    "padded_batch": "padded to the batch",
    "packed": "packed",
    "concatenated": "concatenated",
}


def token_section(manifest: Manifest, view: Overview) -> Section:
    """Return tokenizer, drift from the reference manifest, and padding."""
    found = drifts(manifest)
    alarms = [one for one in found if moved(one)]
    blocks: list[Block] = []
    if not found:
        lead = "There is no reference manifest, so drift was not measured."
    elif all(one.reason for one in found):
        lead = f"Drift was not measured: {why_no_drift(found[:1])}."
    else:
        worst = max((one for one in found if one.kl is not None), key=lambda one: one.kl or 0.0)
        lead = f"The largest divergence from the reference is {t.ratio(worst.kl)} nats, in {_where(worst)}."
        lead += "" if alarms else f" None is above {ALARM_NATS} nats."
        blocks += [_drift(found), *_moving_tokens(manifest, worst)]
    padding = _padding(manifest)
    if padding is not None:
        blocks.append(padding)
    tokenizer = view.tokenizer
    facts = Facts(
        pairs=(
            ("tokenizer", f"{named(tokenizer['name'])}, {tokenizer['vocab_size']:,} ids"),
            ("sha256 of its file", tokenizer["sha256"]),
            ("counted by", encoder_text(tokenizer["encoder_reason"])),
        )
    )
    return Section(
        id="tokens",
        title="Tokens and drift",
        lead=lead,
        tone="warn" if alarms else "" if found else "quiet",
        blocks=(*blocks, facts),
    )


def _drift(found: list[Drift]) -> Grid:
    splits = [one for one in found if not one.source]
    sources = sorted((one for one in found if one.source), key=lambda one: (-(one.kl or -1.0), one.split, one.source))
    shown = [*splits, *first(sources, _ROWS)]
    rows = tuple(
        row(
            named(one.split),
            named(one.source) or "all",
            cell(t.ratio(one.kl), "warn" if moved(one) else ""),
            t.ratio(one.js),
            t.ratio(one.noise),
            t.ratio(one.excess),
        )
        for one in shown
    )
    return Grid(
        title="Divergence of token counts from the reference, in nats",
        rows=rows,
        columns=(name("split"), name("source"), *numbers("KL", "Jensen-Shannon", "KL by chance", "KL beyond chance")),
        more=more([*splits, *sources], shown, "source"),
        note=f"Marked: KL above {ALARM_NATS} nats. By chance: what two samples of the same text give on average.",
    )


def _moving_tokens(manifest: Manifest, worst: Drift) -> list[Block]:
    """Return the tokens that make most of the largest divergence."""
    table = manifest.table("drift")
    table = table.filter(pc.equal(table["split"], worst.split))
    wanted = pc.equal(table["source"], worst.source) if worst.source else pc.is_null(table["source"])
    held = sorted(table.filter(pc.fill_null(wanted, False)).to_pylist(), key=lambda one: one["rank"])[:_TOKENS]
    if not held:
        return []
    pieces = [one["piece"] or f"id {one['token']}" for one in held]
    rows = tuple(
        row(
            named(piece, 40),
            t.count(one["count"]),
            t.count(one["reference_count"]),
            _nats(one["kl"]),
            _nats(one["js"]),
        )
        for piece, one in zip(pieces, held, strict=True)
    )
    title = f"Tokens that moved most in {_where(worst)}"
    chart = Bars(
        labels=tuple(label(piece) for piece in pieces),
        values=tuple(one["kl"] for one in held),
        shown=tuple(f"{_nats(one['kl'])} nats" for one in held),
        unit="part of KL, nats",
    )
    grid = Grid(
        title=title,
        rows=rows,
        folded=True,
        columns=(name("token"), *numbers("count", "in the reference", "part of KL, nats", "part of JS, nats")),
    )
    says = ", ".join(
        f"{label(piece)} {'more' if one['kl'] > 0 else 'less'} often"
        for piece, one in list(zip(pieces, held, strict=True))[:5]
    )
    note = "To the right: more often than in the reference; to the left: less often."
    return [Figure(id="chart-drift", title=title, chart=chart, says=says, table=grid, note=note)]


def _padding(manifest: Manifest) -> Grid | None:
    names = [split.name for split in manifest.core.splits if not split.held_out]
    scope = Scope(split=names[0]) if len(names) == 1 else Scope()
    found: dict[int, dict[str, float | None]] = {}
    for record in manifest.metrics("pad_fraction", None, scope):
        way, _, context = record.stat.rpartition("_")
        if context.isdecimal():
            found.setdefault(int(context), {})[way] = record.value
    if not found:
        return None
    rows = tuple(
        row(t.count(context), *(percent(values.get(way)) for way in _WAYS)) for context, values in sorted(found.items())
    )
    return Grid(
        title=f"Padding of {named(scope.split) if scope.split else 'all splits together'}",
        columns=numbers("context, tokens", *_WAYS.values()),
        rows=rows,
        note="Share of the fed tokens that would be padding, by context length and way of batching.",
    )


def _where(one: Drift) -> str:
    return named(one.split, 60) + (f", source {named(one.source, 60)}" if one.source else "")


def _nats(value: float) -> str:
    return f"{value:+.4f}"
