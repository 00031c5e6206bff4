"""What an installation with some extras has, and commands that run in one."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from base_only import closure, plain
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
