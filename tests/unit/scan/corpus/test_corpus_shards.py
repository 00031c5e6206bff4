from __future__ import annotations

import itertools
import os
import random
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.base.errors import ConfigError
from dataaudit.config import Split
from dataaudit.manifest.locate import decode_path
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.shards import discover, expand, format_of
from dataaudit.scan.corpus.storage import listing


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"{}\n")


def found(base: Path, *patterns: str, follow: bool = False, root_at_base: bool = True):
    splits = {"train": Split(paths=patterns)}
    return discover(splits, base, root_at_base=root_at_base, follow_symlinks=follow)


def uris(base: Path, *patterns: str, **options) -> list[str]:
    return [shard.uri for shard in found(base, *patterns, **options).shards]


def skips(base: Path, *patterns: str, **options) -> dict[str, Reason | None]:
    return {shard.uri: shard.skip for shard in found(base, *patterns, **options).shards}


@pytest.fixture
def tree(tmp_path):
    """A folder of shards on two levels, with files that are no data."""
    make(
        tmp_path,
        "data/b.jsonl",
        "data/a.jsonl",
        "data/sub/c.jsonl",
        "data/sub/deep/d.jsonl",
        "data/README.md",
        "data/_SUCCESS",
        "data/.hidden.jsonl",
        "data/.git/x.jsonl",
        "data/_tmp/y.jsonl",
    )
    return tmp_path


DATA = ["data/a.jsonl", "data/b.jsonl", "data/sub/c.jsonl", "data/sub/deep/d.jsonl"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["data"], DATA),
        (["data/"], DATA),
        (["./data/../data"], DATA),
        (["data/**/*.jsonl"], [*DATA, "data/_tmp/y.jsonl"]),
        (["data/sub/**"], DATA[2:]),
        (["**/**/d.jsonl"], DATA[3:]),
        (["data/*.jsonl"], DATA[:2]),
        (["data/[ab].jsonl"], DATA[:2]),
        (["data/?.jsonl"], DATA[:2]),
        (["data/[!a].jsonl"], DATA[1:2]),
        (["data/*/*.jsonl"], ["data/_tmp/y.jsonl", DATA[2]]),
        (["*/sub/*/*.jsonl"], DATA[3:]),
        (["data/.*.jsonl"], ["data/.hidden.jsonl"]),
        (["data/.hidden.jsonl"], ["data/.hidden.jsonl"]),
        (["data/b.jsonl", "data/a.jsonl"], DATA[:2]),
    ],
)
def test_patterns_list_what_a_shell_would(tree, patterns, expected):
    """Files, folders and globs give their files in the order of their URIs."""
    assert uris(tree, *patterns) == sorted(expected)


def test_what_a_folder_holds_beside_data_is_left_out_by_name(tree):
    """Hidden files, files with a leading underscore and documentation are named, not silently passed over."""
    expected = ("data/.git/", "data/.hidden.jsonl", "data/README.md", "data/_SUCCESS", "data/_tmp/")
    assert found(tree, "data").left_out == expected


@pytest.mark.parametrize(
    ("pattern", "passed_over"),
    [
        ("data/*", ("data/_tmp/", "data/link/", "data/sub/")),
        ("data/**/*", ("data/link/",)),
        ("data/*/*", ("data/link/deep/", "data/sub/deep/")),
        ("data/.*", ("data/.git/",)),
        ("data/*.jsonl", ()),
    ],
)
def test_a_folder_that_a_pattern_matches_is_entered_or_named(tree, pattern, passed_over):
    """A pattern gives files alone; a folder with data is not passed over in silence."""
    (tree / "data/link").symlink_to("sub")
    assert found(tree, pattern).left_out == passed_over


def test_a_file_listed_twice_is_two_shards(tree):
    """A second listing is a shard of its own with a copy number, whether it is literal or by a glob."""
    listed = ["data/a.jsonl", "data/*.jsonl", "./data/a.jsonl"]
    assert uris(tree, *listed) == ["data/a.jsonl", "data/a.jsonl#copy=2", "data/a.jsonl#copy=3", "data/b.jsonl"]
    assert {shard.path for shard in found(tree, *listed).shards} == {str(tree / name) for name in DATA[:2]}


