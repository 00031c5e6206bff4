"""The difference as text, Markdown and blocks: the bump and why, then totals, shards, metrics, drift, settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from dataaudit.base.render import markdown as md
from dataaudit.base.render import terminal
from dataaudit.base.render.blocks import (
    Block,
    Cell,
    Declared,
    Facts,
    Point,
    Points,
    Prose,
    Section,
    Table,
    Tone,
    table_of,
    toned,
)
from dataaudit.base.render.line import Interval, Line, Name, join, measured, nats, say, spell
from dataaudit.base.text import plural
from dataaudit.decide.diff.compare import complaint
from dataaudit.decide.diff.compared_records import in_turns
from dataaudit.decide.diff.difference import (
    FATES,
    REASONS,
    Bump,
    Difference,
    Drift,
    MetricChange,
    MetricChangeKind,
    Number,
    Recut,
    ShardChange,
    ShardChangeKind,
    render_json,
)
from dataaudit.metrics.drift.definition import MovedToken, text_or_id, tokens_that_moved

MOST_CHARACTERS = 65_535
"""GitHub takes 65,536 characters in a comment."""
LISTED = 10
"""Rows of a section that are listed unless all are asked for."""
_NAME, _LONG, _BRIEF = 60, 200, 24
_SHORTER = (LISTED, 5, 2, 0)
_TOKENS, _MOVED, _OPEN, _NEXT, _EVERY = 15, 6, 12, 40, 2**31
_TONES: dict[Bump, Tone] = {Bump.NONE: "good", Bump.PATCH: "", Bump.MINOR: "", Bump.MAJOR: "warn"}
_TITLE = "What changed"
_METRICS = "Metrics, what matters most first"
_EXACT, _SURELY, _MAYBE = "", "<--", "~"
"""Marks of a change: counted; larger than noise, or than chance; not larger."""
_WITHOUT = {
    MetricChangeKind.LOST: "with a value before and none now ({})",
    MetricChangeKind.GAINED: "with a value now and none before ({})",
    MetricChangeKind.NOT_COMPARABLE: "not comparable ({})",
    MetricChangeKind.REMOVED: "only in the old manifest",
    MetricChangeKind.ADDED: "only in the new manifest",
}
"""Why records have no difference, the gravest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extent:
    """How much of a difference is shown."""

    rows: int
    """Rows of a table that are made."""
    places: int
    """Splits and drifts that get a paragraph."""
    name: int = _NAME
    """Characters of a name."""
    listed: bool = False
    """Whether each record without a difference is listed."""


_SHORT = _Extent(rows=LISTED, places=LISTED)
_WHOLE = _Extent(rows=_EVERY, places=_EVERY, listed=True)
_PAGE = _Extent(rows=_OPEN + _NEXT, places=2, listed=True)


def render(difference: Difference, form: str, *, everything: bool = False) -> str:
    """Return a difference as ``text``, ``json`` or ``md``."""
    if form == "json":
        return render_json(difference)
    return (render_markdown if form == "md" else render_text)(difference, everything=everything)


def render_text(difference: Difference, *, everything: bool = False, width: int | None = None) -> str:
    """Return the page for a terminal."""
    extent = _WHOLE if everything else _SHORT
    why = Points(title="Why", items=_causes(difference))
    shown: list[Block | Section] = [_sides(difference), why, *_parts(difference, extent)]
    return terminal.render(_title(difference), shown, width=width, most=extent.rows, rest="; --all lists them")


