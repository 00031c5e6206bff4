"""Every regular expression of a module that looks at documents, found by walking the modules."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("scan", "metrics")
"""What sees documents, beside the samples."""
AT_START = {"match", "fullmatch"}
"""Methods that try one place alone."""


@dataclass(frozen=True)
class Found:
    """A pattern, and whether it is only ever tried at the start of a text."""

    pattern: re.Pattern
    at_start: bool


def patterns_of_modules():
    """Return the compiled patterns that modules hold, by module and name; methods of one are it."""
    found = {}
    for package in PACKAGES:
        root = importlib.import_module(f"dataaudit.{package}")
        names = [listed.name for listed in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")]
        for name_of_module in [*names, "dataaudit.engine.samples"]:
            module = importlib.import_module(name_of_module)
            used = _methods(Path(module.__file__).read_text("utf-8"))
            for name, value in vars(module).items():
                pattern = getattr(value, "__self__", value)
                if isinstance(pattern, re.Pattern):
                    methods = used.get(name, set()) | ({value.__name__} if pattern is not value else set())
                    at_start = bool(methods) and methods <= AT_START
                    found[f"{name_of_module.removeprefix('dataaudit.')}.{name}"] = Found(pattern, at_start)
    return found


def _methods(source):
    """Return the attributes that are asked of each name in a source."""
    used = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used.setdefault(node.value.id, set()).add(node.attr)
    return used
