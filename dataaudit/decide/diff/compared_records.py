"""Matches shards and metric records of two manifests.

Shards match by content first, then by name. Records that are not as they were are ordered by what people act on, and
within that by how far beyond sampling error a change is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.decide.diff.difference import MetricChange, MetricChangeKind, Number, ShardChangeKind
from dataaudit.decide.diff.sampling_error import EffectiveSampleSizes, Interval, chance, difference
from dataaudit.manifest.canonical import flat_columns
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope, rounded
from dataaudit.manifest.tables import TABLES, TableSpec
from dataaudit.metrics.comparable import Meaning, Meant
from dataaudit.metrics.family import LAST
from dataaudit.metrics.pii.cells import hidden_records
from dataaudit.metrics.registry import METRICS, PERSONAL

UNREAD = ("quarantined", "skipped")
_STORED = ["sha256", "format", "compression"]
_OF_ONE_NAME = {
    (True, True): ShardChangeKind.CHANGED,
    (True, False): ShardChangeKind.LOST,
    (False, True): ShardChangeKind.RECOVERED,
    (False, False): ShardChangeKind.UNKNOWN,
}
"""By whether the old shard and the new were read."""
COLUMNS = ["uri", "split", *_STORED, "rows_digest", "bad_records", "status", "reason", "documents", "bytes", "tokens"]
"""Of the table of shards: what is compared."""


class Pair(NamedTuple):
    """A shard that changed in one way: its rows of the old table and of the new, None where there is none."""

    kind: ShardChangeKind | None
    """None: as it was."""
    old: int | None
    new: int | None


class _Side:
    """The shards of a side by row, and which of them are left."""

    def __init__(self, table: pa.Table) -> None:
        columns = {name: table[name].to_pylist() for name in COLUMNS}
        counts = zip(*(columns[name] for name in ("bad_records", "documents", "bytes")), strict=True)
        self.split = columns["split"]
        self.place = list(zip(columns["split"], columns["uri"], strict=True))
        self.stored = list(zip(*(columns[name] for name in _STORED), strict=True))
        self.content = list(map(_content, columns["rows_digest"], columns["sha256"], counts))
        self.read = [status not in UNREAD for status in columns["status"]]
        self.holds = [not read or number > 0 for read, number in zip(self.read, columns["documents"], strict=True)]
        self.left = dict.fromkeys(range(table.num_rows))

    def keys(self, names: Sequence[str], *, holding: bool) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the shards that are left with what is known of them; of ``holding`` those that hold something."""
        columns = [getattr(self, name) for name in names]
        for row in self.left:
            key = tuple(column[row] for column in columns)
            if None not in key and (self.holds[row] or not holding):
                yield row, key


def match(old: pa.Table, new: pa.Table) -> Iterator[Pair]:
    """Yield every shard by how it changed; each row of either table is in exactly one of the pairs.

    Shards hold the same when their decoded rows have one digest, as many records could not be decoded, and a quarantine
    list leaves out as much; two that were not read, when their stored bytes have one digest. Pairs are found in this
    order: same content at the same place, elsewhere in the split, in another split; then the same place with other
    content; what is left is removed, or added. So two shards that exchanged their names, or were numbered anew, have
    moved and not changed. Shards without documents are never taken for moved, as they all hold the same, nor for
    changed: a shard that lost all its documents is removed, and an empty shard added.
    """
    tables, same = (old, new), _as_they_were(old, new)
    yield from map(Pair, repeat(None), *(rows.tolist() for rows in same))
    rest = [np.delete(np.arange(table.num_rows), rows) for table, rows in zip(tables, same, strict=True)]
    chosen = (table.take(pa.array(rows)) for table, rows in zip(tables, rest, strict=True))
    for kind, *places in _match(*chosen):
        yield Pair(kind, *(None if at is None else int(own[at]) for at, own in zip(places, rest, strict=True)))


