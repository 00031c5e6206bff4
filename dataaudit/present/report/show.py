"""``dataaudit show``: a manifest on one screen, its whole text, one part of it, or every record of one metric.

Families name the parts (`show --section NAME`) and the areas of a page. A notebook shows what the screen does.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError, DataAuditError
from dataaudit.base.render.blocks import (
    Block,
    Facts,
    Point,
    Points,
    Prose,
    Section,
    column,
    merged,
    table_of,
)
from dataaudit.base.render.line import Line, Name, Number, cells, fold, join, say, shortened, spell, wrap
from dataaudit.base.render.terminal import ROWS, facts, page, parts_of, prose, render, section, terminal_width
from dataaudit.base.yamlfile import nearest
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.metric import Metric
from dataaudit.metrics.pii.cells import hidden_records
from dataaudit.metrics.registry import FAMILIES, all_shown
from dataaudit.metrics.secrets.definition import secrets, warning
from dataaudit.metrics.shown import Highlight, Part, exit_text
from dataaudit.metrics.volume.definition import Overview, identity, overview, shards_read, splits_table
from dataaudit.present.report.highlights import highlight_facts, highlights, outlier_table, outliers, round_robin

_NOTES = 100


def metric_names(manifest: Manifest) -> list[str]:
    """Return the metrics that a manifest has, sorted."""
    return manifest.metric_rows().names("metric")


def _notes(manifest: Manifest) -> Iterable[Block]:
    return [Facts(title="Notes", pairs=tuple(("-", Name(note, 200)) for note in manifest.run.notes[:_NOTES]))]


def _metrics(manifest: Manifest) -> Iterable[Section]:
    names = Prose(text=join(", ", map(Name, metric_names(manifest))))
    return [Section(id="metrics", title="Metrics (`--metric NAME` shows every record of one)", blocks=(names,))]


_OWN = (
    Part(name="shards", blocks=lambda manifest: [outlier_table(outliers(manifest))]),
    Part(name="notes", blocks=_notes),
    Part(name="metrics", blocks=_metrics),
)
_PARTS = (*_OWN, *(part for shown in all_shown() for part in shown.parts))
_LAST = tuple(part.name for part in _OWN)
SECTIONS = (*dict.fromkeys(part.name for part in _PARTS if part.name and part.name not in _LAST), *_LAST)
"""The names of all parts, in the order of the whole text."""


def blocks_of(name: str, manifest: Manifest) -> list[Section | Block]:
    """Return the blocks of a part, without sections that only say that nothing was looked for."""
    blocks = [block for part in _PARTS if part.name == name for block in part.blocks(manifest)]
    return [item for item in blocks if not (isinstance(item, Section) and item.tone == "quiet" and not item.blocks)]


def areas(manifest: Manifest, titles: dict[str, str]) -> dict[str, Section]:
    """Return the sections of a page by id: those of an area merged, what stands beside them last."""
    made: dict[str, list[Section | Block]] = {}
    for part in _PARTS:
        if part.area:
            made.setdefault(part.area, []).extend(part.blocks(manifest))
    return {area: _area(area, blocks, titles) for area, blocks in made.items()}


def _area(area: str, blocks: list[Section | Block], titles: dict[str, str]) -> Section:
    sections = [block for block in blocks if isinstance(block, Section)]
    beside = tuple(block for block in blocks if not isinstance(block, Section))
    title = titles.get(area) or sections[0].title
    return merged(area, title, [*sections, Section(id="", title="", tone="quiet", blocks=beside)])


def facts_of(manifest: Manifest, *, whole: bool = False) -> dict[str, Any]:
    """Return what the families know, for JSON; ``whole`` adds what may be long."""
    made = {name: make for shown in all_shown() for name, make in shown.facts.items()}
    made |= {name: make for shown in all_shown() for name, make in shown.long_facts.items() if whole}
    return {name: make(manifest) for name, make in made.items()}


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
    """Return the screen: at most 24 lines of at most ``width`` cells."""
    view = overview(manifest)
    head = [shortened(f"{view.dataset} {view.version}", width), *_identity(view, width)]
    absent = prose(not_looked_for(manifest), width)
    every = highlights(manifest)
    commands = _commands(view, every, width)
    blanks = 2 + bool(last)
    room = LINES - len(head) - len(absent) - len(last) - len(commands) - blanks - 1
    nothing = "Nothing stands out of what was looked for." if absent else "Nothing stands out."
    lines = _listed(every, width, room) if every else prose(nothing, width)
    title = "What stands out, worst first (`--section NAME` prints more of one)" if every else "What stands out"
    return page(head[0], head[1:], [*section(title, lines), *absent], last, commands)


def _identity(view: Overview, width: int) -> list[str]:
    """Return id, size and splits, a line each; two for a size with very long numbers."""
    whole = view.totals
    documents, tokens = t.plural(whole["documents"], "document"), t.plural(whole["tokens"], "token")
    size = f"{documents}, {t.size(whole['bytes'])}, {tokens}"
    read = shards_read(view.ledger)
    name = " " * max(0, min(_INDENT, width - len(view.id))) + view.id
    tokenizer = f" ({shortened(view.tokenizer['name'], _NAME)})"
    line = _first_that_fits([f"{size}{tokenizer}; {read}", f"{size}; {read}"], width)
    return [name, *prose(line, width), *_splits(view, width)]


def _splits(view: Overview, width: int) -> list[str]:
    """Return the splits, as many as fit on a line."""
    parts = []
    for index, split in enumerate(view.splits):
        documents, tokens = t.count(split["documents"]), t.count(split["tokens"])
        if not index:
            documents, tokens = t.plural(split["documents"], "document"), t.plural(split["tokens"], "token")
        held_out = " (held out)" if split["held_out"] else ""
        parts.append(f"{shortened(split['name'], _NAME)} {documents}, {tokens}{held_out}")
    numbers = range(min(len(parts), width // _LEAST), 0, -1)
    lines = ("; ".join([*parts[:number], *_more(len(parts) - number, "split")]) for number in numbers)
    return prose(_first_that_fits([*lines, t.plural(len(parts), "split")], width), width) if parts else []


def _more(left: int, noun: str) -> list[str]:
    return [f"and {t.plural(left, f'more {noun}')}"] if left else []


def _first_that_fits(texts: Sequence[str], width: int) -> str:
    """Return the first text that fits a line; the last where none does."""
    return next((text for text in texts if cells(text) + _INDENT <= width), texts[-1])


def _listed(every: Sequence[Highlight], width: int, room: int) -> list[str]:
    """Return as many as there is room for, and how many are left out."""
    label = max(cells(standout.part) for standout in every) + 2
    chosen: dict[int, list[str]] = {}
    for index in round_robin(every):
        lines = _lines(every[index], label, width)
        room -= len(lines)
        if room < (len(chosen) + 1 < len(every)):
            break
        chosen[index] = lines
    left = Counter(standout.part for index, standout in enumerate(every) if index not in chosen)
    return [line for index in sorted(chosen) for line in chosen[index]] + (_left_out(left, width) if left else [])


def _left_out(parts: Counter[str], width: int) -> list[str]:
    """Return a line that says how many are left out, and of what: as many parts as it has room for."""
    named = [f"{name} {t.count(number)}" for name, number in parts.most_common()]
    start = f"and {t.count(parts.total())} more"
    cut = [f"{', '.join(named[:number])}, ..." for number in range(len(named) - 1, 0, -1)]
    return prose(_first_that_fits([f"{start}: {text}" for text in (", ".join(named), *cut)], width), width)


def _lines(standout: Highlight, label: int, width: int) -> list[str]:
    """Return the line of a thing, the name of its place shortened; two lines where that is too long."""
    column = width - _INDENT - label
    whole = spell(standout.sentence(column))
    if cells(whole) <= column:
        return [_row(standout.part, whole, label)]
    spare = column - cells(spell(standout.sentence(_PLACE))) + _PLACE
    least = _LEAST if standout.shard is not None else _PLACE
    shorter = spell(standout.sentence(max(spare, least)))
    if cells(shorter) <= column:
        return [_row(standout.part, shorter, label)]
    column -= _ESCAPE
    pieces = fold(spell(standout.sentence(max(spare + column - _SLACK, _LEAST))), column)
    return [_row(standout.part if not index else "", piece, label) for index, piece in enumerate(pieces)]


def _row(part: str, text: str, label: int) -> str:
    return " " * _INDENT + part.ljust(label) + text


def not_looked_for(manifest: Manifest) -> str:
    """Say which stages did not run: what they would have found cannot stand out. Empty when all did."""
    ran = {stage_record.name for stage_record in manifest.core.stages}
    absent = [family for family in FAMILIES if family.looked_for and family.stage_name not in ran]
    held_out = any(split.held_out for split in manifest.core.splits)
    idle = [family for family in absent if not held_out and any(metric.sets == "held_out" for metric in family.metrics)]
    groups = (
        ("no split is held out", idle),
        ("the stages are off", [family for family in absent if family not in idle]),
    )
    parts = [f"as {why}: {', '.join(family.stage_name for family in own)}" for why, own in groups if own]
    return f"Not looked for, {'; '.join(parts)}" if parts else ""


def _commands(view: Overview, every: Sequence[Highlight], width: int) -> list[str]:
    """Return the commands that print the rest; `DIR` stands for a folder whose name is too long for a line."""
    shards = [lost["shard"] for lost in view.unread[:1]]
    shards += [standout.shard for standout in every if standout.shard is not None]
    shard = next(iter(shards), 0)
    what = "why this shard was not read" if view.unread else "what is known of one shard"
    for folder in (t.clean(shlex.quote(view.manifest)), "DIR"):
        pairs = [
            (f"dataaudit show {folder} --all", "or --section NAME, --metric NAME, --json"),
            (f"dataaudit inspect {folder} {shard}", what),
            (f"dataaudit report {folder} --out report.html", "the same in a browser"),
        ]
        if max(cells(command) for command, _ in pairs) + _INDENT <= width:
            break
    lines = facts(pairs, width)
    return lines if len(lines) == len(pairs) else [" " * _INDENT + command for command, _ in pairs]


def build_summary(result: Any, *, as_json: bool) -> str:
    """Return what a build prints on stdout, of its result and the manifest in it."""
    manifest = result.manifest
    code = int(result.exit_code)
    if as_json:
        run = {
            "exit_code": code,
            "exit_meaning": exit_text(code),
            "parts_planned": result.planned,
            "parts_scanned": result.scanned,
        }
        facts = {**facts_of(manifest), "stands_out": highlight_facts(manifest), "notes": manifest.run.notes}
        return t.as_json({**asdict(overview(manifest)), **facts, **run})
    width, notes = terminal_width(), manifest.run.notes
    first = t.clean(f"{t.plural(len(notes), 'note')} (--section notes), the first: {notes[0]}") if notes else ""
    last = ([first] if cells(first) <= width else [f"{fold(first, width - 3)[0]}..."]) if notes else []
    last += wrap(f"Exit code {code}: {exit_text(code)}", width) if code else []
    return screen(manifest, width, last)


def manifest_blocks(manifest: Manifest) -> Section:
    """Return what a notebook shows of a manifest; of a damaged manifest the damage."""
    core = manifest.core
    title = say("{} {}", Name(core.dataset.name, _TITLE), Name(core.dataset.version, _TITLE))
    try:
        view = overview(manifest)
        every = highlights(manifest)
    except DataAuditError as error:
        points = Points(items=(Point(tone="bad", text=str(error)),))
        return Section(id="manifest", title=title, tone="bad", blocks=(points,))
    things = f"{t.plural(len(every), 'thing')} stand{'s' if len(every) == 1 else ''} out"
    chosen = [every[index] for index in sorted(round_robin(every)[:_POINTS])]
    left = f"{len(every) - len(chosen):,} more are not listed. " if len(chosen) < len(every) else ""
    ledger = core.ledger
    held_back = f", {t.count(ledger.listed_shards)} held back by the list" if ledger.listed_shards else ""
    read = ("shards read", f"{t.count(ledger.shards.read)} of {t.count(ledger.shards.planned)}{held_back}")
    return Section(
        id="manifest",
        title=say("{}: {}", title, things if every else "nothing stands out"),
        tone=every[0].kind.tone if every else "good",
        blocks=(
            Points(items=tuple(Point(tone=standout.kind.tone, text=standout.sentence()) for standout in chosen)),
            Prose(text=left + not_looked_for(manifest)),
            splits_table(view),
            Facts(pairs=(read, *identity(view).pairs)),
        ),
    )


_NOT_SHOWN = (
    "{number} not shown: counts of personal data by split or source, small ones, and what would tell small ones may"
    " point at people. The table `metrics` of the manifest holds them; without --metric, sources are shown rounded."
)
_MAY_BE_SAID_ONCE = (3, 4, 5, 6, 8, 9)
"""Columns of the table of records (unit, bounds, method, status) that are left out when all rows agree."""


def show_manifest(
    folder: Path, metric: str | None = None, part: str | None = None, *, whole: bool = False, as_json: bool
) -> str:
    """Return one screen of a manifest, its whole text, one part of that, or every record of one metric."""
    if part is not None and part not in SECTIONS:
        like = difflib.get_close_matches(part, SECTIONS, n=1)
        meant = f" (did you mean `{like[0]}`?)" if like else ""
        raise ConfigError(f"no section `{t.clean(part, 60)}`{meant}", f"The parts: {', '.join(SECTIONS)}.")
    manifest = load_manifest(folder)
    if metric is not None:
        return _metric(manifest, metric, as_json=as_json)
    if as_json:
        return _facts(manifest)
    view, width = overview(manifest), terminal_width()
    title = say("{} {}", Name(view.dataset), Name(view.version))
    if part is not None:
        lines = _text(part, manifest, width)
        return page(title, *([], *lines) if lines else ([f"  Nothing of {part} is in this manifest."],))
    if whole:
        head = [*_warning(manifest, width), *facts(identity(view).pairs, width)]
        return page(title, head, *(lines for name in SECTIONS for lines in _text(name, manifest, width)))
    return screen(manifest, width)


def _text(part: str, manifest: Manifest, width: int) -> list[list[str]]:
    return [lines for item in blocks_of(part, manifest) for lines in parts_of(item, width, ROWS, "; --json lists all")]


def _warning(manifest: Manifest, width: int) -> list[str]:
    """Return the line that stands above everything else when secrets are confirmed."""
    confirmed = warning(secrets(manifest))
    text = say("WARNING: {}. Revoke them; the table `findings` has their places.", confirmed)
    return wrap(spell(text), width) if confirmed else []


def _facts(manifest: Manifest) -> str:
    """Return the facts of all parts as JSON."""
    return t.as_json(
        {
            **asdict(overview(manifest)),
            **facts_of(manifest, whole=True),
            "outliers": outliers(manifest),
            "metrics": metric_names(manifest),
            "stands_out": highlight_facts(manifest),
        }
    )


def _metric(manifest: Manifest, name: str, *, as_json: bool) -> str:
    records = sorted(manifest.metrics(name), key=_order)
    if not records:
        raise ConfigError(f"{manifest.place} has no metric `{name}`{nearest(name, metric_names(manifest))}")
    hidden = hidden_records(manifest, records)
    records = [record for index, record in enumerate(records) if index not in hidden]
    if as_json:
        value = [{**asdict(record), "scope": record.scope.as_dict()} for record in records]
        return t.as_json({"id": manifest.id, "metric": name, "records": value, "suppressed": len(hidden)})
    table = table_of("", records, *_RECORD, most=None)
    same = {
        index: cells[0]
        for index, cells in enumerate(zip(*table.rows, strict=True))
        if index in _MAY_BE_SAID_ONCE and len(set(map(spell, cells))) == 1
    }
    kept = [index for index in range(len(_RECORD)) if index not in same]
    parts = [say("{} {}", _RECORD[index].head, cell) for index, cell in same.items() if spell(cell) != t.NOTHING]
    table = replace(
        table,
        columns=tuple(_RECORD[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in table.rows),
    )
    note = _NOT_SHOWN.format(number=t.plural(len(hidden), "record")) if hidden else ""
    once = Prose(text=say("every record: {}", join(", ", parts)) if parts else "")
    title = say("{}: {}", Name(name), t.plural(len(records) + len(hidden), "record"))
    return render(title, [once, table, Prose(text=note)], most=None)


def _scope(record: Metric) -> Line:
    scope = join(" ", (say("{}={}", name, Name(str(value), 60)) for name, value in record.scope.as_dict().items()))
    return scope if scope.parts else "(all)"


def _number(field: str) -> Callable[[Metric], Line]:
    return lambda record: Number(getattr(record, field), "share" if record.unit == "ratio" else "decimal")


def _status(record: Metric) -> Line:
    return record.status if record.status == "ok" else say("{}: {}", record.status, Name(record.reason))


_RECORD = (
    column("scope", _scope, kind="name"),
    column("stat", shown=Name, kind="word"),
    column("value", _number("value")),
    column("unit", shown=Name, kind="word"),
    column("from", _number("low")),
    column("to", _number("high")),
    column("confidence", lambda record: None if record.confidence is None else f"{record.confidence:g}"),
    column("n"),
    column("method", kind="word"),
    column("status", _status, kind="word"),
)


def _order(record: Metric) -> tuple[Any, ...]:
    """Sort by what is spoken of, widest first, then by statistic with its numbers as numbers."""
    scope = record.scope.as_dict()
    parts = re.split(r"(\d+)", record.stat)
    stat = tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)
    return len(scope), tuple((name, str(value)) for name, value in scope.items()), stat
