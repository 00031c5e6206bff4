"""Processes that run only our code do without what libraries look for by themselves, and mostly without collections.

- pyarrow imports pandas, where it is installed, at the first array of NumPy's and at the first of Python's values, to
  see whether they are pandas' own. Ours never are.
- numba imports scipy's linear algebra, to see whether kernels may call it, and the extensions of all packages that
  have one for it: awkward has. No kernel of ours needs either.
- Python looks for cycles of dead objects after every 700 new ones: a twentieth of a scan, which leaves hardly any.

The first two ask once. What cannot be imported at that moment is done without for good; others import it as ever, but
pyarrow and numba know nothing of it any more. So this is for a command, a worker, a child, not for a notebook, and not
for a process in which `datasets` reads rows: it makes its tables of pandas' frames.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from threading import Event
from types import ModuleType
from typing import Any


class _Hidden(MetaPathFinder):
    """Finds that there is no such module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Refuse one name, leave the others to other finders."""
        del path, target
        if name == self.name:
            raise ModuleNotFoundError(name)


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Hide a module from imports, unless somebody has imported it already."""
    finder = _Hidden(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


_NEW_OBJECTS = 50_000
"""After which cycles are looked for."""
_lean = Event()
"""Set in a process that is lean."""


def be_lean(*, arrow: bool = True) -> None:
    """Do without pandas in pyarrow, from now on without scipy and extensions in numba, and with few collections.

    Args:
        arrow: Whether pyarrow is of use here at all.
    """
    _lean.set()
    gc.set_threshold(_NEW_OBJECTS)
    if arrow and "pandas" not in sys.modules:
        import numpy as np
        import pyarrow as pa

        with _hidden("pandas"):
            pa.array(np.zeros(1))
            pa.array([0])


def load_numba() -> Any:
    """Import numba, in a lean process without what our kernels do not need."""
    if not _lean.is_set() or "numba.np.arraymath" in sys.modules or "scipy.linalg" in sys.modules:
        import numba
    else:
        with _hidden("scipy.linalg"):
            import numba
            import numba.np.arraymath  # asks for it
        from numba.core import entrypoints

        entrypoints.init_all = lambda: None  # no setting leaves the extensions out
    return numba


def release_arrow() -> None:
    """Return to the system what Arrow has freed: its allocator keeps that for a while, and counts it as used."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def give_memory_back() -> None:
    """Return free memory to the system: arrays of one kind of work leave holes that do not fit those of another."""
    with contextlib.suppress(OSError, AttributeError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)
