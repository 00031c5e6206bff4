"""Run the checks and the tests that a change to some files touches: `make check FILE...`.

A test file is touched when it is changed, when it imports a changed module or one that imports it (the nearest ones
that have tests), or when it names a changed page, policy or other file.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "dataaudit"
TWINS = "twins"


def module_of(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    """Return the modules of the package and the slow twins, and names in them, that a file imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] in {PACKAGE, TWINS}}


def tests_of(files: list[Path]) -> list[Path]:
    """Return the test files that a change to some files touches, in order."""
    tests = sorted(ROOT.glob("tests/**/test_*.py"))
    by_test = {test: imports_of(test) for test in tests}
    by_module = {module_of(path): imports_of(path) for path in ROOT.glob(f"{PACKAGE}/**/*.py")}
    for name in list(by_module):  # families and readers are named by path, not imported
        if name.endswith((".definition", ".facts", ".stage", ".link")) and name.startswith(f"{PACKAGE}.metrics."):
            by_module[f"{PACKAGE}.metrics.registry"].add(name)
        if name.startswith(f"{PACKAGE}.corpus.readers."):
            by_module[f"{PACKAGE}.corpus.readers"].add(name)
    for test in tests:
        if test.parent.name == "conformance" or test.stem == "test_new_family":
            by_test[test].add(f"{PACKAGE}.metrics.registry")
    touched: set[Path] = set()
    for file in files:
        if file in by_test:
            touched.add(file)
        elif file.suffix == ".py" and file.is_relative_to(ROOT / PACKAGE):
            changed, seen = {module_of(file)}, set()
            while changed and not (own := {test for test, names in by_test.items() if names & changed}):
                seen |= changed
                changed = {name for name, names in by_module.items() if names & changed} - seen
            touched |= own if changed else set()
        elif file.parent == ROOT / "tests" / TWINS:
            touched |= {test for test, names in by_test.items() if f"{TWINS}.{file.stem}" in names}
        else:
            named = (file.stem if file.suffix == ".py" else file.name).encode()
            touched |= {test for test in tests if named in test.read_bytes()}
    return sorted(touched)


def main(arguments: list[str]) -> int:
    """Check; return the first exit code that is not 0."""
    files = [Path(argument).resolve() for argument in arguments]
    gone = [str(file) for file in files if not file.exists()]
    if gone or not files:
        print(f"expected files that exist, found {' '.join(gone) or 'none'}", file=sys.stderr)
        return 2
    python = [str(file) for file in files if file.suffix == ".py"]
    tests = [str(test.relative_to(ROOT)) for test in tests_of(files)]
    commands = []
    if python:
        commands += [
            ["ruff", "check", *python],
            ["ruff", "format", "--check", *python],
            ["mypy"],
            ["lint-imports", "--no-logo"],
        ]
    if tests:
        commands.append(["pytest", "--numprocesses", "2", "--dist", "loadfile", *tests])
    for command in commands:
        print(f"$ {' '.join(command)}", flush=True)
        code = subprocess.run(command, check=False, cwd=ROOT).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
