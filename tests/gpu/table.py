"""The result as a table of Markdown and as JSON."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def head(machine: dict[str, Any], dry: bool) -> str:
    """Return which device and versions the rows are of."""
    if not machine:
        return "no device answered"
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    cuda = f", CUDA {machine['cuda']}" if machine["cuda"] else ""
    return f"{'dry run on a ' if dry else ''}{machine['device']}{cuda}; {versions}"


def markdown(machine: dict[str, Any], rows: Sequence[Row], *, dry: bool, seconds: float) -> str:
    """Return a table, with a line above it that names the device and a line below it that counts."""
    lines = [head(machine, dry), "", "| part | check | result | seconds |", "|---|---|---|--:|"]
    for row in rows:
        said = row["status"] if not row["detail"] else f"{row['status']}: {row['detail']}"
        cells = [row["part"], row["check"], said, f"{row['seconds']:.1f}"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    counts = Counter(row["status"] for row in rows)
    return "\n".join([*lines, "", f"{counted(counts)}; {seconds:.0f} seconds"])


def counted(counts: Counter[str]) -> str:
    """Return how many rows have each status."""
    return ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))


def write(folder: Path, machine: dict[str, Any], rows: Sequence[Row], *, dry: bool, seconds: float, logs: Any) -> str:
    """Write ``table.md`` and ``result.json`` into a folder, each at once, and return the table."""
    table = markdown(machine, rows, dry=dry, seconds=seconds)
    result = {"dry_run": dry, "machine": machine, "rows": list(rows), "seconds": round(seconds, 1), "logs": logs}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("table.md", table), ("result.json", json.dumps(result, indent=1, sort_keys=True))):
        part = folder / f".{name}.part"
        part.write_text(text + "\n", encoding="utf-8")
        os.replace(part, folder / name)
    return table
