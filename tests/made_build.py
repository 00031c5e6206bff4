"""Shards, probes, plans and stored partials made by hand, in milliseconds and without a cluster."""

import hashlib
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from strategies import make_batch

from dataaudit.config import AuditConfig
from dataaudit.engine.collect import CollectedShard, merge_parts, survey
from dataaudit.engine.join import run_join
from dataaudit.engine.plan import plan_shard, stage_identity
from dataaudit.engine.plan_shards import Plan, ShardList, missing_units
from dataaudit.engine.runner import READING, Probe, Services, finish
from dataaudit.engine.sums import NOTHING_BESIDE, Sums, shard_row
from dataaudit.metrics.registry import by_stage
from dataaudit.metrics.stages import STAGES
from dataaudit.scan.annotators import MATCHES
from dataaudit.scan.corpus.readers import Part
from dataaudit.scan.corpus.shards import Shard
from dataaudit.scan.corpus.storage.files import FileStat
from dataaudit.scan.cross_shard.keyed import write_keyed
from dataaudit.scan.cross_shard.step import LinkContext, Survey
from dataaudit.scan.stages.base import merge

STAGE_LIST = tuple(kind() for kind in STAGES if MATCHES not in kind.needs)
"""Every stage of a build that protects nothing."""
DECISIVE = {
    "tokens": [{"sha256": "t", "force_reference": False}],
    "words": [None],
    "names": [None],
    "languages": [{"chosen": "d"}],
    "toxicity": ["s"],
    "pii": "p",
    "secrets": "c",
}


def identities(stages):
    """Return what tells stages apart in keys, by name."""
    return {stage.name: stage_identity(stage, DECISIVE) for stage in stages}


def config(*, max_bad=0.001, splits=("train", "val"), **more):
    """Return a config whose splits have text and source named."""
    listed = {name: {"paths": ["x"], "text": "text", "source": {"constant": "web"}} for name in splits}
    return AuditConfig.model_validate({"splits": listed, "reader": {"max_bad_records": max_bad}, **more})


def shard(ordinal=0, *, uri="a.jsonl", split="train", path=None, skip=None, size=100, format_="jsonl"):
    """Return a shard."""
    return Shard(
        ordinal=ordinal,
        split=split,
        uri=uri,
        path=path or f"/data/{uri}",
        format=format_,
        compression="none",
        skip=skip,
        size=size,
    )


def stat(size=100, mtime_ns=1, ctime_ns=1, inode=7, device=8, validator="local"):
    """Return what a file system may say."""
    return FileStat(size=size, mtime_ns=mtime_ns, ctime_ns=ctime_ns, inode=inode, device=device, validator=validator)


def probe(content="x", *, parts=((0, 100),), reason=None, size=100):
    """Return the probe of a file with this content, cut into these parts."""
    return Probe(
        stat=stat(size),
        sha256=hashlib.sha256(content.encode()).hexdigest(),
        hashed_ns=5,
        parts=tuple(Part(*part) for part in parts),
        reason=reason,
    )


def plan(one, found, *, failure=None, settings=None, stages=STAGE_LIST):
    """Plan one shard."""
    return plan_shard(one, found, failure, settings or config(), stages, identities(stages))


def shard_list(*shards):
    """Return shards as a build has them."""
    return ShardList(shards, Path(tempfile.gettempdir()))


def plan_of(planned, *, stages=STAGE_LIST):
    """Return planned shards as a build has them."""
    shards, probes = [one.shard for one in planned], [one.probe for one in planned]
    return Plan(planned, shards, probes.__getitem__, identities(stages), Path(tempfile.gettempdir()))


def missing(planned, store, *, fresh=False, of=None):
    """Return the units of work that planned shards need, or those at some places."""
    places = None if of is None else np.array(of, dtype=np.int64)
    return list(missing_units(plan_of(planned), store, Notes(), fresh=fresh, of=places))


def services(store, runner=None):
    """Return what phases work with, here."""
    return Services(store=store, runner=runner or HereRunner(), progress=Notes())


def read_shards(planned, store, *, failures=None, max_bad=1.0, seen=STAGE_LIST, stages=STAGE_LIST, runner=None):
    """Return planned shards as they were read; the partials of the stages that are seen have to be in the store."""
    work = services(store, runner)
    return survey(plan_of(planned, stages=stages), failures or {}, seen, work, max_bad=max_bad)[0]


def keys_of(gathered, stage):
    """Return, of each part of a shard that was read, the key of a stage's rows and the number of its first record."""
    parts = gathered.planned.parts
    return [(dict(part.stage_keys)[stage], first) for part, first in zip(parts, gathered.first_rows, strict=True)]


def write_reading(
    store, planned_part, *, records, bad=None, columns=("c" * 16,), reason="", rows=b"", text_bytes=10**6
):
    """Store what reading a part showed."""
    meta = {"records": records, "columns": list(columns), "reason": reason, "place": "", "bad": bad or {}}
    meta |= {"text_bytes": text_bytes, "remarks": {}}
    store.write_rows(READING, planned_part.reading_key, rows)
    store.write(READING, planned_part.reading_key, meta, {})


