"""A process that runs some parts, one after another, and writes each row as it is there.

    python3 -m gpu.child FOLDER ROWS SECONDS DRY PART...

Its exit code is 0 when all parts were run, 2 where there is no GPU, and 3 where the GPU does no more for the process.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from .checks import DeviceInErrorState, Machine, Row, first_line
from .parts import FAILED, IN_ERROR, NO_GPU, PARTS


def main() -> int:
    """Run the parts that the command line names."""
    folder, rows, seconds, dry, *parts = sys.argv[1:]
    machine = Machine(dry=dry == "dry", folder=Path(folder), deadline=time.monotonic() + float(seconds))
    torch.set_flush_denormal(True)
    with Path(rows).open("a", encoding="utf-8") as file:

        def write(line: str) -> None:
            file.write(line)
            file.flush()

        if not machine.dry and not torch.cuda.is_available():
            write(json.dumps({"no_gpu": f"torch {torch.__version__} sees none"}) + "\n")
            return NO_GPU
        write(json.dumps({"machine": about(machine)}) + "\n")
        if PARTS[parts[0]].alone:
            return run(machine, parts, write)
        with machine.busy(alone=False):
            return run(machine, parts, write)


def run(machine: Machine, parts: list[str], write: Callable[[str], None]) -> int:
    """Run parts, write their rows, and return the exit code."""
    for part in parts:
        write(json.dumps({"begins": part}) + "\n")
        try:
            for row in rows_of(machine, part):
                write(row.line())
        except DeviceInErrorState as error:
            write(error.args[0].line())
            write(json.dumps({"ends": part}) + "\n")
            return IN_ERROR
        write(json.dumps({"ends": part}) + "\n")
    return 0


def rows_of(machine: Machine, part: str) -> Iterator[Row]:
    """Yield the rows of a part; what fails outside of a check is a row as well."""
    try:
        module = importlib.import_module(f"gpu.{PARTS[part].module}")
        yield from getattr(module, PARTS[part].function)(machine)
    except DeviceInErrorState:
        raise
    except Exception as error:  # noqa: BLE001 - the next part runs
        yield Row(part=part, check="the part itself", status=FAILED, detail=first_line(error))


def about(machine: Machine) -> dict[str, Any]:
    """Return what the numbers are of."""
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in ("triton", "transformers", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "missing"
    device = f"CPU, {torch.get_num_threads()} threads" if machine.dry else torch.cuda.get_device_name()
    return {"device": device, "cuda": None if machine.dry else torch.version.cuda, "versions": versions}


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # a pool of inductor's compilers may be waited for for minutes
