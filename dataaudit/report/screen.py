"""The one screen that `show` and `build` print, and what a notebook shows: what a manifest is, and what stands out."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dataaudit import text as t
from dataaudit.errors import DataAuditError, ManifestMismatch
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.stored import shown
from dataaudit.metrics.meanings import exit_text
from dataaudit.metrics.registry import FAMILIES
from dataaudit.metrics.shown import Standout
from dataaudit.metrics.volume.facts import Overview, identity, overview, shards_read, splits_table
from dataaudit.render.blocks import Facts, Point, Points, Prose, Section
from dataaudit.render.cells import cells, fold, shortened, wrap
from dataaudit.render.line import Name, say, spell
from dataaudit.render.terminal import facts, page, prose, section, terminal_width
from dataaudit.report.sections import facts_of
from dataaudit.report.standouts import by_turns, standout_facts, standouts

LINES = 24
"""Lines of a terminal: the screen never has more."""
_NAME = 24
_POINTS, _TITLE = 12, 80
_PLACE = 16
"""Cells that the name of a source has at least."""
_LEAST = 8
_INDENT = 2
_SLACK = 20
"""Cells that a line may leave empty, as words are not broken."""
_ESCAPE = 3
"""Cells that a line grows by when it is kept from being a command of a CI runner."""


def screen(manifest: Manifest, width: int, last: Sequence[str] = ()) -> str:
    """Return the screen: at most 24 lines of at most ``width`` cells.

    Args:
        manifest: What it is about.
        width: Of the terminal, 72 or more.
        last: Lines that stand before the commands, each within ``width``; at most 4.
    """
    view = overview(manifest)
    head = [shortened(f"{view.dataset} {view.version}", width), *_identity(view, width)]
    absent = prose(told, width) if (told := not_looked_for(manifest)) else []
    found = standouts(manifest)
    commands = _commands(view, found, width)
    blanks = 2 + bool(last)
    room = LINES - len(head) - len(absent) - len(last) - len(commands) - blanks - 1
    nothing = "Nothing stands out of what was looked for." if absent else "Nothing stands out."
    lines = _listed(found, width, room) if found else prose(nothing, width)
    title = "What stands out, worst first (`--section NAME` prints more of one)" if found else "What stands out"
    return page(head[0], head[1:], [*section(title, lines), *absent], last, commands)


def _identity(view: Overview, width: int) -> list[str]:
    """Return id, size and splits, a line each; two for a size with very long numbers."""
    whole = view.totals
    size = f"{t.plural(whole.documents, 'document')}, {t.size(whole.bytes)}, {t.plural(whole.tokens, 'token')}"
    read = shards_read(view.ledger)
    name = " " * max(0, min(_INDENT, width - len(view.id))) + view.id
    tokenizer = f" ({shortened(view.tokenizer['name'], _NAME)})"
    line = f"{size}{tokenizer}; {read}"
    line = line if cells(line) + _INDENT <= width else f"{size}; {read}"
    return [name, *prose(line, width), *_splits(view, width)]


def _splits(view: Overview, width: int) -> list[str]:
    """Return the splits, as many as fit on a line."""
    parts = [
        f"{shortened(one.name, _NAME)} {t.plural(one.documents, 'document')}, {t.plural(one.tokens, 'token')}"
        if not index
        else f"{shortened(one.name, _NAME)} {t.count(one.documents)}, {t.count(one.tokens)}"
        for index, one in enumerate(view.splits)
    ]
    parts = [part + (" (held out)" if one.held_out else "") for part, one in zip(parts, view.splits, strict=True)]
    for number in range(min(len(parts), width // _LEAST), 0, -1):
        left = len(parts) - number
        line = "; ".join([*parts[:number], *([f"and {t.plural(left, 'more split')}"] if left else [])])
        if cells(line) + _INDENT <= width:
            return prose(line, width)
    return prose(f"{t.plural(len(parts), 'split')}", width) if parts else []


def _listed(found: Sequence[Standout], width: int, room: int) -> list[str]:
    """Return as many as there is room for, and how many are left out."""
    label = max(cells(one.part) for one in found) + 2
    chosen: list[tuple[int, list[str]]] = []
    used = 0
    for index in by_turns(found):
        lines = _lines(found[index], label, width)
        if used + len(lines) > room - (len(chosen) + 1 < len(found)):
            break
        chosen.append((index, lines))
        used += len(lines)
    chosen.sort(key=lambda pair: pair[0])
    kept = [line for _, lines in chosen for line in lines]
    listed = {index for index, _ in chosen}
    left = Counter(one.part for index, one in enumerate(found) if index not in listed)
    return kept + (_left_out(left, width) if left else [])


def _left_out(parts: Counter[str], width: int) -> list[str]:
    """Return a line that says how many are left out, and of what: as many parts as it has room for."""
    named = [f"{name} {t.count(number)}" for name, number in parts.most_common()]
    start = f"and {t.count(parts.total())} more"
    for number in range(len(named), 0, -1):
        more = ", ..." if number < len(named) else ""
        text = f"{start}: {', '.join(named[:number])}{more}"
        if cells(text) + _INDENT <= width:
            break
    return prose(text, width)


def _lines(one: Standout, label: int, width: int) -> list[str]:
    """Return the line of one thing, the name of its place shortened; two where it is too long even so."""
    column = width - _INDENT - label
    whole = spell(one.sentence(column))
    if cells(whole) <= column:
        return [_row(one.part, whole, label)]
    spare = column - cells(spell(one.sentence(_PLACE))) + _PLACE
    least = _LEAST if one.shard is not None else _PLACE
    shorter = spell(one.sentence(max(spare, least)))
    if cells(shorter) <= column:
        return [_row(one.part, shorter, label)]
    column -= _ESCAPE
    pieces = fold(spell(one.sentence(max(spare + column - _SLACK, _LEAST))), column)
    return [_row(one.part if not index else "", piece, label) for index, piece in enumerate(pieces)]


def _row(part: str, text: str, label: int) -> str:
    return " " * _INDENT + part.ljust(label) + text


def not_looked_for(manifest: Manifest) -> str:
    """Say which stages did not run: what they would have found cannot stand out. Empty when all did."""
    ran = {one.name for one in manifest.core.stages}
    absent = [one for one in FAMILIES if one.looked_for and one.stage_name not in ran]
    held_out = any(split.held_out for split in manifest.core.splits)
    idle = [one for one in absent if not held_out and any(metric.sets == "held_out" for metric in one.metrics)]
    groups = (("no split is held out", idle), ("the stages are off", [one for one in absent if one not in idle]))
    told = [f"as {why}: {', '.join(one.stage_name for one in ones)}" for why, ones in groups if ones]
    return f"Not looked for, {'; '.join(told)}" if told else ""


def _commands(view: Overview, found: Sequence[Standout], width: int) -> list[str]:
    """Return the commands that print the rest; `DIR` stands for a folder whose name is too long for a line."""
    shards = [*(lost.shard for lost in view.unread[:1]), *(one.shard for one in found if one.shard is not None), 0]
    told = "why this shard was not read" if view.unread else "what is known of one shard"
    for folder in (t.clean(shlex.quote(view.manifest)), "DIR"):
        pairs = [
            (f"dataaudit show {folder} --all", "or --section NAME, --metric NAME, --json"),
            (f"dataaudit inspect {folder} {shards[0]}", told),
            (f"dataaudit report {folder} --out report.html", "the same in a browser"),
        ]
        if max(cells(command) for command, _ in pairs) + _INDENT <= width:
            break
    lines = facts(pairs, width)
    return lines if len(lines) == len(pairs) else [" " * _INDENT + command for command, _ in pairs]


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


def manifest_blocks(manifest: Manifest) -> Section:
    """Return what a notebook shows of a manifest; of a damaged one that it is."""
    core = manifest.core
    title = say("{} {}", Name(core.dataset.name, _TITLE), Name(core.dataset.version, _TITLE))
    try:
        view = overview(manifest)
        found = standouts(manifest)
    except DataAuditError as error:
        points = Points(items=(Point(tone="bad", text=str(error)),))
        return Section(id="manifest", title=title, tone="bad", blocks=(points,))
    things = f"{t.plural(len(found), 'thing')} stand{'s' if len(found) == 1 else ''} out"
    chosen = [found[index] for index in sorted(by_turns(found)[:_POINTS])]
    left = f"{len(found) - len(chosen):,} more are not listed. " if len(chosen) < len(found) else ""
    ledger = core.ledger
    held_back = f", {t.count(ledger.listed_shards)} held back by the list" if ledger.listed_shards else ""
    read = ("shards read", f"{t.count(ledger.shards.read)} of {t.count(ledger.shards.planned)}{held_back}")
    return Section(
        id="manifest",
        title=say("{}: {}", title, things if found else "nothing stands out"),
        tone=found[0].kind.tone if found else "good",
        blocks=(
            Points(items=tuple(Point(tone=one.kind.tone, text=one.sentence()) for one in chosen)),
            Prose(text=left + not_looked_for(manifest)),
            splits_table(view),
            Facts(pairs=(read, *identity(view).pairs)),
        ),
    )