def write_partials(store, planned_part, documents, *, stages=STAGE_LIST):
    """Store every stage's partial of these documents, and their keyed rows."""
    made = make_batch(documents)
    for stage in (one for one in stages if one.name in planned_part.stage_keys):
        key = planned_part.stage_keys[stage.name]
        emitted = stage.emit(made)
        for name, schema in stage.emits.items():
            write_keyed(store.side_path(stage.name, key, name), [emitted[name]], schema)
        store.write(stage.name, key, {}, merge(stage, [stage.map(made)]))


def gathered(ordinal, documents, *, split="train", uri=None, stages=STAGE_LIST, **more):
    """Return a shard that was read, with the partials of these documents."""
    one = shard(ordinal, uri=uri or f"{ordinal}.jsonl", split=split)
    made = make_batch(documents)
    partials = {stage.name: merge(stage, [stage.map(made)]) for stage in stages}
    columns = {"records": len(documents), "first_rows": (0,), "partials": partials, "documents": len(documents)}
    columns["text_bytes"] = sum(len(text.encode()) for text, _ in documents)
    return CollectedShard(plan=plan_of([plan(one, probe(f"{split}{ordinal}"))]), place=0, **columns | more)


def partials_of(gathered, store, *, stages=STAGE_LIST):
    """Return the partials of a shard that was read, as they are stored."""
    read = [stage for stage in stages if stage.name in gathered.partials]
    parts = gathered.plan.keys(gathered.place)
    return {
        stage.name: merge_parts(stage, [store.read(stage.name, keys[stage.name]) for keys in parts]) for stage in read
    }


def surveyed(shards, *, stages=STAGE_LIST, store=None):
    """Return the survey of partials that are in memory, or in a store."""
    if store is not None:
        shards = [replace(one, partials=partials_of(one, store, stages=stages)) for one in shards]
    families, by_shard, by_split = by_stage(), {}, {}
    for stage in stages:
        read = [one for one in shards if stage.name in one.partials]
        for name in {*families[stage.name].by_shard, *families[stage.name].by_split}:
            schema = stage.shapes()[name].schema()
            tables = [schema.empty_table(), *(one.partials[stage.name][name] for one in read)]
            sizes = [0, *(table.num_rows for table in tables[1:])]
            rows = pa.concat_tables(tables)
            ordinals = np.repeat([0, *(one.ordinal for one in read)], sizes)
            splits = np.repeat(np.array(["", *(one.split for one in read)], dtype=object), sizes)
            by_shard[stage.name, name] = rows.add_column(0, "shard", pa.array(ordinals, pa.int32()))
            by_split[stage.name, name] = rows.add_column(0, "split", pa.array(splits, pa.string()))
    return Survey(by_shard=by_shard, by_split=by_split)


def context_of(stage, shards, store, runner, settings=None, *, fresh=False):
    """Return the context of a stage's link step, of partials in a store."""
    return LinkContext(
        stage=stage,
        shards=shards,
        survey=surveyed(shards, store=store),
        parts_of=shards.parts_of,
        store=store,
        run=partial(run_join, services=services(store, runner), fresh=fresh),
        config=settings or config(),
    )


def summed(shards, *, stages=STAGE_LIST, setting=NOTHING_BESIDE, store=None):
    """Return the table of shards and the merged partials, of partials that are in memory, or in a store."""
    if store is not None:
        shards = [replace(one, partials=partials_of(one, store, stages=stages)) for one in shards]
    sums = Sums.of(stages)
    for one in shards:
        sums.add_shard(shard_row(one), one.partials or {}, setting)
    return sums.table(), sums.merged()


class Notes:
    """Stands in for progress: keeps what it is told."""

    def __init__(self):
        self.notes = []

    def note(self, text, *, important=False):
        """Keep a line."""
        self.notes.append(text)

    def begin(self, phase, units, num_bytes):
        """Do nothing."""

    def advance(self, num_bytes, *, failed=False, units=1):
        """Do nothing."""

    def end(self, *, tell_short=True):
        """Do nothing."""

    def over(self, phase, items, units, *, each=1):
        """Pass on what the driver goes through."""
        return iter(items)


class HereRunner:
    """Stands in for a runner: runs every unit here, in an order of choice."""

    workers, hosts = 1, ("h",)

    def __init__(self, reverse=False):
        self.notes = []
        self.ran = []
        self._reverse = reverse

    def run(self, name, function, units, on_outcome):
        """Run the units one after another."""
        order, outcomes = list(enumerate(units)), []
        for index, unit in reversed(order) if self._reverse else order:
            self.ran.append((name, index))
            outcomes.append(function(unit))
            on_outcome(index, outcomes[-1])
        finish(function, outcomes)


def write_file(path, data):
    """Write a file in a folder that may not exist yet; return its path as text."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(data)
    return str(path)
