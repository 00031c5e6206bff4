"""``dataaudit show``: a manifest on one screen, its whole text, one part of it, or every record of one metric."""

from __future__ import annotations

import difflib
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dataaudit import text as t
from dataaudit.config import nearest
from dataaudit.errors import ConfigError
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.metric import Metric
from dataaudit.metrics.pii.cells import hidden_records
from dataaudit.metrics.secrets.facts import secrets, warning
from dataaudit.metrics.volume.facts import identity, overview
from dataaudit.render.blocks import Prose, Table, names, numbers, words
from dataaudit.render.cells import wrap
from dataaudit.render.line import Line, Name, Number, Unit, join, say, spell
from dataaudit.render.terminal import ROWS, facts, page, parts_of, render, terminal_width
from dataaudit.report.outliers import outliers
from dataaudit.report.screen import screen
from dataaudit.report.sections import SECTIONS, blocks_of, facts_of, metric_names
from dataaudit.report.standouts import standout_facts

_NOT_SHOWN = (
    "{number} not shown: counts of personal data by split or source, small ones, and what would tell small ones may"
    " point at people. The table `metrics` of the manifest holds them; without --metric, sources are shown rounded."
)
_MAY_BE_SAID_ONCE = (3, 4, 5, 6, 8, 9)
"""Columns of the table of records (unit, bounds, method, status) that are left out when all rows agree."""


def show_manifest(
    folder: Path, metric: str | None = None, part: str | None = None, *, whole: bool = False, as_json: bool
) -> str:
    """Return one screen of a manifest, its whole text, one part of that, or every record of one metric.

    Args:
        folder: Of the manifest.
        metric: Every record of this one.
        part: Only this part of the whole text, by its name in :data:`dataaudit.report.sections.SECTIONS`.
        whole: All parts.
        as_json: The facts of all parts, or the records of the metric, as JSON.

    Raises:
        ManifestError: There is no manifest, or it is damaged.
        ConfigError: It has no such metric, or there is no part of that name.
    """
    if part is not None and part not in SECTIONS:
        like = difflib.get_close_matches(part, SECTIONS, n=1)
        meant = f" (did you mean `{like[0]}`?)" if like else ""
        raise ConfigError(f"no section `{t.clean(part, 60)}`{meant}", f"The parts: {', '.join(SECTIONS)}.")
    manifest = load_manifest(folder)
    if metric is not None:
        return _metric(manifest, metric, as_json=as_json)
    if as_json:
        return _facts(manifest)
    view, width = overview(manifest), terminal_width()
    title = say("{} {}", Name(view.dataset), Name(view.version))
    if part is not None:
        told = _text(part, manifest, width)
        return page(title, *([], *told) if told else ([f"  Nothing of {part} is in this manifest."],))
    if whole:
        head = [*_warning(manifest, width), *facts(identity(view).pairs, width)]
        return page(title, head, *(lines for name in SECTIONS for lines in _text(name, manifest, width)))
    return screen(manifest, width)


def _text(part: str, manifest: Manifest, width: int) -> list[list[str]]:
    return [lines for one in blocks_of(part, manifest) for lines in parts_of(one, width, ROWS, "; --json lists all")]


def _warning(manifest: Manifest, width: int) -> list[str]:
    """Return the line that stands above everything else when secrets are confirmed."""
    found = warning(secrets(manifest))
    text = say("WARNING: {}. Revoke them; the table `findings` has their places.", found)
    return wrap(spell(text), width) if found else []


def _facts(manifest: Manifest) -> str:
    """Return the facts of all parts as JSON."""
    return t.as_json(
        {
            **asdict(overview(manifest)),
            **facts_of(manifest, whole=True),
            "outliers": [asdict(one) for one in outliers(manifest)],
            "metrics": metric_names(manifest),
            "stands_out": standout_facts(manifest),
        }
    )


def _metric(manifest: Manifest, name: str, *, as_json: bool) -> str:
    records = sorted(manifest.metrics(name), key=_order)
    if not records:
        raise ConfigError(f"{manifest.place} has no metric `{name}`{nearest(name, metric_names(manifest))}")
    hidden = hidden_records(manifest, records)
    records = [record for index, record in enumerate(records) if index not in hidden]
    if as_json:
        value = [{**asdict(record), "scope": record.scope.as_dict()} for record in records]
        return t.as_json({"id": manifest.id, "metric": name, "records": value, "suppressed": len(hidden)})
    rows = [_row(record) for record in records]
    columns = (
        *names("scope"),
        *words("stat"),
        *numbers("value"),
        *words("unit"),
        *numbers("from", "to", "confidence", "n"),
        *words("method", "status"),
    )
    same = {index: cells[0] for index, cells in enumerate(zip(*rows, strict=True)) if len(set(map(spell, cells))) == 1}
    kept = [index for index in range(len(columns)) if index not in same or index not in _MAY_BE_SAID_ONCE]
    said = [
        say("{} {}", columns[index].head, same[index])
        for index in _MAY_BE_SAID_ONCE
        if index in same and spell(same[index]) != t.NOTHING
    ]
    table = Table(
        title="",
        columns=tuple(columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in rows),
    )
    note = _NOT_SHOWN.format(number=t.plural(len(hidden), "record")) if hidden else ""
    once = Prose(text=say("every record: {}", join(", ", said)) if said else "")
    title = say("{}: {}", Name(name), t.plural(len(records) + len(hidden), "record"))
    return render(title, [once, table, Prose(text=note)], most=None)


def _row(record: Metric) -> tuple[Line, ...]:
    scope = join(" ", (say("{}={}", name, Name(str(value), 60)) for name, value in record.scope.as_dict().items()))
    unit: Unit = "share" if record.unit == "ratio" else "decimal"
    return (
        scope if scope.parts else "(all)",
        Name(record.stat),
        Number(record.value, unit),
        Name(record.unit),
        Number(record.low, unit),
        Number(record.high, unit),
        None if record.confidence is None else f"{record.confidence:g}",
        record.n,
        record.method,
        record.status if record.status == "ok" else say("{}: {}", record.status, Name(record.reason)),
    )


def _order(record: Metric) -> tuple[Any, ...]:
    """Sort by what is spoken of, widest first, then by statistic with its numbers as numbers."""
    scope = record.scope.as_dict()
    parts = re.split(r"(\d+)", record.stat)
    stat = tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)
    return len(scope), tuple((name, str(value)) for name, value in scope.items()), stat
