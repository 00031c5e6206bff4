"""The one place that knows numba: kernels that are compiled on first use and kept on disk.

``compiled`` costs nothing at import. The first call of a kernel imports numba and loads the machine code from the
cache, or compiles it there; every type is stated, so no later call compiles anything.

The cache is a folder of its own for each content of this package's folder and each version of numba, because numba
itself sees only the file of the outermost function: a changed helper in another file would go unnoticed. It lies in
``NUMBA_CACHE_DIR``, else in the user's cache folder, else in the temporary folder, whichever can be written first;
the installed package is never written to. Machine code is also kept apart by processor, and stands under a digest:
damaged code is compiled again. Without any writable place kernels are compiled in every process.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from glob import escape
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from dataaudit.atomic import write_whole
from dataaudit.kept import private_folder, sources_digest, user_places
from dataaudit.lean import load_numba

P = ParamSpec("P")
R = TypeVar("R")

Integer = Any
"""In kernels: int64, or a Python int where the kernel runs as plain Python."""
READ_BYTES = "Array(uint8, 1, 'C', readonly=True)"
"""uint8[n], may be read-only: Arrow's buffers are."""
READ_OFFSETS = "Array(int64, 1, 'C', readonly=True)"
"""int64[n], may be read-only."""
READ_IDS = "Array(uint32, 1, 'C', readonly=True)"
"""uint32[n], may be read-only."""
_TRIED = (0, 62), (0, 68)
"""From which to which numba :mod:`dataaudit.kernels.compiler` compiles kernels."""
_OPTIONS = {"error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
"""Nothing is counted or allocated, and C calls no kernel: each wrapper takes as long to compile as a short kernel."""


class Kernel(Generic[P, R]):
    """A function of arrays and numbers, compiled when it is first called.

    Kernels call each other by their global names; numba sees the compiled one through ``_numba_type_``.
    ``NUMBA_DISABLE_JIT=1`` runs plain Python: same results, a thousand times slower.

    Args:
        function: What is compiled; Python and NumPy as far as numba knows it.
        signature: Numba's, as text, for example ``int64(uint8[::1], int64)``. None marks a helper, which is
            compiled into every kernel that calls it.
        inline: Whether a helper's code is copied to where it is called.
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
        """Numba's type of a kernel that another one calls."""
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
    """Return the folder of the machine code, created; None when no place can be written."""
    places = [os.environ.get("NUMBA_CACHE_DIR"), *user_places("numba")]
    return private_folder(*(place for place in places if place), within=_version())


def _version() -> str:
    """Name the cache by everything that numba does not look at: the files of this folder, and numba's version."""
    return sha256(f"numba {version('numba')}".encode() + sources_digest(Path(__file__).parent)).hexdigest()[:16]


def _njit(*signature: str | None, **options: Any) -> Any:
    """Return numba's decorator with the options of all kernels, and our compiler in versions that it was tried with."""
    numba = load_numba()
    first, last = _TRIED
    if first <= tuple(map(int, numba.__version__.split(".")[:2])) <= last:
        from dataaudit.kernels.compiler import KernelCompiler

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
