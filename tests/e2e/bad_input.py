"""Broken and hostile files, one of every kind: how each is made and what a build has to say of it."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from corpus import zstd
from encrypted import encrypted

CANARY = "xyzzy-canary-5309"
GOOD = 1_200
TEXTS = [f"{CANARY} document number {number} <script>\x1b[31m" for number in range(GOOD)]
LINES = [json.dumps({"text": text, "source": "s"}).encode() for text in TEXTS]
JSONL = b"\n".join(LINES) + b"\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One broken file."""

    title: str
    """The input, as the first column of ``docs/reference/losses.md`` says it."""
    path: str
    """Where it lies below ``data``; the folder decides how its split is read."""
    make: Callable[[Path], object]
    code: str = ""
    """Reason code, empty when there is nothing to say."""
    status: str = "quarantined"
    place: str | None = None
    """Place in the ledger, when it is one that is worth a test."""
    documents: int = 0
    """Documents that are read nevertheless."""

    @property
    def exit_code(self) -> int:
        """Exit code of a build with this file alone among good ones."""
        return 3 if self.status in ("quarantined", "skipped") else 0


def raw(made: bytes | Callable[[Path], None]) -> Callable[[Path], object]:
    """Return what writes bytes; what writes already is itself."""
    return (lambda path: path.write_bytes(made)) if isinstance(made, bytes) else made


def line(data: bytes) -> Callable[[Path], None]:
    """Write the good lines and one more in their middle."""
    return raw(b"\n".join([*LINES[:7], data, *LINES[7:]]))


def one_bad(title: str, path: str, code: str, data: bytes) -> Case:
    """A line that costs one record."""
    return Case(title=title, path=path, make=line(data), code=code, status="partial", place="record 7", documents=GOOD)


def lost(title: str, path: str, code: str, made: bytes | Callable[[Path], None], **more: str) -> Case:
    """A file that costs all of its documents, given by its bytes or by what makes it."""
    return Case(title=title, path=path, make=raw(made), code=code, **more)


def whole(title: str, path: str, made: bytes | Callable[[Path], None], *, documents: int = GOOD) -> Case:
    """A file that is read without a loss."""
    return Case(title=title, path=path, make=raw(made), status="ok", documents=documents)


def table(**columns: object) -> pa.Table:
    """Return a table of texts and other columns."""
    return pa.table({"text": TEXTS, **columns})


def arrow(made: pa.Table, *, stream: bool = False, compression: str | None = None) -> bytes:
    """Return an Arrow file or stream with batches of 300 rows."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, made.schema, options=options) as writer:
        writer.write_table(made, max_chunksize=300)
    return sink.getvalue().to_pybytes()


def parquet(made: pa.Table) -> bytes:
    """Return a Parquet file with row groups of 300 rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(made, sink, row_group_size=300, write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def flipped(data: bytes, place: int) -> bytes:
    """Return bytes, one of which is another."""
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def astray(data: bytes) -> bytes:
    """Return an Arrow file in which an offset leads out of its buffer."""
    sizes = [len(text) for text in TEXTS[:3]]
    first = struct.pack("<3i", 0, sizes[0], sizes[0] + sizes[1])
    place = data.index(first)
    return data[: place + 4] + struct.pack("<i", 1 << 30) + data[place + 8 :]


def claiming(data: bytes) -> bytes:
    """Return an Arrow file whose compressed texts claim four terabytes."""
    total = struct.pack("<q", sum(len(text) for text in TEXTS[:300]))
    place = data.rindex(total)
    return data[:place] + struct.pack("<q", 1 << 42) + data[place + 8 :]


def giant(path: Path) -> None:
    """Write a document of a gigabyte among good ones."""
    with zstd.open(path, "wb") as stream:
        stream.write(b"\n".join(LINES[:7]) + b'\n{"text": "')
        for _ in range(100):
            stream.write(b"a" * 10_000_000)
        stream.write(b'"}\n' + b"\n".join(LINES[7:]))


def zstd_bomb(path: Path) -> None:
    """Write 2 GB of zeros as 60 kB."""
    with zstd.open(path, "wb") as stream:
        for _ in range(200):
            stream.write(bytes(10_000_000))


def long_window(path: Path) -> None:
    """Write a frame whose decoder needs 256 MiB."""
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    path.write_bytes(compressor.compress(JSONL, mode=compressor.FLUSH_BLOCK) + compressor.flush())


def with_dictionary(path: Path) -> None:
    """Write a frame that names a dictionary, which is another file."""
    dictionary = zstd.train_dict([b"%d: a line of text, %d" % (number, number) for number in range(2_000)], 4096)
    path.write_bytes(zstd.compress(JSONL, zstd_dict=dictionary))


def large_dictionary(path: Path) -> None:
    """Write an xz stream whose decoder needs 256 MiB."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 28}]
    path.write_bytes(lzma.compress(JSONL, format=lzma.FORMAT_XZ, filters=filters))


class Hostile:
    """What a pickle does when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path.parent.parent.parent / "the-pickle-ran"),)


