"""The difference as blocks: the bump it means and why, then totals, shards, metrics, drift and settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dataaudit.base import text as t
from dataaudit.base.render import markdown as md
from dataaudit.base.render.blocks import (
    Block,
    Cell,
    Column,
    Facts,
    Point,
    Points,
    Prose,
    Row,
    Section,
    Table,
    Tone,
    names,
    numbers,
    rows_of,
    toned,
)
from dataaudit.base.render.blocks import words as word_columns
from dataaudit.base.render.line import Interval, Line, Name, join, measured, nats, say
from dataaudit.base.render.terminal import facts as fact_lines
from dataaudit.base.render.terminal import page, parts_of, section, terminal_width
from dataaudit.base.render.terminal import prose as prose_lines
from dataaudit.decide.diff import words
from dataaudit.decide.diff.difference import Bump, Difference, Drift, MetricChange, Number, Recut, ShardChange
from dataaudit.metrics.drift.definition import MovedToken, text_or_id, tokens_that_moved

MOST_CHARACTERS = 65_535
"""GitHub takes 65,536 characters in a comment."""
_NAME, _LONG, _BRIEF = 60, 200, 24
_SHORTER = (words.LISTED, 5, 2, 0)
_TOKENS, _SAID, _OPEN, _NEXT, _EVERY = 15, 6, 12, 40, 2**31
_TONES: dict[Bump, Tone] = {Bump.NONE: "good", Bump.PATCH: "", Bump.MINOR: "", Bump.MAJOR: "warn"}
_TITLE = "What changed"
_METRICS = "Metrics, what matters most first"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extent:
    """How much of a difference is said."""

    rows: int
    """Rows of a table that are made."""
    places: int
    """Splits, and places of the corpus, of which more is said."""
    name: int = _NAME
    """Characters of a name."""
    summed: bool = True
    """Whether records without a difference are added up."""
    listed: bool = False
    """Whether each of them is listed."""


_SHORT = _Extent(rows=words.LISTED, places=words.LISTED)
_WHOLE = _Extent(rows=_EVERY, places=_EVERY, summed=False, listed=True)
_PAGE = _Extent(rows=_OPEN + _NEXT, places=2, listed=True)


def render(difference: Difference, form: str, *, everything: bool = False) -> str:
    """Return a difference as ``text``, ``json`` or ``md``."""
    if form == "json":
        from dataaudit.decide.diff.difference import render_json

        return render_json(difference)
    return (render_markdown if form == "md" else render_text)(difference, everything=everything)


def render_text(difference: Difference, *, everything: bool = False, width: int | None = None) -> str:
    """Return the page for a terminal."""
    columns, extent = width or terminal_width(), _WHOLE if everything else _SHORT
    title = say("{}: {}", words.sides(difference), words.verdict(difference))
    parts = _parts(difference, extent)
    shown = (lines for part in parts for lines in parts_of(part, columns, extent.rows, "; --all lists them"))
    why = [line for point in _causes(difference) for line in prose_lines(point.text, columns)]
    return page(title, fact_lines(_sides(difference).pairs, columns), section("Why", why), *shown)


def render_markdown(difference: Difference, *, everything: bool = False) -> str:
    """Return a comment for a pull request, with as many rows of each section as fit."""
    most = max(map(len, (difference.shards, difference.metrics, difference.drifts, difference.settings)))
    for limit in (*_halved(most if everything else 0), *_SHORTER):
        for name in (_NAME, _BRIEF):
            text = "\n".join(_markdown(difference, limit, name)) + "\n"
            if len(text) <= MOST_CHARACTERS:
                return text
    title = md.markdown(words.verdict(difference, _BRIEF))
    return f"## Data: {title}\n\nToo much changed for a comment: `dataaudit diff` lists it.\n"


def difference_blocks(difference: Difference) -> Section:
    """Return what a notebook shows of a difference."""
    title = say("{}: {}", words.sides(difference), words.verdict(difference))
    blocks: tuple[Block, ...] = (Points(items=_causes(difference)), _sides(difference))
    blocks += tuple(block for part in _parts(difference, _SHORT) for block in part.blocks)
    return Section(id="changes", title=title, tone=_TONES[difference.proposal.bump], blocks=blocks)


def no_baseline() -> Section:
    """Return what stands in a page when there is nothing to compare with."""
    text = "No baseline was given; --baseline OLD compares this manifest with an older one."
    return Section(id="changes", title=_TITLE, lead=text, tone="quiet")


def change_section(difference: Difference) -> Section:
    """Return everything that changed, as a part of a page."""
    versions = say("{} to {}", Name(difference.old.version, 40), Name(difference.new.version, 40))
    if difference.equal:
        lead = say("Nothing: {} are the same manifest.", versions)
        return Section(id="changes", title=_TITLE, lead=lead, tone="good")
    proposal, warning = difference.proposal, words.complaint(difference)
    proven = "" if proposal.proven else ", as far as digests show"
    lead = say("From version {}: a {} change{}.", versions, proposal.bump.value, proven)
    if proposal.bump == Bump.NONE:
        lead = say("From version {}: no change of the data{}.", versions, proven)
    elif proposal.version:
        lead = say("{} The least version for it is {}.", lead, Name(proposal.version, 40))
    if warning:
        lead = say("{} But {}.", lead, warning)
    causes = tuple(point for point in _causes(difference) if point.tone != "bad")
    blocks: list[Block] = (
        [Points(title="Why", items=tuple(replace(point, section="changes") for point in causes))] if causes else []
    )
    for part in _parts(difference, _PAGE):
        for block in part.blocks:
            blocks += _opened(block) if isinstance(block, Table) and block.title == _METRICS else [block]
    moved = [drift for drift in difference.drifts if drift.kl is not None]
    top = max(moved, key=lambda item: item.kl or 0.0, default=None)
    if top is not None and top.top:
        tokens = [
            MovedToken(
                text_or_id(token_shift.piece, token_shift.token),
                token_shift.old,
                token_shift.new,
                token_shift.kl,
                token_shift.js,
            )
            for token_shift in top.top[:_TOKENS]
        ]
        title = say("Tokens that moved most in {}", _place(top))
        blocks.append(tokens_that_moved("chart-changes", title, tokens, "before", "now"))
    return Section(id="changes", title=_TITLE, lead=lead, tone="warn" if warning else "", blocks=tuple(blocks))


def _opened(table: Table) -> list[Block]:
    """Return the first rows of a table, and the next ones folded."""
    if len(table.rows) <= _OPEN + 2:
        return [table]
    rest, number = table.rows[_OPEN:], (table.number or len(table.rows)) - _OPEN
    title = f"The next {len(rest)} changed metrics" if len(rest) < number else "The other changed metrics"
    return [
        replace(table, rows=table.rows[:_OPEN], number=_OPEN),
        replace(table, title=title, rows=rest, number=number, note="", folded=True),
    ]


def _markdown(difference: Difference, limit: int, name: int) -> list[str]:
    old, new = difference.old, difference.new
    sides = (
        say("{} {} ({})", Name(side.name, name), Name(side.version, name), Name(side.id[:19])) for side in (old, new)
    )
    lines = [f"## Data: {md.markdown(words.verdict(difference, name))}", ""]
    lines.append(f"From {' to '.join(map(md.markdown, sides))}")
    if difference.equal:
        return lines
    if warning := words.complaint(difference):
        lines += ["", f"**Version: {warning}.**"]
    lines += ["", *(f"- {md.markdown(point.text)}" for point in _causes(difference) if point.tone != "bad")]
    for part in _parts(difference, _Extent(rows=limit, places=limit, name=name)):
        own = md.lines_of(part.blocks, limit)
        lines += ["", *(own if part.id == "totals" else md.folded(str(part.title), own))] if own else []
    return lines


def _halved(most: int) -> list[int]:
    """Return numbers of rows to try, each half of the one before, down to what is listed anyway."""
    tried = []
    most = min(most, MOST_CHARACTERS // 10)
    while most > words.LISTED:
        tried.append(most)
        most //= 2
    return tried


def _sides(difference: Difference) -> Facts:
    pairs: list[tuple[Line, Line]] = [("old", difference.old.id), ("new", difference.new.id)]
    if difference.old.schema != difference.new.schema:
        pairs.append(("schema", f"{difference.old.schema} -> {difference.new.schema}"))
    if difference.descends:
        pairs.append(("parent", "the new manifest names the old one as its reference"))
    return Facts(pairs=tuple(pairs))


def _causes(difference: Difference) -> tuple[Point, ...]:
    """Return why the bump is due, and before it what is wrong with the versions."""
    warning = words.complaint(difference)
    causes = [
        Point(text=f"{cause.bump}: {cause.text}{'' if cause.proven else ' (not proven)'}", tone=_TONES[cause.bump])
        for cause in difference.proposal.causes
    ]
    return (*((Point(text=f"VERSION: {warning}.", tone="bad"),) if warning else ()), *causes)


def _parts(difference: Difference, extent: _Extent) -> Iterator[Section]:
    """Yield what changed in parts; nothing of equal manifests."""
    if difference.equal:
        return
    yield Section(id="totals", title="", blocks=(_totals(difference),))
    yield Section(id="shards", title="Shards", blocks=tuple(_shards(difference, extent)))
    yield Section(id="metrics", title="Metrics", blocks=tuple(_metrics(difference, extent)))
    yield Section(id="drift", title="Drift of tokens", blocks=tuple(_drifts(difference, extent)))
    yield Section(id="settings", title="What else differs", blocks=(_settings(difference, extent),))


def _totals(difference: Difference) -> Table:
    old, new = difference.old, difference.new
    rows = (
        ("shards read", old.shards, new.shards),
        ("shards unread", old.unread_shards, new.unread_shards),
        ("documents", old.documents, new.documents),
        ("bytes of text", old.bytes, new.bytes),
        ("tokens", old.tokens, new.tokens),
    )
    return Table(
        title="Totals",
        columns=(*names(""), *numbers("old", "new", "change")),
        rows=tuple((what, was, now, _moved(was, now)) for what, was, now in rows),
    )


def _moved(was: int, now: int) -> Line | Cell:
    if now == was:
        return ""
    return Cell(text=f"{now - was:+,}", aside=f"{(now - was) / was:+.1%}".replace("%", "\xa0%") if was else "")


def _shards(difference: Difference, extent: _Extent) -> Iterator[Block]:
    if not difference.fates:
        return
    same = difference.unchanged_shards
    counts = tuple(
        (words.FATES[fate.fate], fate.old_shards, fate.new_shards, fate.old_documents, fate.new_documents)
        for fate in difference.fates
    )
    yield Table(
        title="Shards, by what became of them",
        columns=(*names(""), *numbers("shards, old", "shards, new", "documents, old", "documents, new")),
        whole=True,
        rows=(*counts, ("as it was", same, same, "", "")),
        note="repacked: the same rows, stored as other bytes." if any("repacked" in row for row in counts) else "",
    )

    def row(change: ShardChange) -> Row:
        status, place = words.shard_status(change), Name(words.shard_place(change), 2 * extent.name)
        shown: Line = Name(status, extent.name) if status else ""
        return words.FATES[change.fate], place, shown, change.old_documents, change.new_documents

    yield Table(
        title="Shards that changed, worst first",
        columns=(*word_columns(""), *names("split/uri", "status"), *numbers("documents, old", "documents, new")),
        **rows_of(difference.shards, row, extent.rows),
        noun="shard",
    )
    for recut in difference.recuts[: extent.places]:
        yield from (Prose(text=text) for text in _recut(recut, extent.name))
    if len(difference.recuts) > extent.places:
        yield Prose(text=f"and {t.plural(len(difference.recuts) - extent.places, 'more split')}")


def _recut(recut: Recut, name: int) -> Iterator[Line]:
    """Yield whether the shards of a split were only cut otherwise."""
    says = "nothing compared differs, but too little can be compared"
    if recut.consistent:
        same = "consistent with the same documents, cut or ordered otherwise; not proven. Equal"
        says = f"{same}: {'; '.join(recut.agree)}"
    elif recut.differ:
        says = f"not the same documents cut otherwise. Different: {'; '.join(recut.differ)}"
    yield say("{}: {}.", Name(recut.split, name), says)
    if recut.unknown and not recut.differ:
        yield say("{}: not compared: {}.", Name(recut.split, name), "; ".join(recut.unknown))


def _metrics(difference: Difference, extent: _Extent) -> Iterator[Block]:
    held, name = words.compared(difference), extent.name

    def start(change: MetricChange) -> Row:
        where = join(", ", (Name(str(value), name) for value in change.scope.as_dict().values()))
        old, new = (_number(side, change.unit) for side in (change.old, change.new))
        return Name(f"{change.metric} {change.stat}", 2 * name), where if where.parts else "(all)", old, new

    def row(change: MetricChange) -> Row:
        mark = words.judged(change)
        return *start(change), _change(change), toned(mark and Name(mark), when=mark != words.MAYBE)

    old_new = (Column("old", "value"), Column("new", "value"))
    yield Table(
        title=_METRICS,
        columns=(*names("metric", "where"), *old_new, Column("change", "value"), *word_columns("")),
        **rows_of(held, row, extent.rows),
        noun="changed record",
        note=join("; ", words.noise_notes(held[: extent.rows])),
        empty="No metric that both have is different.",
    )
    for fate, reason, metrics in words.apart(difference) if extent.summed else ():
        listed = join(", ", (say("{} {}", Name(metric, name), number) for metric, number in metrics.items()))
        records = t.plural(sum(metrics.values()), "record")
        yield Prose(text=say("{} {}: {}", records, words.apart_words(fate, reason), listed))
    rest = [metric_change for metric_change in difference.metrics if metric_change.fate not in words.SIGNED]
    if extent.listed and rest:
        yield Table(
            title="Records without a difference",
            columns=(*names("metric", "where"), *old_new, *names("why")),
            **rows_of(
                rest,
                lambda metric_change: (
                    *start(metric_change),
                    words.apart_words(metric_change.fate, metric_change.reason),
                ),
                extent.rows,
            ),
            noun="record",
            folded=True,
        )
    told = f"{t.plural(difference.unchanged_metrics, 'record')} as before."
    if difference.hidden_metrics:
        hidden = t.plural(difference.hidden_metrics, "record")
        told += f" {hidden} of personal data not shown: small counts may point at people."
    yield Prose(text=told)


def _number(side: Number | None, unit: str) -> Line | Cell:
    """Return a value with its interval."""
    if side is None:
        return None
    if side.value is None:
        return side.reason or side.status
    value = measured(side.value, unit)
    if side.low is None or side.high is None:
        return value
    return Cell(text=value, detail=Interval(side.low, side.high, value.unit))


def _change(change: MetricChange) -> Line | Cell:
    """Return a difference with its interval, or with what chance leaves of it."""
    value = measured(change.difference, change.unit, signed=True)
    low, high = (change.low, change.high) if change.low is not None else (change.chance_low, change.chance_high)
    return value if low is None else Cell(text=value, detail=Interval(low, high, value.unit, signed=True))


def _drifts(difference: Difference, extent: _Extent) -> Iterator[Block]:
    def row(item: Drift) -> Row:
        split: Line = "(all)" if item.split is None else Name(item.split, extent.name)
        source: Line = "(all)" if item.source is None else Name(item.source, extent.name)
        chance: Line = (
            None if item.by_chance is None else say("{}{}", ">= " if item.floor else "", nats(item.by_chance))
        )
        counts = (item.old_tokens, item.new_tokens, nats(item.kl), nats(item.js), chance)
        return split, source, *counts, words.REASONS.get(item.reason, "")

    heads = ("tokens, old", "tokens, new", "KL, new to old", "Jensen-Shannon", "KL by chance")
    floored = any(drift.floor for drift in difference.drifts[: extent.rows])
    note = (
        "KL by chance, >=: with tokens drawn one by one. Documents repeat their words, so chance gives several"
        " times as much; a build with `reference` set to the old manifest measures it."
    )
    yield Table(
        title="Drift of token counts, in nats",
        columns=(*names("split", "source"), *numbers(*heads), *word_columns("")),
        **rows_of(difference.drifts, row, extent.rows),
        noun="place",
        note=note if floored else "",
    )
    numbered = [drift for drift in difference.drifts if drift.kl is not None]
    sources = [drift for drift in numbered if drift.source is not None]
    for drift in numbered if extent == _WHOLE else (sources or numbered)[: min(extent.places, 2)]:
        tokens = (
            say("{} ({})", Name(text_or_id(shift.piece, shift.token), 24), "+" if shift.kl > 0 else "-")
            for shift in drift.top[:_SAID]
        )
        text = "tokens that moved most in {} (+ more often, - less): {}"
        yield Prose(text=say(text, _place(drift), join(", ", tokens)))


def _place(drift: Drift) -> Line:
    if drift.split is None:
        return "the whole dataset"
    split = Name(drift.split, _NAME)
    return split if drift.source is None else say("{}, source {}", split, Name(drift.source, _NAME))


def _settings(difference: Difference, extent: _Extent) -> Table:
    cut = _LONG if extent.listed else extent.name
    return Table(
        title="Settings that decide the numbers",
        columns=(*word_columns("in"), *names("setting", "old", "new")),
        **rows_of(
            difference.settings,
            lambda setting: (
                setting.area,
                Name(setting.name, extent.name),
                _value(setting.old, cut),
                _value(setting.new, cut),
            ),
            extent.rows,
        ),
        noun="setting",
        folded=True,
    )


def _value(value: str | None, limit: int) -> Line:
    return None if value is None else Name(value, limit)
