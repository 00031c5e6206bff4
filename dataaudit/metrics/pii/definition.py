"""Personal data: what patterns find in every document, and what presidio finds in a sample."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    Bar,
    Block,
    Figure,
    Prose,
    Section,
    bars,
    column,
    empty_section,
    named,
    table_of,
)
from dataaudit.base.render.line import Line, Name, join, rate, say, share
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.disclosure import FEW, ROUNDED, SHARED, Count, count_cell
from dataaudit.metrics.family import (
    CLASSES,
    TIERS,
    Family,
    KindColumn,
    ShardColumn,
    ShardStatistic,
    declare,
    found_of,
    pattern_checks,
    pattern_statistics,
    statistics,
)
from dataaudit.metrics.judged import Judge, estimate, interval, judge_of, not_judged, nothing_judged, number, rests_on
from dataaudit.metrics.pii.cells import JUDGED, METRIC, few_judged, pii_cells
from dataaudit.metrics.recomputed import Number, of_shard, quotient
from dataaudit.metrics.records import Records, by_scope, of_findings, records_in
from dataaudit.metrics.records import number as count_of
from dataaudit.metrics.shown import LONG, MANY, NAMED, SHORT, Highlight, Kind, Part, Shown, cut_short, not_looked_at

DETECTOR, ANALYZER = "pii", "presidio"
_HITS = "hits per million tokens"
_JUDGED = frozenset({"analyzer_documents", "analyzer_hits", "confirmed", "judge_reads", "judged_share"})


def _decided_by(stat: str) -> Collection[str]:
    return (ANALYZER,) if stat in _JUDGED else (DETECTOR,)


_SHIPPED = """
    ABA_ROUTING_NUMBER AU_MEDICARE AU_TFN BE_NATIONAL_NUMBER BR_CPF CA_SIN CH_AHV CL_RUT CN_RESIDENT_ID CREDIT_CARD
    CRYPTO DATE_OF_BIRTH DE_TAX_ID EMAIL_ADDRESS ES_NIF FI_PERSONAL_IDENTITY_CODE FR_NIR HR_OIB IBAN_CODE IE_PPS
    IN_AADHAAR IN_PAN IP_ADDRESS IT_FISCAL_CODE KR_RRN MAC_ADDRESS MEDICAL_LICENSE MX_CURP NL_BSN NO_BIRTH_NUMBER
    PASSPORT PHONE_NUMBER PL_PESEL PT_NIF SE_PERSONNUMMER SG_NRIC_FIN STREET_ADDRESS TH_TNIN TR_NATIONAL_ID UK_NHS
    UK_NINO US_BANK_NUMBER US_DRIVER_LICENSE US_ITIN US_PASSPORT US_SSN ZA_ID_NUMBER
