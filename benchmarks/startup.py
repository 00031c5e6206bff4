"""CPU that the processes of a small build spend: all of them together, and what single steps of the start take.

``python benchmarks/startup.py DATA [--repeat 5]``: medians of user CPU, in seconds. The first build of a machine,
which compiles kernels and patterns, is not counted.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile

_PATTERNS = """import dataaudit.scan.detectors.content as c
from dataaudit.scan.detectors.patterns import context, registry as d, written"""
_STEPS = {
    "pandas, imported": ("import pyarrow.compute", "import pandas, pyarrow.pandas_compat"),
    "bokeh for a dashboard, imported": ("import distributed", "import distributed.dashboard.scheduler"),
    "patterns, compiled": (
        f"{_PATTERNS}\nc.shipped_patterns(); d.make_database = context.compile_patterns",
        "d.compile_database(c.shipped_patterns())",
    ),
    "patterns, kept": (f"{_PATTERNS}\nc.shipped_patterns()", "d.compile_database(c.shipped_patterns())"),
    "shipped rules, parsed": (
        f"{_PATTERNS}\nwritten.kept = lambda kind, inputs, make, read: read(make())",
        "c.shipped_patterns()",
    ),
    "shipped rules, kept": ("import dataaudit.scan.detectors.content as c", "c.shipped_patterns()"),
    "code points, classified": (
        "from dataaudit.scan.kernels import characters as c, normal as n",
        "c.build_character_classes(), n.build_suspects()",
    ),
    "code points, kept": (
        "from dataaudit.scan.kernels import characters as c, normal as n",
        "c.character_classes(), n._suspects()",
    ),
    "numba, with the first kernel": ("import dataaudit.scan.kernels.characters as c", "c._count.load()"),
}
"""Name, what is done before, what is timed."""


def main() -> None:
    """Print one table of builds and one of steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    for workers in (0, 1):
        _build(given.data, workers)
        seconds = statistics.median(_build(given.data, workers) for _ in range(given.repeat))
        print(f"build --workers {workers}: {seconds:.2f} s")
    for name, (before, timed) in _STEPS.items():
        code = f"import time\n{before}\nt = time.process_time()\n{timed}\nprint(time.process_time() - t)"
        seconds = statistics.median(_printed(code) for _ in range(given.repeat))
        print(f"{name}: {seconds:.2f} s")


def _build(data: str, workers: int) -> float:
    """Return the user CPU of one build and all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "manifest")
        command = [sys.executable, "-c", "from dataaudit.cli import main; main()", "build", data]
        options = ["--manifest", target, "--workers", str(workers), "--quiet"]
        subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def _printed(code: str) -> float:
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
