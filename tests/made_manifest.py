"""Manifests made by hand, through the same publishing code as a build's, in milliseconds.

They hold what the stage of volume determines from shards and ledger, and the few numbers that a test asks for besides.
Those of other stages contradict the core, which names none of these: see ``odd_numbers`` in ``conftest.py``.
"""

from collections import Counter
from dataclasses import replace

import pyarrow as pa

from dataaudit.engine.publish import headline
from dataaudit.manifest.core import (
    Core,
    Coverage,
    LedgerRecord,
    Named,
    Run,
    SplitRecord,
    StageRecord,
    TokenizerRecord,
    Totals,
)
from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.manifest.metric_rows import MetricRows, metrics_table
from dataaudit.manifest.publish import prepare_tables, publish, table_records
from dataaudit.manifest.tables import TABLES

UNREAD = ("quarantined", "skipped")
UNITS = ("documents", "bytes", "tokens")


def shard(uri, *, split="train", documents=10, tokens=100, size=50, status="ok", bad=0, **more):
    """Return a row of the table of shards; `sources` is {name: tokens} and by default all is `web`."""
    unread = status in UNREAD
    sources = more.pop("sources", {"web": tokens})
    columns = {
        **dict.fromkeys(TABLES["shards"].schema.names),
        "uri": uri,
        "split": split,
        "format": "jsonl",
        "compression": "none",
        "size": size,
        "sha256": "ab" * 32,
        "status": status,
        "reason": "",
        "rows": 0 if unread else documents + bad,
        "bad_records": bad,
        "documents": 0 if unread else documents,
        "bytes": 0 if unread else 4 * tokens,
        "tokens": 0 if unread else tokens,
        "sources": [],
    }
    if not unread:
        left = documents
        for index, (name, number) in enumerate(sorted(sources.items())):
            mine = left if index == len(sources) - 1 else 1
            left -= mine
            columns["sources"].append({"source": name, "documents": mine, "bytes": 4 * number, "tokens": number})
    return columns | more


_ODD = {"bytes_per_token": 4.0, "exact_dup_rate": 0.0, "seq_len_p50": 9.5, "seq_len_p95": 20.0, "seq_len_max": 21}


def _given(row):
    return {name: value for name, value in row.items() if value is not None}


def _odd(records):
    """Yield what stages that did not run would say of each split."""
    numbers = {(record.metric, record.scope): record for record in records}
    for scope in {scope for metric, scope in numbers if metric == "documents" and scope.source is None}:
        size, tokens = (numbers[unit, scope].value for unit in ("bytes", "tokens"))
        yield ratio("bytes_per_token", "ratio", size, tokens, scope=scope, unit="bytes/token", version="1")
        if documents := numbers["documents", scope].value:
            length = Metric(metric="seq_len_p50_p95", stat="p50", scope=scope, unit="tokens", value=9.5, n=documents)
            yield from (length, replace(length, stat="p95", value=1151.0))


def make(
    folder,
    shards,
    *,
    ledger=(),
    clusters=(),
    mixture=None,
    roots=None,
    metrics=(),
    dataset="made",
    tables=None,
    config=None,
    folders=None,
    odd=False,
):
    """Publish a manifest of these shards and return its id; splits other than train are held out.

    `ledger` holds (shard, reason, place, records, bytes), `clusters` (kind, cluster, shard, row, kept),
    `tables` rows of further tables, as dicts, by name, `folders` what fills further folders. With `odd` it
    has some numbers of other stages, too, and no headline.
    """
    rows = [row | {"shard": ordinal} for ordinal, row in enumerate(shards)]
    if odd:
        rows = [{**row, **(_ODD | _given(row) if row["status"] not in UNREAD else {})} for row in rows]
    read = [row for row in rows if row["status"] not in UNREAD]
    names = sorted({row["split"] for row in rows}) or ["train"]
    made = [*_volume(Scope(), read), *_unread(rows, ledger)]
    for name in names:
        made += _volume(Scope(split=name), [row for row in read if row["split"] == name])
    made += _odd(made) if odd else ()
    records = [*{(record.metric, record.stat, record.scope): record for record in (*made, *metrics)}.values()]
    prepared = prepare_tables(
        {
            "shards": pa.Table.from_pylist(rows, schema=TABLES["shards"].schema),
            "metrics": metrics_table(records),
            "sources": _sources(read),
            "ledger": _table("ledger", ledger),
            "clusters": _table("clusters", clusters),
            **{name: pa.Table.from_pylist(given, schema=TABLES[name].schema) for name, given in (tables or {}).items()},
        }
    )
    core = Core(
        tool=Named(name="dataaudit", version="0.1.0"),
        dataset=Named(name=dataset, version="1.0.0"),
        config=config or {},
        stages=(StageRecord(name="volume", version="1", parameters={}),),
        libraries={},
        tokenizer=_TOKENIZER,
        mixture={name: {"weight": weight, "epochs": 1.0} for name, weight in (mixture or {}).items()},
        splits=tuple(
            SplitRecord(name=name, held_out=name != "train", **_sums([row for row in read if row["split"] == name]))
            for name in names
        ),
        totals=Totals(**_sums(read)),
        headline=() if odd else headline(MetricRows.of(records)),
        ledger=_ledger(rows),
        seeds={},
        tables=table_records(prepared),
    )
    run = Run(
        roots={name: str(roots or "/nowhere") for name in names},
        started="2026-11-21T10:00:00+00:00",
        finished="2026-11-21T10:00:01+00:00",
        hosts=("host",),
        workers=1,
        versions={},
        parts_planned=len(rows),
        parts_scanned=len(rows),
    )
    return publish(folder, core, run, prepared, folders or {})


