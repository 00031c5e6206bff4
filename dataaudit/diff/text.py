"""The difference as a page of text for a terminal."""

from __future__ import annotations

from dataaudit import text as t
from dataaudit.diff import words
from dataaudit.diff.difference import Difference, Drift
from dataaudit.layout import (
    facts,
    name_column,
    number_column,
    page,
    prose,
    section,
    table,
    terminal_width,
    word_column,
)

_NAME = words.NAME
_TOKENS = 6


def render_text(difference: Difference, *, everything: bool = False, width: int | None = None) -> str:
    """Return the whole page.

    Args:
        difference: What to show.
        everything: Whether every row is listed.
        width: Columns to write for; those of the terminal when None.
    """
    columns, limit = width or terminal_width(), None if everything else words.LISTED
    title = f"{words.sides(difference)}: {words.verdict(difference)}"
    if difference.equal:
        return page(title, _sides(difference, columns))
    return page(
        title,
        _sides(difference, columns),
        _why(difference, columns),
        _totals(difference, columns),
        _shards(difference, columns, limit),
        _recuts(difference, columns, limit),
        _metrics(difference, columns, limit),
        _drift(difference, columns, limit),
        _settings(difference, columns, limit),
    )


def _sides(difference: Difference, width: int) -> list[str]:
    pairs = [(name, side.id) for name, side in (("old", difference.old), ("new", difference.new))]
    if difference.old.schema != difference.new.schema:
        pairs.append(("schema", f"{difference.old.schema} -> {difference.new.schema}"))
    if difference.descends:
        pairs.append(("parent", "the new manifest names the old one as its reference"))
    return facts(pairs, width)


def _why(difference: Difference, width: int) -> list[str]:
    lines = []
    for cause in difference.proposal.causes:
        lines += prose(f"{cause.bump}: {cause.text}{'' if cause.proven else ' (not proven)'}", width)
    if warning := words.complaint(difference):
        lines += prose(f"VERSION: {warning}.", width)
    return section("Why", lines)


def _totals(difference: Difference, width: int) -> list[str]:
    columns = [word_column(""), number_column("old"), number_column("new"), number_column("change")]
    return section("Totals", table(columns, words.total_rows(difference), width))


def _shards(difference: Difference, width: int, limit: int | None) -> list[str]:
    rows = words.fate_rows(difference)
    if not rows:
        return []
    heads = ("shards\nold", "shards\nnew", "documents\nold", "documents\nnew")
    lines = table([word_column(""), *map(number_column, heads)], rows, width)
    shown = difference.shards[:limit]
    listed = [
        [
            words.FATES[one.fate],
            t.clean(words.shard_place(one), 2 * _NAME),
            t.count(one.old_documents),
            t.count(one.new_documents),
            t.clean(words.shard_status(one), _NAME),
        ]
        for one in shown
    ]
    columns = [
        word_column(""),
        name_column("split/uri"),
        number_column("documents\nold"),
        number_column("documents\nnew"),
        name_column(""),
    ]
    lines += ["", *table(columns, listed, width)]
    return section("Shards", lines + _more(len(difference.shards) - len(shown), "shard", width))


def _recuts(difference: Difference, width: int, limit: int | None) -> list[str]:
    lines = []
    shown = difference.recuts[:limit]
    for one in shown:
        name = t.clean(one.split, _NAME)
        if one.consistent:
            says = "consistent with the same documents, cut or ordered otherwise; not proven. Equal: "
            lines += prose(f"{name}: {says}{'; '.join(one.agree)}.", width)
        elif one.differ:
            lines += prose(f"{name}: not the same documents cut otherwise. Different: {'; '.join(one.differ)}.", width)
        else:
            lines += prose(f"{name}: nothing compared differs, but too little can be compared.", width)
        if one.unknown and not one.differ:
            lines += prose(f"{name}: not compared: {'; '.join(one.unknown)}.", width)
    lines += _more(len(difference.recuts) - len(shown), "split", width)
    return section("Whether shards were only cut otherwise", lines)


def _metrics(difference: Difference, width: int, limit: int | None) -> list[str]:
    held = words.compared(difference)
    shown = held[:limit]
    rows = [words.metric_row(one) for one in shown]
    columns = [
        word_column("metric"),
        name_column("stat"),
        name_column("where"),
        name_column("old"),
        name_column("new"),
        number_column("change"),
        name_column("its interval"),
        word_column(""),
    ]
    lines = table(columns, rows, width) + _more(len(held) - len(shown), "changed record", width)
    for note in words.noise_notes(shown):
        lines += prose(note, width)
    lines += _apart(difference, width, limit)
    lines += prose(f"{t.plural(difference.unchanged_metrics, 'record')} as before", width)
    if difference.hidden_metrics:
        lines += prose(
            f"{t.plural(difference.hidden_metrics, 'record')} of personal data not shown: small counts may point at"
            " people",
            width,
        )
    return section("Metrics", lines)


