"""What a shard costs when there are many: whole builds of small shards with default stages, by phase.

    python benchmarks/many_shards.py TEXTS [--shards 1250 5000] [--documents 4] [--copies 44] [--folder DIR]

Documents are paragraphs of the text files (`.md`, `.rst`, `.txt`) below TEXTS, some to a shard; where there are more
shards than paragraphs, they come again behind others. Copies are read again, and of many of them hotspots are found: so
with --copies fewer paragraphs are used for fewer shards, and each stands as often at every size. Each build runs as a
user runs it, with a fresh state folder, after a first one that is not shown. Reported are seconds and CPU of the whole
command, seconds between the lines of progress, the driver's largest memory, files and bytes of the state folder; then
costs of a shard, and the exponents from the smallest to the largest size.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import build_command, ended, exponents, options, text_files

from dataaudit.manifest.load import load_manifest

SHORTEST = 200
"""Characters of a paragraph that is a document."""


def paragraphs(folder: Path) -> list[str]:
    """Return the paragraphs of the text files below a folder, each once, in the order of their paths."""
    found = dict.fromkeys(text for file in text_files(folder) for text in file.split("\n\n") if len(text) >= SHORTEST)
    if not found:
        raise SystemExit(f"no paragraph of {SHORTEST} characters below {folder}")
    return list(found)


def write_shards(folder: Path, texts: list[str], shards: int, documents: int) -> None:
    """Write JSON lines; no two shards hold the same documents in a row."""
    folder.mkdir(parents=True)
    for shard in range(shards):
        first = shard * documents
        rounds = first // len(texts)
        chosen = [texts[(first + offset * (rounds + 1)) % len(texts)] for offset in range(documents)]
        lines = (json.dumps({"id": f"{shard}-{offset}", "text": text}) + "\n" for offset, text in enumerate(chosen))
        (folder / f"part-{shard:07d}.jsonl").write_text("".join(lines), encoding="utf-8")


def resident_mb(pid: int) -> float:
    """Return the largest memory of a process so far, MB; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def state_files(state: Path) -> dict[str, float]:
    """Return number and MB of the files of a state folder."""
    sizes = [(Path(above) / name).stat().st_size for above, _, names in os.walk(state) for name in names]
    return {"state_files": len(sizes), "state_mb": sum(sizes) / 1e6}


def measure(inputs: Path, work: Path, workers: int) -> dict[str, Any]:
    """Run one build of a folder, with an empty folder for state and manifest; return its costs."""
    command = build_command(inputs, work, workers)
    begun = last = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    phases: Counter[str] = Counter()
    assert process.stderr is not None
    gap = driver = 0.0
    for line in process.stderr:
        now = time.perf_counter()
        phases[line.partition(":")[0].strip()[:40]] += now - last
        gap, last = max(gap, now - last), now
        driver = max(driver, resident_mb(process.pid))
    cost = ended(process, begun)
    if cost.code not in {0, 3}:
        raise SystemExit(f"the build ended with code {cost.code}: {' '.join(command)}")
    rest = phases["after the last line"] = time.perf_counter() - last
    return {
        "id": load_manifest(work / "manifest").id,
        "wall_s": cost.wall_s,
        "cpu_s": cost.cpu_s,
        "driver_mb": driver,
        **state_files(work / "state"),
        "longest_silence_s": max(gap, rest),
        "phases_s": {name: round(value, 1) for name, value in phases.items() if value >= 1},
    }


def main() -> None:
    """Run and print a line of JSON a size, then the exponents."""
    folder = Path(tempfile.gettempdir())
    given = options(__doc__, texts=Path, shards=[1250, 5000], documents=4, workers=2, copies=0, folder=(Path, folder))
    texts = paragraphs(given.texts)
    costs: list[dict[str, Any]] = []
    for turn, shards in enumerate([1, *sorted(given.shards)]):
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            work = Path(name)
            used = texts[: max(1, shards * given.documents // given.copies)] if given.copies else texts
            write_shards(work / "shards", used, shards, given.documents)
            found = {"shards": shards} | measure(work / "shards", work, given.workers)
        if turn:
            costs.append(found)
            shown = {key: round(value, 1) if isinstance(value, float) else value for key, value in found.items()}
            each = {f"{key}_a_shard": float(f"{found[key] / shards:.3g}") for key in ("wall_s", "cpu_s", "state_files")}
            print(json.dumps(shown | each), flush=True)
    if len(costs) > 1:
        kinds = ("wall_s", "cpu_s", "driver_mb", "state_files", "state_mb")
        print(json.dumps({"exponent": exponents(costs[0], costs[-1], "shards", kinds)}))


if __name__ == "__main__":
    main()
