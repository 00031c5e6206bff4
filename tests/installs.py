"""What an installation with some extras has, and commands that run in one."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from base_only import plain
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def distributions(extra=""):
    """Return the names that pyproject asks for in the base, or in an extra with those that it names."""
    lines = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    found = set()
    for requirement in map(Requirement, lines):
        if requirement.name == "dataaudit":
            found |= {name for one in requirement.extras for name in distributions(one)}
        elif requirement.marker is None or requirement.marker.evaluate():
            found.add(plain(requirement.name))
    return found


def closure(names):
    """Return distributions with all that they bring along."""
    found, left = set(), list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            try:
                lines = requires(name) or ()
            except PackageNotFoundError:  # of another platform
                continue
            wanted = [
                one for one in map(Requirement, lines) if one.marker is None or one.marker.evaluate({"extra": ""})
            ]
            left += [plain(one.name) for one in wanted]
    return found


def run(folder, commands, extras=()):
    """Run commands in one process that finds the base and some extras only, or everything for None."""
    wanted = set() if extras is None else distributions().union(*map(distributions, extras))
    asked = {"allowed": None if extras is None else sorted(closure(wanted)), "commands": commands}
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/base_only.py"), json.dumps(asked)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
