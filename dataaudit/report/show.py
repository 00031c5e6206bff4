"""``dataaudit show``: a manifest on one screen, its whole text, one part of it, or every record of one metric."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dataaudit import text as t
from dataaudit.config import nearest
from dataaudit.errors import ConfigError
from dataaudit.layout import name_column, number_column, page, prose, table, terminal_width, word_column
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.metric import Metric
from dataaudit.report import blocks
from dataaudit.report.content import content_facts
from dataaudit.report.leaks import leaks
from dataaudit.report.near import near_duplicates
from dataaudit.report.outliers import most_duplicated, outliers
from dataaudit.report.pii_cells import hidden_records
from dataaudit.report.protected import protected_facts
from dataaudit.report.quality import composition
from dataaudit.report.repeats import repeats
from dataaudit.report.screen import screen
from dataaudit.report.secrets import secret_warning, secrets
from dataaudit.report.sections import SECTIONS, metric_names
from dataaudit.report.standouts import standout_facts
from dataaudit.report.view import Overview, Volume, overview, source_volumes

_EVERY = 2**31
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
        raise ConfigError(f"no section `{t.clean(part, 60)}`{nearest(part, list(SECTIONS))}")
    manifest = load_manifest(folder)
    if metric is not None:
        return _metric(manifest, metric, as_json=as_json)
    view, width = overview(manifest), terminal_width()
    if as_json:
        return _facts(manifest, view)
    if part is not None:
        held = [block for block in SECTIONS[part](manifest, view, width) if block]
        return page(blocks.title(view), *([], *held) if held else ([f"  Nothing of {part} is in this manifest."],))
    if whole:
        return page(
            blocks.title(view),
            [*secret_warning(secrets(manifest), width), *blocks.identity(view, width)],
            *(block for make in SECTIONS.values() for block in make(manifest, view, width)),
        )
    return screen(manifest, view, width)


def _facts(manifest: Manifest, view: Overview) -> str:
    """Return the facts of all parts as JSON."""
    near, found = near_duplicates(manifest), repeats(manifest, _EVERY)
    by_split = {split.name: source_volumes(manifest, split.name, _EVERY)[0] for split in view.splits}
    return t.as_json(
        {
            **asdict(view),
            **composition(manifest),
            "sources_by_split": {name: [_source(one) for one in rows] for name, rows in by_split.items()},
            "near_duplicates": None if near is None else asdict(near),
            "leaks": [asdict(one) for one in leaks(manifest)],
            **content_facts(manifest),
            **protected_facts(manifest),
            "repeats": None if found is None else asdict(found),
            "outliers": [asdict(one) for one in outliers(manifest)],
            "most_duplicated": [asdict(one) for one in most_duplicated(manifest)],
            "metrics": metric_names(manifest),
            "stands_out": standout_facts(manifest, view),
        }
    )


def _metric(manifest: Manifest, name: str, *, as_json: bool) -> str:
    records = sorted(manifest.metrics(name), key=_order)
    if not records:
        raise ConfigError(f"{manifest.folder} has no metric `{name}`{nearest(name, metric_names(manifest))}")
    hidden = hidden_records(manifest, records)
    records = [record for index, record in enumerate(records) if index not in hidden]
    if as_json:
        value = [{**asdict(record), "scope": record.scope.as_dict()} for record in records]
        return t.as_json({"id": manifest.id, "metric": name, "records": value, "suppressed": len(hidden)})
    width = terminal_width()
    rows = [_row(record) for record in records]
    columns = [
        name_column("scope"),
        word_column("stat"),
        number_column("value"),
        word_column("unit"),
        number_column("from"),
        number_column("to"),
        number_column("confidence"),
        number_column("n"),
        word_column("method"),
        word_column("status"),
    ]
    same = {index: cells[0] for index, cells in enumerate(zip(*rows, strict=True)) if len(set(cells)) == 1}
    kept = [index for index in range(len(columns)) if index not in same or index not in _MAY_BE_SAID_ONCE]
    said = [
        f"{columns[index].head} {same[index]}"
        for index in _MAY_BE_SAID_ONCE
        if index in same and same[index] != t.NOTHING
    ]
    return page(
        f"{t.clean(name)}: {t.plural(len(records) + len(hidden), 'record')}",
        prose(f"every record: {', '.join(said)}", width) if said else [],
        table([columns[index] for index in kept], [[row[index] for index in kept] for row in rows], width),
        prose(_NOT_SHOWN.format(number=t.plural(len(hidden), "record")), width) if hidden else [],
    )


def _row(record: Metric) -> list[str]:
    scope = " ".join(
        f"{name}={t.clean(str(value), blocks.NAME_LIMIT)}" for name, value in record.scope.as_dict().items()
    )
    status = record.status if record.status == "ok" else f"{record.status}: {t.clean(record.reason)}"
    return [
        scope or "(all)",
        t.clean(record.stat),
        t.measured(record.value, record.unit),
        t.clean(record.unit),
        t.measured(record.low, record.unit),
        t.measured(record.high, record.unit),
        t.NOTHING if record.confidence is None else f"{record.confidence:g}",
        t.count(record.n),
        record.method,
        status,
    ]


def _order(record: Metric) -> tuple[Any, ...]:
    """Sort by what is spoken of, widest first, then by statistic with its numbers as numbers."""
    scope = record.scope.as_dict()
    parts = re.split(r"(\d+)", record.stat)
    stat = tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)
    return len(scope), tuple((name, str(value)) for name, value in scope.items()), stat


def _source(volume: Volume) -> dict[str, Any]:
    left_out = ("held_out", "shards", "exact_dup_rate_within_split")
    return {name: value for name, value in asdict(volume).items() if name not in left_out}
