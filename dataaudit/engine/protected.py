"""What a build protects: held-out splits and evaluation sets, read and indexed before the scan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dataaudit import __version__
from dataaudit.atomic import DamagedFileError
from dataaudit.config import AuditConfig
from dataaudit.corpus.loss import Reason
from dataaudit.corpus.protected.edited import PlainWords
from dataaudit.corpus.protected.held_out import HeldOutPart, index_held_out
from dataaudit.corpus.protected.index import IndexFile, ProtectedIndex, open_index, write_index
from dataaudit.corpus.protected.items import index_items
from dataaudit.corpus.protected.sets import ItemFields
from dataaudit.corpus.shards import expand, remote_lister
from dataaudit.corpus.storage.address import Access
from dataaudit.engine.holding import Holding
from dataaudit.engine.keys import library_versions
from dataaudit.engine.partials import Damage
from dataaudit.engine.plan import PlannedPart, PlannedShard, plan_shard
from dataaudit.engine.probing import Probed
from dataaudit.engine.progress import Progress
from dataaudit.engine.protected_errors import file_name, no_items, unreadable, wrong_file
from dataaudit.engine.protected_work import HELD_OUT, HELD_OUT_RECORDS, ITEMS, read_held_out, read_set
from dataaudit.engine.runner import Runner
from dataaudit.engine.shard_list import ShardList
from dataaudit.engine.store import Entry, PartialStore
from dataaudit.engine.units import HeldOutUnit, Outcome, SetUnit
from dataaudit.errors import ClusterError
from dataaudit.link.step import DamagedEntryError, Protected, SetFacts
from dataaudit.manifest.canonical import digest_json
from dataaudit.metrics.coverage.definition import bad_share
from dataaudit.metrics.overlap.stage import Overlap
from dataaudit.stages.base import Stage

_VERSION = "8"
"""Changes whenever the same documents and items may give another index, or the kernels read another one."""
_Pairs = list[tuple[str, list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """What preparing works with."""

    config: AuditConfig
    """With text and source resolved for every split."""
    base: Path
    shards: ShardList
    probed: Probed
    store: PartialStore
    runner: Runner
    progress: Progress
    fresh: bool
    holding: Holding | None = None
    """What is held back."""
    lost: frozenset[str] = frozenset()
    """Reading keys of parts that cannot be read again: their shards are quarantined, and not searched for."""


def prepare_protected(work: Preparing, stages: Sequence[Stage]) -> Protected | None:
    """Read what is protected and index it; None when nothing is, or no stage looks for it.

    Raises:
        ConfigError: An evaluation set cannot be used.
        ClusterError: The work cannot be done on these workers.
        DamagedEntryError: What was stored of held-out documents is absent or damaged.
    """
    stage = next((stage for stage in stages if isinstance(stage, Overlap)), None)
    held_out = work.shards.of_splits([name for name, split in work.config.splits.items() if split.held_out])
    if stage is None and work.config.protected:
        work.runner.notes.append("evaluation sets are not searched for: stages.overlap is false")
        work.progress.note(work.runner.notes[-1])
    if stage is None or not (held_out or work.config.protected):
        return None
    planned = [
        plan_shard(shard, work.probed.probe(shard.ordinal), work.probed.failure(shard.ordinal), work.config, (), {})
        for shard in held_out
    ]
    if work.holding is not None:
        planned = [work.holding.applied(one, (), {}) for one in planned]
    sets, pairs = _read_sets(work)
    _store_words(work, planned)
    file, index = _index(work, planned, sets, pairs, stage.max_grams)
    taken = "" if not index.held_out.sample_bits else f" (one in {1 << index.held_out.sample_bits:,}, by hash)"
    work.progress.note(
        f"protected: {len(index.held_out.rows):,} held-out documents{taken},"
        f" {len(index.items.sets):,} items of {len(sets)} evaluation sets"
    )
    return Protected(file=file, index=index, sets=tuple(sets), shards=tuple(held_out))


def _read_sets(work: Preparing) -> tuple[list[SetFacts], list[_Pairs]]:
    reader = work.config.reader
    remote = remote_lister(Access(timeout_seconds=reader.timeout_seconds, retries=reader.retries))
    names, units = sorted(work.config.protected), []
    for name in names:
        own = work.config.protected[name]
        fields = ItemFields(question=own.question, answer=own.answer, id=own.id)
        found: dict[str, None] = {}
        for pattern in own.paths:
            files, left_out = expand(pattern, work.base, where=f"protected.{name}.paths", remote=remote)
            found.update(dict.fromkeys(files))
            if left_out:
                work.runner.notes.append(f"protected.{name}: {len(left_out):,} entries of folders left out by name")
        paths = list(found)
        key = digest_json([[os.fsencode(path).hex() for path in paths], own.question, own.answer, own.id])
        units.append(SetUnit(paths=tuple(paths), fields=fields, state=work.store.root, key=key.removeprefix("sha256:")))
    failed: dict[int, tuple[Reason, str]] = {}
    _run(work, read_set, units, failed)
    facts, pairs = [], []
    for number, (name, unit) in enumerate(zip(names, units, strict=True)):
        if number in failed:
            raise unreadable(name, unit.paths, *failed[number])
        entry = work.store.read(ITEMS, unit.key)
        if entry is None:
            raise ClusterError(f"the items of {name} are not in {work.store.root}", "Run the same command again.")
        if "wrong" in entry.meta:
            raise wrong_file(name, unit.paths, entry.meta["wrong"])
        table = entry.tables["items"]
        if table.num_rows == 0:
            raise no_items(name, entry.meta["lost"])
        facts.append(
            SetFacts(name=name, ids=table["id"].to_pylist(), lost=entry.meta["lost"], sha256=entry.meta["sha256"])
        )
        pairs.append(list(zip(table["question"].to_pylist(), table["answers"].to_pylist(), strict=True)))
        if entry.meta["lost"]:
            said = ", ".join(f"{count:,} {reason}" for reason, count in sorted(entry.meta["lost"].items()))
            file, record = entry.meta["first"]
            first = f"record {record} of {file_name(unit.paths, file)}"
            work.runner.notes.append(f"protected.{name}: {said}; first at {first}")
            work.progress.note(work.runner.notes[-1])
    return facts, pairs


def _store_words(work: Preparing, planned: Sequence[PlannedShard]) -> None:
    """Store the words of all held-out documents that are not stored yet; what cannot be read is left out."""
    units: dict[str, HeldOutUnit] = {}
    for shard in planned:
        if shard.probe is None:
            continue
        for part in shard.parts:
            key = _words_key(part)
            if work.fresh or not work.store.has(HELD_OUT, key):
                units[key] = HeldOutUnit(
                    request=part.request,
                    sha256=shard.probe.sha256,
                    stat=shard.probe.stat,
                    state=work.store.root,
                    key=key,
                    size=shard.probe.stat.size // max(1, len(shard.parts)),
                )
    failed: dict[int, tuple[Reason, str]] = {}
    _run(work, read_held_out, list(units.values()), failed)
    if failed:
        said = f"{len(failed):,} part(s) of held-out shards could not be read, so their shards are not searched for"
        work.runner.notes.append(f"{said}: {next(iter(failed.values()))[0]}")


def _words_key(part: PlannedPart) -> str:
    without = [sorted(part.request.without)] if part.request.without else []
    return digest_json([part.reading_key, _VERSION, *without]).removeprefix("sha256:")


def _run(
    work: Preparing, function: object, units: Sequence[SetUnit | HeldOutUnit], failed: dict[int, tuple[Reason, str]]
) -> None:
    assert callable(function)
    work.progress.begin("protect", len(units), sum(unit.size for unit in units))

    def done(number: int, outcome: Outcome) -> bool:
        if outcome.reason is not None:
            failed[number] = (outcome.reason, outcome.place)
        work.progress.advance(units[number].size, failed=outcome.reason is not None)
        return True

    work.runner.run("protect", function, units, done)
    work.progress.end()


def _index(
    work: Preparing, planned: Sequence[PlannedShard], sets: Sequence[SetFacts], pairs: Sequence[_Pairs], max_grams: int
) -> tuple[IndexFile, ProtectedIndex]:
    """Return the index of exactly this, built unless it is there."""
    whole = {
        number: [_words_key(part) for part in shard.parts]
        for number, shard in enumerate(planned)
        if shard.parts
        and work.lost.isdisjoint(part.reading_key for part in shard.parts)
        and all(work.store.has(HELD_OUT, _words_key(part)) for part in shard.parts)
    }
    bad = {number for number, keys in whole.items() if _too_many_bad(work, keys)}
    if bad:
        work.runner.notes.append(f"{len(bad):,} held-out shard(s) with too many bad records are not searched for")
    whole = {number: keys for number, keys in whole.items() if number not in bad}
    recipe = {
        "version": _VERSION,
        "tool": __version__,
        "libraries": library_versions(),
        "held_out": [[number, keys] for number, keys in whole.items()],
        "sets": [facts.sha256 for facts in sets],
        "max_grams": max_grams,
        "seed": work.config.seed,
    }
    path = work.store.root / "protected" / f"{digest_json(recipe).removeprefix('sha256:')}.index"
    if not work.fresh:
        try:
            known, sha256 = open_index(path, check=True)
        except DamagedFileError:
            if path.exists():
                work.runner.notes.append(f"{path.relative_to(work.store.root)} was damaged and is built again")
                work.progress.note(work.runner.notes[-1], important=True)
        else:
            return IndexFile(path=path, sha256=sha256), known
    held = index_held_out(_parts(work, planned, whole), max_grams)
    built = ProtectedIndex(held_out=held, items=index_items(pairs))
    with work.store.writing():
        file = write_index(path, built)
    return file, open_index(path)[0]


def _too_many_bad(work: Preparing, keys: Sequence[str]) -> bool:
    """Tell whether the scan will quarantine a held-out shard, so that nothing may be found of it.

    Raises:
        DamagedEntryError: What was stored is absent or damaged.
    """
    metas = [_stored(work, HELD_OUT_RECORDS, key).meta for key in keys]
    sums = (sum(meta[name] for meta in metas) for name in ("bad", "records", "bad_bytes", "text_bytes"))
    return bad_share(*sums) > work.config.reader.max_bad_records


def _stored(work: Preparing, kind: str, key: str) -> Entry:
    """Return what is stored of a held-out part.

    Raises:
        DamagedEntryError: It is absent or damaged; both of its entries are removed, so that they are stored again.
    """
    damage = Damage(work.store)
    entry = damage.read(kind, key)
    if entry is None:
        work.store.remove(HELD_OUT, key)
        raise DamagedEntryError(damage.names)
    return entry


def _parts(
    work: Preparing, planned: Sequence[PlannedShard], whole: Mapping[int, Sequence[str]]
) -> Iterator[HeldOutPart]:
    """Yield the held-out documents with their words.

    Raises:
        DamagedEntryError: What was stored is absent or damaged.
    """
    for number, keys in whole.items():
        probe, first_row = planned[number].probe, 0
        assert probe is not None
        for key in keys:
            entry = _stored(work, HELD_OUT, key)
            documents = entry.tables["documents"]
            rows = documents["row"].to_numpy() + first_row
            first_row += entry.meta["records"]
            offsets, plain_offsets = np.zeros((2, len(rows) + 1), dtype=np.int64)
            np.cumsum(documents["words"].to_numpy(), out=offsets[1:])
            np.cumsum(documents["plain"].to_numpy(), out=plain_offsets[1:])
            yield HeldOutPart(
                shard=number,
                rows=rows,
                keys=_sample_keys(probe.sha256, rows, work.config.seed),
                words=entry.tables["words"]["hash"].to_numpy(),
                offsets=offsets,
                plain=PlainWords(
                    words=entry.tables["plain"]["hash"].to_numpy(),
                    offsets=plain_offsets,
                    places=entry.tables["plain"]["place"].to_numpy(),
                ),
            )


def _sample_keys(sha256: str, rows: np.ndarray, seed: int) -> np.ndarray:
    """Return uint64[n]: a hash of the document's file, its record and the seed (the finaliser of SplitMix64)."""
    start = int(digest_json([sha256, seed]).removeprefix("sha256:")[:16], 16)
    with np.errstate(over="ignore"):
        value = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys: np.ndarray = value ^ (value >> np.uint64(31))
    return keys
