"""Near-duplicates as people read them: how many, what was compared, how much was missed, and who copies whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    Bar,
    Block,
    Figure,
    Matrix,
    Prose,
    Row,
    Section,
    Table,
    bars,
    names,
    numbers,
    rows_of,
    toned,
    words,
)
from dataaudit.base.render.line import Interval, Line, Name, join, say, share
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.exact_dup.definition import repeated_share
from dataaudit.metrics.records import Records, by_scope, only, records_in
from dataaudit.metrics.shown import MANY, Kind, Part, Shown, Standout

RATE, COMPONENTS, OVERLAP = "near_dup_rate", "near_dup_component_rate", "train_val_overlap"
MUCH = 0.5
"""Share of a source from which losing it is warned of."""
HEAVY = 0.10
"""Share of near-duplicates of a source from which it is pointed out."""
_LEGEND = (
    "near-duplicates: documents with a near-duplicate earlier in the manifest's order; beyond one a cluster: all but"
    " one of each cluster, which chains of near-duplicates make. Documents of equal words are near-duplicates, and in"
    " clusters, without being compared. Sources without any are left out."
)
_CELLS = 12
"""Rows and columns of the matrix at most; the rest is in the table."""
_COUNTS = (
    "candidate_pairs",
    "verified_pairs",
    "truncated_pairs",
    "undecided",
    "clusters",
    "largest_cluster",
    "bands",
    "band_rows",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearScope:
    """Near-duplicates of one split or source."""

    name: str
    """Empty for the whole dataset."""
    documents: int
    """Documents that are near-duplicates of an earlier one."""
    of: int
    """All its documents."""
    rate: float | None
    component_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A share that was measured on a sample."""

    value: float
    low: float
    high: float
    tried: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Near-duplicates of one source whose earliest near-duplicate is in another, or in the same."""

    split: str
    source: str
    earlier_split: str
    earlier_source: str
    documents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """What the search for near-duplicates found."""

    scopes: tuple[NearScope, ...]
    """Splits, then the whole dataset."""
    sources: tuple[NearScope, ...]
    """Sources, most near-duplicates first; those that have none are left out."""
    losing: tuple[NearScope, ...]
    """Sources of which more than half are near-duplicates."""
    leaking: dict[str, float]
    """Held-out splits by the share of their documents with a near-duplicate in training data, zero left out."""
    counts: dict[str, int]
    """Candidate, verified and truncated pairs, clusters and the largest one, bands and their rows."""
    weakest_link: float | None
    """Similarity of the weakest link of the largest cluster."""
    clusters_by_size: dict[str, int]
    chance_to_meet: dict[str, float]
    """Chance that two documents of a similarity share a band, by similarity."""
    recall: Measured | None
    precision: Measured | None
    in_reference: Measured | None
    """Share of documents near one of the reference, estimated from signatures."""
    flows: tuple[Flow, ...]
    """Largest first."""


@once
def near_facts(manifest: Manifest) -> Near | None:
    """Return what was found, or None when near-duplicates were not searched for."""
    of_sources = records_in(manifest, RATE, ("source",))
    sources = of_sources.where(stat="documents").positive().names("scope.source")
    wide = records_in(manifest, RATE, (), ("split",), ("rule",))
    scopes = by_scope(MetricRows.joined([wide, of_sources.of_sources(sources)]))
    if not scopes:
        return None
    whole = scopes.get(Scope(), {})
    by_rule = [record for record in wide if record.scope.rule is not None]
    parts = records_in(manifest, COMPONENTS, ("source",)).of_sources(sources)
    components = {record.scope: record for record in (*records_in(manifest, COMPONENTS, (), ("split",)), *parts)}
    found = [_scope(scopes, components, Scope(source=name)) for name in sources]
    splits = [Scope(split=split.name) for split in manifest.core.splits]
    leaks = {
        str(record.scope.set): record.value
        for record in manifest.metrics(OVERLAP, "near_dup")
        if record.value and only(record.scope, "set")
    }
    rows = manifest.table("near_sources").to_pylist()
    return Near(
        scopes=tuple(_scope(scopes, components, scope) for scope in (*splits, Scope())),
        sources=tuple(
            sorted(
                (near_scope for near_scope in found if near_scope.documents),
                key=lambda item: (-item.documents, item.name),
            )
        ),
        losing=tuple(near_scope for near_scope in found if near_scope.rate is not None and near_scope.rate > MUCH),
        leaking=dict(sorted(leaks.items())),
        counts={name: int(whole[name].value or 0) for name in _COUNTS if name in whole},
        weakest_link=whole["weakest_link"].value if "weakest_link" in whole else None,
        clusters_by_size={
            str(record.scope.rule).removeprefix("documents="): int(record.value or 0)
            for record in sorted(by_rule, key=_first_size)
            if record.stat == "clusters_by_size"
        },
        chance_to_meet={
            str(record.scope.rule).removeprefix("jaccard="): record.value
            for record in by_rule
            if record.stat == "chance_to_meet" and record.value is not None
        },
        recall=_measured(whole.get("recall")),
        precision=_measured(whole.get("precision")),
        in_reference=_measured(whole.get("in_reference")),
        flows=tuple(Flow(**row) for row in sorted(rows, key=lambda row: (-row["documents"], *map(str, row.values())))),
    )


def _first_size(record: Metric) -> int:
    digits = str(record.scope.rule).removeprefix("documents=").partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def _scope(records: Mapping[Scope, Records], components: Mapping[Scope, Metric], scope: Scope) -> NearScope:
    own = records.get(scope, {})
    documents = own.get("documents")
    return NearScope(
        name=scope.split or scope.source or "",
        documents=int(documents.value or 0) if documents else 0,
        of=documents.n if documents else 0,
        rate=own["rate"].value if "rate" in own else None,
        component_rate=components[scope].value if scope in components else None,
    )


def _measured(record: Metric | None) -> Measured | None:
    if record is None or record.value is None or record.low is None or record.high is None:
        return None
    return Measured(value=record.value, low=record.low, high=record.high, tried=record.n)


def section(near: Near | None, exact: float | None = None) -> Section:
    """Return near-duplicates by split and source, who copies whom, and how large the clusters are."""
    lead = (
        say("Exact duplicates were not searched for")
        if exact is None
        else say("{} of all documents repeat the text of an earlier one word for word", share(exact))
    )
    if near is None:
        lead = say("{}; near-duplicates were not searched for.", lead)
        return Section(id="duplicates", title="Duplicates", lead=lead, tone="" if exact else "quiet")
    whole = near.scopes[-1]
    lead = say(
        "{}; {} of the documents ({}) are near-duplicates of an earlier one.", lead, share(whole.rate), whole.documents
    )
    blocks: list[Block] = [_rates(near), *_warnings(near), Prose(text=_how(near), tone="quiet")]
    blocks += [_flows(near.flows)] if near.flows else []
    if sizes := {label: number for label, number in near.clusters_by_size.items() if number}:
        blocks.append(_sizes_figure(near, sizes))
    heavy = any(_rate(near_scope) > HEAVY for near_scope in near.sources)
    return Section(
        id="duplicates", title="Duplicates", lead=lead, tone="warn" if heavy else "", blocks=(*blocks, _chances(near))
    )


def _rates(near: Near) -> Table:
    scopes = [
        *((near_scope, "split") for near_scope in near.scopes[:-1]),
        *((source, "source") for source in near.sources),
    ]

    def row(pair: tuple[NearScope, str]) -> Row:
        near_scope, kind = pair
        rate = toned(share(near_scope.rate), when=kind == "source" and _rate(near_scope) > HEAVY)
        return (
            Name(near_scope.name) if near_scope.name else "(all)",
            near_scope.of,
            near_scope.documents,
            rate,
            share(near_scope.component_rate),
            kind,
        )

    return Table(
        title="Near-duplicates of an earlier document",
        columns=(
            *names("split or source"),
            *numbers("documents", "near-duplicates", "share", "beyond one a cluster"),
            *words(""),
        ),
        **rows_of(scopes, row),
        foot=(row((near.scopes[-1], "")),),
        noun="source",
        note=_LEGEND,
    )


def _warnings(near: Near) -> list[Block]:
    leaking = (
        say("{}: {} of its documents have a near-duplicate in training data.", Name(name), share(value))
        for name, value in near.leaking.items()
    )
    losing = (
        say("warning: source {} would lose {} of its documents.", Name(near_scope.name), share(near_scope.rate))
        for near_scope in near.losing
    )
    return [Prose(text=text) for text in (*leaking, *losing)]


def _how(near: Near) -> Line:
    """Say what was compared, and what is known of misses and mistakes."""
    counts = near.counts
    pairs, clusters = t.plural(counts.get("candidate_pairs", 0), "pair"), t.plural(counts.get("clusters", 0), "cluster")
    parts: list[Line] = [
        f"{pairs} compared exactly, {t.count(counts.get('verified_pairs', 0))} near",
        f"{clusters}, the largest of {_largest_in_words(near)}",
    ]
    for name, measured, item, many in (
        ("recall", near.recall, "drawn near-duplicate", "drawn near-duplicates"),
        ("precision", near.precision, "reported pair", "reported pairs"),
        ("in the reference", near.in_reference, "document, by signatures", "documents, by signatures"),
    ):
        if measured is not None:
            noun, bounds = item if measured.tried == 1 else many, Interval(measured.low, measured.high)
            parts.append(say("{} {} on {} {} ({})", name, share(measured.value), measured.tried, noun, bounds))
    if counts.get("truncated_pairs"):
        left_out = f"{t.plural(counts['truncated_pairs'], 'pair')} left out"
        if undecided := counts.get("undecided"):
            left_out += f", so {t.plural(undecided, 'document')} may be near-duplicates and are not counted"
        parts.append(left_out)
    return say("{}.", join("; ", parts))


def _largest_in_words(near: Near) -> str:
    largest = t.plural(near.counts.get("largest_cluster", 0), "document")
    return largest if near.weakest_link is None else f"{largest}, its weakest link {t.ratio(near.weakest_link)}"


def _flows(flows: Sequence[Flow]) -> Figure:
    """Return who copies whom: a row for the copy's source, a column for that of the earlier document."""
    sides = [(f"{flow.split}/{flow.source}", f"{flow.earlier_split}/{flow.earlier_source}", flow) for flow in flows]
    sums: dict[str, int] = {}
    for left, right, flow in sides:
        for place in {left, right}:
            sums[place] = sums.get(place, 0) + flow.documents
    order = sorted(sums, key=lambda place: (-sums[place], place))[:_CELLS]
    copies = [place for place in order if any(left == place for left, _, _ in sides)]
    earlier = [place for place in order if any(right == place for _, right, _ in sides)]
    values = tuple(
        (
            copies.index(left),
            earlier.index(right),
            float(flow.documents),
            t.plural(flow.documents, "document"),
            flow.split != flow.earlier_split,
        )
        for left, right, flow in sides
        if left in copies and right in earlier
    )
    table = Table(
        title="Near-duplicates by source",
        columns=(*names("near-duplicates in", "of an earlier document in"), *numbers("documents")),
        **rows_of(
            sides,
            lambda side: (
                Name(side[0]),
                Name(side[1]),
                toned(side[2].documents, when=side[2].split != side[2].earlier_split),
            ),
        ),
        noun="pair",
        note="Marked: across splits." if any(flow.split != flow.earlier_split for *_, flow in sides) else "",
    )
    note = "Orange: from one split to another." if any(value[4] for value in values) else ""
    if len(sums) > len(order):
        note = f"The {_CELLS} largest; the table has more. {note}".rstrip()
    left, right, top = sides[0]
    return Figure(
        id="chart-matrix",
        title="Duplicates between sources, by split/source",
        chart=Matrix(
            rows=tuple(map(Name, copies)),
            columns=tuple(map(Name, earlier)),
            values=values,
            row_title="near-duplicates in",
            column_title="of an earlier document in",
        ),
        says=say("Most: {} in {} of documents in {}.", top.documents, Name(left, 40), Name(right, 40)),
        table=table,
        note=note,
    )


