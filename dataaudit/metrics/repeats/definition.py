"""Repeats: spans of 50 words and more that stand in many training documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Block, Prose, Section, Table, column, empty_section, table_of
from dataaudit.base.render.line import Line, Name, say, share
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.family import SOURCES, Family, ShardColumn, ShardStatistic, declare, statistics
from dataaudit.metrics.overlap.evidence import ShardNames
from dataaudit.metrics.recomputed import Agrees, Condition, Follows, ManifestTables, Number, Numbers, Shape, product
from dataaudit.metrics.records import number, repeated_spans
from dataaudit.metrics.shown import MANY, Highlight, Kind, Part, Shown

METRIC = "doc_repeat_hotspots"
_TRAINING = {"population": "training", "sources_of": "training"}

_MEMBERS = Number("hotspot_members", "", None, ("shard", "row"))
_IS_TRAINING = Condition(lambda: ~pc.field("held_out"))
_TRAINED, _TRAINED_TOKENS = (Number("shards", name, _IS_TRAINING) for name in ("documents", "tokens"))
_REPEATED = Number("shards", product("repeat_token_share", "tokens"), _IS_TRAINING)


def _largest(tables: ManifestTables, shape: Shape) -> Numbers:
    """Return of how many documents the members of the hotspot with most are."""
    most: dict[tuple[str, ...], float] = {}
    for (*key, _), members in _MEMBERS(tables, (*shape, "hotspot")).items():
        most[tuple(key)] = max(most.get(tuple(key), 0), members)
    return most


FAMILY = Family(
    name="repeats",
    metrics=(
        declare(
            METRIC,
            statistics("hotspots documents occurrences tokens", "", SOURCES, **_TRAINING),
            statistics("token_share", "ratio", SOURCES, over_tokens=True, **_TRAINING),
            statistics("largest_share", "ratio", SOURCES, **_TRAINING),
            statistics("largest", "documents", SOURCES, **_TRAINING),
            statistics("floor", "documents", "all", **_TRAINING),
            statistics("below_floor", "windows", "all", **_TRAINING),
            in_words=True,
            reading=6,
            evidence=ShardColumn(column="repeat_token_share", noun="tokens in repeated spans", share_of="tokens"),
            documents=repeated_spans,
            area="duplicates",
            columns=(
                ShardStatistic(
                    "token_share",
                    "repeat_token_share",
                    of="tokens",
                    population="training",
                    head="repeated spans",
                    spare=True,
                    compared=True,
                ),
            ),
        ),
    ),
    stage="dataaudit.metrics.repeats.stage:Repeats",
    stage_name="repeats",
    kernels=("winnow",),
    link="dataaudit.metrics.repeats.link:repeated_spans",
    by_split=("repeats",),
    harmless=frozenset({"index", "max_memory_bytes"}),
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


def repeats(manifest: Manifest, limit: int | None = None) -> dict[str, Any] | None:
    """Return the repeated spans, the first ``limit`` of them, or all, by name; None when they were not looked for.

    Of each, ``shard`` and ``source`` are those with the most documents that hold it; ``sources`` is 10 for more.
    """
    records = {record.stat: record for record in manifest.metrics(METRIC, None, Scope())}
    if not records:
        return None
    of, names = records["documents"].n, ShardNames(manifest)
    return {
        "hotspots": number(records, "hotspots"),
        "documents": number(records, "documents"),
        "of": of,
        "tokens": number(records, "tokens"),
        "token_share": records["token_share"].value,
        "floor": number(records, "floor"),
        "below_floor": number(records, "below_floor"),
        "top": [
            {
                **{name: row[name] for name in ("hotspot", "words", "documents")},
                "share": row["documents"] / of if of else None,
                **{name: row[name] for name in ("occurrences", "tokens", "variants")},
                "shard": names.of(row["shards"][0]["shard"]),
                "source": row["sources"][0]["source"],
                "sources": len(row["sources"]),
            }
            for row in manifest.table("hotspots").slice(0, limit).to_pylist()
        ],
    }


def section(spans: dict[str, Any] | None) -> Section:
    """Return the spans that many documents hold, the most widely held first."""
    title = "Repeated spans"
    if spans is None:
        return empty_section("repeats", title, "Repeated spans were not searched for.")
    lead = say(
        "{} of {} hold a span of 50 words or more that at least {} documents hold; {} of the training tokens lie"
        " inside.",
        spans["documents"],
        t.plural(spans["of"], "training document"),
        spans["floor"],
        share(spans["token_share"]),
    )
    blocks: list[Block] = [_spans(spans)]
    if spans["below_floor"]:
        text = (
            f"Spans in fewer documents are left out: {t.count(spans['below_floor'])} windows of 50 words, too"
            " many for the memory allowed (stages.repeats.max_memory_bytes)."
        )
        blocks.append(Prose(text=text))
    return Section(id="repeats", title=title, lead=lead, blocks=tuple(blocks))


def _spans(spans: dict[str, Any]) -> Table:
    def source(span: dict[str, Any]) -> Line:
        more = f" and {span['sources'] - 1} more" if span["sources"] > 1 else ""
        return say("{}{}", Name(span["source"], 40), more)

    return table_of(
        "Repeated spans, the most widely held first",
        spans["top"],
        column("no.", "hotspot"),
        column("words"),
        column("documents"),
        column("share", shown=share),
        column("occurrences"),
        column("tokens"),
        column("mostly in source", source, kind="name"),
        column("most of them in shard", "shard", Name),
        most=None,
        number=spans["hotspots"],
        noun="span",
        rest="in the table hotspots",
        folded=len(spans["top"]) > _OPEN,
        empty="No span is that widely held.",
    )


def _highlights(manifest: Manifest) -> Iterator[Highlight]:
    spans = repeats(manifest, 1)
    if spans is None:
        return
    first = next(iter(spans["top"]), None)
    if first is not None and ((first["share"] or 0.0) > MANY or (spans["token_share"] or 0.0) > MANY):
        many = f"{t.plural(spans['hotspots'], 'repeated span')}, one in {t.plural(first['documents'], 'document')}"
        yield Highlight(
            kind=Kind.REPEATS,
            part="repeats",
            size=first["documents"],
            text=say("{} ({})", many, share(first["share"])),
            place=first["source"],
            link=", mostly of",
        )
    if below := spans["below_floor"]:
        text = f"{t.plural(below, 'repeated window')} of 50 words left out: too many for the memory allowed"
        yield Highlight(kind=Kind.NOT_LOOKED_AT, part="repeats", size=below, text=text)


def _sentences(manifest: Manifest) -> Iterator[Line]:
    spans = repeats(manifest, 0)
    if spans is not None and spans["hotspots"]:
        yield say(
            "{} of 50 words and more {} each in at least {}; {} of the training tokens lie inside.",
            t.plural(spans["hotspots"], "span"),
            "is" if spans["hotspots"] == 1 else "are",
            t.plural(spans["floor"], "training document"),
            share(spans["token_share"]),
        )


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="repeats", area="duplicates", blocks=lambda manifest: [section(repeats(manifest, LISTED))]),),
    highlights=_highlights,
    long_facts={"repeats": repeats},
)
