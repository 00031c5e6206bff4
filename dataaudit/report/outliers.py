"""Shards that stand out: far from the others of their split, unread, leaking, with secrets; each with its reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.exact_dup.facts import REPEATED
from dataaudit.metrics.overlap.places import LeakPlace, leak_places
from dataaudit.metrics.volume.facts import UNREAD, LostShard, lost_shards
from dataaudit.render.blocks import Row, Table, Tone, names, numbers, rows_of
from dataaudit.render.line import Line, Name, Number, Unit, join, say, share

Floats = npt.NDArray[np.float64]
LIMIT_SD = 6.0
LEAST_SHARDS = 5
"""Fewer shards of a split have no usual value."""
_TO_SD = 1.4826
_FLOOR = 0.005
"""Least robust sd, as a part of the median: shards that agree to the last digit still differ by chance."""
_RATE_FLOOR = 0.02
"""Least robust sd of a rate: that of a small shard moves by chance alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A shard with a value that is far from those of its split."""

    shard: int
    split: str
    uri: str
    column: str
    """``bytes_per_token``, or the name of a set of quality rules for the share of documents that it rejects."""
    value: float
    median: float
    robust_sd: float
    """1.4826 times the median absolute deviation, at least 0.5 % of the median, of a rate at least 0.02."""
    deviations: float
    """Distance from the median in robust sd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """How far the shards of one split lie from its median, in one column."""

    split: str
    column: str
    shards: Floats
    """Ordinals of those that have a value, float64."""
    values: Floats
    median: float
    robust_sd: float

    @property
    def deviations(self) -> Floats:
        """Distances from the median in robust sd."""
        return (self.values - self.median) / self.robust_sd


def distances(manifest: Manifest) -> list[Distances]:
    """Return the distances of every column and split with enough shards."""
    table = manifest.table("shards", ["split", "documents", "bytes_per_token", "filters"])
    splits = table["split"].combine_chunks().dictionary_encode()
    codes = splits.indices.to_numpy(zero_copy_only=False)
    found = []
    for column, values in _columns(table).items():
        floor = 0.0 if column == "bytes_per_token" else _RATE_FLOOR
        for code in dict.fromkeys(codes.tolist()):
            own = np.flatnonzero((codes == code) & np.isfinite(values))
            if len(own) < LEAST_SHARDS:
                continue
            median, spread = robust(values[own])
            spread = max(spread, floor)
            if spread > 0:
                found.append(
                    Distances(
                        split=splits.dictionary[code].as_py(),
                        column=column,
                        shards=own.astype(np.float64),
                        values=values[own],
                        median=median,
                        robust_sd=spread,
                    )
                )
    return found


def outliers(manifest: Manifest) -> list[Outlier]:
    """Return shards outside median +- 6 robust sd of their split, farthest first."""
    return far(distances(manifest), manifest.table("shards", ["uri"])["uri"])


def far(found: Sequence[Distances], uris: pa.ChunkedArray) -> list[Outlier]:
    """Return the shards that lie outside 6 robust sd, farthest first; ``uris`` names them by ordinal."""
    chosen = []
    for one in found:
        beyond = np.flatnonzero(np.abs(one.values - one.median) > LIMIT_SD * one.robust_sd)
        for index in beyond.tolist():
            shard, value = int(one.shards[index]), float(one.values[index])
            chosen.append(
                Outlier(
                    shard=shard,
                    split=one.split,
                    uri=uris[shard].as_py(),
                    column=one.column,
                    value=value,
                    median=one.median,
                    robust_sd=one.robust_sd,
                    deviations=round((value - one.median) / one.robust_sd, 3),
                )
            )
    return sorted(chosen, key=lambda one: (-abs(one.deviations), one.shard, one.column))


def outlier_table(found: Sequence[Outlier], *, named: bool = True) -> Table:
    """Return shards outside of the limits; of one shard, its columns without its name."""

    def row(one: Outlier) -> Row:
        place: Row = (one.shard, Name(f"{one.split}/{one.uri}")) if named else ()
        away = f"{one.deviations:+,.1f}"
        unit: Unit = "decimal" if one.column == "bytes_per_token" else "share"
        return *place, Name(one.column), Number(one.value, unit), Number(one.median, unit), away

    title = f"Over {LIMIT_SD:g} robust sd from its split's median"
    if named:
        title = f"Shards over {LIMIT_SD:g} robust sd from their split's median (splits of {LEAST_SHARDS} and more)"
    sets = any(one.column != "bytes_per_token" for one in found)
    return Table(
        title=title,
        columns=(
            *((*numbers("shard"), *names("split/uri")) if named else ()),
            *names("what"),
            *numbers("value", "median of the split", "robust sd away"),
        ),
        **rows_of(found, row),
        noun="shard",
        note="a set of quality rules stands for the share of documents that it would reject" if sets else "",
    )


def _columns(table: pa.Table) -> dict[str, Floats]:
    """Return bytes per token and, for each set of rules, the share of documents rejected; NaN without a value."""
    columns = {"bytes_per_token": _floats(table["bytes_per_token"])}
    documents = _floats(table["documents"])
    filters = table["filters"].combine_chunks()
    parents = pc.list_parent_indices(filters).to_numpy(zero_copy_only=False)
    items = pc.list_flatten(filters)
    rules = pc.struct_field(items, "rule").dictionary_encode()
    rejected = _floats(pc.struct_field(items, "documents"))
    rule_codes = rules.indices.to_numpy(zero_copy_only=False)
    names = rules.dictionary.to_pylist()
    for code in sorted((code for code, name in enumerate(names) if "." not in name), key=lambda code: names[code]):
        own = rule_codes == code
        values = np.full(table.num_rows, np.nan)
        shards = parents[own]
        read = documents[shards] > 0
        values[shards[read]] = rejected[own][read] / documents[shards[read]]
        columns[names[code]] = values
    return columns


