"""``dataaudit show``: a manifest as tables people read, or every record of one metric."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from dataaudit import text as t
from dataaudit.config import nearest
from dataaudit.errors import ConfigError
from dataaudit.layout import (
    name_column,
    number_column,
    page,
    prose,
    section,
    table,
    terminal_width,
    word_column,
)
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.metric import Metric
from dataaudit.report import blocks
from dataaudit.report.content import content, content_facts, content_lines, content_warning
from dataaudit.report.drift import drift_lines, drifts
from dataaudit.report.leaks import leak_lines, leaks
from dataaudit.report.near import near_duplicates, near_lines
from dataaudit.report.outliers import (
    LEAST_SHARDS,
    LIMIT_SD,
    Duplicated,
    Outlier,
    most_duplicated,
    outliers,
)
from dataaudit.report.pii_cells import hidden_records
from dataaudit.report.protected import protected_facts, protected_lines
from dataaudit.report.quality import composition, language_lines, languages, padding_lines, rule_lines, rules
from dataaudit.report.repeats import repeat_lines, repeats
from dataaudit.report.view import Volume, overview, source_volumes

_SOURCES = 20
_LANGUAGES = 30
_DRIFTS = 20
_HOTSPOTS = 20
_KINDS = 20
_EVERY = 2**31
_NOT_SHOWN = (
    "{number} not shown: counts of personal data by split or source, small ones, and what would tell small ones may"
    " point at people. The table `metrics` of the manifest holds them; without --metric, sources are shown rounded."
)
_MAY_BE_SAID_ONCE = (3, 4, 5, 6, 8, 9)
"""Columns of the table of records (unit, bounds, method, status) that are left out when all rows agree."""


def show_manifest(folder: Path, metric: str | None, *, as_json: bool) -> str:
    """Return the overview of a manifest, or every record of one metric.

    Raises:
        ManifestError: There is no manifest, or it is damaged.
        ConfigError: It has no such metric.
    """
    manifest = load_manifest(folder)
    if metric is not None:
        return _metric(manifest, metric, as_json=as_json)
    view = overview(manifest)
    by_split = {
        split.name: source_volumes(manifest, split.name, _EVERY if as_json else _SOURCES) for split in view.splits
    }
    far, duplicated = outliers(manifest), most_duplicated(manifest)
    near = near_duplicates(manifest)
    names = sorted(pc.unique(manifest.table("metrics", ["metric"])["metric"]).to_pylist())
    if as_json:
        return t.as_json(
            {
                **asdict(view),
                **composition(manifest),
                "sources_by_split": {name: [_source(one) for one in rows] for name, (rows, _) in by_split.items()},
                "near_duplicates": None if near is None else asdict(near),
                "leaks": [asdict(one) for one in leaks(manifest)],
                **content_facts(manifest),
                **protected_facts(manifest),
                "repeats": None if (held := repeats(manifest, _EVERY)) is None else asdict(held),
                "outliers": [asdict(one) for one in far],
                "most_duplicated": [asdict(one) for one in duplicated],
                "metrics": names,
            }
        )
    width, within = terminal_width(), content(manifest)
    tokens = {split.name: split.tokens for split in view.splits}
    return page(
        blocks.title(view),
        [*content_warning(within, width), *blocks.identity(view, width)],
        blocks.splits(view, width),
        blocks.mixture(view, width, _SOURCES) if view.sources and _declares(view.sources) else [],
        *(
            blocks.volumes(t.clean(name, blocks.NAME_LIMIT), rows, number, tokens[name], width)
            for name, (rows, number) in by_split.items()
        ),
        language_lines(languages(manifest), width, _LANGUAGES),
        rule_lines(rules(manifest), [split.name for split in view.splits], width, every=True),
        padding_lines(manifest, width),
        drift_lines(manifest, drifts(manifest), width, _DRIFTS),
        *content_lines(within, width, _KINDS),
        near_lines(near, width),
        leak_lines(leaks(manifest), width),
        *protected_lines(manifest, width),
        repeat_lines(repeats(manifest, _HOTSPOTS), width),
        blocks.coverage(view, width),
        blocks.lost(view.unread, "Not read", width),
        blocks.lost(view.partial, "Read without their bad records", width),
        _outliers(far, width),
        _duplicated(duplicated, width),
        section("Metrics (`--metric NAME` shows every record of one)", prose(t.clean(", ".join(names)), width)),
    )


def _metric(manifest: Manifest, name: str, *, as_json: bool) -> str:
    records = sorted(manifest.metrics(name), key=_order)
    if not records:
        known = sorted(pc.unique(manifest.table("metrics", ["metric"])["metric"]).to_pylist())
        raise ConfigError(f"{manifest.folder} has no metric `{name}`{nearest(name, known)}")
    hidden = hidden_records(manifest, records)
    records = [record for index, record in enumerate(records) if index not in hidden]
    if as_json:
        value = [{**asdict(record), "scope": record.scope.as_dict()} for record in records]
        return t.as_json({"id": manifest.id, "metric": name, "records": value, "suppressed": len(hidden)})
    width = terminal_width()
    rows = [_row(record) for record in records]
    columns = [
        name_column("scope"), word_column("stat"), number_column("value"), word_column("unit"),
        number_column("from"), number_column("to"), number_column("confidence"), number_column("n"),
        word_column("method"), word_column("status"),
    ]  # fmt: skip
    same = {index: cells[0] for index, cells in enumerate(zip(*rows, strict=True)) if len(set(cells)) == 1}
    kept = [index for index in range(len(columns)) if index not in same or index not in _MAY_BE_SAID_ONCE]
    said = [f"{columns[index].head} {same[index]}" for index in _MAY_BE_SAID_ONCE
            if index in same and same[index] != t.NOTHING]  # fmt: skip
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
        scope or "(all)", t.clean(record.stat), t.measured(record.value, record.unit), t.clean(record.unit),
        t.measured(record.low, record.unit), t.measured(record.high, record.unit),
        t.NOTHING if record.confidence is None else f"{record.confidence:g}",
        t.count(record.n), record.method, status,
    ]  # fmt: skip


def _order(record: Metric) -> tuple[Any, ...]:
    """Sort by what is spoken of, widest first, then by statistic with its numbers as numbers."""
    scope = record.scope.as_dict()
    parts = re.split(r"(\d+)", record.stat)
    stat = tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)
    return len(scope), tuple((name, str(value)) for name, value in scope.items()), stat


def _declares(shares: Sequence[Any]) -> bool:
    return any(share.declared is not None for share in shares)


def _source(volume: Volume) -> dict[str, Any]:
    left_out = ("held_out", "shards", "exact_dup_rate_within_split")
    return {name: value for name, value in asdict(volume).items() if name not in left_out}


def _outliers(found: Sequence[Outlier], width: int) -> list[str]:
    columns = [
        number_column("shard"), name_column("split/uri"), name_column("what"), number_column("value"),
        number_column("median of\nthe split"), number_column("robust sd\naway"),
    ]  # fmt: skip
    rows = [
        [
            str(one.shard), t.clean(f"{one.split}/{one.uri}"), t.clean(one.column), t.ratio(one.value),
            t.ratio(one.median), f"{one.deviations:+,.1f}",
        ]
        for one in found[:_SOURCES]
    ]  # fmt: skip
    lines = table(columns, rows, width)
    if len(found) > _SOURCES:
        lines += prose(f"and {t.plural(len(found) - _SOURCES, 'more shard')}; --json lists all", width)
    title = f"Shards over {LIMIT_SD:g} robust sd from their split's median (splits of {LEAST_SHARDS} and more)"
    return section(title, lines)


def _duplicated(found: Sequence[Duplicated], width: int) -> list[str]:
    columns = [
        number_column("shard"), name_column("split/uri"), number_column("documents"),
        number_column("dups\noverall"),
    ]  # fmt: skip
    rows = [
        [
            str(one.shard), t.clean(f"{one.split}/{one.uri}"), t.count(one.documents),
            t.ratio(one.exact_dup_rate),
        ]
        for one in found
    ]  # fmt: skip
    return section("Shards with the highest exact-duplicate rate", table(columns, rows, width))
