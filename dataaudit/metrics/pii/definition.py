"""Personal data: what patterns find in every document, and what presidio finds in a sample.

Personal data as people read it: what the patterns found in every document, and what presidio found in a sample.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Bar, Block, Figure, Prose, Row, Section, Table, bars, names, numbers, rows_of
from dataaudit.base.render.line import Line, Name, join, rate, say, share
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.disclosure import FEW, ROUNDED, SHARED, Count, count_cell
from dataaudit.metrics.family import (
    CLASSES,
    TIERS,
    Family,
    MetricDefinition,
    ShardColumn,
    ShardStatistic,
    found_of,
    pattern_checks,
    pattern_statistics,
    statistics,
)
from dataaudit.metrics.judged import (
    Estimate,
    Judge,
    estimate,
    interval,
    judge_of,
    not_judged,
    nothing_judged,
    number,
    rests_on,
)
from dataaudit.metrics.pii.cells import JUDGED, METRIC, few_judged, pii_cells
from dataaudit.metrics.recomputed import Number, of_shard, quotient
from dataaudit.metrics.records import Records, by_scope, of_findings, records_in
from dataaudit.metrics.records import number as count_of
from dataaudit.metrics.shown import LONG, MANY, NAMED, SHORT, Kind, Part, Shown, Standout, not_looked_at

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
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=(
                *pattern_statistics(METRIC, hits=_HITS, documents="ratio", draws="documents"),
                *statistics(METRIC, "analyzer_documents", "ratio", CLASSES),
                *statistics(METRIC, "analyzer_hits", _HITS, CLASSES),
                *statistics(
                    METRIC,
                    "confirmed",
                    "ratio",
                    "all, entity, split and entity, source and entity, split and source and entity,"
                    " language and entity",
                ),
                *statistics(METRIC, "judge_reads judged_share", "ratio", "all"),
                *statistics(METRIC, "judge_failed judge_partly", "documents", "all"),
            ),
            reading=3,
            evidence=ShardColumn(column="pii_documents", noun="documents with personal data", share_of="", least=5),
            documents=of_findings(DETECTOR, ("analyzer_documents", "analyzer_hits"), judge=ANALYZER),
            decided_by=_decided_by,
            searches_with=DETECTOR,
            entities=ENTITIES,
            area="privacy",
            personal=True,
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC, stat="hits", column="pii_hits", of="tokens", head="PII per 1M tokens", shown_as="few"
        ),
        ShardStatistic(metric=METRIC, stat="documents", column="pii_documents", per_document=True),
    ),
    stage="dataaudit.metrics.pii.stage:Pii",
    stage_name="pii",
    detector="pii",
    link="dataaudit.metrics.pii.stage:personal_data",
    by_split=("found", "strata"),
    config="pii",
    shown="dataaudit.metrics.pii.definition:SHOWN",
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


@once
def personal_data(manifest: Manifest) -> Pii | None:
    """Return personal data in numbers that may be shown; None when it was not looked for."""
    cells = pii_cells(manifest)
    if cells is None:
        return None
    records = by_scope(records_in(manifest, METRIC, (), ("entity",)))
    wide = {scope.entity or "": held for scope, held in records.items() if scope == Scope(entity=scope.entity)}
    entities = [
        PiiEntity(
            entity=name,
            found=count,
            tiers={tier: cells.tiers[name, tier] for tier in TIERS},
            reserved=count_of(wide[name], "reserved"),
        )
        for name, count in cells.entities.items()
    ]
    sources = [PiiSource(source=name, found=count) for name, count in cells.sources.items()]
    whole = wide[""]
    asked = "analyzer_documents" in whole
    hidden = few_judged(manifest) | {name for name, count in cells.entities.items() if count.suppressed}
    counts = [*cells.entities.values(), *cells.tiers.values(), *cells.sources.values()]
    return Pii(
        total=PiiEntity(entity="", found=cells.total, tiers=cells.total_by_tier, reserved=count_of(whole, "reserved")),
        entities=tuple(sorted(entities, key=lambda entity: (*_most(entity.found), entity.entity))),
        sources=tuple(sorted(sources, key=lambda source: (*_most(source.found), source.source))),
        truncated=count_of(whole, "truncated"),
        judge=judge_of(manifest, "presidio", whole, "analyzer_documents") if asked else None,
        sample=_sample(wide, hidden),
        suppressed=any(count.suppressed for count in counts),
    )


def section(found: Pii | None) -> Section:
    """Return personal data by kind and source, and what presidio found in a sample; small counts are left out."""
    if found is None:
        return Section(
            id="privacy", title=_TITLE, lead="Personal data was not searched for in this build.", tone="quiet"
        )
    blocks: list[Block] = [_entities(found), *_sources(found)]
    if found.truncated:
        many = t.plural(found.truncated, "document")
        blocks.append(
            Prose(
                text=f"{many} with too many candidates: not searched to the end. Every number is at least what it says."
            )
        )
    if found.suppressed:
        blocks.append(Prose(text=SHARED, tone="quiet"))
    if found.judge is not None:
        blocks += _judged(found, found.judge)
    return Section(id="privacy", title=_TITLE, lead=_lead(found.total.found), blocks=tuple(blocks))


def _lead(total: Count) -> Line:
    if total.suppressed:
        return "There is so little personal data that no number of it is shown."
    if not total.documents:
        return "No personal data was found."
    many = t.plural(total.documents, "document")
    return say("{} ({}) hold some: {} hits per million tokens.", many, share(total.share), rate(total.per_million))


def _entities(found: Pii) -> Block:
    def row(pii_entity: PiiEntity) -> Row:
        return (
            Name(pii_entity.entity) if pii_entity.entity else "(all)",
            rate(pii_entity.found.per_million),
            count_cell(pii_entity.found, pii_entity.found.documents),
            *(count_cell(pii_entity.tiers[tier], pii_entity.tiers[tier].hits) for tier in TIERS),
            pii_entity.reserved,
        )

    table = Table(
        title="Personal data by kind",
        columns=(*names("kind"), *numbers("hits per 1M tokens", "documents", *TIERS, "reserved")),
        **rows_of(found.entities, row),
        foot=(row(found.total),) if found.entities else (),
        noun="kind",
        note="documents: those that hold some; validated, contextual, pattern: hits by how sure they are; reserved:"
        " hits that are examples or test values, in no other number.",
        empty="None was found.",
    )
    chosen = [
        pii_entity for pii_entity in found.entities if not pii_entity.found.suppressed and pii_entity.found.per_million
    ][:_BARS]
    if not chosen:
        return table
    made = (
        Bar(
            Name(pii_entity.entity),
            pii_entity.found.per_million or 0,
            say("{} per million tokens", rate(pii_entity.found.per_million)),
        )
        for pii_entity in chosen
    )
    return Figure(
        id="chart-privacy",
        title="Hits per million tokens by kind",
        table=table,
        chart=bars("hits per million tokens", made),
    )


def _sources(found: Pii) -> list[Block]:
    holding = [pii_source for pii_source in found.sources if pii_source.found.suppressed or pii_source.found.documents]
    if len(found.sources) < 2 or not holding:
        return []

    def row(source: PiiSource) -> Row:
        count = source.found
        hits, documents = count_cell(count, count.hits), count_cell(count, count.documents)
        return Name(source.source), rate(count.per_million), hits, documents, share(count.share)

    heads = ("hits per 1M tokens", "hits", "documents", "share of documents")
    return [
        Table(
            title="Personal data by source",
            columns=(*names("source"), *numbers(*heads)),
            **rows_of(holding, row),
            noun="source",
            note=f"Numbers {ROUNDED}.",
        )
    ]


def _judged(found: Pii, judge: Judge) -> list[Block]:
    if judge.reason:
        return [not_judged(judge, _HOW)]

    def row(sample: PiiSample) -> Row:
        return (
            Name(sample.entity) if sample.entity else "(any)",
            number(sample.documents),
            interval(sample.documents),
            number(sample.hits, "rate"),
            interval(sample.hits, "rate"),
            number(sample.confirmed),
        )

    seen = [
        pii_sample
        for pii_sample in found.sample
        if not pii_sample.entity or (pii_sample.documents and pii_sample.documents.value)
    ]
    few = sum(pii_sample.documents is not None and pii_sample.documents.suppressed for pii_sample in found.sample)
    absent = len(found.sample) - len(seen) - few
    notes = [
        f"In fewer than {FEW} sampled documents, or hidden above: {t.plural(few, 'further kind')}." if few else "",
        f"Not in the sample: {t.plural(absent, 'further kind')}." if absent else "",
        "confirmed: of what the patterns alone are not sure of, the share that presidio confirms."
        if any(pii_sample.confirmed for pii_sample in seen)
        else "",
    ]
    heads = ("share of documents", "95 % interval", "hits per 1M tokens", "95 % interval", "confirmed")
    table = Table(
        title="Personal data in a sample, by presidio",
        columns=(*names("kind"), *numbers(*heads)),
        **rows_of(seen, row),
        noun="kind",
        note=" ".join(filter(None, notes)),
        folded=True,
    )
    return [table, Prose(text=rests_on(judge), tone="quiet")]


def _sample(wide: Mapping[str, Records], hidden: Collection[str]) -> tuple[PiiSample, ...]:
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
    return tuple(
        sorted(found, key=lambda item: (bool(item.entity), -(number(item.documents).value or 0.0), item.entity))
    )


def _most(found: Count) -> tuple[bool, int]:
    return found.suppressed, -(found.documents or 0)


def _standouts(manifest: Manifest) -> Iterator[Standout]:
    found = personal_data(manifest)
    if found is None:
        return
    total = found.total.found
    if not total.suppressed and (total.share or 0.0) > MANY:
        kinds = [
            pii_entity
            for pii_entity in found.entities
            if pii_entity.found.documents and not pii_entity.found.suppressed
        ][:_KINDS]
        named = join(
            ", ",
            (
                say("{} {}", Name(pii_entity.entity, SHORT, ends=True), pii_entity.found.documents)
                for pii_entity in kinds
            ),
        )
        listed = say(": {}", named) if kinds else ""
        text = say("{} of documents hold personal data{}", share(total.share), listed)
        yield Standout(kind=Kind.PERSONAL_DATA, part="pii", size=total.share or 0.0, text=text)
    if found.truncated:
        yield not_looked_at("pii", found.truncated)
    if found.judge is not None:
        yield from nothing_judged("pii", found.judge)


def _sentences(manifest: Manifest) -> Iterator[Line]:
    """Yield what patterns found; numbers that would point at people are left out."""
    found = personal_data(manifest)
    if found is None or not found.entities:
        yield "Personal data was not searched for." if found is None else "Patterns for personal data found none."
        return
    held = [
        pii_entity for pii_entity in found.entities if not pii_entity.found.suppressed and pii_entity.found.documents
    ]
    for pii_entity in held[:NAMED]:
        part = "" if pii_entity.found.share is None else say(", {} of all", share(pii_entity.found.share))
        documents = t.plural(pii_entity.found.documents or 0, "document")
        yield say("{}: in {}{}, as patterns find it.", Name(pii_entity.entity, LONG), documents, part)
    if few := sum(pii_entity.found.suppressed for pii_entity in found.entities):
        yield f"{t.plural(few, 'further kind')} of personal data: in so few documents that no number is given."
    if len(held) > NAMED:
        yield f"{t.plural(len(held) - NAMED, 'further kind')} of personal data."
    yield "What no pattern knows, names of people among it, is in no number."


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="pii", area="privacy", blocks=lambda manifest: [section(personal_data(manifest))]),),
    standouts=_standouts,
    facts={"personal_data": personal_data},
)
