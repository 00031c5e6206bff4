"""The scripts of `benchmarks/` run: nothing of what they call has gone, and small runs of them end well."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import documents, rows, write_jsonl

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if "add_argument" in path.read_text("utf-8"))
SMALL = {
    "large_manifest.py": ("--shards", "200"),
    "many_shards.py": ("TEXTS", "--shards", "8", "--workers", "1", "--folder", "WORK"),
    "scan.py": ("TEXTS", "--profile"),
    "shard_batches.py": ("TEXTS", "--documents", "20", "--forms", "one-file", "groups-1", "batches-1", "files-1"),
    "simulated_shards.py": ("TEXTS", "--shards", "70", "--workers", "1", "--folder", "WORK"),
    "worst_inputs.py": ("--kb", "5", "10"),
}


def run(script, *options):
    """Run a script; one that needs a library which is not installed is skipped."""
    call = [sys.executable, FOLDER / script, *options]
    done = subprocess.run([*map(str, call)], capture_output=True, text=True, check=False, cwd=FOLDER.parent)
    if missing := re.search(r"^ModuleNotFoundError: No module named '(\w+)", done.stderr, re.MULTILINE):
        pytest.skip(f"needs {missing[1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.benchmarks
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_what_it_takes(script):
    assert "usage:" in run(script, "--help")


@pytest.mark.benchmarks
@pytest.mark.parametrize("script", SMALL)
def test_a_small_run_ends_well(script, tmp_path):
    """On a corpus of a few hundred documents."""
    texts = tmp_path / "texts"
    write_jsonl(texts / "a.jsonl", rows(documents(300), "web"))
    (texts / "a.md").write_text("\n\n".join("one paragraph of many words, " * 20 + str(n) for n in range(40)), "utf-8")
    places = {"TEXTS": texts, "WORK": tmp_path}
    assert run(script, *(places.get(one, one) for one in SMALL[script])).strip()


@pytest.mark.tables
def test_the_profile_of_a_scan_names_every_step(tmp_path):
    """It builds, in one process, with the default stages; all that it times has time."""
    write_jsonl(tmp_path / "texts/a.jsonl", rows(documents(100), "web"))
    said = run("scan.py", tmp_path / "texts", "--profile")
    for step in ("languages", "patterns", "encode", "read", "stage near_dup", "around the scan"):
        assert step in said
