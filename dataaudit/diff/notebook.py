"""A difference in a notebook: which version bump it means and why, then how much changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dataaudit import text as t
from dataaudit.diff import words
from dataaudit.diff.difference import Bump, Difference
from dataaudit.notebook import Block, Facts, Heading, Points, Prose, Rows, Tone

_TONES: dict[Bump, Tone] = {Bump.NONE: "good", Bump.PATCH: "", Bump.MINOR: "", Bump.MAJOR: "warn"}
_METRICS = ("metric", "stat", "where", "old", "new", "change", "its interval", "")
_SHARDS = ("", "shards, old", "shards, new", "documents, old", "documents, new")


def difference_blocks(difference: Difference) -> Iterator[Block]:
    """Yield what a notebook shows of a difference."""
    proposal = difference.proposal
    yield Heading(text=f"{words.sides(difference)}: {words.verdict(difference)}", tone=_TONES[proposal.bump])
    warning = words.complaint(difference)
    causes = tuple(
        (_TONES[one.bump], f"{one.bump}: {one.text}{'' if one.proven else ' (not proven)'}") for one in proposal.causes
    )
    yield Points(items=((("bad", f"{warning}."),) if warning else ()) + causes)
    yield Facts(pairs=(("old", difference.old.id), ("new", difference.new.id)))
    if difference.equal:
        return
    yield _numbers("Totals", ("", "old", "new", "change"), words.total_rows(difference))
    yield _numbers("Shards", _SHARDS, words.fate_rows(difference))
    held = words.compared(difference)
    shown = held[: words.LISTED]
    yield Rows(
        title="Metrics",
        heads=_METRICS,
        rows=tuple(map(words.metric_row, shown)),
        numbers=frozenset({5}),
        more=f"{t.plural(len(held) - len(shown), 'more changed record')} in .metrics" if held[len(shown) :] else "",
    )
    for note in words.noise_notes(shown):
        yield Prose(text=note)
    yield Prose(text=f"{t.plural(difference.unchanged_metrics, 'record')} as before. {_rest(difference)}")


def _numbers(title: str, heads: tuple[str, ...], rows: Sequence[Sequence[str]]) -> Rows:
    return Rows(title=title, heads=heads, rows=tuple(rows), numbers=frozenset(range(1, len(heads))))


def _rest(difference: Difference) -> str:
    moved = len(words.moved(difference.drifts))
    return (
        f"Token counts moved in {t.plural(moved, 'place')} (.drifts);"
        f" {t.plural(len(difference.settings), 'setting')} of the build differ (.settings)."
    )