def _as_they_were(old: pa.Table, new: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of shards of the same place, file and content: mostly nearly all, and cheap as columns."""
    names = ("split", "uri", *_STORED, "rows_digest", "bad_records", "documents", "bytes")
    keys = joined([codes(old[name], new[name]) for name in names])
    _, was, now = np.intersect1d(*keys, return_indices=True)
    is_known = pc.or_(pc.is_valid(old["rows_digest"]), pc.not_equal(old["sha256"], "")).to_numpy()[was]
    return was[is_known], now[is_known]


def _match(old: pa.Table, new: pa.Table) -> Iterator[Pair]:
    item, other = _Side(old), _Side(new)
    same = _pair(item, other, "place", "content")
    moved = _pair(item, other, "split", "content", holding=True)
    for kind, pairs in ((None, same), (ShardChangeKind.MOVED, moved)):
        for was, now in pairs:
            yield Pair(kind if item.stored[was] == other.stored[now] else ShardChangeKind.REPACKED, was, now)
    for was, now in _pair(item, other, "content", holding=True):
        yield Pair(ShardChangeKind.MOVED_SPLIT, was, now)
    for was, now in _pair(item, other, "place", holding=True):
        yield Pair(_OF_ONE_NAME[item.read[was], other.read[now]], was, now)
    yield from (Pair(ShardChangeKind.REMOVED, row, None) for row in item.left)
    yield from (Pair(ShardChangeKind.ADDED, None, row) for row in other.left)


def _content(rows_digest: str | None, sha256: str | None, counts: tuple[int, ...]) -> tuple[Any, ...] | None:
    """Return what a shard holds: the digest of its rows, else of its stored bytes, else None.

    The digest of rows knows nothing of records that could not be decoded, nor of documents that a quarantine list left
    out of the numbers: the counts go with it.
    """
    if rows_digest is not None:
        return (rows_digest, *counts)
    return (sha256,) if sha256 else None


def _pair(item: _Side, other: _Side, *names: str, holding: bool = False) -> list[tuple[int, int]]:
    """Pair shards that are left and alike in something, the first with the first; they are no longer left."""
    waiting: dict[tuple[Any, ...], deque[int]] = {}
    for row, key in other.keys(names, holding=holding):
        waiting.setdefault(key, deque()).append(row)
    pairs = [(row, waiting[key].popleft()) for row, key in item.keys(names, holding=holding) if waiting.get(key)]
    for was, now in pairs:
        del item.left[was], other.left[now]
    return pairs


def codes(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return int64 codes of two columns: the same number for the same value; nulls are -1."""
    both = pa.chunked_array([*left.chunks, *right.chunks], left.type).combine_chunks()
    indices = pc.fill_null(both.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return indices[: len(left)], indices[len(left) :]


def joined(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return a code for each row of several columns of codes, again the same on both sides."""
    first, second = parts[0]
    total = np.concatenate([first, second])
    for left, right in parts[1:]:
        more = np.concatenate([left, right])
        _, total = np.unique(total * (more.max(initial=0) + 2) + more + 1, return_inverse=True)
    return total[: len(first)], total[len(first) :]


_SHOWN = ("value", "low", "high", "confidence", "unit", "method", "status", "reason", "version")
_GRAVITY = {
    MetricChangeKind.BEYOND_NOISE: 0,
    MetricChangeKind.CHANGED: 0,
    MetricChangeKind.LOST: 1,
    MetricChangeKind.GAINED: 1,
    MetricChangeKind.WITHIN_NOISE: 2,
    MetricChangeKind.ADDED: 3,
    MetricChangeKind.REMOVED: 3,
    MetricChangeKind.NOT_COMPARABLE: 4,
}
_BY_CHANCE = 2
_NEXT = 3
"""Rows of a metric that stand in each round after the first."""


def compare_metrics(old: Manifest, new: Manifest, meaning: Meaning) -> tuple[tuple[MetricChange, ...], int, int]:
    """Return the records that are not as they were, how many are, and how many are not shown."""
    tables = old.table("metrics"), new.table("metrics")
    places = _places(tables, TABLES["metrics"])
    _, left, right = np.intersect1d(*places, assume_unique=True, return_indices=True)
    concealed = [
        names[_concealed(manifest, table)] for manifest, table, names in zip((old, new), tables, places, strict=True)
    ]
    secret = np.union1d(*concealed)
    differ = _differ(tables, left, right) | _meant_otherwise(tables, left, right, meaning)
    shown = ~np.isin(places[0][left], secret)
    sizes = EffectiveSampleSizes(old), EffectiveSampleSizes(new)
    chosen = differ & shown
    pairs = zip(_rows(tables[0], left[chosen]), _rows(tables[1], right[chosen]), strict=True)
    changes = [_change(was, now, meaning, sizes) for was, now in pairs]
    for table, mine, theirs, fate in (
        (tables[0], places[0], places[1], MetricChangeKind.REMOVED),
        (tables[1], places[1], places[0], MetricChangeKind.ADDED),
    ):
        alone = np.flatnonzero(~np.isin(mine, theirs) & ~np.isin(mine, secret))
        changes += [_alone(row, fate) for row in _rows(table, alone)]
    return tuple(ordered(changes)), int((~chosen & shown).sum()), len(secret)


def _rows(table: pa.Table, rows: np.ndarray) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = table.take(pa.array(rows)).to_pylist()
    return records


def _places(tables: tuple[pa.Table, pa.Table], spec: TableSpec) -> tuple[np.ndarray, np.ndarray]:
    """Return codes of the records' names: the same number for the same metric, statistic and scope."""
    flat = [dict(flat_columns(table.select(["metric", "stat", "scope"]))) for table in tables]
    return joined([codes(*(pa.chunked_array([columns[name]]) for columns in flat)) for name in spec.key])


def _differ(tables: tuple[pa.Table, pa.Table], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """bool[n]: whether anything that is shown differs between two records of a name, if either has a value."""
    differ = np.zeros(len(left), dtype=bool)
    for name in _SHOWN:
        values, other = codes(*(table[name] for table in tables))
        differ |= values[left] != other[right]
    valued = [table["value"].is_valid().to_numpy() for table in tables]
    return np.asarray(differ & (valued[0][left] | valued[1][right]))


def _meant_otherwise(
    tables: tuple[pa.Table, pa.Table], left: np.ndarray, right: np.ndarray, meaning: Meaning
) -> np.ndarray:
    """bool[n]: whether two records cannot be compared, though they may be equal by chance."""
    names = ["metric", "stat", "unit", "set", "rule", "language"]
    if not len(left):
        return np.zeros(0, dtype=bool)
    scope = dict(flat_columns(tables[1].select(["scope"])))
    columns = [*(tables[1][name] for name in names[:3]), *(pa.chunked_array([scope[f"scope.{n}"]]) for n in names[3:])]
    rows = pa.table(dict(zip(names, columns, strict=True))).take(pa.array(right))
    kind, _ = joined([codes(rows[name], rows[name][:0]) for name in names])
    _, first, of = np.unique(kind, return_index=True, return_inverse=True)
    kinds = rows.take(pa.array(first)).to_pylist()
    other = [bool(meaning.why_not(row["metric"], row["stat"], row["unit"], row)) for row in kinds]
    valued = [table["value"].is_valid().to_numpy() for table in tables]
    return np.asarray(np.array(other, dtype=bool)[of] & valued[0][left] & valued[1][right])


def _concealed(manifest: Manifest, table: pa.Table) -> np.ndarray:
    rows = np.flatnonzero(pc.is_in(table["metric"], pa.array(sorted(PERSONAL), pa.string())).to_numpy())
    if not len(rows):
        return rows
    records = [Metric(**{**row, "scope": Scope(**row["scope"])}) for row in _rows(table, rows)]
    return rows[sorted(hidden_records(manifest, records))]


def _change(
    was: dict[str, Any], now: dict[str, Any], meaning: Meaning, sizes: tuple[EffectiveSampleSizes, EffectiveSampleSizes]
) -> MetricChange:
    change = _named(now, old=_number(was), new=_number(now))
    if was["status"] != "ok" or now["status"] != "ok":
        fate = MetricChangeKind.LOST if was["status"] == "ok" else MetricChangeKind.GAINED
        return MetricChange(**change, fate=fate, reason=was["reason"] if now["status"] == "ok" else now["reason"])
    older, newer = (Meant(row["unit"], row["version"]) for row in (was, now))
    if reason := meaning.between(older, newer, now["metric"], now["stat"], now["scope"]):
        return MetricChange(**change, fate=MetricChangeKind.NOT_COMPARABLE, reason=reason)
    moved = difference(_interval(was), _interval(now))
    change["difference"] = rounded(moved.value)
    if was["method"] == now["method"] == "exact":
        return MetricChange(**change, fate=MetricChangeKind.CHANGED, **_chance(was, now, sizes))
    if any(row["method"] != "exact" and row["low"] is None for row in (was, now)):
        return MetricChange(**change, fate=MetricChangeKind.CHANGED)  # how far an estimate is off is not known
    return MetricChange(
        **change,
        fate=MetricChangeKind.WITHIN_NOISE if moved.low <= 0 <= moved.high else MetricChangeKind.BEYOND_NOISE,
        low=rounded(moved.low),
        high=rounded(moved.high),
        confidence=rounded(moved.confidence),
    )


def _alone(row: dict[str, Any], fate: MetricChangeKind) -> MetricChange:
    old, new = (_number(row) if fate == side else None for side in (MetricChangeKind.REMOVED, MetricChangeKind.ADDED))
    return MetricChange(**_named(row, old=old, new=new), fate=fate, reason=row["reason"])


def _named(row: dict[str, Any], **sides: Number | None) -> dict[str, Any]:
    return {**{name: row[name] for name in ("metric", "stat", "unit")}, "scope": Scope(**row["scope"]), **sides}


def _chance(
    was: dict[str, Any], now: dict[str, Any], sizes: tuple[EffectiveSampleSizes, EffectiveSampleSizes]
) -> dict[str, Any]:
    draws = [
        size.of(row["metric"], row["stat"], row["scope"], row["value"], row["denominator"])
        for size, row in zip(sizes, (was, now), strict=True)
    ]
    if draws[0] is None or draws[1] is None:
        return {}
    moved = chance(was["value"], draws[0], now["value"], draws[1])
    is_chance = moved.low <= 0 <= moved.high
    return {"chance_low": rounded(moved.low), "chance_high": rounded(moved.high), "chance": is_chance}


def _interval(row: dict[str, Any]) -> Interval:
    if row["low"] is None:
        return Interval(row["value"], row["value"], row["value"])
    return Interval(row["value"], row["low"], row["high"], row["confidence"])


def _number(row: dict[str, Any]) -> Number:
    names = ("value", "low", "high", "confidence", "denominator", "method", "status", "reason")
    return Number(**{name: row[name] for name in names})


def ordered(changes: Sequence[MetricChange]) -> list[MetricChange]:
    """Order by gravity, then in rounds: in each the areas in turn, with a few rows of each metric.

    Otherwise one metric with many statistics hides all others. Within a metric a share that chance or sampling was
    asked of stands by the ratio of its change to half of the interval; then exact shares by points, then counts by the
    relative change. Shares of the mixture and of languages stand by points alone. What repeats, of a split or of the
    whole, a row above waits for the last round.
    """
    counted: Counter[tuple[int, str]] = Counter()
    seen: set[tuple[Any, ...]] = set()
    in_rounds = []
    for key, change in sorted(((_order(change), change) for change in changes), key=itemgetter(0)):
        kind = (key[0], change.metric)
        content = {(*kind, *part) for part in _content_of(change)}
        if content & seen:
            turn = len(changes)
        else:
            counted[kind] += 1
            first = METRICS[change.metric].first_rows if change.metric in METRICS else 1
            turn = max(0, -(-(counted[kind] - first) // _NEXT))
        seen |= content
        in_rounds.append(((key[0], turn, *key[1:]), change))
    return [change for _, change in sorted(in_rounds, key=itemgetter(0))]


def _order(change: MetricChange) -> tuple[Any, ...]:
    gravity = _BY_CHANCE if change.chance else _GRAVITY[change.fate]
    place = tuple(sorted((name, str(value)) for name, value in change.scope.as_dict().items()))
    kind, strength = _strength(change)
    area = METRICS[change.metric].reading if change.metric in METRICS else LAST
    return gravity, area, kind, -rounded(strength), len(place), change.metric, change.stat, place


def _is_mixture(metric: str) -> bool:
    """Return whether a metric says which share of the corpus its parts are."""
    return metric in METRICS and any(
        statistic.is_amount and statistic.unit == "ratio" for statistic in METRICS[metric].statistics
    )


def _strength(change: MetricChange) -> tuple[int, float]:
    """Return what is compared, the most telling first, and how large the change is in it."""
    if change.difference is None:
        return 2, 0.0
    moved = abs(change.difference)
    if _is_mixture(change.metric):
        return (0 if change.stat == "share" else 1), moved
    low, high = (change.low, change.high) if change.low is not None else (change.chance_low, change.chance_high)
    if low is not None and high is not None and high > low:
        return 0, moved / ((high - low) / 2)
    if change.unit == "ratio":
        return 1, moved
    values = [abs(side.value) for side in (change.old, change.new) if side is not None and side.value is not None]
    return 2, moved / max(values) if moved else 0.0


def _content_of(change: MetricChange) -> list[tuple[Any, ...]]:
    """Return statistic and place of a row, split aside; and its two values, whatever they are of."""
    scope = change.scope.as_dict()
    place = tuple(sorted((name, str(value)) for name, value in scope.items() if name != "split"))
    values = tuple(None if side is None else side.value for side in (change.old, change.new))
    return [("place", change.stat, place), ("values", values)]


def in_turns(changes: Sequence[MetricChange], most: int) -> list[MetricChange]:
    """Return changes with those in front, as many as fit, that are of as many metrics as can be; each in its order."""
    seen: Counter[str] = Counter()
    turns = []
    for at, change in enumerate(changes):
        turns.append((seen[change.metric], at))
        seen[change.metric] += 1
    front = {at for _, at in sorted(turns)[:most]}
    return [changes[at] for at in sorted(range(len(changes)), key=lambda at: (at not in front, at))]
