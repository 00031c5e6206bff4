"""Installs: megabytes, packages and seconds of the base and of every extra, each in a fresh environment.

``python benchmarks/installs.py WHEEL [WHEEL...] [--extras ci report] [--python python3.12]`` downloads what pip would
take today, installs it from there into an empty environment, and times two commands on ``manifests/demo``. The cache is
warm: neither the network nor a build counts. Times are seconds of CPU, which a busy machine changes little, the median
of some runs. Give an older wheel to compare with; an extra that it lacks is left out.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETS = ("", "ci", "report", "export", "build", "all")
COMMANDS = {
    "--help": ["--help"],
    "gate": ["gate", str(ROOT / "manifests/demo"), "--policy", str(ROOT / "pipelines/release-gate.yaml")],
}
RUNS = 5
LARGEST = 6
"""Packages that are named at most."""
_THERE = {"pip", "setuptools"}
"""What an empty environment has, depending on the Python."""


def megabytes(folder: Path) -> float:
    """Return the size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def seconds(command: list[str]) -> float:
    """Return the CPU time of one run, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=False, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median_seconds(command: list[str]) -> float:
    """Return the median CPU time of some runs after a first one."""
    return statistics.median([seconds(command) for _ in range(RUNS + 1)][1:])


def about(wheel: Path) -> tuple[str, list[str]]:
    """Return version and extras of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    return str(metadata["Version"]), metadata.get_all("Provides-Extra") or []


def sizes(packages: Path) -> Iterator[tuple[float, str]]:
    """Yield what each installed package takes on disk, in megabytes."""
    for record in packages.glob("*.dist-info/RECORD"):
        listed = (packages / line.split(",")[0].strip('"') for line in record.read_text("utf-8").splitlines())
        yield sum(path.stat().st_size for path in listed if path.is_file()) / 1e6, record.parent.name.split("-")[0]


def measure(wheel: Path, extra: str, python: str, folder: Path) -> None:
    """Download, install and run one set; print a row of the table and the largest packages."""
    version, _ = about(wheel)
    wanted = f"{wheel.resolve()}[{extra}]" if extra else str(wheel.resolve())
    environment, wheels = folder / "venv", folder / "wheels"
    subprocess.run([python, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin/pip"), "--quiet", "--disable-pip-version-check"]
    packages = next((environment / "lib").glob("python*/site-packages"))
    before, there = megabytes(packages), len(list(packages.glob("*.dist-info")))
    subprocess.run([*pip, "wheel", "--wheel-dir", str(wheels), wanted], check=True)
    took = seconds([*pip, "install", "--no-index", "--find-links", str(wheels), wanted])
    subprocess.run([str(environment / "bin/dataaudit"), "--version"], check=True, capture_output=True)
    count = len(list(packages.glob("*.dist-info"))) - there
    largest = sorted(((size, name) for size, name in sizes(packages) if name not in _THERE), reverse=True)[:LARGEST]
    program = str(environment / "bin/dataaudit")
    times = " | ".join(f"{median_seconds([program, *command]):.2f}" for command in COMMANDS.values())
    name = f"{version} {f'`[{extra}]`' if extra else 'base'}"
    cells = f"{count} | {megabytes(wheels):,.0f} | {megabytes(packages) - before:,.0f} | {took:,.0f} | {times}"
    print(f"| {name} | {cells} | {', '.join(f'{name} {size:,.0f}' for size, name in largest)} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    parser.add_argument("--extras", nargs="*", default=SETS)
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    print("| install | packages | MB of wheels | MB installed | s to install | s `--help` | s `gate` | largest, MB |")
    print("|---|--:|--:|--:|--:|--:|--:|---|", flush=True)
    for wheel in given.wheels:
        for extra in given.extras:
            if not extra or extra in about(wheel)[1]:
                with tempfile.TemporaryDirectory() as folder:
                    measure(wheel, extra, given.python, Path(folder))


if __name__ == "__main__":
    main()
