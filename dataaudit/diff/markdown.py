"""The difference as Markdown for a comment on a pull request: names are code spans, and it always fits."""

from __future__ import annotations

from collections.abc import Sequence

from dataaudit import text as t
from dataaudit.diff import words
from dataaudit.diff.difference import Bump, Difference, Drift, MetricChange, Setting, Side
from dataaudit.markdown import code, table

MOST_CHARACTERS = 65_535
"""GitHub takes 65,536 characters in a comment."""
_SHORTER = (words.LISTED, 5, 2, 0)
_NAME = 80
_BRIEF = 24
_TOKENS = 6


def render_markdown(difference: Difference, *, everything: bool = False) -> str:
    """Return the comment, with as many rows of each section as fit.

    Args:
        difference: What to show.
        everything: Whether every row is listed, should they fit.
    """
    most = max(len(difference.shards), len(difference.metrics), len(difference.drifts), len(difference.settings))
    for limit in (*_halved(most if everything else 0), *_SHORTER):
        for name in (_NAME, _BRIEF):
            text = "\n".join(_lines(difference, limit, name)) + "\n"
            if len(text) <= MOST_CHARACTERS:
                return text
    return f"## {_title(difference, _BRIEF)}\n\nToo much changed for a comment: `dataaudit diff` lists it.\n"


