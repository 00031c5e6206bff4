"""Fan-out over units and shards: run units as a phase, and hand out lists of shards whose results go to the store."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dataaudit.base.errors import ClusterError
from dataaudit.engine.plan_shards import Plan
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import ListedUnit, Outcome, Runner, Unit, sizes_of
from dataaudit.engine.store import Damage, PartialStore
from dataaudit.engine.store_entries import Entry
from dataaudit.scan.corpus.loss import Reason

PARTIALS = "partials"
"""Table of a list: the addresses of the partials of its shards."""
_ADDRESSES = pa.schema([("shard", pa.int32()), ("stage", pa.string()), ("address", pa.binary())])
"""The partial of each part, as the file system's bytes; those of a shard and stage follow each other."""


def run_units(
    name: str,
    function: Callable[[Any], Outcome],
    units: Sequence[Unit],
    runner: Runner,
    progress: Progress,
    *,
    phase: str = "",
    on_outcome: Callable[[int, Outcome], object] | None = None,
    store: PartialStore | None = None,
    tell_short: bool = True,
) -> tuple[dict[int, tuple[Reason, str]], set[str]]:
    """Run units as a phase of the build, shown as ``phase`` when that is given.

    Returns reason and place of each unit that failed, by its index, and the ``kind/key`` of entries that are absent or
    damaged. A ``store`` then sees the packs that units wrote.
    """
    sizes = sizes_of(units)
    failed: dict[int, tuple[Reason, str]] = {}
    damaged = set[str]()
    progress.begin(phase or name, len(units), int(sizes.sum()))

    def done(index: int, outcome: Outcome) -> None:
        damaged.update(outcome.damaged)
        if outcome.reason is not None:
            failed[index] = outcome.reason, outcome.place
        if on_outcome is not None:
            on_outcome(index, outcome)
        progress.advance(int(sizes[index]), failed=outcome.reason is not None)

    runner.run(name, function, units, done)
    if store is not None:
        store.packs.refresh()
    progress.end(tell_short=tell_short)
    return failed, damaged


def run_stored(
    name: str,
    function: Callable[[Any], Outcome],
    units: Sequence[Unit],
    what: str,
    store: PartialStore,
    runner: Runner,
    progress: Progress,
    *,
    tell_short: bool = True,
) -> None:
    """Run units whose results all go to the store."""
    phase = name.replace("-", " ")
    failed, damaged = run_units(name, function, units, runner, progress, phase=phase, tell_short=tell_short)
    if failed:
        reason, place = next(iter(failed.values()))
        raise ClusterError(
            f"{name} failed on {len(failed)} {what}: {reason} {place}".rstrip(),
            "Give the workers more memory (--memory-limit) or run fewer of them, then run again.",
        )
    remove_damaged(store, damaged)


def remove_damaged(store: PartialStore, names: Iterable[str]) -> None:
    """Remove entries, ``kind/key``, and raise when there are any."""
    damage = Damage(store)
    for name in sorted(names):
        damage.remove(*name.split("/"))
    damage.tell()


def addresses(plan: Plan, places: Iterable[int], stages: Collection[str], store: PartialStore) -> pa.Table:
    """Return the addresses of the partials of some stages of some shards: the table :data:`PARTIALS` of a list."""
    wanted: dict[str, tuple[list[int], list[str]]] = {}
    for place in places:
        ordinal, parts = plan.ordinal(place), plan.keys(place)
        for stage in plan.kind(place).stages:
            if stage in stages:
                ordinals, keys = wanted.setdefault(stage, ([], []))
                ordinals += [ordinal] * len(parts)
                keys += [own[stage] for own in parts]
    tables = []
    for stage, (ordinals, keys) in wanted.items():
        listed = [os.fsencode(str(stored)) for stored in store.places(stage, keys)]
        tables.append(pa.table([ordinals, [stage] * len(keys), listed], schema=_ADDRESSES))
    return pa.concat_tables([_ADDRESSES.empty_table(), *tables]).combine_chunks()


def listed_partials(listed: Entry) -> dict[int, dict[str, list[str]]]:
    """Return the addresses of partials of a list by shard and stage, of each in the order of its parts."""
    partials: dict[int, dict[str, list[str]]] = {}
    for row in listed.tables[PARTIALS].to_pylist():
        partials.setdefault(row["shard"], {}).setdefault(row["stage"], []).append(os.fsdecode(row["address"]))
    return partials


def new_key() -> str:
    """Return a key that no other build has: what it names is used once."""
    return secrets.token_hex(32)


def write_list(kind: str, tables: Mapping[str, pa.Table], store: PartialStore) -> ListedUnit:
    """Write the list of a task and return its unit."""
    key = new_key()
    store.write(kind, key, {}, tables)
    return ListedUnit(key=key, listed=store.address(kind, key))


def run_listed(
    name: str,
    function: Callable[[Any], Outcome],
    units: Sequence[ListedUnit],
    lists: str,
    store: PartialStore,
    runner: Runner,
    progress: Progress,
) -> list[str]:
    """Run units, remove their lists, and return the keys of their results."""
    try:
        run_stored(name, function, units, "task(s)", store, runner, progress, tell_short=False)
    finally:
        for unit in units:
            store.remove(lists, unit.key)
    return [unit.key for unit in units]


def take_results(kind: str, keys: Iterable[str], store: PartialStore) -> Iterator[Entry]:
    """Yield the results of listed units, each read once and removed; raise in the end when some are damaged."""
    damage = Damage(store)
    for key in keys:
        if (entry := damage.read(kind, key)) is not None:
            store.remove(kind, key)
            yield entry
    damage.tell()
