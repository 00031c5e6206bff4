"""Print the parts of the tests that CI runs: those that the change of the last day reaches, and another in turn.

    python tests/reached.py

The last day is the one before the newest commit. The turn follows the date and the number of commits, so that every
part runs again within few days whatever changes. A part is reached by its paths below, or by a test file of its own.
No more than :data:`MOST` run, so that CI takes 12 minutes, and half an hour on a slow machine: of a change that reaches
more, those whose turn it is. The others are named, to be run by whoever made the change.
"""

import datetime as dt
import subprocess
import sys
from pathlib import Path

from families import FRAMEWORKS
from lanes import ALWAYS, PARTS, part_of_file

ROOT = Path(__file__).resolve().parents[1]
REACHED_BY = {
    "kills": """
        dataaudit/engine/ dataaudit/base/process.py dataaudit/base/files.py dataaudit/base/errors.py
        dataaudit/base/cache.py dataaudit/api/
    """,
    "children": """
        dataaudit/engine/ dataaudit/base/process.py dataaudit/base/files.py dataaudit/scan/corpus/readers/
        dataaudit/live/
    """,
    "stores": "dataaudit/scan/corpus/storage/ dataaudit/base/redact.py dataaudit/engine/ dataaudit/manifest/",
    "inputs": "dataaudit/scan/corpus/ dataaudit/base/errors.py",
    "judges": """
        dataaudit/scan/detectors/ dataaudit/scan/annotators.py dataaudit/engine/samples.py
        dataaudit/base/errors.py dataaudit/base/text.py dataaudit/base/extras.py dataaudit/base/render/
        dataaudit/present/ docs/ mkdocs.yml
    """,
    "torch": """
        dataaudit/training/ dataaudit/live/ dataaudit/probes/ dataaudit/lab/ dataaudit/runlog/
        dataaudit/base/async_copy.py examples/ pipelines/demo_train.py tests/gpu/
    """,
    "vitals": "dataaudit/vitals/ dataaudit/base/async_copy.py tests/attention_cases.py",
    "tables": """
        dataaudit/metrics/ dataaudit/scan/kernels/ dataaudit/scan/cross_shard/ dataaudit/scan/stages/
        dataaudit/manifest/
        dataaudit/decide/ dataaudit/cli/ dataaudit/config.py dataaudit/base/ dataaudit/scan/__init__.py tests/check.py
    """,
    "builds": """
        dataaudit/metrics/ dataaudit/scan/stages/ dataaudit/scan/cross_shard/ dataaudit/engine/ dataaudit/config.py
    """,
    "runs": "dataaudit/training/ dataaudit/vitals/ dataaudit/probes/ dataaudit/live/ dataaudit/runlog/",
    FRAMEWORKS: "dataaudit/training/loaders/ dataaudit/live/sinks/ dataaudit/live/dashboards/ docs/frameworks/",
}
"""Beginnings of the paths whose change a part guards against."""
EVERY = (*PARTS, FRAMEWORKS)
MOST = 3
"""Parts that run, at most."""
EVERYTHING = ("pyproject.toml", "requirements", "constraints.txt", "Makefile", ".ci/", "tests/conftest.py")


EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""What git calls the tree without files."""


def git(*arguments):
    """Return what git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def reached(paths):
    """Return the parts that a change of some paths reaches."""
    found = set()
    for path in paths:
        if path.startswith(EVERYTHING):
            return set(EVERY)
        found |= {part for part, beginnings in REACHED_BY.items() if path.startswith((*beginnings.split(),))}
        if path.startswith("tests/") and path.endswith(".py") and (ROOT / path).exists():
            found.add(part_of_file((ROOT / path).read_text(encoding="utf-8")))
    return found - {ALWAYS}


def in_turn(by_change, turn):
    """Return the parts that run of those that a change reaches, with one that it does not; and those that do not."""
    others = [part for part in EVERY if part not in by_change]
    listed = [*others[turn % len(others) :][:1]] if others else []
    first = turn % len(EVERY)
    listed += [part for part in (*EVERY, *EVERY)[first : first + len(EVERY)] if part in by_change]
    return listed[:MOST], listed[MOST:]


def main():
    """Print the parts, separated by blanks; why goes to stderr."""
    if git("rev-parse", "--is-shallow-repository") == "true":
        print("this clone is shallow: CI has to see the change of the last day: git fetch --unshallow", file=sys.stderr)
        return 2
    newest = int(git("log", "-1", "--format=%ct"))
    before = git("rev-list", "-1", f"--before={newest - 24 * 3600}", "HEAD") or EMPTY
    by_change = reached(git("diff", "--name-only", before, "HEAD").splitlines())
    day = dt.datetime.fromtimestamp(newest, dt.UTC).toordinal()
    run, left = in_turn(by_change, day + int(git("rev-list", "--count", "HEAD")))
    print(f"reached by the change since {before[:8]}: {', '.join(sorted(by_change)) or 'none'}", file=sys.stderr)
    if left:
        print(f"not run here: make test-ci PART={','.join(left)}", file=sys.stderr)
    print(*run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
