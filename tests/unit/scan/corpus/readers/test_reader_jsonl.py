"""The reader of JSON lines against a slow twin: the whole file at once, split, parsed by the standard library."""

from __future__ import annotations

import json
import math
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.corpus.readers import END, Part, plan_parts
from dataaudit.scan.corpus.readers import stream as lines_module

BOM = b"\xef\xbb\xbf"


def twin_parse(line: bytes):
    """A JSON value by the standard library, made as strict as JSON is but for NaN and infinities, which are null."""

    def pairs(items):
        repeated.append(len({name for name, _ in items}) < len(items))
        for name, value in items:
            name.encode()
            if isinstance(value, str):
                value.encode()
        return dict(items)

    def number(digits):
        value = float(digits)
        if not math.isfinite(value):
            raise ValueError(digits)
        return value

    repeated = []
    value = json.loads(
        line.decode(), object_pairs_hook=pairs, parse_float=number, parse_int=number, parse_constant=lambda _: None
    )
    json.dumps(value, ensure_ascii=False).encode()
    return value, any(repeated)


def twin_look_up(record, path):
    if path in record:
        return record[path]
    for name in path.split("."):
        if not isinstance(record, dict) or name not in record:
            return None
        record = record[name]
    return record


def twin_document(line: bytes, text: str, source: str | None):  # noqa: PLR0911 - one for each reason
    """Returns (text, source) of a line, or the reason why there is none."""
    try:
        record, repeated = twin_parse(line)
    except ValueError as error:
        return "invalid_utf8" if isinstance(error, UnicodeDecodeError) else "invalid_json"
    if not isinstance(record, dict):
        return "not_an_object"
    if repeated:
        return "duplicate_key"
    found = twin_look_up(record, text)
    if not isinstance(found, str):
        return "text_missing" if found is None else "type_mismatch"
    if source is None:
        return found, "constant"
    name = twin_look_up(record, source)
    if name is None:
        return found, "(none)"
    return (found, name) if isinstance(name, str) else "source_type_mismatch"


def twin_read(data: bytes, text: str, source: str | None, max_record_bytes: int):
    """Returns (documents, bad records by reason, number of records)."""
    documents, bad, row = [], {}, 0
    for line in data.removeprefix(BOM).split(b"\n"):
        too_long = len(line) > max_record_bytes
        if not too_long and not line.strip(b" \t\r\n"):
            continue
        found = "oversize_record" if too_long else twin_document(line, text, source)
        if isinstance(found, tuple):
            documents.append((row, *found))
        else:
            bad.setdefault(found, []).append((row, len(line)))
        row += 1
    return documents, bad, row


