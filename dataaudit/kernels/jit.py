"""The one place that knows numba: compiled loops, kept on disk between processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., object])


def compiled(function: _F) -> _F:
    """Return a loop over arrays compiled to machine code at its first call, with the types it is then given.

    numba is imported here, not before, so a module of kernels has to be imported where it is used. With
    ``NUMBA_DISABLE_JIT=1`` the loop runs as plain Python. Where neither the package's folder nor the user's cache can
    be written, every process compiles for itself.
    """
    import numba

    try:
        return cast(_F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # numba finds no place for its files
        return cast(_F, numba.njit(nogil=True)(function))
