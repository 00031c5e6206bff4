"""Renews what the README shows of the demo: ``python tests/golden/make_readme.py [--picture]``.

The lines are what ``dataaudit gate`` prints of ``manifests/demo``: the title, the id, the exit code, and each rule that
stops the release with the first of its cases. ``--picture`` also takes ``docs/images/report.png``, with chromium.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner

from dataaudit.cli import main as program

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DEMO, POLICY = ROOT / "manifests/demo", "pipelines/release-gate.yaml"
START = f"$ dataaudit gate demo/manifest --policy {POLICY}\n"
STOPPING = ("fail", "not evaluated")


def verdict_lines() -> list[str]:
    """Return the lines of the gate's output that the README shows."""
    arguments = ["gate", str(DEMO), "--policy", str(ROOT / POLICY), "--no-annotations"]
    lines = CliRunner().invoke(program, arguments, env={"COLUMNS": "100"}).output.splitlines()
    table = lines.index("What does not hold")
    facts = [line for line in lines[:table] if line.startswith(("  manifest ", "  exit code "))]
    return [lines[0], *facts, "", *lines[table : table + 3], *_first_cases(lines[table + 3 :]), "..."]


def _first_cases(rows: list[str]) -> list[str]:
    """Return the rows of rules that stop a release, of each rule one case; a case may go on over several lines."""
    kept, seen, keeps = [], set(), False
    for row in rows:
        if not row.strip():
            break
        state, _, rest = row.strip().partition("  ")
        if not row.startswith("   "):
            rule = rest.split()[0]
            keeps = state in STOPPING and rule not in seen
            seen.add(rule)
        if keeps:
            kept.append(row)
    return kept


def updated(readme: str) -> str:
    """Return the README with the lines renewed."""
    head, start, rest = readme.partition(START)
    assert start, f"the README shows {START!r}"
    return head + start + "\n".join(verdict_lines()) + "\n" + rest[rest.index("```") :]


def take_picture() -> None:
    """Take the picture of the report's first screen."""
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "report.html"), ROOT / "docs/images/report.png"
        CliRunner().invoke(program, ["report", str(DEMO), "--policy", str(ROOT / POLICY), "--out", str(page)])
        quiet = ["quic", "gpu", "background-networking", "component-update", "sync"]
        subprocess.run(
            [
                "chromium", "--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{one}" for one in quiet),
                f"--user-data-dir={folder}/user", "--hide-scrollbars", "--window-size=1200,720",
                "--virtual-time-budget=5000", f"--screenshot={picture}", page.as_uri(),
            ],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip


if __name__ == "__main__":
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
    if "--picture" in sys.argv[1:]:
        take_picture()