_TOKENIZER = TokenizerRecord(
    name="tiny",
    format="tokenizer.json",
    sha256="cd" * 32,
    vocab_size=1000,
    special_ids=(0,),
    encoder="gigatoken",
    encoder_reason="ok",
    counted_by={"gigatoken": {"documents": 1, "bytes": 4}},
    sampled=0,
)


def _sums(rows):
    return {"shards": len(rows)} | {name: sum(row[name] for row in rows) for name in ("documents", "bytes", "tokens")}


def _volume(scope, rows):
    sums = _sums(rows)
    yield from _counts(scope, sums)
    for name in sorted({one["source"] for row in rows for one in row["sources"]}):
        own = [one for row in rows for one in row["sources"] if one["source"] == name]
        of, parts = replace(scope, source=name), {unit: sum(row[unit] for row in own) for unit in UNITS}
        yield from _counts(of, parts)
        yield ratio("source_mix_share", "share", parts["tokens"], sums["tokens"], scope=of, unit="ratio", version="1")


def _counts(scope, sums):
    for name in UNITS:
        yield count(name, "count", sums[name], scope=scope, unit=name, n=sums["documents"], version="1")


def _unread(rows, ledger):
    lost = {row["shard"]: row for row in rows if row["status"] in UNREAD}
    bytes_of = Counter()
    for shard_, reason, _, _, size in ledger:
        bytes_of[reason] += size if shard_ not in lost else 0
    for row in lost.values():
        bytes_of[row["reason"]] += row["size"]
    lines = [("bytes", sum(bytes_of.values()), Scope())]
    lines += [("bytes", size, Scope(rule=reason)) for reason, size in bytes_of.items()]
    for split in (None, *sorted({row["split"] for row in rows})):
        own = [row["size"] for row in lost.values() if split in (None, row["split"])]
        lines.append(("shard_bytes", sum(own), Scope(split=split)))
    planned = sum(row["size"] for row in rows)
    for stat, size, scope in lines:
        yield count("coverage_unread_bytes", stat, size, scope=scope, unit="bytes", n=planned, version="1")


def _sources(rows):
    sums = {}
    for row in rows:
        for one in row["sources"]:
            held = sums.setdefault((row["split"], one["source"]), dict.fromkeys(("documents", "bytes", "tokens"), 0))
            for name in held:
                held[name] += one[name]
    made = [{"split": split, "source": source, **held} for (split, source), held in sums.items()]
    return pa.Table.from_pylist(made, schema=TABLES["sources"].schema)


def _table(name, rows):
    schema = TABLES[name].schema
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def _ledger(rows):
    by_status = {name: [row for row in rows if row["status"] == name] for name in UNREAD}
    read = [row for row in rows if row["status"] not in UNREAD]
    documents, bad = sum(row["documents"] for row in read), sum(row["bad_records"] for row in read)
    known = sum(row["rows"] for row in by_status["quarantined"])
    sizes = {name: sum(row["size"] for row in group) for name, group in {"read": read, **by_status}.items()}
    return LedgerRecord(
        shards=Coverage(planned=len(rows), read=len(read), **{name: len(group) for name, group in by_status.items()}),
        bytes=Coverage(planned=sum(sizes.values()), **sizes),
        documents=Coverage(planned=documents + bad + known, read=documents, bad=bad, quarantined=known, skipped=0),
        uncounted_shards=sum(row["rows"] == 0 for group in by_status.values() for row in group),
    )
