"""Facts of manifests that were never written, and policies for them."""

from __future__ import annotations

from itertools import product

import pyarrow as pa

from dataaudit.decide.gate.facts import Facts
from dataaudit.decide.gate.policy import Policy, Rule
from dataaudit.decide.gate.verdict import Subject
from dataaudit.manifest.core import Core, Named, SplitRecord, TokenizerRecord
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.tables import TABLES


def record(metric="near_dup_rate", stat="rate", value=0.1, unit="ratio", **more):
    """Return a metric record; what is no field of a record is a part of its scope."""
    scope = {name: more.pop(name) for name in Scope.__slots__ if name in more}
    status = more.pop("status", "ok" if value is not None else "not_evaluated")
    if status != "ok":
        more.setdefault("reason", "empty_denominator")
    return Metric(
        metric=metric,
        stat=stat,
        scope=Scope(**scope),
        unit=unit,
        value=value,
        status=status,
        n=100,
        denominator=more.pop("denominator", 100),
        **more,
    )


def sampled(metric, stat, low, value, high, unit="ratio", **more):
    """Return a record with an interval."""
    return record(metric, stat, value, unit, low=low, high=high, confidence=0.95, method="sampled", **more)


def facts(
    *records,
    splits=None,
    sources=("web", "code"),
    languages=("en",),
    protected=(),
    documents=100,
    tokenizer="t" * 64,
    entities=("JWT", "GITHUB_TOKEN"),
    is_folded=False,
    shards=(),
    core=(),
):
    """Return facts with these records; `splits` is {name: held out}; every split has every source."""
    splits = {"train": False, "val": True} if splits is None else splits
    found: dict = {}
    for one in records:
        found.setdefault((one.metric, one.stat), {})[one.scope] = one
    rows = [
        dict.fromkeys(TABLES["shards"].schema.names) | {"sources": []} | row | {"shard": number}
        for number, row in enumerate(shards)
    ]
    return Facts(
        subject=Subject(id="sha256:" + "a" * 64, name="made", version="1.0.0", documents=documents, shards=len(rows)),
        core=core_of(tokenizer, splits, documents, **dict(core)),
        held_out=splits,
        sources={name: frozenset(sources) for name in splits},
        languages={name: frozenset(product(sources, languages)) for name in splits},
        protected=tuple(protected),
        entities={"secret_hit_rate": frozenset(entities)},
        is_folded=is_folded,
        detectable=frozenset({"und", "en", "de", "fr", *languages}),
        records=found,
        shards=pa.Table.from_pylist(rows, schema=TABLES["shards"].schema),
    )


def core_of(tokenizer="t" * 64, splits=(), documents=100, **more):
    """Return the part of a core that decides what numbers mean."""
    held = {
        "tokenizer": TokenizerRecord.model_construct(sha256=tokenizer, format="tokenizer.json", vocab_size=100),
        "splits": [
            SplitRecord(
                name=name, held_out=splits[name], shards=1, documents=documents, bytes=documents, tokens=documents
            )
            for name in splits
        ],
    }
    empty = {
        "tool": Named(name="dataaudit", version="1"),
        "parents": (),
        "detectors": (),
        "protected": (),
        "config": {},
        "stages": (),
    }
    return Core.model_construct(**empty | held | more)


def shard_row(number, *, split="train", status="ok", documents=10, size=100, **columns):
    """Return a row of the table of shards."""
    base = {
        "uri": f"part-{number}.jsonl",
        "split": split,
        "format": "jsonl",
        "compression": "none",
        "size": size,
        "sha256": "ab" * 32,
        "status": status,
        "reason": "",
        "rows": documents,
        "documents": documents,
        "bytes": 4 * documents,
        "tokens": documents,
        "bad_records": 0,
    }
    return base | columns


def rule(name="r", metric="near_dup_rate", stat="rate", unit="ratio", **more):
    """Return a rule; a budget of 0.5 unless another limit is given."""
    limits = {"budget", "change", "relative_change", "robust_sd"}
    if not limits & set(more):
        more["budget"] = 0.5
    return Rule.model_validate({"name": name, "metric": metric, "stat": stat, "unit": unit, **more})


def policy(*rules, waivers=(), coverage=True):
    """Return a policy; with a record of :func:`covered` its rule about coverage holds."""
    own = (rule("covered", "coverage_unread_bytes", "shard_bytes", "bytes", budget=0),) if coverage else ()
    return Policy.model_validate(
        {"policy": "p", "rules": [*(one.model_dump() for one in (*rules, *own))], "waivers": list(waivers)}
    )


def covered(value=0.0):
    """Return the record about coverage that every policy asks for."""
    return record("coverage_unread_bytes", "shard_bytes", value, "bytes")
