"""Kernels that numba compiles on first use, with their machine code on disk; no other module imports numba.

``compiled`` costs nothing at import. The first call of a kernel imports numba and loads the machine code from the
cache, or compiles it there; every type is stated, so no later call compiles anything.

The cache is a folder of its own for each content of this package's folder and each version of numba, because numba
itself checks only the file of the outermost function: a changed helper in another file would go unnoticed. It lies in
``NUMBA_CACHE_DIR``, else in the user's cache folder, else in the temporary folder, whichever can be written first;
the installed package is never written to. Machine code also depends on the processor, and has a digest: damaged code is
compiled again. Without any writable folder kernels are compiled in every process.

A build compiles its kernels before its workers start, once for a machine. Numba's compiler holds a lock and is mostly
Python, so processes share the work, while this process still does something else. Each takes the next kernel from a
pipe that all of them read, the largest first, and reports it in another. This process compiles the kernels that nobody
reported in the end, since a process died or hung.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import pkgutil
import platform
import select
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from glob import escape
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from dataaudit.base.cache import private_folder, sources_digest, user_places
from dataaudit.base.files import write_whole
from dataaudit.base.process import load_numba

P = ParamSpec("P")
R = TypeVar("R")

Array = np.ndarray
"""In kernels: a NumPy array, of the type that the signature states."""
Int = Any
"""In kernels: int64, or a Python int where the kernel runs as plain Python."""
READ_BYTES, READ_SHORTS, READ_IDS, READ_HASHES, READ_INTS, READ_OFFSETS, READ_FLAGS = (
    f"Array({dtype}, 1, 'C', readonly=True)"
    for dtype in ("uint8", "uint16", "uint32", "uint64", "int32", "int64", "boolean")
)
"""In signatures: arrays that may be read-only, as Arrow's buffers are."""
_TRIED = (0, 62), (0, 68)
"""First and last numba for which :mod:`dataaudit.scan.kernels.compiler` compiles kernels."""
_OPTIONS = {"error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
"""Nothing is counted or allocated, and C calls no kernel: each wrapper takes as long to compile as a short kernel."""


class Kernel(Generic[P, R]):
    """A function of arrays and numbers, compiled at its first call.

    Kernels call each other by their global names; numba sees the compiled function through ``_numba_type_``.
    ``NUMBA_DISABLE_JIT=1`` runs plain Python: same results, a thousand times slower.

    Args:
        function: Python and NumPy as far as numba supports them.
        signature: Numba's, as text, for example ``int64(uint8[::1], int64)``. None marks a helper, which is
            compiled into every kernel that calls it.
        inline: Whether a helper's code is copied to its callers.
    """

    def __init__(self, function: Callable[P, R], signature: str | None, *, inline: bool = True) -> None:
        self.function = function
        self.signature = signature
        self.inline = inline
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self._compiled: Any = None

    def load(self) -> Any:
        """Return numba's dispatcher, compiled or from the cache."""
        if self._compiled is None:
            if self.signature is None:
                within = {"forceinline": self.inline, "no_cpython_wrapper": True}  # Python never calls it
                self._compiled = _njit(**within)(self.function)
            else:
                self._compiled = self._load_from(cache_folder()) or self._load_from(None)
        return self._compiled

    def _load_from(self, folder: Path | None) -> Any:
        """Compile, with or without the cache; None when the cache fails: a full disk, a file cut short."""
        if folder is None:
            return _njit(self.signature)(self.function)
        try:
            _drop_damaged(folder, self.function)
            with _cache_at(folder):
                made = _njit(self.signature, cache=True)(self.function)
            if made is not self.function and made.stats.cache_misses:
                write_whole(*_seal(folder, self.function))
        except (OSError, EOFError, RuntimeError, pickle.UnpicklingError):
            return None
        return made

    @property
    def _numba_type_(self) -> Any:
        """Numba's type of a kernel that another kernel calls."""
        from numba.core.types import Dispatcher

        return Dispatcher(self.load())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it; sums and products of unsigned integers wrap, as they do in machine code."""
        function: Callable[P, R] = self.load() if self.signature else self.function  # a helper's code is not for Python
        if function is self.function:  # plain Python: NumPy would warn of what is meant
            with np.errstate(over="ignore"):
                return function(*args, **kwargs)
        return function(*args, **kwargs)


def compiled(signature: str) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Decorate a kernel that Python calls; ``signature`` is numba's, as text."""

    def decorate(function: Callable[P, R]) -> Kernel[P, R]:
        return Kernel(function, signature)

    return decorate


def helper(function: Callable[P, R]) -> Kernel[P, R]:
    """Decorate a function that only kernels call; its code is copied into each of them."""
    return Kernel(function, None)


def cold(function: Callable[P, R]) -> Kernel[P, R]:
    """Decorate a helper that is large or seldom called: it stays a function, so that loops around it stay small."""
    return Kernel(function, None, inline=False)


@cache
def cache_folder() -> Path | None:
    """Return the folder of the machine code, created; None when no folder can be written."""
    places = [os.environ.get("NUMBA_CACHE_DIR"), *user_places("numba")]
    return private_folder(*(place for place in places if place), within=_version())


def _version() -> str:
    """Name the cache by all that numba does not check: the files of this folder, and numba's version."""
    return sha256(f"numba {version('numba')}".encode() + sources_digest(Path(__file__).parent)).hexdigest()[:16]


def _njit(*signature: str | None, **options: Any) -> Any:
    """Return numba's decorator with the options of all kernels, and our compiler in versions that it was tried with."""
    numba = load_numba()
    first, last = _TRIED
    if first <= tuple(map(int, numba.__version__.split(".")[:2])) <= last:
        from dataaudit.scan.kernels.compiler import KernelCompiler

        options["pipeline_class"] = KernelCompiler
    return numba.njit(*signature, **_OPTIONS, **options)


def _files(folder: Path, function: Callable[..., Any]) -> list[Path]:
    """Return the files in which numba keeps the code of a kernel, for all processors."""
    name = f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}"
    return sorted(folder.glob(f"*/{escape(name)}-*.nb[ic]"))


