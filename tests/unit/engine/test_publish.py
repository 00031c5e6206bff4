"""Tables and core records: whatever became of the shards, the ledger balances and verify agrees."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from made_build import STAGE_LIST, config, gathered, plan, plan_of, probe, shard, summed

from dataaudit.engine.collect import CollectedShard
from dataaudit.engine.publish import Ledger, headline, metric_records, source_tables, totals
from dataaudit.manifest.core import Core, Named, Run, TokenizerRecord
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric_rows import MetricRows, metrics_table
from dataaudit.manifest.publish import prepare_tables, publish, table_records
from dataaudit.manifest.verify import verify
from dataaudit.metrics.registry import STATISTICS
from dataaudit.scan.corpus.loss import Loss, Reason

DOCUMENTS = st.lists(
    st.tuples(st.sampled_from(["", "one", "two words"]), st.sampled_from(["web", "", "other", "(none)"])), max_size=6
)
STATES = st.lists(
    st.tuples(
        st.sampled_from(["ok", "partial", "unreadable", "hopeless", "skipped", "gone"]),
        DOCUMENTS,
        st.booleans(),
        st.integers(1, 9),
    ),
    max_size=6,
)
TOKENIZER = TokenizerRecord(
    name="t",
    format="tokenizer.json",
    sha256="cd" * 32,
    vocab_size=9,
    special_ids=(),
    encoder="reference",
    encoder_reason="ok",
    counted_by={},
    sampled=0,
)


def shard_in(state, ordinal, documents, split, bad):
    """Return a gathered shard in a state."""
    uri = f"{ordinal}.jsonl"
    if state in ("ok", "partial"):
        one = gathered(ordinal, documents, split=split)
        if state == "partial":
            losses = [
                Loss(reason=Reason.INVALID_JSON, place=f"record {row}", records=1, num_bytes=3) for row in range(bad)
            ]
            numbers = {"records": len(documents) + bad, "bad_records": bad}
            one = replace(one, status="partial", reason=Reason.INVALID_JSON, losses=losses, **numbers)
        return one
    if state == "skipped":
        planned = plan(shard(ordinal, uri=uri, split=split, skip=Reason.UNKNOWN_FORMAT, size=bad), None)
        return lost(planned, "skipped", Reason.UNKNOWN_FORMAT)
    if state == "gone":
        planned = plan(shard(ordinal, uri=uri, split=split, size=bad), None, failure=(Reason.NOT_FOUND, ""))
        return lost(planned, "quarantined", Reason.NOT_FOUND)
    planned = plan(shard(ordinal, uri=uri, split=split), probe(str(ordinal)))
    if state == "unreadable":
        return lost(planned, "quarantined", Reason.CORRUPT_PARQUET)
    one = lost(planned, "quarantined", Reason.TOO_MANY_BAD)
    more = Loss(reason=Reason.INVALID_JSON, place="record 0", records=bad, num_bytes=2 * bad)
    return replace(one, records=bad + 2, bad_records=bad, losses=[*one.losses, more])


def lost(planned, status, reason):
    """Return a shard of which nothing was read."""
    one = CollectedShard(plan=plan_of([planned]), place=0, status=status, reason=reason)
    return replace(one, losses=[Loss(reason=reason, place="", records=-1, num_bytes=one.size)])


def write_manifest(folder, shards, chosen):
    """Publish what the tables module makes of shards; return the loaded manifest and its metrics."""
    table, sums = summed(shards)
    ledger = Ledger(shards)
    metrics, merged = metric_records(ledger, STAGE_LIST, chosen, sums)
    made = {"shards": table, "metrics": metrics_table(metrics), "ledger": ledger.table()}
    tables = prepare_tables(made | source_tables(merged))
    whole, splits = totals(table, chosen)
    core = Core(
        tool=Named(name="dataaudit", version="0"),
        dataset=Named(name="d", version="0"),
        config={},
        stages=(),
        libraries={},
        tokenizer=TOKENIZER,
        splits=splits,
        totals=whole,
        headline=headline(metrics),
        ledger=ledger.record(whole.documents),
        seeds={},
        tables=table_records(tables),
    )
    now = "2026-11-21T10:00:00+00:00"
    run = Run(roots={}, started=now, finished=now, hosts=(), workers=1, versions={}, parts_planned=0, parts_scanned=0)
    publish(folder, core, run, tables)
    return load_manifest(folder), metrics


@pytest.mark.stores
@settings(max_examples=examples(30))
@given(states=STATES)
def test_the_ledger_balances_for_any_states_of_shards(states, tmp_path_factory):
    """Planned is read, bad, quarantined and skipped; verify finds nothing; every loss is in the ledger."""
    states = sorted(states, key=lambda state: state[2])
    shards = [
        shard_in(state, ordinal, documents, "val" if held_out else "train", bad)
        for ordinal, (state, documents, held_out, bad) in enumerate(states)
    ]
    manifest, metrics = write_manifest(tmp_path_factory.mktemp("m") / "m", shards, config())
    assert verify(manifest) == []
    ledger, core = manifest.core.ledger, manifest.core
    read = [one for one in shards if one.partials]
    assert core.totals.documents == sum(len(item[1]) for item in states if item[0] in ("ok", "partial"))
    assert core.totals.shards == ledger.shards.read == len(read)
    assert ledger.documents.bad == sum(item[3] for item in states if item[0] == "partial")
    assert ledger.documents.quarantined == sum(item[3] + 2 for item in states if item[0] == "hopeless")
    assert ledger.uncounted_shards == sum(item[0] in ("unreadable", "skipped", "gone") for item in states)
    assert ledger.bytes.planned == sum(one.size for one in shards)
    assert manifest.table("ledger").num_rows == sum(len(one.losses) for one in shards)
    lost = [record for record in metrics if record.stat == "shard_bytes"]
    assert [record.value for record in lost if not record.scope.as_dict()] == [
        ledger.bytes.quarantined + ledger.bytes.skipped
    ]
    assert sum(record.value for record in lost) == 2 * (ledger.bytes.quarantined + ledger.bytes.skipped)
    unread = [record for record in metrics if record.metric == "coverage_unread_bytes" and record.stat == "bytes"]
    whole = [record for record in unread if not record.scope.as_dict()]
    bad_bytes = sum(3 * item[3] for item in states if item[0] == "partial")
    assert whole[0].value == ledger.bytes.quarantined + ledger.bytes.skipped + bad_bytes
    assert sum(record.value for record in unread if record.scope.as_dict()) == whole[0].value


def test_totals_are_those_of_the_splits():
    """Splits are listed by name, also one without shards; together they are the whole."""
    chosen = config(splits=("val", "train", "empty"))
    shards = [gathered(0, [("one", "a")] * 3), gathered(1, [("two", "a")], split="val")]
    whole, splits = totals(summed(shards)[0], chosen)
    assert [(split.name, split.shards, split.documents) for split in splits] == [
        ("empty", 0, 0),
        ("train", 1, 3),
        ("val", 1, 1),
    ]
    assert (whole.shards, whole.documents, whole.bytes) == (2, 4, 12)


def test_the_headline_is_of_the_whole_and_in_its_order():
    """Every headline metric that exists is there once, never one of a split or source."""
    shards = [gathered(0, [("one", "a")])]
    metrics, _ = metric_records(Ledger(shards), STAGE_LIST, config(), summed(shards)[1])
    shown = headline(metrics)
    first = [key for key, one in STATISTICS.items() if one.headline]
    made = [key for key in first if key[0] != "train_val_overlap"]  # that is found in the link step
    assert [(record.metric, record.stat) for record in shown] == made
    assert all(record.scope == {} for record in shown)
    few = headline(MetricRows.of(record for record in metrics if record.metric != "exact_dup_rate"))
    assert [(record.metric, record.stat) for record in few] == [key for key in made if key[0] != "exact_dup_rate"]


def test_the_row_of_a_shard_names_its_content_and_sources():
    """Digest of rows, sha256, sources sorted; an unread shard has nulls where there is no number."""
    one = gathered(0, [("x", "b"), ("yy", "a")], rows_digest="ab")
    gone = lost(plan(shard(1, uri="z"), None, failure=(Reason.NOT_FOUND, "")), "quarantined", Reason.NOT_FOUND)
    first, second = summed([one, gone])[0].to_pylist()
    assert (first["rows_digest"], first["sha256"]) == ("ab", one.planned.probe.sha256)
    assert [source["source"] for source in first["sources"]] == ["a", "b"]
    assert (second["sha256"], second["rows_digest"], second["sources"], second["exact_dup_rate"]) == (
        "",
        None,
        [],
        None,
    )


def test_declared_upstream_filters_become_rates():
    """The share that each filter took is a metric of its own."""
    chosen = config(
        upstream_filters=[{"name": "c4", "version": "1", "in": 4, "out": 3}, {"name": "x", "in": 0, "out": 0}]
    )
    metrics, _ = metric_records(Ledger([]), STAGE_LIST, chosen, {})
    found = {
        record.scope.rule: (record.value, record.status) for record in metrics if record.metric == "filter_upstream"
    }
    assert found == {"c4@1": (0.25, "ok"), "x": (None, "not_evaluated")}
