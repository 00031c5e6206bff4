"""What the processes of a build import and compile before they read, counted."""

import os
import subprocess
import sys

import pytest
from corpus import documents, rows, write_jsonl, write_parquet, write_slow_tokenizer

from dataaudit.scan.kernels.jit import cache_folder

pytestmark = pytest.mark.children
COUNT = """
import os, sys

def tell(event):
    with open(os.path.join(os.environ["TOLD"], str(os.getpid())), "a") as told:
        print(event, file=told)

class Watch:
    def find_spec(self, name, path, target=None):
        if name in ("pandas", "scipy.linalg", "awkward._connect.numba"):
            tell(name)

tell("start")
sys.meta_path.insert(0, Watch())
import hyperscan

plain = hyperscan.Database

class Database(plain):
    def compile(self, *args, **kwargs):
        tell("compiled" if len(kwargs["expressions"]) > 1 else "asked for the machine")
        return super().compile(*args, **kwargs)

hyperscan.Database = Database
"""
"""Runs at the start of every process, and writes down what happens there."""
LEFT_OUT = {"pandas", "scipy.linalg", "awkward._connect.numba"}
"""What pyarrow and numba would import: a second of CPU in each process."""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Build a corpus of two formats in processes of their own; return what the command and what the others told."""
    write_jsonl(tmp_path / "data" / "a.jsonl", rows(documents(20, seed=1), "s"))
    write_parquet(tmp_path / "data" / "b.parquet", rows(documents(20, seed=2), "s"))
    write_slow_tokenizer(tmp_path / "tokenizer.json")  # two encoders of the default one are compared for a while
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(COUNT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "patch"), os.environ.get("PYTHONPATH", "")]))

    def run(*options, times=1):
        folder = tmp_path / f"told{times}"
        folder.mkdir()
        monkeypatch.setenv("TOLD", str(folder))
        command = [sys.executable, "-m", "dataaudit", "build", "data", "--manifest", "m", "--fresh"]
        command += ["--tokenizer", "tokenizer.json", *options]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            assert process.wait(timeout=200) == 0
        written = {path.name: path.read_text().splitlines() for path in folder.iterdir()}
        return written.pop(str(process.pid)), list(written.values())

    return run


@pytest.mark.parametrize("options", [("--workers", "0"), ("--workers", "1")], ids=["no worker", "one worker"])
def test_no_process_imports_what_it_does_not_need_and_patterns_are_compiled_once(told, options, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache_folder().parent))  # machine code is another test's
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command, others = told(*options)
    assert others, "a child reads Parquet"
    assert not [events for events in others if LEFT_OUT & set(events)]
    assert not LEFT_OUT & set(command) or options[1] != "0", "the dashboard of Dask imports pandas"
    assert sum(events.count("compiled") for events in [command, *others]) >= 1
    command, others = told(*options, times=2)
    assert "compiled" not in command
    assert not [events for events in others if {*LEFT_OUT, "compiled"} & set(events)]
