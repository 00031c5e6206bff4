"""Shards on disk: each comes back as it was, whatever its path carries."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from made_build import shard, shard_list

from dataaudit.engine import plan_shards as shard_list_module
from dataaudit.engine.store_columns import packed
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.storage.address import Access, RemotePath, RemoteStat
from dataaudit.scan.corpus.storage.hub import RowsPath, RowsSource

ACCESS = Access(timeout_seconds=1.5, retries=7)
SEEN = RemoteStat(size=5, validator='etag "x"', mtime_ns=2**64)


def remote(name, *, seen=None, access=ACCESS):
    """Return the address of a remote file, with a secret in it."""
    return RemotePath(f"s3://bucket/{name}", f"s3://bucket/{name}?key=secret", access, seen)


def rows(number):
    """Return the path of a streamed shard."""
    source = RowsSource(
        name="someone/set", config="c", split="train", revision="abc", shard=number, shards=9, access=ACCESS
    )
    return RowsPath(source)


PATHS = [
    "/data/a.jsonl",
    os.fsdecode(b"/data/\xff\xfe \n.jsonl"),
    "/data/" + "x" * 300,
    remote("a.jsonl", seen=SEEN),
    remote("b.jsonl"),
    remote("a.jsonl", access=Access()),
    rows(0),
    rows(8),
]


def test_every_kind_of_shard_comes_back():
    """Local ones of any bytes, remote ones with what opens them, streamed rows; skipped ones with the reason."""
    shards = [shard(number, uri=f"{number}", path=path, size=number) for number, path in enumerate(PATHS)]
    shards += [shard(len(shards), split="val", uri="#copy=2", path="/p", skip=Reason.NOT_A_FILE, format_="unknown")]
    shards += [replace(shards[0], ordinal=len(shards), compression="zstd", split="", size=2**62)]
    found = shard_list(*shards)
    assert list(found) == found[:] == shards
    assert found[-1] == shards[-1]
    for one, own in zip(found, shards, strict=True):
        assert type(one.path) is type(own.path)
        names = getattr(own.path, "__slots__", ())
        assert [getattr(one.path, name) for name in names] == [getattr(own.path, name) for name in names]
    paths = found.paths()
    assert list(paths) == [one.path for one in shards]
    with pytest.raises(IndexError):
        paths[len(shards)]


def test_no_secret_of_an_address_is_written(monkeypatch):
    """The file has no name, but what was written stays on a disk until it is written over."""
    written = []
    monkeypatch.setattr(shard_list_module, "packed", lambda value: written.append(packed(value)) or written[-1])
    plain = RemotePath("s3://b/c", "s3://b/c", ACCESS)
    found = shard_list(shard(0, path=remote("a.jsonl", seen=SEEN)), shard(1, path=plain))
    assert found[0].path.full == "s3://bucket/a.jsonl?key=secret"
    assert found[1].path.full == "s3://b/c"
    assert len(written) == 2
    assert not any(b"secret" in one for one in written)


def test_shards_of_a_split_are_found():
    """Those that are to be read, or all."""
    shards = [
        shard(0, split="a"),
        shard(1, split="b"),
        shard(2, split="b", skip=Reason.NOT_A_FILE),
        shard(3, split="c"),
    ]
    found = shard_list(*shards)
    assert [one.ordinal for one in found.of_split("b")] == [1]
    assert [one.ordinal for one in found.of_splits(["c", "b"])] == [1, 2, 3]
    assert list(found.of_split("none")) == found.of_splits([]) == []


def test_a_file_that_is_listed_again_is_known():
    """By its path, also in another split; before all others one that is to be read."""
    shards = [
        shard(0, path="/a", skip=Reason.NOT_A_FILE),
        shard(1, path="/b"),
        shard(2, split="val", path="/a"),
        shard(3, path="/b", uri="#copy=2"),
        shard(4, path="/a"),
    ]
    assert shard_list(*shards).files().tolist() == [2, 1, 2, 1, 2]
    assert shard_list().files().tolist() == []
