"""Broken and hostile files, one of every kind: how each is made and what a build has to say of it."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import pickle
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from encrypted import encrypted

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

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
    make: Callable[[Path], None]
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


def raw(data: bytes) -> Callable[[Path], None]:
    """Write bytes."""
    return lambda path: _write(path, data)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def line(data: bytes) -> Callable[[Path], None]:
    """Write the good lines and one more in their middle."""
    return raw(b"\n".join([*LINES[:7], data, *LINES[7:]]))


def one_bad(title: str, path: str, code: str, data: bytes) -> Case:
    """A line that costs one record."""
    return Case(title=title, path=path, make=line(data), code=code, status="partial", place="record 7", documents=GOOD)


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
_ALL = {"status": "ok", "documents": GOOD}

MILD = [
    one_bad(
        "a line that is not UTF-8", "plain/utf8.jsonl", "invalid_utf8", b'{"text": "\xff' + CANARY.encode() + b'"}'
    ),
    one_bad("a lone surrogate in JSON", "plain/surrogate.jsonl", "invalid_json", b'{"text": "\\ud800"}'),
    Case(
        title="`NaN` or an infinity in JSON, outside the text",
        path="plain/nan.jsonl",
        make=line(b'{"text": "a", "score": NaN, "least": -Infinity}'),
        status="ok",
        documents=GOOD + 1,
    ),
    one_bad("`NaN` where the text should be", "plain/nan-text.jsonl", "text_missing", b'{"text": NaN}'),
    one_bad("a line that was cut", "plain/cut.jsonl", "invalid_json", b'{"text": "' + CANARY.encode()),
    one_bad("a line that is no object", "plain/list.jsonl", "not_an_object", b'["' + CANARY.encode() + b'"]'),
    one_bad("a record without its text", "plain/null.jsonl", "text_missing", b'{"text": null}'),
    one_bad("a number where the text should be", "plain/number.jsonl", "type_mismatch", b'{"text": 12}'),
    one_bad("a key that is named twice", "plain/twice.jsonl", "duplicate_key", b'{"text": "a", "text": "b"}'),
    one_bad(
        "a number where the source should be",
        "column/source.jsonl",
        "source_type_mismatch",
        b'{"text": "a", "source": 3}',
    ),
    Case(
        title="NUL bytes in a text",
        path="plain/nul.jsonl",
        make=line(b'{"text": "a\\u0000b"}'),
        status="ok",
        documents=GOOD + 1,
    ),
    Case(title="blank lines", path="plain/blank.jsonl", make=raw(JSONL.replace(b"\n", b"\n \t\r\n\n")), **_ALL),
    Case(title="a byte order mark", path="plain/mark.jsonl", make=raw(b"\xef\xbb\xbf" + JSONL), **_ALL),
    Case(
        title="several members or frames in one file",
        path="plain/members.jsonl.gz",
        make=raw(gzip.compress(JSONL[:999]) + gzip.compress(JSONL[999:])),
        **_ALL,
    ),
    Case(title="an empty file of lines", path="plain/empty.jsonl", make=raw(b""), status="ok"),
    Case(title="an empty text file", path="plain/empty.txt", make=raw(b""), status="ok"),
    Case(title="a table without rows", path="plain/empty.parquet", make=raw(parquet(table().slice(0, 0))), status="ok"),
    Case(
        title="an Arrow file without rows", path="plain/empty.arrow", make=raw(arrow(table().slice(0, 0))), status="ok"
    ),
    Case(
        title="a schema with other columns, the text among them",
        path="plain/drift.parquet",
        make=raw(parquet(table(extra=range(GOOD)))),
        **_ALL,
    ),
    Case(
        title="a nested text, by its dotted path",
        path="nested/nested.parquet",
        make=raw(parquet(pa.table({"body": [{"text": text} for text in TEXTS]}))),
        **_ALL,
    ),
    Case(
        title="a nested text in Arrow, by its dotted path",
        path="nested/nested.arrow",
        make=raw(arrow(pa.table({"body": [{"text": text} for text in TEXTS]}))),
        **_ALL,
    ),
    Case(
        title="control characters and commands of CI runners in a source",
        path="column/hostile.jsonl",
        make=raw(json.dumps({"text": "a", "source": HOSTILE_SOURCE}).encode()),
        status="ok",
        documents=1,
    ),
]

SEVERE = [
    Case(
        title="a document of 1 GB",
        path="plain/giant.jsonl.zst",
        make=giant,
        code="too_many_bad_records",
        place="1 of 1201 records, 1000000012 of 1000061302 bytes, limit 0.001 of either",
    ),
    Case(
        title="a Parquet file that was cut",
        path="plain/cut.parquet",
        make=raw(parquet(table())[:-500]),
        code="not_parquet",
    ),
    Case(
        title="a Parquet file with a damaged page",
        path="plain/flipped.parquet",
        make=raw(flipped(parquet(table()), 400)),
        code="corrupt_parquet",
        place="row group 0",
    ),
    Case(
        title="a Parquet file whose footer is encrypted",
        path="plain/encrypted.parquet",
        make=raw(encrypted(table(), "text", plaintext_footer=False)),
        code="encrypted",
    ),
    Case(
        title="a Parquet file whose texts are encrypted",
        path="plain/texts.parquet",
        make=raw(encrypted(table(), "text", plaintext_footer=True)),
        code="encrypted",
        place="row group 0",
    ),
    Case(
        title="another file named `.parquet`",
        path="plain/page.parquet",
        make=raw(b"<html>404 Not Found</html>"),
        code="not_parquet",
    ),
    Case(
        title="an Arrow file with a wrong offset",
        path="plain/astray.arrow",
        make=raw(astray(arrow(table()))),
        code="corrupt_arrow",
        place="record batch 0",
    ),
    Case(
        title="an Arrow stream with a wrong offset",
        path="plain/astray.arrows",
        make=raw(astray(arrow(table(), stream=True))),
        code="corrupt_arrow",
        place="record batch 0",
    ),
    Case(
        title="an Arrow file that was cut", path="plain/cut.feather", make=raw(arrow(table())[:-500]), code="not_arrow"
    ),
    Case(
        title="an Arrow stream without its end marker",
        path="plain/cut.arrow",
        make=raw(arrow(table(), stream=True)[:-8]),
        code="truncated_stream",
        place="record batch 4",
    ),
    Case(
        title="two Arrow streams in one file",
        path="plain/two.arrows",
        make=raw(arrow(table(), stream=True) * 2),
        code="corrupt_arrow",
    ),
    Case(
        title="Feather of version 1",
        path="plain/old.feather",
        make=raw(b"FEA1" + bytes(80) + b"FEA1"),
        code="feather_v1",
    ),
    Case(
        title="a zstd file that was cut",
        path="plain/cut.jsonl.zst",
        make=raw(zstd.compress(JSONL)[:-9]),
        code="truncated_stream",
    ),
    Case(
        title="a gzip file that was cut",
        path="plain/cut.jsonl.gz",
        make=raw(gzip.compress(JSONL)[:-9]),
        code="truncated_stream",
    ),
    Case(
        title="a bzip2 file that was cut",
        path="plain/cut.jsonl.bz2",
        make=raw(bz2.compress(JSONL)[:-9]),
        code="truncated_stream",
    ),
    Case(
        title="an xz file that was cut",
        path="plain/cut.jsonl.xz",
        make=raw(lzma.compress(JSONL)[:-9]),
        code="truncated_stream",
    ),
    Case(
        title="junk after a zstd frame",
        path="plain/junk.jsonl.zst",
        make=raw(zstd.compress(JSONL) + b"junkjunk"),
        code="corrupt_stream",
    ),
    Case(
        title="junk after a gzip member",
        path="plain/junk.jsonl.gz",
        make=raw(gzip.compress(JSONL) + b"junk"),
        code="corrupt_stream",
    ),
    Case(
        title="junk after a bzip2 stream",
        path="plain/junk.jsonl.bz2",
        make=raw(bz2.compress(JSONL) + b"junk"),
        code="corrupt_stream",
    ),
    Case(
        title="junk after an xz stream",
        path="plain/junk.jsonl.xz",
        make=raw(lzma.compress(JSONL) + b"junk" * 4),
        code="corrupt_stream",
    ),
    Case(
        title="a pointer of Git LFS instead of data",
        path="plain/pointer.jsonl.gz",
        make=raw(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"),
        code="corrupt_stream",
    ),
    Case(
        title="too many lines that are not UTF-8",
        path="plain/latin.jsonl",
        make=raw(b'{"text": "\xe9"}\n' * 9 + JSONL),
        code="too_many_bad_records",
    ),
    Case(
        title="plain text in UTF-16",
        path="plain/wide.txt",
        make=raw(CANARY.encode("utf-16")),
        code="too_many_bad_records",
    ),
    Case(
        title="numbers where the texts should be",
        path="plain/numbers.parquet",
        make=raw(parquet(pa.table({"text": range(9)}))),
        code="type_mismatch",
        place="text: int64",
    ),
    Case(
        title="a shard without the column of the text",
        path="plain/drift.parquet",
        make=raw(parquet(pa.table({"body": TEXTS}))),
        code="text_column_missing",
        place="text",
    ),
    Case(
        title="an Arrow shard without the column of the text",
        path="plain/drift.arrow",
        make=raw(arrow(pa.table({"body": TEXTS}))),
        code="text_column_missing",
        place="text",
    ),
    Case(
        title="a struct where the text should be",
        path="plain/struct.parquet",
        make=raw(parquet(pa.table({"text": [{"a": text} for text in TEXTS]}))),
        code="type_mismatch",
    ),
    Case(
        title="two columns with the name of the text",
        path="plain/twice.parquet",
        make=raw(parquet(pa.table([TEXTS, TEXTS], names=["text", "text"]))),
        code="ambiguous_column",
        place="text",
    ),
    Case(
        title="two columns of that name in Arrow",
        path="plain/twice.arrow",
        make=raw(arrow(pa.table([TEXTS, TEXTS], names=["text", "text"]))),
        code="ambiguous_column",
        place="text",
    ),
    Case(
        title="plain text where a column gives the source",
        path="column/story.txt",
        make=raw(b"once"),
        code="source_column_missing",
        place="source",
    ),
    Case(
        title="an address that the pattern of the source does not match",
        path="pattern/99.jsonl",
        make=raw(JSONL),
        code="source_pattern_mismatch",
    ),
    Case(title="a zstd bomb", path="plain/z-bomb.jsonl.zst", make=zstd_bomb, code="expansion_too_large"),
    Case(
        title="a bzip2 bomb",
        path="plain/z-bomb.jsonl.bz2",
        make=raw(bz2.compress(bytes(100_000_000)) * 11),
        code="expansion_too_large",
    ),
    Case(
        title="a gzip bomb, one endless line",
        path="plain/z-bomb.jsonl.gz",
        make=raw(gzip.compress(bytes(200_000_000))),
        code="too_many_bad_records",
    ),
    Case(
        title="an xz bomb, one endless line",
        path="plain/z-bomb.jsonl.xz",
        make=raw(lzma.compress(bytes(200_000_000), preset=0)),
        code="too_many_bad_records",
    ),
    Case(
        title="an Arrow buffer that claims terabytes",
        path="plain/claim.arrow",
        make=raw(claiming(arrow(pa.table({"text": TEXTS[:300]}), compression="zstd"))),
        code="corrupt_arrow",
        place="record batch 0",
    ),
    Case(
        title="a zstd frame that needs 256 MiB",
        path="plain/window.jsonl.zst",
        make=long_window,
        code="window_too_large",
    ),
    Case(
        title="a zstd frame that needs its dictionary",
        path="plain/dictionary.jsonl.zst",
        make=with_dictionary,
        code="dictionary_needed",
    ),
    Case(
        title="an xz stream that needs 256 MiB",
        path="plain/window.jsonl.xz",
        make=large_dictionary,
        code="window_too_large",
    ),
    Case(
        title="a link that leads out of the corpus",
        path="plain/link.jsonl",
        make=outside,
        code="link_outside_root",
        status="skipped",
    ),
    Case(
        title="a link to nothing",
        path="plain/gone.jsonl",
        make=lambda path: path.symlink_to(path.parent / "nothing"),
        code="not_found",
    ),
    Case(title="a pipe", path="plain/pipe.jsonl", make=os.mkfifo, code="not_a_file", status="skipped"),
    Case(title="a pickle", path="plain/rows.pkl", make=hostile_pickle, code="unknown_format", status="skipped"),
    Case(title="a file of torch", path="plain/rows.pt", make=hostile_pickle, code="unknown_format", status="skipped"),
    Case(
        title="a token file of odd length",
        path="plain/tokens.bin",
        make=raw(b"\0" * 7),
        code="unknown_format",
        status="skipped",
    ),
    Case(
        title="a name that steers terminals and CI runners",
        path=f"plain/{HOSTILE_NAME}",
        make=raw(b"text\n"),
        code="unknown_format",
        status="skipped",
    ),
]
