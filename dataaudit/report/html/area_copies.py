"""Duplicates: how many, who copies whom, how large the groups are, and which spans repeat."""

from __future__ import annotations

from collections.abc import Sequence

from dataaudit import text as t
from dataaudit.manifest.load import Manifest
from dataaudit.report.html.pieces import (
    Bars,
    Block,
    Figure,
    Grid,
    Matrix,
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
)
from dataaudit.report.near import Flow, Measured, Near, near_duplicates
from dataaudit.report.repeats import repeats
from dataaudit.report.view import Overview

_CELLS = 12
"""Rows and columns of the matrix at most; the rest is in the table."""
_ROWS = 50
_HOTSPOTS = 30
_MUCH = 0.10
"""Share of near-duplicates of a source from which it is pointed out."""


def copies_section(manifest: Manifest, view: Overview) -> Section:
    """Return exact duplicates, near-duplicates, and repeated spans."""
    near = near_duplicates(manifest)
    exact = view.totals.exact_dup_rate
    lead = f"{percent(exact)} of all documents repeat the text of an earlier one word for word"
    blocks: list[Block] = []
    if near is None:
        lead += "; near-duplicates were not searched for."
    else:
        whole = near.scopes[-1]
        lead += f"; {percent(whole.rate)} ({t.count(whole.documents)}) are near-duplicates of an earlier one."
        blocks += _near(near)
    blocks += _hotspots(manifest)
    heavy = near is not None and any((one.rate or 0.0) > _MUCH for one in near.sources)
    return Section(id="duplicates", title="Duplicates", lead=lead, tone="warn" if heavy else "", blocks=tuple(blocks))


def _near(near: Near) -> list[Block]:
    blocks: list[Block] = []
    scopes = [*((one, "split") for one in near.scopes[:-1]), *((one, "source") for one in near.sources)]
    shown = first(scopes, _ROWS)
    rows = tuple(
        row(
            named(one.name),
            kind,
            t.count(one.of),
            t.count(one.documents),
            cell(percent(one.rate), "warn" if (one.rate or 0.0) > _MUCH else ""),
            percent(one.component_rate),
        )
        for one, kind in shown
    )
    blocks.append(
        Grid(
            title="Near-duplicates by split and source",
            rows=rows,
            more=more(scopes, shown, "source"),
            columns=(name("name"), name("kind"), *numbers("documents", "near-dups", "share", "beyond one a group")),
            note="Sources without any are left out. beyond one a group: what deduplication would remove.",
        )
    )
    if near.flows:
        blocks.append(_matrix(near.flows))
    sizes = {label_: number for label_, number in near.clusters_by_size.items() if number}
    if sizes:
        blocks.append(_sizes(sizes, near))
    blocks.append(Prose(text=_known(near), tone="quiet"))
    return blocks


def _matrix(flows: Sequence[Flow]) -> Figure:
    """Return who copies whom: a row for the copy's source, a column for that of the earlier document."""
    sides = [((one.split, one.source), (one.earlier_split, one.earlier_source), one.documents) for one in flows]
    order = _largest([(place, number) for left, right, number in sides for place in {left, right}])
    copies = [one for one in order if any(left == one for left, _, _ in sides)]
    earlier = [one for one in order if any(right == one for _, right, _ in sides)]
    values = tuple(
        (copies.index(left), earlier.index(right), float(number), t.plural(number, "document"), left[0] != right[0])
        for left, right, number in sides
        if left in copies and right in earlier
    )
    chart = Matrix(
        rows=tuple(label(_of(*one)) for one in copies),
        columns=tuple(label(_of(*one)) for one in earlier),
        values=values,
        row_title="near-duplicates in",
        column_title="of an earlier document in",
    )
    shown = first(flows, _ROWS)
    rows = tuple(
        row(
            named(_of(one.split, one.source)),
            named(_of(one.earlier_split, one.earlier_source)),
            cell(t.count(one.documents), "warn" if one.split != one.earlier_split else ""),
        )
        for one in shown
    )
    grid = Grid(
        title="Duplicates between sources",
        rows=rows,
        more=more(flows, shown, "pair"),
        columns=(name("near-duplicates in"), name("of an earlier document in"), *numbers("documents")),
        note="Marked: across splits.",
    )
    top = shown[0]
    says = (
        f"Most: {t.count(top.documents)} in {named(_of(top.split, top.source), 40)} of documents in"
        f" {named(_of(top.earlier_split, top.earlier_source), 40)}."
    )
    places = {place for left, right, _ in sides for place in (left, right)}
    note = "Orange: from one split to another." if any(one[4] for one in values) else ""
    if len(places) > len(order):
        note = f"The {_CELLS} largest; the table has more. {note}".rstrip()
    return Figure(
        id="chart-matrix",
        title="Duplicates between sources, by split/source",
        chart=chart,
        says=says,
        table=grid,
        note=note,
    )


