"""What stands out of a manifest, worst first: one list for `show`, the end of `build`, their JSON, and the report.

The order is that of :class:`dataaudit.metrics.shown.Kind`, whatever the corpus: what has to be acted on (secrets, data
that is in no number, leaks), then what may be wrong, then what is worth knowing. Within a kind the larger stands
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

from dataaudit.base.render.blocks import Table, Tone, column, table_of
from dataaudit.base.render.line import PLAIN, Line, Name, Number, say, spell
from dataaudit.manifest.load import Manifest, once
from dataaudit.metrics.overlap.evidence import ShardNames
from dataaudit.metrics.peers import COLUMNS, LEAST_OF_SOURCE, LEAST_PEERS, Peers, robust
from dataaudit.metrics.registry import SHARD_STATISTICS, all_shown
from dataaudit.metrics.shown import Floats, Highlight, Kind, Oddity, OddShard, ShardValues, first_of, split_and_uri

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
    peers, made = Peers.of(table), []
    splits = table["split"].to_pylist()
    numbers = (number for shown in all_shown() if shown.shard_values for number in shown.shard_values(manifest))
    for number in numbers:
        is_known = np.isfinite(number.values)
        medians, spreads = peers.usual(np.where(is_known, number.values, np.nan), number.documents, number.largest)
        spreads = np.maximum(spreads, number.least_sd)
        for own in peers.of_each(is_known & (spreads > 0)):
            split, median = splits[int(own[0])], float(medians[own[0]])
            values = number.values[own]
            made.append(
                Distances(split=split, of=number, shards=own, values=values, median=median, robust_sd=spreads[own])
            )
    return made


@once
def outliers(manifest: Manifest) -> list[dict[str, Any]]:
    """Return shards outside median +- 6 robust sd of their peers, farthest first.

    ``column`` is a column of the table of shards, or a set of quality rules for the share of documents that it rejects;
    ``robust_sd`` 1.4826 times the median absolute deviation, at least 2 % of the median, of a rate at least 0.02.
    """
    uris = manifest.table("shards", ["uri"])["uri"]
    chosen = []
    for distance in distances(manifest):
        away = distance.values - distance.median
        beyond = np.flatnonzero((away if distance.of.only_above else np.abs(away)) > LIMIT_SD * distance.robust_sd)
        for index in beyond.tolist():
            shard, value, robust_sd = (
                column[index].item() for column in (distance.shards, distance.values, distance.robust_sd)
            )
            chosen.append(
                {
                    "shard": shard,
                    "split": distance.split,
                    "uri": uris[shard].as_py(),
                    "column": distance.of.column,
                    "value": value,
                    "median": distance.median,
                    "robust_sd": robust_sd,
                    "deviations": round((value - distance.median) / robust_sd, 3),
                }
            )
    return sorted(chosen, key=lambda row: (-abs(row["deviations"]), row["shard"], row["column"]))


def outlier_table(rows: Sequence[dict[str, Any]], *, named: bool = True) -> Table:
    """Return shards outside of the limits; of a single shard, its columns without its name."""
    what = "Shards over {} robust sd from the median of their source"
    if not named:
        what = "Over {} robust sd from the median of its source"
    return table_of(
        what.format(f"{LIMIT_SD:g}"),
        rows,
        *([column("shard"), column("split/uri", split_and_uri, Name)] if named else []),
        column("what", "column", Name),
        column("value", lambda row: _number(row, "value")),
        column("median of the source", lambda row: _number(row, "median")),
        column("robust sd away", lambda row: f"{row['deviations']:+,.1f}"),
        noun="shard",
        note=_PEERS * named + _SETS * any(row["column"] not in _DECIMALS for row in rows),
    )


def _number(row: dict[str, Any], field: str) -> Number:
    return Number(row[field], "decimal" if row["column"] in _DECIMALS else "share")


def far_shards(manifest: Manifest) -> list[Highlight]:
    """Return of each number the farthest shard, and how many there are."""
    columns: dict[str, list[dict[str, Any]]] = {}
    for row in outliers(manifest):
        columns.setdefault(row["column"], []).append(row)
    texts = _texts(manifest)
    return [
        Highlight(
            kind=Kind.FAR,
            part="shards",
            area="shards",
            size=abs(own[0]["deviations"]),
            place=split_and_uri(own[0]),
            text=say("{} {}, median {}", texts[name], _number(own[0], "value"), _number(own[0], "median")),
            shard=own[0]["shard"],
            link=first_of(len(own), f"farthest of {len(own):,}"),
        )
        for name, own in columns.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    """One shard that stands out."""

    shard: int
    name: str
    """``split/uri``."""
    tone: Tone
    """Quiet where most shards have the same, and this shard has no more of it."""
    reasons: tuple[Line, ...]
    """What is its own before what most share, the gravest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What more than half of the shards have."""

    text: Line
    shards: int
    limit: float
    """Size of an :class:`OddShard` above which a shard stands out all the same."""


def common(manifest: Manifest) -> tuple[Common, ...]:
    """Return what more than half of the shards have, the most frequent first; of fewer than five shards, nothing."""
    groups: dict[str, dict[int, OddShard]] = {}
    for reason in _reasons(manifest):
        if reason.shared:
            groups.setdefault(spell(reason.shared, PLAIN), {})[reason.shard] = reason
    number = manifest.core.ledger.shards.planned
    made = []
    for own in groups.values():
        if number >= LEAST_PEERS and 2 * len(own) > number:
            median, spread = robust([reason.size for reason in own.values()])
            text = next(iter(own.values())).shared
            made.append(Common(text=text, shards=len(own), limit=max(median + LIMIT_SD * spread, _FAR_MORE * median)))
    return tuple(sorted(made, key=lambda item: -item.shards))


def _reasons(manifest: Manifest) -> list[OddShard]:
    """Return what families say of shards."""
    return [reason for shown in all_shown() if shown.odd_shards for reason in shown.odd_shards(manifest)]


def odd_shards(manifest: Manifest, quarantined: Mapping[int, Line]) -> tuple[Odd, ...]:
    """Return every shard that stands out, the gravest first; ``quarantined`` says of some that a list holds them."""
    texts, every = _texts(manifest), _reasons(manifest)
    every += [OddShard(shard=shard, kind=Oddity.LISTED, size=0, text=text) for shard, text in quarantined.items()]
    for row in outliers(manifest):
        away = f"{row['deviations']:+.1f}"
        parts = (texts[row["column"]], _number(row, "value"), _number(row, "median"), away)
        text = say("{} {}, median {} ({} robust sd)", *parts)
        every.append(OddShard(shard=row["shard"], kind=Oddity.FAR, size=abs(row["deviations"]), text=text))
    limits = {spell(item.text, PLAIN): item.limit for item in common(manifest)}

    def is_common(reason: OddShard) -> bool:
        return reason.size <= limits.get(spell(reason.shared, PLAIN), -1.0)

    def tone(gravest: OddShard) -> Tone:
        if is_common(gravest):
            return "quiet"
        return "bad" if gravest.kind <= Oddity.SECRET else "warn"

    shards: dict[int, list[OddShard]] = {}
    for reason in sorted(every, key=lambda item: (is_common(item), item.kind, -item.size, item.shard)):
        shards.setdefault(reason.shard, []).append(reason)
    names = ShardNames(manifest)
    return tuple(
        Odd(shard=shard, name=names.of(shard), tone=tone(own[0]), reasons=tuple(reason.text for reason in own))
        for shard, own in shards.items()
    )


def _texts(manifest: Manifest) -> dict[str, Line]:
    """Return the numbers in words, by name."""
    return {distance.of.column: distance.of.text for distance in distances(manifest)}


@once
def highlights(manifest: Manifest) -> list[Highlight]:
    """Return what stands out of a manifest, worst first."""
    every = far_shards(manifest)
    every += [
        standout if standout.area else replace(standout, area=shown.area)
        for shown in all_shown()
        if shown.highlights
        for standout in shown.highlights(manifest)
    ]
    return sorted(every, key=lambda item: (item.kind, -item.size, item.part, item.place, spell(item.text)))


def highlight_facts(manifest: Manifest) -> list[dict[str, Any]]:
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
        for standout in highlights(manifest)
    ]


def round_robin(every: Sequence[Highlight]) -> list[int]:
    """Return indexes, a turn of every kind after the other, so that many leaks hide nothing else.

    A turn has two things of a grave kind, and one thing of another kind.
    """
    seen: Counter[Kind] = Counter()
    ranked = []
    for index, standout in enumerate(every):
        ranked.append((seen[standout.kind] // (2 if standout.kind.grave else 1), index))
        seen[standout.kind] += 1
    return [index for _, index in sorted(ranked)]
