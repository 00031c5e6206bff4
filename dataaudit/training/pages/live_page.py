"""A run that is followed, as a page and in a terminal: is it healthy, which incident, the loss and the panels.

:func:`live_sections` are those that the still page of ``report --run`` shows, too; :func:`live_page` puts them under
a headline that says how the run is now. :func:`screen_of` is the same in short, with a line of cells for each number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dataaudit.base.errors import CatchErrors
from dataaudit.base.render.blocks import (
    Block,
    Cell,
    Curves,
    Figure,
    KeyFigure,
    Page,
    Point,
    Points,
    Prose,
    Section,
    Tone,
    table_of,
)
from dataaudit.base.render.line import PERCENT, Line, Name, say, spell
from dataaudit.base.text import clean, plural
from dataaudit.live.incidents import FOLDER
from dataaudit.live.tiles import Buckets
from dataaudit.runlog.reader import RunLog
from dataaudit.training.pages.data_panel import MOST_SOURCES, data_panel, data_points
from dataaudit.training.pages.grids import Grid
from dataaudit.training.pages.heat_maps import HEADS, LAYERS, pictures
from dataaudit.training.pages.incident_blocks import coverage_section, happened, incident_section, incidents_of
from dataaudit.training.pages.panels import (
    EFFICIENCY,
    ICU,
    QUALITY,
    buckets_of,
    line_table,
    number,
    panel,
    time_split,
    tones_of,
)
from dataaudit.training.pages.run_blocks import steps_line
from dataaudit.training.pages.run_view import DEAD_SECONDS, LiveIncident, RunView

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_INCIDENTS = 20
_EVENTS = 200
_BARS = "▁▂▃▄▅▆▇█"
_CELLS = 32
"""Cells of a line."""
_FIRST_INCIDENTS = 5
"""Open incidents that stand first."""
_COLOURS: Final = {"bad": "bold red", "warn": "yellow", "good": "green", "quiet": "dim", "": "default"}
_PANELS: Final = (("step ICU", ICU), ("efficiency", EFFICIENCY), ("quality", QUALITY))
_BY_SEVERITY: tuple[Tone, ...] = ("bad", "bad", "warn")
_STATES = {
    "firing": Cell(text="firing", tone="bad"),
    "ok": Cell(text="ok", tone="good"),
    "not_evaluated": Cell(text="not evaluated", tone="quiet"),
}
"""How a rule stands, in the order of the table."""


def live_page(view: RunView, now: float | None = None) -> Page:
    """Return the page of a run as it is now."""
    now = time.time() if now is None else now
    incidents = view.incidents()
    headline, tone, subline = health(view, incidents, now)
    events = list(view.tiles.events)
    vital = incidents_of(events)
    heats = {key: heat.read() for key, heat in sorted(view.tiles.heats.items())}
    grids = {key: Grid(*key, places, steps, values) for key, (places, steps, values) in heats.items()}
    alerts, *panels = live_sections(view, incidents)
    sections = (
        alerts,
        live_loss(view, incidents),
        *panels,
        incident_section(vital, grids),
        coverage_section(events),
        pictures("heads", "Attention heads", HEADS, grids, vital),
        pictures("layers", "Layers", LAYERS, grids, vital),
        happened(events[-_EVENTS:]),
    )
    return Page(
        title=Name(view.log.folder.name),
        version="",
        meta=f"A training run, followed. {started_line(view.log)}",
        headline=headline,
        tone=tone,
        subline=subline,
        findings=tuple(first_points(view)),
        others=(),
        findings_left_out=max(0, sum(item.open for item in incidents) - _FIRST_INCIDENTS),
        figures=key_figures(view, now),
        sections=tuple(section for section in sections if section is not None),
    )


def started_line(log: RunLog) -> str:
    """Return when a run was started, by which version, and on which manifest."""
    opened = f"Manifest {log.run.manifest}" if log.run.manifest else "No manifest was opened"
    began = log.run.started.replace("T", " ").replace("Z", " UTC")
    return f"Started {began}, dataaudit {clean(log.run.program, 40)}. {opened}"


def health(view: RunView, incidents: Sequence[LiveIncident], now: float) -> tuple[str, Tone, Line]:
    """Return how the run is in a few words, how grave that is, and what else to know."""
    opened = [item for item in incidents if item.open]
    silent = view.silent_seconds(now)
    states = view.states()
    fed = sum(state.state != "not_evaluated" for state in states)
    firing = sum(state.state == "firing" for state in states)
    rules = f"{fed} of {len(states)} rules are fed, {firing} fire" if states else "No rule is judged yet"
    if states and view.watch is not None and view.watch.judged_step < view.tiles.step:
        rules += f"; judged up to step {view.watch.judged_step:,}"
    heard = "" if silent is None else f" Newest row {ago(silent)} ago."
    known = f"{len(incidents) - len(opened)} acknowledged. " if len(incidents) > len(opened) else ""
    more = " The log is still being read." if view.more else ""
    subline = f"{known}{rules}.{'' if view.ended else heard}{more}"
    if opened:
        rule = clean(opened[0].rule, 60).replace("_", " ")
        words = f"{plural(len(opened), 'incident')} open, the gravest SEV{opened[0].severity}: {rule}"
        return words, _tone(opened[0]), subline
    if silent is None:
        return "Waiting for the first step", "", "The run log holds no step yet."
    calm: tuple[str, Tone, Line] = f"Healthy at step {view.tiles.step:,}", "good", f"No open incident. {subline}"
    if view.tiles.damaged:
        calm = "The log is damaged", "bad", f"What follows in {clean(view.tiles.damaged[0])} is not shown."
    elif view.more:
        calm = f"Reading the log, up to step {view.tiles.step:,} so far", "", subline
    elif view.ended:
        calm = f"Ended at step {view.tiles.step:,}", "good", f"No open incident. {subline}"
    elif silent >= view.patience:
        why = "Its process is dead or hangs, or its log cannot be written."
        calm = f"Nothing was heard for {ago(silent)}", "bad" if silent >= DEAD_SECONDS else "warn", f"{why} {subline}"
    elif firing:
        calm = f"Training at step {view.tiles.step:,}; what is acknowledged still fires", "warn", subline
    return calm


def key_figures(view: RunView, now: float) -> tuple[KeyFigure, ...]:
    """Return the figures that stand first."""
    tiles = view.tiles
    silent = view.silent_seconds(now)
    loss, took = view.buckets(view.ema), tiles.line("step_time")
    tokens = sum(hour.targets for hour in tiles.hours.by_time.values())
    ranks = tiles.present
    behind = len(ranks) and min(step for step, _ in ranks.values())
    lag = f"rank furthest behind: {behind:,}" if len(ranks) > 1 else plural(len(ranks), "rank")
    figures = [
        KeyFigure(label="step", value=f"{tiles.step:,}", detail=lag),
        KeyFigure(label="train_loss_ema", value="-" if loss is None else number(loss.mean[-1]), detail="nats/token"),
        KeyFigure(label="tokens_seen", value=_large(tokens), detail="tokens that a loss was computed of"),
        KeyFigure(
            label="step_time", value="-" if took is None else f"{number(took.newest[1])} s", detail="newest step"
        ),
    ]
    if silent is not None and not view.ended:
        tone: Tone = "bad" if silent >= DEAD_SECONDS else "warn" if silent >= view.patience else ""
        figures.append(
            KeyFigure(label="metrics_ingest_lag", value=ago(silent), detail="since the newest row", tone=tone)
        )
    return tuple(figures)


def live_sections(view: RunView, incidents: Sequence[LiveIncident]) -> tuple[Section | None, ...]:
    """Return alerts, the four panels and the time of steps: alerts, ICU, efficiency, time, data, quality."""
    return (
        alert_section(view, incidents),
        panel(view, "icu", "Step ICU", ICU),
        panel(view, "efficiency", "Efficiency", EFFICIENCY),
        time_split(view),
        data_panel(view),
        panel(view, "quality", "Checkpoint quality", QUALITY),
    )


def alert_section(view: RunView, incidents: Sequence[LiveIncident]) -> Section | None:
    """Return incidents of the rules with what to do, and how each rule stands; None where neither is known."""
    states = view.states()
    acted = [event for event in view.tiles.events if event["kind"] == "action"]
    if not incidents and not states and not acted:
        return None
    blocks: list[Block] = []
    if incidents:
        blocks.append(Points(items=tuple(_point(item, view) for item in incidents[:MOST_INCIDENTS])))
    if len(incidents) > MOST_INCIDENTS:
        left = plural(len(incidents) - MOST_INCIDENTS, "more incident")
        blocks.append(Prose(text=f"And {left}, in the folder alerts of the run log.", tone="quiet"))
    if any(item.open for item in incidents) and view.watch is None:
        text = "`dataaudit alerts ack RUNLOG INCIDENT --who NAME --note TEXT` says that somebody takes care of it."
        blocks.append(Prose(text=text))
    if acted:
        blocks.append(
            table_of(
                "What the run did by itself, or refused",
                acted[::-1],
                ("step", "number", lambda event: event["step"]),
                ("action", "name", lambda event: Name(str(event["detail"].get("action", "")), 60)),
                ("result", "word", lambda event: Name(str(event["detail"].get("result", "")), 20)),
                ("how", "text", lambda event: Name(str(event["detail"].get("words", "")), 200)),
                ("why", "text", lambda event: Name(str(event["detail"].get("why", "")), 200)),
                noun="action",
            )
        )
    if states:
        order = sorted(states, key=lambda state: (list(_STATES).index(state.state), state.severity))
        blocks.append(
            table_of(
                "Rules",
                order,
                ("rule", "name", lambda state: Name(state.rule)),
                ("SEV", "number", lambda state: state.severity),
                ("state", "word", lambda state: _STATES[state.state]),
                (
                    "fed last at step",
                    "number",
                    lambda state: "-" if state.last_step is None else f"{state.last_step:,}",
                ),
                ("why", "text", lambda state: Name(state.why, 200)),
                noun="rule",
                folded=True,
            )
        )
    opened = [item for item in incidents if item.open]
    lead = (
        f"{plural(len(opened), 'incident')} that nobody acknowledged, of {len(incidents)}."
        if opened
        else "No open incident."
    )
    tone: Tone = _tone(opened[0]) if opened else "good"
    return Section(id="alerts", title="Alerts", lead=lead, tone=tone, blocks=tuple(blocks))


def _point(item: LiveIncident, view: RunView) -> Point:
    steps = steps_line(item.first_step, item.last_step).lower()
    ranks = f" on {plural(len(item.ranks), 'rank')}" if item.ranks and len(view.tiles.ranks) > 1 else ""
    ack: Line = say(" Acknowledged by {}: {}", Name(item.who, 60), Name(item.note, 200)) if item.who else ""
    text = say("{}, {}{}: {}.{}", Name(item.rule.replace("_", " "), 60), steps, ranks, Name(item.seen, 200), ack)
    state = "firing" if item.firing else "over" if view.watch is not None else "seen"
    folder = view.tiles.folder / FOLDER / item.id
    return Point(
        head=f"SEV{item.severity}, {state}",
        text=text,
        tone=_tone(item) if item.open else "warn" if item.firing else "good",
        section="alerts",
        action=item.action if item.open else "",
        runbook=Cell(text=Name(str(folder / "runbook.md"), 400)) if item.open else None,
        incident=item.id if item.open else "",
    )


def _tone(item: LiveIncident) -> Tone:
    return _BY_SEVERITY[min(item.severity, 2)]


def live_loss(view: RunView, incidents: Sequence[LiveIncident]) -> Section | None:
    """Return the loss with the band of the detector; shaded: episodes of the loss, and incidents of rules."""
    found = view.buckets(view.tiles.line("loss"))
    if found is None:
        return None
    low, high = view.buckets(view.low), view.buckets(view.high)
    band: tuple[tuple[float, float, float], ...] = ()
    if low is not None and high is not None:
        band = tuple(zip(low.step.tolist(), low.mean.tolist(), high.mean.tolist(), strict=True))
    own = view.log.folder.name if view.beside else "loss"
    series = [(Name(own), tuple(found.step.tolist()), tuple(found.mean.tolist()))]
    if found.width > 1 and not view.beside:
        series.append((Name("largest"), series[0][1], tuple(found.high.tolist())))
    for name, tiles in view.beside.items():
        other = view.buckets(tiles.line("loss"))
        if other is not None:
            series.append((Name(name), tuple(other.step.tolist()), tuple(other.mean.tolist())))
    episodes = view.episodes()
    spans = [(first, last, f"above the band, steps {first:,} to {last:,}") for first, last in episodes]
    spans += [
        (item.first_step, item.last_step, f"SEV{item.severity} {clean(item.rule, 60)}")
        for item in incidents
        if item.open
    ]
    spans = [span for span in spans if span[1] >= view.first][-50:]
    note = f"A point is the mean of {found.width:,} steps. " if found.width > 1 else ""
    begins = f", from step {int(low.step[0]):,} on" if low is not None and low.step[0] > found.step[0] + 100 else ""
    note += f"Grey: the band of the detector{begins}. Shaded: above the band, or an open incident."
    figure = Figure(
        id="live-loss",
        title="Loss over steps",
        chart=Curves(series=tuple(series), unit="nats/token", band=band, spans=tuple(spans)),
        table=line_table(found, "nats/token"),
        says=f"Loss from {number(found.mean[0])} to {number(found.mean[-1])}",
        note=note,
    )
    lead = f"{plural(len(episodes), 'episode')} above the band." if episodes else "The loss stayed inside its band."
    if episodes:
        lead += f" The newest: steps {episodes[-1][0]:,} to {episodes[-1][1]:,}."
    return Section(id="loss", title="Loss", lead=lead, tone="warn" if episodes else "good", blocks=(figure,))


def first_points(view: RunView) -> list[Point]:
    """Return what stands first: open incidents of rules, five at most, and data that are off."""
    opened = [_point(item, view) for item in view.incidents() if item.open][:_FIRST_INCIDENTS]
    return opened if view.manifest is None else [*opened, *data_points(view)]


def ago(seconds: float) -> str:
    """Return a time span in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    sizes = ((86_400, "days"), (3_600, "h"), (60, "min"))
    size, unit = next((size, unit) for size, unit in sizes if seconds >= 2 * size)
    return f"{seconds / size:.3g} {unit}"


