import pytest

from dataaudit.config import SourceRule
from dataaudit.scan.corpus.fields import NO_SOURCE, field_rule, look_up
from dataaudit.scan.corpus.loss import Reason, ShardUnreadable


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
