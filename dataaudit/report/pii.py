"""Personal data as people read it: what the patterns found in every document, and what presidio found in a sample."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dataaudit import text as t
from dataaudit.layout import name_column, number_column, prose, section, table
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.report.few import FEW, ROUNDED, SHARED, Count, count_cell
from dataaudit.report.judged import Estimate, Judge, estimate, interval, judge_lines, judge_of, per_million, short
from dataaudit.report.pii_cells import JUDGED, METRIC, TIERS, few_judged, pii_cells

_NAME_LIMIT = 40
_LEGEND = (
    "docs: documents that hold some; validated, contextual, pattern: hits by how sure they are; reserved: hits that are"
    " examples or test values, in no other number."
)
_TITLE = "Personal data, as patterns find it in every document"
_JUDGED = "Personal data in a sample, by presidio"
_HOW = (
    "set `pii: {analyzer: presidio}` in the config, with `model` for names, places and organisations;"
    " `dataaudit doctor` says what that needs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiEntity:
    """One kind of personal data."""

    entity: str
    """Empty for all of them together."""
    found: Count
    tiers: dict[str, Count]
    reserved: int
    """Examples and test values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiSource:
    """One source, with all kinds of personal data in it."""

    source: str
    found: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiSample:
    """What presidio says of one kind of personal data."""

    entity: str
    """Empty for any."""
    documents: Estimate | None
    """Share of the documents that hold it."""
    hits: Estimate | None
    """Hits per million tokens."""
    confirmed: Estimate | None
    """Share of what the patterns alone are not sure of that presidio confirms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pii:
    """Personal data of a manifest."""

    total: PiiEntity
    entities: tuple[PiiEntity, ...]
    """The most documents first, hidden ones last."""
    sources: tuple[PiiSource, ...]
    """The most documents first, hidden ones last."""
    truncated: int
    """Documents with more candidates than are looked at."""
    judge: Judge | None
    """None when no sample was thought of."""
    sample: tuple[PiiSample, ...]
    """Any first, then by share of the documents."""
    suppressed: bool
    """Whether small counts are not shown."""


def personal_data(manifest: Manifest) -> Pii | None:
    """Return personal data in numbers that may be shown; None when it was not looked for."""
    cells = pii_cells(manifest)
    if cells is None:
        return None
    wide: dict[str, dict[str, Metric]] = {}
    for record in manifest.metrics(METRIC):
        if record.scope == Scope(entity=record.scope.entity):
            wide.setdefault(record.scope.entity or "", {})[record.stat] = record
    entities = [
        PiiEntity(
            entity=name,
            found=count,
            tiers={tier: cells.tiers[name, tier] for tier in TIERS},
            reserved=_number(wide[name], "reserved"),
        )
        for name, count in cells.entities.items()
    ]
    sources = [PiiSource(source=name, found=count) for name, count in cells.sources.items()]
    whole = wide[""]
    asked = "analyzer_documents" in whole
    hidden = few_judged(manifest) | {name for name, count in cells.entities.items() if count.suppressed}
    counts = [*cells.entities.values(), *cells.tiers.values(), *cells.sources.values()]
    return Pii(
        total=PiiEntity(entity="", found=cells.total, tiers=cells.total_by_tier, reserved=_number(whole, "reserved")),
        entities=tuple(sorted(entities, key=lambda one: (*_most(one.found), one.entity))),
        sources=tuple(sorted(sources, key=lambda one: (*_most(one.found), one.source))),
        truncated=_number(whole, "truncated"),
        judge=judge_of(manifest, "presidio", whole, "analyzer_documents") if asked else None,
        sample=_sample(wide, hidden),
        suppressed=any(count.suppressed for count in counts),
    )


def pii_facts(manifest: Manifest) -> dict[str, Any]:
    """Return the same as plain JSON values."""
    found = personal_data(manifest)
    return {"personal_data": None if found is None else asdict(found)}


def pii_lines(found: Pii | None, width: int, limit: int) -> list[str]:
    """Return the block of personal data; empty when it was not looked for.

    Args:
        found: Of :func:`personal_data`.
        width: Of the terminal.
        limit: Entities and sources that are listed at most.
    """
    if found is None:
        return []
    lines = _entities(found, width, limit)
    if not found.entities:
        lines = prose("None was found.", width)
    lines += _sources(found, width, limit)
    if found.truncated:
        lines += prose(
            f"{t.plural(found.truncated, 'document')} with too many candidates: only the first ones were checked.",
            width,
        )
    lines += prose(SHARED, width) if found.suppressed else []
    if found.judge is None:
        return section(_TITLE, lines)
    return [*section(_TITLE, lines), "", *_judged(found.judge, found.sample, width, limit)]


def _entities(found: Pii, width: int, limit: int) -> list[str]:
    columns = [
        name_column("entity"),
        number_column("hits per\n1M tokens"),
        number_column("docs"),
        number_column("valid-\nated"),
        number_column("context-\nual"),
        number_column("pattern"),
        number_column("re-\nserved"),
    ]
    shown = found.entities if len(found.entities) <= limit + 1 else found.entities[:limit]
    every = [*shown, found.total] if found.entities else []
    rows = [
        [
            t.clean(one.entity, _NAME_LIMIT) or "(all)",
            per_million(one.found.per_million),
            count_cell(one.found, one.found.documents),
            *(count_cell(one.tiers[tier], one.tiers[tier].hits) for tier in TIERS),
            t.count(one.reserved),
        ]
        for one in every
    ]
    lines = table(columns, rows, width)
    if len(shown) < len(found.entities):
        lines += prose(f"and {t.count(len(found.entities) - len(shown))} more; --json lists all", width)
    return lines + (prose(_LEGEND, width) if rows else [])


def _sources(found: Pii, width: int, limit: int) -> list[str]:
    holding = [one for one in found.sources if one.found.suppressed or one.found.documents]
    if len(found.sources) < 2 or not holding:
        return []
    columns = [
        name_column("source"),
        number_column("hits per\n1M tokens"),
        number_column("hits"),
        number_column("docs"),
        number_column("share\nof docs"),
    ]
    shown = holding if len(holding) <= limit + 1 else holding[:limit]
    rows = [
        [
            t.clean(one.source, _NAME_LIMIT),
            per_million(one.found.per_million),
            count_cell(one.found, one.found.hits),
            count_cell(one.found, one.found.documents),
            t.ratio(one.found.share),
        ]
        for one in shown
    ]
    lines = ["", *table(columns, rows, width), *prose(f"of sources: numbers {ROUNDED}", width)]
    if len(shown) < len(holding):
        lines += prose(f"and {t.plural(len(holding) - len(shown), 'more source')}; --json lists all", width)
    return lines


def _judged(judge: Judge, sample: Sequence[PiiSample], width: int, limit: int) -> list[str]:
    if judge.reason:
        text = f"Not evaluated: {judge.meaning} ({judge.reason}). To have it judged, {_HOW}."
        return section(_JUDGED, prose(text, width))
    columns = [
        name_column("entity"),
        number_column("share\nof docs"),
        number_column("95 % interval"),
        number_column("hits per\n1M tokens"),
        number_column("95 % interval"),
        number_column("con-\nfirmed"),
    ]
    seen = [one for one in sample if not one.entity or (one.documents and one.documents.value)]
    shown = seen if len(seen) <= limit + 2 else seen[: limit + 1]
    rows = [
        [
            t.clean(one.entity, _NAME_LIMIT) or "(any)",
            short(_value(one.documents)),
            interval(one.documents),
            per_million(_value(one.hits)),
            interval(one.hits, unit="hits"),
            short(_value(one.confirmed)),
        ]
        for one in shown
    ]
    lines = table(columns, rows, width)
    if len(shown) < len(seen):
        lines += prose(f"and {t.count(len(seen) - len(shown))} more; --json lists all", width)
    few = sum(one.documents is not None and one.documents.suppressed for one in sample)
    if few:
        lines += prose(
            f"In fewer than {FEW} sampled documents, or hidden above: {t.plural(few, 'further kind')}.", width
        )
    if len(seen) + few < len(sample):
        lines += prose(f"Not in the sample: {t.plural(len(sample) - len(seen) - few, 'further kind')}.", width)
    if any(one.confirmed for one in shown):
        text = "confirmed: of what the patterns alone are not sure of, the share that presidio confirms."
        lines += prose(text, width)
    return section(_JUDGED, [*lines, *judge_lines(judge, width)])


def _sample(wide: Mapping[str, Mapping[str, Metric]], hidden: Collection[str]) -> tuple[PiiSample, ...]:
    found = [
        PiiSample(
            entity=name,
            **{
                part: estimate(records.get(stat), hidden=name in hidden)
                for part, stat in zip(("documents", "hits", "confirmed"), JUDGED, strict=True)
            },
        )
        for name, records in wide.items()
        if {"analyzer_documents", "confirmed"} & records.keys() and (name or "judge_reads" in records)
    ]
    return tuple(sorted(found, key=lambda one: (bool(one.entity), -(_value(one.documents) or 0.0), one.entity)))


def _value(one: Estimate | None) -> float | None:
    return None if one is None else one.value


def _most(found: Count) -> tuple[bool, int]:
    return found.suppressed, -(found.documents or 0)


def _number(records: Mapping[str, Metric], stat: str) -> int:
    record = records.get(stat)
    return 0 if record is None else int(record.value or 0)
