"""The reader of Arrow files and streams: what is written is read, and nothing damaged is believed or crashes."""

import contextlib
import io
import struct
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.corpus.loss import MAX_PLACES
from dataaudit.scan.corpus.readers import plan_parts

MIB = 1 << 20
KINDS = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "large dictionary": pa.dictionary(pa.int32(), pa.large_string()),
}


def write(path, table, *, stream=False, compression=None, rows=100, end=True):
    """Write a table as batches of so many rows."""
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
    opened = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink:
        writer = opened(sink, table.schema, options=options)
        for batch in table.to_batches(max_chunksize=rows):
            writer.write_batch(batch)
        writer.close()
    if stream and not end:
        path.write_bytes(path.read_bytes()[:-8])
    return path


def made(texts, kind="string", **columns):
    """Return a table with these texts."""
    array = pa.array(texts, pa.string())
    array = array.cast(KINDS[kind]) if "dictionary" not in kind else array.dictionary_encode().cast(KINDS[kind])
    return pa.table({"id": range(len(texts)), "text": array, **columns})


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("arrow") / "shard.arrow"


@given(
    texts=st.lists(
        st.none() | st.sampled_from(["", "a", "bb", "a longer text than twelve bytes", "\u4e2d\x00"]), max_size=40
    ),
    kind=st.sampled_from(sorted(KINDS)),
    stream=st.booleans(),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    rows=st.integers(1, 12),
    part_bytes=st.sampled_from([1, 700, 1 << 30]),
    batch_bytes=st.sampled_from([1, 20, 1 << 20]),
)
@settings(max_examples=examples(250), deadline=None)
def test_what_is_written_is_read_for_any_cut(
    read, file, texts, kind, stream, compression, rows, part_bytes, batch_bytes
):
    """Files and streams, every kind of string, compressed or not: the texts by row, nulls as losses."""
    sources = pa.array([text and text[:1] for text in texts], pa.string())
    write(file, made(texts, kind, source=sources), stream=stream, compression=compression, rows=rows)
    reading = read(file, "arrow", source="source", part_bytes=part_bytes, batch_bytes=batch_bytes)
    expected = [(row, text, text[:1]) for row, text in enumerate(texts) if text is not None]
    assert reading.failure is None
    assert reading.documents == expected
    missing = [row for row, text in enumerate(texts) if text is None]
    named = [row for row, _ in reading.bad.get("text_missing", [])]
    assert named == missing if len(missing) <= MAX_PLACES else named[:MAX_PLACES] == missing[:MAX_PLACES]
    assert reading.records == len(texts)


class Sparing(io.FileIO):
    """A file that gives three bytes at a time at most, as a remote one may."""

    def read(self, num_bytes=-1):
        """Return some of the bytes."""
        return super().read(min(3, num_bytes) if num_bytes >= 0 else 3)


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("stream", [False, True])
def test_reads_that_give_less_than_was_asked_for_lose_nothing(read, tmp_path, monkeypatch, stream, compression):
    """A short answer is not taken for the end of the file."""
    texts = [f"text {number}" for number in range(500)]
    path = write(tmp_path / "a.arrow", made(texts, "large dictionary"), stream=stream, compression=compression)
    monkeypatch.setattr("dataaudit.scan.corpus.readers.arrow.open_binary", Sparing)
    assert [text for _, text, _ in read(path, "arrow", part_bytes=1).documents] == texts


@pytest.mark.parametrize("stream", [False, True])
def test_a_nested_text_is_found_by_its_path(read, file, stream):
    """A dotted path leads through structs; a null struct means no text."""
    table = pa.table({"doc": [{"body": "one"}, None, {"body": None}, {"body": "four"}]})
    write(file, table, stream=stream, rows=3)
    reading = read(file, "arrow", text="doc.body")
    assert [text for _, text, _ in reading.documents] == ["one", "four"]
    assert [row for row, _ in reading.bad["text_missing"]] == [1, 2]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (pa.table([["a"], ["b"]], names=["text", "text"]), ("ambiguous_column", "text")),
        (pa.table({"body": ["a"]}), ("text_column_missing", "text")),
        (pa.table({"text": [1]}), ("type_mismatch", "text: int64")),
        (pa.table({"text": [["a"]]}), ("type_mismatch", "text: list")),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_columns_that_do_not_fit_have_their_reason(read, file, table, expected, stream):
    """Two columns of a name, none, or one of another type: the reason and what was found."""
    write(file, table, stream=stream)
    assert read(file, "arrow").failure == expected


def test_files_and_streams_are_told_apart_by_their_bytes(read, tmp_path):
    """Feather is a file, what `datasets` writes is a stream; the suffix says nothing."""
    table = made(["a", "b"])
    pa.feather.write_feather(table, tmp_path / "f", compression="lz4")
    write(tmp_path / "s", table, stream=True)
    for name in "fs":
        assert [text for _, text, _ in read(tmp_path / name, "arrow").documents] == ["a", "b"]


