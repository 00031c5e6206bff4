"""Evaluation sets of every format, with what is wrong in them."""

import gzip
import sys

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.protected.eval_sets import (
    Item,
    ItemFields,
    SetFileError,
    UnknownColumnError,
    read_items,
    read_records,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ROWS = [{"q": "What?", "a": "That.", "name": "one"}, {"q": "Why, so?", "a": None, "name": "two"}]
FIELDS = ItemFields(question="q", answer="a", id="name")
ITEMS = [Item(id="one", question="What?", answers=("That.",)), Item(id="two", question="Why, so?")]


def lines(*rows):
    """Return rows as JSON lines."""
    return b"".join(row if isinstance(row, bytes) else orjson.dumps(row) for row in rows for row in (row, b"\n"))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.csv", "a.tsv", "a.csv.gz", "a.parquet"])
def test_every_format_gives_the_same_items(tmp_path, name):
    """And the same digest."""
    path = tmp_path / name
    pack = {"gz": gzip.compress, "zst": zstd.compress}.get(name.rsplit(".", 1)[1], bytes)
    if "parquet" in name:
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif "sv" in name:
        rows = [["q", "a", "name"], ["What?", "That.", "one"], [], ['"Why, so?"', "", "two"]]
        tab = "\t" if "tsv" in name else ","
        path.write_bytes(pack("\r\n".join(map(tab.join, rows)).encode()))
    else:
        path.write_bytes(pack(lines(*ROWS)))
    found = read_items([str(path)], FIELDS)
    expected = [ITEMS[0], Item(id="two", question="Why, so?", answers=("",))] if "sv" in name else ITEMS
    assert found.items == expected
    assert not found.losses.records
    assert len(found.sha256) == 64


def test_an_array_gives_the_items_of_its_lines(tmp_path):
    """Written over several lines, too; an entry that is no object is lost."""
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf\n" + orjson.dumps([*ROWS, 7], option=orjson.OPT_INDENT_2))
    found = read_items([str(path)], FIELDS)
    assert found.items == ITEMS
    assert found.losses.records == {Reason.NOT_AN_OBJECT: 1}
    path.write_bytes(b"[]")
    assert read_items([str(path)], FIELDS).items == []


def test_bad_items_are_counted_with_their_places(tmp_path):
    """Each costs one item and says why."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        lines(ROWS[0], b"{broken", b"[1]", {"a": "no question"}, {"q": {"x": 1}}, b'{"q": "a", "q": "b"}', b"\xff")
    )
    losses = read_items([str(path)], FIELDS).losses
    assert losses.records == {
        Reason.INVALID_JSON: 1,
        Reason.NOT_AN_OBJECT: 1,
        Reason.TEXT_MISSING: 1,
        Reason.TEXT_TYPE: 1,
        Reason.DUPLICATE_KEY: 1,
        Reason.INVALID_UTF8: 1,
    }
    assert losses.places[Reason.NOT_AN_OBJECT] == [(2, 3)]


def test_rows_of_a_csv_that_do_not_fit_are_counted(tmp_path):
    """Another number of fields, or bytes that are no UTF-8."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfq,a,name\nx,y,1\nx,y\nx,\xff,2\n")
    found = read_items([str(path)], FIELDS)
    assert [item.id for item in found.items] == ["1"]
    assert found.losses.records == {Reason.CSV_FIELDS: 1, Reason.INVALID_UTF8: 1}


def test_values_that_are_no_text_are_written_as_text(tmp_path):
    """Numbers as JSON writes them, lists of accepted answers one by one; names are made unique."""
    path = tmp_path / "a.jsonl"
    rows = [{"q": "x", "a": 42}, {"q": "x", "a": [True, 1.5, "b"]}, {"q": "x", "a": {"text": "deep"}}]
    path.write_bytes(lines(*rows))
    found = read_items([str(path)], ItemFields(question="q", answer="a"))
    assert [item.answers for item in found.items] == [("42",), ("true", "1.5", "b")]
    nested = read_items([str(path)], ItemFields(question="q", answer="a.text", id="q"))
    assert [(item.id, item.answers) for item in nested.items] == [("x", ()), ("x#2", ()), ("x#3", ("deep",))]