def hostile_pickle(path: Path) -> None:
    """Write a pickle that makes a folder when it is opened."""
    path.write_bytes(pickle.dumps(Hostile(path)))


def outside(path: Path) -> None:
    """Write a link that leads out of the corpus."""
    target = path.parent.parent.parent.parent / "outside.jsonl"
    target.write_bytes(JSONL)
    path.symlink_to(target)


HOSTILE_NAME = "z\n::error::\x1b[31m\u202e##[error].csv"
HOSTILE_SOURCE = "\x1b]0;owned\x07\n::error::source\u202e"

MILD = [
    one_bad(
        "a line that is not UTF-8", "plain/utf8.jsonl", "invalid_utf8", b'{"text": "\xff' + CANARY.encode() + b'"}'
    ),
    one_bad("a lone surrogate in JSON", "plain/surrogate.jsonl", "invalid_json", b'{"text": "\\ud800"}'),
    whole(
        "`NaN` or an infinity in JSON, outside the text", "plain/nan.jsonl",
        line(b'{"text": "a", "score": NaN, "least": -Infinity}'), documents=GOOD + 1,
    ),
    one_bad("`NaN` where the text should be", "plain/nan-text.jsonl", "text_missing", b'{"text": NaN}'),
    one_bad("a line that was cut", "plain/cut.jsonl", "invalid_json", b'{"text": "' + CANARY.encode()),
    one_bad("a line that is no object", "plain/list.jsonl", "not_an_object", b'["' + CANARY.encode() + b'"]'),
    one_bad("a record without its text", "plain/null.jsonl", "text_missing", b'{"text": null}'),
    one_bad("a number where the text should be", "plain/number.jsonl", "type_mismatch", b'{"text": 12}'),
    one_bad("a key that is named twice", "plain/twice.jsonl", "duplicate_key", b'{"text": "a", "text": "b"}'),
    one_bad(
        "a number where the source should be", "column/source.jsonl", "source_type_mismatch",
        b'{"text": "a", "source": 3}',
    ),
    whole("NUL bytes in a text", "plain/nul.jsonl", line(b'{"text": "a\\u0000b"}'), documents=GOOD + 1),
    whole("blank lines", "plain/blank.jsonl", JSONL.replace(b"\n", b"\n \t\r\n\n")),
    whole("a byte order mark", "plain/mark.jsonl", b"\xef\xbb\xbf" + JSONL),
    whole(
        "several members or frames in one file", "plain/members.jsonl.gz",
        gzip.compress(JSONL[:999]) + gzip.compress(JSONL[999:]),
    ),
    whole("an empty file of lines", "plain/empty.jsonl", b"", documents=0),
    whole("an empty text file", "plain/empty.txt", b"", documents=0),
    whole("a table without rows", "plain/empty.parquet", parquet(table().slice(0, 0)), documents=0),
    whole("an Arrow file without rows", "plain/empty.arrow", arrow(table().slice(0, 0)), documents=0),
    whole("a schema with other columns, the text among them", "plain/drift.parquet", parquet(table(extra=range(GOOD)))),
    whole(
        "a nested text, by its dotted path", "nested/nested.parquet",
        parquet(pa.table({"body": [{"text": text} for text in TEXTS]})),
    ),
    whole(
        "a nested text in Arrow, by its dotted path", "nested/nested.arrow",
        arrow(pa.table({"body": [{"text": text} for text in TEXTS]})),
    ),
    whole(
        "control characters and commands of CI runners in a source", "column/hostile.jsonl",
        json.dumps({"text": "a", "source": HOSTILE_SOURCE}).encode(), documents=1,
    ),
]  # fmt: skip

