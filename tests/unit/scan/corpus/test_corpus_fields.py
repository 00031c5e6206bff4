"""Fields, batches, losses and formats of shards."""

import inspect
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.config import SourceRule
from dataaudit.manifest.formats import FORMATS
from dataaudit.scan.annotators import num_tokens
from dataaudit.scan.corpus.batch import BatchBuilder
from dataaudit.scan.corpus.fields import NO_SOURCE, field_rule, look_up
from dataaudit.scan.corpus.loss import MAX_PLACES, LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers import Reader, reader_of
from dataaudit.scan.corpus.segments import runs
from dataaudit.scan.corpus.shards import format_of


@pytest.mark.parametrize(
    ("record", "path", "value"),
    [
        ({"text": "a"}, "text", "a"),
        ({}, "text", None),
        ({"text": None}, "text", None),
        ({"meta": {"text": "a"}}, "meta.text", "a"),
        ({"meta": {"text": {"en": "a"}}}, "meta.text.en", "a"),
        ({"meta": {"text": "a"}}, "meta", {"text": "a"}),
        ({"meta": {"text": "inner"}, "meta.text": "literal"}, "meta.text", "literal"),
        ({"meta": {"text": "inner"}, "meta.text": None}, "meta.text", None),
        ({"meta": None}, "meta.text", None),
        ({"meta": "text"}, "meta.text", None),
        ({"meta": ["text"]}, "meta.0", None),
        ({"meta": {"a.b": 1}}, "meta.a.b", None),
        ({"": {"": 1}}, ".", 1),
    ],
)
def test_a_path_is_an_exact_name_first_and_else_nested(record, path, value):
    """A field of the exact name wins even when it is null; a path through anything but objects is absent."""
    assert look_up(record, path) == value


def test_a_pattern_takes_the_source_from_the_uri():
    """The named group of the first match is the source of the whole shard."""
    rule = field_rule("text", SourceRule(pattern=r"train/(?P<source>[^/]+)/"), "x/train/web/a", max_record_bytes=5)
    assert (rule.source_column, rule.source_constant, rule.max_record_bytes) == (None, "web", 5)


@pytest.mark.parametrize("pattern", [r"val/(?P<source>.+)/", r"train/(?P<source>x?)", r"(train)|(?P<source>web)"])
def test_a_pattern_without_a_source_costs_the_shard(pattern):
    """No match, an empty group and a group that took no part are a loss with a name."""
    with pytest.raises(ShardUnreadable) as caught:
        field_rule("text", SourceRule(pattern=pattern), "train/web/a", max_record_bytes=5)
    assert caught.value.reason is Reason.PATTERN_MISMATCH


@pytest.mark.parametrize(
    ("rule", "column", "constant"),
    [(SourceRule(column="meta.source"), "meta.source", NO_SOURCE), (SourceRule(constant="web"), None, "web")],
)
def test_columns_and_constants_are_taken_as_they_are(rule, column, constant):
    """A column is looked up in every record; a constant holds for all."""
    found = field_rule("text", rule, "a", max_record_bytes=5)
    assert (found.source_column, found.source_constant) == (column, constant)


@pytest.mark.parametrize(
    ("uri", "column", "constant"),
    [
        ("lang=de/a.parquet", None, "de"),
        ("year=2020/lang=de/month=1/a.parquet", None, "de"),
        ("lang=/a.parquet", None, NO_SOURCE),
        ("lang=__HIVE_DEFAULT_PARTITION__/a.parquet", None, NO_SOURCE),
        ("lang=zh-Hant%2520x/a.parquet", None, "zh-Hant x"),
        ("lang=x%FF/a.parquet", None, "x\ufffd"),
        ("lang=a=b/a.parquet", None, "a=b"),
        ("lang=fr/lang=de/a.parquet#copy=2", None, "de"),
        ("Lang=de/a.parquet", "lang", NO_SOURCE),
        ("language=de/a.parquet", "lang", NO_SOURCE),
        ("de/lang=de.parquet", "lang", NO_SOURCE),
        ("a.parquet", "lang", NO_SOURCE),
    ],
)
def test_a_folder_gives_the_column_that_its_name_names(uri, column, constant):
    """``lang=de/`` is the column ``lang`` of the files below it, whatever else is partitioned."""
    rule = field_rule("text", SourceRule(column="lang"), uri, max_record_bytes=5)
    assert (rule.source_column, rule.source_constant) == (column, constant)


documents = st.lists(st.tuples(st.text(max_size=8), st.sampled_from(["web", "books", ""])), max_size=20)


