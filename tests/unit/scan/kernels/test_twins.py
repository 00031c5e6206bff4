"""Slow twins share no code with what they check."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
import twins

from dataaudit.scan.kernels import plain_words

TWINS = sorted(Path(twins.__file__).parent.glob("*.py"))
FILES = [*TWINS, Path(plain_words.__file__)]


def imported(path):
    """Return the packages that a file imports, at its top or anywhere in it; ``.`` for a relative import."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." if node.level else node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_imports_the_standard_library_alone(path):
    assert imported(path) <= sys.stdlib_module_names | {"twins"}
    assert not imported(path) & {"importlib", "runpy"}, "a twin that loads modules by name could load what it checks"


def test_every_twin_is_what_some_test_compares_with():
    tests = [path.read_text(encoding="utf-8") for path in Path(twins.__file__).parents[2].glob("**/*.py")]
    for twin in TWINS:
        named = (f"from twins import {twin.stem}", f"from twins.{twin.stem} import")
        assert twin.stem == "__init__" or any(name in test for name in named for test in tests), twin.stem
