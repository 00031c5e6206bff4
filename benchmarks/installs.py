"""Installs: megabytes, packages and seconds of the base and of every extra, each in a fresh environment.

``python benchmarks/installs.py WHEEL [WHEEL...] [--extras ci report] [--python python3.12]`` downloads what pip would
take today, installs it from there into an empty environment, and times two commands on ``manifests/demo``. The cache is
warm: neither the network nor a build counts. Times are seconds of CPU, which a busy machine changes little, the median
of some runs. Give an older wheel to compare with; an extra that it lacks is left out.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

from common import head, options, row, run

ROOT = Path(__file__).parents[1]
SETS = ["", "ci", "report", "export", "build", "all"]
COMMANDS = (["--help"], ["gate", ROOT / "manifests/demo", "--policy", ROOT / "pipelines/release-gate.yaml"])
RUNS = 5
LARGEST = 6
"""Packages that are named at most."""
_THERE = {"pip", "setuptools"}
"""What an empty environment has, depending on the Python."""


def megabytes(folder: Path) -> float:
    """Return the size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


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
    took = run(*pip, "install", "--no-index", "--find-links", wheels, wanted).cpu_s
    program = environment / "bin/dataaudit"
    subprocess.run([program, "--version"], check=True, capture_output=True)
    count = len(list(packages.glob("*.dist-info"))) - there
    largest = sorted(((size, name) for size, name in sizes(packages) if name not in _THERE), reverse=True)[:LARGEST]
    times = [statistics.median([run(program, *command).cpu_s for _ in range(RUNS + 1)][1:]) for command in COMMANDS]
    name = f"{version} {f'`[{extra}]`' if extra else 'base'}"
    sizes_mb = f"{megabytes(wheels):,.0f}", f"{megabytes(packages) - before:,.0f}"
    named = ", ".join(f"{name} {size:,.0f}" for size, name in largest)
    row(name, count, *sizes_mb, f"{took:,.0f}", *(f"{seconds:.2f}" for seconds in times), named)


def main() -> None:
    """Print the table."""
    given = options(__doc__, wheels=[Path], extras=SETS, python=sys.executable)
    head("install", "packages", "MB of wheels", "MB installed", "s to install", "s `--help`", "s `gate`", "largest, MB")
    for wheel in given.wheels:
        for extra in given.extras:
            if not extra or extra in about(wheel)[1]:
                with tempfile.TemporaryDirectory() as folder:
                    measure(wheel, extra, given.python, Path(folder))


if __name__ == "__main__":
    main()