def _sizes_figure(near: Near, sizes: Mapping[str, int]) -> Figure:
    says = f"{t.plural(sum(sizes.values()), 'cluster')}; the largest has {_largest_in_words(near)}."
    return Figure(
        id="chart-sizes",
        title="Clusters of near-duplicates by size",
        chart=bars(
            "clusters", (Bar(f"{size} documents", float(n), t.plural(n, "cluster")) for size, n in sizes.items())
        ),
        says=says,
        table=Table(
            title="Clusters by size",
            columns=numbers("documents", "clusters"),
            folded=True,
            rows=tuple(sizes.items()),
        ),
        note=says,
    )


def _chances(near: Near) -> Prose:
    chances = ", ".join(f"{t.ratio(value)} at {label}" for label, value in near.chance_to_meet.items())
    bands = f"{near.counts.get('bands', 0)} bands of {near.counts.get('band_rows', 0)} values"
    return Prose(text=f"Chance to be compared, by similarity ({bands}): {chances}.", tone="quiet")


def _standouts(manifest: Manifest) -> Iterator[Standout]:
    near = near_facts(manifest)
    if near is None:
        return
    whole, heavy = near.scopes[-1], max(near.sources, key=_rate, default=None)
    if heavy is not None and (_rate(whole) > MANY or _rate(heavy) > HEAVY):
        yield Standout(
            kind=Kind.NEAR_DUPLICATES,
            part="near_dup",
            size=whole.documents,
            place=heavy.name,
            text=say("{} of an earlier document ({})", t.plural(whole.documents, "near-duplicate"), share(whole.rate)),
            link=say(", {} of", share(heavy.rate)),
        )
    if undecided := near.counts.get("undecided"):
        text = f"{t.plural(undecided, 'document')} may be near-duplicates: pairs were left out"
        yield Standout(kind=Kind.NOT_LOOKED_AT, part="near_dup", size=undecided, text=text)


def _rate(scope: NearScope) -> float:
    return scope.rate or 0.0


def _sentences(manifest: Manifest) -> Iterator[Line]:
    near = near_facts(manifest)
    if near is not None and near.scopes[-1].rate is not None:
        yield say("{} of the documents are near-duplicates of an earlier one.", share(near.scopes[-1].rate))


SHOWN = Shown(
    sentences=_sentences,
    parts=(
        Part(
            name="near_dup",
            area="duplicates",
            blocks=lambda manifest: [section(near_facts(manifest), repeated_share(manifest))],
        ),
    ),
    standouts=_standouts,
    long_facts={"near_duplicates": near_facts},
)
