"""Toxicity: what a screen estimates of every document, and a judge of a sample."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    Bar,
    Block,
    Figure,
    Prose,
    Section,
    Table,
    bars,
    column,
    empty_section,
    named,
    table_of,
)
from dataaudit.base.render.line import Line, Name, join, say, share
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import SCREEN_ALONE, Metric, Scope
from dataaudit.metrics.family import (
    CLASSES,
    JUDGE,
    LANGUAGE_DETECTION,
    SOURCES,
    Broken,
    Family,
    ShardColumn,
    ShardStatistic,
    Tables,
    declare,
    statistics,
)
from dataaudit.metrics.judged import (
    Estimate,
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
from dataaudit.metrics.shown import LONG, MANY, Highlight, Kind, Part, Shown

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
        declare(
            METRIC,
            statistics("screened_share screen_positive", "ratio", SOURCES, draws="documents"),
            statistics("screen", "ratio", SOURCES),
            statistics("rate", "ratio", CLASSES),
            statistics("rate_at_0.1 rate_at_0.25 rate_at_0.75 rate_at_0.9", "ratio", f"{SOURCES}, language"),
            statistics("judge_reads judged_share", "ratio", "all"),
            statistics("judge_failed judge_partly", "documents", "all"),
            in_words=True,
            reading=4,
            evidence=ShardColumn(column="toxicity_screen", noun="documents that the screen classifies as toxic"),
            documents=_documents,
            decided_by=_decided_by,
            area="toxicity",
            columns=(
                ShardStatistic(
                    "screen",
                    "toxicity_screen",
                    of="toxicity_screened",
                    estimated=True,
                    head="toxic, screen",
                    spare=True,
                    compared=True,
                ),
            ),
        ),
    ),
    stage="dataaudit.metrics.toxicity.stage:Toxicity",
    stage_name="toxicity",
    kernels=("toxic",),
    link="dataaudit.metrics.toxicity.stage:toxic_documents",
    by_split=("strata", "scores"),
    config="toxicity",
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


@once
def toxic(manifest: Manifest) -> dict[str, Any] | None:
    """Return the toxicity of a manifest; None when it was not looked for.

    Sources and judged languages have the most documents first; ``classes`` of the judge the most frequent first; ``at``
    is the share of documents by the lowest probability that the judge gives them.
    """
    records = by_scope(records_in(manifest, METRIC, (), ("source",), ("language",), ("entity",)))
    whole = records.get(Scope())
    if whole is None or "screened_share" not in whole:
        return None
    sources = [_scope(scope.source, own) for scope, own in records.items() if only(scope, "source")]
    languages = [_scope(scope.language, own) for scope, own in records.items() if only(scope, "language")]
    classes = [_rate(scope.entity, own.get("rate")) for scope, own in records.items() if only(scope, "entity")]
    at = [_rate(stat.removeprefix(_AT), record) for stat, record in sorted(whole.items()) if stat.startswith(_AT)]
    return {
        "total": _scope("", whole),
        "sources": sorted(sources, key=_by_documents),
        "languages": sorted(languages, key=_by_documents),
        "classes": sorted(filter(None, classes), key=lambda item: (-(item["rate"].value or 0.0), item["name"])),
        "at": list(filter(None, at)),
        "judge": judge_of(manifest, "detoxify", whole, "rate"),
    }


def _scope(name: str | None, records: Records) -> dict[str, Any]:
    """Return the toxicity of a source or language, or of all: what the screen estimates, and the judge of a sample.

    ``documents`` of a language are those in languages that the judge reads; ``screened`` is the share of documents that
    the screen can judge, ``screen`` its mean over these, ``screen_positive`` the share that it classifies as toxic.
    """
    screened, positive, rate = (records.get(stat) for stat in ("screened_share", "screen_positive", "rate"))
    sized = screened or rate
    return {
        "name": name or "",
        "documents": sized.denominator if sized else 0,
        "screened": screened.value if screened else None,
        "screen": _of_screen(estimate(records.get("screen"))),
        "screen_positive": positive.value if positive else None,
        "rate": estimate(rate),
    }


def _of_screen(screen: Estimate | None) -> Estimate | None:
    """Return the screen's estimate without the bounds of its calibration, which older manifests hold."""
    if screen is None or screen.value is None:
        return screen
    return replace(screen, low=None, high=None, reason=SCREEN_ALONE)


def _rate(name: str | None, record: Metric | None) -> dict[str, Any] | None:
    return None if record is None else {"name": name, "rate": estimate(record)}


def _by_documents(item: dict[str, Any]) -> tuple[int, str]:
    return -item["documents"], item["name"]


def section(result: dict[str, Any] | None) -> Section:
    """Return the screen's estimate of every document, and the judge's rates of a sample."""
    if result is None:
        return empty_section("toxicity", _TITLE, "Toxicity was not measured in this build.")
    judge, best = result["judge"], result["total"][_best(result)]
    who = "The screen" if judge.reason else f"A judge of {t.plural(judge.judged, 'sampled document')}"
    value = say("{} ({})", number(best), NO_INTERVAL) if judge.reason else estimated(best)
    lead = say("{} estimates {} of the documents to be toxic.", who, value)
    if best is None or best.value is None:
        lead = say("{} could read none of the documents: how many are toxic is not known.", who)
    table = _screened(result)
    blocks: list[Block] = [_charted(result, table) if judge.reason else table, Prose(text=_IS_NOT, tone="quiet")]
    blocks += [not_judged(judge, _HOW)] if judge.reason else _judged(result)
    return Section(id="toxicity", title=_TITLE, lead=lead, blocks=tuple(blocks))


