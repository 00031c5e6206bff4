"""Clusters of near-duplicates: the connected components of verified pairs, and counts by shard and source.

A node is a class of documents with equal word sequences, named by the first; an edge is a verified pair. A document is
a near-duplicate when its own class, or one that an edge joins to it, has an earlier document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.locate import rows_of, shards_of
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.exact_dup.stage import cluster_rows
from dataaudit.scan.cross_shard.keyed import distinct
from dataaudit.scan.stages.partial import TableShape, group

NEAR_COUNTS = TableShape(
    keys={"shard": pa.int32(), "source": pa.string()},
    sums=("duplicates", "component_duplicates", "leaked", "cut", "undecided", "undecided_leaks"),
)
"""Near-duplicates; documents that are not the first of their component; held-out documents with a neighbour in training
data; documents of which pairs were left out; those of them that the other pairs make no near-duplicate, and held-out
documents that the other pairs give no neighbour in training data."""
EARLIER = TableShape(
    keys={"split": pa.int32(), "source": pa.string(), "earlier_split": pa.int32(), "earlier_source": pa.string()},
    sums=("documents",),
)
"""Near-duplicates by their split and source, and by those of their earliest neighbour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """int32[shards] split of each shard, and bool[splits] which splits are held out."""

    split_of: np.ndarray
    held_out: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class NearClusters:
    """The near-duplicates of a corpus."""

    counts: pa.Table
    """Of shape :data:`NEAR_COUNTS`."""
    earlier: pa.Table
    """Of shape :data:`EARLIER`."""
    clusters: pa.Table
    """Rows of the manifest's ``clusters``: every member of every component."""
    pairs: pa.Table
    """Rows of the manifest's ``pairs``."""
    sizes: np.ndarray
    """int64[components] documents of each."""
    weakest: tuple[int, int]
    """Intersection and union of the weakest link of the largest component, the least similar pair of its maximum
    spanning tree. (1, 1) when all have equal words, (0, 0) when there is no component."""
    same_words: int
    """Documents with the word sequence of an earlier document."""


@dataclass(frozen=True, slots=True)
class _Documents:
    """The n documents that have a neighbour: ascending places, the node of each, and its source."""

    places: np.ndarray
    nodes: np.ndarray
    sources: pa.Array


def cluster(members: pa.Table, edges: pa.Table, sources: pa.Table, corpus: Corpus, cut: pa.Table) -> NearClusters:
    """Find the components of the verified pairs and count the near-duplicates."""
    lefts, rights = edges["left"].to_numpy(), edges["right"].to_numpy()
    nodes = distinct(np.concatenate([members["first"].to_numpy(), lefts, rights]))
    left, right = np.searchsorted(nodes, lefts), np.searchsorted(nodes, rights)
    documents = _documents(members, sources, nodes)
    num_components, component = _components(left, right, len(nodes))
    firsts = np.full(num_components, np.iinfo(np.int64).max)
    np.minimum.at(firsts, component, nodes)
    earliest = nodes.copy()
    np.minimum.at(earliest, right, lefts)
    of_document = component[documents.nodes] if len(nodes) else documents.nodes
    sizes = np.bincount(of_document, minlength=num_components).astype(np.int64)
    duplicate = earliest[documents.nodes] < documents.places
    leaked = _leaked(documents, len(nodes), left, right, corpus)
    later = documents.places != firsts[of_document]
    marks = {"duplicates": duplicate, "component_duplicates": later, "leaked": leaked}
    marked = [
        _marked(documents.places, documents.sources, **marks),
        *_undecided(cut, members, sources, corpus, documents.places[duplicate], documents.places[leaked]),
    ]
    return NearClusters(
        counts=group(NEAR_COUNTS, pa.concat_tables(marked)),
        earlier=_earlier(documents, np.flatnonzero(duplicate), earliest, corpus),
        clusters=cluster_rows("near", documents.places, firsts[of_document]),
        pairs=_pairs(members, edges),
        sizes=sizes,
        weakest=_weakest(edges, left, right, component, sizes, firsts),
        same_words=int((members["first"].to_numpy() != members["place"].to_numpy()).sum()),
    )


def _components(left: np.ndarray, right: np.ndarray, num_nodes: int) -> tuple[int, np.ndarray]:
    """Return how many components a graph has, and the component of each node."""
    if len(left) == 0:  # scipy costs a fifth of a second
        return num_nodes, np.arange(num_nodes)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(left), dtype=np.int8), (left, right)), shape=(num_nodes, num_nodes))
    number, component = connected_components(graph, directed=False)
    return int(number), component


def _documents(members: pa.Table, sources: pa.Table, nodes: np.ndarray) -> _Documents:
    """Return the members of classes, and the nodes that are one document each."""
    alone = nodes[~np.isin(nodes, distinct(members["first"].to_numpy()))]
    order = np.argsort(sources["place"].to_numpy(), kind="stable")
    known = sources["place"].to_numpy()[order]
    chosen = order[np.searchsorted(known, alone)] if len(alone) else alone
    assert (sources["place"].to_numpy()[chosen] == alone).all(), "every document of a pair has a source"
    places = np.concatenate([members["place"].to_numpy(), alone])
    firsts = np.concatenate([members["first"].to_numpy(), alone])
    names = pa.chunked_array([*members["source"].chunks, *sources["source"].take(pa.array(chosen)).chunks], pa.string())
    by_place = np.argsort(places)
    return _Documents(
        places[by_place], np.searchsorted(nodes, firsts[by_place]), names.take(pa.array(by_place)).combine_chunks()
    )