SEVERE = [
    lost(
        "a document of 1 GB", "plain/giant.jsonl.zst", "too_many_bad_records", giant,
        place="1 of 1201 records, 1000000012 of 1000061302 bytes, limit 0.001 of either",
    ),
    lost("a Parquet file that was cut", "plain/cut.parquet", "not_parquet", parquet(table())[:-500]),
    lost(
        "a Parquet file with a damaged page", "plain/flipped.parquet", "corrupt_parquet",
        flipped(parquet(table()), 400), place="row group 0",
    ),
    lost(
        "a Parquet file whose footer is encrypted", "plain/encrypted.parquet", "encrypted",
        encrypted(table(), "text", plaintext_footer=False),
    ),
    lost(
        "a Parquet file whose texts are encrypted", "plain/texts.parquet", "encrypted",
        encrypted(table(), "text", plaintext_footer=True), place="row group 0",
    ),
    lost("another file named `.parquet`", "plain/page.parquet", "not_parquet", b"<html>404 Not Found</html>"),
    lost(
        "an Arrow file with a wrong offset", "plain/astray.arrow", "corrupt_arrow", astray(arrow(table())),
        place="record batch 0",
    ),
    lost(
        "an Arrow stream with a wrong offset", "plain/astray.arrows", "corrupt_arrow",
        astray(arrow(table(), stream=True)), place="record batch 0",
    ),
    lost("an Arrow file that was cut", "plain/cut.feather", "not_arrow", arrow(table())[:-500]),
    lost(
        "an Arrow stream without its end marker", "plain/cut.arrow", "truncated_stream",
        arrow(table(), stream=True)[:-8], place="record batch 4",
    ),
    lost("two Arrow streams in one file", "plain/two.arrows", "corrupt_arrow", arrow(table(), stream=True) * 2),
    lost("Feather of version 1", "plain/old.feather", "feather_v1", b"FEA1" + bytes(80) + b"FEA1"),
    lost("a zstd file that was cut", "plain/cut.jsonl.zst", "truncated_stream", zstd.compress(JSONL)[:-9]),
    lost("a gzip file that was cut", "plain/cut.jsonl.gz", "truncated_stream", gzip.compress(JSONL)[:-9]),
    lost("a bzip2 file that was cut", "plain/cut.jsonl.bz2", "truncated_stream", bz2.compress(JSONL)[:-9]),
    lost("an xz file that was cut", "plain/cut.jsonl.xz", "truncated_stream", lzma.compress(JSONL)[:-9]),
    lost("junk after a zstd frame", "plain/junk.jsonl.zst", "corrupt_stream", zstd.compress(JSONL) + b"junkjunk"),
    lost("junk after a gzip member", "plain/junk.jsonl.gz", "corrupt_stream", gzip.compress(JSONL) + b"junk"),
    lost("junk after a bzip2 stream", "plain/junk.jsonl.bz2", "corrupt_stream", bz2.compress(JSONL) + b"junk"),
    lost("junk after an xz stream", "plain/junk.jsonl.xz", "corrupt_stream", lzma.compress(JSONL) + b"junk" * 4),
    lost(
        "a pointer of Git LFS instead of data", "plain/pointer.jsonl.gz", "corrupt_stream",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
    ),
    lost(
        "too many lines that are not UTF-8", "plain/latin.jsonl", "too_many_bad_records",
        b'{"text": "\xe9"}\n' * 9 + JSONL,
    ),
    lost("plain text in UTF-16", "plain/wide.txt", "too_many_bad_records", CANARY.encode("utf-16")),
    lost(
        "numbers where the texts should be", "plain/numbers.parquet", "type_mismatch",
        parquet(pa.table({"text": range(9)})), place="text: int64",
    ),
    lost(
        "a shard without the column of the text", "plain/drift.parquet", "text_column_missing",
        parquet(pa.table({"body": TEXTS})), place="text",
    ),
    lost(
        "an Arrow shard without the column of the text", "plain/drift.arrow", "text_column_missing",
        arrow(pa.table({"body": TEXTS})), place="text",
    ),
    lost(
        "a struct where the text should be", "plain/struct.parquet", "type_mismatch",
        parquet(pa.table({"text": [{"a": text} for text in TEXTS]})),
    ),
    lost(
        "two columns with the name of the text", "plain/twice.parquet", "ambiguous_column",
        parquet(pa.table([TEXTS, TEXTS], names=["text", "text"])), place="text",
    ),
    lost(
        "two columns of that name in Arrow", "plain/twice.arrow", "ambiguous_column",
        arrow(pa.table([TEXTS, TEXTS], names=["text", "text"])), place="text",
    ),
    lost(
        "plain text where a column gives the source", "column/story.txt", "source_column_missing", b"once",
        place="source",
    ),
    lost(
        "an address that the pattern of the source does not match", "pattern/99.jsonl", "source_pattern_mismatch", JSONL
    ),
    lost("a zstd bomb", "plain/z-bomb.jsonl.zst", "expansion_too_large", zstd_bomb),
    lost("a bzip2 bomb", "plain/z-bomb.jsonl.bz2", "expansion_too_large", bz2.compress(bytes(100_000_000)) * 11),
    lost(
        "a gzip bomb, one endless line", "plain/z-bomb.jsonl.gz", "too_many_bad_records",
        gzip.compress(bytes(200_000_000)),
    ),
    lost(
        "an xz bomb, one endless line", "plain/z-bomb.jsonl.xz", "too_many_bad_records",
        lzma.compress(bytes(200_000_000), preset=0),
    ),
    lost(
        "an Arrow buffer that claims terabytes", "plain/claim.arrow", "corrupt_arrow",
        claiming(arrow(pa.table({"text": TEXTS[:300]}), compression="zstd")), place="record batch 0",
    ),
    lost("a zstd frame that needs 256 MiB", "plain/window.jsonl.zst", "window_too_large", long_window),
    lost("a zstd frame that needs its dictionary", "plain/dictionary.jsonl.zst", "dictionary_needed", with_dictionary),
    lost("an xz stream that needs 256 MiB", "plain/window.jsonl.xz", "window_too_large", large_dictionary),
    lost("a link that leads out of the corpus", "plain/link.jsonl", "link_outside_root", outside, status="skipped"),
    lost("a link to nothing", "plain/gone.jsonl", "not_found", lambda path: path.symlink_to(path.parent / "nothing")),
    lost("a link to itself", "plain/loop.jsonl", "not_found", lambda path: path.symlink_to(path)),
    lost("a pipe", "plain/pipe.jsonl", "not_a_file", os.mkfifo, status="skipped"),
    lost("a pickle", "plain/rows.pkl", "unknown_format", hostile_pickle, status="skipped"),
    lost("a file of torch", "plain/rows.pt", "unknown_format", hostile_pickle, status="skipped"),
    lost("a token file of odd length", "plain/tokens.bin", "unknown_format", b"\0" * 7, status="skipped"),
    lost(
        "a name that steers terminals and CI runners", f"plain/{HOSTILE_NAME}", "unknown_format", b"text\n",
        status="skipped",
    ),
]  # fmt: skip
