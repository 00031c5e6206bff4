"""What is counted of encoding faults, by source and by shard, and what a shard is compared by."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from odd_shards import PLAIN, documents
from strategies import make_batch

from dataaudit.manifest.metric import Scope
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.encoding_faults.definition import COMPARED, FAMILY, FAULTS
from dataaudit.metrics.encoding_faults.stage import EncodingFaults
from dataaudit.metrics.peers import Peers
from dataaudit.scan.kernels.faults import KINDS
from dataaudit.scan.stages.base import Context, merge

TEXTS = [
    ("caf\u00c3\u00a9", "web"),
    ("plain", "web"),
    ("<p>one</p>\n<p>two</p>\n\ntext\ntext\nmore", "web"),
    ("a\x00b &amp; c", "code"),
    ("", "code"),
]


def values(texts, scope=None):
    """Return the values of all records of a stage, by statistic and source."""
    stage = EncodingFaults()
    records = stage.finalize(stage.map(make_batch(texts)), Context(scope=scope or Scope(), mixture={}))
    return {(one.stat, one.scope.source): (one.value, one.denominator) for one in records}


def test_shares_are_of_documents_of_bytes_and_of_lines():
    found = values(TEXTS)
    assert found["mojibake_documents", None] == (0.2, 5)
    assert found["mojibake_documents", "web"] == (pytest.approx(1 / 3), 3)
    assert found["mojibake_documents", "code"] == (0, 2)
    assert found["mojibake_bytes", "web"][0] == pytest.approx(4 / sum(len(text.encode()) for text, _ in TEXTS[:3]))
    assert found["markup_lines", "web"] == (pytest.approx(2 / 7), 7)
    assert found["markup_documents", "web"] == (pytest.approx(1 / 3), 3)
    assert found["control_documents", "code"] == found["entities_documents", "code"] == (0.5, 2)
    assert found["encoded_documents", None] == (0, 5)
    assert values([("", "web")])["markup_lines", None] == (None, 0)


@pytest.mark.parametrize("texts", [[("", "web")] * 3, [(" \n\t", "web"), ("", "web"), ("\r\n", "web")]])
def test_where_no_character_is_seen_nothing_could_be_found(texts):
    stage = EncodingFaults()
    assert {(stat, value) for (stat, _), value in values(texts).items() if value[0] is not None} == {
        ("wordless_documents", (1, 3))
    }
    columns = stage.shard_columns(stage.map(make_batch(texts)))
    assert {name: value for name, value in columns.items() if value is not None} == {
        "text_lines": 0,
        "wordless_documents": 3,
    }
    both = values([*texts, ("a -", "code"), ("- *", "code")])
    assert both["mojibake_documents", "web"] == (None, 0)
    assert both["mojibake_documents", "code"] == (0, 2)
    assert both["wordless_documents", "code"] == (0.5, 2)
    assert both["mojibake_documents", None] == (0, 5)


def test_columns_of_a_shard_are_the_counts():
    stage = EncodingFaults()
    columns = stage.shard_columns(merge(stage, [stage.map(make_batch(TEXTS[:2])), stage.map(make_batch(TEXTS[2:]))]))
    assert {*columns} == {*FAULTS, "text_lines"} <= {*TABLES["shards"].schema.names}
    assert columns["mojibake_documents"] == 1
    assert columns["mojibake_bytes"] == 4
    assert columns["markup_lines"] == 2
    assert columns["text_lines"] == 8
    assert all(type(value) is int for value in columns.values())


def test_names_are_those_of_the_kernel():
    assert {f"{kind}_{unit}" for kind in KINDS for unit in ("documents", "bytes")} <= {*FAULTS}
    assert {one.column for one in FAMILY.shard_statistics} == {*COMPARED} <= {*FAULTS}


@pytest.mark.parametrize(("size", "is_encoded"), [(65, 1), (256, 1), (257, 0), (1000, 0)])
def test_a_document_is_encoded_from_a_quarter_of_its_bytes_on(size, is_encoded):
    text = "Ab1x" * 16
    assert values([(text.ljust(size, "."), "web")])["encoded_documents", None] == (is_encoded, 1)


@pytest.mark.parametrize(("number", "most"), [(5, 5), (40, 6), (100, 12), (1000, 120)])
def test_few_documents_of_a_shard_may_be_chance(number, most):
    """Of six shards of so many documents, in one of which some are damaged: what six robust deviations allow."""
    counts = {"source": "web", "documents": number, "bytes": 1, "tokens": 1}
    peers = Peers.of(pa.Table.from_pylist([{"split": "train", "sources": [counts]}] * 6))
    for damaged in (most, most + 1):
        shares = np.array([0, 0, damaged, 0, 0, 0]) / number
        medians, spreads = peers.usual(shares, np.full(6, number))
        far = shares - medians > 6 * np.maximum(spreads, 0.02) + 1e-9
        assert far.any() == (damaged > most and damaged <= number)


@given(shares=st.lists(st.integers(0, 20), min_size=3, max_size=12), documents_=st.integers(1, 400))
@settings(max_examples=examples(200))
def test_spread_of_shares_is_never_below_that_of_one_document(shares, documents_):
    """Nor below what chance gives a share of so many documents."""
    rows = [{"split": "train", "sources": [{"source": "web", "documents": 1, "bytes": 1, "tokens": 1}]} for _ in shares]
    given_ = np.minimum(np.array(shares), documents_) / documents_
    sizes = np.full(len(shares), documents_)
    medians, spreads = Peers.of(pa.Table.from_pylist(rows)).usual(given_, sizes)
    known = ~np.isnan(spreads)
    assert (spreads[known] >= 1 / documents_ - 1e-12).all()
    assert (spreads[known] >= np.sqrt(medians * (1 - medians) / documents_)[known] - 1e-12).all()


def test_plain_documents_have_no_faults():
    for kind in PLAIN:
        found = values([(text, "web") for text in documents(kind, "plain", 3)])
        assert {value for (stat, _), (value, _) in found.items() if stat.endswith("_documents")} == {0}, kind
