"""What is no regular file is an error at once: opening a pipe without a writer would wait for ever."""

import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_manifest import make, shard

from dataaudit.base.files import NotAFileError, expect_file, open_safely, read_safely
from dataaudit.cli import main
from dataaudit.scan.corpus.storage.files import arrow_source, open_binary


def test_a_file_is_read_whole(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to(path)
    assert read_safely(path) == read_safely(tmp_path / "link") == path.read_bytes()
    expect_file(path)
    with pytest.raises(FileNotFoundError):
        read_safely(tmp_path / "b")


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "named")
    return tmp_path / "named"


def test_what_is_no_file_is_told_apart(tmp_path, pipe, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for path, says in ((pipe, "a pipe"), (Path("socket"), "a socket or a device"), (Path("/dev/zero"), "a socket")):
            for look in (read_safely, expect_file):
                with pytest.raises(NotAFileError, match=f"expected a file, found {says}"):
                    look(path)
    with pytest.raises(IsADirectoryError):
        read_safely(tmp_path)
    with pytest.raises(NotAFileError):  # with nobody who reads it
        open_safely(pipe, os.O_WRONLY)


def test_a_shard_that_became_a_pipe_is_not_waited_for(pipe):
    for look in (open_binary, arrow_source):
        with pytest.raises(NotAFileError):
            look(str(pipe))


@pytest.mark.parametrize(
    "arguments",
    [
        ["quarantine", "list", "{pipe}"],
        ["quarantine", "add", "{pipe}", "sha256:" + "0" * 64, "--reason", "x"],
        ["quarantine", "apply", "{pipe}", "--manifest", "{m}", "--out", "{m}-out"],
        ["gate", "{m}", "--policy", "{pipe}"],
        ["gate", "{m}", "--policy", "release-gate", "--quarantine-list", "{pipe}"],
        ["export", "verdict", "{m}", "--policy", "release-gate", "--quarantine-list", "{pipe}", "--out", "{m}.json"],
        ["verify", "{m}", "--quarantine-list", "{pipe}"],
        ["gate", "{m}", "--policy", "release-gate", "--public-key", "{pipe}", "--require-signature"],
        ["sign", "{m}", "--key", "{pipe}"],
        ["build", "{pipe}.yaml", "--manifest", "{m}-new"],
        ["build", "{m}", "--quarantine", "{pipe}", "--manifest", "{m}-new"],
        ["report", "{m}", "--verdict", "{pipe}", "--out", "{m}.html"],
        ["report", "{m}", "--quarantine", "{pipe}", "--out", "{m}.html"],
        ["show", "{pipe}"],
    ],
)
def test_no_command_waits_for_a_pipe(tmp_path, pipe, arguments):
    """Each ends with what it is and where, not by the clock."""
    make(tmp_path / "m", shards=[shard("a.jsonl")])
    os.mkfifo(f"{pipe}.yaml")
    done = CliRunner().invoke(main, [one.format(pipe=pipe, m=tmp_path / "m") for one in arguments])
    assert done.exit_code in {2, 3}, done.output
    assert any(words in done.output for words in ("found a pipe", "is not a file", "no manifest at")), done.output
    assert "internal error" not in done.output


def test_a_verdict_in_the_folder_that_is_a_pipe_is_said(tmp_path):
    make(tmp_path / "m", shards=[shard("a.jsonl")])
    os.mkfifo(tmp_path / "m" / "gate.json")
    done = CliRunner().invoke(main, ["report", str(tmp_path / "m"), "--out", str(tmp_path / "r.html")])
    assert "internal error" not in done.output
