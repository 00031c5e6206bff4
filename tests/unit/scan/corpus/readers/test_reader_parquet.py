"""The Parquet reader against a slow twin: the whole table at once, as Python values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encrypted import encrypted
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.corpus.readers import parquet, plan_parts


def twin_read(path: Path, text: str, source: str | None, max_record_bytes: int):
    """Returns (documents, bad records by reason, number of records)."""
    documents, bad = [], {}
    table = pq.read_table(path)
    for row, record in enumerate(table.to_pylist()):
        found, name = twin_look_up(record, text), "constant"
        if source is not None:
            name = twin_look_up(record, source)
            name = "(none)" if name is None else name
        size = 0 if found is None else len(found.encode())
        if found is None:
            bad.setdefault("text_missing", []).append((row, 0))
        elif size > max_record_bytes:
            bad.setdefault("oversize_record", []).append((row, size))
        else:
            documents.append((row, found, name))
    return documents, bad, table.num_rows


def twin_look_up(record, path):
    if path in record:
        return record[path]
    for name in path.split("."):
        record = None if record is None else record[name]
    return record


words = st.none() | st.text(max_size=12) | st.sampled_from(["", "\u4e2d" * 9, "a\x00b", "x" * 200])
STRING_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int16(), pa.string())]
rows = st.lists(st.tuples(words, words, st.booleans()), max_size=18)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("parquet") / "shard.parquet"


@given(
    rows=rows,
    kind=st.sampled_from(STRING_TYPES),
    rows_per_group=st.integers(1, 20),
    part_bytes=st.sampled_from([1, 300, 2_000, 1 << 30]),
    batch_bytes=st.sampled_from([1, 30, 1 << 20]),
    max_record_bytes=st.sampled_from([0, 26, 1 << 20]),
    use_dictionary=st.booleans(),
    version=st.sampled_from(["1.0", "2.0"]),
    paths=st.sampled_from(
        [("text", None), ("text", "source"), ("meta.text", "source"), ("meta.deep.text", "meta.source"), ("a.b", None)]
    ),
)
@settings(max_examples=examples(250), deadline=None)
def test_any_cut_gives_the_documents_of_the_slow_twin(
    read, file, rows, kind, rows_per_group, part_bytes, batch_bytes, max_record_bytes, use_dictionary, version, paths
):
    """Whatever the row groups, parts, batches and string types, all parts together give what the twin gives."""
    texts = pa.array([text for text, _, _ in rows], kind)
    sources = pa.array([source for _, source, _ in rows], kind)
    absent = pa.array([gone for _, _, gone in rows], pa.bool_())
    deep = pa.StructArray.from_arrays([texts], ["text"], mask=absent)
    meta = pa.StructArray.from_arrays([texts, sources, deep], ["text", "source", "deep"], mask=absent)
    table = pa.table({"n": range(len(rows)), "text": texts, "source": sources, "meta": meta, "a.b": texts})
    if kind == pa.string_view():
        rows_per_group = 20  # the writer cannot cut such a column
    pq.write_table(table, file, row_group_size=rows_per_group, use_dictionary=use_dictionary, data_page_version=version)
    text, source = paths
    reading = read(
        file,
        "parquet",
        text=text,
        source=source,
        part_bytes=part_bytes,
        batch_bytes=batch_bytes,
        max_record_bytes=max_record_bytes,
    )
    documents, bad, num_records = twin_read(file, text, source, max_record_bytes)
    assert reading.failure is None
    assert reading.documents == documents
    assert reading.records == num_records
    assert reading.bad == bad


def test_row_groups_are_cut_into_parts_of_about_the_size(file):
    """Consecutive row groups share a part until it is full; one row group is never cut."""
    pq.write_table(pa.table({"text": [f"{n:0100d}" for n in range(100)]}), file, row_group_size=10)
    size = pq.ParquetFile(file).metadata.row_group(0).total_byte_size
    parts = plan_parts(str(file), "parquet", "none", 0, 3 * size + 50)
    assert [(part.start, part.stop) for part in parts] == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert len(plan_parts(str(file), "parquet", "none", 0, 1)) == 10


@pytest.mark.parametrize("groups", [0, 1, 3], ids=["no row group", "an empty row group", "empty row groups"])
def test_a_file_without_rows_is_valid_and_empty(read, file, groups):
    """No rows, in any number of row groups, is no damage."""
    table = pa.table({"text": pa.array([], pa.string())})
    with pq.ParquetWriter(file, table.schema) as writer:
        for _ in range(groups):
            writer.write_table(table)
    reading = read(file, "parquet", part_bytes=1)
    assert (reading.failure, reading.records, reading.documents) == (None, 0, [])


def test_an_empty_row_group_between_others_changes_nothing(read, file):
    """Rows are numbered on over a row group without any."""
    table = pa.table({"text": ["a", "b"]})
    with pq.ParquetWriter(file, table.schema) as writer:
        for piece in (table, table.slice(0, 0), table):
            writer.write_table(piece)
    assert [row for row, _, _ in read(file, "parquet", part_bytes=1).documents] == [0, 1, 2, 3]


@pytest.mark.parametrize("rows_per_group", [1, 10, 1_000])
def test_batches_span_row_groups(read, file, rows_per_group):
    """As many batches as the text asks for, however many row groups hold it."""
    texts = [f"{n:0100d}" for n in range(2_000)]
    pq.write_table(pa.table({"text": texts}), file, row_group_size=rows_per_group)
    reading = read(file, "parquet", batch_bytes=101 * 1_000)
    assert [text for _, text, _ in reading.documents] == texts
    assert len(reading.batches) in (2, 3)


STRUCT = pa.array([{"b": "struct"}, None])
COLUMNS = {
    "no column": ({"other": ["a", "b"]}, "text", None, "text_column_missing", "text"),
    "no source column": ({"text": ["a", "b"]}, "text", "source", "source_column_missing", "source"),
    "binary": ({"text": [b"a", b"b"]}, "text", None, "type_mismatch", "text: binary"),
    "numbers": ({"text": [1, 2]}, "text", None, "type_mismatch", "text: int64"),
    "numbers as dictionary": (
        {"text": pa.array([1, 2]).dictionary_encode()},
        "text",
        None,
        "type_mismatch",
        "text: int64",
    ),
    "list of strings": ({"text": [["a"], ["b"]]}, "text", None, "type_mismatch", "text: list"),
    "struct itself": ({"a": STRUCT}, "a", None, "type_mismatch", "a: struct"),
    "path through a list": ({"a": [[{"b": "x"}], []]}, "a.b", None, "type_mismatch", "a: list"),
    "path through a string": ({"a": ["x", "y"]}, "a.b", None, "type_mismatch", "a: string"),
    "path to an absent field": ({"a": STRUCT}, "a.c", None, "text_column_missing", "a.c"),
    "source is a number": ({"text": ["a", "b"], "s": [1, 2]}, "text", "s", "source_type_mismatch", "s: int64"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_that_cannot_be_the_text_or_source_is_named(read, file, name):
    """A missing column, or one without strings, costs the shard with its reason, its path and its type."""
    columns, text, source, reason, place = COLUMNS[name]
    pq.write_table(pa.table(columns), file)
    reading = read(file, "parquet", text=text, source=source)
    assert reading.failure is not None
    assert reading.failure[0] == reason
    assert reading.failure[1].startswith(place)


@pytest.mark.parametrize("nested", [False, True], ids=["columns", "fields of a struct"])
def test_two_columns_of_the_configured_name_are_ambiguous(read, file, nested):
    """Neither of two columns of one name is silently taken."""
    arrays = [pa.array(["a"]), pa.array(["b"])]
    if nested:
        table = pa.table({"m": pa.StructArray.from_arrays(arrays, ["text", "text"])})
    else:
        table = pa.Table.from_arrays(arrays, ["text", "text"])
    pq.write_table(table, file)
    path = "m.text" if nested else "text"
    assert read(file, "parquet", text=path).failure == ("ambiguous_column", path)


def test_other_columns_may_share_a_name(read, file):
    """Two columns of one name are no problem as long as they are not asked for."""
    arrays = [pa.array(["a"]), pa.array([1]), pa.array([2])]
    pq.write_table(pa.Table.from_arrays(arrays, ["text", "n", "n"]), file)
    assert read(file, "parquet").documents == [(0, "a", "constant")]


def test_a_column_of_the_exact_name_comes_before_a_path(read, file):
    """With both a column ``a.b`` and a struct ``a`` with a field ``b``, the column is read."""
    pq.write_table(pa.table({"a": STRUCT, "a.b": ["literal", None]}), file)
    reading = read(file, "parquet", text="a.b")
    assert reading.documents == [(0, "literal", "constant")]
    assert reading.bad == {"text_missing": [(1, 0)]}


def test_a_null_struct_means_a_missing_text(read, file):
    """A null anywhere on the path is a null at its end, even where bytes lie below it."""
    inner = pa.StructArray.from_arrays([pa.array(["a", "hidden", "c"])], ["text"])
    outer = pa.StructArray.from_arrays([inner], ["deep"], mask=pa.array([False, True, False]))
    pq.write_table(pa.table({"meta": outer}), file)
    reading = read(file, "parquet", text="meta.deep.text")
    assert [text for _, text, _ in reading.documents] == ["a", "c"]
    assert reading.bad == {"text_missing": [(1, 0)]}


def test_a_column_of_nulls_alone_holds_missing_values(read, file):
    """Writers give an all-null column the null type: a source of it is no source, a text of it is missing."""
    pq.write_table(pa.table({"text": ["a", "b"], "none": pa.nulls(2)}), file)
    assert read(file, "parquet", source="none").documents == [(0, "a", "(none)"), (1, "b", "(none)")]
    assert read(file, "parquet", text="none").bad == {"text_missing": [(0, 0), (1, 0)]}


@pytest.mark.parametrize("use_dictionary", [False, True])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_bytes_that_are_no_utf8_cost_their_rows_alone(read, file, kind, use_dictionary):
    """Invalid UTF-8 in a string column is a bad record; the rows around it are read."""

    def strings(values):
        binary = pa.large_binary() if kind == pa.large_string() else pa.binary()
        return pa.array(values, binary).cast(kind, safe=False)

    table = pa.table(
        {
            "text": strings([b"a", b"\xff\xfe", b"c", None, b"\xc3", b"f"]),
            "source": strings([b"s", b"s", b"\xed\xa0\x80", b"\xff", b"\xff", None]),
        }
    )
    pq.write_table(table, file, use_dictionary=use_dictionary)
    reading = read(file, "parquet", source="source")
    assert reading.documents == [(0, "a", "s"), (5, "f", "(none)")]
    assert reading.bad == {"invalid_utf8": [(1, 2), (2, 1), (4, 1)], "text_missing": [(3, 0)]}


@pytest.mark.parametrize("order", ["long first", "long last", "long between"])
def test_batches_stay_near_their_size_when_lengths_are_uneven(read, file, order):
    """A batch holds at most ``batch_bytes`` of text, or one document."""
    short, long = ["x" * 10] * 3_000, ["y" * 50_000] * 40
    texts = {"long first": long + short, "long last": short + long, "long between": short[:999] + long + short[999:]}[
        order
    ]
    pq.write_table(pa.table({"text": texts}), file)
    reading = read(file, "parquet", batch_bytes=120_000)
    assert [text for _, text, _ in reading.documents] == texts
    assert max(reading.batches) <= 120_000
    assert len(reading.batches) < 40
    assert max(read(file, "parquet", batch_bytes=1_024).batches) == 50_000


@pytest.fixture
def damaged(tmp_path):
    """Writes a file of four row groups, damages bytes of its second one's data and returns its path."""

    def write(*, checksum: bool, compression: str) -> Path:
        path = tmp_path / "damaged.parquet"
        texts = [f"document {number} of this shard" for number in range(400)]
        pq.write_table(
            pa.table({"text": texts}),
            path,
            row_group_size=100,
            compression=compression,
            use_dictionary=False,
            write_page_checksum=checksum,
        )
        chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
        data = bytearray(path.read_bytes())
        middle = chunk.data_page_offset + chunk.total_compressed_size // 2
        for index in range(middle, middle + 8):
            data[index] ^= 0xFF
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_a_page_that_fails_its_checksum_costs_the_shard(read, damaged, compression):
    """Page checksums are verified, and the place names the row group."""
    path = damaged(checksum=True, compression=compression)
    assert read(path, "parquet").failure == ("corrupt_parquet", "row group 1")