def test_large_files_are_cut_at_record_batches(tmp_path):
    """Parts hold about as many bytes as asked for; no batch is in two, none left out. A stream is one part."""
    path = write(tmp_path / "a", made(["x" * 1000] * 1000))
    parts = plan_parts(str(path), "arrow", "none", path.stat().st_size, 250_000)
    assert [(part.start, part.stop) for part in parts] == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]
    for name, table, stream in (("b", made([]), False), ("c", made(["x" * 1000] * 1000), True)):
        whole = write(tmp_path / name, table, stream=stream)
        assert len(plan_parts(str(whole), "arrow", "none", whole.stat().st_size, 1)) == 1


def test_dictionaries_that_change_in_a_stream_are_right_in_every_part(read, file):
    """A stream may replace a dictionary or add to it; a part gets all that came before its batches."""
    kind = pa.dictionary(pa.int32(), pa.string())
    values = [["a", "b"], ["a", "b", "c"], ["x"], ["y", "z"]]
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, pa.schema([("text", kind)])) as writer:
        for dictionary in values:
            codes = pa.array(range(len(dictionary)), pa.int32())
            writer.write_batch(pa.record_batch([pa.DictionaryArray.from_arrays(codes, dictionary)], names=["text"]))
    for part_bytes in (1, 1 << 30):
        reading = read(file, "arrow", part_bytes=part_bytes)
        assert [text for _, text, _ in reading.documents] == [text for dictionary in values for text in dictionary]


def _feather_v1(path):
    path.write_bytes(b"FEA1" + bytes(60) + b"FEA1")


def _no_end(path):
    write(path, made(["a"] * 300), stream=True, end=False)


def _cut_in_a_batch(path):
    write(path, made(["a" * 100] * 300), stream=True)
    path.write_bytes(path.read_bytes()[:-9_000])


def _two_streams(path):
    write(path, made(["a"] * 300), stream=True)
    path.write_bytes(path.read_bytes() * 2)


def _cut_file(path):
    write(path, made(["a" * 100] * 300))
    path.write_bytes(path.read_bytes()[:-500])


def _text(path):
    path.write_bytes(b'{"text": "a"}\n' * 100)


def _nothing(path):
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (_feather_v1, ("feather_v1", "")),
        (_no_end, ("truncated_stream", "record batch 3")),
        (_cut_in_a_batch, ("truncated_stream", "record batch 2")),
        (_two_streams, ("corrupt_arrow", None)),
        (_cut_file, ("not_arrow", "")),
        (_text, ("not_arrow", "")),
        (_nothing, ("not_arrow", "")),
    ],
)
def test_damage_has_its_reason(read, tmp_path, make, expected):
    """What Arrow itself would read in part, or not at all, is a loss with a name and a place."""
    path = tmp_path / "shard.arrow"
    make(path)
    reason, place = read(path, "arrow").failure
    assert reason == expected[0]
    assert place == expected[1] or expected[1] is None


def _shifted(table, *, at, value, stream):
    """Return the bytes of a table one offset of which leads elsewhere."""
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table)
    data = bytearray(sink.getvalue().to_pybytes())
    offsets = struct.pack("<4i", 0, 5, 10, 15)
    place = data.index(offsets)
    struct.pack_into("<i", data, place + 4 * at, value)
    return bytes(data)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("at", "value"), [(1, 1 << 30), (1, -7), (3, 1 << 30), (0, -1), (2, 1)])
def test_an_offset_that_leads_astray_is_seen_before_a_value_is_touched(read, tmp_path, at, value, stream):
    """Arrow does not check offsets when it reads; a reader that follows one reads other memory, or dies."""
    path = tmp_path / "shard.arrow"
    table = pa.table({"text": ["aaaaa", "bbbbb", "ccccc"]})
    path.write_bytes(_shifted(table, at=at, value=value, stream=stream))
    assert read(path, "arrow").failure == ("corrupt_arrow", "record batch 0")


def test_an_index_outside_of_its_dictionary_is_seen(read, tmp_path):
    """An index is followed only where there is a value."""
    path = tmp_path / "shard.arrow"
    codes = pa.array([0, 1, 77_777, 2], pa.int32())
    array = pa.DictionaryArray.from_arrays(codes, ["a", "b", "c"], safe=False)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("text", array.type)])) as writer:
        writer.write_batch(pa.record_batch([array], names=["text"]))
    assert read(path, "arrow").failure == ("corrupt_arrow", "record batch 0")


