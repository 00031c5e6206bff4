"""Processes of our own without pandas: half a second each, and several where its code is read for the first time.

pyarrow imports pandas, where it is installed, at the first array of NumPy's and at the first of Python's values, to see
whether they are pandas' own. Ours never are. Both places ask once: when pandas cannot be imported at that moment,
pyarrow does without it for good. Others import pandas as ever, but nothing goes between pandas and pyarrow any more.
So this is for processes that run only our code, and not for one in which `datasets` reads rows: it makes its tables of
pandas' frames.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import numpy as np
import pyarrow as pa


class _WithoutPandas(MetaPathFinder):
    """Finds that there is no pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Refuse one name, leave the others to other finders."""
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError(name)


def leave_pandas_out() -> None:
    """Let pyarrow learn that it does without pandas, unless it or somebody else has imported it already."""
    if "pandas" in sys.modules:
        return
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array(np.zeros(1))
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