def test_splits_count_copies_apart_and_are_ordered_by_name(tree):
    """The same file in two splits is one shard of each, and the split comes first in the order."""
    splits = {"val": Split(paths=("data/a.jsonl",)), "train": Split(paths=("data/*.jsonl",))}
    shards = discover(splits, tree, root_at_base=True, follow_symlinks=False).shards
    assert [(shard.ordinal, shard.split, shard.uri) for shard in shards] == [
        (0, "train", "data/a.jsonl"),
        (1, "train", "data/b.jsonl"),
        (2, "val", "data/a.jsonl"),
    ]


def test_no_order_of_listing_changes_a_shard(tree, monkeypatch):
    """Neither the order of patterns nor that of the file system reaches the result."""
    patterns = ["data/b.jsonl", "data/**/*.jsonl", "data/a.jsonl"]
    expected = found(tree, *patterns).shards
    plain = os.scandir
    rng = random.Random(0)

    class Shuffled:
        def __init__(self, folder):
            with plain(folder) as entries:
                self.entries = list(entries)
            rng.shuffle(self.entries)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(listing.os, "scandir", Shuffled)
    for permuted in itertools.permutations(patterns):
        assert found(tree, *permuted).shards == expected


def test_shards_are_ordered_by_the_utf8_of_their_uris(tmp_path):
    """The order is that of bytes: capitals first, and what lies beyond the first plane last."""
    names = ["\U0001f600.jsonl", "\uff21.jsonl", "z.jsonl", "Z.jsonl", "a-b.jsonl", "a/b.jsonl", "\u00e9.jsonl"]
    make(tmp_path, *names)
    assert uris(tmp_path, ".") == sorted(names, key=lambda name: name.encode())
    assert uris(tmp_path, ".")[-1] == "\U0001f600.jsonl"


safe = st.binary(min_size=1, max_size=20).filter(lambda name: not set(name) & {0, ord("/")})


@given(names=st.sets(safe, min_size=1, max_size=5))
@settings(max_examples=examples(60), deadline=None)
def test_files_of_any_name_are_found_and_found_again_by_their_uri(tmp_path_factory, names):
    """Names that are no Unicode, hold globs or line breaks are listed, and their URIs lead back to them."""
    root = tmp_path_factory.mktemp("names")
    paths = {root / os.fsdecode(b"x" + name + b".jsonl") for name in names}
    for path in paths:
        path.write_bytes(b"{}\n")
    shards = found(root, "x*").shards
    assert {Path(shard.path) for shard in shards} == paths
    assert {root / decode_path(shard.uri) for shard in shards} == paths
    assert all(shard.size == 3 and shard.skip is None for shard in shards)
    for shard in shards:
        assert expand(Path(shard.path).name, root, where="paths") == ([shard.path], [])


def test_normalisation_variants_of_a_name_are_two_shards(tmp_path):
    """Two names that look the same are two files."""
    make(tmp_path, "caf\u00e9.jsonl", "cafe\u0301.jsonl")
    assert len(uris(tmp_path, "*.jsonl")) == 2


@pytest.mark.parametrize("name", ["a[1].jsonl", "run[1]/a.jsonl", "what?.jsonl", "a*.jsonl", "**/a.jsonl"])
def test_a_name_with_glob_characters_is_taken_literally_when_it_exists(tmp_path, name):
    """A file or folder whose real name holds a glob character can be listed, and only it is."""
    make(tmp_path, name, "a1.jsonl", "run1/a.jsonl", "whatX.jsonl")
    assert [shard.path for shard in found(tmp_path, name).shards] == [str(tmp_path / name)]
    assert [shard.path for shard in found(tmp_path, str(tmp_path / name)).shards] == [str(tmp_path / name)]


def test_glob_characters_of_the_base_folder_are_no_pattern(tmp_path):
    """A config in a folder named ``run[1]`` lists its own files, not those of ``run1``."""
    make(tmp_path, "run[1]/data/a.jsonl", "run1/data/b.jsonl")
    assert uris(tmp_path / "run[1]", "data/*.jsonl") == ["data/a.jsonl"]
    assert uris(tmp_path / "run[1]" / "data", "../../run1/*/*.jsonl", root_at_base=False) == ["b.jsonl"]


