"""Near-duplicates: the check of reported pairs, records, recall by language, the reference, and the block of a page."""

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from made_manifest import make, shard
from near_corpus import Shard, batch_of, edited, random_words, search, true_similarity
from near_corpus import Shard as Texts
from sentences import SENTENCES
from shown import told

import dataaudit
from dataaudit.base.render.line import PLAIN, spell
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.locate import places_of
from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.manifest.metric_rows import metrics_table
from dataaudit.metrics.near_dup.candidates import CLASS_MEMBERS
from dataaudit.metrics.near_dup.definition import near_facts, section
from dataaudit.metrics.near_dup.link import NearCounts, near_metrics, size_classes
from dataaudit.metrics.near_dup.reference_corpus import EXACTLY, count_matches, decide, equal_values
from dataaudit.metrics.near_dup.stage import NearDup
from dataaudit.metrics.near_dup.verification import CHECKS, MOST_BYTES, NearChecks, Recall, count_right, sample_pairs
from dataaudit.present.report.highlights import highlights
from dataaudit.present.report.show import show_manifest

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


PAIRS = 240


def english(generator):
    """Return words of English sentences in random order."""
    return random_words(generator, [word for text in SENTENCES["en"] for word in text.split()], 120)


def russian(generator):
    """Return words of Russian sentences in random order."""
    return random_words(generator, [word for text in SENTENCES["ru"] for word in text.split()], 120)


def chinese(generator):
    """Return characters of Chinese sentences in random order."""
    return random_words(generator, [char for text in SENTENCES["zh"] for char in text], 160)


def code(generator):
    """Return lines of this package, in random order; each is one piece."""
    folder = Path(dataaudit.__file__).parent
    lines = [
        line for name in ("base/errors.py", "config.py") for line in (folder / name).read_text("utf-8").splitlines()
    ]
    return [line + "\n" for line in generator.sample([line for line in lines if line.strip()], 40)]


@pytest.mark.tables
@pytest.mark.parametrize(("make", "joint"), [(english, " "), (russian, " "), (chinese, ""), (code, "")])
def test_pairs_at_the_threshold_are_found_and_what_is_found_is_right(make, joint, tmp_path):
    """Recall at least 0.99 at true similarity 0.8 and more, precision at least 0.999."""
    generator = random.Random(11)
    vocabulary = make(generator)
    originals, variants = [], []
    for _ in range(PAIRS):
        pieces = make(generator)
        originals.append(joint.join(pieces))
        variants.append(joint.join(edited(generator, pieces, vocabulary, generator.randrange(1, 4))))
    similarities = [true_similarity(*pair) for pair in zip(originals, variants, strict=True)]
    found = search([Shard(texts=originals), Shard(texts=variants)], tmp_path, NearDup(recall_documents=0)).pairs()
    alike = [row for row, similarity in enumerate(similarities) if similarity >= 0.8]
    assert len(alike) >= 100
    met = [((0, row), (1, row)) in found for row in alike]
    assert sum(met) / len(met) >= 0.99
    texts = originals, variants
    right = [true_similarity(texts[left[0]][left[1]], texts[other[0]][other[1]]) >= 0.8 for left, other in found]
    assert sum(right) / len(right) >= 0.999


RATE = "near_dup_rate"


def records(scope, found, documents):
    """Return the records of one scope."""
    return [
        ratio(RATE, "rate", found, documents, scope=scope, unit="ratio", version="1"),
        count(RATE, "documents", found, scope=scope, unit="documents", n=documents, version="1"),
        ratio("near_dup_component_rate", "rate", found, documents, scope=scope, unit="ratio", version="1"),
    ]


def sampled(stat, value, low, high, number):
    """Return a measured share."""
    return Metric(
        metric=RATE,
        stat=stat,
        unit="ratio",
        value=value,
        low=low,
        high=high,
        confidence=0.95,
        n=number,
        denominator=number,
        method="sampled",
    )


