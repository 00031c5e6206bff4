"""From the command line to a config: a file or paths, never both, and options on top."""

from __future__ import annotations

import pytest
from made_build import write_file

from dataaudit.base.errors import ConfigError
from dataaudit.engine.inputs import prepare, read_key

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
