"""What a build ends with: the facts of the published manifest, and what to do next."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dataaudit import text as t
from dataaudit.errors import ManifestMismatch
from dataaudit.layout import facts, page, section, terminal_width
from dataaudit.manifest.load import load_manifest
from dataaudit.report import blocks
from dataaudit.report.content import content, content_facts, content_lines, content_warning
from dataaudit.report.drift import drift_lines, drifts
from dataaudit.report.leaks import leak_lines, leaks
from dataaudit.report.meanings import exit_text
from dataaudit.report.near import near_duplicates, near_lines
from dataaudit.report.protected import protected_facts, protected_lines
from dataaudit.report.quality import composition, language_lines, languages, padding_lines, rule_lines, rules
from dataaudit.report.repeats import repeat_lines, repeats
from dataaudit.report.view import Overview, overview

_SOURCES = 10
_LANGUAGES = 10
_DRIFTS = 5
_HOTSPOTS = 5
_KINDS = 5


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
            f"{target}: this build published {result.id}, found {manifest.id}",
            "Another build has replaced it; give each build a folder of its own.",
        )
    view, code = overview(manifest), int(result.exit_code)
    if as_json:
        run = {
            "exit_code": code,
            "exit_meaning": exit_text(code),
            "parts_planned": result.planned,
            "parts_scanned": result.scanned,
        }
        found = {"leaks": [asdict(leak) for leak in leaks(manifest)], **content_facts(manifest)}
        found |= protected_facts(manifest)
        return t.as_json({**asdict(view), **composition(manifest), **found, "notes": manifest.run.notes, **run})
    width, within = terminal_width(), content(manifest)
    return page(
        blocks.title(view),
        [*content_warning(within, width), *blocks.identity(view, width)],
        blocks.splits(view, width),
        blocks.mixture(view, width, _SOURCES),
        language_lines(languages(manifest), width, _LANGUAGES),
        rule_lines(rules(manifest), [split.name for split in view.splits], width, every=False),
        padding_lines(manifest, width),
        drift_lines(manifest, drifts(manifest), width, _DRIFTS),
        *content_lines(within, width, _KINDS, details=False),
        near_lines(near_duplicates(manifest), width, details=False),
        leak_lines(leaks(manifest), width),
        *protected_lines(manifest, width),
        repeat_lines(repeats(manifest, _HOTSPOTS), width),
        blocks.coverage(view, width),
        blocks.lost(view.unread, "Not read", width),
        blocks.lost(view.partial, "Read without their bad records", width),
        section("Notes", facts([("-", t.clean(note, 200)) for note in manifest.run.notes[:10]], width)),
        [] if code == 0 else [f"Exit code {code}: {exit_text(code)}"],
        section("Next", facts(_next(view), width)),
    )


def _next(view: Overview) -> list[tuple[str, str]]:
    folder = t.clean(shlex.quote(view.manifest))
    first = view.unread[0].shard if view.unread else 0
    return [
        (f"dataaudit show {folder}", "sources of each split, shards that stand out"),
        (
            f"dataaudit inspect {folder} {first}",
            "why this shard was not read" if view.unread else "one shard",
        ),
        (f"dataaudit verify {folder} --data", "hash everything again"),
    ]
