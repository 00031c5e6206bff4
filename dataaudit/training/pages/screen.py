"""The terminal's view of a run while it trains: how it is, its incidents, the panels' numbers with a line of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dataaudit.base.errors import CatchErrors
from dataaudit.base.render.line import PERCENT, spell
from dataaudit.base.text import clean
from dataaudit.live.tiles import Buckets
from dataaudit.training.pages.data_panel import MOST_SOURCES
from dataaudit.training.pages.live_page import health, key_figures
from dataaudit.training.pages.panels import EFFICIENCY, ICU, QUALITY, buckets_of, number, tones_of
from dataaudit.training.pages.run_view import RunView

if TYPE_CHECKING:
    from rich.console import RenderableType

_BARS = "▁▂▃▄▅▆▇█"
_CELLS = 32
"""Cells of a line."""
_MOST_INCIDENTS = 5
_COLOURS: Final = {"bad": "bold red", "warn": "yellow", "good": "green", "quiet": "dim", "": "default"}
_PANELS: Final = (("step ICU", ICU), ("efficiency", EFFICIENCY), ("quality", QUALITY))


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
    for item in [own for own in incidents if own.open][:_MOST_INCIDENTS]:
        words = f"SEV{item.severity}  {clean(item.id)}: {clean(item.seen, 200)}"
        parts.append(Text(words, style=_COLOURS["bad" if item.severity < 2 else "warn"]))
        parts.append(Text(f"      {clean(item.action, 200)}", style="dim"))
    table = Table(box=None, pad_edge=False, expand=False, header_style="dim")
    for title in ("panel", "metric", "newest", "unit", "over steps"):
        table.add_column(title, justify="right" if title == "newest" else "left", no_wrap=True)
    tones = tones_of(view)
    for panel, shown in _PANELS:
        rows = [(item, found) for item in shown if (found := buckets_of(view, item)) is not None]
        for at, (own, found) in enumerate(rows):
            metric = Text(own.name, style=_COLOURS[tones.get(own.name, "")])
            table.add_row("" if at else panel, metric, number(found.mean[-1]), own.unit, sparkline(found))
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