def test_a_folder_named_like_a_shard_is_read_as_its_files(tmp_path):
    """``*.parquet`` also matches the folders that Spark writes; they are not passed over."""
    make(tmp_path, "a.parquet/part-0.parquet", "a.parquet/_SUCCESS", "b.parquet", "c/d.parquet")
    assert uris(tmp_path, "*.parquet") == ["a.parquet/part-0.parquet", "b.parquet"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.parquet", ("parquet", "none")), ("a.PQ", ("parquet", "none")), ("a.json", ("jsonl", "none")),
        ("a.JSONL.GZ", ("jsonl", "gzip")), ("a.json.gz", ("jsonl", "gzip")), ("a.ndjson.zstd", ("jsonl", "zstd")),
        ("a.jsonl.zst", ("jsonl", "zstd")), ("a.parquet.gz", ("unknown", "gzip")), ("a.gz", ("unknown", "gzip")),
        ("a.txt", ("text", "none")), ("a.txt.xz", ("text", "xz")), ("a.json.bz2", ("jsonl", "bzip2")),
        ("a.arrow", ("arrow", "none")), ("a.Feather", ("arrow", "none")), ("a.arrows", ("arrow", "none")),
        ("a.ipc", ("arrow", "none")), ("a.arrow.zst", ("unknown", "zstd")), ("a.csv", ("unknown", "none")),
        ("a", ("unknown", "none")), ("jsonl", ("unknown", "none")), ("x.parquet/a.jsonl", ("jsonl", "none")),
    ],
)  # fmt: skip
def test_format_and_compression_follow_the_suffixes(name, expected):
    """Suffixes decide, in any case; a columnar file that is compressed once more is no format."""
    assert format_of(name) == expected


def test_unknown_formats_are_skipped_by_name(tmp_path):
    """A file of an unknown suffix is a skipped shard with a reason."""
    make(tmp_path, "a.jsonl", "b.csv")
    assert skips(tmp_path, ".") == {"a.jsonl": None, "b.csv": Reason.UNKNOWN_FORMAT}


