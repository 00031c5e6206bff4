"""Toxic documents as people read them: the screen's estimate of every document, the judge's rate from a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dataaudit import text as t
from dataaudit.layout import name_column, number_column, prose, section, table
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.report.judged import Estimate, Judge, estimate, interval, judge_lines, judge_of

METRIC = "data_toxicity_rate"
_NAME_LIMIT = 40
_AT = "rate_at_"
_LEGEND = (
    "screened: share of documents that the screen can judge (others are in languages that it does not know, or have no"
    " word); estimate: the screen's mean calibrated probability, right as far as its calibration holds for this"
    " corpus; over 0.5: share that it classifies as toxic."
)
_JUDGED = "Toxic documents, judged in a sample"
_HOW = (
    "set `toxicity: {judge: original}` (or another of Detoxify's, or a file) in the config; `dataaudit doctor` says"
    " what that needs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToxicScope:
    """Toxicity of the dataset, of a source or of a language."""

    name: str
    """Source or language; empty for the whole dataset."""
    documents: int
    """All its documents; of a language those in languages that the judge reads."""
    screened: float | None
    """Share of the documents that the screen can judge."""
    screen: Estimate | None
    """The screen's estimate of the share of toxic documents, of those that it can judge. No judge looked."""
    screen_positive: float | None
    """Share that the screen classifies as toxic."""
    rate: Estimate | None
    """The judge's share of toxic documents, estimated from a sample with the screen's help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToxicClass:
    """One class of the judge, or one bound of its scores."""

    name: str
    rate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxic:
    """Toxicity of a manifest."""

    total: ToxicScope
    sources: tuple[ToxicScope, ...]
    """The most documents first."""
    languages: tuple[ToxicScope, ...]
    """Those that were judged, the most documents first."""
    classes: tuple[ToxicClass, ...]
    """Classes of the judge, the most frequent first."""
    at: tuple[ToxicClass, ...]
    """Share of documents by the lowest probability that the judge gives them."""
    judge: Judge


def toxic(manifest: Manifest) -> Toxic | None:
    """Return the toxicity of a manifest; None when it was not looked for."""
    records: dict[Scope, dict[str, Metric]] = {}
    for record in manifest.metrics(METRIC):
        records.setdefault(record.scope, {})[record.stat] = record
    whole = records.get(Scope())
    if whole is None or "screened_share" not in whole:
        return None
    sources = [_scope(scope.source, held) for scope, held in records.items() if _only(scope, "source")]
    languages = [_scope(scope.language, held) for scope, held in records.items() if _only(scope, "language")]
    return Toxic(
        total=_scope("", whole),
        sources=_sorted(sources),
        languages=_sorted(languages),
        classes=_rates((scope.entity, held.get("rate")) for scope, held in records.items() if _only(scope, "entity")),
        at=tuple(
            ToxicClass(name=stat.removeprefix(_AT), rate=found)
            for stat, record in sorted(whole.items())
            if stat.startswith(_AT) and (found := estimate(record))
        ),
        judge=judge_of(manifest, "detoxify", whole, "rate"),
    )


def toxic_facts(manifest: Manifest) -> dict[str, Any]:
    """Return the same as plain JSON values."""
    found = toxic(manifest)
    return {"toxicity": None if found is None else asdict(found)}


def toxic_lines(found: Toxic | None, width: int, limit: int) -> list[str]:
    """Return the block of toxicity; empty when it was not looked for.

    Args:
        found: Of :func:`toxic`.
        width: Of the terminal.
        limit: Sources that are listed at most.
    """
    if found is None:
        return []
    block = section("Toxic documents, by the screen", _screen(found, width, limit))
    if found.judge.reason:
        text = f"Not evaluated: {found.judge.meaning} ({found.judge.reason}). To have it judged, {_HOW}."
        return [*block, "", *section(_JUDGED, prose(text, width))]
    return [*block, "", *section(_JUDGED, _judged(found, width, limit))]


def _screen(found: Toxic, width: int, limit: int) -> list[str]:
    columns = [
        name_column("source"),
        number_column("docs"),
        number_column("screened"),
        number_column("estimate"),
        number_column("95 % interval"),
        number_column("over 0.5"),
    ]
    shown, more = _shown(found.sources, limit)
    rows = [
        [
            t.clean(one.name, _NAME_LIMIT) or "(all)",
            t.count(one.documents),
            t.ratio(one.screened),
            t.ratio(one.screen.value if one.screen else None),
            interval(one.screen),
            t.ratio(one.screen_positive),
        ]
        for one in (*shown, found.total)
    ]
    return [*table(columns, rows, width), *_more(more, width), *prose(_LEGEND, width)]


def _judged(found: Toxic, width: int, limit: int) -> list[str]:
    shown, more = _shown([one for one in found.sources if one.rate is not None], limit)
    places = [(one.name, one.rate) for one in shown]
    lines = _rate_table("source", [*places, ("(all)", found.total.rate)], width)
    lines += _more(more, width)
    if len(found.languages) > 1:
        lines += ["", *_rate_table("language", [(one.name, one.rate) for one in found.languages], width)]
    if len(found.classes) > 1:
        rates = [(one.name, one.rate) for one in found.classes]
        lines += ["", *_rate_table("class", rates, width, judged=False)]
    if found.at:
        parts = ", ".join(f"{t.ratio(one.rate.value)} at {one.name}" for one in found.at)
        lines += prose(
            f"A document is toxic when the judge's probability is 0.5 or more; with other bounds: {parts}.", width
        )
    return lines + judge_lines(found.judge, width)


def _rate_table(
    head: str, rates: Sequence[tuple[str, Estimate | None]], width: int, *, judged: bool = True
) -> list[str]:
    columns = [name_column(head), number_column("share"), number_column("95 % interval")]
    columns += [number_column("documents\njudged")] if judged else []
    rows = [
        [
            t.clean(name, _NAME_LIMIT),
            t.ratio(one.value if one else None),
            interval(one),
            *([t.count(one.documents if one else None)] if judged else []),
        ]
        for name, one in rates
    ]
    return table(columns, rows, width)


def _scope(name: str | None, records: Mapping[str, Metric]) -> ToxicScope:
    screened, positive, rate = (records.get(stat) for stat in ("screened_share", "screen_positive", "rate"))
    documents = screened.denominator if screened else rate.denominator if rate else 0
    return ToxicScope(
        name=name or "",
        documents=documents,
        screened=screened.value if screened else None,
        screen=estimate(records.get("screen")),
        screen_positive=positive.value if positive else None,
        rate=estimate(rate),
    )


def _rates(pairs: Any) -> tuple[ToxicClass, ...]:
    found = [ToxicClass(name=name, rate=rate) for name, record in pairs if (rate := estimate(record))]
    return tuple(sorted(found, key=lambda one: (-(one.rate.value or 0.0), one.name)))


def _sorted(found: Sequence[ToxicScope]) -> tuple[ToxicScope, ...]:
    return tuple(sorted(found, key=lambda one: (-one.documents, one.name)))


def _shown(found: Sequence[ToxicScope], limit: int) -> tuple[Sequence[ToxicScope], int]:
    """Return the first scopes, and how many more there are; a single one stands for the total."""
    if len(found) < 2:
        return [], 0
    shown = found if len(found) <= limit + 1 else found[:limit]
    return shown, len(found) - len(shown)


def _more(number: int, width: int) -> list[str]:
    return prose(f"and {t.plural(number, 'more source')}; --json lists all", width) if number else []


def _only(scope: Scope, name: str) -> bool:
    return list(scope.as_dict()) == [name]
