"""Lists of paths given as data: refused; prose, and text that only names a file, are data."""

from __future__ import annotations

import pytest

from dataaudit.base.errors import ConfigError
from dataaudit.engine.inputs import check_inputs
from dataaudit.scan.corpus.shards import Shard


def shard(path, uri="", **more):
    """Return a shard of a path."""
    given = {"format": "text", "compression": "none", "skip": None, "size": 1} | more
    return Shard(ordinal=0, split="train", uri=uri or path.name, path=str(path), **given)


@pytest.fixture
def data(tmp_path):
    """Two shards of a build."""
    (tmp_path / "data").mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / "data" / name).write_text("{}\n")
    return tmp_path / "data"


LISTS = {
    "from the root": "{data}/a.jsonl\n{data}/b.jsonl\n",
    "beside the list": "a.jsonl\nb.jsonl",
    "one": "{data}/a.jsonl",
    "with gaps and line ends of another system": "\r\n{data}/a.jsonl\r\n\r\n{data}/b.jsonl\r\n",
    "shards of this build by address": "s3://bucket/far.jsonl\n",
    "shards of this build by name": "train/far.jsonl\n",
    "longer than what is looked at": "{data}/a.jsonl\n" * 20_000,
}
TEXTS = {
    "prose": "A day began.\nAnother one, too.\n",
    "prose after a path": "a.jsonl\nis a file\n",
    "a name, as links are checked out": "a.jsonl\n",
    "nothing": "",
    "blank lines": "\n\n",
    "no UTF-8": b"\xff\xfe\n",
    "a long line": "a" * 100_000,
    "a path of nothing": "{data}/c.jsonl\n",
    "a folder": "{data}\n",
    "a zero": "a\0.jsonl\n",
    "an address of another corpus": "s3://bucket/other.jsonl\n",
}


def written(data, text):
    """Return the shard of a text, and others that it may name."""
    path = data / "list.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.replace("{data}", str(data)).encode())
    return [
        shard(path),
        shard(data / "a.jsonl", "train/a.jsonl", format="jsonl"),
        shard("s3://bucket/far.jsonl", "train/far.jsonl", format="jsonl"),
    ]


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_paths_is_no_data(data, name):
    """It is named, with its first path."""
    with pytest.raises(ConfigError, match=r"list.txt lists paths of files, no data"):
        check_inputs(written(data, LISTS[name]))


@pytest.mark.parametrize("name", TEXTS)
def test_any_other_text_is_data(data, name):
    check_inputs(written(data, TEXTS[name]))


def test_other_formats_and_files_that_are_gone_are_left_to_the_scan(data):
    """What is no plain text is not looked at."""
    (data / "paths.jsonl").write_text("a.jsonl\n")
    check_inputs([shard(data / "paths.jsonl", format="jsonl"), shard(data / "gone.txt")])