def _halved(most: int) -> list[int]:
    """Return numbers of rows to try, each half of the one before, down to what is listed anyway."""
    tried = []
    most = min(most, MOST_CHARACTERS // 10)
    while most > words.LISTED:
        tried.append(most)
        most //= 2
    return tried


def _lines(difference: Difference, limit: int, name: int) -> list[str]:
    old, new = difference.old, difference.new
    lines = [f"## {_title(difference, name)}", "", f"From {_side(old, name)} to {_side(new, name)}", ""]
    if difference.equal:
        return lines[:-1]
    if warning := words.complaint(difference):
        lines += [f"**Version: {warning}.**", ""]
    lines += [
        f"- **{cause.bump}**: {cause.text}{'' if cause.proven else ' (not proven)'}"
        for cause in difference.proposal.causes
    ]
    blocks = (
        _totals(difference),
        _folded("Shards", _shards(difference, limit, name)),
        _folded("Metrics", _metrics(difference, limit, name)),
        _folded("Drift of tokens", _drift(difference, limit, name)),
        _folded("What else differs", _settings(difference.settings, limit, name)),
    )
    for block in blocks:
        lines += ["", *block] if block else []
    return lines


def _title(difference: Difference, name: int) -> str:
    proposal = difference.proposal
    if difference.equal or proposal.bump == Bump.NONE or proposal.version is None:
        return f"Data: {words.verdict(difference)}"
    doubt = "" if proposal.proven else ", not proven"
    return f"Data: {proposal.bump} bump{doubt}: {code(proposal.version, name)} or later"


def _side(side: Side, name: int) -> str:
    return f"{code(side.name, name)} {code(side.version, name)} ({code(side.id[:19])})"


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    """Return a part that the reader opens."""
    if not lines:
        return []
    return [f"<details><summary>{title}</summary>", "", *lines, "", "</details>"]


def _totals(difference: Difference) -> list[str]:
    return table(["", "old", "new", "change"], words.total_rows(difference))


def _shards(difference: Difference, limit: int, name: int) -> list[str]:
    counts = [
        [words.FATES[one.fate], *map(t.count, (one.old_shards, one.new_shards, one.old_documents, one.new_documents))]
        for one in difference.fates
    ]
    if not counts:
        return []
    lines = table(["", "shards, old", "shards, new", "documents, old", "documents, new"], counts)
    lines += ["", f"{t.plural(difference.unchanged_shards, 'shard')} as before"]
    for one in difference.recuts[:limit]:
        says = (
            "consistent with the same documents, cut or ordered otherwise; not proven"
            if one.consistent
            else (
                f"not the same documents cut otherwise: {'; '.join(one.differ)} differ"
                if one.differ
                else "nothing compared differs, but too little can be compared"
            )
        )
        lines += ["", f"{code(one.split, name)}: {says}."]
    shown = difference.shards[:limit]
    rows = [
        [
            words.FATES[one.fate],
            code(words.shard_place(one), 2 * name),
            _status(words.shard_status(one), name),
            t.count(one.old_documents),
            t.count(one.new_documents),
        ]
        for one in shown
    ]
    lines += ["", *table(["", "shard", "status", "documents, old", "documents, new"], rows, 3)] if rows else []
    return lines + _more(len(difference.shards) - len(shown), "shard")


def _status(status: str, name: int) -> str:
    return code(status, name) if status else ""


def _metrics(difference: Difference, limit: int, name: int) -> list[str]:
    held = words.compared(difference)
    shown = held[:limit]
    rows = [
        [
            code(f"{one.metric} {one.stat}", name),
            _where(one, name),
            words.number(one.old, one.unit),
            words.number(one.new, one.unit),
            words.signed(one.difference, one.unit),
            words.bounds(one),
            _mark(words.judged(one)),
        ]
        for one in shown
    ]
    lines = table(["metric", "where", "old", "new", "change", "its interval", ""], rows, 2)
    lines += _more(len(held) - len(shown), "changed record")
    lines += [line for note in words.noise_notes(shown) for line in ("", _mark(note))]
    for fate, reason, metrics in words.apart(difference):
        names = ", ".join(f"{code(metric, name)} {number:,}" for metric, number in metrics.items())
        why = t.clean(words.apart_words(fate, reason) if reason in {"", *words.REASONS} else str(fate), 2 * name)
        lines += ["", f"{t.plural(sum(metrics.values()), 'record')} {why}: {names}"]
    if difference.hidden_metrics:
        lines += ["", f"{t.plural(difference.hidden_metrics, 'record')} of personal data not shown: small counts"]
    return lines


def _where(change: MetricChange, name: int) -> str:
    return ", ".join(code(value, name) for _, value in words.where(change)) or "all"


def _mark(text: str) -> str:
    """Return a text with its marks in code spans: ``~`` would begin a struck text."""
    for mark in (words.SURELY, words.MAYBE):
        text = text.replace(mark, code(mark))
    return text


def _drift(difference: Difference, limit: int, name: int) -> list[str]:
    shown = difference.drifts[:limit]
    rows = [
        [
            code(one.split, name) if one.split is not None else "all",
            code(one.source, name) if one.source is not None else "all",
            words.REASONS.get(one.reason, _tokens(one)),
            t.count(one.old_tokens),
            t.count(one.new_tokens),
            t.ratio(one.kl),
            t.ratio(one.js),
            _chance(one),
        ]
        for one in shown
    ]
    heads = ["split", "source", "tokens that moved most", "tokens, old", "tokens, new", "KL", "JS", "KL by chance"]
    return table(heads, rows, 3) + _more(len(difference.drifts) - len(shown), "place")


def _tokens(drift: Drift) -> str:
    return ", ".join(
        f"{code(one.piece, _BRIEF) if one.piece else f'id {one.token}'} {'+' if one.kl > 0 else '-'}"
        for one in drift.top[:_TOKENS]
    )


def _chance(drift: Drift) -> str:
    return t.NOTHING if drift.by_chance is None else f"{'>= ' if drift.floor else ''}{t.ratio(drift.by_chance)}"


def _settings(settings: Sequence[Setting], limit: int, name: int) -> list[str]:
    shown = settings[:limit]
    rows = [[one.area, code(one.name, name), _setting(one.old, name), _setting(one.new, name)] for one in shown]
    return table(["in", "setting", "old", "new"], rows, 4) + _more(len(settings) - len(shown), "setting")


def _setting(value: str | None, name: int) -> str:
    return t.NOTHING if value is None else code(value, name)


def _more(number: int, noun: str) -> list[str]:
    return ["", f"and {t.plural(number, f'more {noun}')}"] if number > 0 else []
