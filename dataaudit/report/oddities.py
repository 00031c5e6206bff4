"""Shards that stand out, each with the reasons in words: unread, leaking, with secrets, far from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.exact_dup.facts import REPEATED
from dataaudit.metrics.overlap.places import LeakPlace, leak_places
from dataaudit.metrics.volume.facts import UNREAD, LostShard, lost_shards
from dataaudit.render.blocks import Tone
from dataaudit.render.line import Line, Name, join, say, share
from dataaudit.report.outliers import Distances, Outlier, distances, far

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