def _apart(difference: Difference, width: int, limit: int | None) -> list[str]:
    """Return the records without a difference: added up, or each one when everything is asked for."""
    if limit is not None:
        lines = []
        for fate, reason, metrics in words.apart(difference):
            records = sum(metrics.values())
            names = ", ".join(f"{t.clean(name, _NAME)} {number:,}" for name, number in metrics.items())
            why = t.clean(words.apart_words(fate, reason), 2 * _NAME)
            lines += prose(f"{t.plural(records, 'record')} {why}: {names}", width)
        return lines
    columns = [name_column("metric"), name_column("where"), name_column("old"), name_column("new"), name_column("why")]
    rest = [one for one in difference.metrics if one.fate not in words.SIGNED]
    return table(
        columns,
        [
            [
                f"{t.clean(one.metric, _NAME)} {t.clean(one.stat, _NAME)}",
                words.where_words(one),
                t.clean(words.number(one.old, one.unit)),
                t.clean(words.number(one.new, one.unit)),
                t.clean(words.apart_words(one.fate, one.reason)),
            ]
            for one in rest
        ],
        width,
    )


def _drift(difference: Difference, width: int, limit: int | None) -> list[str]:
    shown = difference.drifts[:limit]
    rows = [
        [
            t.clean(one.split or "(all)", _NAME),
            t.clean(one.source or "(all)", _NAME),
            t.count(one.old_tokens),
            t.count(one.new_tokens),
            t.ratio(one.kl),
            t.ratio(one.js),
            _chance(one),
            words.REASONS.get(one.reason, ""),
        ]
        for one in shown
    ]
    columns = [
        name_column("split"),
        name_column("source"),
        number_column("tokens\nold"),
        number_column("tokens\nnew"),
        number_column("KL\nnats"),
        number_column("JS\nnats"),
        number_column("KL by\nchance"),
        name_column(""),
    ]
    lines = table(columns, rows, width) + _more(len(difference.drifts) - len(shown), "more place", width, plain=True)
    if any(one.floor for one in shown):
        lines += prose(
            "KL by chance, >=: with tokens drawn one by one. Documents repeat their words, so chance gives several"
            " times as much; a build with `reference` set to the old manifest measures it.",
            width,
        )
    for one in _tellers(difference.drifts, limit):
        lines += prose(_tokens(one), width)
    return section("Drift of tokens, new || old", lines)


def _tellers(drifts: tuple[Drift, ...], limit: int | None) -> list[Drift]:
    """Return the places whose tokens are named: the sources that moved most, or all of them."""
    numbered = words.moved(drifts)
    if limit is None:
        return numbered
    sources = [one for one in numbered if one.source is not None]
    return (sources or numbered)[:2]


def _chance(drift: Drift) -> str:
    if drift.by_chance is None:
        return t.NOTHING
    return f"{'>= ' if drift.floor else ''}{t.ratio(drift.by_chance)}"


def _tokens(drift: Drift) -> str:
    named = ", ".join(
        f"{t.clean(one.piece, 24) if one.piece else f'id {one.token}'} ({'+' if one.kl > 0 else '-'})"
        for one in drift.top[:_TOKENS]
    )
    place = " ".join(t.clean(one, _NAME) for one in (drift.split, drift.source) if one) or "the dataset"
    return f"tokens that moved most in {place} (+ more often, - less): {named}"


def _settings(difference: Difference, width: int, limit: int | None) -> list[str]:
    shown = difference.settings[:limit]
    cut = 200 if limit is None else _NAME
    rows = [
        [t.clean(one.area), t.clean(one.name, _NAME), *(_value(side, cut) for side in (one.old, one.new))]
        for one in shown
    ]
    columns = [word_column("in"), name_column("setting"), name_column("old"), name_column("new")]
    lines = table(columns, rows, width)
    return section("What else differs", lines + _more(len(difference.settings) - len(shown), "setting", width))


def _value(value: str | None, limit: int) -> str:
    return t.NOTHING if value is None else t.clean(value, limit)


def _more(number: int, noun: str, width: int, *, plain: bool = False) -> list[str]:
    if number <= 0:
        return []
    return prose(f"and {t.plural(number, noun if plain else f'more {noun}')}; --all lists them", width)
