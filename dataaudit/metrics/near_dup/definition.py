"""Near-duplicates: documents whose words are nearly those of an earlier document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    Bar,
    Block,
    Figure,
    Matrix,
    Prose,
    Section,
    Table,
    bars,
    column,
    named,
    numbers,
    table_of,
    toned,
)
from dataaudit.base.render.line import Interval, Line, Name, join, say, share
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.metrics.exact_dup.definition import repeated_share
from dataaudit.metrics.family import SOURCES, Family, ShardColumn, ShardStatistic, declare, statistics
from dataaudit.metrics.recomputed import (
    PAIRED,
    Agrees,
    Condition,
    Follows,
    ManifestTables,
    Number,
    Numbers,
    Shape,
    keeps,
    recorded,
    total,
)
from dataaudit.metrics.records import by_scope, near_duplicates, number, of_clusters, only, records_in
from dataaudit.metrics.shown import MANY, Highlight, Kind, Part, Shown

_RATE, _COMPONENT = "near_dup_rate", "near_dup_component_rate"
_EVIDENCE = ShardColumn(column="near_dup_rate", noun="near-duplicates", but="no_words")

_IS_NEAR = Condition(lambda: pc.field("kind") == "near")
_IS_KEPT = Condition(lambda: pc.field("kept"))
_NEAR, _CLUSTERS = Number("near_sources", "documents"), Number("clusters", "", _IS_NEAR, ("cluster",))
_WORDED = total(Number("sources", "documents"), recorded(_RATE, "no_words"), -1)
_SEARCHED = total(Number("shards", "documents"), Number("shards", "no_words"), -1)
_SHOWN = total(recorded(_RATE, "verified_pairs"), recorded(_RATE, "same_words"))


def _near(shards: pa.Table) -> pa.ChunkedArray:
    worded = pc.subtract(shards["documents"], pc.fill_null(shards["no_words"], 0))
    return pc.round(pc.multiply(shards["near_dup_rate"], worded))


def _sizes_of(tables: ManifestTables) -> Counter[int]:
    return Counter(int(size) for size in Number("clusters", "", _IS_NEAR)(tables, ("cluster",)).values())


def _largest(tables: ManifestTables, _: Shape) -> Numbers:
    return {(): max(_sizes_of(tables), default=0)}


def _sizes(tables: ManifestTables, _: Shape) -> Numbers:
    """Return how many clusters have 2, 3 to 4, 5 to 8 documents and so on."""
    clusters_by_size = Counter[tuple[str]]()
    for size, clusters in _sizes_of(tables).items():
        high = 1 << (size - 1).bit_length()
        clusters_by_size[f"documents={high // 2 + 1}-{high}" if size > 2 else "documents=2",] += clusters
    return clusters_by_size


def _paired(tables: ManifestTables, shape: Shape) -> Numbers:
    """Return the held-out documents that are in a verified pair with a training document."""
    splits, is_held_out = (tables.rows("planned")[name].to_pylist() for name in ("split", "held_out"))
    paired = set[tuple[int, int]]()
    pairs = tables.rows("pairs").filter(pc.field("verified"))
    for *left, right, row in zip(*(pairs[name].to_pylist() for name in PAIRED), strict=True):
        if is_held_out[left[0]] != is_held_out[right]:
            paired.add((left[0], left[1]) if is_held_out[left[0]] else (right, row))
    return Counter((splits[shard],)[: len(shape)] for shard, _ in paired)


def _joined(tables: ManifestTables, shape: Shape) -> Numbers:
    """Return the held-out documents that are in a cluster with a training document."""
    rows = tables.rows("clusters").filter(_IS_NEAR.make())
    trained = rows.filter(~pc.field("held_out"))["cluster"].unique()
    joined = rows.filter(pc.field("held_out")).filter(pc.field("cluster").isin(trained))
    return Counter((split,)[: len(shape)] for split in joined["split"].to_pylist())


FAMILY = Family(
    name="near_dup",
    metrics=(
        declare(
            _RATE,
            statistics("rate", "ratio", SOURCES, headline=True, draws="documents"),
            statistics("documents undecided no_words", "documents", SOURCES),
            statistics("same_words largest_cluster", "documents", "all"),
            statistics("candidate_pairs verified_pairs truncated_pairs", "pairs", "all"),
            statistics("clusters", "clusters", "all"),
            statistics("clusters_by_size", "clusters", "rule"),
            statistics("weakest_link precision", "ratio", "all"),
            statistics("bands band_rows", "count", "all"),
            statistics("chance_to_meet", "ratio", "rule"),
            statistics("recall", "ratio", "all, rule"),
            statistics("in_reference", "ratio", "all, split", against_reference=True),
            in_words=True,
            reading=6,
            evidence=_EVIDENCE,
            documents=near_duplicates,
            finds_copies=True,
            area="duplicates",
            columns=(
                ShardStatistic(
                    "rate",
                    "near_dup_rate",
                    but="no_words",
                    undecided="near_dup_undecided",
                    head="near-duplicates",
                    spare=True,
                    compared=True,
                ),
            ),
        ),
        declare(
            _COMPONENT,
            statistics("rate", "ratio", SOURCES, draws="documents"),
            in_words=True,
            reading=6,
            evidence=_EVIDENCE,
            documents=of_clusters("near"),
            area="duplicates",
        ),
    ),
    stage="dataaudit.metrics.near_dup.stage:NearDup",
    stage_name="near_dup",
    kernels=("minhash", "pairing"),
    link="dataaudit.metrics.near_dup.link:near_duplicates",
    by_shard=("near_dup",),
    by_split=("near_dup",),
    harmless=frozenset({"signatures", "checked_pairs", "recall_documents"}),
    checked_with=("near_sources", "clusters", "pairs", "sources", "shards"),
    checks=(
        *(Follows(_RATE, stat, _NEAR, _WORDED, SOURCES) for stat in ("documents", "rate")),
        Agrees("documents without words", Number("shards", "no_words"), recorded(_RATE, "no_words")),
        Agrees("near-duplicates of shards and of near_sources", Number("shards", _near), _NEAR),
        Follows(_COMPONENT, "rate", Number("clusters", "", _IS_NEAR & ~_IS_KEPT), _SEARCHED),
        Follows(_RATE, "clusters", _CLUSTERS, Number("shards", "documents"), "all"),
        Follows(_RATE, "largest_cluster", _largest, Number("shards", "documents"), "all"),
        Follows(_RATE, "clusters_by_size", _sizes, _CLUSTERS, "rule"),
        Agrees(
            "verified pairs and same words", _SHOWN, Number("pairs", "", Condition(lambda: pc.field("verified"))), "all"
        ),
        *keeps("near"),
        Follows("train_val_overlap", "near_dup", least=_paired, most=_joined, shapes="all, set"),
    ),
    looked_for=True,
)

_OVERLAP = "train_val_overlap"
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


@once
def near_facts(manifest: Manifest) -> dict[str, Any] | None:
    """Return what the search for near-duplicates found; None when there was none.

    ``scopes`` are the splits, then the whole dataset; ``sources`` those that have some, the most first; ``losing`` the
    sources of which more than half are near-duplicates; ``leaking`` the share of held-out splits near training data.
    """
    of_sources = records_in(manifest, _RATE, ("source",))
    names = of_sources.where(stat="documents").positive().names("scope.source")
    wide = records_in(manifest, _RATE, (), ("split",), ("rule",))
    records = by_scope(MetricRows.joined([wide, of_sources.of_sources(names)]))
    if not records:
        return None
    parts = records_in(manifest, _COMPONENT, ("source",)).of_sources(names)
    components = {record.scope: record.value for record in (*records_in(manifest, _COMPONENT, (), ("split",)), *parts)}

    def scope_of(scope: Scope) -> dict[str, Any]:
        own = records.get(scope, {})
        return {
            "name": scope.split or scope.source or "",
            "documents": number(own, "documents"),
            "of": own["documents"].n if "documents" in own else 0,
            "rate": own["rate"].value if "rate" in own else None,
            "component_rate": components.get(scope),
        }

    whole = records.get(Scope(), {})
    sources = [scope_of(Scope(source=name)) for name in names]
    by_rule = [record for record in wide if record.scope.rule is not None]
    leaking = {
        str(record.scope.set): record.value
        for record in manifest.metrics(_OVERLAP, "near_dup")
        if record.value and only(record.scope, "set")
    }
    flows = manifest.table("near_sources").to_pylist()
    return {
        "scopes": [
            scope_of(scope) for scope in (*(Scope(split=split.name) for split in manifest.core.splits), Scope())
        ],
        "sources": sorted(
            (item for item in sources if item["documents"]), key=lambda item: (-item["documents"], item["name"])
        ),
        "losing": [item for item in sources if _rate(item) > MUCH],
        "leaking": dict(sorted(leaking.items())),
        "counts": {name: number(whole, name) for name in _COUNTS if name in whole},
        "weakest_link": whole["weakest_link"].value if "weakest_link" in whole else None,
        "clusters_by_size": {
            str(record.scope.rule).removeprefix("documents="): int(record.value or 0)
            for record in sorted(by_rule, key=_first_size)
            if record.stat == "clusters_by_size"
        },
        "chance_to_meet": {
            str(record.scope.rule).removeprefix("jaccard="): record.value
            for record in by_rule
            if record.stat == "chance_to_meet" and record.value is not None
        },
        **{stat: _measured(whole.get(stat)) for stat in ("recall", "precision", "in_reference")},
        "flows": sorted(flows, key=lambda row: (-row["documents"], *map(str, row.values()))),
    }


def _first_size(record: Metric) -> int:
    digits = str(record.scope.rule).removeprefix("documents=").partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def _measured(record: Metric | None) -> dict[str, Any] | None:
    """Return a share that was measured on a sample."""
    if record is None or None in {record.value, record.low, record.high}:
        return None
    return {"value": record.value, "low": record.low, "high": record.high, "tried": record.n}


def section(near: dict[str, Any] | None, exact: float | None = None) -> Section:
    """Return near-duplicates by split and source, who copies whom, and how large the clusters are."""
    lead = (
        say("Exact duplicates were not searched for")
        if exact is None
        else say("{} of all documents repeat the text of an earlier one word for word", share(exact))
    )
    if near is None:
        lead = say("{}; near-duplicates were not searched for.", lead)
        return Section(id="duplicates", title="Duplicates", lead=lead, tone="" if exact else "quiet")
    whole = near["scopes"][-1]
    text = "{}; {} of the documents ({}) are near-duplicates of an earlier one."
    lead = say(text, lead, share(whole["rate"]), whole["documents"])
    blocks: list[Block] = [_rates(near), *_warnings(near), Prose(text=_how(near), tone="quiet")]
    blocks += [_flows(near["flows"])] if near["flows"] else []
    if sizes := {label: clusters for label, clusters in near["clusters_by_size"].items() if clusters}:
        blocks.append(_sizes_figure(near, sizes))
    heavy = any(_rate(source) > HEAVY for source in near["sources"])
    return Section(
        id="duplicates", title="Duplicates", lead=lead, tone="warn" if heavy else "", blocks=(*blocks, _chances(near))
    )


def _rates(near: dict[str, Any]) -> Table:
    splits, whole = near["scopes"][:-1], near["scopes"][-1]
    sources = [item | {"kind": "source", "heavy": _rate(item) > HEAVY} for item in near["sources"]]
    return table_of(
        "Near-duplicates of an earlier document",
        [*(item | {"kind": "split", "heavy": False} for item in splits), *sources],
        column("split or source", "name", named),
        column("documents", "of"),
        column("near-duplicates", "documents"),
        column("share", lambda item: toned(share(item["rate"]), when=item["heavy"])),
        column("beyond one a cluster", "component_rate", share),
        column("", "kind", kind="word"),
        foot=[whole | {"kind": "", "heavy": False}],
        noun="source",
        note=_LEGEND,
    )


def _warnings(near: dict[str, Any]) -> list[Block]:
    text = "{}: {} of its documents have a near-duplicate in training data."
    texts = [say(text, Name(name), share(value)) for name, value in near["leaking"].items()]
    text = "warning: source {} would lose {} of its documents."
    texts += [say(text, Name(source["name"]), share(source["rate"])) for source in near["losing"]]
    return [Prose(text=text) for text in texts]


def _how(near: dict[str, Any]) -> Line:
    """Say what was compared, and what is known of misses and mistakes."""
    counts = near["counts"]
    pairs, clusters = t.plural(counts.get("candidate_pairs", 0), "pair"), t.plural(counts.get("clusters", 0), "cluster")
    parts: list[Line] = [
        f"{pairs} compared exactly, {t.count(counts.get('verified_pairs', 0))} near",
        f"{clusters}, the largest of {_largest_in_words(near)}",
    ]
    for name, measured, item, many in (
        ("recall", near["recall"], "drawn near-duplicate", "drawn near-duplicates"),
        ("precision", near["precision"], "reported pair", "reported pairs"),
        ("in the reference", near["in_reference"], "document, by signatures", "documents, by signatures"),
    ):
        if measured is not None:
            noun, bounds = item if measured["tried"] == 1 else many, Interval(measured["low"], measured["high"])
            parts.append(say("{} {} on {} {} ({})", name, share(measured["value"]), measured["tried"], noun, bounds))
    if counts.get("truncated_pairs"):
        text = f"{t.plural(counts['truncated_pairs'], 'pair')} left out"
        if undecided := counts.get("undecided"):
            text += f", so {t.plural(undecided, 'document')} may be near-duplicates and are not counted"
        parts.append(text)
    return say("{}.", join("; ", parts))


def _largest_in_words(near: dict[str, Any]) -> str:
    largest = t.plural(near["counts"].get("largest_cluster", 0), "document")
    return largest if near["weakest_link"] is None else f"{largest}, its weakest link {t.ratio(near['weakest_link'])}"


def _flows(flows: Sequence[dict[str, Any]]) -> Figure:
    """Return who copies whom: a row for the copy's source, a column for that of the earlier document."""
    sides = [
        {
            "left": f"{flow['split']}/{flow['source']}",
            "right": f"{flow['earlier_split']}/{flow['earlier_source']}",
            "documents": flow["documents"],
            "across": flow["split"] != flow["earlier_split"],
        }
        for flow in flows
    ]
    sums = Counter[str]()
    for side in sides:
        for name in {side["left"], side["right"]}:
            sums[name] += side["documents"]
    order = sorted(sums, key=lambda name: (-sums[name], name))[:_CELLS]
    copies, earlier = (
        [name for name in order if any(side[which] == name for side in sides)] for which in ("left", "right")
    )
    values = tuple(
        (
            copies.index(side["left"]),
            earlier.index(side["right"]),
            float(side["documents"]),
            t.plural(side["documents"], "document"),
            side["across"],
        )
        for side in sides
        if side["left"] in copies and side["right"] in earlier
    )
    table = table_of(
        "Near-duplicates by source",
        sides,
        column("near-duplicates in", "left", Name),
        column("of an earlier document in", "right", Name),
        column("documents", lambda side: toned(side["documents"], when=side["across"])),
        noun="pair",
        note="Marked: across splits." if any(side["across"] for side in sides) else "",
    )
    note = "Orange: from one split to another." if any(value[4] for value in values) else ""
    if len(sums) > len(order):
        note = f"The {_CELLS} largest; the table has more. {note}".rstrip()
    most = sides[0]
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
        says=say(
            "Most: {} in {} of documents in {}.", most["documents"], Name(most["left"], 40), Name(most["right"], 40)
        ),
        table=table,
        note=note,
    )


