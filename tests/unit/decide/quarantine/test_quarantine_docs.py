"""docs/howto/quarantine.md: its examples run, and its tables are the code's."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_manifest import make, shard
from quarantine_made import digest

from dataaudit.cli import main
from dataaudit.decide.quarantine.apply import FORMATS
from dataaudit.decide.quarantine.entry import entry_schema

PAGE = (Path(__file__).parents[4] / "docs/howto/quarantine.md").read_text(encoding="utf-8")


@pytest.fixture
def applied(tmp_path, monkeypatch):
    """A shard of three lines whose second is held back, applied; what the examples need."""
    path = tmp_path / "data/a.jsonl"
    path.parent.mkdir()
    path.write_bytes(b'{"text":"0"}\n{"text":"1"}\n{"text":"2"}\n')
    make(tmp_path / "m", [shard("a.jsonl", documents=3, sha256=digest("a"), size=39)], roots=path.parent)
    monkeypatch.chdir(tmp_path)
    for call in (
        "add quarantine.jsonl --manifest m train/a.jsonl:1 --reason spam --who ana",
        "apply quarantine.jsonl --manifest m --out clean --documents",
    ):
        assert CliRunner().invoke(main, ["quarantine", *call.split()]).exit_code == 0
    return {
        "clean": tmp_path / "clean",
        "split": "train",
        "uri": "a.jsonl",
        "path": path,
        "sha256": digest("a"),
        "rows_digest": digest("b"),
        "file": tmp_path / "quarantine.jsonl",
    }


def test_the_examples_run(applied):
    """What is left of the shard, and what a loader is told."""
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for example in examples:
        exec(compile(example, "docs/howto/quarantine.md", "exec"), applied)  # noqa: S102 - our own page
    assert len(examples) == 2
    assert applied["kept"] == ['{"text":"0"}\n', '{"text":"2"}\n']
    assert applied["skip"] == {1}
    assert not applied["quarantine"].holds(sha256=digest("a"))


def test_the_page_names_every_field_format_and_command():
    """A reader of the file finds them all."""
    schema = entry_schema()
    fields = {
        *schema["properties"],
        *schema["$defs"]["Target"]["properties"],
        *schema["$defs"]["Evidence"]["properties"],
    }
    commands = main.commands["quarantine"].commands
    for name in fields:
        assert f"`{name}`" in PAGE, name
    for name in FORMATS:
        assert f"--format {name}" in PAGE, name
    for name in commands:
        assert re.search(rf"(quarantine |`){name}\b", PAGE), name


def test_the_command_offers_every_format():
    """The help is read without importing what writes them."""
    option = next(one for one in main.commands["quarantine"].commands["apply"].params if one.name == "formats")
    assert list(option.type.choices) == list(FORMATS)