def test_pipes_sockets_and_devices_are_skipped_without_opening_them(tmp_path):
    """What would hang or never end is not opened."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "device.jsonl").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.jsonl"))
        names = ["device.jsonl", "pipe.jsonl", "socket.jsonl"]
        assert skips(tmp_path, ".", follow=True) == dict.fromkeys(names, Reason.NOT_A_FILE)
        assert skips(tmp_path, "pipe.jsonl") == {"pipe.jsonl": Reason.NOT_A_FILE}


@pytest.fixture
def linked(tmp_path):
    """A root with links: to a file and a folder inside, to those outside, and to nothing."""
    make(tmp_path, "root/own/a.jsonl", "outside/b.jsonl")
    root = tmp_path / "root"
    (root / "inside.jsonl").symlink_to("own/a.jsonl")
    (root / "outside.jsonl").symlink_to("../outside/b.jsonl")
    (root / "broken.jsonl").symlink_to("nowhere.jsonl")
    (root / "loop.jsonl").symlink_to("loop.jsonl")
    (root / "folder").symlink_to("../outside")
    (root / "own" / "up").symlink_to("..")
    return root


def test_links_out_of_the_root_are_not_read(linked):
    """What stays inside is read; what leaves is skipped, to a folder too; the reader sees that one leads to nothing."""
    expected = {
        "broken.jsonl": None,
        "folder": Reason.OUTSIDE_ROOT,
        "inside.jsonl": None,
        "loop.jsonl": None,
        "outside.jsonl": Reason.OUTSIDE_ROOT,
        "own/a.jsonl": None,
    }
    assert skips(linked, ".") == expected
    assert skips(linked, "**") == expected
    assert skips(linked, "**/*.jsonl") == expected
    assert found(linked, ".").left_out == ("own/up/",)


def test_a_link_to_a_folder_that_is_not_listed_is_a_loss(tmp_path):
    """Loaders follow it to a hidden folder or to another split; a link to a listed folder hides nothing."""
    make(tmp_path, "train/a.jsonl", "train/.h/b.jsonl", "train/real/c.jsonl", "val/d.jsonl")
    for name, target in {"hidden": ".h", "other": "../val", "same": "real"}.items():
        (tmp_path / "train" / name).symlink_to(target)
    expected = dict.fromkeys(["train/a.jsonl", "train/real/c.jsonl"])
    expected |= dict.fromkeys(["train/hidden", "train/other"], Reason.NOT_A_FILE)
    assert skips(tmp_path, "train") == expected
    assert skips(tmp_path, "train/**") == expected
    assert found(tmp_path, "train").left_out == ("train/.h/", "train/same/")


def test_links_are_followed_on_demand_and_circles_end(linked):
    """With ``follow_symlinks`` all links are read, and a link to a folder above is not entered again."""
    expected = ["broken.jsonl", "folder/b.jsonl", "inside.jsonl", "loop.jsonl", "outside.jsonl", "own/a.jsonl"]
    assert uris(linked, ".", follow=True) == expected
    assert uris(linked, "**", follow=True) == expected
    assert set(skips(linked, ".", follow=True).values()) == {None}
    assert found(linked, ".", follow=True).left_out == ("own/up/",)


@pytest.fixture
def snapshot(tmp_path):
    """A snapshot of the hub's cache with links as the hub makes them, and with others."""
    commit, blob = "0123456789" * 4, "ab" * 32
    make(tmp_path, f"repo/blobs/{blob}", f"repo/blobs/{'c' * 40}", "repo/blobs/short", "other/blobs/" + blob, "secret")
    folder = tmp_path / "repo" / "snapshots" / commit
    (folder / "data").mkdir(parents=True)
    (tmp_path / "repo" / "blobs" / ("d" * 64)).symlink_to("../../secret")
    targets = {
        "a.jsonl": f"../../blobs/{blob}",
        "data/b.jsonl": f"../../../blobs/{'c' * 40}",
        "absolute.jsonl": str(tmp_path / "repo" / "blobs" / blob),
        "chain.jsonl": "a.jsonl",
        "gone.jsonl": f"../../blobs/{'e' * 64}",
        "short.jsonl": "../../blobs/short",
        "onward.jsonl": f"../../blobs/{'d' * 64}",
        "other.jsonl": f"../../../other/blobs/{blob}",
        "secret.jsonl": "../../../secret",
    }
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    return folder


def test_links_of_the_hubs_cache_are_read(snapshot):
    """A snapshot's files are links to blobs beside it; whatever else they lead to is outside."""
    outside = dict.fromkeys(["onward.jsonl", "other.jsonl", "secret.jsonl", "short.jsonl"], Reason.OUTSIDE_ROOT)
    read = dict.fromkeys(["a.jsonl", "absolute.jsonl", "chain.jsonl", "data/b.jsonl", "gone.jsonl"])
    assert skips(snapshot, ".") == skips(snapshot, "**/*.jsonl") == outside | read
    assert skips(snapshot, str(snapshot / "a.jsonl")) == {"a.jsonl": None}
    whole = skips(snapshot.parent.parent, "snapshots")
    assert {uri for uri, reason in whole.items() if reason} == {
        f"snapshots/{snapshot.name}/{name}" for name in ("onward.jsonl", "other.jsonl", "secret.jsonl")
    }


@pytest.mark.parametrize("name", ["main", "0123456789" * 3, "0123456789" * 4 + "f", "G" * 40])
def test_links_in_what_is_no_snapshot_stay_outside(snapshot, name):
    """A folder of another name is no snapshot of a commit."""
    other = snapshot.rename(snapshot.with_name(name))
    assert skips(other, "a.jsonl") == {"a.jsonl": Reason.OUTSIDE_ROOT}


def test_a_snapshot_behind_a_link_is_outside(snapshot, tmp_path):
    """Only a snapshot in the root has its blobs beside the root."""
    make(tmp_path, "root/x.jsonl")
    (tmp_path / "root" / "linked").symlink_to(snapshot)
    assert skips(tmp_path / "root", "linked/a.jsonl") == {"linked/a.jsonl": Reason.OUTSIDE_ROOT}


