"""Fan-out over shards: tasks that get lists of where partials are, and whose results go through the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from dataaudit.base.errors import ClusterError
from dataaudit.engine.plan_shards import Plan
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import LinkUnit, Outcome, Runner
from dataaudit.engine.store import Damage, PartialStore
from dataaudit.scan.corpus.loss import Reason

ADDRESSES = pa.schema([("shard", pa.int32()), ("stage", pa.string()), ("address", pa.binary())])
"""Of a list: the partial of each part, as the file system's bytes; those of a shard and stage follow each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedUnit:
    """Some shards, or results of such units."""

    pieces: ClassVar[int] = 64
    """Parts of a scan that take about as long."""
    key: str
    """Of its result."""
    listed: str = ""
    """Address of the list of shards."""
    results: tuple[str, ...] = ()
    """Addresses of results."""

    @property
    def name(self) -> str:
        """What names it from run to run."""
        return self.key

    @property
    def size(self) -> int:
        """All take about as long."""
        return 1

    @property
    def isolated(self) -> bool:
        """Only files of our own are read."""
        return False


def addresses(plan: Plan, places: Iterable[int], stages: Collection[str], store: PartialStore) -> pa.Table:
    """Return where the partials of some stages of some shards are, of schema :data:`ADDRESSES`."""
    wanted: dict[str, tuple[list[int], list[str]]] = {}
    for place in places:
        ordinal, parts = plan.ordinal(place), plan.keys(place)
        for stage in plan.stages(place):
            if stage in stages:
                ordinals, keys = wanted.setdefault(stage, ([], []))
                ordinals += [ordinal] * len(parts)
                keys += [own[stage] for own in parts]
    tables = []
    for stage, (ordinals, keys) in wanted.items():
        listed = [os.fsencode(str(stored)) for stored in store.places(stage, keys)]
        tables.append(pa.table([ordinals, [stage] * len(keys), listed], schema=ADDRESSES))
    return pa.concat_tables([ADDRESSES.empty_table(), *tables]).combine_chunks()


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


def run_stored(
    name: str,
    function: Callable[[Any], Outcome],
    units: Sequence[ListedUnit | LinkUnit],
    what: str,
    store: PartialStore,
    runner: Runner,
    progress: Progress,
    *,
    tell_short: bool = True,
) -> None:
    """Run units whose results go to the store."""
    damage, damaged = Damage(store), set[str]()
    failed: list[tuple[Reason, str]] = []
    progress.begin(name.replace("-", " "), len(units), 0)

    def done(index: int, outcome: Outcome) -> bool:
        del index
        damaged.update(outcome.damaged)
        if outcome.reason is not None:
            failed.append((outcome.reason, outcome.place))
        progress.advance(0, failed=outcome.reason is not None)
        return True

    runner.run(name, function, units, done)
    progress.end(tell_short=tell_short)
    if failed:
        raise ClusterError(
            f"{name} failed on {len(failed)} {what}: {failed[0][0]} {failed[0][1]}".rstrip(),
            "Give the workers more memory (--memory-limit) or run fewer of them, then run again.",
        )
    for entry in sorted(damaged):
        damage.remove(*entry.split("/"))
    damage.tell()
