"""``dataaudit report --run``: the page of a training run: what stands out, its loss, what it was trained on and did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from dataaudit.base import text as t
from dataaudit.base.errors import NothingEvaluated
from dataaudit.base.extras import require
from dataaudit.base.files import read_safely
from dataaudit.base.render.blocks import (
    MOST_ROWS,
    Block,
    Cell,
    Curves,
    Facts,
    Figure,
    KeyFigure,
    Page,
    Point,
    Prose,
    Section,
    Tone,
    column,
    first,
    table_of,
)
from dataaudit.base.render.line import PERCENT, Line, Name, say, share, spell
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.outfiles import write_file
from dataaudit.runlog.format import ATTRIBUTION_FILE
from dataaudit.runlog.reader import RunLog, load_run, ranks_at
from dataaudit.training.attribution.attribute import detector_of
from dataaudit.training.attribution.curve import Curve, Flagged, Judged, curve_of, judge_run, missing_of, open_ranks
from dataaudit.training.attribution.findings import Attribution
from dataaudit.training.attribution.run_facts import run_changes, run_facts
from dataaudit.training.attribution.run_findings import RunFacts
from dataaudit.training.attribution.trained_on import source_tokens
from dataaudit.training.pages.blocks import LIMITS, answer, behind_lines, change_line, false_alarms, none_seen
from dataaudit.training.pages.evidence_blocks import evidence_blocks, proposed, replay_blocks
from dataaudit.training.pages.grids import Grid, grids_of
from dataaudit.training.pages.heat_maps import HEADS, LAYERS, pictures
from dataaudit.training.pages.incident_blocks import (
    coverage_section,
    happened,
    incident_points,
    incident_section,
    incidents_of,
    where_line,
    words_of,
)
from dataaudit.training.pages.live_page import first_points, live_sections, started_line
from dataaudit.training.pages.panels import PANELS
from dataaudit.training.pages.run_blocks import data_blocks, data_points, rounded, run_pairs, run_points, table
from dataaudit.training.pages.run_view import RunView

MOST_POINTS = 2_000
"""Points of a line: means of as many segments of the run."""
_BANDS = {
    "composition": "what the documents of a step should cost, and how far off a step alone may be",
    "loss": "the band of the detector, the line through the newest 50 values that were not flagged",
}
_FINDINGS = 15
_OTHERS: dict[str, Tone] = {"learning_rate_jump": "bad", "clip_before_unscale": "bad"}


def write_run_report(folder: Path, out: Path, *, manifest: Path | None = None, as_json: bool) -> str:
    """Write the page of a run log and return what the command prints."""
    require("report", "report")
    from dataaudit.base.render.html import render

    page = run_page(load_run(folder), None if manifest is None else load_manifest(manifest))
    data = render(page).encode("utf-8")
    write_file(out, data)
    if as_json:
        findings = [spell(point.text, PERCENT).replace("\xa0", " ") for point in page.findings]
        value = {"report": str(out), "bytes": len(data), "headline": page.headline, "findings": findings}
        return t.as_json(value)
    return f"{t.clean(str(out))}: {t.size(len(data))}, {page.headline}\n"


def run_page(log: RunLog, manifest: Manifest | None = None) -> Page:
    """Return the page of a run, beside the manifest that it was trained on."""
    steps, events = log.table("steps"), log.table("events")
    grids = grids_of(log.table("values"))
    if not len(steps) and not grids:
        raise NothingEvaluated(f"{log.folder} holds no step and no value", "Look again when the run has made some.")
    reported = [_event(row) for row in events.to_pylist()]
    incidents, result = incidents_of(reported), _attribution(log)
    coverage = coverage_section(reported)
    findings = [*incident_points(incidents, grids), *_alarms(reported), *_episodes(result)]
    facts = run_facts(log)
    trained, of_data = trained_section(log, result)
    findings += [*of_data, *run_points(facts)]
    loss, loss_figures, loss_points = loss_section(log)
    findings += [] if any(point.section == "loss" for point in findings) else loss_points
    view = RunView(log.folder, manifest=manifest)
    view.read(math.inf)
    findings = sorted([*first_points(view), *findings], key=lambda finding: finding.tone != "bad")
    alerts, *panels, hours, quality = live_sections(view, view.incidents())
    sections = (
        alerts,
        incident_section(incidents, grids),
        coverage,
        loss,
        *panels,
        *_data(result),
        trained,
        hours,
        quality,
        run_section(facts),
        pictures("heads", "Attention heads", HEADS, grids, incidents),
        pictures("layers", "Layers", LAYERS, grids, incidents),
        _values(grids),
        happened(reported),
        _about(log, reported),
    )
    calm = "No incident." if coverage is None else f"No incident. {coverage.lead}"
    tone: Tone = "bad" if any(point.tone == "bad" for point in findings) else "warn" if findings else "good"
    return Page(
        title=Name(log.folder.name),
        version="",
        meta=f"Report of a training run. {started_line(log)}",
        headline=f"{t.plural(len(findings), 'thing')} to look at" if findings else "Nothing stands out",
        tone=tone,
        subline="Incidents first, the gravest at the top; then warnings and spikes of the loss." if findings else calm,
        findings=tuple(findings[:_FINDINGS]),
        others=(),
        findings_left_out=max(0, len(findings) - _FINDINGS),
        figures=loss_figures,
        sections=tuple(section for section in sections if section),
    )


def _event(row: dict[str, Any]) -> dict[str, Any]:
    """Return an event with its detail as an object; any other is an empty object."""
    try:
        detail = orjson.loads(row["detail"])
    except ValueError:
        detail = {}
    return {**row, "detail": detail if isinstance(detail, dict) else {}}


def _alarms(events: Sequence[dict[str, Any]]) -> list[Point]:
    """Return what is no incident of vitals: warnings outside of any, and what the optimizer's hooks report.

    Warnings of a metric and threshold are a sentence, however many series passed it.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for event in sorted(events, key=lambda item: item["step"]):
        kind, detail = event["kind"], event["detail"]
        if kind in _OTHERS or (kind == "warning" and not detail.get("incident")):
            key = (kind, *(str(detail.get(name)) for name in ("metric", "threshold")))
            groups.setdefault(key, []).append(event)
    points = []
    for own in groups.values():
        step, kind, detail = (own[0][name] for name in ("step", "kind", "detail"))
        again = "" if len(own) == 1 else f", {len(own):,} times"
        if kind == "learning_rate_jump":
            words = say("Step {}: the run goes on with another learning rate: {}.", step, Name(words_of(detail), 200))
        elif kind == "clip_before_unscale":
            words = say("Step {}: the gradients' norm was taken before they were unscaled{}.", step, again)
        else:
            metric, where = Name(str(detail.get("metric", "")), 60), where_line(detail.get("layer"), detail.get("head"))
            value, limit = _number(detail.get("value")), _number(detail.get("threshold"))
            words = say("Step {}: {} of {} is {}, beyond {}{}.", step, metric, where, value, limit, again)
        points.append(Point(text=words, tone=_OTHERS.get(kind, "warn"), section="events"))
    return points