def test_items_are_numbered_over_files(tmp_path):
    """An item without a name has the number of its record."""
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_bytes(lines({"q": name}, {"no": 1}))
    found = read_items([str(tmp_path / f"{name}.jsonl") for name in "ab"], ItemFields(question="q"))
    assert [(item.id, item.question) for item in found.items] == [("0", "a"), ("2", "b")]
    assert found.losses.places[Reason.TEXT_MISSING] == [(1, 8), (3, 8)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_an_unknown_column_is_an_error_with_the_known_ones(tmp_path, name):
    """No item of the set has it."""
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist([{"question": "x"}]), path)
    else:
        path.write_bytes(b"question\nx\n" if name == "a.csv" else lines({"question": "x", "deep": {"er": 1}}))
    with pytest.raises(SetFileError) as raised:
        read_items([str(path)], ItemFields(question="qestion"))
    assert raised.value.cause.column == "qestion"
    assert "question" in raised.value.cause.known


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.jsonl.gz", gzip.compress(b'{"q": "x"}\n', mtime=0)[:-4], Reason.TRUNCATED),
        ("a.json", b'[{"q": "x"},', Reason.INVALID_JSON),
        ("a.parquet", b"PAR1 and nothing", Reason.NOT_PARQUET),
        ("a.csv", b"q,q\n1,2\n", Reason.AMBIGUOUS_COLUMN),
        ("a.xls", b"", Reason.UNKNOWN_FORMAT),
        ("a.csv", b'q,r\n"one,1\ntwo,2\n', Reason.CSV_FIELDS),
        ("a.csv", b'q,r\n"one,1\n"two",2\n', Reason.CSV_FIELDS),
        ("a.csv", "q,r\u00e9ponse\n1,2\n".encode("latin-1"), Reason.INVALID_UTF8),
        ("a.csv", "q,r\n1,2\n".encode("utf-16"), Reason.INVALID_UTF8),
        ("a.csv", "q,r\n1,2\n".encode("utf-16-le"), Reason.INVALID_UTF8),
        ("a.json", b'[{"q": "x", "q": "y"}]', Reason.DUPLICATE_KEY),
        ("none.jsonl", None, Reason.NOT_FOUND),
    ],
)
def test_a_file_that_cannot_be_trusted_is_an_error(tmp_path, name, content, reason):
    """Nothing of the set is used."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    (tmp_path / "good.jsonl").write_bytes(lines({"q": "x"}))
    with pytest.raises(SetFileError) as raised:
        read_items([str(tmp_path / "good.jsonl"), str(path)], ItemFields(question="q"))
    assert raised.value.number == 1
    assert raised.value.cause.reason == reason


@pytest.mark.parametrize("separator", [";", "\t", "|", ":", " ; "])
@pytest.mark.parametrize("rows", ["", "plain", "quoted"])
def test_a_quoted_header_with_another_separator_is_one_name(tmp_path, separator, rows):
    """So the error can say which separator stands there; a quote that is not closed stays what it is."""
    lines_ = [separator.join(('"question"', '"answer"'))]
    lines_ += {"": [], "plain": [separator.join("ab")], "quoted": [separator.join(('"a"', '"b"'))]}[rows]
    (tmp_path / "a.csv").write_text("\r\n".join(lines_))
    with pytest.raises(UnknownColumnError) as caught:
        list(read_records(str(tmp_path / "a.csv"), ("question", "answer")))
    (name,) = caught.value.known
    assert separator in name


@pytest.mark.parametrize("name", ["b.jsonl", "b.json", "b.csv", "b.parquet"])
def test_a_column_that_one_file_lacks_is_an_error(tmp_path, name):
    """Though others have it, and its values may be null; a file without a record lacks nothing."""
    good, other, empty = tmp_path / "a.jsonl", tmp_path / name, tmp_path / "c.jsonl"
    good.write_bytes(lines({"q": "x", "a": None}))
    empty.write_bytes(b"\n")
    if name == "b.parquet":
        pq.write_table(pa.table({"q": ["x"]}), other)
    else:
        other.write_bytes({"b.csv": b"q\nx\n", "b.json": b'[{"q": "x"}]'}.get(name, lines({"q": "x"})))
    fields = ItemFields(question="q", answer="a")
    assert len(read_items([str(good), str(empty)], fields).items) == 1
    with pytest.raises(SetFileError) as raised:
        read_items([str(good), str(other)], fields)
    assert (raised.value.number, raised.value.cause.column, raised.value.cause.known) == (1, "a", ("q",))


def test_columns_on_top_are_known_behind_any_number_of_nested_ones(tmp_path):
    """Whether a column is there does not depend on how many were seen before."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines({"deep": {f"k{number}": 1 for number in range(2000)}, "q": "x", "z": {"a": "y"}}))
    assert read_items([str(path)], ItemFields(question="q", answer="z.a")).items[0].answers == ("y",)
    with pytest.raises(SetFileError) as raised:
        read_items([str(path)], ItemFields(question="zz"))
    assert raised.value.cause.known[:3] == ("deep", "q", "z")