def _seal(folder: Path, function: Callable[..., Any]) -> tuple[Path, bytes]:
    """Return the file of the digest of a kernel's code, and what has to stand in it."""
    digest = sha256()
    for path in _files(folder, function):
        digest.update(path.name.encode() + b"\0" + sha256(path.read_bytes()).digest())
    return folder / f"{function.__module__}.{function.__qualname__}.sha256", digest.hexdigest().encode()


def _drop_damaged(folder: Path, function: Callable[..., Any]) -> None:
    """Remove the code of a kernel that is not under its digest; numba runs whatever it finds."""
    path, digest = _seal(folder, function)
    if not path.exists() or path.read_bytes() != digest:
        for damaged in _files(folder, function):
            damaged.unlink(missing_ok=True)


@contextmanager
def _cache_at(folder: Path) -> Iterator[None]:
    """Point numba to our folder while it decides where a function's code is kept."""
    from numba.core import config

    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


_MARKER = "compiled"
_MOST_HELPERS = 3
"""Processes beside this one, of some 250 MB each; with more of them the largest kernel is the last."""
_SECONDS = 120.0
"""Most time of a helper for its last kernel; then it is compiled here, too."""
_COMPILER = "compiler"
"""The module that imports numba, which is loaded last."""


def all_kernels() -> tuple[Kernel[Any, Any], ...]:
    """Return every compiled kernel of this package, those of most code first."""
    modules = (importlib.import_module(f"dataaudit.scan.kernels.{name}") for name in sorted(_modules()))
    found = (value for module in modules for value in vars(module).values())
    kernels = dict.fromkeys(item for item in found if isinstance(item, Kernel) and item.signature is not None)
    return tuple(sorted(kernels, key=lambda kernel: -_size(kernel)))


def _modules() -> set[str]:
    names = {module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])}
    return names - {_COMPILER}


def _size(kernel: Kernel[Any, Any]) -> int:
    """Return the bytes of code of a kernel and all that is compiled into it."""
    found, new = set[Kernel[Any, Any]](), {kernel}
    while new:
        found |= new
        named = (item.function.__globals__.get(name) for item in new for name in item.function.__code__.co_names)
        new = {item for item in named if isinstance(item, Kernel)} - found
    return sum(len(part.function.__code__.co_code) for part in found)


def _marker(folder: Path) -> Path:
    """Return the file that names the modules; numba keeps code by the path of its source, and by processor."""
    here = sha256(os.fsencode(Path(__file__).parent) + b"\0" + _processor()).hexdigest()[:16]
    return folder / f"{_MARKER}-{here}"


def _processor() -> bytes:
    """Return the model and features of the processor, on which code depends; else the name of the machine."""
    try:
        first = Path("/proc/cpuinfo").read_bytes().partition(b"\n\n")[0]
    except OSError:
        first = b""
    lines = [line for line in first.splitlines() if line.startswith((b"model name", b"flags"))]
    return b"\n".join(lines) or platform.node().encode()


def _missing(without: Collection[str]) -> set[str]:
    """Return the modules whose kernels are not cached on this machine, without loading any; none without a cache."""
    folder = cache_folder()
    if folder is None:
        return set()
    try:
        known = _marker(folder).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        known = []
    return _modules().difference(known, without)


def are_compiled() -> bool:
    """Tell, without loading anything, whether all code is cached on this machine, or none can be."""
    return not _missing(())


def compile_all() -> None:
    """Compile every kernel and keep the code; 20 seconds of CPU the first time."""
    with compiling() as work:
        for _ in work.rest():
            pass


@contextmanager
def compiling(without: Collection[str] = ()) -> Iterator[Compiling]:
    """Have other processes compile the kernels that are not cached, but for modules ``without``; end them at last."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    work = Compiling(_missing(without), min(_MOST_HELPERS, cores - 1))
    try:
        yield work
    finally:
        work.end()


class Compiling:
    """Kernels of some modules, which so many helper processes compile, and this process once it calls :meth:`rest`."""

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
        """Take part until all is compiled and kept; yields for each kernel that is left. A full disk: ``OSError``."""
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
        """Return the reported numbers; nothing after so many seconds, or when all helpers have ended."""
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
    """Compile the kernels whose numbers come out of a pipe, a byte each; report each in another."""
    kernels = all_kernels()
    while number := os.read(taking, 1):
        kernels[number[0]].load()
        os.write(telling, number)


def _start_helper(taking: int, telling: int) -> subprocess.Popen[bytes]:
    code = (
        "from dataaudit.base.process import tune_process; tune_process(arrow=False);"
        f" from dataaudit.scan.kernels.jit import compile_next; compile_next(0, {telling})"
    )
    command, away = [sys.executable, "-P", "-c", code], subprocess.DEVNULL
    return subprocess.Popen(command, stdin=taking, stdout=away, stderr=away, pass_fds=[telling])
