"""Every metric record of two manifests, side by side; those that are not as they were, in the order to read them in.

They are ordered by what people act on, and within that by how far beyond sampling error a change is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.diff.difference import MetricChange, MetricChangeKind, Number
from dataaudit.diff.matching import codes, joined
from dataaudit.diff.sampling_error import EffectiveSampleSizes, Interval, chance, difference
from dataaudit.manifest.canonical import flat_columns
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope, rounded
from dataaudit.manifest.tables import TABLES, TableSpec
from dataaudit.metrics.comparable import Meaning, Meant
from dataaudit.metrics.family import LAST
from dataaudit.metrics.registry import METRICS, PERSONAL

Hidden = Callable[[Manifest, Sequence[Metric]], Collection[int]]
"""Returns the indexes of the records that are not to be shown, of those of one metric."""
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


def compare_metrics(
    old: Manifest, new: Manifest, meaning: Meaning, hidden: Hidden
) -> tuple[tuple[MetricChange, ...], int, int]:
    """Return the records that are not as they were, how many are, and how many are not shown.

    Raises:
        ManifestError: A table is absent or damaged.
        ManifestMismatch: A table is not the one that its manifest was published with.
    """
    tables = old.table("metrics"), new.table("metrics")
    places = _places(tables, TABLES["metrics"])
    _, left, right = np.intersect1d(*places, assume_unique=True, return_indices=True)
    concealed = tuple(_concealed(manifest, table, hidden) for manifest, table in zip((old, new), tables, strict=True))
    secret = set(places[0][concealed[0]].tolist()) | set(places[1][concealed[1]].tolist())
    differ = _differ(tables, left, right) | _meant_otherwise(tables, left, right, meaning)
    shown = ~np.isin(places[0][left], list(secret))
    sizes = EffectiveSampleSizes(old), EffectiveSampleSizes(new)
    chosen = differ & shown
    pairs = zip(_rows(tables[0], left[chosen]), _rows(tables[1], right[chosen]), strict=True)
    changes = [_change(was, now, meaning, sizes) for was, now in pairs]
    for table, mine, theirs, fate in (
        (tables[0], places[0], places[1], MetricChangeKind.REMOVED),
        (tables[1], places[1], places[0], MetricChangeKind.ADDED),
    ):
        alone = np.flatnonzero(~np.isin(mine, theirs) & ~np.isin(mine, list(secret)))
        changes += [_alone(row, fate) for row in _rows(table, alone)]
    return tuple(ordered(changes)), int((~chosen & shown).sum()), len(secret)


def _rows(table: pa.Table, rows: np.ndarray) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.take(pa.array(rows)).to_pylist()
    return found


def _places(tables: tuple[pa.Table, pa.Table], spec: TableSpec) -> tuple[np.ndarray, np.ndarray]:
    """Return codes of the records' names: the same number for the same metric, statistic and scope."""
    flat = [dict(flat_columns(table.select(["metric", "stat", "scope"]))) for table in tables]
    return joined([codes(*(pa.chunked_array([held[name]]) for held in flat)) for name in spec.key])


