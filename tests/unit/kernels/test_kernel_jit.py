"""Compiled loops: where the files go, and without them."""

from __future__ import annotations

import os
import subprocess
import sys

CALL = """
import numpy as np
from dataaudit.kernels.windows import gather_windows
data = np.frombuffer(b"some <b>words</b> 12", dtype=np.uint8)
words, *_ = gather_windows(data, np.array([0, len(data)]), np.array([0]), windows=2, kept=64)
print(words.tobytes().decode())
"""


def run(program, **environment):
    """Run a program in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_place_for_compiled_files_it_still_works():
    """A read-only installation without a home folder compiles in every process."""
    nowhere = "import numba.core.caching as c; c.CacheImpl._locator_classes = []\n"
    assert run(nowhere + CALL) == "some words"


def test_uncompiled_it_gives_the_same():
    """NUMBA_DISABLE_JIT=1 runs the loops as plain Python, for a debugger."""
    assert run(CALL, NUMBA_DISABLE_JIT="1") == "some words"