def _leaked(documents: _Documents, num_nodes: int, left: np.ndarray, right: np.ndarray, corpus: Corpus) -> np.ndarray:
    """Return bool[n]: held-out documents whose class, or one joined to it, has a document in training data."""
    held_out = corpus.held_out[corpus.split_of[shards_of(documents.places)]]
    trained = np.zeros(num_nodes, dtype=bool)
    trained[documents.nodes[~held_out]] = True
    near = trained.copy()
    near[right[trained[left]]] = True
    near[left[trained[right]]] = True
    return np.asarray(held_out & near[documents.nodes])


def _undecided(
    cut: pa.Table, members: pa.Table, sources: pa.Table, corpus: Corpus, near: np.ndarray, leaked: np.ndarray
) -> Iterator[pa.Table]:
    """Yield the documents of which pairs were left out, and which of them the other pairs do not decide."""
    later = distinct(cut.filter(cut["is_later"])["place"].to_numpy())
    known = sources["place"].to_numpy()
    order = np.argsort(known, kind="stable")
    yield _marked(
        later, _names(sources, order, later), cut=np.ones(len(later), dtype=bool), undecided=~np.isin(later, near)
    )
    places = distinct(cut["place"].to_numpy())
    others = pc.and_(pc.is_in(members["first"], pa.array(places)), pc.not_equal(members["first"], members["place"]))
    same = members.filter(others)  # a leak of the first document is a leak of all of its class
    names = pa.chunked_array([*_names(sources, order, places).chunks, *same["source"].chunks], pa.string())
    places = np.concatenate([places, same["place"].to_numpy()])
    unsure = corpus.held_out[corpus.split_of[shards_of(places)]] & ~np.isin(places, leaked)
    yield _marked(places, names, undecided_leaks=unsure)


def _names(sources: pa.Table, order: np.ndarray, places: np.ndarray) -> pa.ChunkedArray:
    """Return the sources of documents, which all were read again."""
    known = sources["place"].to_numpy()[order]
    return sources["source"].take(pa.array(order[np.searchsorted(known, places)]))


def _marked(places: np.ndarray, sources: pa.Array | pa.ChunkedArray, **marks: np.ndarray) -> pa.Table:
    """Return documents with the counts that they are in."""
    numbers = {name: mark.astype(np.int64) for name, mark in marks.items()}
    return filled_table(NEAR_COUNTS, {"shard": shards_of(places), "source": sources, **numbers})


def filled_table(shape: TableShape, columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of a shape; sums that are not given are 0."""
    none = np.zeros(len(columns["shard"]), dtype=np.int64)
    return pa.table([columns.get(name, none) for name in shape.schema().names], schema=shape.schema())


def _earlier(documents: _Documents, chosen: np.ndarray, earliest: np.ndarray, corpus: Corpus) -> pa.Table:
    """Count duplicates by their own split and source and those of their earliest neighbour."""
    neighbours = earliest[documents.nodes[chosen]]
    there = np.searchsorted(documents.places, neighbours)
    table = pa.table(
        {
            "split": corpus.split_of[shards_of(documents.places[chosen])],
            "source": documents.sources.take(pa.array(chosen)),
            "earlier_split": corpus.split_of[shards_of(neighbours)],
            "earlier_source": documents.sources.take(pa.array(there)),
            "documents": np.ones(len(chosen), dtype=np.int64),
        }
    )
    return group(EARLIER, table)


def _pairs(members: pa.Table, edges: pa.Table) -> pa.Table:
    """Return every verified pair, and each document of equal words with the first of its class."""
    later = members.filter(pc.not_equal(members["first"], members["place"]))
    lefts = np.concatenate([edges["left"].to_numpy(), later["first"].to_numpy()])
    rights = np.concatenate([edges["right"].to_numpy(), later["place"].to_numpy()])
    similarity = edges["intersection"].to_numpy() / np.maximum(edges["union"].to_numpy(), 1)
    jaccard = np.concatenate([similarity, np.ones(later.num_rows)])
    order = np.lexsort((rights, lefts))
    places = [part(side[order]) for side in (lefts, rights) for part in (shards_of, rows_of)]
    return pa.table([*places, jaccard[order], np.ones(len(order), dtype=bool)], schema=TABLES["pairs"].schema)


def _weakest(
    edges: pa.Table, left: np.ndarray, right: np.ndarray, component: np.ndarray, sizes: np.ndarray, firsts: np.ndarray
) -> tuple[int, int]:
    """Return the least similar pair of a maximum spanning tree of the largest component; of equals the first."""
    if len(sizes) == 0:
        return 0, 0
    largest = np.lexsort((firsts, -sizes))[0]
    inside = np.flatnonzero(component[left] == largest)
    if len(inside) == 0:
        return 1, 1
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    shared, union = (edges[name].to_numpy()[inside] for name in ("intersection", "union"))
    by_similarity = np.lexsort((left[inside], right[inside], -(shared / union)))  # the same for any order of edges
    costs = np.empty(len(inside))  # ranks, from 1: a sparse graph has no edge of cost 0
    costs[by_similarity] = np.arange(1, len(inside) + 1)
    tree = minimum_spanning_tree(
        coo_array((costs, (left[inside], right[inside])), shape=(len(component), len(component))).tocsr()
    )
    last = by_similarity[int(tree.data.max()) - 1]
    return int(shared[last]), int(union[last])
