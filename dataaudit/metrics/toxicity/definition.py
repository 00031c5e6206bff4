"""Toxicity: what a screen estimates of every document, and a judge of a sample.

Toxic documents as people read them: the screen's estimate of every document, the judge's rate from a sample.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    Bar,
    Block,
    Figure,
    Prose,
    Row,
    Section,
    Table,
    bars,
    names,
    numbers,
    rows_of,
    words,
)
from dataaudit.base.render.line import Line, Name, join, say, share
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import SCREEN_ALONE, Scope
from dataaudit.metrics.family import (
    CLASSES,
    JUDGE,
    LANGUAGE_DETECTION,
    SOURCES,
    Broken,
    Family,
    MetricDefinition,
    ShardColumn,
    ShardStatistic,
    Tables,
    statistics,
)
from dataaudit.metrics.judged import (
    Estimate,
    Judge,
    estimate,
    estimated,
    interval,
    judge_of,
    not_judged,
    nothing_judged,
    number,
    rests_on,
)
from dataaudit.metrics.recomputed import Follows, Number, product
from dataaudit.metrics.records import Records, by_scope, of_judge, only, records_in
from dataaudit.metrics.shown import LONG, MANY, Kind, Part, Shown, Standout

METRIC = "data_toxicity_rate"
SCREEN = "dataaudit-screen"
_OTHERS = frozenset({"pii", "secrets", "presidio"})
"""Detectors of other families."""
_SCREENED = frozenset({"screen", "screen_positive", "screened_share"})


def _decided_by(stat: str) -> Collection[str]:
    """The screen looks at documents of the languages that it knows."""
    return (SCREEN, LANGUAGE_DETECTION) if stat in _SCREENED else (JUDGE,)


def _documents(case: Broken, tables: Tables) -> pa.Table | None:
    """The screen keeps no rows, only a mean of each shard."""
    return None if case.stat in _SCREENED else of_judge(case, tables, patterns=_OTHERS)


_JUDGED = Number("shards", "toxicity_screened")
_ESTIMATE = Number("shards", product("toxicity_screen", "toxicity_screened", scale=1e6))

FAMILY = Family(
    name="toxicity",
    metrics=(
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=(
                *statistics(METRIC, "screened_share screen_positive", "ratio", SOURCES, draws="documents"),
                *statistics(METRIC, "screen", "ratio", SOURCES),
                *statistics(METRIC, "rate", "ratio", CLASSES),
                *statistics(
                    METRIC, "rate_at_0.1 rate_at_0.25 rate_at_0.75 rate_at_0.9", "ratio", f"{SOURCES}, language"
                ),
                *statistics(METRIC, "judge_reads judged_share", "ratio", "all"),
                *statistics(METRIC, "judge_failed judge_partly", "documents", "all"),
            ),
            reading=4,
            evidence=ShardColumn(column="toxicity_screen", noun="documents that the screen classifies as toxic"),
            documents=_documents,
            decided_by=_decided_by,
            area="toxicity",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC,
            stat="screen",
            column="toxicity_screen",
            of="toxicity_screened",
            estimated=True,
            head="toxic, screen",
            spare=True,
            compared=True,
        ),
    ),
    stage="dataaudit.metrics.toxicity.stage:Toxicity",
    stage_name="toxicity",
    link="dataaudit.metrics.toxicity.stage:toxic_documents",
    by_split=("strata", "scores"),
    config="toxicity",
    shown="dataaudit.metrics.toxicity.definition:SHOWN",
    checked_with=("shards",),
    checks=(
        Follows(METRIC, "screened_share", _JUDGED, Number("shards", "documents")),
        Follows(METRIC, "screen", _ESTIMATE, _JUDGED, adds_up=False),
    ),
    looked_for=True,
)

_TITLE = "Toxicity"
_BARS = 15
_AT = "rate_at_"
_LEGEND = (
    "screened: share of documents that the screen can judge (others are in languages that it does not know, or have no"
    " word); estimate: the screen's mean calibrated probability, right as far as its calibration holds for this"
    " corpus, which nothing in the corpus tells: so there is no interval; over 0.5: share that it classifies as toxic."
)
_IS_NOT = (
    "What this number is not: it is no rate of this corpus. It is calibrated on comments, and on other text it was"
    " measured to be off by a third and more. It knows words, not meaning: hate without slurs is not in it, and slurs"
    " that are quoted are. Compare it with that of another build; for a rate with an interval have a sample judged."
)
NO_INTERVAL = "no interval: screen not judged"
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


@once
def toxic(manifest: Manifest) -> Toxic | None:
    """Return the toxicity of a manifest; None when it was not looked for."""
    records = by_scope(records_in(manifest, METRIC, (), ("source",), ("language",), ("entity",)))
    whole = records.get(Scope())
    if whole is None or "screened_share" not in whole:
        return None
    sources = [_scope(scope.source, held) for scope, held in records.items() if only(scope, "source")]
    languages = [_scope(scope.language, held) for scope, held in records.items() if only(scope, "language")]
    return Toxic(
        total=_scope("", whole),
        sources=_sorted(sources),
        languages=_sorted(languages),
        classes=_rates((scope.entity, held.get("rate")) for scope, held in records.items() if only(scope, "entity")),
        at=tuple(
            ToxicClass(name=stat.removeprefix(_AT), rate=found)
            for stat, record in sorted(whole.items())
            if stat.startswith(_AT) and (found := estimate(record))
        ),
        judge=judge_of(manifest, "detoxify", whole, "rate"),
    )


def section(found: Toxic | None) -> Section:
    """Return the screen's estimate of every document, and the judge's rates of a sample."""
    if found is None:
        return Section(id="toxicity", title=_TITLE, lead="Toxicity was not measured in this build.", tone="quiet")
    judged = not found.judge.reason
    who = f"A judge of {t.plural(found.judge.judged, 'sampled document')}" if judged else "The screen"
    chosen = _chosen(found.total, judged=judged)
    shown = estimated(chosen) if judged else say("{} ({})", number(chosen), NO_INTERVAL)
    lead = say("{} estimates {} of the documents to be toxic.", who, shown)
    table = _screened(found, judged=judged)
    blocks: list[Block] = [table if judged else _charted(found, table, judged=False), Prose(text=_IS_NOT, tone="quiet")]
    blocks += _judged(found) if judged else [not_judged(found.judge, _HOW)]
    return Section(id="toxicity", title=_TITLE, lead=lead, blocks=tuple(blocks))


def _chosen(toxic_scope: ToxicScope, *, judged: bool) -> Estimate | None:
    return toxic_scope.rate if judged else toxic_scope.screen


def _screened(found: Toxic, *, judged: bool) -> Table:
    def row(toxic_scope: ToxicScope) -> Row:
        name = Name(toxic_scope.name) if toxic_scope.name else "(all)"
        cells = (
            name,
            toxic_scope.documents,
            share(toxic_scope.screened),
            number(toxic_scope.screen),
            share(toxic_scope.screen_positive),
        )
        return (
            cells
            if judged
            else (*cells, None if toxic_scope.screen is None or toxic_scope.screen.value is None else NO_INTERVAL)
        )

    return Table(
        title="Toxic documents by source, by the screen",
        columns=(
            *names("source"),
            *numbers("documents", "screened", "estimate", "over 0.5"),
            *(() if judged else words("95 % interval")),
        ),
        **rows_of(found.sources if len(found.sources) > 1 else (), row),
        foot=(row(found.total),),
        noun="source",
        note=_LEGEND,
    )


def _charted(found: Toxic, table: Table, *, judged: bool) -> Block:
    """Return a table with the chart of its estimates; the table alone where there is none."""
    chosen = [(toxic_scope, _chosen(toxic_scope, judged=judged)) for toxic_scope in (*found.sources, found.total)]
    note = "Judged in a sample; lines are 95 % intervals." if judged else f"By the screen alone; {NO_INTERVAL}."
    made = [
        Bar(Name(toxic_scope.name) if toxic_scope.name else "(all)", own.value, estimated(own), span=_span(own))
        for toxic_scope, own in chosen
        if own is not None and own.value is not None
    ]
    if not made:
        return table
    return Figure(
        id="chart-toxicity",
        title="Share of toxic documents by source",
        table=table,
        chart=bars("share of documents", made[:_BARS], percent=True),
        note=note,
    )


def _span(item: Estimate) -> tuple[float, float] | None:
    return None if item.low is None or item.high is None else (item.low, item.high)


def _judged(found: Toxic) -> list[Block]:
    def row(scope: ToxicScope | ToxicClass) -> Row:
        documents = None if scope.rate is None else scope.rate.documents
        return Name(scope.name) if scope.name else "(all)", number(scope.rate), interval(scope.rate), documents

    def table(kind: str, rates: Sequence[ToxicScope | ToxicClass], foot: tuple[Row, ...] = ()) -> Table:
        columns = (*names(kind), *numbers("share", "95 % interval", "documents judged"))
        title, folded = f"Toxic documents by {kind}, judged in a sample", not foot
        return Table(title=title, columns=columns, **rows_of(rates, row), foot=foot, noun=kind, folded=folded)

    sources = [toxic_scope for toxic_scope in found.sources if toxic_scope.rate is not None]
    by_source = table("source", sources if len(sources) > 1 else (), (row(found.total),))
    blocks: list[Block] = [_charted(found, by_source, judged=True)]
    blocks += [table("language", found.languages)] if len(found.languages) > 1 else []
    blocks += [table("class", found.classes)] if len(found.classes) > 1 else []
    if found.at:
        parts = join(
            ", ", (say("{} at {}", number(toxic_class.rate), Name(toxic_class.name)) for toxic_class in found.at)
        )
        text = say("A document is toxic when the judge's probability is 0.5 or more; with other bounds: {}.", parts)
        blocks.append(Prose(text=text, tone="quiet"))
    return [*blocks, Prose(text=rests_on(found.judge), tone="quiet")]


def _scope(name: str | None, records: Records) -> ToxicScope:
    screened, positive, rate = (records.get(stat) for stat in ("screened_share", "screen_positive", "rate"))
    documents = screened.denominator if screened else rate.denominator if rate else 0
    return ToxicScope(
        name=name or "",
        documents=documents,
        screened=screened.value if screened else None,
        screen=_of_screen(estimate(records.get("screen"))),
        screen_positive=positive.value if positive else None,
        rate=estimate(rate),
    )


def _of_screen(found: Estimate | None) -> Estimate | None:
    """Return the screen's estimate without the bounds of its calibration, which older manifests hold."""
    if found is None or found.value is None:
        return found
    return replace(found, low=None, high=None, reason=SCREEN_ALONE)


