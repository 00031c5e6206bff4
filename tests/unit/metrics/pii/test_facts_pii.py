"""What is shown of personal data, and that no small count follows from all that is shown together."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from made_counts import TIERS, TOKENS, Doc, docs, judge, make_found, share
from made_manifest import make, shard
from shown import shown, told

from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric
from dataaudit.metrics.disclosure import FEW
from dataaudit.metrics.pii.definition import personal_data, section
from dataaudit.present.report.inspect import inspect_place
from dataaudit.present.report.show import show_manifest

METRIC = "pii_hit_rate"
MANY = [
    *docs(60, "EMAIL_ADDRESS.validated", "PHONE_NUMBER.pattern"),
    *docs(40),
    *docs(30, "EMAIL_ADDRESS.validated!"),
    *docs(20, "EMAIL_ADDRESS.validated", shard=1, source="forum"),
    *docs(3, "US_SSN.contextual"),
]


def text(manifest, width=100):
    """Return the block with single blanks."""
    return told(section(personal_data(manifest)), width)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """Two shards and sources; e-mail and phones in many documents, one kind in three."""
    folder = tmp_path_factory.mktemp("pii") / "m"
    sampled = [
        share(METRIC, "analyzer_documents", 0.4, 0.3, 0.5, 90),
        share(METRIC, "analyzer_hits", 900.0, 700.0, 1200.0, 90),
        share(METRIC, "analyzer_documents", 0.2, 0.1, 0.3, 90, entity="PERSON"),
        share(METRIC, "analyzer_hits", 300.0, 200.0, 400.0, 90, entity="PERSON"),
        share(METRIC, "analyzer_documents", 0.0, 0.0, 0.03, 90, entity="IBAN_CODE"),
        share(METRIC, "confirmed", 0.75, 0.5, 0.9, 30, entity="PHONE_NUMBER"),
    ]
    make_found(folder, MANY, metrics=[*sampled, *judge(METRIC, 90, partly=2, failed=1)])
    return load_manifest(folder)


def test_kinds_stand_by_tier_with_reserved_ones_apart(manifest):
    shown = text(manifest)
    assert "EMAIL_ADDRESS 523 80 80 0 0 30" in shown
    assert "PHONE_NUMBER" in shown
    assert "reserved: hits that are examples" in shown


def test_a_small_count_and_what_would_tell_it_are_hidden_and_the_rule_is_told(manifest):
    """3 of one kind: hidden, with the next larger kind, since the sum is shown."""
    shown = text(manifest)
    assert "US_SSN - * * * * 0" in shown
    assert "PHONE_NUMBER - * * * * 0" in shown
    assert "<5: in fewer than 5 documents" in shown
    facts = json.loads(show_manifest(manifest.folder, None, as_json=True))["personal_data"]
    (hidden,) = (one for one in facts["entities"] if one["entity"] == "US_SSN")
    assert hidden["found"]["suppressed"]
    assert hidden["found"]["hits"] is hidden["found"]["documents"] is hidden["found"]["per_million"] is None


def test_without_small_counts_nothing_is_hidden(tmp_path):
    make_found(tmp_path / "m", [*docs(60, "EMAIL_ADDRESS.validated"), *docs(7, "IP_ADDRESS.pattern", source="b")])
    found = personal_data(load_manifest(tmp_path / "m"))
    assert not found["suppressed"]
    assert "fewer than" not in text(load_manifest(tmp_path / "m"))
    assert {kind["entity"]: kind["found"].documents for kind in found["entities"]} == {
        "EMAIL_ADDRESS": 60,
        "IP_ADDRESS": 7,
    }
    assert {tier: count.hits for tier, count in found["total"]["tiers"].items()} == {
        "validated": 60,
        "contextual": 0,
        "pattern": 7,
    }


def test_sources_are_rounded(manifest):
    """66 documents are about 70."""
    found = personal_data(manifest)
    assert [(row["source"], row["found"].documents, row["found"].hits) for row in found["sources"]] == [
        ("web", 60, 120),
        ("forum", 20, 20),
    ]
    assert "Numbers rounded to tens" in text(manifest)


def test_the_sample_stands_apart_with_intervals_and_what_it_rests_on(manifest):
    shown = text(manifest)
    assert "Personal data in a sample, by presidio" in shown
    assert "(any) 0.4000 0.3000 to 0.5000 900 700 to 1,200 -" in shown
    assert "PERSON 0.2000 0.1000 to 0.3000 300 200 to 400 -" in shown
    assert "90 documents, drawn by a hash" in shown
    assert "Of 2 long documents it saw a part. It had no answer for 1 document." in shown


def test_kinds_in_few_sampled_documents_have_no_rates(tmp_path):
    """The interval would tell how many there are."""
    kinds = {"PERSON": 3, "LOCATION": 30, "NRP": 0}
    rates = [share(METRIC, "analyzer_documents", 0.4, 0.3, 0.5, 90)]
    rates += [
        share(METRIC, stat, number / 90, 0.0, 0.9, 90, entity=name)
        for name, number in kinds.items()
        for stat in ("analyzer_documents", "analyzer_hits")
    ]
    stratum = {
        "metric": METRIC,
        "split": "train",
        "source": "web",
        "language": "en",
        "level": 0,
        "documents": 900,
        "tokens": 9,
        "judged": 90,
        "judged_tokens": 9,
        "hits": 0,
    }
    judged = [stratum | {"class": name, "positive": number} for name, number in kinds.items()]
    make_found(tmp_path / "m", docs(9), metrics=[*rates, *judge(METRIC, 90)], more={"tables": {"judged": judged}})
    shown = text(load_manifest(tmp_path / "m"))
    assert "LOCATION 0.3333" in shown
    assert "PERSON" not in shown
    assert (
        "In fewer than 5 sampled documents, or hidden above: 1 further kind. Not in the sample: 1 further kind."
        in shown
    )
    told = json.loads(show_manifest(tmp_path / "m", METRIC, as_json=True))["records"]
    assert not [one for one in told if one["scope"].get("entity") == "PERSON"]


def test_an_absent_analyzer_is_not_evaluated_with_the_reason(tmp_path):
    absent = Metric(
        metric=METRIC,
        stat="analyzer_documents",
        unit="ratio",
        value=None,
        method="sampled",
        status="not_evaluated",
        reason="no_analyzer",
    )
    make_found(tmp_path / "m", docs(9), metrics=[absent])
    shown = text(load_manifest(tmp_path / "m"))
    assert "None was found." in shown
    assert "Not evaluated: no analyzer is set in the config (no_analyzer)" in shown
    assert "analyzer: presidio" in shown


def test_without_the_stage_nothing_is_said(tmp_path):
    make(tmp_path / "m", [shard("a.jsonl")])
    assert personal_data(load_manifest(tmp_path / "m")) is None
    assert shown(section(None)) == []


def test_records_of_sources_and_small_counts_are_not_printed(manifest):
    """`--metric` says how many are missing; a record of a source and kind would tell by being there."""
    records = json.loads(show_manifest(manifest.folder, METRIC, as_json=True))
    assert records["suppressed"] > 0
    told = [(one["scope"], one["stat"]) for one in records["records"]]
    assert ({"entity": "EMAIL_ADDRESS"}, "validated_hits") in told
    assert not [scope for scope, stat in told if "source" in scope and stat != "truncated"]
    assert not [stat for scope, stat in told if scope.get("entity") == "US_SSN" and "hits" in stat]
    assert "records not shown" in show_manifest(manifest.folder, METRIC, as_json=False)
    assert json.loads(show_manifest(manifest.folder, "documents", as_json=True))["suppressed"] == 0


def test_a_shard_shows_rounded_counts_of_all_that_the_dataset_holds(manifest):
    found = json.loads(inspect_place(manifest.folder, "0", as_json=True))["shard"]
    assert (found["pii_documents"], found["pii_rounded"]) == (60, True)
    counts = {(one["entity"], one["tier"]): one for one in found["pii"]}
    assert counts["EMAIL_ADDRESS", "validated"] == {
        "entity": "EMAIL_ADDRESS",
        "tier": "validated",
        "hits": 60,
        "documents": 60,
    }
    assert counts["US_SSN", "contextual"]["suppressed"]
    other = json.loads(inspect_place(manifest.folder, "1", as_json=True))["shard"]
    assert {key for key, one in counts.items() if one.get("suppressed")} == {
        (one["entity"], one["tier"]) for one in other["pii"] if one.get("suppressed")
    }
    assert "Personal data: hits by kind and tier" in inspect_place(manifest.folder, "0", as_json=False)


FOUND = st.lists(st.tuples(st.just("pii"), st.sampled_from("ABC"), st.sampled_from(TIERS), st.just(False)), max_size=2)
KIND = st.tuples(st.integers(1, 9), st.builds(Doc, st.integers(0, 2), st.sampled_from(["x", "y"]), FOUND))


@pytest.mark.tables
@settings(max_examples=examples(40), deadline=None)
@given(st.lists(KIND, min_size=1, max_size=6))
def test_no_small_count_is_a_sum_or_difference_of_what_is_shown(tmp_path_factory, kinds):
    """Hits by shard, source, kind and tier are unknown; every exact number shown is an equation of them.

    A count that a reader could work out would be a combination of these equations.
    """
    documents = [doc for number, doc in kinds for _ in range(number)]
    folder = tmp_path_factory.mktemp("few") / "m"
    make_found(folder, documents, shards=3)
    hits, holding = Counter(), Counter()
    for doc in documents:
        keys = [(doc.shard, doc.source, entity, tier) for _, entity, tier, _ in doc.found]
        hits.update(keys)
        holding.update(set(keys))
    names = [(s, x, e, k) for s in range(3) for x in "xy" for e in "ABC" for k in TIERS]
    rows, zeros = [], set()

    def tell(value, **chosen):
        inside = [all(name["sxek".index(part)] == want for part, want in chosen.items()) for name in names]
        if value == 0:
            zeros.update(index for index, held in enumerate(inside) if held)
        elif value is not None:
            rows.append(inside)

    facts = json.loads(show_manifest(folder, None, as_json=True))["personal_data"]
    tell(facts["total"]["found"]["hits"])
    for tier, count in facts["total"]["tiers"].items():
        tell(count["hits"], k=tier)
    known = {one["entity"]: one for one in facts["entities"]}
    for entity in "ABC":
        if entity not in known:
            tell(0, e=entity)
            continue
        tell(known[entity]["found"]["hits"], e=entity)
        for tier, count in known[entity]["tiers"].items():
            tell(count["hits"], e=entity, k=tier)
    for one in facts["sources"]:
        tell(0 if one["found"]["hits"] == 0 else None, x=one["source"])
    for ordinal in range(3):
        row = json.loads(inspect_place(folder, str(ordinal), as_json=True))["shard"]
        shown = {(one["entity"], one["tier"]): one for one in row["pii"]}
        for entity in known:
            for tier in TIERS:
                tell(0 if (entity, tier) not in shown else None, s=ordinal, e=entity, k=tier)
    free = [index for index in range(len(names)) if index not in zeros]
    told = np.array([[row[index] for index in free] for row in rows], dtype=float).reshape(len(rows), len(free))
    rank = np.linalg.matrix_rank(told) if told.size else 0
    for shape in ("sek", "xek", "xe", "se"):
        for wanted in {tuple(name["sxek".index(part)] for part in shape) for name in names}:
            inside = [tuple(name["sxek".index(part)] for part in shape) == wanted for name in names]
            if not 0 < sum(holding[name] for name, held in zip(names, inside, strict=True) if held) < FEW:
                continue
            asked = np.array([[inside[index] for index in free]], dtype=float)
            assert np.linalg.matrix_rank(np.vstack([told, asked])) > rank, (shape, wanted)


def test_tokens_of_the_helper_are_what_rates_are_of(manifest):
    assert personal_data(manifest)["total"]["found"].per_million == pytest.approx(143 / (153 * TOKENS) * 1e6)