def test_a_damaged_page_without_checksum_is_seen_when_it_cannot_be_decoded(read, damaged):
    """Without checksums the codec still notices."""
    assert read(damaged(checksum=False, compression="zstd"), "parquet").failure == ("corrupt_parquet", "row group 1")


def test_damage_that_no_checksum_shows_never_becomes_a_document(read, damaged):
    """Without checksum and codec, damaged bytes are at least no valid text: they are counted rows."""
    reading = read(damaged(checksum=False, compression="none"), "parquet")
    assert reading.failure is not None or 0 < len(reading.bad["invalid_utf8"]) < 3
    if reading.failure is None:
        assert len(reading.documents) + len(reading.bad["invalid_utf8"]) == 400


def test_a_row_count_that_the_footer_gets_wrong_is_damage(read, file, monkeypatch):
    """Rows that the footer promises and the pages lack are not lost in silence."""
    pq.write_table(pa.table({"text": ["a", "b", "c"]}), file)

    def one_short(self, **options):
        yield self.read(columns=["text"]).slice(0, 2).to_batches()[0]

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", one_short)
    assert read(file, "parquet").failure == ("corrupt_parquet", "row group 0")


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1", b"x" * 5_000], ids=["no bytes", "magic", "twice", "junk"])
def test_what_has_no_footer_is_not_parquet(read, file, data):
    """Files of other content are named for what they are not."""
    file.write_bytes(data)
    assert read(file, "parquet").failure == ("not_parquet", "")


