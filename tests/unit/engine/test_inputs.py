"""From the command line to a config: a file or paths, never both, and options on top."""

import json
import multiprocessing
import os
import subprocess
import sys

import pytest
from made_build import write_file

from dataaudit import api
from dataaudit.base.errors import ConfigError
from dataaudit.engine.inputs import check_inputs, prepare, read_key
from dataaudit.scan.corpus.shards import Shard

CONFIG = b"splits: {train: {paths: [a.jsonl], text: body}}\ntokenizer: mine.json\n"


@pytest.fixture
def folder(tmp_path):
    """A folder with data and a config in a folder below it."""
    write_file(tmp_path / "train" / "a.jsonl", b'{"text": "x"}\n')
    write_file(tmp_path / "val" / "b.jsonl", b'{"text": "y"}\n')
    write_file(tmp_path / "sub" / "c.yaml", CONFIG)
    return tmp_path


def call(folder, *inputs, notes=None, **options):
    """Prepare a build from a working folder."""
    given = {"tokenizer": None, "text": None, "reference": None, **options}
    return prepare(inputs, folder, note=(notes if notes is not None else []).append, **given)


def test_a_config_is_taken_from_its_own_folder(folder):
    """Relative paths start from the config, which is the root of URIs."""
    prepared = call(folder, str(folder / "sub" / "c.yaml"))
    assert (prepared.base, prepared.root_at_base) == (folder / "sub", True)
    assert (prepared.config.splits["train"].text, prepared.config.tokenizer) == ("body", "mine.json")


def test_paths_become_splits_and_it_is_said(folder):
    """Names decide the splits; what was inferred is noted; the text column may be given."""
    notes = []
    prepared = call(folder, "train", "val", notes=notes, text="text")
    assert (prepared.base, prepared.root_at_base) == (folder, False)
    assert {name: split.held_out for name, split in prepared.config.splits.items()} == {"train": False, "val": True}
    assert all(split.text == "text" for split in prepared.config.splits.values())
    assert any("val (held out)" in note for note in notes)


@pytest.mark.parametrize(
    ("inputs", "options", "words"),
    [
        (("sub/c.yaml", "train"), {}, "found both"),
        (("a.yml", "b.yaml"), {}, "found both"),
        (("sub/c.yaml",), {"text": "t"}, "text goes with paths"),
        (("missing.yaml",), {}, "missing.yaml"),
        (("nothing-*.jsonl",), {}, "matches no file"),
    ],
)
def test_wrong_use_is_said(folder, inputs, options, words, monkeypatch):
    """Each mistake has its own message."""
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=words):
        call(folder, *inputs, **options)


def test_options_win_over_the_config(folder):
    """A tokenizer that is a file is meant from where it is typed; a name stays a name."""
    write_file(folder / "t.json", b"{}")
    config = str(folder / "sub" / "c.yaml")
    assert call(folder, config, tokenizer="t.json").config.tokenizer == str(folder / "t.json")
    assert call(folder, config, tokenizer="org/name").config.tokenizer == "org/name"
    assert call(folder, config, reference="old").config.reference == str(folder / "old")


def test_a_key_is_the_file_without_the_white_space_around_it(tmp_path):
    """An editor's line end is no part of it."""
    (tmp_path / "key").write_bytes(b" \n0123456789abcdef\xff\x00\n")
    assert read_key(tmp_path / "key") == b"0123456789abcdef\xff\x00"


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (b"fifteen letters\n", "has 15 bytes, expected 16 or more"),
        (b"x" * 5000, "has more than 4,096 bytes"),
        (None, "cannot read the key"),
    ],
)
def test_a_file_that_is_no_key_is_refused_without_being_shown(tmp_path, held, said):
    """Too short to keep anything secret, another file named by mistake, none: never its bytes."""
    if held is not None:
        (tmp_path / "key").write_bytes(held)
    with pytest.raises(ConfigError, match=said) as caught:
        read_key(tmp_path / "key")
    assert "fifteen" not in str(caught.value)
    assert "xxx" not in str(caught.value)


SCRIPT = """\
import dataaudit
from dataaudit.base.errors import ConfigError

print("before")
def make():
    return dataaudit.build("data", "manifest", workers=2)
try:
    make()
except ConfigError as error:
    print(error)
    raise SystemExit(int(error.exit_code))
"""


@pytest.mark.kills
def test_workers_that_run_a_script_again_are_refused_with_the_lines_to_type(tmp_path):
    """The message names the script and the guard; no worker is waited for, and none prints a message."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.jsonl").write_text(json.dumps({"text": "A text."}) + "\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 2, done.stderr
    lines = done.stdout.replace("before", "").splitlines(keepends=True)  # of several workers at once, in any order
    assert "".join(line for line in lines if line != "\n") == (  # each may have come as far as its first line
        'train.py, line 8, starts workers without `if __name__ == "__main__":`, and each worker runs the script again\n'
        "  Put the call under the guard:\n"
        "      import dataaudit\n"
        '      if __name__ == "__main__":\n'
        "          dataaudit.build(..., workers=2)\n"
    )
    assert done.stderr == ""
    assert not (tmp_path / "manifest").exists()


def test_a_child_that_somebody_else_started_is_refused_too_unless_it_starts_nothing(tmp_path, monkeypatch):
    """A program's own children import its script as well; with `workers=0` they may build."""
    (tmp_path / "data.txt").write_text("A line.")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ConfigError, match="starts workers without `if __name__"):
        api.build("data.txt", "manifest")
    assert api.build("data.txt", "manifest", workers=0, isolate=False).scanned == 1


def test_what_tells_workers_where_to_report_is_gone_after_the_build():
    """Programs that are started later know nothing of it."""
    from dataaudit.engine.cluster import _environment_of_workers

    before = dict(os.environ)
    with _environment_of_workers() as reported:
        assert os.environ["DATAAUDIT_UNGUARDED"] == str(reported)
        assert reported.parent.is_dir()
    assert dict(os.environ) == before
    assert not reported.parent.exists()


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