@pytest.mark.parametrize("stream", [False, True])
def test_invalid_utf8_costs_one_record(read, tmp_path, stream):
    """Bytes that are no UTF-8 are a bad record, not a bad file."""
    path = tmp_path / "shard.arrow"
    binary = pa.array([b"good", b"\xff\xfe", b"too"], pa.binary())
    write(path, pa.table({"text": binary.cast(pa.string(), safe=False)}), stream=stream)
    reading = read(path, "arrow")
    assert [text for _, text, _ in reading.documents] == ["good", "too"]
    assert reading.bad == {"invalid_utf8": [(1, 2)]}


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_buffer_that_claims_too_much_is_not_believed(read, tmp_path, stream, compression):
    """A compressed buffer says how large it is. Arrow asks for that memory; it has none of it, or does not use it."""
    path = write(tmp_path / "a", made(["x" * 10_000] * 100), stream=stream, compression=compression)
    data = bytearray(path.read_bytes())
    struct.pack_into("<q", data, data.rindex(struct.pack("<q", 1_000_000)), 1 << 42)
    path.write_bytes(bytes(data))
    with contextlib.suppress(MemoryError):
        assert read(path, "arrow").failure == ("corrupt_arrow", "record batch 0")


@pytest.mark.parametrize("number", [1 << 31, 1 << 40, (1 << 62) + 1, -8])
def test_a_message_that_claims_more_than_there_is_has_its_reason(read, tmp_path, number):
    """The length of a stream's body is no reason to allocate it."""
    path = write(tmp_path / "a", made(["x" * 10_000] * 100), stream=True)
    data, body = bytearray(path.read_bytes()), 1_001_208
    struct.pack_into("<q", data, data.index(struct.pack("<q", body)), number)
    path.write_bytes(bytes(data))
    assert read(path, "arrow").failure[0] in {"truncated_stream", "corrupt_arrow"}


@pytest.mark.inputs
def test_a_record_batch_is_in_memory_at_a_time(tmp_path, peak_bytes):
    """Memory depends on the record batch, not on the file, and other columns are not decoded."""
    rows = 500
    letters = np.random.default_rng(0).integers(97, 123, 4_000_000, dtype=np.uint8).tobytes().decode()
    batch = made([letters[start : start + 20_000] for start in range(0, rows * 40, 40)])
    path = tmp_path / "shard.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(20):
            writer.write_table(batch)
    growth, printed = peak_bytes(
        "fields = FieldRule(text='text', source_column=None, source_constant='s', max_record_bytes=1 << 26)\n"
        "request = ReadRequest(path=sys.argv[1], format='arrow', compression='none', part=Part(0, 20), fields=fields,"
        " batch_bytes=4 << 20)\n"
        "print(sum(int(batch.num_bytes().sum()) for batch in read_part(request, LossLog(), PartStats())))",
        str(path),
    )
    assert int(printed) == 20 * rows * 20_000
    assert growth < 90 * MIB


@pytest.mark.inputs
def test_a_dictionary_that_unfolds_to_gigabytes_is_read_in_pieces(tmp_path, peak_bytes):
    """A few long values that repeat take no room in the file; decoded, they must not be in memory all at once."""
    path = tmp_path / "shard.arrow"
    codes = pa.array(np.arange(20_000, dtype=np.int32) % 5)
    texts = pa.DictionaryArray.from_arrays(codes, [letter * 90_000 for letter in "abcde"])
    write(path, pa.table({"text": texts}), rows=20_000)
    growth, printed = peak_bytes("print(read(sys.argv[1], 'arrow', 'none')[0])", str(path))
    assert int(printed) == 20_000 * 90_000
    assert growth < 100 * MIB


FUZZ = """
import sys, random, pathlib
from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.loss import LossLog, ShardUnreadable
from dataaudit.scan.corpus.readers import PartStats, ReadRequest, plan_parts, read_part

folder, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rng = random.Random(seed)
fields = FieldRule(text="text", source_column="source", source_constant="", max_record_bytes=1 << 26)
kept = lost = 0
for name in sorted(folder.glob("*.whole")):
    whole = name.read_bytes()
    for _ in range(120):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 3, 10])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path = folder / "broken"
        path.write_bytes(bytes(data[: rng.choice([len(data)] * 3 + [rng.randrange(len(data))])]))
        try:
            for part in plan_parts(str(path), "arrow", "none", path.stat().st_size, 2_000):
                request = ReadRequest(path=str(path), format="arrow", compression="none", part=part, fields=fields,
                                      batch_bytes=1 << 16)
                for batch in read_part(request, LossLog(), PartStats()):
                    batch.texts.validate(full=True)
            kept += 1
        except (ShardUnreadable, MemoryError) as error:
            lost += 1
print(kept, lost)
"""


@pytest.mark.inputs
@pytest.mark.parametrize("seed", range(2))
def test_random_damage_is_a_loss_or_goes_unfelt_and_never_a_crash(tmp_path, seed):
    """Flipped and missing bytes anywhere, in files and streams of every kind of string."""
    for number, kind in enumerate(sorted(KINDS)):
        for stream in (False, True):
            table = made(["one", None, "three and some more letters", "\u00e9" * 40] * 5, kind, source=["a", "b"] * 10)
            compression = (None, "lz4", "zstd")[number % 3]
            write(tmp_path / f"{kind}-{stream}.whole", table, stream=stream, rows=7, compression=compression)
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(tmp_path), str(seed)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    kept, lost = map(int, done.stdout.split())
    assert kept + lost == 1_200
    assert lost > 200
