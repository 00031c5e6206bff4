"""The text of what was found in the documents of one shard, and in one document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dataaudit import text as t
from dataaudit.layout import name_column, number_column, prose, section, table, word_column
from dataaudit.report.few import BELOW, ROUNDED, SHARED, WITHHELD
from dataaudit.report.inspect_content import JUDGE_OF_PII, is_small
from dataaudit.report.judged import per_million
from dataaudit.report.pii_cells import TIERS

_NAME_LIMIT = 40


def content_blocks(value: dict[str, Any], width: int) -> list[list[str]]:
    """Return a block for each kind of finding of a shard."""
    shard = value["shard"]
    return [_personal(shard, width), _secrets(shard["secrets"], width), _judged(value["judged"], width)]


def finding_block(found: dict[str, Any], width: int) -> list[str]:
    """Return the block of what was found in one document."""
    columns = [
        word_column("by"),
        name_column("what"),
        word_column("tier"),
        number_column("from byte"),
        number_column("to"),
        number_column("score"),
        word_column(""),
    ]
    rows = [
        [
            t.clean(one["detector"], _NAME_LIMIT),
            t.clean(one["class"], _NAME_LIMIT),
            one["tier"],
            t.count(one["start"]),
            t.count(one["end"]),
            f"{one['score']:.2f}",
            "reserved" if one["reserved"] else "",
        ]
        for one in found["first"]
    ]
    lines = table(columns, rows, width)
    if found["not_listed"]:
        lines += prose(f"and {t.count(found['not_listed'])} more in the table `findings`", width)
    if any(one["reserved"] for one in found["first"]):
        lines += prose("reserved: an example, a test value or an allowed one; in no number", width)
    return section("Found in its text", lines)


def _personal(shard: dict[str, Any], width: int) -> list[str]:
    if shard["pii"] is None:
        return []
    title = "Personal data: hits by kind and tier"
    lines = _by_tier(shard["pii"], width, _cell)
    if not lines:
        return section(title, prose("none was found", width))
    if not shard["pii_suppressed"]:
        lines += prose(
            f"In all: {t.plural(shard['pii_documents'], 'document')},"
            f" {per_million(shard['pii_hits'])} hits per million tokens.",
            width,
        )
    lines += prose(f"Numbers are {ROUNDED}.", width)
    hidden = shard["pii_suppressed"] or any(one.get("suppressed") for one in shard["pii"])
    return section(title, [*lines, *(prose(SHARED, width) if hidden else [])])


def _secrets(found: Sequence[dict[str, Any]] | None, width: int) -> list[str]:
    if found is None:
        return []
    lines = _by_tier(found, width, lambda one: t.count(one["hits"]))
    return section("Secrets: hits by kind and tier", lines or prose("none was found", width))


def _by_tier(found: Sequence[dict[str, Any]], width: int, shown: Callable[[dict[str, Any]], str]) -> list[str]:
    columns = [name_column("kind"), *(number_column(tier) for tier in TIERS)]
    by_entity: dict[str, dict[str, str]] = {}
    for one in found:
        by_entity.setdefault(one["entity"], {})[one["tier"]] = shown(one)
    rows = [
        [t.clean(entity, _NAME_LIMIT), *(cells.get(tier, "0") for tier in TIERS)] for entity, cells in by_entity.items()
    ]
    return table(columns, rows, width)


def _judged(found: Sequence[dict[str, Any]], width: int) -> list[str]:
    columns = [name_column("judge"), name_column("what"), number_column("documents"), number_column("findings")]
    rows = [
        [
            t.clean(one["judge"], _NAME_LIMIT),
            t.clean(one["class"], _NAME_LIMIT),
            _cell(one, "documents"),
            _cell(one, "hits"),
        ]
        for one in found
    ]
    lines = table(columns, rows, width)
    if any(one["judge"] == JUDGE_OF_PII for one in found):
        lines += prose(f"Of personal data: numbers {ROUNDED}; {SHARED}", width)
    return section("Found by a judge in the sampled documents", lines)


def _cell(one: dict[str, Any], name: str = "hits") -> str:
    if one.get("suppressed"):
        return BELOW if is_small(one) else WITHHELD
    return t.count(one[name])
