"""Digests of the decoded rows of shards: what a shard holds, however it is stored."""

from __future__ import annotations

from collections.abc import Sequence

from dataaudit.engine.gather import GatheredShard
from dataaudit.engine.partials import Damage
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.store import PartialStore
from dataaudit.engine.units import READING, Outcome, RowsUnit
from dataaudit.engine.work import digest_rows
from dataaudit.errors import ClusterError


def rows_digests(
    shards: Sequence[GatheredShard], store: PartialStore, runner: Runner, progress: Progress
) -> dict[int, str]:
    """Return the digest of the decoded rows of every shard that was read, by ordinal.

    Raises:
        ClusterError: Rows cannot be read on these workers.
        DamagedEntryError: Stored rows are absent or damaged.
    """
    read = [shard for shard in shards if shard.partials]
    units = []
    for shard in progress.over("lists", read, len(read)):
        rows = tuple(store.address(READING, part.reading_key, "rows") for part in shard.planned.parts)
        units.append(RowsUnit(rows=rows, size=shard.records))
    digests: dict[int, str] = {}
    damage, damaged = Damage(store), set[str]()

    def done(index: int, outcome: Outcome) -> bool:
        if outcome.reason is not None:
            raise ClusterError(f"digesting rows failed: {outcome.reason} {outcome.place}".rstrip())
        digests[read[index].planned.shard.ordinal] = outcome.digest
        damaged.update(outcome.damaged)
        progress.advance(0)
        return True

    progress.begin("rows", len(units), 0)
    runner.run("rows", digest_rows, units, done)
    progress.end(tell_short=False)
    for name in sorted(damaged):
        damage.remove(*name.split("/"))
    damage.tell()
    return digests
