"""Kernels compiled before workers need them: once for a machine, so that not each worker does it, unseen.

Numba's compiler holds a lock and is mostly Python, so processes share the work. They begin while this one still does
something else. Each takes the next kernel from a pipe that all of them read, the largest first, and reports in
another what it has done; what nobody has done in the end, since a process died or did not get on, is compiled here.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import platform
import select
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from dataaudit.atomic import write_whole
from dataaudit.kernels.jit import Kernel, cache_folder

_MARKER = "compiled"
_MOST_HELPERS = 3
"""Processes beside this one, of some 250 MB each; with more of them the largest kernel is what is waited for."""
_SECONDS = 120.0
"""What a helper may take for its last kernel; then it is compiled here, too."""
_COMPILER = "compiler"
"""The module that imports numba, which is loaded last."""


def all_kernels() -> tuple[Kernel[Any, Any], ...]:
    """Return every compiled kernel of this package, those of most code first."""
    modules = (importlib.import_module(f"dataaudit.kernels.{name}") for name in sorted(_modules()))
    found = (value for module in modules for value in vars(module).values())
    kernels = dict.fromkeys(one for one in found if isinstance(one, Kernel) and one.signature is not None)
    return tuple(sorted(kernels, key=lambda kernel: -_size(kernel)))


def _modules() -> set[str]:
    names = {module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])}
    return names - {_COMPILER}


def _size(kernel: Kernel[Any, Any]) -> int:
    """Return the bytes of code of a kernel and all that is compiled into it."""
    found, new = set[Kernel[Any, Any]](), {kernel}
    while new:
        found |= new
        named = (one.function.__globals__.get(name) for one in new for name in one.function.__code__.co_names)
        new = {one for one in named if isinstance(one, Kernel)} - found
    return sum(len(part.function.__code__.co_code) for part in found)


def _marker(folder: Path) -> Path:
    """Return the file that names the modules; numba keeps code by the path of its source, and by processor."""
    here = sha256(os.fsencode(Path(__file__).parent) + b"\0" + _processor()).hexdigest()[:16]
    return folder / f"{_MARKER}-{here}"


def _processor() -> bytes:
    """Return what tells processors apart that need code of their own; the name of the machine where nothing does."""
    try:
        first = Path("/proc/cpuinfo").read_bytes().partition(b"\n\n")[0]
    except OSError:
        first = b""
    lines = [line for line in first.splitlines() if line.startswith((b"model name", b"flags"))]
    return b"\n".join(lines) or platform.node().encode()


def _missing(without: Collection[str]) -> set[str]:
    """Return the modules whose kernels are not kept on this machine, without loading any; none where none can be."""
    folder = cache_folder()
    if folder is None:
        return set()
    try:
        known = _marker(folder).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        known = []
    return _modules().difference(known, without)


def are_compiled() -> bool:
    """Tell, without loading anything, whether their code is kept on this machine; also when it cannot be kept."""
    return not _missing(())


def compile_all() -> None:
    """Compile every kernel and keep the code; 20 seconds of CPU the first time."""
    with compiling() as work:
        for _ in work.rest():
            pass


@contextmanager
def compiling(without: Collection[str] = ()) -> Iterator[Compiling]:
    """Have other processes compile the kernels that are not kept; afterwards they are ended, wherever they are.

    Args:
        without: Modules whose kernels are not needed.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    work = Compiling(_missing(without), min(_MOST_HELPERS, cores - 1))
    try:
        yield work
    finally:
        work.end()


class Compiling:
    """Kernels that several processes compile, this process among them once it asks for the rest.

    Args:
        modules: Those whose kernels are compiled.
        helpers: How many other processes begin now.
    """

    def __init__(self, modules: Collection[str], helpers: int) -> None:
        self._modules = modules
        self._kernels = all_kernels() if modules else ()
        self._left = [number for number, kernel in enumerate(self._kernels) if _module(kernel) in modules]
        self._taking, giving = os.pipe()
        self._seeing, self._telling = os.pipe()
        os.write(giving, bytes(self._left))
        os.close(giving)
        self._helpers: list[subprocess.Popen[bytes]] = []
        if self._left and sys.executable and not getattr(sys, "frozen", False):  # else it starts something else
            with contextlib.suppress(OSError):  # the others go on
                self._helpers.extend(_start_helper(self._taking, self._telling) for _ in range(helpers))

    def left(self) -> int:
        """Return how many kernels are not compiled yet."""
        list(self._done(self._see(0)))
        return len(self._left)

    def rest(self) -> Iterator[None]:
        """Take part until all is compiled and kept; yields for each kernel that is left.

        Raises:
            OSError: The disk is full.
        """
        while taken := os.read(self._taking, 1):
            self._kernels[taken[0]].load()
            yield from self._done(taken)
            yield from self._done(self._see(0))
        os.close(self._telling)
        self._telling = -1
        while seen := self._see(_SECONDS):
            yield from self._done(seen)
        for number in bytes(self._left):
            self._kernels[number].load()
            yield from self._done(bytes([number]))
        folder = cache_folder()
        if folder is not None and self._modules:
            kept = _modules() - _missing(()) | set(self._modules)
            write_whole(_marker(folder), "\n".join(sorted(kept)).encode())

    def _see(self, seconds: float) -> bytes:
        """Return the numbers that the others have reported; nothing after so many seconds, or when all have ended."""
        ready = select.poll()
        ready.register(self._seeing, select.POLLIN)
        return os.read(self._seeing, 256) if ready.poll(seconds * 1000) else b""

    def _done(self, numbers: bytes) -> Iterator[None]:
        for number in numbers:
            if number in self._left:
                self._left.remove(number)
                yield

    def end(self) -> None:
        """End the other processes."""
        for process in self._helpers:
            process.kill()
            process.wait()
        for pipe in (self._taking, self._seeing, self._telling):
            if pipe >= 0:
                os.close(pipe)


def _module(kernel: Kernel[Any, Any]) -> str:
    return kernel.function.__module__.rpartition(".")[2]


def compile_next(taking: int, telling: int) -> None:
    """Compile the kernels whose numbers come out of a pipe, a byte each, as long as some do; tell each in another."""
    kernels = all_kernels()
    while number := os.read(taking, 1):
        kernels[number[0]].load()
        os.write(telling, number)


def _start_helper(taking: int, telling: int) -> subprocess.Popen[bytes]:
    code = (
        "from dataaudit.lean import be_lean; be_lean(arrow=False);"
        f" from dataaudit.kernels.ready import compile_next; compile_next(0, {telling})"
    )
    command, away = [sys.executable, "-P", "-c", code], subprocess.DEVNULL
    return subprocess.Popen(command, stdin=taking, stdout=away, stderr=away, pass_fds=[telling])
