"""What a manifest says of its corpus in sentences that may be published: the same in every catalogue and card.

Small counts of personal data are not told, as in every report (:mod:`dataaudit.metrics.disclosure`). Of secrets the
number is told in tens: an exact one says how many are still to be found.
"""

from __future__ import annotations

from collections.abc import Callable

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.registry import all_shown
from dataaudit.metrics.shown import LONG
from dataaudit.render.line import Line, Name, say, spell

Spell = Callable[[Line], str]
"""Writes a line in a format, with the names in it harmless there."""


def sentences(manifest: Manifest, *areas: str, write: Spell = spell) -> list[str]:
    """Return what the families of some areas of the report say, in their order."""
    chosen = (shown for area in areas for shown in all_shown() if shown.area == area)
    return [write(line) for shown in chosen if shown.sentences is not None for line in shown.sentences(manifest)]


def filters(manifest: Manifest, write: Spell = spell) -> list[str]:
    """Say which filters ran before, as declared, and that the audit removed nothing."""
    said: list[Line] = [
        say(
            "Filter {}{}, as declared: {} in, {} out.",
            Name(one.name, LONG),
            say(" {}", Name(one.version, LONG)) if one.version else "",
            t.plural(one.documents_in, "document"),
            one.documents_out,
        )
        for one in manifest.core.upstream_filters
    ]
    said = said or ["No filter before the audit is declared."]
    return [*map(write, said), "The audit itself removed and changed nothing."]
