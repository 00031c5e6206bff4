"""Parts: large compressed files whatever the cut, chosen records of a part, and the columns that a reading notes."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import random
from unittest import mock

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.loss import LossLog
from dataaudit.scan.corpus.readers import PartStats, ReadRequest, part, plan_parts, read_part, stream
from dataaudit.scan.corpus.readers import stream as lines
from dataaudit.scan.corpus.readers.part import END, column_digest
from dataaudit.scan.corpus.readers.stream import DECODING, EXTRA_DECODING, WHOLE, ByteStream, load_zstd, plan_compressed
from dataaudit.scan.corpus.shards import format_of

zstd = load_zstd()
COMPRESS = {"gzip": gzip.compress, "zstd": zstd.compress, "bzip2": bz2.compress, "xz": lzma.compress}
FREE = dict.fromkeys(DECODING, 0.0)


def noise(num_lines, *, seed=1):
    """Return lines that hardly compress."""
    rng = random.Random(seed)
    return b"".join(b'{"text":"%d %x"}\n' % (number, rng.getrandbits(4_000)) for number in range(num_lines))


def plan(path, compression, part_bytes):
    """Plan parts; return them and the stored bytes that were handed out meanwhile."""
    stored = []
    parts = plan_compressed(str(path), compression, path.stat().st_size, part_bytes, stored.append)
    return parts, b"".join(stored)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("cut") / "shard"


@given(
    rows=st.lists(st.text(max_size=12), max_size=40),
    ends=st.sampled_from(["\n", "\r\n", "\n\n"]),
    members=st.lists(st.integers(0, 400), max_size=4),
    compression=st.sampled_from(sorted(COMPRESS)),
    part_bytes=st.integers(1, 300),
    block_bytes=st.sampled_from([1, 7, 1 << 20]),
)
@settings(max_examples=examples(250), deadline=None)
def test_any_cut_of_any_members_gives_the_same_documents(
    read, file, rows, ends, members, compression, part_bytes, block_bytes
):
    """Parts of decoded bytes, whatever members they meet, give what the whole file gives; rows number on."""
    data = b"".join(b'{"text": "%s"}%s' % (row.encode().hex().encode(), ends.encode()) for row in rows)
    bounds = [0, *sorted(min(member, len(data)) for member in members), len(data)]
    pieces = [data[start:stop] for start, stop in itertools.pairwise(bounds)]
    file.write_bytes(b"".join(map(COMPRESS[compression], pieces)))
    with mock.patch.object(lines, "DECODING", FREE), mock.patch.object(lines, "_BLOCK_BYTES", block_bytes):
        parts, stored = plan(file, compression, part_bytes)
        found = read(file, compression=compression, parts=parts)
    assert stored == file.read_bytes()
    assert found.documents == [(row, text.encode().hex(), "constant") for row, text in enumerate(rows)]
    assert [part.stop for part in parts[:-1]] == [part.start for part in parts[1:]]
    assert (parts[0].start, parts[-1].stop) == (0, END)


@pytest.mark.inputs
@pytest.mark.parametrize(("compression", "expected"), [("zstd", 12), ("gzip", 6), ("xz", 2), ("bzip2", 1)])
def test_a_file_of_one_member_has_as_many_parts_as_decoding_again_may_cost(read, file, compression, expected):
    """Each part decodes what stands before it; all together that stays below a quarter of a scan."""
    data = noise(3_000)
    file.write_bytes(COMPRESS[compression](data))
    parts, _ = plan(file, compression, 1_000)
    assert len(parts) == expected
    assert all(part.restart == (0, 0) for part in parts)
    assert sum(part.start for part in parts) * DECODING[compression] <= EXTRA_DECODING * len(data)
    assert [text for _, text, _ in read(file, compression=compression, parts=parts).documents] == [
        line[9:-2].decode() for line in data.splitlines()
    ]


@pytest.mark.parametrize("compression", sorted(COMPRESS))
def test_members_are_where_parts_begin_to_decode(read, file, compression, count_bytes, monkeypatch):
    """A file of many members is cut as often as wanted, and reading all parts decodes little twice."""
    data = [noise(40, seed=seed) for seed in range(50)]
    file.write_bytes(b"".join(map(COMPRESS[compression], data)))
    part_bytes = file.stat().st_size // 10
    parts, _ = plan(file, compression, part_bytes)
    assert len(parts) in ((10, 11) if compression != "bzip2" else range(2, 12))
    decoded = count_bytes()
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 1_000)
    assert len(read(file, compression=compression, parts=parts).documents) == 2_000
    assert sum(decoded) < 1.5 * sum(map(len, data))


@pytest.mark.parametrize("compression", sorted(COMPRESS))
def test_a_damaged_file_is_one_part_and_breaks_off_where_it_would_uncut(read, file, compression):
    """The place of the damage is counted from the start of the file, not of a part."""
    whole = COMPRESS[compression](noise(500))
    file.write_bytes(whole + whole[: len(whole) // 2])
    parts, stored = plan(file, compression, 1_000)
    assert parts == [WHOLE]
    assert stored == file.read_bytes()
    assert read(file, compression=compression, parts=parts).failure[0] == "truncated_stream"


@pytest.mark.inputs
@pytest.mark.parametrize("compression", ["bzip2", "xz"])
def test_a_slow_file_of_one_member_is_given_up_early(file, compression, count_bytes, monkeypatch):
    """Where decoding costs as much as scanning, no pass is made to find out that nothing can be gained."""
    monkeypatch.setattr(lines, "_PROBE_BYTES", 1 << 20)
    file.write_bytes(COMPRESS[compression](noise(5_000)))
    decoded = count_bytes()
    parts, stored = plan(file, compression, 1_000)
    assert parts == [WHOLE]
    assert stored == file.read_bytes()
    assert sum(decoded) < 3 << 20


def test_what_is_remembered_of_members_is_bounded(file, monkeypatch):
    """Of very many members every second, fourth, ... is kept, the first always."""
    monkeypatch.setattr(stream, "_MAX_RESTARTS", 10)
    member = zstd.compress(b"{}\n")
    file.write_bytes(member * 100)
    with ByteStream(str(file), "zstd") as opened:
        while opened.read(1 << 20):
            pass
        assert 5 <= len(opened.restarts) <= 10
        assert opened.restarts[0] == (0, 0)
        assert all(stored * 3 == decoded * len(member) for stored, decoded in opened.restarts)


FIELDS = FieldRule(text="text", source_column=None, source_constant="all", max_record_bytes=1 << 20)


def write(path):
    """Write 60 records, one of them bad where the format allows it; return the path."""
    rows = [{"text": f"document {number}"} for number in range(60)]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, pa.schema([("text", pa.string())])) as writer:
            writer.write_table(pa.Table.from_pylist(rows), max_chunksize=7)
    elif path.suffix == ".txt":
        path.write_text("".join(f"document {number}\n" for number in range(60)))
    else:
        lines = [orjson.dumps(row) for row in rows]
        lines[5] = b"{broken"
        path.write_bytes(b"\n\n".join(lines) + b"\n")
    return path


def read(path, only):
    """Return {row: text} over all parts, asking for some rows of the first part only."""
    format_, compression = format_of(str(path))
    part = plan_parts(str(path), format_, compression, path.stat().st_size, 1 << 20, "line")[0]
    fields = FIELDS if path.suffix != ".txt" else FieldRule(**{**_values(FIELDS), "text_document": "line"})
    request = ReadRequest(
        path=str(path), format=format_, compression=compression, part=part, fields=fields, batch_bytes=64, only=only
    )
    batches = list(read_part(request, LossLog(), PartStats()))
    return {
        row: text for batch in batches for row, text in zip(batch.rows.tolist(), batch.texts.to_pylist(), strict=True)
    }


def _values(rule):
    return {name: getattr(rule, name) for name in rule.__dataclass_fields__}


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.arrow", "a.txt"])
@pytest.mark.parametrize("only", [{0}, {59}, {4, 6}, {13, 14, 27}, {3, 40, 58}, set(range(60))])
def test_wanted_records_are_there_as_among_all(tmp_path, name, only):
    """Rows keep their numbers, also after a bad record and blank lines."""
    path = write(tmp_path / name)
    every = read(path, None)
    some = read(path, np.array(sorted(only)))
    wanted = {row: text for row, text in every.items() if row in only}
    assert {row: some[row] for row in wanted} == wanted
    assert some.items() <= every.items()


def test_lines_that_nobody_wants_are_not_parsed(tmp_path):
    """Nothing but what was asked for comes out of JSON lines, and what is after the last is not read."""
    path = write(tmp_path / "a.jsonl")
    assert read(path, np.array([7, 9])) == {7: "document 7", 9: "document 9"}
    assert read(path, np.array([], dtype=np.int64)) == {}


@pytest.mark.parametrize("wanted", [[0], [8], [3, 4, 5], [0, 7, 13, 59]])
def test_row_groups_that_nobody_wants_are_not_read(tmp_path, wanted):
    """A group of seven rows comes as a whole, the others not at all, but counted."""
    path = write(tmp_path / "a.parquet")
    rows = {row for number in wanted for row in range(number // 7 * 7, min(number // 7 * 7 + 7, 60))}
    assert read(path, np.array(wanted)) == {row: f"document {row}" for row in rows}


layouts = st.lists(st.lists(st.text(max_size=3), max_size=6).map(tuple), max_size=30)


@given(layouts=layouts, cuts=st.lists(st.integers(0, 30), max_size=3), limit=st.integers(1, 8))
@settings(max_examples=examples(200), deadline=None)
def test_columns_of_parts_join_to_those_of_the_whole(layouts, cuts, limit):
    """The smallest digests of all parts together are those of the whole, for any cut and any limit."""
    bounds = [0, *sorted(cuts), len(layouts)]
    saved = part.MAX_COLUMNS
    part.MAX_COLUMNS = limit
    try:
        joined: set[str] = set()
        for start, stop in itertools.pairwise(bounds):
            stats = PartStats()
            for names in layouts[start:stop]:
                stats.see_layout(names)
            joined |= stats.columns
    finally:
        part.MAX_COLUMNS = saved
    expected = sorted({column_digest(name) for names in layouts for name in names})[:limit]
    assert sorted(joined)[:limit] == expected


def test_what_is_remembered_of_layouts_is_bounded():
    """Records that all have other keys cost time, not memory."""
    stats = PartStats()
    for number in range(2_000):
        stats.see_layout((f"{number:060000d}",))
    assert sum(len(name) for names in stats._layouts for name in names) <= 1 << 22
    assert len(stats.columns) == 2_000


def test_no_name_is_kept():
    """A column's name may be document text, so only its digest is kept."""
    stats = PartStats()
    stats.see_layout(("a secret",))
    assert stats.columns == {column_digest("a secret")}
    assert len(column_digest("a secret")) == 16