_TWO = pa.table({"text": ["the first", "the second"], "id": [1, 2]})


@pytest.mark.parametrize("column", ["text", "id"])
def test_an_encrypted_footer_is_called_that(read, file, column):
    """Not a file that is no Parquet: the writer did nothing wrong."""
    file.write_bytes(encrypted(_TWO, column, plaintext_footer=False))
    assert file.read_bytes()[-4:] == b"PARE"
    assert read(file, "parquet").failure == ("encrypted", "")


def test_an_encrypted_column_costs_the_shard_only_when_it_is_asked_for(read, file):
    """The schema is readable; no page is called damaged."""
    file.write_bytes(encrypted(_TWO, "text", plaintext_footer=True))
    assert file.read_bytes()[-4:] == b"PAR1"
    assert read(file, "parquet").failure == ("encrypted", "row group 0")
    file.write_bytes(encrypted(_TWO, "id", plaintext_footer=True))
    assert [text for _, text, *_ in read(file, "parquet").documents] == ["the first", "the second"]


def test_no_truncation_goes_unseen(read, file):
    """The footer lies at the end, so a file that is cut anywhere is not Parquet any more."""
    pq.write_table(pa.table({"text": ["a", "b"]}), file)
    data = file.read_bytes()
    for stop in range(len(data)):
        file.write_bytes(data[:stop])
        assert read(file, "parquet").failure == ("not_parquet", ""), stop


