"""What toxicity, personal data and secrets add to a whole build: builds with and without them, in turn, one worker.

``python benchmarks/content.py FOLDER --rounds 3`` audits the shards below FOLDER (columns `text` and `source`) with the
stages of the scan (no near-duplicates, leakage, repeats), without any judge. Prints Markdown: wall and CPU seconds,
the largest process, the ratios of the medians.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

NEVER = ("near_dup", "overlap", "repeats")
MEASURED = ("toxicity", "pii", "secrets")


def build(folder: Path, left_out: tuple[str, ...]) -> tuple[float, float, float]:
    """Build once from nothing; return wall seconds, CPU seconds, and the largest process in MB."""
    with tempfile.TemporaryDirectory() as place:
        config = Path(place) / "config.yaml"
        split = {"paths": [str(folder.resolve())], "text": "text", "source": {"column": "source"}}
        config.write_text(yaml.safe_dump({"splits": {"train": split}, "stages": dict.fromkeys(left_out, False)}))
        command = [
            sys.executable,
            "-m",
            "dataaudit",
            "build",
            str(config),
            "--manifest",
            f"{place}/m",
            "--workers",
            "1",
        ]
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([*command, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, after.ru_maxrss / 1000


def main() -> None:
    """Run the builds in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--each", action="store_true", help="measure each of the three alone, too")
    given = parser.parse_args()
    kinds = {"without the three": MEASURED, "with them": ()}
    if given.each:
        kinds |= {f"only `{name}`": tuple(one for one in MEASURED if one != name) for name in MEASURED}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in kinds}
    for _ in range(given.rounds):
        for name, left_out in kinds.items():
            found[name].append(build(given.folder, (*NEVER, *left_out)))
    print("| | wall s | CPU s | largest process so far, MB | wall, times | CPU, times |\n|---|--:|--:|--:|--:|--:|")
    base = [statistics.median(column) for column in zip(*found["without the three"], strict=True)]
    for name, rows in found.items():
        wall, cpu, size = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"| {name} | {wall:.1f} | {cpu:.1f} | {size:,.0f} | {wall / base[0]:.2f} | {cpu / base[1]:.2f} |")


if __name__ == "__main__":
    main()
