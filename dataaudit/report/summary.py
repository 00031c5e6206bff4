"""What a build ends with: the facts of the published manifest, and what to do next."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from dataaudit import text as t
from dataaudit.errors import ManifestMismatch
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.stored import shown
from dataaudit.metrics.meanings import exit_text
from dataaudit.metrics.volume.facts import overview
from dataaudit.render.cells import shortened, wrap
from dataaudit.render.terminal import terminal_width
from dataaudit.report.screen import screen
from dataaudit.report.sections import facts_of
from dataaudit.report.standouts import standout_facts


def build_summary(result: Any, target: Path, *, as_json: bool) -> str:
    """Return what a build prints on stdout.

    Args:
        result: Of the build; its ``id``, ``exit_code``, ``planned`` and ``scanned`` are read.
        target: Where the manifest was published.
        as_json: One JSON object instead of text.

    Raises:
        ManifestMismatch: Another build has replaced the manifest in the meantime.
    """
    manifest = load_manifest(target)
    if manifest.id != result.id:
        raise ManifestMismatch(
            f"{shown(target)}: this build published {result.id}, found {manifest.id}",
            "Another build has replaced it; give each build a folder of its own.",
        )
    code = int(result.exit_code)
    if as_json:
        run = {
            "exit_code": code,
            "exit_meaning": exit_text(code),
            "parts_planned": result.planned,
            "parts_scanned": result.scanned,
        }
        found = {**facts_of(manifest), "stands_out": standout_facts(manifest), "notes": manifest.run.notes}
        return t.as_json({**asdict(overview(manifest)), **found, **run})
    width, notes = terminal_width(), manifest.run.notes
    last = (
        [shortened(f"{t.plural(len(notes), 'note')} (--section notes), the first: {notes[0]}", width)] if notes else []
    )
    last += wrap(f"Exit code {code}: {exit_text(code)}", width) if code else []
    return screen(manifest, width, last)
