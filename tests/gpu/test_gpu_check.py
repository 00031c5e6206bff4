"""``make gpu-check`` as far as a CPU shows it: a dry run of every part, and what becomes of a process that fails."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from base_only import closure

from gpu import __main__ as command
from gpu.parts import FAILED, NO_TIME, NOT_APPLICABLE, NOT_EVALUATED, OK, PARTS

ROOT = Path(__file__).parents[2]
BASE = ("numpy", "orjson", "pyarrow", "pydantic", "pyyaml", "rfc8785", "torch", "transformers", "triton")
"""What a machine with a GPU has to have; these bring others along."""
REASONS = {
    NOT_EVALUATED: ("a dry run on a CPU: ",),
    NOT_APPLICABLE: ("it refuses to run on this device (", "vitals do not see it and say so ("),
}
"""What a CPU justifies in a row that is not ok."""
SCRIPT = """
import json, os, signal, sys, time
folder, rows, seconds, how, *parts = sys.argv[1:]
for part in parts:
    with open(rows, "a") as file:
        print(json.dumps({"begins": part}), file=file)
        if part in ("backends", "faults", "bits"):
            row = {"part": part, "check": "one", "status": "ok", "detail": "", "numbers": {}, "seconds": 0, "trace": ""}
            print(json.dumps(row), file=file)
    if part == "kernel":
        os.kill(os.getpid(), signal.SIGSEGV)
    if part in ("bits", "overhead"):
        time.sleep(60)
    with open(rows, "a") as file:
        print(json.dumps({"ends": part}), file=file)
    sys.exit(3) if part == "waits" else None
"""


def run(*arguments, first=(), **variables):
    """Run the command as a machine without an environment would."""
    path = os.pathsep.join([*map(str, first), str(ROOT), str(ROOT / "tests")])
    return subprocess.run(
        [sys.executable, "-m", "gpu", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **variables},
    )


@pytest.mark.torch
@pytest.mark.timeout(1_500)
def test_a_dry_run_beside_a_few_packages_runs_every_part(tmp_path):
    pytest.importorskip("torch", reason="the check is of torch")
    pytest.importorskip("transformers", minversion="5", reason="a model of it is trained")
    allowed = {"dataaudit", *closure(BASE)}
    (tmp_path / "sitecustomize.py").write_text(f"from base_only import hide\nhide({allowed!r})\n")
    done = run("--dry-run", "--out", tmp_path / "out", "--seconds", 1_400, first=(tmp_path,))
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == ["result.json", "table.md"]
    rows = result["rows"]
    assert list(dict.fromkeys(row["part"] for row in rows)) == list(PARTS)
    has_triton = importlib.util.find_spec("triton") is not None
    unjustified = [
        row
        for row in rows
        if row["status"] != OK and not row["detail"].startswith(REASONS.get(row["status"], ()))
        if has_triton or row["part"] != "kernel"
    ]
    assert not unjustified, result["logs"]
    assert {row["part"] for row in rows if row["status"] == OK} == {"kernel", "backends", "bits", "faults", "overhead"}
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "out" / "table.md").read_text()
    assert table.startswith("dry run on a CPU")
    assert table.count("\n| ") == len(rows) + 1


@pytest.mark.torch
def test_without_a_gpu_the_command_says_what_to_type(tmp_path):
    pytest.importorskip("torch", reason="the check is of torch")
    done = run("--parts", "faults", "--out", tmp_path / "out", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "there is no GPU (torch " in done.stderr
    assert "try `--dry-run`" in done.stderr


@pytest.mark.torch
def test_another_bit_and_another_head_than_the_planted_one_are_failures(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="the check is of torch")
    from gpu import bits, faults
    from gpu.checks import Machine

    plain = {"loss of step 1": torch.tensor(1.5), "weight": torch.tensor([1.0, float("nan")])}
    assert not bits.difference(plain, {name: one.clone() for name, one in plain.items()})
    other = plain | {"loss of step 1": torch.nextafter(plain["loss of step 1"], torch.tensor(2.0))}
    assert bits.difference(plain, other) == "1 of 2 tensors differ, loss of step 1 first, by 1.19e-07"
    machine = Machine(dry=True, folder=tmp_path, deadline=float("inf"))
    monkeypatch.setattr(faults, "_of_attention", lambda loop: loop.model.blocks[0].attention.qkv)
    row = machine.attempt("faults", "head", faults.growing_head, machine)
    assert row.status == FAILED
    assert row.detail == "AssertionError: planted in layer 1, head 2; named: [(0, 2)]"


def test_an_unknown_part_is_wrong_use():
    done = run("--parts", "kernels")
    assert done.returncode == 2
    assert "'kernels'" in done.stderr


@pytest.mark.torch
def test_a_part_that_ends_its_process_or_takes_too_long_is_a_row_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "CHILD", ("-c", SCRIPT))
    monkeypatch.setitem(command.PARTS, "bits", PARTS["bits"]._replace(seconds=1.0))
    code = command.check(tmp_path, list(PARTS), seconds=12.0, dry=False)
    rows = {row["part"]: row for row in json.loads((tmp_path / "result.json").read_text())["rows"]}
    said = {part: (row["status"], row["check"], row["detail"]) for part, row in rows.items()}
    assert said == {
        "kernel": (FAILED, "all", "its process ended (signal SIGSEGV); the log says more"),
        "backends": (OK, "one", ""),
        "bits": (FAILED, "the rest", "it was not done within 1 s"),
        "faults": (OK, "one", ""),
        **dict.fromkeys(("overhead", "monitor", "other_ways", "one_billion"), (NOT_EVALUATED, "all", NO_TIME)),
    }
    assert code == 1
    assert "2 failed, 4 not_evaluated, " in capsys.readouterr().out
