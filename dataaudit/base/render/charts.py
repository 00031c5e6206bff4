"""Charts: from what a page says to what Bokeh draws in the browser. The only file that knows Bokeh.

Colours are those of the light theme; the page replaces them by the dark ones (assets/charts.js). Labels are plain text:
a name of the data that looks like a formula is not typeset, so nothing is fetched for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, cast

from bokeh.core.properties import value as constant
from bokeh.embed import json_item
from bokeh.models import (
    BasicTickFormatter,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    LinearColorMapper,
    NumeralTickFormatter,
    PlainText,
    Range1d,
)
from bokeh.models.annotations import ColorBar
from bokeh.plotting import figure

from dataaudit.base.render.blocks import Bars, Chart, Curves, Figure, Heat, Matrix, Scatter, Steps
from dataaudit.base.render.line import PERCENT, Line, percent, shortened, spell

BLUE, ORANGE, GREY = "#2f6db3", "#c4570c", "#8b95a1"
INK, MUTED, LINE, PANEL = "#1b1f24", "#59636e", "#e3e7eb", "#ffffff"
TEAL = "#1b7f79"
_SERIES = (BLUE, ORANGE, TEAL, GREY, INK, MUTED)
_FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
_TEXT: dict[str, Any] = {"text_font": constant(_FONT), "text_font_size": "12px"}
_ROW, _FRAME = 26, 58
_BAND_REACH = 0.25
"""How far a band widens the axis on either side, times the range of the lines."""
LABEL_LIMIT = 26
"""Cells of a name at an axis."""
_ID = re.compile(r"p\d+")


def chart_item(shown: Figure) -> dict[str, Any]:
    """Return what Bokeh needs to draw a figure: the same for the same figure, whatever was drawn before."""
    drawn = _DRAW[type(shown.chart)](shown.chart, shown.height)
    item: Any = json_item(drawn, cast("Any", shown.id))
    return cast("dict[str, Any]", _renumbered(item, shown.id, {}))


def _bars(chart: Bars, height: int) -> Any:
    bars = chart.bars
    number, labels, values = len(bars), [label(bar.label) for bar in bars], [bar.value for bar in bars]
    shown = [spell(bar.shown, PERCENT) for bar in bars]
    spans = [(index, bar.span) for index, bar in enumerate(bars) if bar.span is not None]
    marks = [(index, bar.mark) for index, bar in enumerate(bars) if bar.mark is not None]
    least = min(0.0, *values, *(low for _, (low, _) in spans))
    most = max(0.0, *values, *(mark for _, mark in marks), *(high for _, (_, high) in spans))
    room = (most - least or 1.0) * 0.16
    across = least - (room if least < 0 else 0), most + room
    plot = _plot(height or number * _ROW + _FRAME, across, (number - 0.4, -0.6))
    colors = [ORANGE if bar.loud else BLUE for bar in bars]
    words = [f"{name}: {value}" for name, value in zip(labels, shown, strict=True)]
    source = ColumnDataSource({"y": list(range(number)), "right": values, "words": words, "fill_color": colors})
    drawn = plot.hbar(y="y", right="right", left=0, height=0.6, source=source, fill_color="fill_color", line_color=None)
    ends = [percent(bar.value) if chart.percent else value for bar, value in zip(bars, shown, strict=True)]
    tops = [max(bar.value, bar.span[1]) if bar.span else bar.value for bar in bars]
    plot.text(
        x=[top if value >= 0 else value for top, value in zip(tops, values, strict=True)],
        y=list(range(number)),
        text=[end if len(end) <= 14 else "" for end in ends],
        **_TEXT,
        text_color=MUTED,
        text_baseline="middle",
        x_offset=[6 if value >= 0 else -6 for value in values],
        text_align="left" if least >= 0 else ["left" if value >= 0 else "right" for value in values],
    )
    _segments(plot, [(mark, mark, index - 0.42, index + 0.42) for index, mark in marks], line_width=2.5)
    _segments(plot, [(low, high, index, index) for index, (low, high) in spans], line_width=1.5)
    _name_ticks(plot.yaxis[0], labels)
    _hover(plot, [drawn], mode="hline")
    plot.ygrid.visible = False
    plot.xaxis.axis_label = chart.unit
    if chart.percent:
        plot.xaxis.formatter = NumeralTickFormatter(format="0.[00] %")
    return plot


def _segments(plot: Any, lines: Sequence[tuple[float, float, float, float]], **form: Any) -> None:
    """Draw lines from left to right and from bottom to top."""
    if lines:
        ends = zip(("x0", "x1", "y0", "y1"), map(list, zip(*lines, strict=True)), strict=True)
        plot.segment(**dict(ends), **{"line_color": INK, **form})


def _steps(chart: Steps, height: int) -> Any:
    top = max((max(values) for _, values in chart.series), default=1.0) or 1.0
    plot = _plot(height or 260, (chart.edges[0], chart.edges[-1]), (0, top * 1.08), x_axis_type="log")
    series = [(label(name), values) for name, values in chart.series]
    for number, ((name, values), color) in enumerate(zip(series, _SERIES, strict=False)):
        plot.step(
            x=list(chart.edges),
            y=[*values, values[-1]],
            mode="after",
            line_color=color,
            line_width=2,
            line_dash="dashed" if number in chart.dashed else "solid",
            legend_label=name,
        )
    bins = []
    for at, (left, right) in enumerate(pairwise(chart.edges)):
        shares = ", ".join(f"{name} {percent(values[at])}" for name, values in series)
        bins.append((left, right, top * 1.08, f"{_edge(left)} to {_edge(right)}: {shares}"))
    sides = {"left": "left", "right": "right", "bottom": 0, "top": "top"}
    hovered = {"hover_fill_alpha": 0.12, "hover_fill_color": GREY, "hover_line_alpha": 0}
    source = _source("left right top words", bins)
    _hover(plot, [plot.quad(**sides, source=source, fill_alpha=0, line_alpha=0, **hovered)])
    ticks = [10.0**power for power in range(-9, 9) if chart.edges[0] <= 10.0**power <= chart.edges[-1]]
    plot.xaxis.ticker = FixedTicker(ticks=ticks or [chart.edges[0]], minor_ticks=[])
    plot.xaxis.major_label_overrides = {tick: _edge(tick) for tick in ticks}
    plot.xaxis.axis_label = chart.unit
    plot.yaxis.formatter = NumeralTickFormatter(format="0.[00] %")
    _legend(plot, location="top_right")
    return plot


def _legend(plot: Any, **more: Any) -> None:
    plot.legend[0].update(background_fill_alpha=0, border_line_alpha=0, **_font("label", MUTED), **more)


def _legend_above(plot: Any) -> None:
    """Put the legend over the plot, where it hides no line, in two columns, which a telephone has room for."""
    _legend(plot, orientation="horizontal", padding=0, margin=0, ncols=2)
    plot.add_layout(plot.legend[0], "above")


def _edge(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:.2g}"


def _matrix(chart: Matrix, height: int) -> Any:
    rows, columns = list(map(label, chart.rows)), list(map(label, chart.columns))
    plot = _grid(height or len(rows) * 34 + 110, rows, columns, x_axis_location="above")
    most = max((value[2] for value in chart.values), default=1.0) or 1.0
    shaded = []
    for y, x, value, shown, loud in chart.values:
        depth = 0.12 + 0.88 * math.sqrt(value / most)
        words, color = f"{rows[y]} of {columns[x]}: {shown}", ORANGE if loud else BLUE
        shaded.append((x, y, depth, words, f"{value:,.0f}", color, PANEL if depth > 0.6 else INK))
    source = _source("x y alpha words text fill_color text_color", shaded)
    cells = _cells(plot, source, 0.96, 0.92)
    form = {"text_align": "center", "text_baseline": "middle", "text_color": "text_color", **_TEXT}
    plot.text(x="x", y="y", text="text", source=source, **form)
    _name_ticks(plot.yaxis[0], rows)
    _name_ticks(plot.xaxis[0], columns)
    if len(columns) > 4:
        plot.xaxis.major_label_orientation = 0.6
    return _finished(plot, chart, cells)


def _grid(height: int, rows: Sequence[str], columns: Sequence[str], **more: Any) -> Any:
    """Return an empty plot with room for a cell of each row and column."""
    return _plot(height, (-0.5, len(columns) - 0.5), (len(rows) - 0.5, -0.5), **more)


def _finished(plot: Any, chart: Matrix | Heat, cells: Any) -> Any:
    plot.xaxis.axis_label, plot.yaxis.axis_label = chart.column_title, chart.row_title
    _hover(plot, [cells])
    plot.grid.visible = False
    return plot


def _cells(plot: Any, source: ColumnDataSource, width: float, height: float) -> Any:
    fill = {"fill_color": "fill_color", "fill_alpha": "alpha", "line_color": None}
    return plot.rect(x="x", y="y", width=width, height=height, source=source, **fill)


def _points(chart: Scatter, height: int) -> Any:
    values = [abs(item[1]) for item in (*chart.loud, *chart.quiet)]
    reach = max([*values, *(abs(line[2] + line[3]) for line in chart.lines), 1.0]) * 1.12
    last = max([*(line[1] for line in chart.lines), 0.0])
    room = max(1.0, last * 0.02)
    plot = _plot(height or 260, (-room, last + room), (-reach, reach))
    for left, right, middle, limit in chart.lines:
        for at in (middle - limit, middle + limit):
            _segments(plot, [(left - 0.5, right + 0.5, at, at)], line_color=MUTED, line_dash="dashed", line_width=1)
    hovered = []
    if chart.boxes:
        most = max(number for *_, number in chart.boxes)
        shades = [round(0.15 + 0.85 * math.log1p(number) / math.log1p(most), 3) for *_, number in chart.boxes]
        boxes = [(*box, shade, f"{number:,} shards") for (*box, number), shade in zip(chart.boxes, shades, strict=True)]
        source = _source("left right bottom top alpha words", boxes)
        sides = {side: side for side in ("left", "right", "bottom", "top")}
        hovered.append(plot.quad(**sides, source=source, fill_color=BLUE, fill_alpha="alpha", line_color=None))
    for points, color, size in ((chart.quiet, BLUE, 7), (chart.loud, ORANGE, 10)):
        source = _source("x y words", [(x, y, spell(words, PERCENT)) for x, y, words in points])
        form = {"marker": "circle" if color == BLUE else "diamond", "size": size}
        fill = {"fill_color": color, "line_color": PANEL, "fill_alpha": 0.85}
        hovered.append(plot.scatter(x="x", y="y", source=source, **form, **fill))
    _hover(plot, hovered)
    plot.xaxis.axis_label, plot.yaxis.axis_label = chart.order, chart.unit
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    return plot


def _curves(chart: Curves, height: int) -> Any:
    if chart.stacked:
        return _stacked(chart, height)
    every = [value for _, _, values in chart.series for value in values] + [value for value, _ in chart.limits]
    low, high = min(every, default=0.0), max(every, default=1.0)
    reach = (high - low or 1.0) * _BAND_REACH  # a wide band is cut, so that the line stays readable
    ends = [min(max(value, low - reach), high + reach) for _, *ends in chart.band for value in ends]
    low, high = min([low, *ends]), max([high, *ends])
    room = (high - low or abs(high) or 1.0) * 0.06
    steps = [step for _, own, _ in chart.series for step in own]
    side = 0.3 if chart.ticks else 0.0
    across = min(steps, default=0) - side, max(steps, default=1) + side
    plot = _plot(height or 280, across, (low - room, high + room * (3 if chart.limits else 1)))
    if chart.spans:
        spans = [(first - 0.5, last + 0.5, spell(words, PERCENT)) for first, last, words in chart.spans]
        sides = {"left": "left", "right": "right", "bottom": low - room, "top": high + room}
        form = {"fill_color": ORANGE, "fill_alpha": 0.25, "line_color": ORANGE}
        _hover(plot, [plot.quad(**sides, source=_source("left right words", spans), **form)])
    if chart.band:
        places, lowest, highest = map(list, zip(*chart.band, strict=True))
        plot.varea(x=places, y1=lowest, y2=highest, fill_color=GREY, fill_alpha=0.25)
    for at, ((name, own, values), color) in enumerate(zip(chart.series, _SERIES, strict=False)):
        named = {"legend_label": label(name)} if len(chart.series) > 1 else {}
        form = {"line_color": color, "line_width": 1.5, "level": "glyph" if at else "overlay"}  # the first lies on top
        plot.line(x=list(own), y=list(values), **form, **named)
        if chart.ticks:
            words = [f"{label(tick)}: {value:.6g}" for (_, tick), value in zip(chart.ticks, values, strict=False)]
            source = ColumnDataSource({"x": list(own), "y": list(values), "words": words})
            form = {"size": 8, "fill_color": color, "line_color": PANEL}
            _hover(plot, [plot.scatter(x="x", y="y", source=source, **form)])
    for value, name in chart.limits:
        across_all = plot.x_range.start, plot.x_range.end, value, value
        _segments(plot, [across_all], line_color=MUTED, line_dash="dashed", line_width=1.5)
        form = {"text_color": MUTED, "text_baseline": "bottom", "text_align": "right", **_TEXT}
        plot.text(x=[plot.x_range.end], y=[value], text=[label(name)], **form)
    if len(chart.series) > 1:
        _legend_above(plot)
    return _labelled(plot, chart)


def _labelled(plot: Any, chart: Curves) -> Any:
    plot.xaxis.axis_label, plot.yaxis.axis_label = chart.order, chart.unit
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.xaxis.ticker.desired_num_ticks = 4
    if chart.ticks:
        plot.xaxis.ticker = FixedTicker(ticks=[at for at, _ in chart.ticks], minor_ticks=[])
        plot.xaxis.major_label_overrides = {at: PlainText(text=label(name)) for at, name in chart.ticks}
    if chart.percent:
        plot.yaxis.formatter = NumeralTickFormatter(format="0.[00] %")
    elif chart.ticks:
        plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    return plot


def _stacked(chart: Curves, height: int) -> Any:
    steps = list(chart.series[0][1]) if chart.series else []
    tops = [0.0] * len(steps)
    whole = [sum(values) for values in zip(*(values for *_, values in chart.series), strict=True)]
    across = min(steps, default=0), max(steps, default=1)
    plot = _plot(height or 240, across, (0, (max(whole, default=1.0) or 1.0) * 1.06))
    for (name, _, values), color in zip(chart.series, _SERIES, strict=False):
        bottoms, tops = tops, [before + value for before, value in zip(tops, values, strict=True)]
        form = {"fill_color": color, "fill_alpha": 0.75, "legend_label": label(name)}
        plot.varea(x=steps, y1=bottoms, y2=tops, **form)
    if chart.series:
        _legend_above(plot)
    return _labelled(plot, chart)


def _heat(chart: Heat, height: int) -> Any:
    rows, columns = list(map(label, chart.rows)), list(map(label, chart.columns))
    plot = _grid(height or min(900, len(rows) * 16 + 90), rows, columns)
    known = [value for row in chart.values for value in row if value is not None]
    least, most = min(known, default=0.0), max(known, default=1.0)
    shaded = []
    for y, row in enumerate(chart.values):
        for x, value in enumerate(row):
            if value is not None:
                alpha = round(0.06 + 0.94 * (value - least) / (most - least or 1.0), 3)
                words = f"{rows[y]}, {columns[x]}: {value:.4g}"
                shaded.append((x, y, alpha, words, ORANGE if y in chart.loud else BLUE))
    cells = _cells(plot, _source("x y alpha words fill_color", shaded), 1, 0.94)
    if chart.marks:
        marks = _source("x y words", [(x, y, label(words)) for y, x, words in chart.marks])
        form = {"marker": "inverted_triangle", "size": 11, "fill_color": ORANGE, "line_color": INK}
        _hover(plot, [plot.scatter(x="x", y="y", source=marks, **form)])
    if known:
        shades = [f"{BLUE}{round(255 * (0.06 + 0.94 * at / 15)):02x}" for at in range(16)]
        mapper = LinearColorMapper(palette=shades, low=least, high=most if most > least else least + 1.0)
        bar = ColorBar(
            color_mapper=mapper,
            title=label(chart.scale),
            width=12,
            padding=4,
            title_text_font_style="normal",
            **_font("title", MUTED),
            **_font("major_label", INK),
            background_fill_alpha=0,
            formatter=BasicTickFormatter(precision=3),
        )
        plot.add_layout(bar, "right")
    _name_ticks(plot.yaxis[0], rows, range(0, len(rows), -(-len(rows) // 48)))
    every = range(0, len(columns), -(-len(columns) // 12))
    _name_ticks(plot.xaxis[0], columns, every if chart.ticks is None else chart.ticks)
    return _finished(plot, chart, cells)


_DRAW: dict[type[Chart], Any] = {
    Bars: _bars,
    Steps: _steps,
    Matrix: _matrix,
    Scatter: _points,
    Curves: _curves,
    Heat: _heat,
}


def _source(names: str, rows: Sequence[tuple[Any, ...]]) -> ColumnDataSource:
    """Return rows as columns of some names."""
    return ColumnDataSource({name: [row[at] for row in rows] for at, name in enumerate(names.split())})


def _plot(height: int, across: tuple[float, float], up: tuple[float, float], **more: Any) -> Any:
    """Return an empty plot: no frame, no toolbar, faint lines."""
    plot = figure(
        height=height,
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        min_border=4,
        output_backend="canvas",
        x_range=Range1d(start=across[0], end=across[1]),
        y_range=Range1d(start=up[0], end=up[1]),
        **more,
    )
    plot.toolbar.logo = None
    plot.grid.grid_line_color = LINE
    for axis in plot.axis:
        axis.update(
            axis_line_color=None,
            major_tick_line_color=None,
            minor_tick_line_color=None,
            axis_label_text_font_style="normal",
            **_font("axis_label", MUTED),
            **_font("major_label", INK),
        )
    return plot


def _font(part: str, color: str) -> dict[str, Any]:
    """Return font, size and colour of a part of a plot."""
    return {f"{part}_text_font": _FONT, f"{part}_text_font_size": "12px", f"{part}_text_color": color}


def label(line: Line) -> str:
    """Return a name short enough to stand at an axis; its end tells more than its middle."""
    return shortened(spell(line, PERCENT)[:200], LABEL_LIMIT)


def _name_ticks(axis: Any, labels: Sequence[str], shown: Sequence[int] | None = None) -> None:
    named = range(len(labels)) if shown is None else shown
    axis.ticker = FixedTicker(ticks=list(named), minor_ticks=[])
    axis.major_label_overrides = {index: PlainText(text=labels[index]) for index in named}


def _hover(plot: Any, renderers: list[Any], *, mode: Literal["mouse", "hline"] = "mouse") -> None:
    plot.add_tools(HoverTool(renderers=renderers, tooltips=[("", "@words")], mode=mode, point_policy="follow_mouse"))


def _renumbered(value: Any, prefix: str, known: dict[str, str]) -> Any:
    """Return the item with ids of its own: Bokeh counts them over the whole process."""
    if isinstance(value, list | tuple):
        return [_renumbered(item, prefix, known) for item in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, item in value.items():
        if key in {"id", "root_id"} and isinstance(item, str) and _ID.fullmatch(item):
            found[key] = known.setdefault(item, f"{prefix}-{len(known)}")
        else:
            found[key] = _renumbered(item, prefix, known)
    return found
