"""The family of near-duplicates: classes, bands, pairs; a second reading; verification; clusters."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.locate import places_of
from dataaudit.manifest.metric import Metric
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.near_dup.bands import (
    CLASS_MEMBERS,
    COUNTS,
    CROWDS,
    HELD_OUT_CUT,
    MEMBERS,
    MET,
    MISSED,
    PAIRS,
    SKETCHED,
    BandJoin,
    CrowdJoin,
    SketchJoin,
    first_spread,
    link_classes,
    sketch_matrix,
)
from dataaudit.metrics.near_dup.clusters import NEAR_COUNTS, Corpus, NearClusters, cluster
from dataaudit.metrics.near_dup.records import (
    DONE,
    NO_BUCKET,
    NearCounts,
    NeighbourJoin,
    Recall,
    near_metrics,
    reference_metrics,
)
from dataaudit.metrics.near_dup.reference import (
    BestMatches,
    InReference,
    collect_signatures,
    count_matches,
    match_reference,
)
from dataaudit.metrics.near_dup.stage import TABLE, NearDup
from dataaudit.metrics.near_dup.verify import (
    CANDIDATES,
    CHECKS,
    CUT,
    DROPPED,
    KEYED_CANDIDATES,
    SEEN,
    VERIFIED,
    NearChecks,
    NearSets,
    PairJoin,
    VerifyJoin,
    count_right,
    partition_bits,
    sample_pairs,
    wanted_documents,
)
from dataaudit.scan.link.joins import ROWS_PER_PARTITION, Join, JoinedParts, JoinFunction, KeyedFile
from dataaudit.scan.link.step import (
    LinkContext,
    LinkResult,
    LinkStep,
    SecondPassRequest,
    SecondPassResult,
    kept_sources,
)
from dataaudit.scan.stages.partial import fold_table

VOLUME = "volume"
_TOLD = 5
"""Sources that are named in warnings, the largest losses first."""
_SKETCH_WEIGHS = 6
"""Bytes of a row with a sketch over those of a row with a band."""
_MUCH = 0.5
"""Share of a source from which losing it is worth a warning."""


def near_duplicates(context: LinkContext) -> LinkStep:
    """Find the pairs, ask for their documents, verify them, and count."""
    search = _Search(context)
    members, pairs, neighbours = search.find()
    sets = NearSets(ngram=search.stage.ngram)
    candidates = pa.concat_tables([joined.table("candidates", CANDIDATES) for joined in (pairs, *neighbours)])
    bits = partition_bits(candidates, search.document_bytes())
    cut = search.left_out(pairs)
    wanted = wanted_documents(candidates, cut["place"].to_numpy(), bits)
    (result,) = yield [SecondPassRequest(task=sets, wanted=wanted)]
    verified = search.verify([pairs, *neighbours], result, bits)
    compared = verified.filter(pc.not_equal(verified["bands"], NO_BUCKET))
    near = compared["intersection"].to_numpy() / np.maximum(compared["union"].to_numpy(), 1) >= search.stage.threshold
    edges = compared.filter(pa.array(near))
    sample = sample_pairs(members, edges, search.stage.checked_pairs)
    (checks,) = yield [SecondPassRequest(task=NearChecks(ngram=search.stage.ngram), wanted=sample.wanted())]
    checked = checks.table("checks", pa.schema([*CHECKS, ("shard", pa.int32())]))
    reported, right = count_right(sample, checked["shard"].to_numpy(), checked, search.stage.threshold)
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
    found = search.found(counts, clusters, Recall.of(search.drawn, verified, edges, search.stage.threshold))
    found.metrics += search.in_reference(match_reference(context, search.documents), members)
    if search.stage.signatures:
        table, fill = collect_signatures(context)
        found.tables["signatures"], found.folders["signatures"] = table, fill
    return found


def _sources(result: SecondPassResult) -> pa.Table:
    """Return place and source of all documents that were read again."""
    seen = result.table("seen", pa.schema([*SEEN, ("shard", pa.int32())]))
    places = places_of(seen["shard"].to_numpy(), seen["row"].to_numpy())
    return pa.table({"place": places, "source": seen["source"]})


class _Search:
    """The steps of the search, each a join.

    Args:
        context: What it works with.
    """

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

    def find(self) -> tuple[pa.Table, JoinedParts, list[JoinedParts]]:
        """Return the members of classes, the joined pairs, and the neighbours of drawn documents, if any were."""
        stage, files = self.stage, self._context.files
        classes = self._join("classes", link_classes, files("documents"), self.documents, None, {})
        by_bands = BandJoin(small=stage.small_bucket, met=stage.recall_documents, held_out=self._held_out)
        rows = self.documents * stage.bands()[0]
        bands = self._join(
            "bands",
            by_bands,
            files("bands"),
            rows,
            asdict(by_bands),
            {"pairs": PAIRS, "crowds": CROWDS},
        )
        counts, paired = bands.table("counts", COUNTS), bands.files("pairs")
        rows, crowded, values = _sum(counts, "pairs"), _sum(counts, "crowds"), stage.values()
        drawn = first_spread(bands.table("met", MET)["place"].to_numpy(), stage.recall_documents)
        neighbours = []
        if crowded or len(drawn):
            by_class = SketchJoin(values=values, drawn=tuple(np.sort(drawn).tolist()))
            sketches = self._join(
                "sketches",
                by_class,
                [*files("sketches"), *bands.files("crowds")],
                self.documents * _SKETCH_WEIGHS,
                asdict(by_class),
                {"members": MEMBERS},
            )
            if crowded:
                crowds = self._crowds(sketches, crowded, values)
                missed, self.cut = crowds.table("missed", MISSED), crowds.table("cut", HELD_OUT_CUT)
                self.missed, rows = _sum(missed, "missed"), rows + _sum(missed, "rows")
                paired = [*paired, *crowds.files("pairs")]
            if len(drawn):
                neighbours.append(self._neighbours(drawn, sketches.table("drawn", SKETCHED)))
                done = neighbours[0].table("done", DONE)["documents"].to_numpy()
                self.drawn = drawn[: done.min()]
        by_pairs = PairJoin(limits=stage.limits(), values=values)
        pairs = self._join("pairs", by_pairs, paired, rows, asdict(by_pairs), {"candidates": KEYED_CANDIDATES})
        return classes.table("members", CLASS_MEMBERS), pairs, neighbours

    def _crowds(self, sketches: JoinedParts, rows: int, values: int) -> JoinedParts:
        function = CrowdJoin(values=values, held_out=self._held_out, limits=self.stage.limits())
        files = sketches.files("members")
        return self._join("crowds", function, files, rows * _SKETCH_WEIGHS, asdict(function), {"pairs": PAIRS})

    def _neighbours(self, drawn: np.ndarray, sketched: pa.Table) -> JoinedParts:
        order = np.argsort(sketched["place"].to_numpy())
        chosen = order[np.searchsorted(sketched["place"].to_numpy()[order], drawn)]
        sketches = sketch_matrix(sketched["sketch"], self.stage.values())[chosen]
        function = NeighbourJoin(drawn, sketches, self.stage.threshold)
        identity = [drawn.tolist(), hashlib.sha256(sketches.tobytes()).hexdigest(), self.stage.threshold]
        rows, files = self.documents * _SKETCH_WEIGHS, self._context.files("sketches")
        return self._join("neighbours", function, files, rows, identity, {"candidates": KEYED_CANDIDATES})

    def left_out(self, pairs: JoinedParts) -> pa.Table:
        """Return the documents of which pairs were left out, of schema :data:`.pairs.CUT`."""
        earlier = self.cut.append_column("is_later", pa.array(np.zeros(len(self.cut), dtype=bool)))
        return pa.concat_tables([pairs.table("cut", CUT), earlier])

    def document_bytes(self) -> int:
        """Return the bytes of an average document."""
        volume = self._survey.by_split[VOLUME, VOLUME]
        splits = pa.array(sorted({shard.split for shard in self._context.read()}), pa.string())
        return _sum(volume.filter(pc.is_in(volume["split"], splits)), "bytes") // max(1, self.documents)

    def verify(self, joined: Sequence[JoinedParts], result: SecondPassResult, bits: int) -> pa.Table:
        """Return the candidates with the sizes of intersection and union."""
        rows = ROWS_PER_PARTITION << min(bits, 8)
        files = [*(file for joined_parts in joined for file in joined_parts.files("candidates")), *result.files("sets")]
        return self._join("verify", VerifyJoin(bits=bits), files, rows, bits, {}).table("verified", VERIFIED)

    def found(self, counts: NearCounts, clusters: NearClusters, recall: Recall) -> LinkResult:
        """Say what was found."""
        return LinkResult(
            tables={
                "clusters": clusters.clusters.cast(TABLES["clusters"].schema),
                "pairs": clusters.pairs.cast(TABLES["pairs"].schema),
                "near_sources": self._by_source(clusters.earlier),
            },
            metrics=near_metrics(self.stage, counts, clusters, recall),
            extra={TABLE: self._added(clusters)},
            warnings=self._warnings(clusters),
        )

    def in_reference(self, best: BestMatches | str, members: pa.Table) -> list[Metric]:
        """Return the records of what is in the reference, by split and of all."""
        documents = dict.fromkeys(self._splits, 0)
        for row in self._survey.by_split[self.stage.name, TABLE].to_pylist():
            documents[row["split"]] += row["documents"]
        numbers = np.zeros((len(self._splits), 3), dtype=np.int64)
        if not isinstance(best, str):
            found = count_matches(
                best.places,
                best.equal,
                members,
                self.corpus().split_of,
                num_perm=self.stage.num_perm,
                threshold=self.stage.threshold,
            )
            numbers[: len(found)] += found
        scopes: dict[str | None, tuple[np.ndarray, int]] = {None: (numbers.sum(axis=0), self.documents)}
        scopes |= {name: (numbers[index], documents[name]) for index, name in enumerate(self._splits)}
        return reference_metrics(
            self.stage,
            {
                name: InReference(estimated=int(row[0]), low=int(row[1]), high=int(row[2]), documents=total)
                for name, (row, total) in scopes.items()
            },
            best if isinstance(best, str) else "",
        )

    def _join(
        self,
        name: str,
        function: JoinFunction,
        files: Sequence[KeyedFile],
        rows: int,
        parameters: object,
        emits: dict[str, pa.Schema],
    ) -> JoinedParts:
        join = Join(
            kind=f"link-near-{name}",
            function=function,
            identity=[self.stage.version, parameters],
            files=files,
            rows=rows,
            emits=emits,
        )
        return self._context.join(join)

    def corpus(self) -> Corpus:
        """Return what is known of shards and splits."""
        shards = self._context.shards
        split_of = np.zeros(1 + max((shard.ordinal for shard in shards), default=0), dtype=np.int32)
        for shard in shards:
            split_of[shard.ordinal] = self._splits.index(shard.split)
        return Corpus(split_of=split_of, held_out=np.array(self._held_out))

    def _by_source(self, earlier: pa.Table) -> pa.Table:
        """Return the table of duplicates by source, splits named and small sources folded."""
        kept = kept_sources(self._survey, self._context.config.max_sources)
        names = pa.array(self._splits, pa.string())
        table = pa.table(
            {
                "split": names.take(earlier["split"].combine_chunks()),
                "source": earlier["source"],
                "earlier_split": names.take(earlier["earlier_split"].combine_chunks()),
                "earlier_source": earlier["earlier_source"],
                "documents": earlier["documents"],
            }
        )
        if kept is not None:
            other = fold_table(table.select(["earlier_source"]).rename_columns(["source"]), kept)["source"]
            table = fold_table(table, kept).set_column(3, "earlier_source", other)
        keys = TABLES["near_sources"].schema.names[:4]
        grouped = table.group_by(keys, use_threads=False).aggregate([("documents", "sum")])
        return (
            grouped.select([*keys, "documents_sum"])
            .rename_columns([*keys, "documents"])
            .cast(TABLES["near_sources"].schema)
        )

    def _added(self, clusters: NearClusters) -> pa.Table:
        """Return what is added to the partials: duplicates, and how many documents are held out, of them with words."""
        found = clusters.counts
        for name in ("held_out", "held_out_worded"):
            found = found.append_column(name, pa.array(np.zeros(found.num_rows, dtype=np.int64)))
        splits = self._context.config.splits
        held_out = pa.array(
            [shard.ordinal for shard in self._context.read() if splits[shard.split].held_out], pa.int32()
        )
        table = self._survey.by_shard[self.stage.name, TABLE]
        rows = table.filter(pc.is_in(table["shard"], held_out))
        worded = pc.subtract(rows["documents"], rows["no_words"])
        rows = rows.select(["shard", "source", "documents"]).rename_columns(["shard", "source", "held_out"])
        rows = rows.append_column("held_out_worded", worded)
        for name in NEAR_COUNTS.names[2:]:
            rows = rows.append_column(name, pa.array(np.zeros(rows.num_rows, dtype=np.int64)))
        return pa.concat_tables([found, rows.select(found.column_names).cast(found.schema)])

    def _warnings(self, clusters: NearClusters) -> list[str]:
        """Return a line for each source that would lose more than half of its documents."""
        documents: dict[str, int] = {}
        for row in self._survey.by_split[self.stage.name, TABLE].to_pylist():
            documents[row["source"]] = documents.get(row["source"], 0) + row["documents"] - row["no_words"]
        lost: dict[str, int] = {}
        for row in clusters.counts.to_pylist():
            lost[row["source"]] = lost.get(row["source"], 0) + row["duplicates"]
        much = sorted(
            ((number, name) for name, number in lost.items() if number > _MUCH * documents[name]),
            key=lambda item: (-item[0], item[1]),
        )
        lines = [
            f"near-duplicates: source {name} would lose {number:,} of {documents[name]:,} documents"
            for number, name in much[:_TOLD]
        ]
        return [*lines, f"near-duplicates: so would {len(much) - _TOLD:,} smaller ones"] if len(much) > _TOLD else lines


def _sum(table: pa.Table, name: str) -> int:
    return int(pc.sum(table[name]).as_py() or 0)
