"""What changed since an older manifest: the proposed version, shards, metrics, drift, settings."""

from __future__ import annotations

from dataaudit import text as t
from dataaudit.diff.difference import Difference, Drift, MetricChange, MetricFate, Number, ShardChange
from dataaudit.report.html.pieces import (
    Bars,
    Block,
    Cell,
    Facts,
    Figure,
    Grid,
    Section,
    Tone,
    cell,
    first,
    label,
    more,
    name,
    named,
    numbers,
    percent,
    row,
    word,
)

_HEAD, _ROWS, _DRIFTS, _TOKENS, _SETTINGS = 12, 40, 20, 15, 30
_LOUD = {MetricFate.CHANGED, MetricFate.BEYOND_NOISE, MetricFate.LOST, MetricFate.NOT_COMPARABLE}
_FATES = {
    MetricFate.CHANGED: "changed",
    MetricFate.BEYOND_NOISE: "beyond noise",
    MetricFate.WITHIN_NOISE: "within noise",
    MetricFate.ADDED: "new",
    MetricFate.REMOVED: "gone",
    MetricFate.GAINED: "has a value now",
    MetricFate.LOST: "has no value now",
    MetricFate.NOT_COMPARABLE: "not comparable",
}
_COMPLAINTS = {
    "too_small": "the version moves less than the data",
    "unchanged": "the version did not move",
    "backwards": "the version went backwards",
    "not_semver": "the version is not MAJOR.MINOR.PATCH",
    "other_dataset": "the names of the datasets differ",
}


def no_baseline() -> Section:
    """Return what stands here when there is nothing to compare with."""
    text = "No baseline was given; --baseline OLD compares this manifest with an older one."
    return Section(id="changes", title="What changed", lead=text, tone="quiet")


def change_section(found: Difference) -> Section:
    """Return everything that changed."""
    title = "What changed"
    versions = f"{named(found.old.version, 40)} to {named(found.new.version, 40)}"
    if found.equal:
        return Section(id="changes", title=title, lead=f"Nothing: {versions} are the same manifest.", tone="good")
    proposal = found.proposal
    proven = "" if proposal.proven else ", as far as digests show"
    lead = f"From version {versions}: a {proposal.bump.value} change{proven}."
    if proposal.bump.value == "none":
        lead = f"From version {versions}: no change of the data{proven}."
    if proposal.version and proposal.bump.value != "none":
        lead += f" The least version for it is {named(proposal.version, 40)}."
    tone: Tone = ""
    if proposal.complaint:
        lead += f" But {_COMPLAINTS.get(proposal.complaint, named(proposal.complaint, 60))}."
        tone = "warn"
    blocks: list[Block] = [_totals(found)]
    if proposal.causes:
        causes = tuple(row(one.bump.value, one.text, "proven" if one.proven else "likely") for one in proposal.causes)
        blocks.append(Grid(title="Why", columns=(word("bump"), name("cause"), word("by digests")), rows=causes))
    if found.fates:
        blocks += [_fates(found), _shards(found.shards)]
    blocks += _metrics(found)
    blocks += _drifts(found.drifts)
    if found.settings:
        blocks.append(_settings(found))
    return Section(id="changes", title=title, lead=lead, tone=tone, blocks=tuple(blocks))


def _totals(found: Difference) -> Grid:
    entries = (
        ("shards read", "shards"),
        ("shards not read", "unread_shards"),
        ("documents", "documents"),
        ("bytes of text", "bytes"),
        ("tokens", "tokens"),
    )
    rows = []
    for title, key in entries:
        old, new = getattr(found.old, key), getattr(found.new, key)
        share = f"{(new - old) / old:+.1%}".replace("%", " %") if old else t.NOTHING
        rows.append(row(title, t.count(old), t.count(new), f"{new - old:+,}", share))
    return Grid(
        title="Totals",
        rows=tuple(rows),
        columns=(
            name(""),
            *numbers(named(found.old.version, 24), named(found.new.version, 24), "difference", "in percent"),
        ),
    )


def _fates(found: Difference) -> Grid:
    rows = tuple(
        row(
            one.fate.value.replace("_", " "),
            t.count(one.old_shards),
            t.count(one.new_shards),
            t.count(one.old_documents),
            t.count(one.new_documents),
        )
        for one in found.fates
    )
    return Grid(
        title="Shards, by what became of them",
        rows=rows,
        columns=(word("kind of change"), *numbers("shards before", "shards now", "documents before", "documents now")),
        note=f"{t.plural(found.unchanged_shards, 'shard')} unchanged. repacked: the same rows, stored as other bytes.",
    )


def _shards(changes: tuple[ShardChange, ...]) -> Grid:
    shown = first(changes, _ROWS)
    rows = tuple(
        row(
            one.fate.value.replace("_", " "),
            _place(one.old_split, one.old_uri),
            _place(one.new_split, one.new_uri),
            t.count(one.old_documents),
            t.count(one.new_documents),
            named(one.new_reason or "", 60),
        )
        for one in shown
    )
    return Grid(
        title="Shards that changed, worst first",
        rows=rows,
        more=more(changes, shown, "shard"),
        folded=len(rows) > 8,
        columns=(
            word("kind of change"),
            name("before"),
            name("now"),
            *numbers("documents before", "documents now"),
            name("reason"),
        ),
    )