words = st.one_of(st.text(max_size=8), st.sampled_from(["", "\u00e9\u4e2d\U0001f600", "a\x00b", "\u2028", "\x85"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["text", "source", "meta", "meta.text", "other"])
records = st.dictionaries(names, values | st.fixed_dictionaries({"text": words, "source": words | st.none()}))
good = st.fixed_dictionaries({"text": words}, optional={"source": words | st.none(), "meta": values})
encoded = st.builds(
    lambda value, ascii_only, gap: gap + json.dumps(value, ensure_ascii=ascii_only).encode() + gap,
    good | records | values,
    st.booleans(),
    st.sampled_from([b"", b" ", b"\t", b"\r"]),
)
ODD_LINES = [
    b"",
    b"   ",
    b"\r",
    b"\t \r",
    b"\x0b",
    b"\x00",
    b"{}",
    b"[]",
    b"null",
    b"1",
    b'"text"',
    b"nul",
    b'{"text": NaN}',
    b'{"text": "a", "n": Infinity}',
    b'{"text": "a NaN, \\" NaN", "n": [-Infinity, {"m":NaN}]}',
    b'{"text": "a", NaN: 1}',
    b'{"text": "a", "n": -NaN}',
    b'{"text": "a", "n": 1NaN}',
    b'{"text": "a", "n": NaN, "n": NaN}',
    b'{"text": "\\ud800", "n": NaN}',
    b'{"text": "a", "n": NaN, "m": "',
    b"NaN",
    b'{"text": "\\ud800"}',
    b'{"text": "\\ud83d\\ude00"}',
    b'{"\\udc00": 1, "text": "a"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "\xff"}',
    b'{"text": "\xc3',
    b'{"text": "a", "text": "b"}',
    b'{"text": "\\ud800", "text": "b"}',
    b'{"text": "a"} {"text": "b"}',
    b'{"text": "a", "other": 1, "other": 1}',
    b'{"other": {"a": 1, "b": [{"c": 1, "c": 2}]}, "text": "a"}',
    b'{"text": "he said \\": and \\" : too"}',
    b'{"a": "text", "text": "b"}',
    b'{"text" : "a", "text"\t:"b"}',
    b'{"te\\u0078t": "a", "text": "bb"}',
    b'{"\\u0074ext": "a"}',
    b'{"text": "a", "meta": {"text": "a", "n": {}}}',
    b'{"text": "aaaaaaaaaaaaaaa", "text": "b"}',
    b'{"text": "b", "text": "aaaaaaaaaaaaaaa"}',
    b'{"": 1, "": 2}',
    b'{"text": 12}',
    b'{"text": "a", "source": 3}',
    b'{"text": "a\x01b"}',
    b'{"text": "a", "n": 1e999}',
    b'{"text": "a", "n": ' + b"9" * 400 + b"}",
    b'{"text": "' + b"x" * 300 + b'"}',
    b"x" * 90,
    BOM + b"{}",
    b'{"text": "a", "n": 018446744073709551616}',
    b'{"text": "a", "n": 18446744073709551616}',
    b'{"text": "a",}',
    b'{"meta": {"text": "inner", "source": "web"}, "text": null}',
    b'{"meta": [{"text": "in a list"}]}',
]
lines = encoded | st.sampled_from(ODD_LINES) | st.binary(max_size=6).filter(lambda line: b"\n" not in line)
files = st.builds(
    lambda mark, found, end, final: mark + end.join(found) + (end if final else b""),
    st.sampled_from([b"", b"", b"", BOM, BOM[:2]]),
    st.lists(lines, max_size=12),
    st.sampled_from([b"\n", b"\n", b"\r\n", b"\n\n"]),
    st.booleans(),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("jsonl") / "shard.jsonl"


@given(
    data=files,
    part_bytes=st.integers(1, 400),
    block_bytes=st.sampled_from([1, 2, 3, 7, 64, 1 << 20]),
    batch_bytes=st.sampled_from([1, 50, 1 << 20]),
    max_record_bytes=st.sampled_from([0, 5, 40, 64, 1 << 20]),
    text=st.sampled_from(["text", "meta.text", "meta"]),
    source=st.sampled_from([None, "source", "meta.source"]),
)
@example(
    data=BOM + b'{"text":"a"}\n{"text":"b"}\n',
    part_bytes=1,
    block_bytes=1,
    batch_bytes=1,
    max_record_bytes=99,
    text="text",
    source=None,
)
@example(
    data=b"\n".join(ODD_LINES),
    part_bytes=100,
    block_bytes=7,
    batch_bytes=50,
    max_record_bytes=1 << 20,
    text="text",
    source="source",
)
@settings(max_examples=examples(400), deadline=None)
def test_any_cut_gives_the_documents_of_the_slow_twin(
    read, file, data, part_bytes, block_bytes, batch_bytes, max_record_bytes, text, source
):
    """Whatever the size of parts, blocks and batches, all parts together give what the twin gives."""
    file.write_bytes(data)
    with mock.patch.object(lines_module, "_BLOCK_BYTES", block_bytes):
        reading = read(
            file,
            text=text,
            source=source,
            part_bytes=part_bytes,
            batch_bytes=batch_bytes,
            max_record_bytes=max_record_bytes,
        )
    documents, bad, num_records = twin_read(data, text, source, max_record_bytes)
    assert reading.failure is None
    assert reading.documents == documents
    assert reading.records == num_records
    assert reading.bad == bad


@given(size=st.integers(0, 10_000), part_bytes=st.integers(1, 12_000))
@settings(max_examples=examples(200), deadline=None)
def test_parts_cover_a_plain_file_without_overlap(size, part_bytes):
    """Every byte of a plain file lies in exactly one part, and none is empty but that of an empty file."""
    parts = plan_parts("unused", "jsonl", "none", size, part_bytes)
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == size
    assert all(0 < part.stop - part.start <= part_bytes for part in parts) or size == 0


@pytest.mark.parametrize("compression", ["gzip", "zstd", "bzip2", "xz"])
def test_a_compressed_file_is_one_part_until_it_is_decoded(compression):
    """Where the lines of a compressed stream are is not known before."""
    assert plan_parts("unused", "jsonl", compression, 1000, 10) == [Part(0, END)]


@pytest.mark.parametrize("block_bytes", [1 << 20, 5])
@pytest.mark.parametrize("cut", range(1, 27))
def test_a_cut_before_at_or_after_a_newline_loses_and_repeats_nothing(read, file, monkeypatch, block_bytes, cut):
    """Two parts that meet at any byte around a line's end read each line once."""
    monkeypatch.setattr(lines_module, "_BLOCK_BYTES", block_bytes)
    data = b'{"text":"a"}\n{"text":"b"}\n'
    file.write_bytes(data)
    reading = read(file, parts=[Part(0, cut), Part(cut, len(data))])
    assert reading.documents == [(0, "a", "constant"), (1, "b", "constant")]


def test_many_parts_inside_one_long_line_read_no_more_than_their_own_bytes(read, file, count_bytes, monkeypatch):
    """A part in which no line begins does not read the rest of a long line, so the work stays linear."""
    read_bytes = count_bytes()
    monkeypatch.setattr(lines_module, "_BLOCK_BYTES", 1_000)
    file.write_bytes(b"x" * 1_000_000 + b'\n{"text":"after"}\n')
    reading = read(file, part_bytes=10_000, max_record_bytes=5_000)
    assert reading.bad == {"oversize_record": [(0, 1_000_000)]}
    assert reading.documents == [(1, "after", "constant")]
    assert sum(read_bytes) < 2_500_000


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_deep_nesting_is_read_or_refused_but_never_a_crash(read, file, depth):
    """Nesting beyond the parser's limit is a bad record like any other."""
    file.write_bytes(b'{"text":"a","deep":' + b"[" * depth + b"]" * depth + b'}\n{"text":"b"}\n')
    reading = read(file)
    assert [text for _, text, _ in reading.documents] == (["a", "b"] if depth == 1_000 else ["b"])
    assert list(reading.bad) == ([] if depth == 1_000 else ["invalid_json"])


def test_an_empty_file_has_no_records(read, file):
    """A shard without bytes is valid and empty."""
    file.write_bytes(b"")
    reading = read(file)
    assert (reading.failure, reading.records, reading.documents) == (None, 0, [])


def test_batches_hold_about_batch_bytes(read, file):
    """A batch is closed by the line that fills it, so it exceeds the limit by one line at most."""
    file.write_bytes(b'{"text":"%s"}\n' % (b"x" * 100) * 1_000)
    reading = read(file, batch_bytes=1_000)
    assert sum(reading.batches) == 100_000
    assert max(reading.batches) <= 1_000 + 112


@pytest.mark.inputs
def test_columns_are_those_of_any_record_for_any_cut(read, file):
    """The columns that are seen do not depend on how a file is cut."""
    file.write_bytes(b"".join(b'{"text":"a","key%d":1}\n' % number for number in range(6_000)))
    whole = read(file)
    parts = read(file, part_bytes=9_999)
    smallest = sorted(parts.columns)[: len(whole.columns)]
    assert len(whole.columns) == 4_096
    assert set(smallest) == whole.columns


def test_numbers_that_are_not_finite_are_remarked_and_cost_nothing(read, file):
    """They are counted with the first record that has them; a line that is bad besides is a bad record."""
    lines = [
        b'{"text": "a"}',
        b'{"text": "b", "n": NaN}',
        b'{"text": "\\ud800", "n": NaN}',
        b'{"text": "c", "n": -Infinity}',
    ]
    file.write_bytes(b"\n".join(lines))
    reading = read(file)
    assert [text for _, text, _ in reading.documents] == ["a", "b", "c"]
    assert reading.bad == {"invalid_json": [(2, len(lines[2]))]}
    assert reading.remarks == {"not_finite": (2, 1)}


def test_a_long_line_that_ends_in_a_string_is_given_up_in_linear_time(read, file):
    """Of 4 MB of quotes in a string without an end, none is tried as the beginning of another."""
    file.write_bytes(b'{"text": NaN, "n": "' + b'\\"' * 2_000_000)
    reading = read(file)
    assert list(reading.bad) == ["invalid_json"]
