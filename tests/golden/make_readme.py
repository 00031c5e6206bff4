"""Renews what the README shows of the demo: ``python tests/golden/make_readme.py [--picture]``.

The lines are what the program prints of ``manifests/demo``: the first ones of ``show`` with what stands out most, and
the title and exit code of ``gate``. ``--picture`` also takes ``docs/images/report.png``, with chromium.
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
DEMO, POLICY = ROOT / "manifests/demo", "release-gate"
SHOW, GATE = "$ dataaudit show demo/manifest", f"$ dataaudit gate demo/manifest --policy {POLICY}"
LINES = 12
"""Lines of ``show`` that stand in the README."""


def shown() -> str:
    """Return the block of the README: both commands, and what they print, cut."""
    gated = _printed("gate", "--policy", POLICY, "--no-annotations")
    verdict = [gated[0], *(line for line in gated if line.startswith("  exit code "))]
    return "\n".join([SHOW, *_printed("show")[:LINES], "...", GATE, *verdict, ""])


def _printed(command: str, *options: str) -> list[str]:
    return CliRunner().invoke(program, [command, str(DEMO), *options], env={"COLUMNS": "100"}).output.splitlines()


def updated(readme: str) -> str:
    """Return the README with the block renewed."""
    head, start, rest = readme.partition(SHOW)
    assert start, f"the README shows {SHOW!r}"
    return head + shown() + rest[rest.index("```") :]


def take_picture() -> None:
    """Take the picture of the report's first screen."""
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "report.html"), ROOT / "docs/images/report.png"
        CliRunner().invoke(program, ["report", str(DEMO), "--policy", POLICY, "--out", str(page)])
        quiet = ["quic", "gpu", "background-networking", "component-update", "sync"]
        subprocess.run(
            [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--no-first-run",
                *(f"--disable-{one}" for one in quiet),
                f"--user-data-dir={folder}/user",
                "--hide-scrollbars",
                "--window-size=1200,720",
                "--virtual-time-budget=5000",
                f"--screenshot={picture}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )


if __name__ == "__main__":
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
    if "--picture" in sys.argv[1:]:
        take_picture()
