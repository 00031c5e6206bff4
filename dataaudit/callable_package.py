"""Packages that are functions too: ``dataaudit.gate(...)`` calls the API, and ``import dataaudit.gate.run`` imports.

Four functions of the API have the names of the packages that do their work. Python sets a package as an attribute of
its parent when it is first imported, over whatever stands there; so the packages themselves can be called, and nothing
depends on what was imported before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature


class CallablePackage(ModuleType):
    """A package that passes calls on to the function of its name in :mod:`dataaudit.api`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self._function(*args, **kwargs)

    @property
    def __signature__(self) -> Signature:
        """The function's, for help in a notebook."""
        from inspect import signature

        return signature(self._function)

    @property
    def _function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module("dataaudit.api"), self.__name__.rpartition(".")[2])
        return function


def make_callable(name: str) -> None:
    """Let a package, which is being imported, be called as the API's function of its name."""
    sys.modules[name].__class__ = CallablePackage
