"""The link step of near-duplicates: candidate pairs, a second reading that verifies them, clusters, a check.

The joins are in :mod:`.candidates` and :mod:`.verification`; here they follow each other, and their results become rows
of the manifest's tables, records and warnings.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.locate import places_of
from dataaudit.manifest.metric import Metric, Scope, count
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.near_dup.candidates import (
    CANDIDATES,
    CLASS_MEMBERS,
    COUNTS,
    CROWDS,
    CUT,
    DROPPED,
    HELD_OUT_CUT,
    KEYED_CANDIDATES,
    MEMBERS,
    MET,
    MISSED,
    PAIRS,
    SKETCHED,
    BandJoin,
    CrowdJoin,
    PairJoin,
    SketchJoin,
    first_spread,
    link_classes,
    sketch_matrix,
)
from dataaudit.metrics.near_dup.clusters import EARLIER, NEAR_COUNTS, Corpus, NearClusters, cluster, filled_table
from dataaudit.metrics.near_dup.reference_corpus import BestMatches, collect_signatures, count_matches, match_reference
from dataaudit.metrics.near_dup.stage import METRIC, TABLE, NearDup
from dataaudit.metrics.near_dup.verification import (
    CHECKS,
    DONE,
    NO_BUCKET,
    SEEN,
    VERIFIED,
    NearChecks,
    NearSets,
    NeighbourJoin,
    Recall,
    VerifyJoin,
    count_right,
    partition_bits,
    sample_pairs,
    wanted_documents,
)
from dataaudit.scan.cross_shard.joins import ROWS_PER_PARTITION, JoinedParts
from dataaudit.scan.cross_shard.step import (
    LinkContext,
    LinkResult,
    LinkStep,
    SecondPassRequest,
    SecondPassResult,
    kept_sources,
)
from dataaudit.scan.kernels.intervals import clopper_pearson
from dataaudit.scan.kernels.minhash import chance_to_meet
from dataaudit.scan.stages.partial import OTHER, TableShape, group

_MOST_NAMED = 5
"""Sources named in warnings, the largest losses first."""
_SKETCH_WEIGHT = 6
"""Bytes of a row with a sketch over those of a row with a band."""
_MUCH = 0.5
"""Share of a source from which losing it is worth a warning."""
CONFIDENCE = 0.95
"""Least coverage of the intervals (Clopper and Pearson)."""
CURVE = tuple(range(50, 101, 5))
"""Similarities, in hundredths, at which the chance to share a band is reported."""
STEPS = 20
"""Recall is reported by similarity in steps of 1 / 20."""


def near_duplicates(context: LinkContext) -> LinkStep:
    """Find candidate pairs, have their documents read again, verify the pairs, and count near-duplicates."""
    search = _Search(context)
    stage, threshold = search.stage, search.stage.threshold
    members, pairs, neighbours = search.find_candidates()
    candidates = pa.concat_tables([joined.table("candidates", CANDIDATES) for joined in (pairs, *neighbours)])
    bits, cut = partition_bits(candidates, search.document_bytes()), search.left_out(pairs)
    wanted = wanted_documents(candidates, cut["place"].to_numpy(), bits)
    (result,) = yield [SecondPassRequest(task=NearSets(ngram=stage.ngram), wanted=wanted)]
    verified = search.verify([pairs, *neighbours], result, bits)
    compared = verified.filter(pc.not_equal(verified["bands"], NO_BUCKET))
    is_near = compared["intersection"].to_numpy() / np.maximum(compared["union"].to_numpy(), 1) >= threshold
    edges = compared.filter(pa.array(is_near))
    sample = sample_pairs(members, edges, stage.checked_pairs)
    (checks,) = yield [SecondPassRequest(task=NearChecks(ngram=stage.ngram), wanted=sample.wanted())]
    checked = checks.table("checks", pa.schema([*CHECKS, ("shard", pa.int32())]))
    reported, right = count_right(sample, checked["shard"].to_numpy(), checked, threshold)
    counts = NearCounts(
        documents=search.documents,
        candidates=compared.num_rows,
        verified=edges.num_rows,
        missed=search.missed,
        dropped=_sum(pairs.table("dropped", DROPPED), "dropped"),
        reported=reported,
        right=right,
    )
    clusters = cluster(members, edges, _sources(result), search.corpus(), cut)
    recall = Recall.of(search.drawn, verified, edges, threshold)
    found = LinkResult(
        tables={
            "clusters": clusters.clusters,
            "pairs": clusters.pairs,
            "near_sources": search.by_source(clusters.earlier),
        },
        metrics=near_metrics(stage, counts, clusters, recall),
        extra={TABLE: search.added(clusters)},
        warnings=search.warnings(clusters),
    )
    found.metrics += search.in_reference(match_reference(context, search.documents), members)
    if stage.signatures:
        found.tables["signatures"], found.folders["signatures"] = collect_signatures(context)
    return found


def _sources(result: SecondPassResult) -> pa.Table:
    """Return place and source of all documents that were read again."""
    seen = result.table("seen", pa.schema([*SEEN, ("shard", pa.int32())]))
    places = places_of(seen["shard"].to_numpy(), seen["row"].to_numpy())
    return pa.table({"place": places, "source": seen["source"]})


class _Search:
    """The joins of the search in their order, and what the manifest keeps of them."""

    def __init__(self, context: LinkContext) -> None:
        assert isinstance(context.stage, NearDup)
        self._context = context
        self.stage = context.stage
        self._survey = context.survey
        self.documents = self._survey.total(self.stage.name, TABLE, "documents")
        self._splits = sorted({shard.split for shard in context.shards})
        self._held_out = tuple(context.config.splits[name].held_out for name in self._splits)
        self.missed, self.cut = 0, HELD_OUT_CUT.empty_table()
        self.drawn = np.zeros(0, dtype=np.int64)

    def find_candidates(self) -> tuple[pa.Table, JoinedParts, list[JoinedParts]]:
        """Return the members of classes, the candidate pairs, and the neighbours of drawn documents, if any were."""
        stage, files = self.stage, self._context.files
        classes = self._context.join("near-classes", link_classes, files("documents"), self.documents)
        by_bands = BandJoin(small=stage.small_bucket, met=stage.recall_documents, held_out=self._held_out)
        rows = self.documents * stage.bands()[0]
        bands = self._context.join("near-bands", by_bands, files("bands"), rows, pairs=PAIRS, crowds=CROWDS)
        counts, paired = bands.table("counts", COUNTS), bands.files("pairs")
        rows, crowded, values = _sum(counts, "pairs"), _sum(counts, "crowds"), stage.values()
        drawn = first_spread(bands.table("met", MET)["place"].to_numpy(), stage.recall_documents)
        neighbours = []
        if crowded or len(drawn):
            by_class = SketchJoin(values=values, drawn=tuple(np.sort(drawn).tolist()))
            sketched = [*files("sketches"), *bands.files("crowds")]
            sketches = self._context.join(
                "near-sketches", by_class, sketched, self.documents * _SKETCH_WEIGHT, members=MEMBERS
            )
            if crowded:
                by_crowds = CrowdJoin(values=values, held_out=self._held_out, limits=stage.limits())
                weight = crowded * _SKETCH_WEIGHT
                crowds = self._context.join("near-crowds", by_crowds, sketches.files("members"), weight, pairs=PAIRS)
                missed, self.cut = crowds.table("missed", MISSED), crowds.table("cut", HELD_OUT_CUT)
                self.missed, rows = _sum(missed, "missed"), rows + _sum(missed, "rows")
                paired = [*paired, *crowds.files("pairs")]
            if len(drawn):
                neighbours.append(self._neighbours(drawn, sketches.table("drawn", SKETCHED)))
                done = neighbours[0].table("done", DONE)["documents"].to_numpy()
                self.drawn = drawn[: done.min()]
        by_pairs = PairJoin(limits=stage.limits(), values=values)
        pairs = self._context.join("near-pairs", by_pairs, paired, rows, candidates=KEYED_CANDIDATES)
        return classes.table("members", CLASS_MEMBERS), pairs, neighbours

    def _neighbours(self, drawn: np.ndarray, sketched: pa.Table) -> JoinedParts:
        order = np.argsort(sketched["place"].to_numpy())
        chosen = order[np.searchsorted(sketched["place"].to_numpy()[order], drawn)]
        sketches = sketch_matrix(sketched["sketch"], self.stage.values())[chosen]
        function = NeighbourJoin(drawn, sketches, self.stage.threshold)
        identity = [drawn.tolist(), hashlib.sha256(sketches.tobytes()).hexdigest(), self.stage.threshold]
        rows, files = self.documents * _SKETCH_WEIGHT, self._context.files("sketches")
        return self._context.join(
            "near-neighbours", function, files, rows, identity=identity, candidates=KEYED_CANDIDATES
        )

    def left_out(self, pairs: JoinedParts) -> pa.Table:
        """Return the documents of which pairs were left out, of schema :data:`.candidates.CUT`."""
        earlier = self.cut.append_column("is_later", pa.array(np.zeros(len(self.cut), dtype=bool)))
        return pa.concat_tables([pairs.table("cut", CUT), earlier])

    def document_bytes(self) -> int:
        """Return the bytes of an average document."""
        volume = self._survey.by_split["volume", "volume"]
        splits = pa.array(sorted({shard.split for shard in self._context.read()}), pa.string())
        return _sum(volume.filter(pc.is_in(volume["split"], splits)), "bytes") // max(1, self.documents)

    def verify(self, joined: Sequence[JoinedParts], result: SecondPassResult, bits: int) -> pa.Table:
        """Return the candidates with the sizes of intersection and union."""
        rows = ROWS_PER_PARTITION << min(bits, 8)
        files = [*(file for parts in joined for file in parts.files("candidates")), *result.files("sets")]
        return self._context.join("near-verify", VerifyJoin(bits=bits), files, rows).table("verified", VERIFIED)

    def in_reference(self, best: BestMatches | str, members: pa.Table) -> list[Metric]:
        """Return the records of documents that are near some of the reference, by split and of all."""
        documents = Counter[str | None]()
        for row in self._survey.by_split[self.stage.name, TABLE].to_pylist():
            documents[row["split"]] += row["documents"]
        numbers = np.zeros((len(self._splits), 3), dtype=np.int64)
        if not isinstance(best, str):
            matches = count_matches(
                best.places,
                best.equal,
                members,
                self.corpus().split_of,
                num_perm=self.stage.num_perm,
                threshold=self.stage.threshold,
            )
            numbers[: len(matches)] += matches
        scopes: dict[str | None, tuple[np.ndarray, int]] = {None: (numbers.sum(axis=0), self.documents)}
        scopes |= {name: (numbers[index], documents[name]) for index, name in enumerate(self._splits)}
        return reference_metrics(self.stage, scopes, best if isinstance(best, str) else "")

    def corpus(self) -> Corpus:
        """Return the splits of shards, and which of them are held out."""
        shards = self._context.shards
        split_of = np.zeros(1 + max((shard.ordinal for shard in shards), default=0), dtype=np.int32)
        for shard in shards:
            split_of[shard.ordinal] = self._splits.index(shard.split)
        return Corpus(split_of=split_of, held_out=np.array(self._held_out))

    def by_source(self, earlier: pa.Table) -> pa.Table:
        """Return the table ``near_sources``: splits by name, small sources folded."""
        kept = kept_sources(self._survey, self._context.config.max_sources)
        names = pa.array(self._splits, pa.string())
        columns: dict[str, pa.ChunkedArray] = {"documents": earlier["documents"]}
        for side in ("", "earlier_"):
            columns[f"{side}split"] = names.take(earlier[f"{side}split"].combine_chunks())
            source = earlier[f"{side}source"]
            columns[f"{side}source"] = source if kept is None else pc.if_else(pc.is_in(source, kept), source, OTHER)
        shape = TableShape(keys=dict.fromkeys(EARLIER.keys, pa.string()), sums=EARLIER.sums)
        return group(shape, pa.table(columns)).cast(TABLES["near_sources"].schema)

    def added(self, clusters: NearClusters) -> pa.Table:
        """Return what is added to the partials: the counts, and the documents that are held out, all and with words."""
        splits = self._context.config.splits
        ordinals = [shard.ordinal for shard in self._context.read() if splits[shard.split].held_out]
        table = self._survey.by_shard[self.stage.name, TABLE]
        rows = table.filter(pc.is_in(table["shard"], pa.array(ordinals, pa.int32())))
        worded = pc.subtract(rows["documents"], rows["no_words"])
        shape = TableShape(keys=NEAR_COUNTS.keys, sums=(*NEAR_COUNTS.sums, "held_out", "held_out_worded"))
        held_out = {"shard": rows["shard"], "source": rows["source"], "held_out": rows["documents"]}
        counts = {name: clusters.counts[name] for name in clusters.counts.column_names}
        return pa.concat_tables(
            [filled_table(shape, counts), filled_table(shape, {**held_out, "held_out_worded": worded})]
        )

    def warnings(self, clusters: NearClusters) -> list[str]:
        """Return a line for each source that would lose more than half of its documents."""
        documents, lost = Counter[str](), Counter[str]()
        for row in self._survey.by_split[self.stage.name, TABLE].to_pylist():
            documents[row["source"]] += row["documents"] - row["no_words"]
        for row in clusters.counts.to_pylist():
            lost[row["source"]] += row["duplicates"]
        much = sorted((-number, name) for name, number in lost.items() if number > _MUCH * documents[name])
        lines = [
            f"near-duplicates: source {name} would lose {-number:,} of {documents[name]:,} documents"
            for number, name in much[:_MOST_NAMED]
        ]
        more = len(much) - _MOST_NAMED
        return [*lines, f"near-duplicates: so would {more:,} smaller ones"] if more > 0 else lines


def _sum(table: pa.Table, name: str) -> int:
    return int(pc.sum(table[name]).as_py() or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearCounts:
    """What the joins counted."""

    documents: int
    candidates: int
    """Pairs whose similarity was computed."""
    verified: int
    """Those at or above the threshold."""
    missed: int
    """Pairs of large buckets that were not compared, or agree and were left out."""
    dropped: int
    """Pairs left out because their later document had too many."""
    reported: int
    """Reported pairs that were checked."""
    right: int
    """Those of them whose similarity as text reaches the threshold, too."""


def near_metrics(stage: NearDup, counts: NearCounts, clusters: NearClusters, recall: Recall) -> list[Metric]:
    """Return the records of the whole dataset."""
    sizes, documents, pairs = clusters.sizes, counts.documents, counts.candidates
    record = partial(Metric, metric=METRIC, version=stage.version)
    (bands, rows), left_out = stage.bands(), counts.missed + counts.dropped
    numbers = (
        ("candidate_pairs", pairs, "pairs", pairs),
        ("verified_pairs", counts.verified, "pairs", pairs),
        ("truncated_pairs", left_out, "pairs", pairs + left_out),
        ("same_words", clusters.same_words, "documents", documents),
        ("clusters", len(sizes), "clusters", documents),
        ("largest_cluster", int(sizes.max(initial=0)), "documents", documents),
        ("bands", bands, "count", stage.num_perm),
        ("band_rows", rows, "count", stage.num_perm),
    )
    counted = partial(count, METRIC, version=stage.version)
    metrics = [counted(stat, value, scope=Scope(), unit=unit, n=n) for stat, value, unit, n in numbers]
    metrics += [
        counted("clusters_by_size", number, scope=Scope(rule=label), unit="clusters", n=len(sizes))
        for label, number in size_classes(sizes)
    ]
    by_chance = partial(record, stat="chance_to_meet", unit="ratio", n=bands, denominator=bands)
    for similarity in CURVE:
        scope, chance = Scope(rule=f"jaccard={similarity / 100:.2f}"), chance_to_meet(similarity / 100, bands, rows)
        metrics.append(by_chance(scope=scope, value=chance))
    shared, union = clusters.weakest
    weakest = partial(record, stat="weakest_link", unit="ratio")
    if union:
        metrics.append(weakest(value=shared / union, n=union, denominator=union))
    else:
        metrics.append(weakest(value=None, status="not_evaluated", reason="no_cluster"))
    metrics += recall_records(stage, recall)
    return [*metrics, _share(stage, "precision", counts.right, counts.reported, Scope(), "no_pair_checked")]


def size_classes(sizes: np.ndarray) -> Iterator[tuple[str, int]]:
    """Yield (sizes, number) of clusters: of 2 documents, 3 to 4, 5 to 8 and so on, up to the largest; zeros kept."""
    low, high = 2, 2
    while low <= sizes.max(initial=0):
        label = f"documents={low}" if low == high else f"documents={low}-{high}"
        yield label, int(((sizes >= low) & (sizes <= high)).sum())
        low, high = high + 1, 2 * high


def recall_records(stage: NearDup, recall: Recall) -> Iterator[Metric]:
    """Yield the share of drawn near-duplicates that the search found, of all and by similarity to the nearest document.

    Documents that share no bucket are not drawn, so the lower bound of all is lowered by the chance to share none.
    """
    reason = "no_neighbour" if stage.recall_documents else "none_drawn"
    whole = _share(stage, "recall", int(recall.found.sum()), len(recall.found), Scope(), reason)
    if whole.low is not None:
        whole = replace(whole, low=whole.low * chance_to_meet(stage.threshold, *stage.bands()))
    yield whole
    steps = np.minimum((recall.similarities * STEPS).astype(np.int64), STEPS - 1)
    for step in range(int(stage.threshold * STEPS), STEPS):
        own, scope = steps == step, Scope(rule=f"jaccard={step / STEPS:.2f}-{(step + 1) / STEPS:.2f}")
        yield _share(stage, "recall", int(recall.found[own].sum()), int(own.sum()), scope, reason)


def _share(stage: NearDup, stat: str, good: int, tried: int, scope: Scope, reason: str) -> Metric:
    record = partial(Metric, metric=METRIC, stat=stat, scope=scope, unit="ratio", version=stage.version)
    if tried == 0:
        return record(value=None, status="not_evaluated", reason=reason)
    low, high = clopper_pearson(good, tried, CONFIDENCE)
    sampled = partial(record, method="sampled", n=tried, denominator=tried, confidence=CONFIDENCE)
    return sampled(value=good / tried, low=low, high=high)


def reference_metrics(
    stage: NearDup, scopes: Mapping[str | None, tuple[np.ndarray, int]], problem: str = ""
) -> list[Metric]:
    """Return the share of documents of each split, and of all (None), that are near-duplicates of the reference's.

    A scope has int64[3], the near-duplicates by estimate, by its lower and by its upper bound, and all documents.
    """
    metrics = []
    for split, (near, documents) in scopes.items():
        record = partial(
            Metric, metric=METRIC, stat="in_reference", scope=Scope(split=split), unit="ratio", version=stage.version
        )
        if problem:
            metrics.append(record(value=None, status="not_applicable", reason=problem))
        elif documents == 0:
            metrics.append(record(value=None, status="not_evaluated", reason="empty_denominator"))
        else:
            value, low, high = (near / documents).tolist()
            estimated = partial(record, method="estimated", n=documents, denominator=documents, confidence=CONFIDENCE)
            metrics.append(estimated(value=value, low=low, high=high))
    return metrics
