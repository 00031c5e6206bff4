"""Run families of checks one after another, and write down which have passed, when, at which commit, in how long.

    python tests/families.py parts kills,torch     # or `all`; what `make test-ci` runs
    python tests/families.py release               # what `make test-all` runs

A release run that was broken off or failed goes on with the families that have not passed yet. When all have passed,
its lines in `tests/passed.txt` are new, as are those of the parts when all of them have passed in one run.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from lanes import ALWAYS, PARTS, VARIABLE, WHOLE_RUN

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests/passed.txt"
STATE = ROOT / ".test-all.json"
"""What has passed of a release run that is not complete; git ignores it."""
FRAMEWORKS = ("mosaicml-streaming", "litdata", "megatron-core", "ai2-olmo-core", "torchtitan")
SHARED = ("--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder")


def tests_of(names, *, alone):
    """Return the command and the variables that run the tests of some lanes; alone in one process."""
    given = () if alone else SHARED
    return (sys.executable, "-m", "pytest", *given), {VARIABLE: ",".join(names), "OMP_NUM_THREADS": "1"}


def parts():
    """Return each part's command: kills run in one process, for each test starts several."""
    return {part: tests_of((part,), alone=part == "kills") for part in PARTS}


def release():
    """Return the command of each family of a release run: repetitions, scripts of benchmarks, packages, frameworks."""
    lanes = (ALWAYS, *PARTS)
    found = {f"whole {lane}": tests_of((lane, WHOLE_RUN), alone=lane == "kills") for lane in lanes}
    found["benchmarks"] = tests_of(("benchmarks",), alone=False)
    found["packages"] = ("make", "dist-check"), {}
    return found | {name: (("make", f"test-{name}"), {}) for name in FRAMEWORKS}


def ran(name, command, variables):
    """Run a family; return its minutes, or none if it failed."""
    print(
        f"== {name}: {' '.join(f'{key}={value}' for key, value in variables.items())} {' '.join(command)}", flush=True
    )
    began = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False).returncode
    minutes = round((time.monotonic() - began) / 60, 1)
    print(f"== {name}: {'passed' if code == 0 else f'exit code {code}'}, {minutes} min", flush=True)
    return minutes if code == 0 else None


def commit():
    """Return the newest commit, with a plus sign where files differ from it."""
    calls = (("rev-parse", "--short=8", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    at, changed = (subprocess.check_output(["git", *call], cwd=ROOT, text=True).strip() for call in calls)
    return at + ("+" if changed else "")


def write_down(kind, passed):
    """Renew the lines of a kind of run in the record: date, commit and minutes of each family."""
    lines = RECORD.read_text("utf-8").splitlines() if RECORD.exists() else []
    total = sum(minutes for *_, minutes in passed.values())
    new = [f"{kind}: all passed, {total:.1f} min", *(
        f"{kind}: {name}: {day}, commit {at}, {minutes} min" for name, (day, at, minutes) in passed.items()
    )]  # fmt: skip
    kept = [line for line in lines if line.partition(":")[0] != kind]
    RECORD.write_text("\n".join([*kept, *new]) + "\n", encoding="utf-8")
    print("\n".join(new))


def run(kind, families, passed, *, whole, save=None):
    """Run the families that have not passed; return the exit code."""
    failed = []
    for name, (command, variables) in families.items():
        if name in passed:
            print(f"== {name}: passed before, {passed[name]}", flush=True)
            continue
        minutes = ran(name, command, variables)
        if minutes is None:
            failed.append(name)
        else:
            passed[name] = (f"{dt.datetime.now(dt.UTC):%F}", commit(), minutes)
            if save:
                save.write_text(json.dumps(passed), encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    if whole:
        write_down(kind, passed)
    if save:
        save.unlink(missing_ok=True)
    return 0


def main(arguments):
    """Run what the command line names."""
    match arguments:
        case ["parts", names]:
            every = parts()
            chosen = [*every] if names == "all" else names.replace(",", " ").split()
            if unknown := [name for name in chosen if name not in every]:
                expected = ", ".join([*every, "all"])
                print(f"PART: expected some of {expected}, found {', '.join(unknown)}", file=sys.stderr)
                return 2
            return run("test-ci", {name: every[name] for name in chosen}, {}, whole=len(chosen) == len(every))
        case ["release"]:
            passed = json.loads(STATE.read_bytes()) if STATE.exists() else {}
            return run("test-all", release(), passed, whole=True, save=STATE)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