def _differ(tables: tuple[pa.Table, pa.Table], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """bool[n]: whether anything that is shown differs between two records of one name, of which one has a value."""
    found = np.zeros(len(left), dtype=bool)
    for name in _SHOWN:
        one, other = codes(*(table[name] for table in tables))
        found |= one[left] != other[right]
    valued = [table["value"].is_valid().to_numpy() for table in tables]
    return np.asarray(found & (valued[0][left] | valued[1][right]))


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
    told = [bool(meaning.why_not(row["metric"], row["stat"], row["unit"], row)) for row in kinds]
    valued = [table["value"].is_valid().to_numpy() for table in tables]
    return np.asarray(np.array(told, dtype=bool)[of] & valued[0][left] & valued[1][right])


def _concealed(manifest: Manifest, table: pa.Table, hidden: Hidden) -> np.ndarray:
    """Return the rows of records that are not to be shown."""
    rows = np.flatnonzero(pc.is_in(table["metric"], pa.array(sorted(PERSONAL), pa.string())).to_numpy())
    if not len(rows):
        return rows
    records = [Metric(**{**row, "scope": Scope(**row["scope"])}) for row in _rows(table, rows)]
    return rows[sorted(hidden(manifest, records))]


def _change(
    was: dict[str, Any], now: dict[str, Any], meaning: Meaning, sizes: tuple[EffectiveSampleSizes, EffectiveSampleSizes]
) -> MetricChange:
    """Return what became of one record."""
    sides = _number(was), _number(now)
    named: dict[str, Any] = {
        "metric": now["metric"],
        "stat": now["stat"],
        "scope": Scope(**now["scope"]),
        "unit": now["unit"],
        "old": sides[0],
        "new": sides[1],
    }
    if was["status"] != "ok" or now["status"] != "ok":
        fate = MetricChangeKind.LOST if was["status"] == "ok" else MetricChangeKind.GAINED
        return MetricChange(**named, fate=fate, reason=was["reason"] if now["status"] == "ok" else now["reason"])
    older, newer = (Meant(row["unit"], row["version"]) for row in (was, now))
    if reason := meaning.between(older, newer, now["metric"], now["stat"], now["scope"]):
        return MetricChange(**named, fate=MetricChangeKind.NOT_COMPARABLE, reason=reason)
    exact = was["method"] == now["method"] == "exact"
    without = any(row["method"] != "exact" and row["low"] is None for row in (was, now))
    found = difference(_interval(was), _interval(now))
    named["difference"] = rounded(found.value)
    if exact:
        return MetricChange(**named, fate=MetricChangeKind.CHANGED, **_chance(was, now, sizes))
    if without:  # how far it is off is not known, so neither is what of the change is
        return MetricChange(**named, fate=MetricChangeKind.CHANGED)
    return MetricChange(
        **named,
        fate=MetricChangeKind.WITHIN_NOISE if found.low <= 0 <= found.high else MetricChangeKind.BEYOND_NOISE,
        low=rounded(found.low),
        high=rounded(found.high),
        confidence=rounded(found.confidence),
    )


def _alone(row: dict[str, Any], fate: MetricChangeKind) -> MetricChange:
    number = _number(row)
    return MetricChange(
        metric=row["metric"],
        stat=row["stat"],
        scope=Scope(**row["scope"]),
        unit=row["unit"],
        fate=fate,
        reason=row["reason"],
        old=number if fate == MetricChangeKind.REMOVED else None,
        new=number if fate == MetricChangeKind.ADDED else None,
    )


def _chance(
    was: dict[str, Any], now: dict[str, Any], sizes: tuple[EffectiveSampleSizes, EffectiveSampleSizes]
) -> dict[str, Any]:
    """Return what chance alone gives, of a share that it is asked for."""
    draws = [
        held.of(row["metric"], row["stat"], row["scope"], row["value"], row["denominator"])
        for held, row in zip(sizes, (was, now), strict=True)
    ]
    if draws[0] is None or draws[1] is None:
        return {}
    found = chance(was["value"], draws[0], now["value"], draws[1])
    return {
        "chance_low": rounded(found.low),
        "chance_high": rounded(found.high),
        "chance": found.low <= 0 <= found.high,
    }


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
    relative change. Shares of the mixture and of languages stand by points alone. What says the same of a split or of
    the whole as a row above waits for the last round.
    """
    held = sorted(((_order(change), change) for change in changes), key=lambda pair: pair[0])
    counted: dict[tuple[int, str], int] = {}
    said: set[tuple[Any, ...]] = set()
    found = []
    for key, change in held:
        kind = (key[0], change.metric)
        again = [(*kind, *same) for same in _sayings(change)]
        if any(one in said for one in again):
            turn = len(changes)
        else:
            counted[kind] = counted.get(kind, 0) + 1
            first = METRICS[change.metric].first_rows if change.metric in METRICS else 1
            turn = max(0, -(-(counted[kind] - first) // _NEXT))
        said.update(again)
        found.append(((key[0], turn, *key[1:]), change))
    return [change for _, change in sorted(found, key=lambda pair: pair[0])]


def _order(change: MetricChange) -> tuple[Any, ...]:
    gravity = _BY_CHANCE if change.chance else _GRAVITY[change.fate]
    place = tuple(sorted((name, str(value)) for name, value in change.scope.as_dict().items()))
    kind, strength = _strength(change)
    area = METRICS[change.metric].reading if change.metric in METRICS else LAST
    return gravity, area, kind, -rounded(strength), len(place), change.metric, change.stat, place


def _is_mixture(metric: str) -> bool:
    """Return whether a metric says which share of the corpus its parts are."""
    return metric in METRICS and any(one.is_amount and one.unit == "ratio" for one in METRICS[metric].statistics)


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


def _sayings(change: MetricChange) -> list[tuple[Any, ...]]:
    """Return what a row says: its statistic and place, split aside; and its two values, whatever they are of."""
    scope = change.scope.as_dict()
    place = tuple(sorted((name, str(value)) for name, value in scope.items() if name != "split"))
    values = tuple(None if side is None else side.value for side in (change.old, change.new))
    return [("place", change.stat, place), ("values", values)]