def test_a_link_that_a_pattern_names_is_listed(linked):
    """Who writes the link's name means what it leads to; its files are still outside of the root."""
    assert skips(linked, "folder") == {"folder/b.jsonl": Reason.OUTSIDE_ROOT}
    assert skips(linked, "folder/*.jsonl") == {"folder/b.jsonl": Reason.OUTSIDE_ROOT}
    assert skips(linked, "folder", root_at_base=False) == {"b.jsonl": None}


def test_a_folder_that_cannot_be_listed_is_a_loss_with_a_name(tree, monkeypatch):
    """The rest is found, and the folder is a skipped shard."""
    plain = os.scandir

    def refuse(folder):
        if str(folder).endswith("/sub"):
            raise PermissionError(13, "Permission denied")
        return plain(folder)

    monkeypatch.setattr(listing.os, "scandir", refuse)
    expected = {"data/a.jsonl": None, "data/b.jsonl": None, "data/sub/": Reason.PERMISSION}
    assert skips(tree, "data") == expected
    assert skips(tree, "data/*.jsonl", "data/sub/*.jsonl") == expected
    assert skips(tree, "data/sub/**/*.jsonl") == {"data/sub/": Reason.PERMISSION}
    assert skips(tree, str(tree / "data/sub") + "/") == {"data/sub/": Reason.PERMISSION}


def test_the_root_of_a_config_is_its_folder_when_that_holds_everything(tree):
    """URIs are relative to the config's folder, or to the deepest folder of all files when one lies outside."""
    assert found(tree, "data/sub").roots == {"train": str(tree)}
    assert found(tree / "data" / "sub", "../a.jsonl", "c.jsonl").roots == {"train": str(tree / "data")}
    assert uris(tree / "data" / "sub", "../a.jsonl", "c.jsonl") == ["a.jsonl", "sub/c.jsonl"]


def test_the_root_of_paths_is_their_deepest_folder(tree):
    """Where a corpus lies does not enter its URIs."""
    assert uris(Path("/"), str(tree / "data/sub"), root_at_base=False) == ["c.jsonl", "deep/d.jsonl"]
    assert uris(Path("/"), str(tree / "data/a.jsonl"), root_at_base=False) == ["a.jsonl"]


@pytest.mark.parametrize("form", ["file://{}", "file://localhost{}", "FILE://{}", "/{}"])
def test_file_addresses_and_doubled_slashes_name_the_same_file(tree, form):
    """One file has one URI, however its path is written."""
    assert uris(tree, form.format(tree / "data/a.jsonl")) == ["data/a.jsonl"]


def test_a_percent_encoded_address_names_any_file(tmp_path):
    """``file://`` addresses can hold every byte of a name."""
    make(tmp_path, "100% new?.jsonl")
    assert uris(tmp_path, f"file://{tmp_path}/100%25%20new%3F.jsonl") == ["100%25 new%3F.jsonl"]


@pytest.mark.parametrize(
    "pattern",
    [
        "absent.jsonl", "data/*.parquet", "data/absent/**", "data/.git/nothing*", "empty", "~nobody-here/a.jsonl",
        "nul\0byte.jsonl", "nul\0*.jsonl", "[", "data/[", "\ud800.jsonl", "\udcff*.jsonl", "data/a.jsonl/*",
        "//nowhere[0/*",
    ],
)  # fmt: skip
def test_a_pattern_without_files_is_an_error_that_can_be_printed(tree, pattern):
    """What matches nothing names the place and what there is instead, in printable characters."""
    (tree / "empty").mkdir()
    (tree / os.fsdecode(b"data/\xff.txt")).write_bytes(b"")
    with pytest.raises(ConfigError) as caught:
        expand(pattern, tree, where="splits.train.paths")
    assert "splits.train.paths" in caught.value.message
    assert caught.value.hint
    assert str(caught.value).replace("\n", "").isprintable()


def test_home_is_expanded(tree, monkeypatch):
    """``~`` is the user's home folder, as in a shell."""
    monkeypatch.setenv("HOME", str(tree))
    assert expand("~/data/*.jsonl", Path("/"), where="paths")[0] == [str(tree / name) for name in DATA[:2]]