"""
ENTITIES = frozenset(_SHIPPED.split())
"""What the shipped patterns look for; a config may add to it."""

FAMILY = Family(
    name="pii",
    metrics=(
        declare(
            METRIC,
            pattern_statistics(hits=_HITS, documents="ratio", draws="documents"),
            statistics("analyzer_documents", "ratio", CLASSES),
            statistics("analyzer_hits", _HITS, CLASSES),
            statistics(
                "confirmed",
                "ratio",
                "all, entity, split and entity, source and entity, split and source and entity, language and entity",
            ),
            statistics("judge_reads judged_share", "ratio", "all"),
            statistics("judge_failed judge_partly", "documents", "all"),
            in_words=True,
            reading=3,
            evidence=ShardColumn(
                column="pii_documents",
                noun="documents with personal data",
                share_of="",
                least=5,
                kinds=KindColumn("pii", "documents", "documents with such personal data"),
            ),
            documents=of_findings(DETECTOR, ("analyzer_documents", "analyzer_hits"), judge=ANALYZER),
            decided_by=_decided_by,
            searches_with=DETECTOR,
            entities=ENTITIES,
            area="privacy",
            personal=True,
            columns=(
                ShardStatistic("hits", "pii_hits", of="tokens", head="PII per 1M tokens", shown_as="few"),
                ShardStatistic("documents", "pii_documents", per_document=True),
            ),
        ),
    ),
    stage="dataaudit.metrics.pii.stage:Pii",
    stage_name="pii",
    detector="pii",
    link="dataaudit.metrics.pii.stage:personal_data",
    by_split=("found", "strata"),
    config="pii",
    checked_with=("findings", "shards"),
    checks=(
        *pattern_checks(METRIC, DETECTOR, "tokens", "pii"),
        of_shard("pii_documents", found_of(DETECTOR, "documents")),
        of_shard("pii_hits", quotient(found_of(DETECTOR, "hits"), Number("shards", "tokens"), 1e6)),
    ),
    looked_for=True,
)

_TITLE = "Personal data"
_BARS, _KINDS = 15, 3
_HOW = (
    "set `pii: {analyzer: presidio}` in the config, with `model` for names, places and organisations;"
    " `dataaudit doctor` says what that needs"
)


@once
def personal_data(manifest: Manifest) -> dict[str, Any] | None:
    """Return personal data in numbers that may be shown; None when it was not looked for.

    ``entities`` and ``sources`` have the most documents first, hidden counts last. The empty name of an entity stands
    for all, in the sample for any. ``judge`` is None when no sample was asked for.
    """
    cells = pii_cells(manifest)
    if cells is None:
        return None
    records = by_scope(records_in(manifest, METRIC, (), ("entity",)))
    wide = {scope.entity or "": own for scope, own in records.items() if scope == Scope(entity=scope.entity)}

    def kind(name: str, count: Count, tiers: dict[str, Count]) -> dict[str, Any]:
        return {"entity": name, "found": count, "tiers": tiers, "reserved": count_of(wide[name], "reserved")}

    entities = [
        kind(name, count, {tier: cells.tiers[name, tier] for tier in TIERS}) for name, count in cells.entities.items()
    ]
    sources = [{"source": name, "found": count} for name, count in cells.sources.items()]
    whole = wide[""]
    hidden = few_judged(manifest) | {name for name, count in cells.entities.items() if count.suppressed}
    counts = [*cells.entities.values(), *cells.tiers.values(), *cells.sources.values()]
    judge = judge_of(manifest, "presidio", whole, "analyzer_documents") if "analyzer_documents" in whole else None
    return {
        "total": kind("", cells.total, cells.total_by_tier),
        "entities": sorted(entities, key=lambda item: (*_most(item["found"]), item["entity"])),
        "sources": sorted(sources, key=lambda item: (*_most(item["found"]), item["source"])),
        "truncated": count_of(whole, "truncated"),
        "judge": judge,
        "sample": _sample(wide, hidden),
        "suppressed": any(count.suppressed for count in counts),
    }


def section(result: dict[str, Any] | None) -> Section:
    """Return personal data by kind and source, and what presidio found in a sample; small counts are left out."""
    if result is None:
        return empty_section("privacy", _TITLE, "Personal data was not searched for in this build.")
    blocks: list[Block] = [_entities(result), *_sources(result["sources"]), *cut_short(result["truncated"])]
    if result["suppressed"]:
        blocks.append(Prose(text=SHARED, tone="quiet"))
    if result["judge"] is not None:
        blocks += _judged(result["sample"], result["judge"])
    return Section(id="privacy", title=_TITLE, lead=_lead(result["total"]["found"]), blocks=tuple(blocks))


def _lead(total: Count) -> Line:
    if total.suppressed:
        return "There is so little personal data that no number of it is shown."
    if not total.documents:
        return "No personal data was found."
    many = t.plural(total.documents, "document")
    return say("{} ({}) hold some: {} hits per million tokens.", many, share(total.share), rate(total.per_million))


def _per_million(item: dict[str, Any]) -> Line:
    return rate(item["found"].per_million)


def _documents(item: dict[str, Any]) -> Line:
    return count_cell(item["found"], item["found"].documents)


def _entities(result: dict[str, Any]) -> Block:
    def hits(tier: str) -> Callable[[dict[str, Any]], Line]:
        return lambda item: count_cell(item["tiers"][tier], item["tiers"][tier].hits)

    table = table_of(
        "Personal data by kind",
        result["entities"],
        column("kind", "entity", named),
        column("hits per 1M tokens", _per_million),
        column("documents", _documents),
        *(column(tier, hits(tier)) for tier in TIERS),
        column("reserved"),
        foot=[result["total"]] if result["entities"] else [],
        noun="kind",
        note="documents: those that hold some; validated, contextual, pattern: hits by how sure they are; reserved:"
        " hits that are examples or test values, in no other number.",
        empty="None was found.",
    )
    shown = [item for item in result["entities"] if not item["found"].suppressed and item["found"].per_million][:_BARS]
    if not shown:
        return table
    made = (
        Bar(Name(item["entity"]), item["found"].per_million, say("{} per million tokens", _per_million(item)))
        for item in shown
    )
    return Figure(
        id="chart-privacy",
        title="Hits per million tokens by kind",
        table=table,
        chart=bars("hits per million tokens", made),
    )


def _sources(sources: Sequence[dict[str, Any]]) -> list[Block]:
    holding = [item for item in sources if item["found"].suppressed or item["found"].documents]
    if len(sources) < 2 or not holding:
        return []
    return [
        table_of(
            "Personal data by source",
            holding,
            column("source", shown=Name),
            column("hits per 1M tokens", _per_million),
            column("hits", lambda item: count_cell(item["found"], item["found"].hits)),
            column("documents", _documents),
            column("share of documents", lambda item: share(item["found"].share)),
            noun="source",
            note=f"Numbers {ROUNDED}.",
        )
    ]


def _judged(sample: Sequence[dict[str, Any]], judge: Judge) -> list[Block]:
    if judge.reason:
        return [not_judged(judge, _HOW)]
    seen = [item for item in sample if not item["entity"] or (item["documents"] and item["documents"].value)]
    few = sum(item["documents"] is not None and item["documents"].suppressed for item in sample)
    absent = len(sample) - len(seen) - few
    notes = [
        f"In fewer than {FEW} sampled documents, or hidden above: {t.plural(few, 'further kind')}." if few else "",
        f"Not in the sample: {t.plural(absent, 'further kind')}." if absent else "",
        "confirmed: of what the patterns alone are not sure of, the share that presidio confirms."
        if any(item["confirmed"] for item in seen)
        else "",
    ]
    table = table_of(
        "Personal data in a sample, by presidio",
        seen,
        column("kind", lambda item: Name(item["entity"]) if item["entity"] else "(any)", kind="name"),
        column("share of documents", "documents", number),
        column("95 % interval", "documents", interval),
        column("hits per 1M tokens", lambda item: number(item["hits"], "rate")),
        column("95 % interval", lambda item: interval(item["hits"], "rate")),
        column("confirmed", shown=number),
        noun="kind",
        note=" ".join(filter(None, notes)),
        folded=True,
    )
    return [table, Prose(text=rests_on(judge), tone="quiet")]


def _sample(wide: Mapping[str, Records], hidden: Collection[str]) -> list[dict[str, Any]]:
    """Return the shares of documents, hits and confirmed findings that presidio estimates, any kind first."""
    stats = dict(zip(("documents", "hits", "confirmed"), JUDGED, strict=True))
    result = [
        {"entity": name, **{part: estimate(own.get(stat), hidden=name in hidden) for part, stat in stats.items()}}
        for name, own in wide.items()
        if {"analyzer_documents", "confirmed"} & own.keys() and (name or "judge_reads" in own)
    ]

    def order(item: dict[str, Any]) -> tuple[bool, float, str]:
        return bool(item["entity"]), -(number(item["documents"]).value or 0.0), item["entity"]

    return sorted(result, key=order)


def _most(result: Count) -> tuple[bool, int]:
    return result.suppressed, -(result.documents or 0)


def _counted(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the kinds whose documents are some and may be published."""
    return [item for item in result["entities"] if item["found"].documents and not item["found"].suppressed]


