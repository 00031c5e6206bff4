"""Functions by names that another process can import."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from dataaudit.base.errors import ConfigError


def named(function: str | Callable[..., Any]) -> str:
    """Return how another process finds a function: ``module:name``, or ``file.py:name`` of a script's own.

    Raises:
        ConfigError: It is no function of a module, or it is not named so.
    """
    if isinstance(function, str):
        if function.count(":") != 1 or not all(function.split(":")):
            raise ConfigError(f"{function!r}: expected module:function, or file.py:function")
        return function
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", "")
    file = getattr(sys.modules.get(module), "__file__", None)
    if not name or "<" in name or (module == "__main__" and file is None):
        raise ConfigError(
            f"{name or function!r} cannot be imported by another process",
            "Give a function at the top of a module, or its name: module:function.",
        )
    return f"{os.path.abspath(str(file)) if module == '__main__' else module}:{name}"


def find(name: str) -> Callable[..., Any]:
    """Return the function that :func:`named` names.

    Raises:
        ConfigError: There is none of that name.
    """
    where, _, function = name.rpartition(":")
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location("dataaudit_restored_loop", where)
        if spec is None or spec.loader is None:
            raise ConfigError(f"{where}: there is no such file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    callable_: Callable[..., Any] | None = getattr(module, function, None)
    if not callable(callable_):
        raise ConfigError(f"{where} has no function {function}")
    return callable_
