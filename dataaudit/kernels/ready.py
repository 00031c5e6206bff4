"""Kernels compiled before workers need them: once for a machine, so that not each worker does it, unseen."""

from __future__ import annotations

import importlib
import os
import pkgutil
import platform
from hashlib import sha256
from pathlib import Path
from typing import Any

from dataaudit.kernels.jit import Kernel, cache_folder

_MARKER = "compiled"


def all_kernels() -> tuple[Kernel[Any, Any], ...]:
    """Return every compiled kernel of this package."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    modules = (importlib.import_module(f"dataaudit.kernels.{name}") for name in names)
    found = (value for module in modules for value in vars(module).values())
    return tuple(dict.fromkeys(one for one in found if isinstance(one, Kernel) and one.signature is not None))


def _marker(folder: Path) -> Path:
    """Return the file that says so; numba keeps code by the path of its source, and by processor."""
    here = sha256(os.fsencode(Path(__file__).parent)).hexdigest()[:16]
    return folder / f"{_MARKER}-{platform.node()}-{here}"


def are_compiled() -> bool:
    """Tell, without loading anything, whether their code is kept on this machine; also when it cannot be kept."""
    folder = cache_folder()
    return folder is None or _marker(folder).exists()


def compile_all() -> None:
    """Compile every kernel and keep the code; some 20 seconds the first time."""
    for kernel in all_kernels():
        kernel.load()
    folder = cache_folder()
    if folder is not None:
        _marker(folder).touch()