def _highlights(manifest: Manifest) -> Iterator[Highlight]:
    result = personal_data(manifest)
    if result is None:
        return
    total = result["total"]["found"]
    if not total.suppressed and (total.share or 0.0) > MANY:
        kinds = join(
            ", ",
            (
                say("{} {}", Name(item["entity"], SHORT, ends=True), item["found"].documents)
                for item in _counted(result)[:_KINDS]
            ),
        )
        listed = say(": {}", kinds) if kinds.parts else ""
        text = say("{} of documents hold personal data{}", share(total.share), listed)
        yield Highlight(kind=Kind.PERSONAL_DATA, part="pii", size=total.share or 0.0, text=text)
    if result["truncated"]:
        yield not_looked_at("pii", result["truncated"])
    if result["judge"] is not None:
        yield from nothing_judged("pii", result["judge"])


def _sentences(manifest: Manifest) -> Iterator[Line]:
    """Yield what patterns found; numbers that would point at people are left out."""
    result = personal_data(manifest)
    if result is None or not result["entities"]:
        yield "Personal data was not searched for." if result is None else "Patterns for personal data found none."
        return
    counted = _counted(result)
    for item in counted[:NAMED]:
        count = item["found"]
        part = "" if count.share is None else say(", {} of all", share(count.share))
        documents = t.plural(count.documents, "document")
        yield say("{}: in {}{}, as patterns find it.", Name(item["entity"], LONG), documents, part)
    if few := sum(item["found"].suppressed for item in result["entities"]):
        yield f"{t.plural(few, 'further kind')} of personal data: in so few documents that no number is given."
    if len(counted) > NAMED:
        yield f"{t.plural(len(counted) - NAMED, 'further kind')} of personal data."
    yield "What no pattern knows, names of people among it, is in no number."


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="pii", area="privacy", blocks=lambda manifest: [section(personal_data(manifest))]),),
    highlights=_highlights,
    facts={"personal_data": personal_data},
)
