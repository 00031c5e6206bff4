"""The whole text of a manifest, in parts that have names: tables people read, one concept a part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow.compute as pc

from dataaudit import text as t
from dataaudit.layout import facts, name_column, number_column, prose, section, table
from dataaudit.manifest.load import Manifest
from dataaudit.report import blocks
from dataaudit.report.drift import drift_lines, drifts
from dataaudit.report.leaks import leak_lines, leaks
from dataaudit.report.near import near_duplicates, near_lines
from dataaudit.report.outliers import LEAST_SHARDS, LIMIT_SD, Duplicated, Outlier, most_duplicated, outliers
from dataaudit.report.pii import personal_data, pii_lines
from dataaudit.report.protected import protected_lines
from dataaudit.report.quality import language_lines, languages, padding_lines, rule_lines, rules
from dataaudit.report.repeats import repeat_lines, repeats
from dataaudit.report.secrets import secret_lines, secrets
from dataaudit.report.toxicity import toxic, toxic_lines
from dataaudit.report.view import Overview, source_volumes

_SOURCES = 20
_LANGUAGES = 30
_DRIFTS = 20
_HOTSPOTS = 20
_KINDS = 20
_NOTES = 100

Blocks = Iterable[list[str]]
Section = Callable[[Manifest, Overview, int], Blocks]
"""Blocks of lines of a manifest, its overview and the width of the terminal; those without anything are empty."""


def metric_names(manifest: Manifest) -> list[str]:
    """Return the metrics that a manifest has, sorted."""
    return sorted(pc.unique(manifest.table("metrics", ["metric"])["metric"]).to_pylist())


def _splits(_: Manifest, view: Overview, width: int) -> Blocks:
    return [blocks.splits(view, width)]


def _mixture(_: Manifest, view: Overview, width: int) -> Blocks:
    declares = any(share.declared is not None for share in view.sources)
    return [blocks.mixture(view, width, _SOURCES)] if declares else []


def _sources(manifest: Manifest, view: Overview, width: int) -> Blocks:
    for split in view.splits:
        rows, number = source_volumes(manifest, split.name, _SOURCES)
        yield blocks.volumes(t.clean(split.name, blocks.NAME_LIMIT), rows, number, split.tokens, width)


def _quality(manifest: Manifest, view: Overview, width: int) -> Blocks:
    return [rule_lines(rules(manifest), [split.name for split in view.splits], width)]


def _leaks(manifest: Manifest, _: Overview, width: int) -> Blocks:
    return [leak_lines(leaks(manifest), width), *protected_lines(manifest, width)]


def _coverage(_: Manifest, view: Overview, width: int) -> Blocks:
    return [
        blocks.coverage(view, width),
        blocks.lost(view.unread, "Not read", width),
        blocks.lost(view.partial, "Read without their bad records", width),
    ]


def _shards(manifest: Manifest, _: Overview, width: int) -> Blocks:
    return [_outliers(outliers(manifest), width), _duplicated(most_duplicated(manifest), width)]


def _notes(manifest: Manifest, _: Overview, width: int) -> Blocks:
    return [section("Notes", facts([("-", t.clean(note, 200)) for note in manifest.run.notes[:_NOTES]], width))]


def _metrics(manifest: Manifest, _: Overview, width: int) -> Blocks:
    names = prose(t.clean(", ".join(metric_names(manifest))), width)
    return [section("Metrics (`--metric NAME` shows every record of one)", names)]


SECTIONS: dict[str, Section] = {
    "splits": _splits,
    "mixture": _mixture,
    "sources": _sources,
    "languages": lambda manifest, _, width: [language_lines(languages(manifest), width, _LANGUAGES)],
    "quality": _quality,
    "padding": lambda manifest, _, width: [padding_lines(manifest, width)],
    "drift": lambda manifest, _, width: [drift_lines(manifest, drifts(manifest), width, _DRIFTS)],
    "toxicity": lambda manifest, _, width: [toxic_lines(toxic(manifest), width, _KINDS)],
    "pii": lambda manifest, _, width: [pii_lines(personal_data(manifest), width, _KINDS)],
    "secrets": lambda manifest, _, width: [secret_lines(secrets(manifest), width, _KINDS)],
    "near_dup": lambda manifest, _, width: [near_lines(near_duplicates(manifest), width)],
    "leaks": _leaks,
    "repeats": lambda manifest, _, width: [repeat_lines(repeats(manifest, _HOTSPOTS), width)],
    "coverage": _coverage,
    "shards": _shards,
    "notes": _notes,
    "metrics": _metrics,
}
"""Every part by its name, in the order of the whole text."""


def _outliers(found: Sequence[Outlier], width: int) -> list[str]:
    columns = [
        number_column("shard"),
        name_column("split/uri"),
        name_column("what"),
        number_column("value"),
        number_column("median of\nthe split"),
        number_column("robust sd\naway"),
    ]
    rows = [
        [
            str(one.shard),
            t.clean(f"{one.split}/{one.uri}"),
            t.clean(one.column),
            t.ratio(one.value),
            t.ratio(one.median),
            f"{one.deviations:+,.1f}",
        ]
        for one in found[:_SOURCES]
    ]
    lines = table(columns, rows, width)
    if len(found) > _SOURCES:
        lines += prose(f"and {t.plural(len(found) - _SOURCES, 'more shard')}; --json lists all", width)
    title = f"Shards over {LIMIT_SD:g} robust sd from their split's median (splits of {LEAST_SHARDS} and more)"
    return section(title, lines)


def _duplicated(found: Sequence[Duplicated], width: int) -> list[str]:
    columns = [
        number_column("shard"),
        name_column("split/uri"),
        number_column("documents"),
        number_column("dups\noverall"),
    ]
    rows = [
        [
            str(one.shard),
            t.clean(f"{one.split}/{one.uri}"),
            t.count(one.documents),
            t.ratio(one.exact_dup_rate),
        ]
        for one in found
    ]
    return section("Shards with the highest exact-duplicate rate", table(columns, rows, width))