def _sizes(sizes: dict[str, int], near: Near) -> Figure:
    chart = Bars(
        labels=tuple(f"{one} documents" for one in sizes),
        values=tuple(float(one) for one in sizes.values()),
        shown=tuple(t.plural(one, "group") for one in sizes.values()),
        unit="groups",
    )
    grid = Grid(
        title="Groups by size",
        columns=numbers("documents in the group", "groups"),
        folded=True,
        rows=tuple(row(one, t.count(number)) for one, number in sizes.items()),
    )
    largest = t.plural(near.counts.get("largest_cluster", 0), "document")
    says = f"{t.plural(sum(sizes.values()), 'group')}; the largest has {largest}"
    says += f", its weakest link {t.ratio(near.weakest_link)}." if near.weakest_link is not None else "."
    return Figure(
        id="chart-sizes", title="Groups of near-duplicates by size", chart=chart, says=says, table=grid, note=says
    )


def _hotspots(manifest: Manifest) -> list[Block]:
    found = repeats(manifest, _HOTSPOTS)
    if found is None:
        return [Prose(text="Repeated spans were not searched for.", tone="quiet")]
    said = (
        f"{t.count(found.documents)} of {t.plural(found.of, 'training document')} hold a span of 50 words or more that"
        f" at least {found.floor} documents hold; {percent(found.token_share)} of the training tokens lie inside."
    )
    rows = tuple(
        row(
            t.count(one.hotspot),
            t.count(one.words),
            t.count(one.documents),
            percent(one.share),
            t.count(one.occurrences),
            t.count(one.tokens),
            named(one.source, 40),
            named(one.shard),
        )
        for one in found.top
    )
    left = found.hotspots - len(found.top)
    grid = Grid(
        title="Repeated spans, the most widely held first",
        rows=rows,
        note=said,
        folded=len(rows) > 12,
        columns=(
            *numbers("no.", "words", "documents", "share", "occurrences", "tokens"),
            name("mostly in source"),
            name("most of them in shard"),
        ),
        more=f"and {t.plural(left, 'more span')} in the table hotspots" if left else "",
        empty="No span is that widely held.",
    )
    return [grid]


def _known(near: Near) -> str:
    """Say what was compared, and what is known of misses and mistakes."""
    counts = near.counts
    parts = [
        f"Compared: {t.plural(counts.get('candidate_pairs', 0), 'pair')}.",
        f"Near: {t.count(counts.get('verified_pairs', 0))} of them.",
    ]
    if near.recall is not None:
        parts.append(_share("Recall", near.recall, "made variant"))
    if near.precision is not None:
        parts.append(_share("Precision", near.precision, "reported pair"))
    if near.in_reference is not None:
        parts.append(_share("Near a document of the reference", near.in_reference, "document"))
    if counts.get("truncated_pairs"):
        parts.append(f"{t.plural(counts['truncated_pairs'], 'pair')} of very large buckets were not compared.")
    return " ".join(parts)


def _share(what: str, one: Measured, noun: str) -> str:
    bounds = f"{percent(one.low)} to {percent(one.high)}"
    return f"{what}: {percent(one.value)} of {t.plural(one.tried, noun)} (95 % interval {bounds})."


def _largest(pairs: Sequence[tuple[tuple[str, str], int]]) -> list[tuple[str, str]]:
    sums: dict[tuple[str, str], int] = {}
    for one, number in pairs:
        sums[one] = sums.get(one, 0) + number
    return sorted(sums, key=lambda one: (-sums[one], one))[:_CELLS]


def _of(split: str, source: str) -> str:
    return f"{split}/{source}"
