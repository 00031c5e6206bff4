"""The block of near-duplicates: rates, what is known of misses, warnings, and who copies whom."""

import json

import pytest
from made_manifest import make, shard
from shown import told

from dataaudit.base.render.line import PLAIN, spell
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.metrics.near_dup.definition import near_facts, section
from dataaudit.present.report.show import show_manifest

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
