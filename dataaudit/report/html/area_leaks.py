"""Leakage: which held-out split or evaluation set is in training data, in which shards, and how much of it."""

from __future__ import annotations

from collections.abc import Sequence

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.report.html.pieces import (
    Bars,
    Block,
    Cell,
    Figure,
    Finding,
    Grid,
    Prose,
    Section,
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
from dataaudit.report.leaks import leaks
from dataaudit.report.places import LeakPlace, leak_places
from dataaudit.report.protected import HeldOutLeak, SetLeak, held_out_leaks, set_leaks, shared_text, worst_parts

_ROWS = 50
_NAMED = 3


def leak_section(manifest: Manifest) -> tuple[Section, list[Finding]]:
    """Return what of held-out splits and evaluation sets is in training data, and what stands out of it."""
    held_out, sets, places = held_out_leaks(manifest), set_leaks(manifest), leak_places(manifest)
    exact = leaks(manifest)
    findings = [
        Finding(
            tone="bad",
            section="leakage",
            text=f"{t.count(one.documents)} of {t.plural(one.of, 'document')} of {named(one.split)}"
            f" ({percent(one.documents / one.of)}) are also in training data as whole documents"
            f"{_whole(one.split, places)}.{_passages(one.split, places)}",
        )
        for one in exact
    ]
    said = {one.split for one in exact}
    findings += [_shared(one, sign, places) for one in held_out if one.split not in said and (sign := shared_text(one))]
    findings += [_contamination(one, places) for one in worst_parts(sets) if one.similar]
    if not held_out and not sets and not exact:
        lead = "There is no held-out split and no evaluation set, so nothing could leak."
        return Section(id="leakage", title="Leakage", lead=lead, tone="quiet"), []
    blocks: list[Block] = []
    if held_out or sets:
        blocks.append(_chart(held_out, sets))
    if held_out:
        blocks.append(_held_out(held_out))
    if sets:
        blocks.append(_sets(sets))
    if places:
        blocks.append(_places(places))
    blocks += [Prose(text=f"{named(one)}: {why}.", tone="quiet") for one, why in _reasons(held_out, sets)]
    lead = findings[0].text if findings else "Nothing of a held-out split or an evaluation set was found in training."
    if len(findings) > 1:
        lead += f" {t.plural(len(findings) - 1, 'other set')} leak too: see below."
        lead = lead.replace("1 other set leak ", "1 other set leaks ")
    return (
        Section(id="leakage", title="Leakage", lead=lead, tone="bad" if findings else "good", blocks=tuple(blocks)),
        findings,
    )


def _shared(one: HeldOutLeak, sign: tuple[str, float, str], places: Sequence[LeakPlace]) -> Finding:
    stat, value, text = sign
    return Finding(
        tone="bad" if stat == "span" else "warn",
        section="leakage",
        text=f"{percent(value)} {text.format(named(one.split))}{_where(one.split, places)}.",
    )


def _contamination(one: SetLeak, places: Sequence[LeakPlace]) -> Finding:
    verbatim, similar = round((one.verbatim or 0) * one.findable), round((one.similar or 0) * one.findable)
    return Finding(
        tone="bad" if verbatim else "warn",
        section="leakage",
        text=f"{t.count(similar)} of {t.plural(one.findable, 'findable item')} of {named(one.set)} are in training data"
        f" ({t.count(verbatim)} word for word){_where(one.set, places)}.",
    )


def _whole(which: str, places: Sequence[LeakPlace]) -> str:
    """Name the shards that hold most documents of a split whole."""
    own = [one for one in places if one.set == which and one.whole]
    return _most([f"{named(one.name, 80)} holds {one.whole:,} of them" for one in own])


def _passages(which: str, places: Sequence[LeakPlace]) -> str:
    """Say where passages of a split are copied, where whole documents are not all of it."""
    own = sorted((one for one in places if one.set == which), key=lambda one: (-one.copied, one.shard))
    if all(one.copied == one.whole for one in own):
        return ""
    shown = [
        f"{named(one.name, 80)} holds passages of {t.plural(one.copied, 'document')} of it" for one in own if one.copied
    ]
    return f" Counted apart, copied passages of 50 words and more{_most(shown)}."


def _where(which: str, places: Sequence[LeakPlace]) -> str:
    """Name the shards that hold most of a set."""
    own = [one for one in places if one.set == which]
    shown = []
    for one in own:
        noun, many = ("document", "passages") if one.held_out else ("item", "copies")
        what = f"{many} of {t.plural(one.copied, noun)}" if one.copied else f"parts of {t.plural(one.items, noun)}"
        shown.append(f"{named(one.name, 80)} holds {what} of it")
    return _most(shown)


def _most(shown: Sequence[str]) -> str:
    """Return the first two places."""
    if not shown:
        return ""
    rest = f" (and {t.plural(len(shown) - 2, 'more shard')})" if len(shown) > 2 else ""
    return f": {'; '.join(shown[:2])}{rest}"


def _chart(held_out: Sequence[HeldOutLeak], sets: Sequence[SetLeak]) -> Figure:
    entries: list[tuple[str, float, tuple[float, float] | None, str]] = []
    for one in held_out:
        for stat, text, value in (
            ("near_dup", "near-duplicates", one.near_dup),
            ("ngram", "13-grams", one.ngram),
            ("span", "spans", one.span),
        ):
            if value is not None:
                entries.append((f"{label(one.split)}: {text}", value, one.bounds.get(stat), percent(value)))
    for part in worst_parts(sets):
        for text, value in (("word for word", part.verbatim), ("similar", part.similar)):
            if value is not None:
                entries.append((f"{label(part.set)}: {text}", value, None, percent(value)))
    shown = entries[:24]
    chart = Bars(
        labels=tuple(one[0] for one in shown),
        values=tuple(one[1] for one in shown),
        spans=tuple(one[2] for one in shown),
        shown=tuple(one[3] for one in shown),
        percent=True,
        unit="share of the split's documents or words, of the set's items",
        loud=tuple(one[1] > 0 for one in shown),
    )
    says = "; ".join(f"{one[0]} {one[3]}" for one in shown[:6])
    grid = Grid(
        title="Shares found in training data",
        columns=(name("what"), *numbers("share")),
        folded=True,
        rows=tuple(row(one[0], one[3]) for one in shown),
    )
    return Figure(id="chart-leaks", title="Found in training data", chart=chart, says=says, table=grid)


def _held_out(found: Sequence[HeldOutLeak]) -> Grid:
    shown = first(found, _ROWS)
    rows = tuple(
        row(
            named(one.split),
            t.count(one.documents),
            _bad(one.near_dup),
            _bad(one.ngram),
            percent(one.ngram_without_common),
            _bad(one.span),
        )
        for one in shown
    )
    heads = ("documents", "near-duplicate", "half of the 13-grams", "less common ones", "words in copied spans")
    return Grid(
        title="Held-out splits",
        columns=(name("split"), *numbers(*heads)),
        rows=rows,
        more=more(found, shown, "split"),
        note="Share of documents with a near-duplicate in training; with half of their 13-grams in it; the same without"
        " 13-grams that very many training documents hold; share of words inside copied spans of 50 words and more.",
    )


def _sets(found: Sequence[SetLeak]) -> Grid:
    shown = first(found, _ROWS)
    rows = tuple(
        row(
            named(one.set),
            one.part,
            t.count(one.items),
            t.count(one.findable),
            _bad(one.verbatim),
            _bad(one.similar),
            t.count(one.common),
        )
        for one in shown
    )
    heads = ("items", "findable", "word for word", "or similar", "common")
    return Grid(
        title="Evaluation sets",
        columns=(name("set"), word("part"), *numbers(*heads)),
        rows=rows,
        more=more(found, shown, "part"),
        note="findable: items that a rule can find; similar: with up to three words in ten changed; common: found in"
        " very many training documents.",
    )


def _places(places: Sequence[LeakPlace]) -> Grid:
    shown = first(places, _ROWS)
    rows = tuple(
        row(
            named(one.set),
            t.count(one.shard),
            named(one.name),
            cell(t.count(one.whole), "bad" if one.whole else "") if one.held_out else t.NOTHING,
            cell(t.count(one.copied), "bad" if one.copied else ""),
            t.count(one.items),
            t.count(one.documents),
        )
        for one in shown
    )
    return Grid(
        title="Which shards hold them",
        rows=rows,
        more=more(places, shown, "pair of a set and a shard"),
        columns=(
            name("set"),
            *numbers("shard"),
            name("split/uri"),
            *numbers("whole documents", "copied word for word", "in any form", "documents that hold them"),
        ),
        note="Counted are documents of a held-out split, items of an evaluation set: those that stand in the shard"
        " whole; those of which it holds a passage of 50 words and more (of a set: the text) word for word; those that"
        " it holds in any form. The last column counts the shard's own documents: remove these from training.",
    )


def _bad(value: float | None) -> Cell:
    return cell(percent(value), "bad" if value else "")


def _reasons(held_out: Sequence[HeldOutLeak], sets: Sequence[SetLeak]) -> list[tuple[str, str]]:
    """Return why rates are absent, once for each."""
    found = {one.split: one.why for one in held_out if one.why} | {one.set: one.why for one in sets if one.why}
    return sorted(found.items())[:_NAMED]