def _sizes_figure(near: dict[str, Any], sizes: Mapping[str, int]) -> Figure:
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


def _chances(near: dict[str, Any]) -> Prose:
    chances = ", ".join(f"{t.ratio(value)} at {label}" for label, value in near["chance_to_meet"].items())
    bands = f"{near['counts'].get('bands', 0)} bands of {near['counts'].get('band_rows', 0)} values"
    return Prose(text=f"Chance to be compared, by similarity ({bands}): {chances}.", tone="quiet")


def _highlights(manifest: Manifest) -> Iterator[Highlight]:
    near = near_facts(manifest)
    if near is None:
        return
    whole = near["scopes"][-1]
    heavy = max(near["sources"], key=lambda item: item["documents"] - _rate(whole) * item["of"], default=None)
    if heavy is not None and (_rate(whole) > MANY or _rate(heavy) > HEAVY):
        documents = t.plural(whole["documents"], "near-duplicate")
        yield Highlight(
            kind=Kind.NEAR_DUPLICATES,
            part="near_dup",
            size=whole["documents"],
            place=heavy["name"],
            text=say("{} of an earlier document ({})", documents, share(whole["rate"])),
            link=say(", {} of", share(heavy["rate"])),
        )
    if undecided := near["counts"].get("undecided"):
        text = f"{t.plural(undecided, 'document')} may be near-duplicates: pairs were left out"
        yield Highlight(kind=Kind.NOT_LOOKED_AT, part="near_dup", size=undecided, text=text)


def _rate(scope: Mapping[str, Any]) -> float:
    return scope["rate"] or 0.0


def _sentences(manifest: Manifest) -> Iterator[Line]:
    near = near_facts(manifest)
    if near is not None and near["scopes"][-1]["rate"] is not None:
        yield say("{} of the documents are near-duplicates of an earlier one.", share(near["scopes"][-1]["rate"]))


SHOWN = Shown(
    sentences=_sentences,
    parts=(
        Part(
            name="near_dup",
            area="duplicates",
            blocks=lambda manifest: [section(near_facts(manifest), repeated_share(manifest))],
        ),
    ),
    highlights=_highlights,
    long_facts={"near_duplicates": near_facts},
)