METRICS = [
    *records(Scope(), 7, 20),
    *records(Scope(split="train"), 6, 10),
    *records(Scope(split="val"), 1, 10),
    *records(Scope(source="web"), 6, 10),
    *records(Scope(source="books"), 1, 10),
    *records(Scope(source="x"), 0, 5),
    *(
        count(RATE, stat, value, scope=Scope(), unit="pairs", n=50, version="1")
        for stat, value in (
            ("candidate_pairs", 50), ("verified_pairs", 9), ("truncated_pairs", 3), ("undecided", 2),
            ("clusters", 2), ("largest_cluster", 6), ("bands", 21), ("band_rows", 6),
        )
    ),
    ratio(RATE, "weakest_link", 81, 100, scope=Scope(), unit="ratio", version="1"),
    count(RATE, "clusters_by_size", 1, scope=Scope(rule="documents=5-8"), unit="clusters", n=2, version="1"),
    count(RATE, "clusters_by_size", 1, scope=Scope(rule="documents=2"), unit="clusters", n=2, version="1"),
    Metric(metric=RATE, stat="chance_to_meet", scope=Scope(rule="jaccard=0.80"), unit="ratio", value=0.9983),
    sampled("recall", 0.99, 0.97, 1.0, 300),
    sampled("precision", 1.0, 0.98, 1.0, 200),
    sampled("in_reference", 0.25, 0.2, 0.3, 20),
    ratio("train_val_overlap", "near_dup", 1, 10, scope=Scope(set="val"), unit="ratio", version="1"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A manifest with near-duplicates."""
    make(tmp_path / "m", [shard("a.jsonl"), shard("b.jsonl", split="val")], metrics=METRICS)
    return tmp_path / "m"


def test_rates_misses_and_warnings_are_said(folder):
    text = told(section(near_facts(load_manifest(folder))))
    for part in (
        "train 10 6 0.6000",
        "val 10 1 0.1000",
        "(all) 20 7 0.3500",
        "50 pairs compared exactly, 9 near; 2 clusters, the largest of 6 documents, its weakest link 0.8100",
        "recall 0.9900 on 300 drawn near-duplicates (0.9700 to 1.0000)",
        "precision 1.0000 on 200 reported pairs (0.9800 to 1.0000)",
        "in the reference 0.2500 on 20 documents, by signatures (0.2000 to 0.3000)",
        "3 pairs left out, so 2 documents may be near-duplicates and are not counted",
        "val: 0.1000 of its documents have a near-duplicate in training data.",
        "warning: source web would lose 0.6000 of its documents.",
        "Clusters by size documents clusters --------- -------- 2 1 5-8 1",
        "Chance to be compared, by similarity (21 bands of 6 values): 0.9983 at 0.80",
    ):
        assert part in text
    assert "source books would" not in text
    assert "Documents of equal words are near-duplicates, and in clusters, without being compared." in text


def test_one_of_a_thing_is_named_in_the_singular(tmp_path):
    numbers = [*records(Scope(), 1, 2), sampled("recall", 1.0, 0.03, 1.0, 1), sampled("precision", 1.0, 0.03, 1.0, 1)]
    make(tmp_path / "m", [shard("a.jsonl")], metrics=numbers)
    text = told(section(near_facts(load_manifest(tmp_path / "m"))))
    assert "recall 1.0000 on 1 drawn near-duplicate (" in text
    assert "precision 1.0000 on 1 reported pair (" in text


def test_a_source_of_two_documents_is_not_in_front_of_the_one_with_most_copies(tmp_path):
    sources = {"tiny": (2, 2), "books": (300, 1000), "web": (500, 9000)}
    numbers = [metric for name, counts in sources.items() for metric in records(Scope(source=name), *counts)]
    make(tmp_path / "m", [shard("a.jsonl")], metrics=[*numbers, *records(Scope(), 802, 10_002)])
    (found,) = (item for item in highlights(load_manifest(tmp_path / "m")) if item.part == "near_dup")
    assert found.place == "books"


def test_json_holds_every_number(folder):
    near = json.loads(show_manifest(folder, None, as_json=True))["near_duplicates"]
    assert near["counts"]["truncated_pairs"] == 3
    assert near["recall"] == {"value": 0.99, "low": 0.97, "high": 1.0, "tried": 300}
    assert [one["name"] for one in near["sources"]] == ["web", "books"]
    assert near["clusters_by_size"] == {"2": 1, "5-8": 1}


def test_a_build_without_the_search_has_no_block(tmp_path):
    make(tmp_path / "m", [shard("a.jsonl")])
    made = section(near_facts(load_manifest(tmp_path / "m")))
    assert made.tone == "quiet"
    assert spell(made.lead, PLAIN) == "Exact duplicates were not searched for; near-duplicates were not searched for."
    assert json.loads(show_manifest(tmp_path / "m", None, as_json=True))["near_duplicates"] is None
