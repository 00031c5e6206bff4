"""What stands out of a manifest, worst first: one list for `show`, the end of `build`, their JSON, and the report.

The order is that of :class:`dataaudit.metrics.shown.Kind`, whatever the corpus: what has to be acted on (secrets, data
that is in no number, leaks), then what may be wrong, then what is worth knowing. Within a kind the larger one stands
first, then the name. Everything comes from the manifest, so the same manifest gives the same list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dataaudit.manifest.load import Manifest, once
from dataaudit.metrics.registry import all_shown
from dataaudit.metrics.shown import Kind, Standout
from dataaudit.render.line import spell
from dataaudit.report.outliers import far_shards


@once
def standouts(manifest: Manifest) -> list[Standout]:
    """Return what stands out of a manifest, worst first."""
    found = [
        one if one.area else replace(one, area=shown.area)
        for shown in all_shown()
        if shown.standouts is not None
        for one in shown.standouts(manifest)
    ]
    found += far_shards(manifest)
    return sorted(found, key=lambda one: (one.kind, -one.size, one.part, one.place, spell(one.text)))


def standout_facts(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the same as plain JSON values, worst first; ``text`` is the whole sentence."""
    return [
        {
            "kind": one.kind.name.lower(),
            "grave": one.kind.grave,
            "section": one.part,
            "text": spell(one.sentence()),
            "place": one.place,
            "shard": one.shard,
            "size": one.size,
        }
        for one in standouts(manifest)
    ]


def by_turns(found: Sequence[Standout]) -> list[int]:
    """Return indexes, a turn of every kind after the other, so that many leaks hide nothing else.

    A turn has two things of a grave kind, one of another.
    """
    seen: Counter[Kind] = Counter()
    ranked = []
    for index, one in enumerate(found):
        ranked.append((seen[one.kind] // (2 if one.kind.grave else 1), index))
        seen[one.kind] += 1
    return [index for _, index in sorted(ranked)]