def test_a_field_of_nulls_in_parquet_is_there(tmp_path):
    """The schema has it; one that it does not have is unknown."""
    path = tmp_path / "a.parquet"
    kind = pa.struct([("text", pa.string())])
    pq.write_table(pa.table({"q": ["x"], "a": pa.array([None], kind)}), path)
    assert read_items([str(path)], ItemFields(question="q", answer="a.text")).items[0].answers == ()
    with pytest.raises(SetFileError):
        read_items([str(path)], ItemFields(question="q", answer="a.other"))


def test_deep_nesting_costs_one_item_at_most(tmp_path):
    """A text of a thousand lists is no text; beside the text, depth does not matter."""
    path = tmp_path / "a.jsonl"
    lists, objects = b"[" * 1000 + b"]" * 1000, b'{"k":' * 1000 + b"1" + b"}" * 1000
    path.write_bytes(lines(b'{"q": ' + lists + b"}", b'{"q": "x", "more": ' + objects + b"}", {"q": [["y"]]}))
    found = read_items([str(path)], ItemFields(question="q"))
    assert [item.question for item in found.items] == ["x", "y"]
    assert found.losses.records == {Reason.TEXT_TYPE: 1}
    with pytest.raises(SetFileError):
        read_items([str(path)], ItemFields(question="none"))


def test_names_are_unique_whatever_they_look_like(tmp_path):
    """A name given once may look like that of a repeated one."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(*({"q": "x", "id": name} for name in ["a", "a", "a#2", "a", "a#2"])))
    names = [item.id for item in read_items([str(path)], ItemFields(question="q", id="id")).items]
    assert names[:2] == ["a", "a#2"]
    assert len(set(names)) == 5


def test_a_number_that_is_none_is_no_text(tmp_path):
    """NaN in Parquet stands for an absent value; an infinite number cannot be written."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"q": ["x", "y", "z"], "a": [float("nan"), 1.5, float("inf")]}), path)
    found = read_items([str(path)], ItemFields(question="q", answer="a"))
    assert [item.answers for item in found.items] == [(), ("1.5",)]
    assert found.losses.records == {Reason.TEXT_TYPE: 1}


@pytest.mark.parametrize("form", ["{}\n{}\n{}\n", "[{}, {}, {}]"], ids=["lines", "array"])
def test_numbers_that_are_not_finite_are_null_in_json(tmp_path, form):
    """Python writes them: a score beside its texts costs no item, and in place of a text they are none."""
    rows = '{"q": "x NaN", "a": "y", "s": NaN}', '{"q": "x", "a": -Infinity}', '{"q": NaN, "a": "y"}'
    (tmp_path / "a.json").write_text(form.format(*rows), encoding="utf-8")
    found = read_items([str(tmp_path / "a.json")], ItemFields(question="q", answer="a"))
    assert [(item.question, item.answers) for item in found.items] == [("x NaN", ("y",)), ("x", ())]
    assert found.losses.records == {Reason.TEXT_MISSING: 1}


def test_the_first_lost_record_has_a_file(tmp_path):
    """Its number counts from the start of that file."""
    for name, rows in (("a", [{"q": "x"}]), ("b", [{"q": "x"}, [1], [2]])):
        (tmp_path / f"{name}.jsonl").write_bytes(lines(*rows))
    found = read_items([str(tmp_path / f"{name}.jsonl") for name in "ab"], ItemFields(question="q"))
    assert found.first_lost == (1, 1)