def _metrics(found: Difference) -> list[Block]:
    """Return the first rows, and more of them folded."""
    note = f"{t.plural(found.unchanged_metrics, 'record')} unchanged. In small print: 95 % intervals."
    if found.hidden_metrics:
        note += f" {t.plural(found.hidden_metrics, 'record')} not shown, as a small count may point at people."
    columns = (name("metric"), name("where"), *numbers("before", "now", "difference"), word("change"))
    head = found.metrics if len(found.metrics) <= _HEAD + 2 else found.metrics[:_HEAD]
    grid = Grid(
        title="Metrics, what matters most first",
        rows=tuple(_metric(one) for one in head),
        note=note,
        columns=columns,
        empty="No metric changed.",
    )
    rest = found.metrics[len(head) :]
    if not rest:
        return [grid]
    shown = first(rest, _ROWS)
    rows = tuple(_metric(one) for one in shown)
    title = f"The next {len(rows)} changed metrics" if len(shown) < len(rest) else "The other changed metrics"
    return [grid, Grid(title=title, rows=rows, more=more(rest, shown, "record"), columns=columns, folded=True)]


def _metric(one: MetricChange) -> tuple[Cell, ...]:
    return row(
        f"{named(one.metric, 60)} {named(one.stat, 40)}",
        _scope(one),
        _number(one.old, one.unit),
        _number(one.new, one.unit),
        _difference(one),
        cell(_FATES[one.fate], "warn" if one.fate in _LOUD else ""),
    )


def _drifts(found: tuple[Drift, ...]) -> list[Block]:
    measured = [one for one in found if one.kl is not None]
    if not measured:
        return []
    shown = first(measured, _DRIFTS)
    rows = tuple(
        row(_where(one), t.ratio(one.kl), t.ratio(one.js), ("at least " if one.floor else "") + t.ratio(one.by_chance))
        for one in shown
    )
    grid = Grid(
        title="Drift of token counts, in nats",
        rows=rows,
        more=more(measured, shown, "source"),
        columns=(name("where"), *numbers("KL(now || before)", "Jensen-Shannon", "KL by chance")),
    )
    top = max(measured, key=lambda one: one.kl or 0.0)
    if not top.top:
        return [grid]
    tokens = top.top[:_TOKENS]
    pieces = [one.piece or f"id {one.token}" for one in tokens]
    title = f"Tokens that moved most in {_where(top)}"
    chart = Bars(
        labels=tuple(label(one) for one in pieces),
        values=tuple(one.kl for one in tokens),
        shown=tuple(f"{one.kl:+.4f} nats, {t.count(one.old)} before, {t.count(one.new)} now" for one in tokens),
        unit="part of KL, nats",
    )
    table = Grid(
        title=title,
        columns=(name("token"), *numbers("before", "now", "part of KL, nats")),
        folded=True,
        rows=tuple(
            row(named(piece, 40), t.count(one.old), t.count(one.new), f"{one.kl:+.4f}")
            for piece, one in zip(pieces, tokens, strict=True)
        ),
    )
    says = ", ".join(
        f"{label(piece)} {'more' if one.kl > 0 else 'less'} often"
        for piece, one in list(zip(pieces, tokens, strict=True))[:5]
    )
    figure = Figure(
        id="chart-changes",
        title=title,
        chart=chart,
        says=says,
        table=table,
        note="To the right: more often than before; to the left: less often.",
    )
    return [grid, figure]


def _settings(found: Difference) -> Block:
    shown = first(found.settings, _SETTINGS)
    rows = tuple(
        row(
            f"{named(one.area, 40)} {named(one.name, 80)}".rstrip(),
            named(one.old or "absent", 100),
            named(one.new or "absent", 100),
        )
        for one in shown
    )
    if not rows:
        return Facts(pairs=())
    return Grid(
        title="Settings that decide the numbers",
        rows=rows,
        more=more(found.settings, shown, "setting"),
        folded=True,
        columns=(name("setting"), name("before"), name("now")),
    )


def _place(split: str | None, uri: str | None) -> str:
    return t.NOTHING if uri is None else named(f"{split}/{uri}")


def _scope(one: MetricChange) -> str:
    held = one.scope.as_dict()
    return ", ".join(f"{key} {named(str(value), 60)}" for key, value in held.items()) or "whole dataset"


def _where(one: Drift) -> str:
    if one.split is None:
        return "the whole dataset"
    return named(one.split, 60) + (f", source {named(one.source, 60)}" if one.source is not None else "")


def _number(one: Number | None, unit: str) -> Cell:
    """Return a value, its interval beneath."""
    if one is None or one.value is None:
        return cell(t.NOTHING if one is None or not one.reason else named(one.reason, 40))
    shown = _measured(one.value, unit)
    if one.low is None or one.high is None:
        return cell(shown)
    return cell(shown, detail=f"{_measured(one.low, unit)} to {_measured(one.high, unit)}")


def _measured(value: float, unit: str) -> str:
    return percent(value) if unit == "ratio" else t.decimal(value)


def _difference(one: MetricChange) -> Cell:
    """Return a difference, its interval beneath."""
    if one.difference is None:
        return cell(t.NOTHING)
    if one.low is None or one.high is None:
        return cell(_signed(one.difference, one.unit))
    detail = f"{_signed(one.low, one.unit)} to {_signed(one.high, one.unit)}"
    return cell(_signed(one.difference, one.unit), detail=detail)


def _signed(value: float, unit: str) -> str:
    if unit == "ratio":
        return f"{value * 100:+.3g} pp"
    return f"{value:+,.0f}" if value == int(value) else f"{value:+,.4g}"