def test_an_error_of_the_file_system_stays_one(tmp_path):
    """What may pass when it is tried again is no verdict on the file."""
    with pytest.raises(FileNotFoundError):
        parquet.open_file(str(tmp_path / "absent.parquet"))


def test_memory_that_runs_out_is_no_verdict_on_the_file(read, file, monkeypatch):
    """A machine without memory raises, so that the shard is tried alone before it is given up."""
    pq.write_table(pa.table({"text": ["a"]}), file)

    def no_memory(self, **options):
        raise pa.ArrowMemoryError("malloc of size 10 failed")

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", no_memory)
    with pytest.raises(MemoryError):
        read(file, "parquet")


def test_an_index_outside_of_its_dictionary_is_damage():
    """Arrow would follow such an index to memory that is not the dictionary's."""
    from dataaudit.scan.corpus.readers.columns import flat_column

    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), ["a", "b"])
    buffers = codes.buffers()
    wrong = pa.py_buffer(bytes([0, 0, 0, 0, 9, 0, 0, 0]))
    damaged = pa.DictionaryArray.from_buffers(codes.type, 2, [buffers[0], wrong], codes.dictionary)
    with pytest.raises(pa.ArrowInvalid):
        flat_column(pa.record_batch({"text": damaged}), ["text"])


def test_the_reason_of_a_long_type_is_cut(read, file):
    """A type with hundreds of fields does not flood the ledger."""
    pq.write_table(pa.table({"text": [{f"field{number}": 1 for number in range(300)}]}), file)
    failure = read(file, "parquet").failure
    assert failure is not None
    assert len(failure[1]) < 120


def test_a_name_that_is_no_utf8_is_read(tmp_path):
    """Arrow takes no such path; the file is read all the same."""
    import os

    path = os.fsdecode(os.fsencode(tmp_path) + b"/bad-\xff.parquet")
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table({"text": ["a", "b"]}), good)
    good.rename(path)
    with parquet.open_file(path) as file:
        assert file.read().column("text").to_pylist() == ["a", "b"]
