"""Repeats: spans of 50 words and more that stand in many training documents.

Spans of text that many training documents hold: the most widely held ones, and what all of them cover.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Block, Prose, Row, Section, Table, names, numbers
from dataaudit.base.render.line import Line, Name, say, share
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.family import SOURCES, Family, MetricDefinition, ShardColumn, ShardStatistic, statistics
from dataaudit.metrics.overlap.evidence import ShardNames
from dataaudit.metrics.recomputed import Agrees, Condition, Follows, ManifestTables, Number, Numbers, Shape, product
from dataaudit.metrics.records import repeated_spans
from dataaudit.metrics.shown import MANY, Kind, Part, Shown, Standout

METRIC = "doc_repeat_hotspots"
_TRAINING = {"population": "training", "sources_of": "training"}

_MEMBERS = Number("hotspot_members", "", None, ("shard", "row"))
_IS_TRAINING = Condition(lambda: ~pc.field("held_out"))
_TRAINED, _TRAINED_TOKENS = (Number("shards", name, _IS_TRAINING) for name in ("documents", "tokens"))
_REPEATED = Number("shards", product("repeat_token_share", "tokens"), _IS_TRAINING)


def _largest(tables: ManifestTables, shape: Shape) -> Numbers:
    """Return of how many documents the members of the hotspot with most are."""
    found: dict[tuple[str, ...], float] = {}
    for (*key, _), number in _MEMBERS(tables, (*shape, "hotspot")).items():
        found[tuple(key)] = max(found.get(tuple(key), 0), number)
    return found


FAMILY = Family(
    name="repeats",
    metrics=(
        MetricDefinition(
            name=METRIC,
            in_words=True,
            statistics=(
                *(
                    statistic
                    for unit in ("hotspots", "documents", "occurrences", "tokens")
                    for statistic in statistics(METRIC, unit, unit, SOURCES, **_TRAINING)
                ),
                *statistics(METRIC, "token_share", "ratio", SOURCES, over_tokens=True, **_TRAINING),
                *statistics(METRIC, "largest_share", "ratio", SOURCES, **_TRAINING),
                *statistics(METRIC, "largest", "documents", SOURCES, **_TRAINING),
                *statistics(METRIC, "floor", "documents", "all", **_TRAINING),
                *statistics(METRIC, "below_floor", "windows", "all", **_TRAINING),
            ),
            reading=6,
            evidence=ShardColumn(column="repeat_token_share", noun="tokens in repeated spans", share_of="tokens"),
            documents=repeated_spans,
            area="duplicates",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC,
            stat="token_share",
            column="repeat_token_share",
            of="tokens",
            population="training",
            head="repeated spans",
            spare=True,
            compared=True,
        ),
    ),
    stage="dataaudit.metrics.repeats.stage:Repeats",
    stage_name="repeats",
    link="dataaudit.metrics.repeats.link:repeated_spans",
    by_split=("repeats",),
    harmless=frozenset({"index", "max_memory_bytes"}),
    shown="dataaudit.metrics.repeats.definition:SHOWN",
    checked_with=("hotspots", "hotspot_members", "shards"),
    checks=(
        Follows(METRIC, "hotspots", Number("hotspot_members", "", None, ("hotspot",)), _TRAINED, adds_up=False),
        Follows(METRIC, "occurrences", Number("hotspot_members"), _TRAINED),
        *(Follows(METRIC, stat, _largest, _TRAINED, adds_up=False) for stat in ("largest", "largest_share")),
        *(Follows(METRIC, stat, _REPEATED, _TRAINED_TOKENS) for stat in ("tokens", "token_share")),
        Follows(METRIC, "documents", least=_MEMBERS),
        Agrees("documents", Number("hotspots", "documents"), _MEMBERS, "hotspot"),
        Agrees("occurrences", Number("hotspots", "occurrences"), Number("hotspot_members"), "hotspot"),
    ),
    looked_for=True,
)

LISTED = 30
"""Spans that a page lists."""
_OPEN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Hotspot:
    """One span that many documents hold."""

    hotspot: int
    """Number, from 1: a row of the table."""
    words: int
    documents: int
    share: float | None
    """Of the training documents."""
    occurrences: int
    tokens: int
    variants: int
    shard: str
    """``split/uri`` of the shard with the most documents that hold it."""
    source: str
    """Source with the most documents that hold it."""
    sources: int
    """Sources that hold it; 10 for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """All of them, in figures, and the first ones."""

    hotspots: int
    documents: int
    """Documents that hold a repeated span."""
    of: int
    """Training documents."""
    tokens: int
    """Tokens inside repeated spans."""
    token_share: float | None
    floor: int
    """Documents that hold a span at least."""
    below_floor: int
    """Windows of 50 words that were left out because the floor rose."""
    top: tuple[Hotspot, ...]


