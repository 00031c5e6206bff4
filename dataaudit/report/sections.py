"""A manifest in parts that have names, as its families have them: what `show --section` prints, and a page's areas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, is_dataclass
from typing import Any

from dataaudit.manifest.load import Manifest
from dataaudit.metrics.registry import all_shown
from dataaudit.metrics.shown import Part
from dataaudit.render.blocks import Block, Facts, Prose, Section, merged
from dataaudit.render.line import Name, join
from dataaudit.report.outliers import outlier_table, outliers

_NOTES = 100


def metric_names(manifest: Manifest) -> list[str]:
    """Return the metrics that a manifest has, sorted."""
    return manifest.metric_rows().names("metric")


def _notes(manifest: Manifest) -> Iterable[Block]:
    return [Facts(title="Notes", pairs=tuple(("-", Name(note, 200)) for note in manifest.run.notes[:_NOTES]))]


def _metrics(manifest: Manifest) -> Iterable[Section]:
    names = Prose(text=join(", ", map(Name, metric_names(manifest))))
    return [Section(id="metrics", title="Metrics (`--metric NAME` shows every record of one)", blocks=(names,))]


_OWN = (
    Part(name="shards", blocks=lambda manifest: [outlier_table(outliers(manifest))]),
    Part(name="notes", blocks=_notes),
    Part(name="metrics", blocks=_metrics),
)
_PARTS = (*_OWN, *(part for shown in all_shown() for part in shown.parts))
_LAST = tuple(part.name for part in _OWN)
SECTIONS = (*dict.fromkeys(part.name for part in _PARTS if part.name and part.name not in _LAST), *_LAST)
"""The names of all parts, in the order of the whole text."""


def blocks_of(name: str, manifest: Manifest) -> list[Section | Block]:
    """Return the blocks of a part, without sections that only say that nothing was looked for."""
    found = [block for part in _PARTS if part.name == name for block in part.blocks(manifest)]
    return [one for one in found if not (isinstance(one, Section) and one.tone == "quiet" and not one.blocks)]


def areas(manifest: Manifest, titles: dict[str, str]) -> dict[str, Section]:
    """Return the sections of a page by id: those of an area as one, what stands beside them last.

    Args:
        manifest: Of what.
        titles: Of areas that have another one than their first section.
    """
    found: dict[str, list[Section | Block]] = {}
    for part in _PARTS:
        if part.area:
            found.setdefault(part.area, []).extend(part.blocks(manifest))
    return {area: _area(area, blocks, titles) for area, blocks in found.items()}


def _area(area: str, blocks: list[Section | Block], titles: dict[str, str]) -> Section:
    sections = [one for one in blocks if isinstance(one, Section)]
    beside = tuple(one for one in blocks if not isinstance(one, Section))
    title = titles.get(area) or sections[0].title
    return merged(area, title, [*sections, Section(id="", title="", tone="quiet", blocks=beside)])


def facts_of(manifest: Manifest, *, whole: bool = False) -> dict[str, Any]:
    """Return what the families know as plain JSON values; ``whole`` adds what may be long."""
    made = [(name, make) for shown in all_shown() for name, make in shown.facts.items()]
    made += [(name, make) for shown in all_shown() for name, make in shown.long_facts.items()] if whole else []
    return {name: _plain(make(manifest)) for name, make in made}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [_plain(one) for one in value] if isinstance(value, list) else value
