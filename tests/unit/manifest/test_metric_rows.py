"""Metric records in columns, against lists of records and against tables that Arrow sorts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from made_manifest import make, shard

from dataaudit.manifest import metric_rows
from dataaudit.manifest.canonical import digest_table, sorted_table
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope, count, ratio, rounded
from dataaudit.manifest.metric_rows import Column, MetricRows, count_rows, ratio_rows
from dataaudit.manifest.publish import prepare_tables, table_records
from dataaudit.manifest.tables import TABLES

SPEC = TABLES["metrics"]
NAMES = st.sampled_from(["a", "b", "B", "", "\u00e9", "\U0001f600", "\uffff"])
SCOPES = st.builds(
    Scope,
    split=st.none() | NAMES,
    source=st.none() | NAMES,
    rule=st.none() | NAMES,
    shard=st.none() | st.integers(0, 300),
)
NUMBERS = st.floats(-1e9, 1e9) | st.sampled_from([0.0, -0.0, 1 / 3, 0.1 + 0.2])


@st.composite
def one(draw):
    """Draw a record of any kind."""
    named = {"metric": draw(NAMES), "stat": draw(NAMES), "scope": draw(SCOPES), "unit": draw(NAMES)}
    kind = draw(st.sampled_from(["exact", "estimated", "none"]))
    if kind == "none":
        return Metric(**named, value=None, status="not_evaluated", reason=draw(NAMES.filter(bool)))
    sizes = {name: draw(st.integers(0, 2**53 - 1)) for name in ("n", "denominator")}
    if kind == "exact":
        return Metric(**named, value=draw(NUMBERS), **sizes)
    low, value, high = sorted(draw(st.tuples(NUMBERS, NUMBERS, NUMBERS)))
    return Metric(**named, value=value, low=low, high=high, confidence=0.95, method=kind, **sizes)


RECORDS = st.lists(one(), max_size=12, unique_by=lambda record: (record.metric, record.stat, record.scope))


def plain(records):
    """Return the table of records by Arrow alone."""
    rows = [{name: getattr(record, name) for name in SPEC.schema.names} for record in records]
    for row in rows:
        row["scope"] = {name: getattr(row["scope"], name) for name in Scope.__slots__}
    return pa.Table.from_pylist(rows, schema=SPEC.schema)


class TestSequence:
    @given(RECORDS, st.integers(-12, 12), st.integers(-12, 12))
    @settings(max_examples=examples(200), deadline=None)
    def test_rows_are_a_sequence_of_the_records(self, records, start, stop):
        rows = MetricRows.of(records)
        assert (len(rows), list(rows)) == (len(records), records)
        assert list(rows[start:stop]) == records[start:stop]
        assert [rows[place] for place in range(-len(records), len(records))] == [*records, *records]
        assert all(record in rows for record in records)
        with pytest.raises(IndexError):
            rows[len(records)]

    @given(st.lists(RECORDS, max_size=4), NAMES)
    @settings(max_examples=examples(200), deadline=None)
    def test_rows_one_after_another_are_the_lists_one_after_another(self, parts, name):
        records = [record for part in parts for record in part]
        rows = MetricRows.joined([MetricRows.of(part) if place % 2 else part for place, part in enumerate(parts)])
        assert list(rows) == records
        assert list(rows.where(stat=name, source=None)) == [
            record for record in records if record.stat == name and record.scope.source is None
        ]
        assert list(rows.shaped("source", "rule")) == [
            record for record in records if sorted(record.scope.as_dict()) == ["rule", "source"]
        ]
        assert list(rows.of_sources([name, "unknown"])) == [r for r in records if r.scope.source == name]
        assert list(rows.positive()) == [record for record in records if (record.value or 0) > 0]
        assert rows.names("metric") == sorted({record.metric for record in records}, key=str.encode)


class TestTable:
    @given(RECORDS)
    @settings(max_examples=examples(200), deadline=None)
    def test_order_digest_and_table_are_those_of_the_plain_table(self, records):
        expected = sorted_table(plain(records), SPEC)
        rows = MetricRows.of(records).ordered()
        assert rows.is_ordered()
        assert rows.plain().equals(expected)
        assert rows.digest() == digest_table(expected)
        assert MetricRows.of_batches(expected.to_batches(max_chunksize=3)).plain().equals(expected)
        tables = prepare_tables({}, MetricRows.of(records))
        assert table_records(tables)["metrics"].digest == digest_table(expected)

    @given(RECORDS.filter(bool), st.data())
    def test_two_records_of_one_key_are_refused(self, records, data):
        twice = replace(data.draw(st.sampled_from(records)), unit="other")
        rows = MetricRows.of([*records, twice])
        with pytest.raises(ValueError, match="two records for"):
            rows.ordered()
        with pytest.raises(ValueError, match="1 rows have the same"):
            rows.take(np.argsort(rows.keys(), kind="stable")).is_ordered()

    def test_keys_of_more_combinations_than_integers_stay_apart(self):
        number = 3000
        fields = ("split", "source", "language", "set", "entity", "rule")
        records = [
            count("m", "s", 1, scope=Scope(**dict.fromkeys(fields, f"{place * 7 % number:05}")), unit="", n=1,
                  version="1")
            for place in range(number)
        ]  # fmt: skip
        assert [one.scope.rule for one in MetricRows.of(records).ordered()] == [f"{n:05}" for n in range(number)]


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), max_size=8))
@settings(max_examples=examples(200), deadline=None)
def test_ratios_and_counts_of_columns_are_those_of_single_records(pairs):
    parts, wholes = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    names = [None, *(f"s{place}" for place in range(1, len(pairs)))][: len(pairs)]
    common = {"unit": "ratio", "version": "3"}
    given = {"scope": Scope(split="train"), "within": {"source": pa.array(names, pa.string())}, **common}
    scopes = [Scope(split="train", source=name) for name in names]
    assert list(ratio_rows("m", "r", parts, wholes, **given)) == [
        ratio("m", "r", part, whole, scope=scope, **common) for (part, whole), scope in zip(pairs, scopes, strict=True)
    ]
    assert list(count_rows("m", "c", parts, wholes, **given)) == [
        count("m", "c", part, scope=scope, n=whole, **common)
        for (part, whole), scope in zip(pairs, scopes, strict=True)
    ]


def test_only_the_records_that_are_asked_for_become_objects(tmp_path, monkeypatch):
    records = [
        count("no_metric", stat, 1, scope=Scope(split="train", source=f"s{place}"), unit="documents", n=1, version="1")
        for stat in ("count", "empty")
        for place in range(3000)
    ]
    records.append(count("no_metric", "count", 3000, scope=Scope(), unit="documents", n=3000, version="1"))
    make(tmp_path / "m", [shard("a.jsonl")], metrics=records)
    made: Counter[str] = Counter()

    def counting(**fields):
        made[fields["metric"]] += 1
        return Metric(**fields)

    monkeypatch.setattr(metric_rows, "Metric", counting)
    manifest = load_manifest(tmp_path / "m")
    assert [one.value for one in manifest.metrics("no_metric", "count", Scope())] == [3000]
    assert manifest.metric_rows().where(metric="no_metric", stat="empty")[17].scope.source is not None
    assert len(manifest.metric_rows().where(metric="no_metric")) == len(records)
    assert made == {"no_metric": 2}


@given(values=st.lists(st.none() | st.sampled_from(["a", "b", "\u00e9", ""]), max_size=80))
def test_a_few_values_are_listed_as_many_are(values):
    assert Column.of(pa.array(values, pa.string())).listed() == values


@given(values=st.lists(st.none() | NAMES, max_size=40) | st.lists(st.none() | NUMBERS.map(rounded), max_size=40))
def test_few_values_are_encoded_as_many_are(values):
    array = pa.array(values, pa.float64() if any(isinstance(one, float) for one in values) else pa.string())
    few, many = Column.of(array), Column.of(array.dictionary_encode())
    assert (few.codes.tolist(), few.values) == (many.codes.tolist(), many.values)
    assert few.codes.dtype == many.codes.dtype
    assert few.plain().equals(array)


@given(cuts=st.lists(RECORDS, max_size=4))
def test_rows_in_parts_are_those_of_the_records_one_after_another(cuts):
    flat = [record for cut in cuts for record in cut]
    inner = MetricRows.joined([MetricRows.of(cut) for cut in cuts])
    nested = MetricRows.joined([MetricRows.joined([cut, MetricRows.of(cut)]) for cut in cuts])
    assert len(inner) == len(flat)
    assert list(inner) == flat
    assert len(nested) == 2 * len(flat)
    assert list(nested) == [record for cut in cuts for record in (*cut, *cut)]