def render_markdown(difference: Difference, *, everything: bool = False) -> str:
    """Return a comment for a pull request, with as many rows of each section as fit."""
    most = max(map(len, (difference.shards, difference.metrics, difference.drifts, difference.settings)))
    most = min(most, MOST_CHARACTERS // 10) if everything else 0
    halves = [most >> half for half in range(most.bit_length()) if most >> half > LISTED]
    for limit in (*halves, *_SHORTER):
        for name in (_NAME, _BRIEF):
            text = "\n".join(_markdown(difference, limit, name)) + "\n"
            if len(text) <= MOST_CHARACTERS:
                return text
    title = md.markdown(_summary(difference, _BRIEF))
    return f"## Data: {title}\n\nToo much changed for a comment: `dataaudit diff` lists it.\n"


def line(difference: Difference) -> str:
    """Return a difference on one line."""
    return spell(_title(difference))


def difference_blocks(difference: Difference) -> Section:
    """Return what a notebook shows of a difference."""
    blocks: tuple[Block, ...] = (Points(items=_causes(difference)), _sides(difference))
    blocks += tuple(block for part in _parts(difference, _SHORT) for block in part.blocks)
    tone = _TONES[difference.proposal.bump]
    return Section(id="changes", title=_title(difference), tone=tone, blocks=blocks)


def change_section(difference: Difference | None) -> Section:
    """Return everything that changed, as a part of a page; without a difference, that there is none."""
    if difference is None:
        text = "No baseline was given; --baseline OLD compares this manifest with an older one."
        return Section(id="changes", title=_TITLE, lead=text, tone="quiet")
    versions = say("{} to {}", Name(difference.old.version, 40), Name(difference.new.version, 40))
    if difference.equal:
        lead = say("Nothing: {} are the same manifest.", versions)
        return Section(id="changes", title=_TITLE, lead=lead, tone="good")
    proposal, warning = difference.proposal, complaint(difference)
    proven = "" if proposal.proven else ", as far as digests show"
    lead = say("From version {}: a {} change{}.", versions, proposal.bump.value, proven)
    if proposal.bump == Bump.NONE:
        lead = say("From version {}: no change of the data{}.", versions, proven)
    elif proposal.version:
        lead = say("{} The least version for it is {}.", lead, Name(proposal.version, 40))
    if warning:
        lead = say("{} But {}.", lead, warning)
    causes = tuple(replace(point, section="changes") for point in _causes(difference) if point.tone != "bad")
    blocks: list[Block] = [Points(title="Why", items=causes)] if causes else []
    for part in _parts(difference, _PAGE):
        for block in part.blocks:
            blocks += _opened(block) if isinstance(block, Table) and block.title == _METRICS else [block]
    moved = [drift for drift in difference.drifts if drift.kl is not None]
    top = max(moved, key=lambda item: item.kl or 0.0, default=None)
    if top is not None and top.top:
        tokens = [
            MovedToken(text_or_id(shift.piece, shift.token), shift.old, shift.new, shift.kl, shift.js)
            for shift in top.top[:_TOKENS]
        ]
        title = say("Tokens that moved most in {}", _part_of_corpus(top))
        blocks.append(tokens_that_moved("chart-changes", title, tokens, "before", "now"))
    return Section(id="changes", title=_TITLE, lead=lead, tone="warn" if warning else "", blocks=tuple(blocks))


def _opened(metrics: Table) -> list[Block]:
    if len(metrics.rows) <= _OPEN + 2:
        return [metrics]
    rest, number = metrics.rows[_OPEN:], (metrics.number or len(metrics.rows)) - _OPEN
    title = f"The next {len(rest)} changed metrics" if len(rest) < number else "The other changed metrics"
    return [
        replace(metrics, rows=metrics.rows[:_OPEN], number=_OPEN),
        replace(metrics, title=title, rows=rest, number=number, note="", folded=True),
    ]


def _markdown(difference: Difference, limit: int, name: int) -> list[str]:
    sides = (
        say("{} {} ({})", Name(side.name, name), Name(side.version, name), Name(side.id[:19]))
        for side in (difference.old, difference.new)
    )
    lines = [f"## Data: {md.markdown(_summary(difference, name))}", ""]
    lines.append(f"From {' to '.join(map(md.markdown, sides))}")
    if difference.equal:
        return lines
    if warning := complaint(difference):
        lines += ["", f"**Version: {warning}.**"]
    lines += ["", *(f"- {md.markdown(point.text)}" for point in _causes(difference) if point.tone != "bad")]
    for part in _parts(difference, _Extent(rows=limit, places=limit, name=name)):
        own = md.lines_of(part.blocks, limit)
        lines += ["", *(own if part.id == "totals" else md.folded(str(part.title), own))] if own else []
    return lines


def _title(difference: Difference) -> Line:
    both = (
        say("{} {}", Name(side.name, _NAME), Name(side.version, _NAME)) for side in (difference.old, difference.new)
    )
    return say("{}: {}", join(" -> ", both), _summary(difference))


def _summary(difference: Difference, name: int = _NAME) -> Line:
    if difference.equal:
        return "equal: both manifests are the same"
    proposal = difference.proposal
    if proposal.bump == Bump.NONE:
        return "the data is the same, so no bump is due"
    doubt = "" if proposal.proven else ", not proven"
    least = "" if proposal.version is None else say(": {} or later", Name(proposal.version, name))
    return say("{} bump{}{}", proposal.bump, doubt, least)


def _sides(difference: Difference) -> Facts:
    pairs: list[tuple[Line, Line]] = [("old", difference.old.id), ("new", difference.new.id)]
    if difference.old.schema != difference.new.schema:
        pairs.append(("schema", f"{difference.old.schema} -> {difference.new.schema}"))
    if difference.descends:
        pairs.append(("parent", "the new manifest names the old one as its reference"))
    return Facts(pairs=tuple(pairs))


def _causes(difference: Difference) -> tuple[Point, ...]:
    """Return why the bump is due, and before it what is wrong with the versions."""
    warning = complaint(difference)
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
    units = {"shards read": "shards", "shards unread": "unread_shards", "documents": "documents"}
    units |= {"bytes of text": "bytes", "tokens": "tokens"}
    totals = [
        (what, *(getattr(side, unit) for side in (difference.old, difference.new))) for what, unit in units.items()
    ]
    return table_of(
        "Totals",
        totals,
        ("", "name", lambda total: total[0]),
        ("old", "number", lambda total: total[1]),
        ("new", "number", lambda total: total[2]),
        ("change", "number", lambda total: _moved(total[1], total[2])),
    )


def _moved(was: int, now: int) -> Line | Cell:
    if now == was:
        return ""
    return Cell(text=f"{now - was:+,}", aside=f"{(now - was) / was:+.1%}".replace("%", "\xa0%") if was else "")


def _shards(difference: Difference, extent: _Extent) -> Iterator[Block]:
    if not difference.fates:
        return
    same = difference.unchanged_shards
    repacked = any(count.fate == ShardChangeKind.REPACKED for count in difference.fates)
    counts = table_of(
        "Shards, by what became of them",
        difference.fates,
        ("", "name", lambda count: FATES[count.fate]),
        *_old_new("shards"),
        *_old_new("documents"),
        whole=True,
        note="repacked: the same rows, stored as other bytes." if repacked else "",
    )
    yield replace(counts, rows=(*counts.rows, ("as it was", same, same, "", "")), number=None)
    yield table_of(
        "Shards that changed, worst first",
        difference.shards,
        ("", "word", lambda change: FATES[change.fate]),
        ("split/uri", "name", lambda change: Name(_shard_name(change), 2 * extent.name)),
        ("status", "name", lambda change: Name(status, extent.name) if (status := _shard_status(change)) else ""),
        *_old_new("documents"),
        most=extent.rows,
        noun="shard",
    )
    for recut in difference.recuts[: extent.places]:
        yield from (Prose(text=text) for text in _recut(recut, extent.name))
    if len(difference.recuts) > extent.places:
        yield Prose(text=f"and {plural(len(difference.recuts) - extent.places, 'more split')}")


def _old_new(unit: str) -> list[Declared]:
    return [(f"{unit}, {side}", "number", attrgetter(f"{side}_{unit}")) for side in ("old", "new")]


def _shard_name(change: ShardChange) -> str:
    old = None if change.old_uri is None else f"{change.old_split}/{change.old_uri}"
    new = None if change.new_uri is None else f"{change.new_split}/{change.new_uri}"
    if old is None or new is None or old == new:
        return new or old or ""
    return f"{old} -> {new}"


def _shard_status(change: ShardChange) -> str:
    """Return the status where it is not ok on both sides."""
    sides = ((change.old_status, change.old_reason), (change.new_status, change.new_reason))
    old, new = (
        "" if status in {None, "ok"} else f"{status} ({reason})" if reason else str(status) for status, reason in sides
    )
    if old == new or change.old_status is None or change.new_status is None:
        return new or old
    return f"{old or 'ok'} -> {new or 'ok'}"


def _recut(recut: Recut, name: int) -> Iterator[Line]:
    result = "nothing compared differs, but too little can be compared"
    if recut.consistent:
        same = "consistent with the same documents, cut or ordered otherwise; not proven. Equal"
        result = f"{same}: {'; '.join(recut.agree)}"
    elif recut.differ:
        result = f"not the same documents cut otherwise. Different: {'; '.join(recut.differ)}"
    yield say("{}: {}.", Name(recut.split, name), result)
    if recut.unknown and not recut.differ:
        yield say("{}: not compared: {}.", Name(recut.split, name), "; ".join(recut.unknown))


def _metrics(difference: Difference, extent: _Extent) -> Iterator[Block]:
    name = extent.name
    signed = in_turns([change for change in difference.metrics if change.fate not in _WITHOUT], extent.rows)
    rest = [change for change in difference.metrics if change.fate in _WITHOUT]

    def where(change: MetricChange) -> Line:
        values = join(", ", (Name(str(value), name) for value in change.scope.as_dict().values()))
        return values if values.parts else "(all)"

    columns: tuple[Declared, ...] = (
        ("metric", "name", lambda change: Name(f"{change.metric} {change.stat}", 2 * name)),
        ("where", "name", where),
        ("old", "value", lambda change: _number(change.old, change.unit)),
        ("new", "value", lambda change: _number(change.new, change.unit)),
    )
    yield table_of(
        _METRICS,
        signed,
        *columns,
        ("change", "value", _change),
        ("", "word", lambda change: toned((mark := _mark(change)) and Name(mark), when=mark != _MAYBE)),
        most=extent.rows,
        noun="changed record",
        note=join("; ", _noise_notes(signed[: extent.rows])),
        empty="No metric that both have is different.",
    )
    for (fate, reason), metrics in () if extent == _WHOLE else _without_difference(rest).items():
        listed = join(", ", (say("{} {}", Name(metric, name), number) for metric, number in sorted(metrics.items())))
        records = plural(sum(metrics.values()), "record")
        yield Prose(text=say("{} {}: {}", records, _why_without(fate, reason), listed))
    if extent.listed and rest:
        yield table_of(
            "Records without a difference",
            rest,
            *columns,
            ("why", "name", lambda change: _why_without(change.fate, change.reason)),
            most=extent.rows,
            noun="record",
            folded=True,
        )
    text = f"{plural(difference.unchanged_metrics, 'record')} as before."
    if difference.hidden_metrics:
        hidden = plural(difference.hidden_metrics, "record")
        text += f" {hidden} of personal data not shown: small counts may point at people."
    yield Prose(text=text)


def _mark(change: MetricChange) -> str:
    """Return the mark that says whether a change is larger than noise, or than chance."""
    if change.fate == MetricChangeKind.CHANGED:
        return {None: _EXACT, True: _MAYBE, False: _SURELY}[change.chance]
    return _SURELY if change.fate == MetricChangeKind.BEYOND_NOISE else _MAYBE


def _noise_notes(changes: Sequence[MetricChange]) -> Iterator[Line]:
    """Yield what the marks of :func:`_mark` mean, of those that occur."""
    surely, maybe = Name(_SURELY), Name(_MAYBE)
    if any(change.fate != MetricChangeKind.CHANGED for change in changes):
        text = "{} sampled or estimated, and the interval of the change excludes 0; {} includes it"
        yield say(text, surely, maybe)
    if any(change.chance is not None for change in changes):
        text = (
            "{} counted, and two corpora of these sizes, drawn document by document from one process, would not"
            " differ so much by chance (95 %); {} could"
        )
        yield say(text, surely, maybe)
    unbounded = [
        any(side is not None and side.method != "exact" and side.low is None for side in (change.old, change.new))
        for change in changes
        if _mark(change) == _EXACT
    ]
    if not all(unbounded):
        yield "no mark: counted, so the corpora differ; chance is not asked"
    if any(unbounded):
        yield "no mark, estimated without an interval: how much of the change is the screen's is not known"


def _without_difference(rest: Sequence[MetricChange]) -> dict[tuple[MetricChangeKind, str], Counter[str]]:
    """Return the number of records by metric of each kind and reason, the gravest first."""
    counts: dict[tuple[MetricChangeKind, str], Counter[str]] = {}
    for change in rest:
        alone = change.fate in {MetricChangeKind.ADDED, MetricChangeKind.REMOVED}
        counts.setdefault((change.fate, "" if alone else change.reason), Counter())[change.metric] += 1
    order = list(_WITHOUT)
    return dict(sorted(counts.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def _why_without(fate: MetricChangeKind, reason: str) -> str:
    return _WITHOUT[fate].format(REASONS.get(reason, reason))


def _number(side: Number | None, unit: str) -> Line | Cell:
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
    def part(name: str | None) -> Line:
        return "(all)" if name is None else Name(name, extent.name)

    def chance(drift: Drift) -> Line:
        return None if drift.by_chance is None else say("{}{}", ">= " if drift.floor else "", nats(drift.by_chance))

    floored = any(drift.floor for drift in difference.drifts[: extent.rows])
    note = (
        "KL by chance, >=: with tokens drawn one by one. Documents repeat their words, so chance gives several"
        " times as much; a build with `reference` set to the old manifest measures it."
    )
    yield table_of(
        "Drift of token counts, in nats",
        difference.drifts,
        ("split", "name", lambda drift: part(drift.split)),
        ("source", "name", lambda drift: part(drift.source)),
        *_old_new("tokens"),
        ("KL, new to old", "number", lambda drift: nats(drift.kl)),
        ("Jensen-Shannon", "number", lambda drift: nats(drift.js)),
        ("KL by chance", "number", chance),
        ("", "word", lambda drift: REASONS.get(drift.reason, "")),
        most=extent.rows,
        noun="place",
        note=note if floored else "",
    )
    numbered = [drift for drift in difference.drifts if drift.kl is not None]
    sources = [drift for drift in numbered if drift.source is not None]
    for drift in numbered if extent == _WHOLE else (sources or numbered)[: min(extent.places, 2)]:
        tokens = (
            say("{} ({})", Name(text_or_id(shift.piece, shift.token), 24), "+" if shift.kl > 0 else "-")
            for shift in drift.top[:_MOVED]
        )
        text = "tokens that moved most in {} (+ more often, - less): {}"
        yield Prose(text=say(text, _part_of_corpus(drift), join(", ", tokens)))


def _part_of_corpus(drift: Drift) -> Line:
    if drift.split is None:
        return "the whole dataset"
    split = Name(drift.split, _NAME)
    return split if drift.source is None else say("{}, source {}", split, Name(drift.source, _NAME))


def _settings(difference: Difference, extent: _Extent) -> Table:
    def value(setting: str | None) -> Line:
        return None if setting is None else Name(setting, _LONG if extent.listed else extent.name)

    return table_of(
        "Settings that decide the numbers",
        difference.settings,
        ("in", "word", attrgetter("area")),
        ("setting", "name", lambda setting: Name(setting.name, extent.name)),
        ("old", "name", lambda setting: value(setting.old)),
        ("new", "name", lambda setting: value(setting.new)),
        most=extent.rows,
        noun="setting",
        folded=True,
    )
