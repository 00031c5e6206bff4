"""Files that options name: no link, pipe, device or manifest is written to, whatever the command."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from lanes import sample
from made_manifest import make, shard

from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.decide.gate.writers.writing import Outputs
from dataaudit.manifest.outfiles import append_file, check_files, write_file

ABOUT = ["--license", "MIT", "--url", "https://a.example", "--creator", "A", "--description", "D"]
GATE = ["gate", "m", "--policy", "release-gate", "--no-annotations"]
COMMANDS = {
    **{f"gate {option}": [*GATE, option] for option in Outputs().files},
    "policy draft": ["policy", "draft", "m", "--force", "--out"],
    "report": ["report", "m", "--out"],
    "card": ["export", "card", "m", "--out"],
    "croissant": ["export", "croissant", "m", *ABOUT, "--date-published", "2026-11-22", "--out"],
    "openlineage": ["export", "openlineage", "m", "--out"],
    "verdict": ["export", "verdict", "m", "--policy", "release-gate", "--out"],
}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """A manifest, and another beside it that no command is given."""
    folder = tmp_path_factory.mktemp("outfiles")
    for name in ("m", "other"):
        make(folder / name, shards=[shard("a.jsonl")], dataset=name)
    return folder


@pytest.fixture
def place(manifest, monkeypatch):
    """Stand in the folder; whatever a test makes there is new."""
    monkeypatch.chdir(manifest)
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    yield manifest
    assert {path: path.read_bytes() for path in before} == before
    for path in Path().iterdir():
        if path.name not in {"m", "other"}:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_every_export_is_tried_here():
    exports = main.commands["export"].commands
    written = {name for name, one in exports.items() if any("--out" in each.opts for each in one.params)}
    assert {given[1] for given in COMMANDS.values() if given[0] == "export"} == written - {"lsh"}  # it needs an index


def _run(command, target):
    done = CliRunner().invoke(main, [*COMMANDS[command], target])
    assert "internal error" not in done.output, done.output
    return done


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("target", ["victim", "m/manifest.json", "other/shards.parquet", "nowhere", "/dev/null"])
def test_a_link_is_replaced_and_what_it_leads_to_stays(place, command, target):
    Path("victim").write_text("mine")
    Path("out").symlink_to(target)
    done = _run(command, "out")
    assert done.exit_code != 2, done.output
    assert stat.S_ISREG(os.lstat("out").st_mode)
    assert Path("victim").read_text() == "mine"
    assert not Path("nowhere").exists()
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("folder", "is a folder"),
        ("link", "is a folder"),
        ("pipe", "is a pipe"),
        ("m/manifest.json", "part of a manifest"),
        ("other/manifest.json", "part of a manifest"),
        ("there/attestation.json", "part of a manifest"),
        ("other/new.parquet", "part of a manifest"),
        ("other/Shards.PARQUET", "part of a manifest"),
        ("absent/out", "does not exist"),
        ("long" * 99, "too long"),
    ],
)
def test_what_is_no_file_and_what_is_a_manifests_is_refused_before_the_work(place, command, target, words):
    Path("folder").mkdir()
    Path("link").symlink_to("folder")
    Path("there").symlink_to("other")
    os.mkfifo("pipe")
    done = _run(command, target)
    assert done.exit_code == 2, done.output
    assert words in done.output
    assert stat.S_ISFIFO(os.lstat("pipe").st_mode)


@pytest.mark.parametrize("command", sample(COMMANDS, 4, part="judges"))
def test_streams_and_devices_are_written_to(place, command):
    for target in ("/dev/null", "/dev/stdout", "/proc/self/fd/1", "/dev/./stderr"):
        assert _run(command, target).exit_code != 2
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_stdout_that_is_a_file_keeps_what_was_printed(place):
    """The name is that of the file, and both write at one position."""
    with Path("printed").open("wb") as stream:
        subprocess.run(
            [sys.executable, "-m", "dataaudit", "export", "card", "m", "--out", "/dev/stdout"],
            stdout=stream,
            check=True,
        )
    text = Path("printed").read_text()
    assert text.startswith("---\n")
    assert "a card with metadata" in text


@pytest.mark.parametrize(
    ("arguments", "other"),
    [
        (["gate", "m", "--policy", "given", "--junit", "given"], "--policy"),
        (["gate", "m", "--policy", "strict", "--public-key", "given", "--junit", "given"], "--public-key"),
        (["gate", "m", "--policy", "strict", "--quarantine-list", "given", "--out", "./given"], "--quarantine-list"),
        (["gate", "m", "--policy", "strict", "--quarantine", "given", "--out", "given"], "--quarantine"),
        (["report", "m", "--policy", "given", "--out", "given"], "--policy"),
        (["report", "m", "--verdict", "link", "--out", "given"], "--verdict"),
        (["export", "openlineage", "m", "--verdict", "given", "--out", "given"], "--verdict"),
        (["export", "croissant", "m", "--metadata", "given", "--out", "given"], "--metadata"),
        (["export", "verdict", "m", "--policy", "strict", "--sign", "--key", "given", "--out", "given"], "--key"),
        (["map", "given", "--manifest", "m", "--out", "given"], "token file given"),
        (["map", "a.bin", "given", "--manifest", "m", "--out", "given"], "token file given"),
        (["map", "a.bin", "--manifest", "m", "--quarantine", "given", "--out", "given"], "--quarantine"),
        (["map", "given.bin", "--manifest", "m", "--out", "given.idx"], "index given.idx"),
    ],
)
def test_what_is_read_is_not_written_over(place, arguments, other):
    """By whatever name it was given."""
    Path("given").write_text("mine")
    Path("link").symlink_to("given")
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert f"and {other} name the same file" in done.output
    assert Path("given").read_text() == "mine"


def test_json_and_annotations_do_not_share_stdout(place):
    """What was printed was no JSON."""
    done = CliRunner().invoke(main, ["gate", "m", "--policy", "canary", "--json", "--annotations"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--out FILE" in done.output


def test_schemas_are_written_into_no_manifest_and_through_no_link(place):
    """A folder of files is looked at, too."""
    done = CliRunner().invoke(main, ["schema", "config", "--out", "m"])
    assert done.exit_code == 2
    assert "m is a manifest" in done.output
    (name,) = (line for line in CliRunner().invoke(main, ["schema", "config", "--out", "new"]).output.splitlines())
    Path("victim").write_text("mine")
    Path(name).unlink()
    Path(name).symlink_to("../victim")
    assert CliRunner().invoke(main, ["schema", "config", "--out", "new"]).exit_code == 0
    assert Path("victim").read_text() == "mine"
    Path(name).unlink()


def test_a_name_that_becomes_a_pipe_after_the_check_is_refused_and_a_hard_link_is_parted(place):
    """What was checked may have changed since."""
    check_files({"--out": Path("out")})
    os.mkfifo("out")
    with pytest.raises(ConfigError, match="out is a pipe"):
        write_file(Path("out"), b"new")
    Path("mine").write_text("mine")
    Path("same").hardlink_to("mine")
    write_file(Path("same"), b"new")
    assert Path("mine").read_text() == "mine"


def test_lines_are_added_to_files_and_streams_alone(place):
    """A link would choose the file."""
    Path("mine").write_text("mine")
    Path("link").symlink_to("mine")
    os.mkfifo("pipe")
    for name in ("link", "pipe"):
        with pytest.raises(ConfigError, match="cannot be written"):
            append_file(Path(name), b"more")
    append_file(Path("/dev/null"), b"more")
    append_file(Path("mine"), b", more")
    assert Path("mine").read_text() == "mine, more"