def _large(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}"


def follow(view: RunView, interval: float, ended: threading.Event, console: Any = None) -> None:
    """Show a view until the run is closed on all ranks, or somebody ends it; it is read every ``interval`` seconds."""
    from rich.console import Console
    from rich.live import Live

    console = Console() if console is None else console
    with Live(screen_of(view), console=console, screen=True, auto_refresh=False) as live:
        while not ended.is_set():
            with CatchErrors() as call:
                view.read(interval)
            origin = call.origin if call.error is not None else view.watch.failed if view.watch is not None else ""
            failed = f"A look failed ({origin}), and is tried again." if origin else ""
            live.update(screen_of(view, failed=failed), refresh=True)
            if view.ended and not view.more:
                return
            ended.wait(0.1 if view.more else interval)


def screen_of(view: RunView, *, now: float | None = None, failed: str = "") -> RenderableType:
    """Return a view as something that rich draws."""
    from rich.console import Group
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    now = time.time() if now is None else now
    incidents = view.incidents()
    headline, tone, subline = health(view, incidents, now)
    head = Text.assemble((f"{clean(view.log.folder.name)}: {headline}", _COLOURS[tone]))
    parts: list[RenderableType] = [head, Text(spell(subline, PERCENT), style="dim")]
    if failed:
        parts.append(Text(failed, style="yellow"))
    figures = (f"{figure.label} {spell(figure.value, PERCENT)}" for figure in key_figures(view, now))
    parts += [Text("   ".join(figures)), Rule(style="dim")]
    for item in [own for own in incidents if own.open][:_FIRST_INCIDENTS]:
        words = f"SEV{item.severity}  {clean(item.id)}: {clean(item.seen, 200)}"
        parts.append(Text(words, style=_COLOURS["bad" if item.severity < 2 else "warn"]))
        parts.append(Text(f"      {clean(item.action, 200)}", style="dim"))
    table = Table(box=None, pad_edge=False, expand=False, header_style="dim")
    for title in ("panel", "metric", "newest", "unit", "over steps"):
        table.add_column(title, justify="right" if title == "newest" else "left", no_wrap=True)
    tones = tones_of(view)
    for name, shown in _PANELS:
        rows = [(item, found) for item in shown if (found := buckets_of(view, item)) is not None]
        for at, (own, found) in enumerate(rows):
            metric = Text(own.name, style=_COLOURS[tones.get(own.name, "")])
            table.add_row("" if at else name, metric, number(found.mean[-1]), own.unit, sparkline(found))
    for at, (source, newest, note) in enumerate(_shares(view)):
        table.add_row("" if at else "data", Text(source), newest, "of tokens", note)
    parts += [table, Text("Ctrl-C ends it. `--serve` shows it in a browser, with charts.", style="dim")]
    return Group(*parts)


def _shares(view: RunView) -> Iterator[tuple[str, str, str]]:
    """Yield sources, their shares in the newest hour that has any, and what the manifest lets expect."""
    hours = [hour for _, hour in sorted(view.tiles.hours.by_time.items()) if hour.sources.sum()]
    if not hours:
        return
    wanted, of = view.expected_shares
    counts = hours[-1].sources
    for at in np.argsort(-counts, kind="stable").tolist()[:MOST_SOURCES]:
        name = view.tiles.hours.sources[at]
        expected = f"{wanted[name]:.1%} {of}" if name in wanted else ""
        yield clean(name, 40), f"{counts[at] / counts.sum():.1%}", expected


def sparkline(found: Buckets) -> str:
    """Return the means of a line in :data:`_CELLS` cells, from its least to its largest."""
    cut = np.array_split(found.mean, min(_CELLS, len(found.mean)))
    values = np.array([part.mean() for part in cut if len(part)])
    low, high = float(values.min()), float(values.max())
    if high <= low:
        return _BARS[0] * len(values)
    return "".join(_BARS[int((value - low) / (high - low) * (len(_BARS) - 1) + 0.5)] for value in values)
