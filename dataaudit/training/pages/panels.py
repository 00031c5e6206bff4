"""The four panels of a run: step ICU, efficiency, data, quality of checkpoints; numbers first, then a chart of each.

What the run log lacks is named with what would feed it, and never counts as healthy. All panels are made of tiles, so
they cost the same for a run of any length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dataaudit.base.render.blocks import Block, Cell, Curves, Figure, Prose, Section, Tone, table_of, worst
from dataaudit.base.render.line import Line, Name, say
from dataaudit.base.text import plural
from dataaudit.live.tiles import Buckets, Tiles
from dataaudit.training.pages.run_view import RunView

_HEIGHT = 170
_ODD = re.compile(r"[^A-Za-z0-9_]")
_ROWS = 8
"""Rows of the table under a chart."""


@dataclass(frozen=True)
class Shown:
    """A number of a panel."""

    name: str
    unit: str
    fed_by: str = "vitals: `Vitals(model, optimizer, sinks=[monitor])`"
    stats: tuple[str, ...] = ("value",)
    """Its statistics in the run log: the first that is there."""
    over: str = ""
    """Of layers and heads: `max` or `min`."""
    metric: str = ""
    """Name in the run log, where that is another one."""


_OPTIMIZER = "`TrainingMonitor(..., optimizer=optimizer)`"
_LOOP = "`monitor.step(loss, NAME=value)`"
_NVML = "a GPU that NVML sees"
_ANY = ("value", "rate", "share", "mean")
ICU: Final = (
    Shown("train_loss_ema", "nats/token", "`monitor.step(loss)`"),
    Shown("grad_global_norm", "norm", "`monitor.clip_grad_norm_(...)`"),
    Shown("learning_rate", "rate", _OPTIMIZER),
    Shown("update_to_weight", "ratio", stats=("all", "matrices"), over="max"),
    Shown("max_attn_logit", "logit", stats=("sampled", "upper"), over="max"),
    Shown("attn_entropy", "nats", stats=("mean",), over="min"),
    Shown("loss_scale", "factor", "`TrainingMonitor(..., scaler=scaler)`"),
    Shown("overflow_rate", "ratio", _OPTIMIZER, stats=("count", "value"), metric="skipped_updates"),
    Shown("nan_inf_events", "count", stats=("count",)),
)
EFFICIENCY: Final = (
    Shown("tokens_per_sec", "tokens/s", "`monitor.batch(tags, ...)`"),
    Shown("step_time", "s", "`monitor.step(loss)`"),
    Shown("mfu", "ratio", "`TrainingMonitor(..., flops=ModelFlops(...))`"),
    Shown("dataloader_stall_frac", "ratio", "`for batch in monitor.loader(loader)`"),
    Shown("comm_time_frac", "ratio", "`TrainingMonitor(..., profile_every=500)`"),
    Shown("straggler_ratio", "ratio", "times of several ranks"),
    Shown("gpu_util", "ratio", _NVML),
    Shown("gpu_mem_used", "bytes", _NVML),
)
QUALITY: Final = (
    Shown("val_loss", "nats/token", "`monitor.validation(loss)`"),
    Shown("slice_val_loss", "nats/token", _LOOP, _ANY),
    Shown("microbench_score", "score", _LOOP, _ANY),
    Shown("rtp_toxicity_prob", "ratio", _LOOP, _ANY),
    Shown("memorization_rate", "ratio", _LOOP, _ANY),
    Shown("output_kl_to_prev", "nats", _LOOP, _ANY),
    Shown("fixed_probe_loss", "nats/token", _LOOP, _ANY),
    Shown("checkpoint_ok", "1: restored", _LOOP, _ANY),
    Shown("checkpoint_time", "s", _LOOP, _ANY),
)
PANELS: Final = frozenset(item.name for item in (*ICU, *EFFICIENCY, *QUALITY))
"""Numbers that a panel draws."""


def panel(view: RunView, name: str, title: str, shown: Sequence[Shown]) -> Section | None:
    """Return the section of a panel; None on a still page where nothing of it is in the log."""
    made = [(item, found) for item in shown if (found := buckets_of(view, item)) is not None]
    made += [
        (Shown(metric, "nats/token"), found)
        for metric, stat in sorted(view.tiles.lines)
        if name == "quality"
        and metric.startswith("val_loss.")
        and (found := view.buckets(view.tiles.line(metric, stat)))
    ]
    if not made and view.watch is None:
        return None
    have = {item.name for item, _ in made}
    unfed = [item for item in shown if item.name not in have]
    tones = tones_of(view)
    rows = [(item, found, tones.get(item.name, "")) for item, found in made]
    words = {item.name: _WORDS[tone] if item.name in tones else "no rule" for item, _, tone in rows}
    blocks: list[Block] = []
    if rows:
        blocks.append(
            table_of(
                "Newest values",
                rows,
                ("metric", "name", lambda row: Cell(text=Name(row[0].name), tone=row[2])),
                ("newest", "number", lambda row: Cell(text=number(row[1].mean[-1]), detail=row[0].unit)),
                (
                    "least to largest",
                    "number",
                    lambda row: f"{number(row[1].low.min())} to {number(row[1].high.max())}",
                ),
                ("rules", "word", lambda row: Cell(text=words[row[0].name], tone=row[2])),
                noun="metric",
            )
        )
    blocks += [_figure(view, name, item, found) for item, found, _ in rows if len(found.step) > 1]
    if unfed:
        blocks.append(
            table_of(
                plural(len(unfed), "number") + " that nothing feeds",
                unfed,
                ("metric", "name", lambda item: Name(item.name)),
                ("what feeds it", "text", lambda item: item.fed_by),
                folded=True,
                noun="metric",
            )
        )
    firing = [item.name for item, _, tone in rows if tone in {"bad", "warn"}]
    lead: Line = f"{len(rows)} of {len(shown)} numbers are there." if rows else "Nothing of it is in the log."
    if firing:
        lead = say("A rule fires on {}.", Name(", ".join(firing)))
    tone: Tone = worst(tone for *_, tone in rows) if rows else "quiet"
    return Section(id=name, title=title, lead=lead, tone=tone, blocks=tuple(blocks), side_by_side=True)


_WORDS: dict[Tone, str] = {"bad": "firing", "warn": "firing", "good": "ok", "": "not evaluated", "quiet": ""}


def tones_of(view: RunView) -> dict[str, Tone]:
    """Return how each metric stands by the rules that name it: red where severity 0 or 1 fires."""
    rules = {} if view.watch is None else {rule.name: rule for rule in view.watch.rules}
    found: dict[str, list[Tone]] = {}
    for state in view.states():
        metric = rules[state.rule].metric or rules[state.rule].where.get("metric", "")
        metric = {"loss": "train_loss_ema", "skipped_updates": "overflow_rate"}.get(str(metric), str(metric))
        tone: Tone = {"ok": "good", "firing": "bad" if state.severity < 2 else "warn"}.get(state.state, "")
        found.setdefault(metric, []).append(tone)
    return {metric: worst(tones) for metric, tones in found.items()}


def buckets_of(view: RunView, item: Shown, tiles: Tiles | None = None) -> Buckets | None:
    """Return the buckets of a number, of a further run where its tiles are given; None where there is none."""
    own = view.tiles if tiles is None else tiles
    if item.name == "train_loss_ema":
        return view.buckets(view.ema) if tiles is None else view.buckets(own.line("loss"))
    if item.name == "tokens_per_sec":
        return _rate(view, own)
    if item.name == "dataloader_stall_frac":
        return _ratio(view, own, "dataloader_wait", "step_time")
    for stat in item.stats:
        if (line := own.line(item.metric or item.name, stat)) is not None:
            return view.buckets(line)
        heat = own.heats.get((item.name, stat)) if item.over else None
        if heat is not None:
            _, steps, means = heat.read()
            inside = (steps >= view.first) & np.isfinite(means).any(axis=0)
            if not inside.any():
                continue
            low, high = np.nanmin(means[:, inside], axis=0), np.nanmax(means[:, inside], axis=0)
            steps = np.minimum(steps[inside], own.step)
            return Buckets(steps, low, high if item.over == "max" else low, high, heat.width)
    return None


def _rate(view: RunView, tiles: Tiles) -> Buckets | None:
    """Return tokens a second of all ranks: targets of a step over the time from bucket to bucket."""
    names = (("tokens", "of_rank"), ("tokens", "of_first"), ("time", "value"))
    tokens, first, time = (view.buckets(tiles.line(*name), 200) for name in names)
    if tokens is None or first is None or time is None or not 2 < len(time.step) == len(tokens.step) == len(first.step):
        return None
    reached = min((step for step, _ in tiles.present.values()), default=0) - tokens.width
    # a run may go on with other ranks, and the newest rows of some are not there yet
    ranks = np.where(tokens.step > reached, len(tiles.present), np.asarray(tokens.number) / np.asarray(first.number))
    seconds, steps = np.diff(time.mean), np.diff(time.step)
    known = (seconds > 0) & (tokens.mean[1:] > 0)
    if not known.any():
        return None
    rate = (tokens.mean * ranks)[1:][known] * steps[known] / seconds[known]
    return Buckets(time.step[1:][known], rate, rate, rate, time.width)


def _ratio(view: RunView, tiles: Tiles, part: str, whole: str) -> Buckets | None:
    """Return a ratio of two numbers, each the mean of a bucket of 64 steps or more."""
    above, below = (view.buckets(tiles.line(name), 200) for name in (part, whole))
    if above is None or below is None:
        return None
    wholes = np.interp(above.step, below.step, below.mean)
    value = np.divide(above.mean, wholes, out=np.zeros(len(above.step)), where=wholes > 0)
    return Buckets(above.step, value, value, value, above.width)


def _figure(view: RunView, panel_name: str, item: Shown, found: Buckets) -> Figure:
    series = [
        (Name(view.log.folder.name if view.beside else item.name), tuple(found.step.tolist()), _floats(found.mean))
    ]
    for name, tiles in view.beside.items():
        other = buckets_of(view, item, tiles)
        if other is not None:
            series.append((Name(name), tuple(other.step.tolist()), _floats(other.mean)))
    spread: tuple[tuple[float, float, float], ...] = ()
    if not view.beside and (found.low < found.high).any():
        spread = tuple(zip(found.step.tolist(), _floats(found.low), _floats(found.high), strict=True))
    note = ""
    if spread:
        note = "Grey: least to largest of " + (
            "layers and heads" if item.over and found.width else plural(found.width, "step")
        )
        note += "." if item.over else " or rank." if found.width == 1 else "."
    return Figure(
        id=f"{panel_name}-{_ODD.sub('-', item.name)}",
        title=Name(item.name),
        chart=Curves(series=tuple(series), unit=item.unit, band=spread),
        table=line_table(found, item.unit),
        says=f"from {number(found.mean[0])} to {number(found.mean[-1])} {item.unit}",
        note=note,
        height=_HEIGHT,
    )


def line_table(found: Buckets, unit: str) -> Any:
    """Return some buckets of a line as a folded table."""
    rows = np.unique(np.linspace(0, len(found.step) - 1, min(_ROWS, len(found.step))).astype(int)).tolist()
    return table_of(
        f"Some of the buckets, {unit}",
        rows,
        ("step", "number", lambda at: f"{found.step[at]:,.0f}"),
        ("least", "number", lambda at: number(float(found.low[at]))),
        ("mean", "number", lambda at: number(float(found.mean[at]))),
        ("largest", "number", lambda at: number(float(found.high[at]))),
        folded=True,
    )


def time_split(view: RunView) -> Section | None:
    """Return where the time of a step goes: waiting for batches, communication alone, and the rest."""
    whole = view.buckets(view.tiles.line("step_time"), 200)
    if whole is None or len(whole.step) < 2:
        return None
    rest, series = whole.mean.copy(), []
    parts: list[tuple[str, Any]] = [("waiting for batches", view.buckets(view.tiles.line("dataloader_wait"), 200))]
    exposed = view.buckets(view.tiles.line("comm_time_frac", "exposed"), 200)
    parts.append(("communication alone", exposed))
    for name, found in parts:
        if found is None:
            continue
        part = np.interp(whole.step, found.step, found.mean) * (whole.mean if found is exposed else 1.0)
        part = np.clip(part, 0.0, rest)
        rest = rest - part
        series.append((name, tuple(whole.step.tolist()), _floats(part)))
    series.append(("computing and the rest", tuple(whole.step.tolist()), _floats(rest)))
    newest = [(name, values[-1], values[-1] / whole.mean[-1] if whole.mean[-1] else 0.0) for name, _, values in series]
    lead = "Where the time of a step goes, newest bucket: " + ", ".join(
        f"{name} {share:.0%}" for name, _, share in newest
    )
    figure = Figure(
        id="time-split",
        title="Time of a step",
        chart=Curves(series=tuple(series), unit="s", stacked=True),
        table=table_of(
            "Newest bucket",
            newest,
            ("part", "name", lambda row: row[0]),
            ("s", "number", lambda row: number(row[1])),
            ("share", "number", lambda row: f"{row[2]:.1%}"),
            folded=True,
        ),
        says=lead,
        height=220,
    )
    absent = (
        [] if exposed is not None else ["Communication is not measured: `TrainingMonitor(..., profile_every=500)`."]
    )
    blocks: tuple[Block, ...] = (figure, *(Prose(text=text, tone="quiet") for text in absent))
    return Section(id="time", title="Time of a step", lead=f"{lead}.", blocks=blocks)


def number(value: float) -> str:
    """Return a number with four digits, grouped."""
    if not np.isfinite(value):
        return "not finite"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values.tolist())
