"""From verified pairs to who is a near-duplicate of whom: counts, clusters and the pairs that show it.

Classes of equal word sequences are nodes, verified pairs are edges between them; each node stands for all documents
of its class and is named by the first. A document is a near-duplicate when its own class or one that is joined to it
by an edge has an earlier document.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.locate import rows_of, shards_of
from dataaudit.scan.link.places import distinct

NEAR_COUNTS = pa.schema(
    [
        ("shard", pa.int32()),
        ("source", pa.string()),
        ("duplicates", pa.int64()),
        ("component_duplicates", pa.int64()),
        ("leaked", pa.int64()),
        ("cut", pa.int64()),
        ("undecided", pa.int64()),
        ("undecided_leaks", pa.int64()),
    ]
)
"""Near-duplicates by shard and source; documents that are not the first of their component; held-out documents with a
neighbour in training data; documents of which pairs were left out; those of them that are no near-duplicates by the
others, and held-out ones with no neighbour in training data by the others."""
EARLIER = pa.schema(
    [
        ("split", pa.int32()),
        ("source", pa.string()),
        ("earlier_split", pa.int32()),
        ("earlier_source", pa.string()),
        ("documents", pa.int64()),
    ]
)
"""Near-duplicates by where they are and where their earliest neighbour is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What is known of shards and splits."""

    split_of: np.ndarray
    """int32[shards] split of each shard."""
    held_out: np.ndarray
    """bool[splits] whether a split is held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearClusters:
    """What the verified pairs of a corpus amount to."""

    counts: pa.Table
    """Of schema :data:`NEAR_COUNTS`."""
    earlier: pa.Table
    """Of schema :data:`EARLIER`."""
    clusters: pa.Table
    """kind, cluster, shard, row, kept: every member of every component."""
    pairs: pa.Table
    """left_shard, left_row, right_shard, right_row, jaccard, verified."""
    sizes: np.ndarray
    """int64[components] documents of each."""
    weakest: tuple[int, int]
    """Intersection and union of the weakest link of the largest component: of all ways to join its documents the one
    whose least similar pair is most similar. (1, 1) when all have equal words, (0, 0) when there is no component."""
    same_words: int
    """Documents whose words are those of an earlier one, in the same order."""


@dataclass(frozen=True, slots=True)
class _Documents:
    """All documents that have a neighbour."""

    places: np.ndarray
    """int64[n], ascending."""
    nodes: np.ndarray
    """int64[n] the node that each belongs to."""
    sources: pa.Array
    """[n]"""


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
    return NearClusters(
        counts=_counts(
            [
                _marked(
                    documents.places, documents.sources, duplicates=duplicate, component_duplicates=later, leaked=leaked
                ),
                *_undecided(cut, members, sources, corpus, documents.places[duplicate], documents.places[leaked]),
            ]
        ),
        earlier=_earlier(documents, np.flatnonzero(duplicate), earliest, corpus),
        clusters=_clusters(documents.places, firsts[of_document]),
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
    """Put the members of classes and the nodes that stand for themselves alone together."""
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
    """Return bool[n]: held-out documents whose class, or one that is joined to it, has a document in training data."""
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
    """Yield the documents of which pairs were left out, but those that are near-duplicates or leaks without them."""
    later = distinct(cut.filter(cut["is_later"])["place"].to_numpy())
    known = sources["place"].to_numpy()
    order = np.argsort(known, kind="stable")
    yield _marked(
        later, _names(sources, order, later), cut=np.ones(len(later), dtype=bool), undecided=~np.isin(later, near)
    )
    places = distinct(cut["place"].to_numpy())
    others = pc.and_(pc.is_in(members["first"], pa.array(places)), pc.not_equal(members["first"], members["place"]))
    same = members.filter(others)  # a leak of the first is one of all of its class
    names = pa.chunked_array([*_names(sources, order, places).chunks, *same["source"].chunks], pa.string())
    places = np.concatenate([places, same["place"].to_numpy()])
    unsure = corpus.held_out[corpus.split_of[shards_of(places)]] & ~np.isin(places, leaked)
    yield _marked(places, names, undecided_leaks=unsure)


def _names(sources: pa.Table, order: np.ndarray, places: np.ndarray) -> pa.ChunkedArray:
    """Return the sources of documents, all of which were read again."""
    known = sources["place"].to_numpy()[order]
    return sources["source"].take(pa.array(order[np.searchsorted(known, places)]))


def _marked(places: np.ndarray, sources: pa.Array | pa.ChunkedArray, **marks: np.ndarray) -> pa.Table:
    """Return documents with what they count for; see :data:`NEAR_COUNTS`."""
    none = np.zeros(len(places), dtype=np.int64)
    columns = [marks[name].astype(np.int64) if name in marks else none for name in NEAR_COUNTS.names[2:]]
    return pa.table([pa.array(shards_of(places), pa.int32()), sources, *columns], names=NEAR_COUNTS.names)


def _counts(parts: list[pa.Table]) -> pa.Table:
    calls = [(name, "sum") for name in NEAR_COUNTS.names[2:]]
    grouped = pa.concat_tables(parts).group_by(["shard", "source"], use_threads=False).aggregate(calls)
    names = ["shard", "source", *(f"{name}_sum" for name, _ in calls)]
    return _sorted(grouped.select(names).rename_columns(NEAR_COUNTS.names).cast(NEAR_COUNTS), ["shard", "source"])


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
    names = EARLIER.names[:4]
    grouped = table.group_by(names, use_threads=False).aggregate([("documents", "sum")])
    return _sorted(grouped.select([*names, "documents_sum"]).rename_columns(EARLIER.names).cast(EARLIER), names)


def _sorted(table: pa.Table, names: list[str]) -> pa.Table:
    return table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names]))


def _clusters(places: np.ndarray, firsts: np.ndarray) -> pa.Table:
    """Number the components by their first members; the first is kept."""
    order = np.lexsort((places, firsts))
    places, firsts = places[order], firsts[order]
    numbers = np.cumsum(np.append(False, firsts[1:] != firsts[:-1])[: len(firsts)]).astype(np.int64)
    return pa.table(
        {
            "kind": pa.array(["near"] * len(places), pa.string()),
            "cluster": numbers,
            "shard": shards_of(places),
            "row": rows_of(places),
            "kept": places == firsts,
        }
    )


def _pairs(members: pa.Table, edges: pa.Table) -> pa.Table:
    """Return every verified pair, and each document of equal words with the first of its class."""
    later = members.filter(pc.not_equal(members["first"], members["place"]))
    lefts = np.concatenate([edges["left"].to_numpy(), later["first"].to_numpy()])
    rights = np.concatenate([edges["right"].to_numpy(), later["place"].to_numpy()])
    similarity = edges["intersection"].to_numpy() / np.maximum(edges["union"].to_numpy(), 1)
    jaccard = np.concatenate([similarity, np.ones(later.num_rows)])
    order = np.lexsort((rights, lefts))
    return pa.table(
        {
            "left_shard": shards_of(lefts[order]),
            "left_row": rows_of(lefts[order]),
            "right_shard": shards_of(rights[order]),
            "right_row": rows_of(rights[order]),
            "jaccard": jaccard[order],
            "verified": np.ones(len(order), dtype=bool),
        }
    )


def _weakest(
    edges: pa.Table, left: np.ndarray, right: np.ndarray, component: np.ndarray, sizes: np.ndarray, firsts: np.ndarray
) -> tuple[int, int]:
    """Return the least similarity on a maximum spanning tree of the largest component; of equal ones the first."""
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
