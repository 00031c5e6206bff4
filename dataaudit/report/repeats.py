"""Spans of text that many training documents hold: the most widely held ones, and what all of them cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataaudit import text as t
from dataaudit.layout import name_column, number_column, prose, section, table
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope

METRIC = "doc_repeat_hotspots"
_NAME_LIMIT = 40


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


def repeats(manifest: Manifest, limit: int) -> Repeats | None:
    """Return the repeated spans, the first ``limit`` of them by name; None when they were not looked for."""
    whole = Scope()
    found = {record.stat: record for record in manifest.metrics(METRIC) if record.scope == whole}
    if not found:
        return None
    values = {stat: int(record.value or 0) for stat, record in found.items()}
    of = found["documents"].n
    names = [f"{row['split']}/{row['uri']}" for row in manifest.table("shards", ["split", "uri"]).to_pylist()]
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
                shard=names[row["shards"][0]["shard"]],
                source=row["sources"][0]["source"],
                sources=len(row["sources"]),
            )
            for row in top
        ),
    )


def repeat_lines(found: Repeats | None, width: int) -> list[str]:
    """Return the block of repeated spans; empty when there are none and nothing was left out."""
    if found is None or not (found.hotspots or found.below_floor):
        return []
    columns = [
        number_column("no."),
        number_column("words"),
        number_column("docs"),
        number_column("share\nof docs"),
        number_column("occur-\nrences"),
        number_column("tokens"),
        name_column("mostly in"),
    ]
    rows = [
        [
            t.count(one.hotspot),
            t.count(one.words),
            t.count(one.documents),
            t.ratio(one.share),
            t.count(one.occurrences),
            t.count(one.tokens),
            _where(one),
        ]
        for one in found.top
    ]
    title = f"Repeated spans: 50 words and more in {found.floor:,} training documents and more"
    return section(title, [*table(columns, rows, width), *_notes(found, width)])


def _notes(found: Repeats, width: int) -> Sequence[str]:
    more = found.hotspots - len(found.top)
    lines = prose(f"and {t.plural(more, 'more span')} in the table `hotspots`", width) if more > 0 else []
    lines += prose(
        f"{t.count(found.documents)} of {t.plural(found.of, 'document')} hold some; "
        f"{t.ratio(found.token_share)} of the tokens lie inside.",
        width,
    )
    if found.below_floor:
        lines += prose(
            f"Spans in fewer documents are left out: {t.count(found.below_floor)} windows of 50 words, too"
            " many for the memory allowed (stages.repeats.max_memory_bytes).",
            width,
        )
    return lines


def _where(one: Hotspot) -> str:
    more = f" and {one.sources - 1} more" if one.sources > 1 else ""
    return f"{t.clean(one.source, _NAME_LIMIT)}{more}, {t.clean(one.shard)}"
