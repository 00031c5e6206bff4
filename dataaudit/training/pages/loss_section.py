"""Sections of a run's page: its loss and what that should be, what it was trained on, and what it did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    MOST_ROWS,
    Block,
    Curves,
    Facts,
    Figure,
    KeyFigure,
    Point,
    Prose,
    Section,
    Tone,
    first,
    table_of,
)
from dataaudit.base.render.line import Name, say, share
from dataaudit.runlog.reader import RunLog, ranks_at
from dataaudit.training.attribution.attribute import detector_of
from dataaudit.training.attribution.curve import Curve, Flagged, Judged, curve_of, judge_run, missing_of, open_ranks
from dataaudit.training.attribution.findings import Attribution
from dataaudit.training.attribution.run_facts import run_changes
from dataaudit.training.attribution.run_findings import RunFacts
from dataaudit.training.attribution.trained_on import source_tokens
from dataaudit.training.pages.blocks import change_line, false_alarms, none_seen
from dataaudit.training.pages.run_blocks import data_blocks, data_points, rounded, run_pairs, run_points

MOST_POINTS = 2_000
"""Points of a line: means of as many segments of the run."""
_BANDS = {
    "composition": "what the documents of a step should cost, and how far off a step alone may be",
    "loss": "the band of the detector, the line through the newest 50 values that were not flagged",
}


def trained_section(log: RunLog, result: Attribution | str | None) -> tuple[Section | None, list[Point]]:
    """Return the section of what was trained on: against the manifest where ``dataaudit attribute`` has looked."""
    title, lead = "What was trained on", "Exact counts of the log."
    if isinstance(result, Attribution) and result.trained_on is not None and result.trained_on.tokens:
        points = list(data_points(result.trained_on))
        until = f"Against the manifest, by `dataaudit attribute`, up to step {result.last_step or 0:,}."
        first_point = points[0].text if points else until
        tone: Tone = "bad" if any(point.tone == "bad" for point in points) else "warn" if points else "good"
        blocks = tuple(data_blocks(result.trained_on))
        return Section(id="trained", title=title, lead=first_point, tone=tone, blocks=blocks), points
    tokens = source_tokens(log)
    if not tokens:
        return None, []
    total = sum(tokens.values())
    table = table_of(
        title,
        list(tokens.items()),
        ("source", "name", lambda row: Name(row[0])),
        ("tokens", "number", lambda row: f"{row[1]:,}"),
        ("share", "number", lambda row: share(row[1] / total)),
        noun="source",
        note="`dataaudit attribute` compares it with the manifest: mixture, passes, token drift, languages, lengths.",
    )
    return Section(id="trained", title=title, lead=lead, blocks=(table,)), []


def run_section(result: RunFacts) -> Section | None:
    """Return what the run did, in numbers, with losses on held-out data over steps."""
    if not result.tokens_seen:
        return None
    points = list(run_points(result))
    blocks: list[Block] = [Facts(title="The run", pairs=tuple(run_pairs(result)))]
    for place, held_out in enumerate(result.held_out):
        rows = [point for point in held_out.points if point.train_val_gap is not None]
        if len(rows) < 2:
            continue
        line = tuple(float(point.step) for point in rows), tuple(float(point.train_val_gap or 0) for point in rows)
        blocks.append(
            Figure(
                id=f"gap-{place}",
                title=say("train_val_gap {}", Name(held_out.name)) if held_out.name else "train_val_gap",
                chart=Curves(series=(("gap", *line),), unit="nats/token"),
                table=table_of(
                    "Losses on held-out data",
                    rows[::-1],
                    ("step", "number", lambda point: point.step),
                    ("val_loss", "number", lambda point: _short(point.val_loss)),
                    ("train_loss_ema", "number", lambda point: _short(point.train_loss_ema)),
                    ("train_val_gap", "number", lambda point: _short(point.train_val_gap)),
                    folded=True,
                ),
                says=f"from {line[1][0]:+.3f} to {line[1][-1]:+.3f}",
                height=180,
            )
        )
    lead = points[0].text if points else "Nothing stands out."
    return Section(id="run", title="The run", lead=lead, tone="warn" if points else "good", blocks=tuple(blocks))


def _short(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def loss_section(log: RunLog) -> tuple[Section | None, tuple[KeyFigure, ...], list[Point]]:
    """Return the section of the loss, or None without any; key figures of the steps; a point for each episode."""
    steps, events = log.table("steps"), log.table("events")
    curve, missing = curve_of(steps, events), missing_of(steps, events, log.run.ranks)
    (ranks,) = ranks_at(curve.step[-1:], events, log.run.ranks) if len(curve.step) else (log.run.ranks,)
    figures = [
        KeyFigure(label="steps", value=len(curve.step), detail=t.plural(int(ranks), "rank")),
        KeyFigure(
            label="steps that are missing",
            value=missing.number,
            detail="lost, or not written yet" if missing.number else "none",
            tone="warn" if missing.number else "",
        ),
    ]
    if many := open_ranks(events, log.run.ranks):
        detail = f"the run goes on, was killed, or could not write; {t.plural(many, 'rank')}"
        figures.append(KeyFigure(label="end of the log", value="none", detail=detail, tone="warn"))
    if not len(curve.step):
        return None, tuple(figures), []
    judged = judge_run(log, curve)
    finite = curve.value[np.isfinite(curve.value)]
    ended = bool(np.isfinite(curve.value[-1]))
    last = f"{finite[-1]:.4g}" if ended else t.NOT_FINITE
    figures.insert(1, KeyFigure(label="last loss", value=last, detail="nats/token", tone="" if ended else "warn"))
    spikes = [_spike(curve, judged, flagged) for flagged in judged.spikes]
    points = [
        Point(text=f"{kind.capitalize()} at steps {low:,} to {high:,}.", tone="warn", section="loss")
        for low, high, kind, *_ in spikes
    ]
    detector = detector_of(judged)
    lead = f"{none_seen(detector, len(curve.step))}." if detector.visible else "Too few steps to judge any."
    if spikes:
        lead = f"{t.plural(len(spikes), 'episode')} above the band of the steps before."
    table = table_of(
        "Episodes",
        spikes,
        ("first step", "number", lambda spike: spike[0]),
        ("last step", "number", lambda spike: spike[1]),
        ("what", "text", lambda spike: spike[2]),
        ("loss", "number", lambda spike: rounded(spike[3])),
        ("expected", "number", lambda spike: rounded(spike[4])),
        ("band ±", "number", lambda spike: rounded(spike[5])),
        empty="There is none.",
    )
    figure = Figure(
        id="loss-curve",
        title="Loss over steps",
        chart=_chart(curve, judged, spikes),
        table=table,
        says=f"Loss from {finite[0]:.4g} to {finite[-1]:.4g} over {len(curve.step):,} steps" if len(finite) else "",
        note=f"Grey: {_BANDS[detector.by]}. `dataaudit attribute` says which data an episode lies in.",
    )
    changed = run_changes(curve, log.table("values"))
    changes = table_of(
        "Changes in the run, which are facts and no causes",
        changed,
        ("first step", "number", lambda change: change.first_step),
        ("last step", "number", lambda change: change.last_step),
        ("what", "text", change_line),
        noun="change",
    )
    blocks: tuple[Block, ...] = (
        figure,
        *([Prose(text=false_alarms(detector))] if detector.visible else []),
        *([changes] if changed else []),
    )
    tone: Tone = "warn" if spikes else "good" if detector.visible else ""
    return Section(id="loss", title="Loss", lead=lead, tone=tone, blocks=blocks), tuple(figures), points


def _spike(curve: Curve, judged: Judged, flagged: Flagged) -> tuple[Any, ...]:
    """Return first and last step of an episode, its kind, and means: loss, what it should be, and the band around."""
    known = (of[flagged.places] for of in (judged.expected, judged.limit))
    return (
        int(curve.step[flagged.first]),
        int(curve.step[flagged.last]),
        flagged.kind.replace("_", " "),
        float(curve.value[flagged.places].mean()),
        *(None if np.isnan(of).all() else float(np.nanmean(of)) for of in known),
    )


def _chart(curve: Curve, judged: Judged, spikes: Sequence[tuple[Any, ...]]) -> Curves:
    """Return the chart of the loss; with more steps than points, each point the mean of some."""
    line, band = [], []
    for part in np.array_split(np.arange(len(curve.step)), min(MOST_POINTS, len(curve.step))):
        at = float(curve.step[part[len(part) // 2]])
        if len(finite := curve.value[part][np.isfinite(curve.value[part])]):
            line.append((at, float(finite.mean())))
        judged_there = part[np.isfinite(judged.expected[part]) & np.isfinite(judged.limit[part])]
        if len(judged_there):
            expected, limit = (float(of[judged_there].mean()) for of in (judged.expected, judged.limit))
            band.append((at, expected - limit, expected + limit))
    return Curves(
        series=(("loss", tuple(item[0] for item in line), tuple(item[1] for item in line)),),
        unit="nats/token",
        band=tuple(band),
        spans=tuple(
            (low, high, f"steps {low:,} to {high:,}: {kind}") for low, high, kind, *_ in first(spikes, MOST_ROWS)
        ),
    )
