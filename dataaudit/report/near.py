"""Near-duplicates as people read them: how many, what was compared, how much was missed, and who copies whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dataaudit import text as t
from dataaudit.layout import name_column, number_column, prose, section, table
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope

RATE, COMPONENTS, OVERLAP = "near_dup_rate", "near_dup_component_rate", "train_val_overlap"
MUCH = 0.5
"""Share of a source from which losing it is warned of."""
_NAME_LIMIT = 60
_LEGEND = (
    "near-dups: documents with a near-duplicate earlier in the manifest's order; beyond one a cluster: all but one of"
    " each cluster, which chains of near-duplicates make. Documents of equal words are near-duplicates, and in"
    " clusters, without being compared."
)
_PAIRS = 12
_COUNTS = (
    "candidate_pairs",
    "verified_pairs",
    "truncated_pairs",
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


def near_duplicates(manifest: Manifest) -> Near | None:
    """Return what was found, or None when near-duplicates were not searched for."""
    records = manifest.metrics(RATE)
    if not records:
        return None
    whole = {record.stat: record for record in records if record.scope == Scope()}
    by_rule = [record for record in records if record.scope.rule is not None]
    sources = [record.scope.source for record in records if record.stat == "rate" and _only(record, "source")]
    by_scope: dict[Scope, dict[str, Metric]] = {}
    for record in records:
        by_scope.setdefault(record.scope, {})[record.stat] = record
    components = {record.scope: record for record in manifest.metrics(COMPONENTS, "rate")}
    found = [_scope(by_scope, components, Scope(source=name)) for name in sources]
    splits = [Scope(split=split.name) for split in manifest.core.splits]
    leaks = {
        str(record.scope.set): record.value
        for record in manifest.metrics(OVERLAP, "near_dup")
        if record.value and _only(record, "set")
    }
    rows = manifest.table("near_sources").to_pylist()
    return Near(
        scopes=tuple(_scope(by_scope, components, scope) for scope in (*splits, Scope())),
        sources=tuple(sorted((one for one in found if one.documents), key=lambda one: (-one.documents, one.name))),
        losing=tuple(one for one in found if one.rate is not None and one.rate > MUCH),
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


def _only(record: Metric, name: str) -> bool:
    return list(record.scope.as_dict()) == [name]


def _first_size(record: Metric) -> int:
    digits = str(record.scope.rule).removeprefix("documents=").partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def _scope(
    records: Mapping[Scope, Mapping[str, Metric]], components: Mapping[Scope, Metric], scope: Scope
) -> NearScope:
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


def near_lines(near: Near | None, width: int) -> list[str]:
    """Return the block of near-duplicates; empty when they were not looked for."""
    if near is None:
        return []
    lines = _rates(near, width)
    for name, share in near.leaking.items():
        text = (
            f"{t.clean(name, _NAME_LIMIT)}: {t.ratio(share)} of its documents have a near-duplicate in training data."
        )
        lines += prose(text, width)
    for one in near.losing:
        text = f"warning: source {t.clean(one.name, _NAME_LIMIT)} would lose {t.ratio(one.rate)} of its documents."
        lines += prose(text, width)
    lines += prose(_how(near), width)
    lines += prose(_LEGEND, width)
    block = section("Near-duplicates of an earlier document", lines)
    return [*block, *_details(near, width), *_flow_lines(near, width)]


def _rates(near: Near, width: int) -> list[str]:
    columns = [
        name_column("split"),
        number_column("docs"),
        number_column("near-\ndups"),
        number_column("share"),
        number_column("beyond one\na cluster"),
    ]
    scopes = near.scopes if len(near.scopes) > 2 else near.scopes[:1]
    rows = [
        [
            t.clean(one.name, _NAME_LIMIT) or "(all)",
            t.count(one.of),
            t.count(one.documents),
            t.ratio(one.rate),
            t.ratio(one.component_rate),
        ]
        for one in scopes
    ]
    return table(columns, rows, width)


def _how(near: Near) -> str:
    """Say what was compared, and what is known of misses and mistakes."""
    counts = near.counts
    pairs, clusters = t.plural(counts.get("candidate_pairs", 0), "pair"), t.plural(counts.get("clusters", 0), "cluster")
    largest = t.plural(counts.get("largest_cluster", 0), "document")
    parts = [
        f"{pairs} compared exactly, {t.count(counts.get('verified_pairs', 0))} near",
        f"{clusters}, the largest of {largest}" + ("" if near.weakest_link is None else _weakest(near.weakest_link)),
    ]
    if near.recall is not None:
        parts.append(_share("recall", near.recall, ("made variant", "made variants", " at or above the threshold")))
    if near.precision is not None:
        parts.append(_share("precision", near.precision, ("reported pair", "reported pairs", "")))
    if near.in_reference is not None:
        parts.append(_share("in the reference", near.in_reference, ("document", "documents", ", by signatures")))
    if counts.get("truncated_pairs"):
        parts.append(f"{t.plural(counts['truncated_pairs'], 'pair')} of large buckets not compared there")
    return "; ".join(parts)


def _weakest(similarity: float) -> str:
    return f", its weakest link {t.ratio(similarity)}"


def _share(name: str, measured: Measured, what: tuple[str, str, str]) -> str:
    """Return a measured share in words; ``what`` was tried: the noun for one, for several, and what follows it."""
    noun = what[0 if measured.tried == 1 else 1] + what[2]
    bounds = f"{t.ratio(measured.low)} to {t.ratio(measured.high)}"
    return f"{name} {t.ratio(measured.value)} on {t.count(measured.tried)} {noun} ({bounds})"


def _details(near: Near, width: int) -> list[str]:
    """Return the sizes of clusters and the chances to be compared."""
    sizes = ", ".join(f"{number:,} of {label}" for label, number in near.clusters_by_size.items() if number)
    chances = ", ".join(f"{t.ratio(value)} at {label}" for label, value in near.chance_to_meet.items())
    bands = f"{near.counts.get('bands', 0)} bands of {near.counts.get('band_rows', 0)} values"
    lines = prose(f"clusters by documents: {sizes}", width) if sizes else []
    return lines + prose(f"chance to be compared, by similarity ({bands}): {chances}", width)


def _flow_lines(near: Near, width: int) -> list[str]:
    columns = [name_column("near-duplicates in"), name_column("of an earlier one in"), number_column("docs")]
    rows = [
        [
            t.clean(f"{one.split}/{one.source}", _NAME_LIMIT),
            t.clean(f"{one.earlier_split}/{one.earlier_source}", _NAME_LIMIT),
            t.count(one.documents),
        ]
        for one in near.flows[:_PAIRS]
    ]
    lines = table(columns, rows, width)
    if len(near.flows) > _PAIRS:
        lines += prose(f"and {t.count(len(near.flows) - _PAIRS)} more; --json lists all", width)
    return ["", *section("Near-duplicates by source", lines)] if lines else []
