"""The reader of plain text against a slow twin: the whole file at once, by regular expressions."""

import gzip
import re
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.corpus.readers import plan_parts, stream
from dataaudit.scan.corpus.readers.stream import WHOLE, plan_compressed

BOM = b"\xef\xbb\xbf"
FREE = dict.fromkeys(stream.DECODING, 0.0)
MIB = 1 << 20


def twin_pieces(data, unit):
    """Return the documents of a file, as bytes."""
    data = data.removeprefix(BOM)
    if unit == "file":
        return [data] if data else []
    if unit == "line":
        found = [line.removesuffix(b"\r") for line in data.split(b"\n")]
        return [line for line in found if line.strip(b" \t\r")]
    marked = b"\n" + data + b"\n"
    marked = re.sub(rb"(?<=\n)[ \t\r]+(?=\n)", b"", marked)
    found = [piece.strip(b"\n").removesuffix(b"\r") for piece in re.split(rb"\n\n+", marked)]
    return [piece for piece in found if piece]


def twin_read(data, unit, limit):
    """Return (documents, bad records by reason)."""
    documents, bad = [], {}
    for row, piece in enumerate(twin_pieces(data, unit)):
        try:
            text = piece.decode()
        except UnicodeDecodeError:
            text = None
        if len(piece) > limit:
            bad.setdefault("oversize_record", []).append(row)
        elif text is None:
            bad.setdefault("invalid_utf8", []).append(row)
        else:
            documents.append((row, text, "constant"))
    return documents, bad


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("text") / "a.txt"


pieces = st.sampled_from(
    [b"a", b"bc ", b" d", b"\n", b"\n", b"\r\n", b"\n\n", b" \t", b"\xff", b"\xc3\xa9", b"\x00", b"eeeee"]
)


@given(
    mark=st.sampled_from([b"", b"", BOM, BOM[:2]]),
    parts=st.lists(pieces, max_size=40),
    unit=st.sampled_from(["file", "line", "paragraph"]),
    part_bytes=st.integers(1, 60),
    block_bytes=st.sampled_from([1, 3, 1 << 20]),
    packed=st.booleans(),
)
@example(mark=b"", parts=[b"a", b"\n\n", b"b"], unit="paragraph", part_bytes=2, block_bytes=1, packed=False)
@example(mark=BOM, parts=[b"\n", b"a"], unit="paragraph", part_bytes=3, block_bytes=1, packed=True)
@settings(max_examples=examples(500), deadline=None)
def test_any_cut_gives_the_documents_of_the_slow_twin(read, file, mark, parts, unit, part_bytes, block_bytes, packed):
    """Whatever a document is and however the file is cut, plain or compressed, each document is read once."""
    data = mark + b"".join(parts)
    file.write_bytes(gzip.compress(data) if packed else data)
    compression = "gzip" if packed else "none"
    with mock.patch.object(stream, "_BLOCK_BYTES", block_bytes), mock.patch.object(stream, "DECODING", FREE):
        reading = read(file, "text", compression, text_document=unit, part_bytes=part_bytes)
    documents, bad = twin_read(data, unit, 1 << 20)
    assert reading.failure is None
    assert reading.documents == documents
    assert {reason: [row for row, _ in places] for reason, places in reading.bad.items()} == bad


@pytest.mark.parametrize("part_bytes", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(
    ("unit", "expected", "bad"),
    [("file", [], [(0, 38)]), ("line", ["short", "also", "end"], [(1, 11)]), ("paragraph", ["also", "end"], [(0, 17)])],
)
def test_a_document_beyond_the_limit_is_counted_with_its_length(read, file, part_bytes, unit, expected, bad):
    """Of a file, a line or a paragraph that is too long the length is known, and nothing is kept."""
    file.write_bytes(b"short\ntoo long by\n\n\nalso\n \t\nend\n" + b" " * 6)
    reading = read(file, "text", text_document=unit, max_record_bytes=10, part_bytes=part_bytes)
    assert [text for _, text, _ in reading.documents] == expected
    assert reading.bad == {"oversize_record": bad}


def test_a_large_file_is_cut_unless_it_is_one_document(tmp_path):
    """By line and paragraph plain text is cut like JSON lines, and a compressed one once it is decoded."""
    for unit in ("line", "paragraph"):
        assert len(plan_parts("unused", "text", "none", 100, 30, unit)) == 4
    assert plan_parts("unused", "text", "none", 100, 30, "file") == [WHOLE]
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(b"a\n" * 1000) + gzip.compress(b"b\n" * 1000))
    assert len(plan_compressed(str(packed), "gzip", packed.stat().st_size, 20, len)) > 1


def test_text_has_no_column_for_the_source(read, file):
    """A source that should come from a column makes the shard unreadable with its reason."""
    file.write_bytes(b"a")
    assert read(file, "text", source="source").failure == ("source_column_missing", "source")


@pytest.mark.inputs
@pytest.mark.parametrize("unit", ["file", "line", "paragraph"])
def test_a_giant_text_is_counted_in_a_few_megabytes(tmp_path, peak_bytes, unit):
    """Of 200 MB without an end of line only the length is kept."""
    path = tmp_path / "a.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as target:
        for _ in range(25):
            target.write(b"0" * (8 * MIB))
    growth, printed = peak_bytes(
        f"total, losses = read(sys.argv[1], 'text', 'gzip', max_record_bytes=1 << 20, text_document='{unit}')\n"
        "print(total, dict(losses.num_bytes))",
        str(path),
    )
    assert printed == f"0 {{<Reason.OVERSIZE: 'oversize_record'>: {200 * MIB}}}"
    assert growth < 40 * MIB