def _best(result: dict[str, Any]) -> str:
    """Return the field of the best estimate: the judge's where it judged."""
    return "screen" if result["judge"].reason else "rate"


def _screened(result: dict[str, Any]) -> Table:
    def bounds(screen: Estimate | None) -> Line:
        return None if screen is None or screen.value is None else NO_INTERVAL

    return table_of(
        "Toxic documents by source, by the screen",
        result["sources"] if len(result["sources"]) > 1 else (),
        column("source", "name", named),
        column("documents"),
        column("screened", shown=share),
        column("estimate", "screen", number),
        column("over 0.5", "screen_positive", share),
        *([column("95 % interval", "screen", bounds, "word")] if result["judge"].reason else []),
        foot=[result["total"]],
        noun="source",
        note=_LEGEND,
    )


def _charted(result: dict[str, Any], table: Table) -> Block:
    """Return a table with the chart of its estimates; the table alone where there is none."""
    best = _best(result)
    known = [item for item in (*result["sources"], result["total"]) if item[best] and item[best].value is not None]
    if not known:
        return table
    made = [Bar(named(item["name"]), item[best].value, estimated(item[best]), span=item[best].span) for item in known]
    return Figure(
        id="chart-toxicity",
        title="Share of toxic documents by source",
        table=table,
        chart=bars("share of documents", made[:_BARS], percent=True),
        note=f"By the screen alone; {NO_INTERVAL}."
        if result["judge"].reason
        else "Judged in a sample; lines are 95 % intervals.",
    )


def _judged(result: dict[str, Any]) -> list[Block]:
    def table(kind: str, rates: Sequence[dict[str, Any]], *foot: dict[str, Any]) -> Table:
        return table_of(
            f"Toxic documents by {kind}, judged in a sample",
            rates,
            column(kind, "name", named),
            column("share", "rate", number),
            column("95 % interval", "rate", interval),
            column("documents judged", lambda item: item["rate"] and item["rate"].documents),
            foot=foot,
            noun=kind,
            folded=not foot,
        )

    sources = [item for item in result["sources"] if item["rate"] is not None]
    by_source = table("source", sources if len(sources) > 1 else (), result["total"])
    blocks: list[Block] = [_charted(result, by_source)]
    blocks += [table("language", result["languages"])] if len(result["languages"]) > 1 else []
    blocks += [table("class", result["classes"])] if len(result["classes"]) > 1 else []
    if result["at"]:
        parts = join(", ", (say("{} at {}", number(item["rate"]), Name(item["name"])) for item in result["at"]))
        text = say("A document is toxic when the judge's probability is 0.5 or more; with other bounds: {}.", parts)
        blocks.append(Prose(text=text, tone="quiet"))
    return [*blocks, Prose(text=rests_on(result["judge"]), tone="quiet")]


def _highlights(manifest: Manifest) -> Iterator[Highlight]:
    result = toxic(manifest)
    if result is None:
        return
    best, judge = _best(result), result["judge"]

    def least(item: dict[str, Any]) -> float:
        """Return the lower bound of a rate; the rate itself without a bound."""
        rate = item[best]
        if rate is None or rate.value is None:
            return 0.0
        bound: float = rate.value if rate.low is None else rate.low
        return bound

    if scopes := [item for item in (*result["sources"], result["total"]) if least(item) > MANY]:
        usual = least(result["total"])
        most = max(scopes, key=lambda item: ((least(item) - usual) * item["documents"], item["documents"]))
        bounds = say(" ({})", NO_INTERVAL if judge.reason else interval(most[best]))
        of = say("{} screened", share(most["screened"])) if judge.reason else say("{} judged", share(judge.reads))
        yield Highlight(
            kind=Kind.TOXICITY,
            part="toxicity",
            size=least(most),
            place=most["name"],
            text=say("{} toxic{}, of {}", number(most[best]), bounds, of),
        )
    documents = result["total"]["documents"]
    if result["total"]["screened"] == 0 < documents and not judge.judged:
        text = say("none of {} screened: in no language that the screen reads", t.plural(documents, "document"))
        yield Highlight(kind=Kind.NOT_LOOKED_AT, part="toxicity", size=documents, text=text)
    yield from nothing_judged("toxicity", judge)


def _sentences(manifest: Manifest) -> Iterator[Line]:
    result = toxic(manifest)
    if result is None:
        return
    total = result["total"]
    if total["rate"] is not None and total["rate"].value is not None:
        judge = Name(result["judge"].name or "", LONG)
        text = "{} of the documents are toxic, by {} on a sample ({})."
        yield say(text, number(total["rate"]), judge, interval(total["rate"]))
    elif total["screen_positive"] is not None:
        text = (
            "A screen classifies {} of the documents that it can judge ({} of all) as toxic; no judge has scored them,"
            " and how far off it is is not known."
        )
        yield say(text, share(total["screen_positive"]), share(total["screened"]))


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="toxicity", area="toxicity", blocks=lambda manifest: [section(toxic(manifest))]),),
    highlights=_highlights,
    facts={"toxicity": toxic},
)
