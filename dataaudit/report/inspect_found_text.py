"""The text of what near-duplicates, protected sets and repeated spans say of one document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dataaudit import text as t
from dataaudit.layout import Column, name_column, number_column, prose, section, table, word_column
from dataaudit.report.blocks import NAME_LIMIT

_NOT_LISTED = {
    "exact": "an exact duplicate",
    "neighbours": "a near-duplicate",
    "hotspots": "holding a hotspot",
    "held_out_copies": "holding a piece of a held-out document",
    "items": "holding an evaluation item",
    "copied_by": "a held-out document that is in training data",
    "pii": "holding personal data",
    "secrets": "holding a secret",
}


def found_blocks(row: dict[str, Any], width: int) -> list[list[str]]:
    """Return a block for each kind of finding that the document has."""
    found = row["found"]
    return [
        _neighbours(found["neighbours"], width),
        _overlap(found["overlap"], width),
        _copied_by(found["copied_by"], width),
        _hotspots(found["hotspots"], width),
    ]


def not_listed(row: dict[str, Any], width: int) -> list[str]:
    """Return what the document is not listed as, of all that was looked for; nothing of a row without numbers."""
    if not row["in_metrics"]:
        return []
    found, kinds = row["found"], {group["kind"] for group in row["groups"]}
    parts = {one["part"] == "document" for one in found["overlap"]["first"]}
    every = not found["overlap"]["not_listed"]
    detectors = {one["detector"] for one in found["findings"]["first"]}
    unlisted = bool(found["findings"]["not_listed"])
    has = {
        "exact": "exact" in kinds,
        "neighbours": "near" in kinds or bool(found["neighbours"]["count"]),
        "hotspots": bool(found["hotspots"]["count"]),
        "copied_by": bool(found["copied_by"]["count"]),
        "pii": "pii" in detectors or unlisted,
        "secrets": "secrets" in detectors or unlisted,
        "held_out_copies": True in parts or not every,
        "items": False in parts or not every,
    }
    absent = [words for name, words in _NOT_LISTED.items() if name in found["looked_for"] and not has[name]]
    return prose(f"Not listed as: {'; '.join(absent)}.", width) if absent else []


def _neighbours(found: dict[str, Any], width: int) -> list[str]:
    columns = [
        word_column("shard:row"),
        name_column("split/uri"),
        number_column("Jaccard"),
        word_column(""),
    ]
    rows = [
        [_place(one), t.clean(one["name"]), t.ratio(one["jaccard"]), "kept" if one["kept"] else ""]
        for one in found["first"]
    ]
    return _block("Near-duplicates of it, most alike first", columns, rows, found, width)


def _overlap(found: dict[str, Any], width: int) -> list[str]:
    columns = [
        name_column("set"),
        name_column("item"),
        word_column("part"),
        word_column("tier"),
        word_column("rule"),
        number_column("from byte"),
        number_column("to"),
        number_column("score"),
    ]
    rows = [
        [
            t.clean(one["set"], NAME_LIMIT),
            t.clean(one["item"], NAME_LIMIT),
            one["part"],
            one["tier"],
            one["rule"],
            t.count(one["start"]),
            t.count(one["end"]),
            t.ratio(one["score"]),
        ]
        for one in found["first"]
    ]
    return _block("Held-out documents and evaluation items in it", columns, rows, found, width)


def _copied_by(found: dict[str, Any], width: int) -> list[str]:
    columns = [
        word_column("shard:row"),
        name_column("split/uri"),
        word_column("rule"),
        number_column("from byte"),
        number_column("to"),
        number_column("score"),
    ]
    rows = [
        [
            _place(one),
            t.clean(one["name"]),
            one["rule"],
            t.count(one["start"]),
            t.count(one["end"]),
            t.ratio(one["score"]),
        ]
        for one in found["first"]
    ]
    return _block("Training documents that hold a piece of it", columns, rows, found, width)


def _hotspots(found: dict[str, Any], width: int) -> list[str]:
    columns = [
        number_column("hotspot"),
        number_column("words"),
        number_column("documents"),
        number_column("occurrences"),
        number_column("from byte"),
        number_column("to"),
    ]
    names = ("hotspot", "words", "documents", "occurrences", "start", "end")
    rows = [[t.count(one[name]) for name in names] for one in found["first"]]
    return _block("Hotspots in it: spans that many training documents hold", columns, rows, found, width)


def _block(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], found: dict[str, Any], width: int
) -> list[str]:
    lines = table(columns, rows, width)
    if found["not_listed"]:
        lines += prose(f"and {t.count(found['not_listed'])} more", width)
    return section(title, lines)


def _place(one: dict[str, Any]) -> str:
    return f"{one['shard']}:{one['row']}"
