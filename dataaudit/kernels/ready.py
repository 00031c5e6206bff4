"""Kernels compiled before workers need them: once for a machine, so that not each worker does it, unseen.

Numba's compiler holds a lock and is mostly Python, so processes share the work. Each takes the next kernel from a pipe
that all of them read, the largest first; what a process that died had taken is compiled here in the end.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from dataaudit.kernels.jit import Kernel, cache_folder

_MARKER = "compiled"
_MOST_HELPERS = 3
"""Processes beside this one, of some 250 MB each; with more of them the largest kernel is what is waited for."""
_SECONDS = 120.0
"""What a helper may take for its last kernel; then it is compiled here, too."""


def all_kernels() -> tuple[Kernel[Any, Any], ...]:
    """Return every compiled kernel of this package, those of most code first."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    modules = (importlib.import_module(f"dataaudit.kernels.{name}") for name in names)
    found = (value for module in modules for value in vars(module).values())
    kernels = dict.fromkeys(one for one in found if isinstance(one, Kernel) and one.signature is not None)
    return tuple(
        sorted(kernels, key=lambda kernel: -sum(len(part.function.__code__.co_code) for part in _parts(kernel)))
    )


def _parts(kernel: Kernel[Any, Any]) -> set[Kernel[Any, Any]]:
    """Return a kernel and all that is compiled into it."""
    found, new = set[Kernel[Any, Any]](), {kernel}
    while new:
        found |= new
        named = (one.function.__globals__.get(name) for one in new for name in one.function.__code__.co_names)
        new = {one for one in named if isinstance(one, Kernel)} - found
    return found


def _marker(folder: Path) -> Path:
    """Return the file that says so; numba keeps code by the path of its source, and by processor."""
    here = sha256(os.fsencode(Path(__file__).parent)).hexdigest()[:16]
    return folder / f"{_MARKER}-{platform.node()}-{here}"


def are_compiled() -> bool:
    """Tell, without loading anything, whether their code is kept on this machine; also when it cannot be kept."""
    folder = cache_folder()
    return folder is None or _marker(folder).exists()


def compile_all() -> None:
    """Compile every kernel and keep the code; half a minute of CPU the first time."""
    kernels, folder = all_kernels(), cache_folder()
    if folder is not None:
        taking, giving = os.pipe()
        try:
            os.write(giving, bytes(range(min(len(kernels), 256))))
            os.close(giving)
            with _helpers(taking):
                compile_next(taking)
        finally:
            os.close(taking)
    for kernel in kernels:
        kernel.load()
    if folder is not None:
        _marker(folder).touch()


def compile_next(taking: int) -> None:
    """Compile the kernels whose numbers come out of a pipe, a byte each, as long as some do."""
    kernels = all_kernels()
    while number := os.read(taking, 1):
        kernels[number[0]].load()


@contextmanager
def _helpers(taking: int) -> Iterator[None]:
    """Have other processes take part; one that cannot be started, or does not get on, is done without."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    started: list[subprocess.Popen[bytes]] = []
    try:
        if sys.executable and not getattr(sys, "frozen", False):  # else it starts something else
            with contextlib.suppress(OSError):
                started.extend(_start_helper(taking) for _ in range(min(_MOST_HELPERS, cores - 1)))
        yield
        with contextlib.suppress(subprocess.TimeoutExpired):
            for process in started:
                process.wait(_SECONDS)
    finally:
        for process in started:
            process.kill()
            process.wait()


def _start_helper(taking: int) -> subprocess.Popen[bytes]:
    code = "from dataaudit.kernels.ready import compile_next; compile_next(0)"
    command, away = [sys.executable, "-P", "-c", code], subprocess.DEVNULL
    return subprocess.Popen(command, stdin=taking, stdout=away, stderr=away)
