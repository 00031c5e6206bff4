"""A script without the guard of its main module: workers that run it again end at once, and the message names it."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys

import pytest

from dataaudit import api
from dataaudit.base.errors import ConfigError

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
    own = "".join(line for line in done.stdout.splitlines(keepends=True) if line != "before\n")
    assert own == (  # a worker that runs the script again may have come as far as its first line
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
