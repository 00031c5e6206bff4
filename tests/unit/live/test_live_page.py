"""The page of heartbeats and triage: its Python runs, and its output is what the command prints."""

import re
import shutil
from pathlib import Path

from click.testing import CliRunner

from dataaudit.cli import main
from dataaudit.live.log_patterns import ErrorClass, Stage

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/live/heartbeats.md").read_text("utf-8")


def test_the_python_of_the_page_runs(tmp_path, monkeypatch, capsys):
    """The loop beats, and the reader sees where it ended."""
    monkeypatch.chdir(tmp_path)
    loop, reader = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {"rank": 0, "world_size": 1, "batches": range(3)}
    exec(compile(loop, "loop", "exec"), names)  # noqa: S102  (our own page, docs/live/heartbeats.md)
    exec(compile(reader, "reader", "exec"), names)  # noqa: S102
    assert capsys.readouterr().out == "1 rank, attempt 0: 1 ended\n"
    assert names["report"].ranks[0].step == 3


def test_the_output_on_the_page_is_what_is_printed(tmp_path, monkeypatch):
    """Of a recorded log."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests/live_logs/recorded/hang/launcher.log", "slurm-1234.out")
    shown = re.search(r"\$ dataaudit triage-log slurm-1234.out\n(.*?)```", PAGE, re.DOTALL)[1]
    assert CliRunner().invoke(main, ["triage-log", "slurm-1234.out"]).output.startswith(shown)


def test_the_page_names_every_class_and_stage():
    """And the counts of what it was tried on."""
    assert [name for name in (*ErrorClass, *Stage) if f"`{name}`" not in PAGE] == []
