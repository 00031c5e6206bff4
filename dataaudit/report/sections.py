"""A manifest in parts that have names: what `show --section` prints, and what a page is put together from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.metrics.contamination import facts as contamination
from dataaudit.metrics.coverage import facts as coverage
from dataaudit.metrics.drift import facts as drift
from dataaudit.metrics.exact_dup import facts as exact_dup
from dataaudit.metrics.family import Family, resolve
from dataaudit.metrics.language import facts as language
from dataaudit.metrics.near_dup import facts as near_dup
from dataaudit.metrics.overlap import facts as overlap
from dataaudit.metrics.overlap.places import leak_places, places_table
from dataaudit.metrics.padding import facts as padding
from dataaudit.metrics.pii import facts as pii
from dataaudit.metrics.quality import facts as quality
from dataaudit.metrics.registry import FAMILIES
from dataaudit.metrics.repeats import facts as repeats
from dataaudit.metrics.secrets import facts as secrets
from dataaudit.metrics.toxicity import facts as toxicity
from dataaudit.metrics.volume.facts import Overview, mixture, sources_of, splits_table
from dataaudit.render.blocks import Block, Facts, Prose, Section, merged
from dataaudit.render.line import Name, join
from dataaudit.report.outliers import outlier_table, outliers

_NOTES = 100

Part = Callable[[Manifest, Overview], Iterable[Section | Block]]
"""Blocks of a manifest and its overview; those without anything are empty."""


def metric_names(manifest: Manifest) -> list[str]:
    """Return the metrics that a manifest has, sorted."""
    return sorted(pc.unique(manifest.table("metrics", ["metric"])["metric"]).to_pylist())


def leakage(manifest: Manifest) -> Section:
    """Return what of held-out splits and evaluation sets is in training data, and in which shards."""
    places = leak_places(manifest)
    own = overlap.section(overlap.leaks(manifest), overlap.held_out_leaks(manifest), places)
    sets = contamination.section(contamination.set_leaks(manifest))
    where = Section(id="", title="", tone="quiet", blocks=(places_table(places),) if places else ())
    lead = "" if {own.tone, sets.tone} - {"quiet"} else "There is no held-out split and no evaluation set."
    return merged("leakage", "Leakage", [own, sets, where], lead)


def duplicates(manifest: Manifest, view: Overview) -> Section:
    """Return exact duplicates, near-duplicates, and who copies whom."""
    return near_dup.section(near_dup.near_duplicates(manifest), view.totals.exact_dup_rate)


def hotspots(manifest: Manifest) -> Section:
    """Return the spans that many documents hold."""
    return repeats.section(repeats.repeats(manifest, repeats.LISTED))


def of_family(family: Family, manifest: Manifest) -> Section:
    """Return the section of a family that has one to itself."""
    found: Section = resolve(family.section)(manifest)
    return found


def _of_family(family: Family, manifest: Manifest, _: Overview) -> Iterable[Section]:
    return [of_family(family, manifest)]


def _mixture(_: Manifest, view: Overview) -> Iterable[Section]:
    return [mixture(view)] if any(share.declared is not None for share in view.sources) else []


def _notes(manifest: Manifest, _: Overview) -> Iterable[Block]:
    return [Facts(title="Notes", pairs=tuple(("-", Name(note, 200)) for note in manifest.run.notes[:_NOTES]))]


def _metrics(manifest: Manifest, _: Overview) -> Iterable[Section]:
    names = Prose(text=join(", ", map(Name, metric_names(manifest))))
    return [Section(id="metrics", title="Metrics (`--metric NAME` shows every record of one)", blocks=(names,))]


SECTIONS: dict[str, Part] = {
    "splits": lambda _, view: [splits_table(view)],
    "mixture": _mixture,
    "sources": lambda manifest, view: [sources_of(manifest, split) for split in view.splits],
    "languages": lambda manifest, _: [language.section(language.languages(manifest))],
    "quality": lambda manifest, _: [quality.section(manifest)],
    "padding": lambda manifest, _: [padding.section(manifest)],
    "drift": lambda manifest, _: [drift.section(manifest, drift.drifts(manifest))],
    "toxicity": lambda manifest, _: [toxicity.section(toxicity.toxic(manifest))],
    "pii": lambda manifest, _: [pii.section(pii.personal_data(manifest))],
    "secrets": lambda manifest, _: [secrets.section(secrets.secrets(manifest))],
    "near_dup": lambda manifest, view: [duplicates(manifest, view)],
    "leaks": lambda manifest, _: [leakage(manifest)],
    "repeats": lambda manifest, _: [hotspots(manifest)],
    **{family.name: partial(_of_family, family) for family in FAMILIES if family.section},
    "coverage": lambda _, view: [coverage.section(view)],
    "shards": lambda manifest, _: [
        outlier_table(outliers(manifest)),
        exact_dup.table(exact_dup.most_duplicated(manifest)),
    ],
    "notes": _notes,
    "metrics": _metrics,
}
"""Every part by its name, in the order of the whole text."""


def blocks_of(part: str, manifest: Manifest, view: Overview) -> list[Section | Block]:
    """Return the blocks of a part, without sections that only say that nothing was looked for."""
    found = SECTIONS[part](manifest, view)
    return [one for one in found if not (isinstance(one, Section) and one.tone == "quiet" and not one.blocks)]
