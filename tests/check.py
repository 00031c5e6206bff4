"""Run the checks and the tests that a change to some files touches: `make check FILE...`.

A test file is touched when it is changed, when it names a changed module or one that names it (the nearest ones that
have tests), or when it mentions a changed page, policy or other file. A file names what it imports, also by a front
(`dataaudit.build` is a name of `dataaudit.api.building`), and what it holds as text for `resolve_name` or
`import_module`. What is left out is printed: test files that reach the change from farther away, and those whose
libraries are not installed.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from lanes import NEEDS_TORCH, part_of_file

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "dataaudit"
REGISTRY = f"{PACKAGE}.metrics.registry"
EVERY_FAMILY = {"test_stages", "test_new_family"}
"""Tests that run the stage and the link step of every family of metrics."""
NO_TESTS = 5
"""Exit code of pytest when every test was left out."""
PATH = re.compile(rf"({PACKAGE}(?:\.[\w*]+)+)(?::\w+)?")


def module_of(path: Path) -> str:
    """Return the dotted name of a file of the package, or of the tests."""
    parts = path.relative_to(ROOT / "tests" if path.is_relative_to(ROOT / "tests") else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names_in(path: Path) -> set[str]:
    """Return the dotted names that a file imports, uses or holds as text; `*` stands where text is filled in."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    own = module_of(path)
    known = {"__name__": own, "__package__": own if path.stem == "__init__" else own.rpartition(".")[0]}
    bound = {alias.asname or alias.name: name for node in nodes for name, alias in imported(node)}
    found = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module} | {*bound.values()}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            found.add(f"{bound[node.value.id]}.{node.attr}")
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(
                known.get(ast.unparse(part.value), "*") if isinstance(part, ast.FormattedValue) else str(part.value)
                for part in parts
            )
            found |= {match[1]} if (match := PATH.fullmatch(text)) else set()
    return found


def imported(node: ast.AST) -> list[tuple[str, ast.alias]]:
    """Return what a statement imports, by dotted names."""
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        return [(f"{node.module}.{alias.name}", alias) for alias in node.names]
    return [(alias.name, alias) for alias in node.names] if isinstance(node, ast.Import) else []


def modules_named() -> dict[Path, set[str]]:
    """Return the modules of the package and of the tests that each of their files names."""
    files = [*ROOT.glob(f"{PACKAGE}/**/*.py"), *ROOT.glob("tests/**/*.py")]
    modules = {module_of(path) for path in files}
    fronts = {
        f"{module_of(path)}.{alias.asname or alias.name}": name
        for path in files
        if path.stem == "__init__"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name, alias in imported(node)
    }

    def resolved(name: str) -> set[str]:
        if "*" in name:
            pattern = re.compile(name.replace(".", r"\.").replace("*", r"\w+"))
            return {module for module in modules if pattern.fullmatch(module)}
        own = {name} & modules or {name.rpartition(".")[0]} & modules
        return own | resolved(fronts[name]) if name in fronts else own

    return {path: {module for name in names_in(path) for module in resolved(name)} for path in files}


def tests_of(changed: list[Path]) -> tuple[list[Path], list[Path]]:
    """Return the test files that a change to some files touches, and those that reach it from farther away."""
    named = modules_named()
    tests = {path for path in named if path.name.startswith("test_")}
    touched: set[Path] = set()
    far: set[Path] = set()
    for file in changed:
        if file in tests:
            touched.add(file)
        elif file in named:
            near: set[Path] = set()
            ring, seen = {module_of(file)}, set[str]()
            while ring:
                users = {path for path, names in named.items() if names & ring}
                near, far = (near, far | users & tests) if near else (users & tests, far)
                seen |= ring
                ring = {module_of(path) for path in users - tests} - seen
            touched |= near
            families = [path for path in named if path.stem == "definition" or module_of(path) == REGISTRY]
            if file in families or any(module_of(file) in named[path] for path in families):
                touched |= {test for test in tests if test.stem in EVERY_FAMILY}
        else:
            mentioned = (file.stem if file.suffix == ".py" else file.name).encode()
            touched |= {test for test in tests if mentioned in test.read_bytes()}
    return sorted(touched), sorted(far - touched)


def left_out(touched: list[Path], far: list[Path]) -> list[str]:
    """Return lines about the tests that a change may touch and that are not run."""
    absent = [] if importlib.util.find_spec("torch") else [path for path in touched if part(path) in NEEDS_TORCH]
    said = {
        f"{len(far)} test files reach the change through other modules; `make test` and CI run them": far,
        "these need torch, which is not installed; `make test-ci PART=judges,torch,vitals` installs it": absent,
    }
    return [
        f"left out: {why}: {' '.join(str(path.relative_to(ROOT)) for path in paths)}"
        for why, paths in said.items()
        if paths
    ]


def part(path: Path) -> str:
    """Return the part that a test file is of."""
    return part_of_file(path.read_text(encoding="utf-8"))


def main(arguments: list[str]) -> int:
    """Check; return the first exit code that is not 0."""
    files = [Path(argument).resolve() for argument in arguments]
    gone = [str(file) for file in files if not file.exists()]
    if gone or not files:
        print(f"expected files that exist, found {' '.join(gone) or 'none'}", file=sys.stderr)
        return 2
    python = [str(file) for file in files if file.suffix == ".py"]
    touched, far = tests_of(files)
    commands = []
    if python:
        commands += [
            ["ruff", "check", *python],
            ["ruff", "format", "--check", *python],
            ["mypy"],
            ["lint-imports", "--no-logo"],
        ]
    if touched:
        tests = [str(test.relative_to(ROOT)) for test in touched]
        commands.append(["pytest", "--numprocesses", "2", "--dist", "loadfile", *tests])
    for command in commands:
        print(f"$ {' '.join(command)}", flush=True)
        code = subprocess.run(command, check=False, cwd=ROOT).returncode
        if code and not (command[0] == "pytest" and code == NO_TESTS):
            return code
    print("\n".join(left_out(touched, far)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
