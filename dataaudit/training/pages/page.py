"""``dataaudit report --run``: the page of a training run: what stands out, the loss, heads and layers over steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from dataaudit.base import text as t
from dataaudit.base.errors import NothingEvaluated
from dataaudit.base.extras import require
from dataaudit.base.files import read_safely
from dataaudit.base.render.blocks import (
    Block,
    Cell,
    Curves,
    Facts,
    Figure,
    Heat,
    Page,
    Point,
    Prose,
    Section,
    Tone,
    table_of,
)
from dataaudit.base.render.line import PERCENT, Line, Name, say, spell
from dataaudit.manifest.outfiles import write_file
from dataaudit.runlog.format import ATTRIBUTION_FILE
from dataaudit.runlog.reader import RunLog, load_run
from dataaudit.training.attribution.findings import Attribution
from dataaudit.training.attribution.run_facts import run_facts
from dataaudit.training.pages.blocks import LIMITS, answer, behind_lines
from dataaudit.training.pages.evidence_blocks import evidence_blocks, proposed, replay_blocks
from dataaudit.training.pages.incident_blocks import (
    Change,
    Grid,
    Incident,
    changes,
    coverage_section,
    grids_of,
    incident_points,
    incident_section,
    incidents_of,
    marks_of,
    where_line,
)
from dataaudit.training.pages.loss_section import MOST_POINTS, loss_section, run_section, trained_section
from dataaudit.training.pages.run_blocks import run_points, table
from dataaudit.vitals.metrics import charts

HEADS = charts(of_heads=True)
LAYERS = sorted(charts(of_heads=False), key=lambda chart: chart[0] != "residual_rms")
"""What is drawn, the residual stream first: metric, statistic, title."""
MOST_ROWS = 32
"""Heads of a picture over steps: those that changed most."""
_FINDINGS = 15
_OTHERS: dict[str, Tone] = {"learning_rate_jump": "bad", "clip_before_unscale": "bad"}


def write_run_report(folder: Path, out: Path, *, as_json: bool) -> str:
    """Write the page of a run log and return what the command prints."""
    require("report", "report")
    from dataaudit.base.render.html import render

    page = run_page(load_run(folder))
    data = render(page).encode("utf-8")
    write_file(out, data)
    if as_json:
        findings = [spell(point.text, PERCENT).replace("\xa0", " ") for point in page.findings]
        value = {"report": str(out), "bytes": len(data), "headline": page.headline, "findings": findings}
        return t.as_json(value)
    return f"{t.clean(str(out))}: {t.size(len(data))}, {page.headline}\n"


def run_page(log: RunLog) -> Page:
    """Return the page of a run."""
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
    findings = sorted(findings, key=lambda finding: finding.tone != "bad")
    sections = (
        incident_section(incidents, grids),
        coverage,
        loss,
        *_data(result),
        trained,
        run_section(facts),
        _pictures("heads", "Attention heads", HEADS, grids, incidents),
        _pictures("layers", "Layers", LAYERS, grids, incidents),
        _values(grids),
        _happened(reported),
        _about(log, reported),
    )
    calm = "No incident." if coverage is None else f"No incident. {coverage.lead}"
    began = log.run.started.replace("T", " ").replace("Z", " UTC")
    opened = f"Manifest {log.run.manifest}" if log.run.manifest else "No manifest was opened"
    tone: Tone = "bad" if any(point.tone == "bad" for point in findings) else "warn" if findings else "good"
    return Page(
        title=Name(log.folder.name),
        version="",
        meta=f"Report of a training run. Started {began}, dataaudit {t.clean(log.run.program, 40)}. {opened}",
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
            words = say("Step {}: the run goes on with another learning rate: {}.", step, Name(_words(detail), 200))
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
    first = [Prose(text=proposed(result)), *([Prose(text=LIMITS)] if result.episodes else [])]
    blocks = (*first, *(item for item in evidence if not isinstance(item, Section)))
    lead = next(iter(behind_lines(result)), "Which data episodes lie in, and what tests of the whole run find.")
    whole = Section(id="data", title="The data", lead=lead, tone="warn" if result.behind else "", blocks=blocks)
    return [whole, *(item for item in evidence if isinstance(item, Section))]


def _pictures(
    name: str,
    title: str,
    metrics: Sequence[tuple[str, str, str]],
    grids: dict[tuple[str, str], Grid],
    incidents: Sequence[Incident],
) -> Section | None:
    """Return the section of heads, or of layers, over steps; of heads the newest values, too."""
    blocks: list[Block] = []
    for metric, stat, heading in metrics:
        grid = _only(grids.get((metric, stat)), heads=name == "heads")
        if grid is not None:
            blocks += [_newest(grid, heading)] if name == "heads" else []
            blocks += _over_steps(grid, heading, incidents)
    if not blocks:
        return None
    marks = sum(len(marks_of(incidents, metric)) for metric, *_ in metrics)
    lead = f"{marks:,} series had an alarm; a triangle marks its first step." if marks else "No alarm."
    return Section(id=name, title=title, lead=lead, tone="warn" if marks else "good", blocks=tuple(blocks))


def _only(grid: Grid | None, *, heads: bool) -> Grid | None:
    """Return the rows of layers, or of heads; None where there is none."""
    if grid is None:
        return None
    chosen = [row for row, (layer, head) in enumerate(grid.places) if layer >= 0 and (head >= 0) == heads]
    if not chosen:
        return None
    return Grid(grid.metric, grid.stat, [grid.places[row] for row in chosen], grid.steps, grid.values[chosen])


def _newest(grid: Grid, title: str) -> Figure:
    layers, heads = sorted({place[0] for place in grid.places}), sorted({place[1] for place in grid.places})
    newest = dict(zip(grid.places, grid.last().tolist(), strict=True))
    values = tuple(tuple(_known(newest.get((layer, head))) for head in heads) for layer in layers)
    order = sorted(newest.items(), key=lambda item: (-item[1], item[0]))
    return Figure(
        id=f"{grid.metric}-{grid.stat}-now",
        title=f"{title}: heads by layers, newest values",
        chart=Heat(
            rows=tuple(f"layer {layer}" for layer in layers),
            columns=tuple(f"head {head}" for head in heads),
            values=values,
            row_title="",
            column_title="",
            scale=grid.metric,
        ),
        table=table_of(
            "Newest values, the largest first",
            order,
            ("where", "name", lambda row: where_line(*row[0])),
            ("value", "number", lambda row: f"{row[1]:.4g}"),
            noun="head",
            folded=True,
        ),
        says=f"{grid.metric} of {t.plural(len(order), 'head')}, {order[-1][1]:.3g} to {order[0][1]:.3g}",
    )


def _over_steps(grid: Grid, title: str, incidents: Sequence[Incident]) -> list[Block]:
    """Return the picture of a metric over steps, and its table: series with an alarm first, then what changed most."""
    if len(grid.steps) < 2:
        return []
    result, marks = changes(grid), marks_of(incidents, grid.metric)
    order = [change.row for change in result] or list(range(len(grid.places)))
    order = sorted(order, key=lambda row: grid.places[row] not in marks)
    chosen = sorted(order[:MOST_ROWS])
    spans, means = grid.binned
    ends = np.array([high for _, high in spans])
    at = {row: int(np.searchsorted(ends, marks[place])) for row, place in enumerate(grid.places) if place in marks}
    less = len(grid.places) - len(chosen)
    many = len(grid.steps) // len(spans)
    note = f"A column is the mean of {many} or more measured steps." if len(spans) < len(grid.steps) else ""
    note += f" {t.plural(less, 'other')} changed less and are left out." if less > 0 else ""
    by_row = {change.row: change for change in result}

    def quantile(row: int, part: float) -> str:
        return f"{np.quantile(grid.values[row][np.isfinite(grid.values[row])], part):.3g}"

    def of_change(name: str, form: str) -> Callable[[int], Line]:
        return lambda row: format(getattr(by_row[row], name), form) if row in by_row else ""

    return [
        Figure(
            id=f"{grid.metric}-{grid.stat}-steps",
            title=f"{title}, over steps",
            chart=Heat(
                rows=tuple(where_line(*grid.places[number]) for number in chosen),
                columns=tuple(f"{_rounded(low, high):,}" for low, high in spans),
                values=tuple(tuple(_known(value) for value in means[number].tolist()) for number in chosen),
                row_title="",
                column_title="step",
                marks=tuple(
                    (place, min(at[number], len(spans) - 1), f"alarm, since step {marks[grid.places[number]]:,}")
                    for place, number in enumerate(chosen)
                    if number in at
                ),
                ticks=_round_ticks(spans),
                scale=grid.metric,
            ),
            table=table_of(
                "What changed most first",
                order,
                ("where", "name", lambda row: where_line(*grid.places[row])),
                ("p50", "number", lambda row: quantile(row, 0.5)),
                ("p99", "number", lambda row: quantile(row, 0.99)),
                ("before", "number", of_change("before", ".3g")),
                ("after", "number", of_change("after", ".3g")),
                ("from step", "number", lambda row: by_row[row].step if row in by_row else ""),
                ("robust deviations", "number", of_change("score", ".1f")),
                folded=True,
            ),
            says=_changed_most(grid, result),
            note=note.strip(),
        )
    ]


def _rounded(low: int, high: int) -> int:
    """Return the roundest number from the first to the last step of a column."""
    for size in (10**power * times for power in range(9, -1, -1) for times in (5, 2, 1)):
        result: int = -(-low // size) * size
        if 0 < result <= high:
            return result
    return low


def _round_ticks(spans: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the columns that hold multiples of a round number of steps, eight of them at most."""
    first, last = spans[0][0], spans[-1][1]
    for size in (10**power * times for power in range(10) for times in (1, 2, 5)):
        if (last - first) // size < 8:
            break
    steps = range(-(-first // size) * size, last + 1, size)
    ends = [high for _, high in spans]
    return tuple(dict.fromkeys(int(np.searchsorted(ends, step)) for step in steps if step))


def _changed_most(grid: Grid, result: Sequence[Change]) -> str:
    if not result:
        return f"{grid.metric} over {len(grid.steps):,} measured steps"
    most = result[0]
    where = where_line(*grid.places[most.row])
    return f"{where} changed most: {most.before:.3g} before step {most.step:,}, {most.after:.3g} after"


def _known(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "unknown"


def _values(grids: dict[tuple[str, str], Grid]) -> Section | None:
    """Return lines of what is of the whole model."""
    blocks: list[Block] = []
    for (metric, stat), grid in grids.items():
        if (-1, -1) not in grid.places or len(grid.steps) < 2:
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


def _happened(events: Sequence[dict[str, Any]]) -> Section | None:
    """Return the run's events, newest last."""
    if not events:
        return None
    rows = sorted(events, key=lambda item: (item["step"], item["time"]))
    listed = table_of(
        "Events",
        [row for row in rows if row["kind"] not in {"vitals", "coverage"}],
        ("step", "number", lambda row: row["step"]),
        ("rank", "number", lambda row: row["rank"]),
        ("kind", "name", lambda row: Name(row["kind"], 40)),
        ("detail", "text", lambda row: Name(_words(row["detail"]), 200)),
        empty="There is none.",
    )
    return Section(id="events", title="Events", lead="What the run wrote, newest last.", blocks=(listed,))


def _words(detail: dict[str, Any]) -> str:
    return "; ".join(f"{name} {_value(value)}" for name, value in sorted(detail.items()))


def _value(value: Any) -> str:
    """Return what an event holds under a name, without the marks of a programming language."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(map(_value, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)


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
