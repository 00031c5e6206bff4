"""The numbers that stages report, against plain Python over the same documents."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))
from strategies import DOCUMENTS, make_batch

from dataaudit.errors import ConfigError
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.lengths.stage import Lengths
from dataaudit.metrics.stages import STAGES, make_stages
from dataaudit.metrics.volume.stage import Volume
from dataaudit.stages.base import Context, merge, nothing

CONTEXT = Context(scope=Scope(), mixture={})


def values(stage, documents, context=CONTEXT):
    """Return {(metric, stat, source): record} of some documents."""
    records = stage.finalize(merge(stage, [nothing(stage), stage.map(make_batch(documents))]), context)
    return {(record.metric, record.stat, record.scope.source): record for record in records}


def tokens_of(text):
    """Count tokens as the fixture does."""
    return -(-len(text) // 3)


@given(documents=DOCUMENTS)
def test_volume_counts_what_python_counts(documents):
    """Documents, bytes, tokens and shares per source are those of a plain loop."""
    found = values(Volume(), documents)
    whole = sum(tokens_of(text) for text, _ in documents)
    for source in {None, *(source for _, source in documents)}:
        own = [text for text, name in documents if source in (None, name)]
        assert found["documents", "count", source].value == len(own)
        assert found["documents", "empty", source].value == own.count("")
        assert found["bytes", "count", source].value == sum(len(text.encode()) for text in own)
        assert found["tokens", "count", source].value == sum(map(tokens_of, own))
        if source is not None and whole:
            share = sum(map(tokens_of, own)) / whole
            assert found["source_mix_share", "share", source].value == pytest.approx(share, rel=1e-11)


def test_shares_against_the_declared_mixture():
    """Declared weights are normalised, and a source that is declared but absent has a share of 0."""
    context = Context(scope=Scope(split="train"), mixture={"web": 3.0, "absent": 1.0})
    found = values(Volume(), [("a b c", "web")], context)
    assert found["source_mix_share", "declared", "web"].value == 0.75
    assert found["source_mix_share", "share", "absent"].value == 0.0


def test_absent_source_of_an_empty_corpus_has_no_share():
    """Without any token a share is not evaluated, for a declared source too."""
    context = Context(scope=Scope(), mixture={"absent": 1.0})
    assert values(Volume(), [], context)["source_mix_share", "share", "absent"].status == "not_evaluated"


@given(documents=DOCUMENTS.filter(bool))
def test_exact_percentiles_are_numpys(documents):
    """Length percentiles equal numpy's inverted_cdf quantiles of the raw lengths."""
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
    """The exact map keeps every length with its count."""
    stage = Lengths()
    documents = [("abc" * size, "web") for size in (0, 1, 1, 5, 5, 5)]
    table = merge(stage, [stage.map(make_batch(documents))])["lengths"]
    counted = dict(zip(table["low"].to_pylist(), table["documents"].to_pylist(), strict=True))
    assert counted == Counter({0: 1, 1: 2, 5: 3})


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"lenghts": True}, "did you mean `lengths`"),
        ({"lengths": {"max_distnct": 300}}, "did you mean `max_distinct`"),
        ({"lengths": {"max_distinct": 3}}, "at least 256"),
        ({"lengths": {"max_distinct": "many"}}, "max_distinct"),
        ({"volume": False}, "cannot be switched off"),
    ],
)
def test_wrong_stage_choices_are_named(chosen, message):
    """An unknown stage, an unknown parameter, a wrong value and a required stage each get their own words."""
    with pytest.raises(ConfigError, match=message):
        make_stages(chosen)


def test_wrong_choices_of_several_stages_are_named_together():
    """Nobody has to run once for each mistake."""
    with pytest.raises(ConfigError) as caught:
        make_stages(
            {
                "lenghts": True,
                "lengths": {"max_distinct": 3},
                "volume": False,
                "near_dup": {"treshold": 1, "ngram": "x"},
            }
        )
    lines = str(caught.value).splitlines()
    assert lines[0] == "stages: 5 problems"
    assert [line.split(":")[0].strip(" -") for line in lines[1:6]] == [
        "stages.lenghts",
        "stages.volume",
        "stages.lengths",
        "stages.near_dup.treshold",
        "stages.near_dup.ngram",
    ]


def test_stages_can_be_left_out_and_parametrised():
    """`false` leaves a stage out, a mapping sets its parameters, the order stays."""
    stages = make_stages({"exact_dup": False, "lengths": {"max_distinct": 500}})
    assert [stage.name for stage in stages] == [kind.name for kind in STAGES if kind.name != "exact_dup"]
    assert stages[1].max_distinct == 500
