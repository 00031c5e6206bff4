"""Addresses: what is shown holds no secret, what opens holds all, and names do not depend on how they are written."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from dataaudit.base.errors import ConfigError
from dataaudit.scan.corpus.storage.address import (
    Access,
    RemotePath,
    RemoteStat,
    common_folder,
    name_of,
    parse_address,
    relative_name,
    scheme_of,
    shown_folder,
)

SIGNED = "https://user:secret@host:8443/a%20b/c.jsonl?X-Amz-Signature=secret#part"


@dataclass(frozen=True)
class Holder:
    path: str


def test_a_remote_path_is_its_public_form_wherever_text_is_made():
    """Printed, formatted, compared, in a record or pickled, a path keeps its secrets to itself."""
    path = parse_address(SIGNED, "paths").remote_path(Access(retries=1), RemoteStat(size=3, validator="x"))
    again = pickle.loads(pickle.dumps(path))
    for text in (str(path), repr(path), f"{path}", f"{Holder(path)}", path.encode().decode()):
        assert "secret" not in text
    assert path == "https://host:8443/a%20b/c.jsonl"
    assert again.full == path.full == SIGNED.partition("#")[0]
    assert (again.access, again.seen, type(again)) == (path.access, path.seen, RemotePath)


@pytest.mark.parametrize(
    ("given", "scheme"),
    [
        ("s3://b/k", "s3"), ("S3://b/k", "s3"), ("/a/b", ""), ("a.jsonl", ""), ("file:///a", ""), ("FILE:///a", ""),
        ("local:///a", ""), ("memory://a", "memory"), ("a:b//c", ""),
    ],
)  # fmt: skip
def test_the_scheme_tells_remote_from_local(given, scheme):
    """Only what has a scheme other than file is an address."""
    assert scheme_of(given) == scheme


@pytest.mark.parametrize(
    ("given", "public"),
    [
        ("s3://bucket/a?b#c.jsonl", "s3://bucket/a?b#c.jsonl"),
        ("abfs://container@account.dfs/x", "abfs://container@account.dfs/x"),
        ("sftp://me:pw@host/x/y.jsonl", "sftp://host/x/y.jsonl"),
        ("hf://datasets/org/name@main/x.parquet", "hf://datasets/org/name@main/x.parquet"),
        ("https://h/x.jsonl?a=1", "https://h/x.jsonl"),
        ("memory://x/y", "memory://x/y"),
        ("memory:///x/y", "memory:///x/y"),
    ],
)
def test_the_public_form_drops_users_and_queries_and_nothing_else(given, public):
    """Keys of stores may hold any sign; only web addresses have queries."""
    address = parse_address(given, "paths")
    assert address.public == public
    assert address.full == given


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("s3://key:secret@bucket/x", "keys inside an address"),
        ("gs://secret@bucket/x", "keys inside an address"),
        ("simplecache::s3://secret/x", "chain"),
        ("zip://secret.jsonl::file:///x.zip", "chain"),
        ("s3:///secret", "without a bucket"),
        ("https:///secret", "without a host"),
    ],
)
def test_what_cannot_be_an_address_is_refused_without_repeating_it(given, words):
    """The message names the place; the address may hold a password."""
    with pytest.raises(ConfigError, match=words) as caught:
        parse_address(given if "://" in given.partition("::")[0] else "x://" + given, "splits.train.paths")
    assert "splits.train.paths" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("paths", "folder", "names"),
    [
        (["s3://b/d/x/1.jsonl", "s3://b/d/y/2.jsonl"], "s3://b/d", ["x/1.jsonl", "y/2.jsonl"]),
        (["s3://b/d/1.jsonl"], "s3://b/d", ["1.jsonl"]),
        (["s3://b/ab/1", "s3://b/ac/1"], "s3://b", ["ab/1", "ac/1"]),
        (["s3://b/x/1", "s3://c/x/1"], "s3://", ["b/x/1", "c/x/1"]),
        (["https://h/a%20b/1", "https://h/a b/2"], "https://h/a%20b", ["1", "2"]),
        (["s3://b/d//1", "s3://b/d/2"], "s3://b/d", ["/1", "2"]),
        (["s3://b/d/e/", "s3://b/d/1"], "s3://b/d", ["e/", "1"]),
    ],
)
def test_the_root_is_the_deepest_folder_and_names_are_relative_to_it(paths, folder, names):
    """The names below the root do not depend on the store, the root can be read as an address again."""
    top = common_folder(paths, None)
    assert shown_folder(top) == folder
    assert [relative_name(path, top) for path in paths] == names
    again = parse_address(folder, "root") if folder != "s3://" else None
    if again is not None:
        assert [name_of(again.below(name).public) for name in names] == [name_of(path) for path in paths]


def test_a_base_is_the_root_when_it_holds_every_file():
    """As the folder of a config is for local files."""
    base = "s3://b/corpus/"
    assert common_folder(["s3://b/corpus/data/1", "s3://b/corpus/data/2"], base) == "s3://b/corpus"
    assert common_folder(["s3://b/corpus/data/1", "s3://b/corpus2/2"], base) == "s3://b"
    assert common_folder(["/a/x", "/b/y/"], "/") == common_folder(["/a/x", "/b/y/"], "/a") == "/"
