from __future__ import annotations

import bz2
import gzip
import lzma
import struct

import pytest

from dataaudit.scan.corpus.readers import stream
from dataaudit.scan.corpus.readers import stream as lines
from dataaudit.scan.corpus.readers.stream import load_zstd

zstd = load_zstd()
LINES = b'{"text":"one"}\n{"text":"two"}\n{"text":"thr\xc3\xa9e"}\n'
SKIPPABLE = struct.pack("<II", 0x184D2A50, 3) + b"abc"
TEXTS = ["one", "two", "thr\u00e9e"]


def _zstd(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


def _with_dictionary() -> bytes:
    """Return a frame that names a dictionary."""
    dictionary = zstd.train_dict([b"%d: a line of text, %d" % (number, number) for number in range(2_000)], 4096)
    return zstd.compress(LINES, zstd_dict=dictionary)


def _long_window() -> bytes:
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    return compressor.compress(LINES, mode=compressor.FLUSH_BLOCK) + compressor.flush()


def _flipped(data: bytes, index: int) -> bytes:
    return data[:index] + bytes([data[index] ^ 0x40]) + data[index + 1 :]


def _xz_dictionary(num_bytes: int) -> bytes:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": num_bytes}]
    return lzma.compress(LINES, format=lzma.FORMAT_XZ, filters=filters)


GZIP, ZSTD = gzip.compress(LINES, mtime=0), _zstd(LINES)
BZIP2, XZ = bz2.compress(LINES), lzma.compress(LINES)
HALVES = (LINES[:20], LINES[20:])

WHOLE = {
    "gzip": ("gzip", GZIP),
    "gzip, two members that meet inside a line": ("gzip", b"".join(map(gzip.compress, HALVES))),
    "gzip, an empty member": ("gzip", gzip.compress(b"") + GZIP),
    "gzip, zero padding": ("gzip", GZIP + bytes(512)),
    "zstd": ("zstd", ZSTD),
    "zstd, two frames that meet inside a line": ("zstd", b"".join(map(_zstd, HALVES))),
    "zstd, an empty frame": ("zstd", _zstd(b"") + ZSTD),
    "zstd, skippable frames around": ("zstd", SKIPPABLE + ZSTD + SKIPPABLE),
    "zstd, byte order mark": ("zstd", _zstd(b"\xef\xbb\xbf" + LINES)),
    "bzip2": ("bzip2", BZIP2),
    "bzip2, two streams that meet inside a line": ("bzip2", b"".join(map(bz2.compress, HALVES))),
    "bzip2, an empty stream": ("bzip2", bz2.compress(b"") + BZIP2),
    "xz": ("xz", XZ),
    "xz, two streams that meet inside a line": ("xz", b"".join(map(lzma.compress, HALVES))),
    "xz, padding between and behind": ("xz", lzma.compress(HALVES[0]) + bytes(4) + lzma.compress(HALVES[1]) + bytes(8)),
    "xz, a dictionary of 64 MiB": ("xz", _xz_dictionary(1 << 26)),
}
DAMAGED = {
    "gzip, no bytes": ("gzip", b"", "truncated_stream"),
    "gzip, ends before its trailer": ("gzip", GZIP[:-3], "truncated_stream"),
    "gzip, ends in its data": ("gzip", GZIP[:25], "truncated_stream"),
    "gzip, ends in its header": ("gzip", GZIP[:5], "truncated_stream"),
    "gzip, second member truncated": ("gzip", GZIP + GZIP[:-9], "truncated_stream"),
    "gzip, junk behind": ("gzip", GZIP + b"junk", "corrupt_stream"),
    "gzip, wrong checksum": ("gzip", _flipped(GZIP, len(GZIP) - 6), "corrupt_stream"),
    "gzip, wrong length": ("gzip", _flipped(GZIP, len(GZIP) - 1), "corrupt_stream"),
    "gzip, no gzip": ("gzip", LINES, "corrupt_stream"),
    "gzip, is zstd": ("gzip", ZSTD, "corrupt_stream"),
    "gzip, unknown method": ("gzip", GZIP[:2] + b"\x07" + GZIP[3:], "corrupt_stream"),
    "zstd, no bytes": ("zstd", b"", "truncated_stream"),
    "zstd, ends in its data": ("zstd", ZSTD[:-9], "truncated_stream"),
    "zstd, ends before its checksum": ("zstd", ZSTD[:-4], "truncated_stream"),
    "zstd, ends in its header": ("zstd", ZSTD[:3], "truncated_stream"),
    "zstd, second frame truncated in its magic number": ("zstd", ZSTD + ZSTD[:2], "truncated_stream"),
    "zstd, second frame truncated": ("zstd", ZSTD + ZSTD[:-5], "truncated_stream"),
    "zstd, skippable frame truncated": ("zstd", ZSTD + SKIPPABLE[:-1], "truncated_stream"),
    "zstd, junk behind": ("zstd", ZSTD + b"junkjunk", "corrupt_stream"),
    "zstd, zeros behind": ("zstd", ZSTD + bytes(8), "corrupt_stream"),
    "zstd, wrong checksum": ("zstd", _flipped(ZSTD, len(ZSTD) - 1), "corrupt_stream"),
    "zstd, no zstd": ("zstd", LINES, "corrupt_stream"),
    "zstd, is gzip": ("zstd", GZIP, "corrupt_stream"),
    "zstd, with a dictionary": ("zstd", _with_dictionary(), "dictionary_needed"),
    "zstd, with a dictionary in the second frame": ("zstd", ZSTD + _with_dictionary(), "dictionary_needed"),
    "zstd, with a dictionary behind a skippable frame": ("zstd", SKIPPABLE + _with_dictionary(), "dictionary_needed"),
    "zstd, window of 256 MiB": ("zstd", _long_window(), "window_too_large"),
    "bzip2, no bytes": ("bzip2", b"", "truncated_stream"),
    "bzip2, ends in its data": ("bzip2", BZIP2[:-9], "truncated_stream"),
    "bzip2, second stream truncated": ("bzip2", BZIP2 + BZIP2[:-5], "truncated_stream"),
    "bzip2, junk behind": ("bzip2", BZIP2 + b"junk", "corrupt_stream"),
    "bzip2, zeros behind": ("bzip2", BZIP2 + bytes(8), "corrupt_stream"),
    "bzip2, wrong checksum": ("bzip2", _flipped(BZIP2, 12), "corrupt_stream"),
    "bzip2, no bzip2": ("bzip2", LINES, "corrupt_stream"),
    "xz, no bytes": ("xz", b"", "truncated_stream"),
    "xz, ends in its data": ("xz", XZ[:-20], "truncated_stream"),
    "xz, second stream truncated": ("xz", XZ + XZ[:-5], "truncated_stream"),
    "xz, junk behind": ("xz", XZ + b"junk" * 5, "corrupt_stream"),
    "xz, padding of three bytes": ("xz", XZ + bytes(3), "corrupt_stream"),
    "xz, wrong checksum": ("xz", _flipped(XZ, len(XZ) - 36), "corrupt_stream"),
    "xz, no xz": ("xz", LINES, "corrupt_stream"),
    "xz, is lzma": ("xz", lzma.compress(LINES, format=lzma.FORMAT_ALONE), "corrupt_stream"),
    "xz, a dictionary of 256 MiB": ("xz", _xz_dictionary(1 << 28), "window_too_large"),
}


@pytest.fixture(params=[1 << 20, 4], ids=["large blocks", "tiny blocks"], autouse=True)
def _block_bytes(request, monkeypatch):
    monkeypatch.setattr(lines, "_BLOCK_BYTES", request.param)


@pytest.mark.parametrize("name", WHOLE)
def test_every_member_and_frame_is_read(read, tmp_path, name):
    """Members, frames, empty ones, padding and skippable frames make one stream of lines."""
    compression, data = WHOLE[name]
    file = tmp_path / "shard"
    file.write_bytes(data)
    reading = read(file, compression=compression)
    assert reading.failure is None
    assert [text for _, text, _ in reading.documents] == TEXTS


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_makes_the_shard_unreadable_with_its_reason(read, tmp_path, name):
    """A truncated, damaged or foreign stream is a loss with its own reason and a place, never an exception."""
    compression, data, reason = DAMAGED[name]
    file = tmp_path / "shard"
    file.write_bytes(data)
    reading = read(file, compression=compression)
    assert reading.failure is not None
    assert reading.failure[0] == reason
    assert reading.failure[1].startswith("after ")


@pytest.mark.parametrize("junk", [b"\n", b"x", b"junk"])
@pytest.mark.parametrize(
    ("compression", "data"), [("gzip", GZIP), ("zstd", ZSTD), ("bzip2", BZIP2), ("xz", XZ), ("gzip", b""), ("xz", b"")]
)
def test_a_few_bytes_of_junk_are_no_truncation(read, tmp_path, compression, data, junk):
    """A decoder waits for the rest of them, but nothing broke off."""
    (tmp_path / "shard").write_bytes(data + junk)
    assert read(tmp_path / "shard", compression=compression).failure[0] == "corrupt_stream"


@pytest.mark.parametrize(
    ("compression", "data"),
    [("gzip", GZIP), ("zstd", ZSTD), ("bzip2", BZIP2), ("xz", XZ)],
    ids=["gzip", "zstd", "bzip2", "xz"],
)
def test_no_truncation_goes_unseen(read, tmp_path, compression, data):
    """A stream that is cut at any byte is reported, whatever was read before the cut."""
    file = tmp_path / "shard"
    for stop in range(len(data)):
        file.write_bytes(data[:stop])
        reading = read(file, compression=compression)
        assert reading.failure is not None, stop
        assert reading.failure[0] in {"truncated_stream", "corrupt_stream"}, stop


@pytest.mark.inputs
@pytest.mark.parametrize(
    ("compression", "compress"),
    [("gzip", gzip.compress), ("zstd", _zstd), ("bzip2", bz2.compress), ("xz", lzma.compress)],
    ids=["gzip", "zstd", "bzip2", "xz"],
)
def test_a_bomb_is_stopped(read, tmp_path, monkeypatch, compression, compress):
    """A file that holds far more than its size is refused before it is read to its end."""
    monkeypatch.setattr(stream, "FREE_EXPANSION_BYTES", 1_000)
    monkeypatch.setattr(stream, "MAX_EXPANSION", 10)
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 1_000)
    file = tmp_path / "shard"
    file.write_bytes(compress(b'{"text":"a"}\n' * 1_000_000))
    reading = read(file, compression=compression)
    assert reading.failure is not None
    assert reading.failure[0] == "expansion_too_large"
    assert reading.records < 30_000


def test_a_plain_file_is_never_a_bomb(read, tmp_path, monkeypatch):
    """The limit on expansion is for compressed files alone."""
    monkeypatch.setattr(stream, "FREE_EXPANSION_BYTES", 0)
    monkeypatch.setattr(stream, "MAX_EXPANSION", 0)
    file = tmp_path / "shard"
    file.write_bytes(LINES)
    assert len(read(file).documents) == 3
