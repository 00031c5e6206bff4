"""What stands out of a manifest, worst first: one list for `show`, the end of `build`, their JSON, and the report.

The order is that of :class:`dataaudit.metrics.shown.Kind`, whatever the corpus: what has to be acted on (secrets, data
that is in no number, leaks), then what may be wrong, then what is worth knowing. Within a kind the larger one stands
first, then the name. Everything comes from the manifest, so the same manifest gives the same list.

Shards that stand out: far from the others of their source, and for what families say of them; each with reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dataaudit.base.render.blocks import Row, Table, Tone, names, numbers, rows_of
from dataaudit.base.render.line import PLAIN, Line, Name, Number, say, spell
from dataaudit.manifest.load import Manifest, once
from dataaudit.metrics.overlap.evidence import ShardNames
from dataaudit.metrics.peers import COLUMNS, LEAST_OF_SOURCE, LEAST_PEERS, Peers, robust
from dataaudit.metrics.registry import SHARD_STATISTICS, all_shown
from dataaudit.metrics.shown import Floats, Kind, Oddity, OddShard, ShardValues, Standout, first_of

LIMIT_SD = 6.0
_FAR_MORE = 3.0
"""Times the median of what most shards have that stand out all the same: 2 where others have 1 is nothing."""
_DECIMALS = frozenset(statistic.column for statistic in SHARD_STATISTICS if statistic.shown_as == "number")
"""Numbers that are no share of something."""


_SETS = "A set of quality rules stands for the share of documents that it would reject."
_PEERS = (
    "A shard is compared with those of its split and its main source; sources of fewer than"
    f" {LEAST_OF_SOURCE} shards count as one. "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A shard with a value that is far from those of its peers."""

    shard: int
    split: str
    uri: str
    column: str
    """``bytes_per_token``, or the name of a set of quality rules for the share of documents that it rejects."""
    value: float
    median: float
    robust_sd: float
    """1.4826 times the median absolute deviation, at least 2 % of the median, of a rate at least 0.02."""
    deviations: float
    """Distance from the median in robust sd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """How far shards that are peers lie from their median, in one number."""

    split: str
    of: ShardValues
    shards: npt.NDArray[np.int64]
    """Ordinals of those that have a value."""
    values: Floats
    median: float
    robust_sd: Floats

    @property
    def deviations(self) -> Floats:
        """Distances from the median in robust sd."""
        return (self.values - self.median) / self.robust_sd


@once
def distances(manifest: Manifest) -> list[Distances]:
    """Return the distances of every number, of all peers with enough shards."""
    table = manifest.table("shards", list(COLUMNS))
    peers, found = Peers.of(table), []
    splits = table["split"].to_pylist()
    for shard_values in (
        shard_values
        for shown in all_shown()
        if shown.shard_values is not None
        for shard_values in shown.shard_values(manifest)
    ):
        medians, spreads = peers.usual(
            np.where(np.isfinite(shard_values.values), shard_values.values, np.nan), shard_values.documents
        )
        spreads = np.maximum(spreads, shard_values.least_sd)
        for own in peers.of_each(np.isfinite(shard_values.values) & (spreads > 0)):
            median, spread, split = float(medians[own[0]]), spreads[own], splits[int(own[0])]
            values = shard_values.values[own]
            found.append(
                Distances(split=split, of=shard_values, shards=own, values=values, median=median, robust_sd=spread)
            )
    return found


@once
def outliers(manifest: Manifest) -> list[Outlier]:
    """Return shards outside median +- 6 robust sd of their peers, farthest first."""
    uris = manifest.table("shards", ["uri"])["uri"]
    chosen = []
    for distance in distances(manifest):
        away = distance.values - distance.median
        beyond = np.flatnonzero((away if distance.of.only_above else np.abs(away)) > LIMIT_SD * distance.robust_sd)
        for index in beyond.tolist():
            shard, value = int(distance.shards[index]), float(distance.values[index])
            chosen.append(
                Outlier(
                    shard=shard,
                    split=distance.split,
                    uri=uris[shard].as_py(),
                    column=distance.of.column,
                    value=value,
                    median=distance.median,
                    robust_sd=float(distance.robust_sd[index]),
                    deviations=round((value - distance.median) / float(distance.robust_sd[index]), 3),
                )
            )
    return sorted(chosen, key=lambda item: (-abs(item.deviations), item.shard, item.column))


def outlier_table(found: Sequence[Outlier], *, named: bool = True) -> Table:
    """Return shards outside of the limits; of one shard, its columns without its name."""

    def row(outlier: Outlier) -> Row:
        place: Row = (outlier.shard, Name(f"{outlier.split}/{outlier.uri}")) if named else ()
        return (
            *place,
            Name(outlier.column),
            _number(outlier, outlier.value),
            _number(outlier, outlier.median),
            f"{outlier.deviations:+,.1f}",
        )

    title = f"Over {LIMIT_SD:g} robust sd from the median of its source"
    if named:
        title = f"Shards over {LIMIT_SD:g} robust sd from the median of their source"
    return Table(
        title=title,
        columns=(
            *((*numbers("shard"), *names("split/uri")) if named else ()),
            *names("what"),
            *numbers("value", "median of the source", "robust sd away"),
        ),
        **rows_of(found, row),
        noun="shard",
        note=_PEERS * named + _SETS * any(outlier.column not in _DECIMALS for outlier in found),
    )


def _number(outlier: Outlier, value: float) -> Number:
    return Number(value, "decimal" if outlier.column in _DECIMALS else "share")


def far_shards(manifest: Manifest) -> list[Standout]:
    """Return of each number the farthest shard, and how many there are."""
    columns: dict[str, list[Outlier]] = {}
    for outlier in outliers(manifest):
        columns.setdefault(outlier.column, []).append(outlier)
    texts = _texts(manifest)
    return [
        Standout(
            kind=Kind.FAR,
            part="shards",
            area="shards",
            size=abs(own[0].deviations),
            place=f"{own[0].split}/{own[0].uri}",
            text=say("{} {}, median {}", texts[column], _number(own[0], own[0].value), _number(own[0], own[0].median)),
            shard=own[0].shard,
            link=first_of(len(own), f"farthest of {len(own):,}"),
        )
        for column, own in columns.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    """One shard that stands out."""

    shard: int
    name: str
    """``split/uri``."""
    tone: Tone
    """Quiet where most shards have what this one has, and it has no more of it."""
    reasons: tuple[Line, ...]
    """What is its own before what most share, the gravest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What more than half of the shards have."""

    text: Line
    shards: int
    median: float
    """Of its size, as :class:`OddShard` has it."""
    limit: float
    """Size above which a shard stands out all the same."""


def common(manifest: Manifest) -> tuple[Common, ...]:
    """Return what more than half of the shards have, the most frequent first; of fewer than five shards, nothing."""
    groups: dict[str, dict[int, OddShard]] = {}
    for odd_shard in _reasons(manifest):
        if odd_shard.shared:
            groups.setdefault(spell(odd_shard.shared, PLAIN), {})[odd_shard.shard] = odd_shard
    number = manifest.core.ledger.shards.planned
    found = []
    for held in groups.values():
        if number >= LEAST_PEERS and 2 * len(held) > number:
            median, spread = robust([odd_shard.size for odd_shard in held.values()])
            text = next(iter(held.values())).shared
            limit = max(median + LIMIT_SD * spread, _FAR_MORE * median)
            found.append(Common(text=text, shards=len(held), median=median, limit=limit))
    return tuple(sorted(found, key=lambda item: -item.shards))


def _reasons(manifest: Manifest) -> list[OddShard]:
    """Return what families say of shards."""
    return [
        odd_shard for shown in all_shown() if shown.odd_shards is not None for odd_shard in shown.odd_shards(manifest)
    ]


def odd_shards(manifest: Manifest, quarantined: Mapping[int, Line]) -> tuple[Odd, ...]:
    """Return every shard that stands out, the gravest first; ``quarantined`` says of some that a list holds them."""
    texts = _texts(manifest)
    found = _reasons(manifest)
    found += [OddShard(shard=shard, kind=Oddity.LISTED, size=0, text=text) for shard, text in quarantined.items()]
    for outlier in outliers(manifest):
        parts = (
            texts[outlier.column],
            _number(outlier, outlier.value),
            _number(outlier, outlier.median),
            f"{outlier.deviations:+.1f}",
        )
        text = say("{} {}, median {} ({} robust sd)", *parts)
        found.append(OddShard(shard=outlier.shard, kind=Oddity.FAR, size=abs(outlier.deviations), text=text))
    limits = {spell(item.text, PLAIN): item.limit for item in common(manifest)}

    def is_common(shard: OddShard) -> bool:
        return shard.size <= limits.get(spell(shard.shared, PLAIN), -1.0)

    reasons: dict[int, list[OddShard]] = {}
    for reason in sorted(found, key=lambda item: (is_common(item), item.kind, -item.size, item.shard)):
        reasons.setdefault(reason.shard, []).append(reason)
    names = ShardNames(manifest)

    def tone(gravest: OddShard) -> Tone:
        if is_common(gravest):
            return "quiet"
        return "bad" if gravest.kind <= Oddity.SECRET else "warn"

    return tuple(
        Odd(shard=shard, name=names.of(shard), tone=tone(own[0]), reasons=tuple(odd_shard.text for odd_shard in own))
        for shard, own in reasons.items()
    )


def _texts(manifest: Manifest) -> dict[str, Line]:
    """Return the numbers in words, by name."""
    return {distance.of.column: distance.of.text for distance in distances(manifest)}


@once
def standouts(manifest: Manifest) -> list[Standout]:
    """Return what stands out of a manifest, worst first."""
    found = [
        standout if standout.area else replace(standout, area=shown.area)
        for shown in all_shown()
        if shown.standouts is not None
        for standout in shown.standouts(manifest)
    ]
    found += far_shards(manifest)
    return sorted(found, key=lambda item: (item.kind, -item.size, item.part, item.place, spell(item.text)))


def standout_facts(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the same as plain JSON values, worst first; ``text`` is the whole sentence."""
    return [
        {
            "kind": standout.kind.name.lower(),
            "grave": standout.kind.grave,
            "section": standout.part,
            "text": spell(standout.sentence()),
            "place": standout.place,
            "shard": standout.shard,
            "size": standout.size,
        }
        for standout in standouts(manifest)
    ]


def by_turns(found: Sequence[Standout]) -> list[int]:
    """Return indexes, a turn of every kind after the other, so that many leaks hide nothing else.

    A turn has two things of a grave kind, one of another.
    """
    seen: Counter[Kind] = Counter()
    ranked = []
    for index, standout in enumerate(found):
        ranked.append((seen[standout.kind] // (2 if standout.kind.grave else 1), index))
        seen[standout.kind] += 1
    return [index for _, index in sorted(ranked)]