def _rates(pairs: Any) -> tuple[ToxicClass, ...]:
    found = [ToxicClass(name=name, rate=rate) for name, record in pairs if (rate := estimate(record))]
    return tuple(sorted(found, key=lambda item: (-(item.rate.value or 0.0), item.name)))


def _sorted(found: Sequence[ToxicScope]) -> tuple[ToxicScope, ...]:
    return tuple(sorted(found, key=lambda item: (-item.documents, item.name)))


def _standouts(manifest: Manifest) -> Iterator[Standout]:
    found = toxic(manifest)
    if found is None:
        return
    judged = not found.judge.reason
    scopes = [toxic_scope for toxic_scope in (*found.sources, found.total) if _least(toxic_scope, judged=judged) > MANY]
    if scopes:
        most = max(scopes, key=lambda scope: (_least(scope, judged=judged), scope.documents))
        rate, reads = _chosen(most, judged=judged), found.judge.reads if judged else most.screened
        bounds = say(" ({})", interval(rate) if judged else NO_INTERVAL)
        who = "judged" if judged else "screened"
        yield Standout(
            kind=Kind.TOXICITY,
            part="toxicity",
            size=_least(most, judged=judged),
            place=most.name,
            text=say("{} toxic{}, of {} {}", number(rate), bounds, share(reads), who),
        )
    yield from nothing_judged("toxicity", found.judge)


def _least(scope: ToxicScope, *, judged: bool) -> float:
    """Return the lower bound of a rate; the rate itself without one."""
    rate = _chosen(scope, judged=judged)
    if rate is None or rate.value is None:
        return 0.0
    return rate.value if rate.low is None else rate.low


def _sentences(manifest: Manifest) -> Iterator[Line]:
    found = toxic(manifest)
    if found is None:
        return
    total = found.total
    if total.rate is not None and total.rate.value is not None:
        judge = Name(found.judge.name or "", LONG)
        text = "{} of the documents are toxic, by {} on a sample ({})."
        yield say(text, number(total.rate), judge, interval(total.rate))
    elif total.screen_positive is not None:
        text = (
            "A screen classifies {} of the documents that it can judge ({} of all) as toxic; no judge has scored them,"
            " and how far off it is is not known."
        )
        yield say(text, share(total.screen_positive), share(total.screened))


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="toxicity", area="toxicity", blocks=lambda manifest: [section(toxic(manifest))]),),
    standouts=_standouts,
    facts={"toxicity": toxic},
)
