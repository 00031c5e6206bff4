"""A manifest in a notebook: what stands out, worst first, then how much there is."""

from __future__ import annotations

from collections.abc import Iterator

from dataaudit.errors import DataAuditError
from dataaudit.manifest.load import Manifest
from dataaudit.notebook import Block, Facts, Heading, Points, Prose, Rows, Tone
from dataaudit.report.screen import by_turns, not_looked_for
from dataaudit.report.standouts import Standout, standouts
from dataaudit.report.view import Overview, Volume, overview
from dataaudit.text import clean, count, decimal, plural, size

_POINTS, _SPLITS, _NAME = 12, 20, 80
_HEADS = ("", "shards", "documents", "text", "tokens", "bytes per token")


def manifest_blocks(manifest: Manifest) -> Iterator[Block]:
    """Yield what a notebook shows of a manifest; of a damaged one that it is."""
    core = manifest.core
    title = clean(f"{core.dataset.name} {core.dataset.version}", _NAME)
    try:
        view = overview(manifest)
        found = standouts(manifest, view)
    except DataAuditError as error:
        yield Heading(text=title, tone="bad")
        yield Points(items=(("bad", str(error)),))
        return
    things = f"{plural(len(found), 'thing')} stand{'s' if len(found) == 1 else ''} out"
    yield Heading(
        text=f"{title}: {things if found else 'nothing stands out'}", tone=_tone(found[0]) if found else "good"
    )
    chosen = [found[index] for index in sorted(by_turns(found)[:_POINTS])]
    yield Points(items=tuple((_tone(one), one.sentence()) for one in chosen))
    left = f"{len(found) - len(chosen):,} more are not listed. " if len(chosen) < len(found) else ""
    yield Prose(text=left + not_looked_for(manifest))
    yield _splits(view)
    shards = core.ledger.shards
    yield Facts(
        pairs=(
            ("shards read", f"{count(shards.read)} of {count(shards.planned)}"),
            ("tokenizer", clean(core.tokenizer.name, _NAME)),
            ("built", f"{view.built} by {view.tool}"),
            ("id", manifest.id),
            ("folder", str(manifest.folder)),
        )
    )


def _tone(one: Standout) -> Tone:
    return "bad" if one.kind.grave else "warn"


def _splits(view: Overview) -> Rows:
    volumes = [*view.splits, view.totals] if len(view.splits) > 1 else list(view.splits)
    left = len(volumes) - _SPLITS
    return Rows(
        title="Splits",
        heads=_HEADS,
        rows=tuple(map(_split, volumes[:_SPLITS])),
        numbers=frozenset(range(1, len(_HEADS))),
        more=f"{plural(left, 'more split')} in .core.splits" if left > 0 else "",
    )


def _split(one: Volume) -> tuple[str, ...]:
    name = clean(one.name, _NAME) or "(all)"
    return (
        f"{name} (held out)" if one.held_out else name,
        count(one.shards),
        count(one.documents),
        size(one.bytes),
        count(one.tokens),
        decimal(one.bytes_per_token),
    )