def _attribution(log: RunLog) -> Attribution | str | None:
    """Return what ``dataaudit attribute`` found; why it cannot be read; None where its file is not there."""
    try:
        return Attribution.model_validate_json(read_safely(log.folder / ATTRIBUTION_FILE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return f"{ATTRIBUTION_FILE} cannot be read: run `dataaudit attribute` again."


def _episodes(result: Attribution | str | None) -> list[Point]:
    """Return what ``dataaudit attribute`` found, where its file is there: by shard over the run, then each episode."""
    if result is None:
        return []
    if isinstance(result, str):
        return [Point(text=result, tone="warn", section="loss")]
    shards = [Point(text=line, tone="bad", section="data") for line in behind_lines(result)]
    tone: tuple[Tone, Tone] = ("warn", "bad")
    return shards + [
        Point(text=answer(episode), tone=tone[episode.found is not None], section="loss") for episode in result.episodes
    ]


def _data(result: Attribution | str | None) -> list[Section]:
    """Return sections of the data: from episodes, the tests of the whole run, and a replay."""
    if not isinstance(result, Attribution):
        return []
    evidence = [*evidence_blocks(result), *replay_blocks(result)]
    opening = [Prose(text=proposed(result)), *([Prose(text=LIMITS)] if result.episodes else [])]
    blocks = (*opening, *(item for item in evidence if not isinstance(item, Section)))
    lead = next(iter(behind_lines(result)), "Which data episodes lie in, and what tests of the whole run find.")
    whole = Section(id="data", title="The data", lead=lead, tone="warn" if result.behind else "", blocks=blocks)
    return [whole, *(item for item in evidence if isinstance(item, Section))]


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "unknown"


def _values(grids: dict[tuple[str, str], Grid]) -> Section | None:
    """Return lines of what is of the whole model, and in no panel."""
    blocks: list[Block] = []
    for (metric, stat), grid in grids.items():
        if (-1, -1) not in grid.places or len(grid.steps) < 2 or metric in PANELS:
            continue
        values = grid.values[grid.places.index((-1, -1))]
        parts = np.array_split(np.flatnonzero(np.isfinite(values)), min(MOST_POINTS, len(grid.steps)))
        means = [(float(grid.steps[part[len(part) // 2]]), float(values[part].mean())) for part in parts if len(part)]
        if len(means) < 2 or len({value for _, value in means}) < 2:
            continue
        steps, line = zip(*means, strict=True)
        title = Name(metric if stat == "value" else f"{metric}, {stat}", 80)
        blocks.append(
            Figure(
                id=f"value-{len(blocks)}",
                title=title,
                chart=Curves(series=((title, steps, line),), unit=""),
                table=table(
                    title,
                    (means[0], means[-1]),
                    ("step", "number", lambda row: int(row[0])),
                    ("value", "number", lambda row: f"{row[1]:.4g}"),
                    folded=True,
                ),
                says=f"from {line[0]:.4g} to {line[-1]:.4g}",
                height=180,
            )
        )
    if not blocks:
        return None
    return Section(id="values", title="Other values", lead="Of the whole model, over steps.", blocks=tuple(blocks))


def _about(log: RunLog, events: Sequence[dict[str, Any]]) -> Section:
    """Return what was found in the model, what it cannot see, and what the run was trained on."""
    pairs: list[tuple[Line, Line | Cell]] = [("dataset", Name(log.run.dataset or "not said"))]
    pairs += [(Name(name, 60), Name(value)) for name, value in sorted(log.run.digests.items())]
    blocks: list[Block] = [Facts(pairs=tuple(pairs), title="Run")]
    vitals = next((item["detail"] for item in reversed(events) if item["kind"] == "vitals"), None)
    if vitals is not None:
        model, *tables = (
            list(vitals[key].items()) if isinstance(vitals.get(key), dict) else []
            for key in ("found", "metrics", "estimators")
        )
        named = tuple((Name(str(name), 60), Name(str(value))) for name, value in model)
        blocks.append(Facts(pairs=named, title="Model"))
        for title, head, rows in zip(("Metrics", "Estimators"), ("state", "how"), tables, strict=True):
            blocks.append(
                table(
                    title,
                    rows,
                    ("metric", "name", lambda row: Name(str(row[0]), 60)),
                    (head, "text", lambda row: Name(str(row[1]), 200)),
                    empty="None is said.",
                )
            )
    else:
        blocks.append(Prose(text="No vitals were written: `dataaudit.vitals` looks at the model while it trains."))
    return Section(
        id="about", title="What was looked at", lead="What was found before the first step.", blocks=tuple(blocks)
    )


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
    listed = table_of(
        title,
        list(tokens.items()),
        ("source", "name", lambda row: Name(row[0])),
        ("tokens", "number", lambda row: f"{row[1]:,}"),
        ("share", "number", lambda row: share(row[1] / total)),
        noun="source",
        note="`dataaudit attribute` compares it with the manifest: mixture, passes, token drift, languages, lengths.",
    )
    return Section(id="trained", title=title, lead=lead, blocks=(listed,)), []


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
                    column("step"),
                    *(column(head, shown=_number) for head in ("val_loss", "train_loss_ema", "train_val_gap")),
                    folded=True,
                ),
                says=f"from {line[1][0]:+.3f} to {line[1][-1]:+.3f}",
                height=180,
            )
        )
    lead = points[0].text if points else "Nothing stands out."
    return Section(id="run", title="The run", lead=lead, tone="warn" if points else "good", blocks=tuple(blocks))


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
    episodes = table_of(
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
        table=episodes,
        says=f"Loss from {finite[0]:.4g} to {finite[-1]:.4g} over {len(curve.step):,} steps" if len(finite) else "",
        note=f"Grey: {_BANDS[detector.by]}. `dataaudit attribute` says which data an episode lies in.",
    )
    changed = run_changes(curve, log.table("values"))
    changes = table_of(
        "Changes in the run, which are facts and no causes",
        changed,
        *map(column, ("first step", "last step")),
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