def repeats(manifest: Manifest, limit: int | None = None) -> Repeats | None:
    """Return the repeated spans, the first ``limit`` of them, or all, by name; None when they were not looked for."""
    found = {record.stat: record for record in manifest.metrics(METRIC, None, Scope())}
    if not found:
        return None
    values = {stat: int(record.value or 0) for stat, record in found.items()}
    of = found["documents"].n
    names = ShardNames(manifest)
    top = manifest.table("hotspots").slice(0, limit).to_pylist()
    return Repeats(
        hotspots=values["hotspots"],
        documents=values["documents"],
        of=of,
        tokens=values["tokens"],
        token_share=found["token_share"].value,
        floor=values["floor"],
        below_floor=values["below_floor"],
        top=tuple(
            Hotspot(
                **{name: row[name] for name in ("hotspot", "words", "documents", "occurrences", "tokens", "variants")},
                share=row["documents"] / of if of else None,
                shard=names.of(row["shards"][0]["shard"]),
                source=row["sources"][0]["source"],
                sources=len(row["sources"]),
            )
            for row in top
        ),
    )


def section(found: Repeats | None) -> Section:
    """Return the spans that many documents hold, the most widely held first."""
    title = "Repeated spans"
    if found is None:
        return Section(id="repeats", title=title, lead="Repeated spans were not searched for.", tone="quiet")
    lead = say(
        "{} of {} hold a span of 50 words or more that at least {} documents hold; {} of the training tokens lie"
        " inside.",
        found.documents,
        t.plural(found.of, "training document"),
        found.floor,
        share(found.token_share),
    )
    blocks: list[Block] = [_spans(found)]
    if found.below_floor:
        text = (
            f"Spans in fewer documents are left out: {t.count(found.below_floor)} windows of 50 words, too"
            " many for the memory allowed (stages.repeats.max_memory_bytes)."
        )
        blocks.append(Prose(text=text))
    return Section(id="repeats", title=title, lead=lead, blocks=tuple(blocks))


def _spans(found: Repeats) -> Table:
    def row(hotspot: Hotspot) -> Row:
        more = f" and {hotspot.sources - 1} more" if hotspot.sources > 1 else ""
        source = say("{}{}", Name(hotspot.source, 40), more)
        held = (hotspot.documents, share(hotspot.share), hotspot.occurrences, hotspot.tokens)
        return hotspot.hotspot, hotspot.words, *held, source, Name(hotspot.shard)

    return Table(
        title="Repeated spans, the most widely held first",
        columns=(
            *numbers("no.", "words", "documents", "share", "occurrences", "tokens"),
            *names("mostly in source", "most of them in shard"),
        ),
        rows=tuple(map(row, found.top)),
        number=found.hotspots,
        noun="span",
        rest="in the table hotspots",
        folded=len(found.top) > _OPEN,
        empty="No span is that widely held.",
    )


def _standouts(manifest: Manifest) -> Iterator[Standout]:
    found = repeats(manifest, 1)
    if found is None:
        return
    first = next(iter(found.top), None)
    if first is not None and ((first.share or 0.0) > MANY or (found.token_share or 0.0) > MANY):
        number = f"{t.plural(found.hotspots, 'repeated span')}, one in {t.plural(first.documents, 'document')}"
        yield Standout(
            kind=Kind.REPEATS,
            part="repeats",
            size=first.documents,
            text=say("{} ({})", number, share(first.share)),
            place=first.source,
            link=", mostly of",
        )
    if found.below_floor:
        text = f"{t.plural(found.below_floor, 'repeated window')} of 50 words left out: too many for the memory allowed"
        yield Standout(kind=Kind.NOT_LOOKED_AT, part="repeats", size=found.below_floor, text=text)


def _sentences(manifest: Manifest) -> Iterator[Line]:
    found = repeats(manifest, 0)
    if found is not None and found.hotspots:
        yield say(
            "{} of 50 words and more {} each in at least {}; {} of the training tokens lie inside.",
            t.plural(found.hotspots, "span"),
            "is" if found.hotspots == 1 else "are",
            t.plural(found.floor, "training document"),
            share(found.token_share),
        )


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="repeats", area="duplicates", blocks=lambda manifest: [section(repeats(manifest, LISTED))]),),
    standouts=_standouts,
    long_facts={"repeats": repeats},
)