@given(documents=documents, max_bytes=st.integers(1, 40), max_documents=st.integers(1, 6))
@settings(max_examples=examples(200), deadline=None)
def test_batches_hold_all_documents_in_order(documents, max_bytes, max_documents):
    """Nothing is lost or moved between batches, and each is closed as soon as it is full."""
    builder = BatchBuilder(max_bytes, max_documents)
    batches = []
    for row, (text, source) in enumerate(documents):
        if builder.add(text, row, source, len(text.encode())):
            batches.append(builder.take())
    if len(builder):
        batches.append(builder.take())
    found = [
        item for batch in batches for item in zip(batch.texts.to_pylist(), batch.sources().to_pylist(), strict=True)
    ]
    assert found == documents
    assert [row for batch in batches for row in batch.rows.tolist()] == list(range(len(documents)))
    for index, batch in enumerate(batches):
        sizes = batch.num_bytes()
        assert sizes.tolist() == [len(text.encode()) for text in batch.texts.to_pylist()]
        assert len(batch) <= max_documents
        assert sizes[:-1].sum() < max_bytes
        assert len(set(batch.source_names)) == len(batch.source_names)
        if index < len(batches) - 1:
            assert len(batch) == max_documents or sizes.sum() >= max_bytes


def test_an_empty_batch_has_one_offset():
    """No documents have no bytes, whatever Arrow keeps for them."""
    batch = BatchBuilder(1).take()
    assert (len(batch), batch.byte_offsets().tolist(), batch.num_bytes().tolist()) == (0, [0], [])
    assert (batch.rows.dtype, batch.source_codes.dtype) == (np.int64, np.int32)


def test_tokens_have_to_be_asked_for():
    """A stage that forgot to say that it needs tokens finds out at once."""
    with pytest.raises(LookupError, match="tokens has to declare it in `needs`"):
        num_tokens(BatchBuilder(1).take())


def test_runs_cover_all_segments_and_keep_to_the_limit():
    """Runs are adjacent, within the limit unless a single segment exceeds it, and cover everything."""
    assert runs(np.array([0, 3, 3, 10, 11, 40, 41]), 10) == [(0, 3), (3, 4), (4, 5), (5, 6)]
    assert runs(np.zeros(1, dtype=np.int64), 10) == []


@given(st.lists(st.tuples(st.sampled_from(list(Reason)[:3]), st.integers(0, 99)), max_size=99))
@settings(max_examples=examples(100), deadline=None)
def test_every_loss_is_counted_and_the_first_are_placed(found):
    """Counts and bytes are exact for any number of losses; places stop at the limit of each reason."""
    log = LossLog()
    for row, (reason, size) in enumerate(found):
        log.add(reason, row, size)
    for reason in Reason:
        own = [(row, size) for row, (other, size) in enumerate(found) if other is reason]
        assert log.records.get(reason, 0) == len(own)
        assert log.num_bytes.get(reason, 0) == sum(size for _, size in own)
        assert log.places.get(reason, []) == own[:MAX_PLACES]


def test_an_unreadable_shard_crosses_processes_with_its_reason_and_place():
    """The exception survives pickling, as what a worker raises has to."""
    sent = pickle.dumps(ShardUnreadable(Reason.TRUNCATED, "after 3 records"))
    error = pickle.loads(sent)
    assert (error.reason, error.place) == (Reason.TRUNCATED, "after 3 records")


def test_reason_codes_are_plain_words():
    """Codes are public API: lower case, no spaces, each once."""
    codes = [str(reason) for reason in Reason]
    assert all(code.replace("_", "").isalnum() and code == code.lower() for code in codes)
    assert len(set(codes)) == len(Reason)


PAGE = Path(__file__).parents[4] / "docs/reference/inputs.md"
FILES = [row for row in FORMATS.values() if row.suffixes]


@pytest.mark.parametrize("row", FORMATS.values(), ids=lambda row: row.name)
def test_each_has_a_reader(row):
    """With functions that take what they are given."""
    reader = reader_of(row.name)
    for name in ["read_part", "peek_columns"] if row.lines else ["plan_parts", "read_part", "peek_columns"]:
        asked = inspect.signature(getattr(Reader, name)).parameters
        assert len(inspect.signature(getattr(reader, name)).parameters) == len(asked) - 1


@pytest.mark.parametrize("row", FILES, ids=lambda row: row.name)
def test_each_format_of_files_has_a_media_type(row):
    """A shard of a format without one would be missing in Croissant."""
    assert row.media_types


@pytest.mark.parametrize("row", FILES, ids=lambda row: row.name)
def test_a_suffix_names_one_format_and_stands_in_the_page(row):
    """Compressed as a whole only where that can be read."""
    text = PAGE.read_text("utf-8")
    for suffix in row.suffixes:
        assert format_of(f"A{suffix.upper()}") == (row.name, "none")
        assert format_of(f"a{suffix}.gz") == (row.name if row.lines else "unknown", "gzip")
        assert re.search(rf"^\|.*`{re.escape(suffix)}`", text, re.MULTILINE), suffix
