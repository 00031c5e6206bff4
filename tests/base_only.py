"""Runs command lines in one process to which only some distributions are installed; prints what each said as JSON.

    python base_only.py '{"allowed": ["click", ...] or null, "commands": [["show", "DIR"], ...]}'

Modules of every other distribution, and their metadata, cannot be found. With null nothing is hidden.
"""

import contextlib
import io
import json
import runpy
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires


def plain(name):
    """Return the normal form of a distribution's name."""
    return name.lower().replace("_", "-").replace(".", "-")


def closure(names):
    """Return distributions with all that they bring along."""
    from packaging.requirements import Requirement  # whoever hides it asked before

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


class Filter:
    """A finder that finds what another one does, but nothing of the distributions that are hidden.

    Args:
        finder: The other one.
        allowed: Names of distributions.
        hidden: Top-level modules.
    """

    def __init__(self, finder, allowed, hidden):
        self._finder, self._allowed, self._hidden = finder, allowed, hidden

    def find_spec(self, name, path=None, target=None):
        """Find a module."""
        return None if name.partition(".")[0] in self._hidden else self._finder.find_spec(name, path, target)

    def find_distributions(self, *context):
        """Find the metadata of distributions."""
        for found in getattr(self._finder, "find_distributions", lambda *_: ())(*context):
            if plain(found.metadata["Name"]) in self._allowed:
                yield found

    def invalidate_caches(self):
        """Pass it on."""
        getattr(self._finder, "invalidate_caches", lambda: None)()


def hide(allowed):
    """Hide all distributions but these."""
    hidden = {module for module, names in packages_distributions().items() if not allowed & set(map(plain, names))}
    assert not hidden & set(sys.modules) - {"sitecustomize", "_virtualenv", "_distutils_hack"}
    sys.meta_path[:] = [Filter(finder, allowed, hidden) for finder in sys.meta_path]


def run(command):
    """Run one command line as the program would, or the file of Python that it names."""
    from dataaudit.cli import main

    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(command[0]) if command[0].endswith(".py") else main(command)
        except SystemExit as stopped:
            code = stopped.code
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    if asked["allowed"] is not None:
        hide({"dataaudit", *asked["allowed"]})
    print(json.dumps([run(command) for command in asked["commands"]]))
