"""Run families of checks one after another, and write down which have passed, when, at which commit, in how long.

    python tests/families.py parts kills,torch     # or `all`; what `make test-ci` runs
    python tests/families.py parts all 9           # after 9 minutes begins no more, and names what it left out
    python tests/families.py release               # what `make test-all` runs

What has passed stands in `tests/passed.txt`, a line a family: of the parts when all have passed in one run, of a
release run as it goes. A release run that was broken off or failed goes on with the families that have no line yet;
when all have one, the next run starts anew.
"""

import datetime as dt
import os
import subprocess
import sys
import time
from pathlib import Path

from lanes import ALWAYS, PARTS, VARIABLE, WHOLE_RUN

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests/passed.txt"
LIBRARIES = ("mosaicml-streaming", "litdata", "megatron-core")
FRAMEWORKS = "frameworks"
"""The part that installs trainers and trackers; a test that is skipped there has failed."""
MOSTLY_ONE_FILE = "stores"
"""Two thirds of what this lane repeats are a single file, whose tests two processes share."""
NO_TESTS = 5
"""Exit code of pytest where it found no test: a part whose tests have no further repetitions has passed."""


def tests_of(*names):
    """Return the command and the variables that run the tests of some lanes."""
    shared = "worksteal" if names == (MOSTLY_ONE_FILE, WHOLE_RUN) else "loadfile"
    command = (sys.executable, "-m", "pytest", "--numprocesses", "2", "--dist", shared)
    return command, {VARIABLE: ",".join(names), "OMP_NUM_THREADS": "1"}


def parts():
    """Return each part's command."""
    return {part: tests_of(part) for part in PARTS} | {FRAMEWORKS: (("make", f"test-{FRAMEWORKS}"), {})}


def release():
    """Return the command of each family of a release run, the short families first."""
    short = {name: (("make", f"test-{name}"), {}) for name in (*LIBRARIES, FRAMEWORKS)}
    short |= {"packages": (("make", "dist-check"), {}), "benchmarks": tests_of("benchmarks")}
    return short | {f"whole {lane}": tests_of(lane, WHOLE_RUN) for lane in (*PARTS, ALWAYS)}


def ran(name, command, variables):
    """Run a family; return its minutes, or none if it failed."""
    print(
        f"== {name}: {' '.join(f'{key}={value}' for key, value in variables.items())} {' '.join(command)}", flush=True
    )
    began = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False).returncode
    code = 0 if code == NO_TESTS and name.startswith("whole ") else code
    minutes = round((time.monotonic() - began) / 60, 1)
    print(f"== {name}: {'passed' if code == 0 else f'exit code {code}'}, {minutes} min", flush=True)
    return minutes if code == 0 else None


def commit():
    """Return the newest commit, with a plus sign where files other than the record differ from it."""
    others = ("--", ".", ":!tests/passed.txt")
    calls = (("rev-parse", "--short=8", "HEAD"), ("status", "--porcelain", "--untracked-files=no", *others))
    at, changed = (subprocess.check_output(["git", *call], cwd=ROOT, text=True).strip() for call in calls)
    return at + ("+" if changed else "")


def recorded(kind):
    """Return the lines of a kind of run, by family: date, commit and minutes."""
    lines = RECORD.read_text("utf-8").splitlines() if RECORD.exists() else []
    parted = [line.split(": ") for line in lines]
    return {found[1]: found[2] for found in parted if len(found) == 3 and found[0] == kind}


def write_down(kind, passed, number):
    """Renew the lines of a kind of run in the record; the first says how many families of all have passed."""
    lines = RECORD.read_text("utf-8").splitlines() if RECORD.exists() else []
    minutes = sum(float(said.split()[-2]) for said in passed.values())
    said = "all" if len(passed) == number else f"{len(passed)} of {number}"
    new = [f"{kind}: {said} passed, {minutes:.1f} min", *(f"{kind}: {name}: {said}" for name, said in passed.items())]
    RECORD.write_text(
        "".join(f"{line}\n" for line in [*(line for line in lines if not line.startswith(f"{kind}:")), *new]), "utf-8"
    )


def run(kind, families, *, resume, most=float("inf")):
    """Run families, with resume those alone that the record does not name; return the exit code.

    After so many minutes begins no more, but the first always does.
    """
    passed = recorded(kind) if resume else {}
    passed = {} if passed.keys() >= families.keys() else {name: passed[name] for name in families if name in passed}
    failed, began = [], time.monotonic()
    for place, (name, (command, variables)) in enumerate(families.items()):
        if place and time.monotonic() - began > most * 60:
            left = ",".join([*families][place:])
            print(f"after {most:g} minutes no part begins: make test-ci PART={left}", flush=True)
            break
        if name in passed:
            print(f"== {name}: passed before, {passed[name]}", flush=True)
        elif (minutes := ran(name, command, variables)) is None:
            failed.append(name)
        else:
            passed[name] = f"{dt.datetime.now(dt.UTC):%F}, commit {commit()}, {minutes} min"
            if resume:
                write_down(kind, passed, len(families))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    if not resume and passed.keys() == parts().keys():
        write_down(kind, passed, len(families))
    return 0


def main(arguments):
    """Run what the command line names."""
    match arguments:
        case ["parts", names, *most]:
            every = parts()
            chosen = [*every] if names == "all" else names.replace(",", " ").split()
            if unknown := [name for name in chosen if name not in every]:
                expected = ", ".join([*every, "all"])
                print(f"PART: expected some of {expected}, found {', '.join(unknown)}", file=sys.stderr)
                return 2
            most = {"most": float(most[0])} if most else {}
            return run("test-ci", {name: every[name] for name in chosen}, resume=False, **most)
        case ["release"]:
            return run("test-all", release(), resume=True)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
