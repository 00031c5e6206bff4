"""Percentiles of lengths and densities, against numpy and plain Python over the same documents."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import DOCUMENTS, make_batch

from dataaudit.manifest.metric import Scope
from dataaudit.metrics.lengths.stage import Lengths
from dataaudit.scan.stages.base import Context, merge, nothing

CONTEXT = Context(scope=Scope(), mixture={})


def values(stage, documents, context=CONTEXT):
    """Return {(metric, stat, source): record} of some documents."""
    records = stage.finalize(merge(stage, [nothing(stage), stage.map(make_batch(documents))]), context)
    return {(record.metric, record.stat, record.scope.source): record for record in records}


def tokens_of(text):
    """Count tokens as the fixture does."""
    return -(-len(text) // 3)


@given(documents=DOCUMENTS.filter(bool))
def test_exact_percentiles_are_numpys(documents):
    found = values(Lengths(), documents)
    lengths = [tokens_of(text) for text, _ in documents]
    for percent in (1, 5, 25, 50, 75, 95, 99):
        record = found["seq_len_p50_p95", f"p{percent}", None]
        assert record.value == np.quantile(lengths, percent / 100, method="inverted_cdf")
        assert record.method == "exact"
    assert found["seq_len_p50_p95", "max", None].value == max(lengths)


@given(st.lists(st.integers(1, 10**6), min_size=300, max_size=600, unique=True), st.integers(2, 5))
def test_bucketed_percentiles_hold_the_true_one(lengths, pieces):
    """Past max_distinct a percentile is an interval that holds the true one, within 0.5 % of its midpoint."""
    stage = Lengths(max_distinct=256)
    schema = stage.shapes()["lengths"].schema()
    rows = [{"source": "a", "low": value, "high": value, "documents": 1} for value in lengths]
    import pyarrow as pa

    partials = [
        nothing(stage) | {"lengths": pa.Table.from_pylist(rows[start::pieces], schema=schema)}
        for start in range(pieces)
    ]
    partials[0] |= {"totals": pa.table({"source": ["a"], "bytes": [1], "tokens": [1], "longest": [max(lengths)]})}
    for order in (partials, partials[::-1]):
        merged = merge(stage, order)
        records = {record.stat: record for record in stage.finalize(merged, CONTEXT) if record.unit == "tokens"}
        for percent in (1, 50, 99):
            record = records[f"p{percent}"]
            truth = np.quantile(lengths, percent / 100, method="inverted_cdf")
            if truth < 256:
                assert record.value == truth
                continue
            assert record.low <= truth <= record.high
            assert abs(record.value - truth) <= 0.005 * truth
            assert (record.method, record.confidence) == ("estimated", 1.0)


@given(documents=DOCUMENTS.filter(lambda documents: any(text for text, _ in documents)))
def test_density_percentiles_hold_the_true_one(documents):
    """Bytes per token of the median document lies in the reported interval, which is at most 0.8 % wide."""
    record = values(Lengths(), documents)["bytes_per_token", "p50", None]
    densities = [len(text.encode()) / tokens_of(text) for text, _ in documents if text]
    truth = np.quantile(densities, 0.5, method="inverted_cdf")
    assert record.low <= truth <= record.high
    assert record.high / record.low < 1.008


def test_length_table_is_a_histogram():
    stage = Lengths()
    documents = [("abc" * size, "web") for size in (0, 1, 1, 5, 5, 5)]
    table = merge(stage, [stage.map(make_batch(documents))])["lengths"]
    counted = dict(zip(table["low"].to_pylist(), table["documents"].to_pylist(), strict=True))
    assert counted == Counter({0: 1, 1: 2, 5: 3})
