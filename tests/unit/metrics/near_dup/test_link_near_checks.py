"""The check of reported pairs, the records of the search, and estimates from the signatures of a reference."""

import numpy as np
import pyarrow as pa
from near_corpus import Shard as Texts
from near_corpus import batch_of, search, true_similarity

from dataaudit.manifest.locate import places_of
from dataaudit.manifest.metric_rows import metrics_table
from dataaudit.metrics.near_dup.candidates import CLASS_MEMBERS
from dataaudit.metrics.near_dup.link import NearCounts, near_metrics, size_classes
from dataaudit.metrics.near_dup.reference import EXACTLY, count_matches, decide, equal_values
from dataaudit.metrics.near_dup.stage import NearDup
from dataaudit.metrics.near_dup.verification import CHECKS, MOST_BYTES, NearChecks, Recall, count_right, sample_pairs

TEXTS = [
    "one two three four five six seven eight",
    "ONE two three, four five six seven eight nine",
    "alone",
    "b " * 9_000,
]
EDGES = pa.table({"left": pa.array([0, 0], pa.int64()), "right": pa.array([1, 3], pa.int64())})


def checked(texts):
    """Return the checks of some documents of shard 0."""
    batch = batch_of(texts, range(len(texts)))
    wanted = pa.table({"row": batch.rows})
    return NearChecks(ngram=5).run(batch, wanted, lambda _: None)["checks"]


def test_checked_pairs_are_compared_as_text():
    similarity = true_similarity(TEXTS[0], TEXTS[1])
    sample = sample_pairs(CLASS_MEMBERS.empty_table(), EDGES, 10)
    checks = checked(TEXTS)
    shards = np.zeros(checks.num_rows, dtype=np.int32)
    assert checks.schema == CHECKS
    assert count_right(sample, shards, checks, similarity) == (1, 1)
    assert count_right(sample, shards, checks, similarity + 0.01) == (1, 0)


def test_long_documents_are_not_checked():
    assert len(TEXTS[3]) > MOST_BYTES
    assert checked(TEXTS)["row"].to_pylist() == [0, 1, 2]


def test_the_sample_is_of_pairs_and_of_equal_words_and_does_not_depend_on_their_order():
    places = places_of(np.zeros(60, dtype=np.int64), np.arange(60))
    members = pa.table([places[[40, 40, 40]], places[40:43], ["s"] * 3], schema=CLASS_MEMBERS)
    edges = pa.table({"left": places[:30], "right": places[30:]})
    whole = sample_pairs(members, edges, 100)
    assert len(whole.lefts) == 32
    few = sample_pairs(members, edges.take(pa.array(np.arange(30)[::-1].copy())), 9)
    assert few.lefts.tolist() == whole.lefts.tolist()[:9]
    assert few.rights.tolist() == whole.rights.tolist()[:9]


def test_sizes_of_clusters_are_told_up_to_the_largest():
    assert dict(size_classes(np.array([2, 2, 3, 9, 16]))) == {
        "documents=2": 2,
        "documents=3-4": 1,
        "documents=5-8": 0,
        "documents=9-16": 2,
    }
    assert dict(size_classes(np.zeros(0, dtype=np.int64))) == {}


def test_every_record_fits_the_manifest_and_nothing_measured_is_no_number(tmp_path):
    clusters = search([Texts(texts=["a b"])], tmp_path, NearDup()).clusters
    counts = NearCounts(documents=1, candidates=0, verified=0, missed=0, dropped=0, reported=0, right=0)
    records = near_metrics(NearDup(), counts, clusters, Recall(similarities=np.zeros(0), found=np.zeros(0, dtype=bool)))
    assert metrics_table(records).num_rows == len(records)
    missing = {record.stat: record.reason for record in records if record.status == "not_evaluated"}
    assert missing == {"weakest_link": "no_cluster", "recall": "no_neighbour", "precision": "no_pair_checked"}


def test_equal_values_are_counted_pair_by_pair():
    generator = np.random.default_rng(1)
    left, right = (generator.integers(0, 3, (4, 16)).astype(np.uint32) for _ in range(2))
    lefts, rights = np.array([0, 3, 3]), np.array([1, 1, 2])
    expected = [sum(a == b for a, b in zip(left[i], right[j], strict=True)) for i, j in zip(lefts, rights, strict=True)]
    assert equal_values(left, right, lefts, rights).tolist() == expected
    assert equal_values(left, right, lefts[:0], rights[:0]).tolist() == []


def test_the_bounds_hold_the_estimate_and_equal_words_are_certain():
    near, low, high = decide(np.array([128, 120, 103, 102, 95, 60, EXACTLY]), 128, 0.8)
    assert near.tolist() == [True, True, True, False, False, False, True]
    assert low.tolist() == [True, True, False, False, False, False, True]
    assert high.tolist() == [True, True, True, True, True, False, True]


def test_documents_of_equal_words_count_with_the_first_of_them():
    places = places_of(np.array([0, 0, 1]), np.array([0, 5, 2]))
    members = pa.table([places[[0, 0]], np.array([places[0], places[2]]), ["a", "a"]], schema=CLASS_MEMBERS)
    found = count_matches(
        places[:2], np.array([128, 100]), members, np.array([0, 1], dtype=np.int32), num_perm=128, threshold=0.8
    )
    assert found.tolist() == [[1, 1, 2], [1, 1, 1]]
