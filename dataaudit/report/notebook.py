"""A manifest in a notebook: what stands out, worst first, then how much there is."""

from __future__ import annotations

from dataaudit.errors import DataAuditError
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.volume.facts import identity, overview, splits_table
from dataaudit.render.blocks import Facts, Point, Points, Prose, Section
from dataaudit.render.line import Name, say
from dataaudit.report.screen import not_looked_for
from dataaudit.report.standouts import by_turns, standouts
from dataaudit.text import count, plural

_POINTS, _NAME = 12, 80


def manifest_blocks(manifest: Manifest) -> Section:
    """Return what a notebook shows of a manifest; of a damaged one that it is."""
    core = manifest.core
    title = say("{} {}", Name(core.dataset.name, _NAME), Name(core.dataset.version, _NAME))
    try:
        view = overview(manifest)
        found = standouts(manifest)
    except DataAuditError as error:
        points = Points(items=(Point(tone="bad", text=str(error)),))
        return Section(id="manifest", title=title, tone="bad", blocks=(points,))
    things = f"{plural(len(found), 'thing')} stand{'s' if len(found) == 1 else ''} out"
    chosen = [found[index] for index in sorted(by_turns(found)[:_POINTS])]
    left = f"{len(found) - len(chosen):,} more are not listed. " if len(chosen) < len(found) else ""
    ledger = core.ledger
    held_back = f", {count(ledger.listed_shards)} held back by the list" if ledger.listed_shards else ""
    read = ("shards read", f"{count(ledger.shards.read)} of {count(ledger.shards.planned)}{held_back}")
    return Section(
        id="manifest",
        title=say("{}: {}", title, things if found else "nothing stands out"),
        tone=found[0].kind.tone if found else "good",
        blocks=(
            Points(items=tuple(Point(tone=one.kind.tone, text=one.sentence()) for one in chosen)),
            Prose(text=left + not_looked_for(manifest)),
            splits_table(view),
            Facts(pairs=(read, *identity(view).pairs)),
        ),
    )
