"""The data of a run by hour, against the manifest: mixture, lengths, padding, drift of tokens; and the corpus itself.

Shares and lengths are exact counts of the log; tokens of an hour are compared with those audited, each source weighted
as in that hour, so another mixture is no drift. Padding is compared with the audited padding of the same context.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from dataaudit.base.render.blocks import (
    Block,
    Cell,
    Curves,
    Declared,
    Facts,
    Figure,
    Point,
    Prose,
    Section,
    Tone,
    table_of,
)
from dataaudit.base.render.line import Line, Name, share
from dataaudit.base.statistics import Ints
from dataaudit.base.text import plural
from dataaudit.live.hours import Hour
from dataaudit.manifest.load import Manifest
from dataaudit.training.attribution.run_findings import TokenDrift
from dataaudit.training.attribution.trained_on import POINTS
from dataaudit.training.pages.run_blocks import share_line, short
from dataaudit.training.pages.run_view import RunView

MOST_HOURS: Final = 48
"""Newest hours that are listed."""
MOST_SOURCES: Final = 6
"""Sources with a column or a colour; the others are one."""
_CORPUS: Final = (
    "near_dup_rate",
    "exact_dup_rate",
    "train_val_overlap",
    "benchmark_contamination",
    "filter_reject_rate",
    "data_toxicity_rate",
    "token_kl_drift",
    "coverage_unread_bytes",
)
_MARKS = {"": "as by chance", "beyond": "beyond chance", "perhaps": "as by chance", "unknown": "chance not known"}


def data_panel(view: RunView) -> Section | None:
    """Return the panel of the data; None where the log counts nothing."""
    hours, total = view.hours, _total(view)
    if not hours:
        return None
    points = list(data_points(view))
    blocks: list[Block] = [_mixture(view, total)] if total.sum() else []
    blocks.append(_by_hour(view, total))
    audited = () if view.manifest is None else tuple(_corpus(view.manifest))
    if audited:
        blocks.append(Facts(title="The corpus, as audited", pairs=audited))
    remarks = []
    if view.manifest is None and view.watch is not None:
        remarks.append("Name the manifest to compare with: `dataaudit watch RUNLOG --manifest DIR`.")
    if view.other_tokens:
        remarks.append("Tokens are not compared: those of the run are of another tokenizer than the manifest's.")
    if view.tiles.hours.late:
        remarks.append(f"{view.tiles.hours.late:,} tokens came a day late, and are in no comparison.")
    blocks += [Prose(text=text, tone="quiet") for text in remarks]
    lead = points[0].text if points else f"{plural(len(hours), 'hour')} with steps; nothing is off."
    tone: Tone = "warn" if points else "good" if view.manifest is not None else ""
    return Section(id="data-hours", title="Data by hour", lead=lead, tone=tone, blocks=tuple(blocks))


def _total(view: RunView) -> Ints:
    """Return the tokens of each source, of all hours."""
    return sum((hour.sources for hour in view.hours), np.zeros(len(view.tiles.hours.sources), np.int64))


def data_points(view: RunView) -> Iterator[Point]:
    """Yield what is off: a declared share that the whole run misses, drift of tokens beyond chance in an hour."""
    total, (wanted, of) = _total(view), view.expected_shares
    whole = float(total.sum())
    for name, count in zip(view.tiles.hours.sources, total.tolist(), strict=True):
        expected = wanted.get(name)
        if of == "declared" and expected is not None and whole and abs(count / whole - expected) > POINTS:
            yield Point(text=share_line(name, share(count / whole), expected), tone="warn", section="data-hours")
    drifted = [hour for hour in view.hours if isinstance(hour.drift, TokenDrift) and hour.drift.mark == "beyond"]
    if drifted:
        worst = max(drifted, key=lambda hour: hour.drift.kl)
        words = f"Tokens of {plural(len(drifted), 'hour')} differ from those audited beyond chance, most at "
        yield Point(text=f"{words}{_time(worst.begins)}: {worst.drift.kl:.2g} nats.", tone="warn", section="data-hours")


def _mixture(view: RunView, total: Ints) -> Block:
    """Return shares of sources, of the run and of the newest hour, and how they went where there are several hours."""
    hours, names, (wanted, of) = view.hours, view.tiles.hours.sources, view.expected_shares
    order = np.argsort(-total, kind="stable").tolist()
    whole, newest = float(total.sum()), hours[-1].sources
    known: list[Declared] = [(of, "number", lambda at: share(wanted.get(names[at])))] if wanted else []
    listed = table_of(
        "Shares by source",
        order,
        ("source", "name", lambda at: Name(names[at])),
        ("tokens", "number", lambda at: f"{int(total[at]):,}"),
        ("share", "number", lambda at: share(float(total[at]) / whole)),
        ("newest hour", "number", lambda at: share(newest[at] / newest.sum()) if newest.sum() else "-"),
        *known,
        noun="source",
    )
    filled = [hour for hour in hours if hour.sources.sum()]
    if len(filled) < 2:
        return listed
    steps = tuple(float(hour.last_step) for hour in filled)
    series = [
        (Name(names[at]), steps, tuple(round(float(hour.sources[at] / hour.sources.sum()), 6) for hour in filled))
        for at in order[:MOST_SOURCES]
    ]
    if len(order) > MOST_SOURCES:
        rest = tuple(round(1.0 - sum(values[place] for *_, values in series), 6) for place in range(len(filled)))
        series.append((Name("others"), steps, rest))
    return Figure(
        id="mixture-hours",
        title="Mixture by hour",
        chart=Curves(series=tuple(series), unit="share of tokens", stacked=True, percent=True),
        table=listed,
        says=", ".join(f"{names[at]} {total[at] / whole:.1%}" for at in order[:MOST_SOURCES]),
        note="Each hour at its last step.",
        height=200,
    )


def _by_hour(view: RunView, total: Ints) -> Block:
    hours, names, (wanted, _) = view.hours, view.tiles.hours.sources, view.expected_shares
    order = np.argsort(-total, kind="stable").tolist()[:MOST_SOURCES]
    shown = [at for at in order if total[at]]

    def part(at: int) -> Any:
        def cell(hour: Hour) -> Line | Cell:
            whole = hour.sources.sum()
            if not whole:
                return "-"
            own = float(hour.sources[at] / whole)
            off = names[at] in wanted and abs(own - wanted[names[at]]) > POINTS
            return Cell(text=share(own), tone="warn" if off else "")

        return cell

    notes = (
        "Amber: a share more than 2 points from what the manifest lets expect." if wanted else "",
        f"Lengths are those of segments{_audited_lengths(view.manifest)}.",
        _audited_padding(view),
    )
    return table_of(
        "What was trained on, by hour (UTC), the newest first",
        hours[::-1][:MOST_HOURS],
        ("hour", "word", lambda hour: _time(hour.begins)),
        ("steps", "number", lambda hour: f"{hour.first_step:,} to {hour.last_step:,}"),
        ("tokens", "number", lambda hour: f"{hour.targets:,.0f}"),
        *((Name(names[at], 24), "number", part(at)) for at in shown),
        ("length p50", "number", lambda hour: _count(hour.quantile(0.5))),
        ("p95", "number", lambda hour: _count(hour.quantile(0.95))),
        ("padding", "number", lambda hour: share(hour.pad_fraction)),
        ("token KL, nats", "number", _kl),
        (
            "chance gives",
            "number",
            lambda hour: short(hour.drift.kl_bias) if isinstance(hour.drift, TokenDrift) else "-",
        ),
        number=len(hours),
        noun="hour",
        note=" ".join(filter(None, notes)),
    )


def _kl(hour: Hour) -> Line | Cell:
    drift = hour.drift
    if not isinstance(drift, TokenDrift):
        return "-"
    return Cell(text=short(drift.kl), tone="bad" if drift.mark == "beyond" else "", detail=_MARKS[drift.mark])


def _audited_lengths(manifest: Manifest | None) -> str:
    found = {
        record.stat: record.value
        for record in (() if manifest is None else manifest.core.headline)
        if record.metric == "seq_len_p50_p95" and record.value is not None
    }
    if not {"p50", "p95"} <= set(found):
        return ""
    return f"; documents as audited: p50 {found['p50']:,.0f}, p95 {found['p95']:,.0f} tokens"


def _audited_padding(view: RunView) -> str:
    """Return what the manifest says of padding at the context of the run."""
    context = view.tiles.line("context")
    if view.manifest is None or context is None:
        return ""
    length = str(int(context.newest[1]))
    parts = [
        f"{record.stat.rpartition('_')[0]} {record.value:.1%}"
        for record in view.manifest.metrics("pad_fraction")
        if record.stat.rpartition("_")[2] == length and record.value is not None and not record.scope.source
    ]
    return f"Padding, as audited at {length} tokens: {', '.join(dict.fromkeys(parts))}." if parts else ""


def _corpus(manifest: Manifest) -> Iterator[tuple[Line, Line]]:
    for record in manifest.core.headline:
        if record.metric in _CORPUS and record.value is not None:
            name = record.metric if record.stat in {"rate", "bytes"} else f"{record.metric}, {record.stat}"
            yield Name(name), share(record.value) if record.unit == "ratio" else f"{record.value:,.4g} {record.unit}"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _time(begins: int) -> str:
    return dt.datetime.fromtimestamp(begins, dt.UTC).strftime("%m-%d %H:%M")