def _floats(column: pa.ChunkedArray | pa.Array) -> Floats:
    """Return a column as float64, NaN where it is null."""
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def robust(values: npt.ArrayLike) -> tuple[float, float]:
    """Return median and robust sd of some positive values."""
    held = np.asarray(values, dtype=np.float64)
    median = float(np.median(held))
    spread = _TO_SD * float(np.median(np.abs(held - median)))
    return median, max(spread, _FLOOR * median)


_UNREAD, _LEAK, _SECRET, _FAR, _COPY, _TRACE, _PARTIAL, _LISTED = range(8)
_MUCH = 0.01
"""Share of a shard's documents that hold copies, from which it needs action; below it the worst of a set alone does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    """One shard that stands out."""

    shard: int
    name: str
    """``split/uri``."""
    tone: Tone
    reasons: tuple[Line, ...]
    """The gravest first."""
    rank: tuple[float, ...]
    """Gravest first when sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddities:
    """All shards that stand out, and the distances behind some of them."""

    shards: tuple[Odd, ...]
    """Gravest first."""
    distances: tuple[Distances, ...]


def oddities(manifest: Manifest, quarantined: Mapping[int, Line]) -> Oddities:
    """Return every shard that stands out; ``quarantined`` says of some that a list holds them back."""
    table = manifest.table("shards", ["split", "uri", "documents", "exact_dup_rate", "secrets_validated"])
    measured = distances(manifest)
    found: dict[int, list[tuple[int, float, Line]]] = {}

    def note(shard: int, kind: int, weight: float, text: Line) -> None:
        found.setdefault(shard, []).append((kind, -weight, text))

    for lost in lost_shards(manifest):
        note(lost.shard, _UNREAD if lost.status in UNREAD else _PARTIAL, float(lost.size), _loss(lost))
    for shard, text in quarantined.items():
        note(shard, _LISTED, 0.0, text)
    for place in leak_places(manifest):
        if place.copied:
            kind = _LEAK if place.share >= _MUCH or place.is_worst else _TRACE
            note(place.shard, kind, float(max(place.whole, place.copied)), _leak(place))
    for shard, number in _above(table["secrets_validated"], 0):
        note(shard, _SECRET, number, f"{t.plural(int(number), 'secret')} confirmed by structure")
    for one in far(measured, table["uri"]):
        note(one.shard, _FAR, abs(one.deviations), _distance(one))
    for shard, rate in _above(table["exact_dup_rate"], REPEATED):
        documents = table["documents"][shard].as_py()
        many = t.plural(documents, "document")
        text = say("{} of its {} repeat earlier ones word for word", share(rate), many)
        note(shard, _COPY, rate, text)
    odd = [_odd(shard, reasons, table) for shard, reasons in found.items()]
    return Oddities(shards=tuple(sorted(odd, key=lambda one: one.rank)), distances=tuple(measured))


def _odd(shard: int, reasons: Sequence[tuple[int, float, Line]], table: pa.Table) -> Odd:
    ordered = sorted(reasons, key=lambda one: one[:2])
    name = f"{table['split'][shard].as_py()}/{table['uri'][shard].as_py()}"
    return Odd(
        shard=shard,
        name=name,
        tone="bad" if ordered[0][0] <= _SECRET else "warn",
        reasons=tuple(text for _, _, text in ordered),
        rank=(*ordered[0][:2], shard),
    )


def _above(column: pa.ChunkedArray, bound: float) -> list[tuple[int, float]]:
    """Return ordinal and value of the shards whose value is above a bound."""
    chosen = pc.indices_nonzero(pc.fill_null(pc.greater(column, bound), pa.scalar(value=False)))
    return list(zip(chosen.to_pylist(), column.take(chosen).to_pylist(), strict=True))


def _loss(lost: LostShard) -> Line:
    codes = join(", ", (Name(code, 60) for code in sorted(lost.reasons)[:4]))
    if lost.status in UNREAD:
        place = say(" ({})", Name(lost.place, 60)) if lost.place else ""
        return say("{}: {}{}", lost.status, codes if lost.reasons else "without a reason", place)
    records = sum(number for number in lost.reasons.values() if number > 0)
    return say("{} left out: {}", t.plural(records, "bad record"), codes)


def _leak(place: LeakPlace) -> Line:
    """Say what is copied and in how many documents of the shard."""
    passages = ""
    if not place.held_out:
        held = f"copies of {t.plural(place.copied, 'item')}"
    elif place.whole:
        held = f"whole copies of {t.plural(place.whole, 'document')}"
        passages = f" (passages of {t.count(place.copied)})" if place.copied > place.whole else ""
    else:
        held = f"copied passages of {t.plural(place.copied, 'document')}"
    return say(
        "holds {} of {}{}, in {} of its {} ({})",
        held,
        Name(place.set, 60),
        passages,
        place.copies,
        t.plural(place.of, "document"),
        share(place.share),
    )


def _distance(one: Outlier) -> Line:
    if one.column == "bytes_per_token":
        return f"bytes per token {one.value:.2f}, median {one.median:.2f} ({one.deviations:+.1f} robust sd)"
    parts = (Name(one.column, 40), share(one.value), share(one.median), f"{one.deviations:+.1f}")
    return say("rejected by {} {}, median {} ({} robust sd)", *parts)
