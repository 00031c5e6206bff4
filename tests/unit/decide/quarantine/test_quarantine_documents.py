"""The drop list: what is dropped and what is kept, against a slow twin."""

import datetime as dt
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from made_manifest import make, shard
from quarantine_made import AUTHOR, digest, entry, target

from dataaudit.decide.quarantine.list import in_force
from dataaudit.decide.quarantine.selection import Choice, drop_list, select
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope

SPLITS = ("train", "train", "train", "val", "val")
ROWS = 4


def corpus(folder, clusters=(), overlap=(), findings=(), metrics=(), shards=None, common=()):
    """Publish a manifest of three training and two held-out shards; `common` are rows of matches of common text."""
    rows = shards or [
        shard(f"{number}.jsonl", split=split, documents=ROWS, sha256=digest(number), rows_digest=digest(f"r{number}"))
        for number, split in enumerate(SPLITS)
    ]
    tables = {
        "overlap": [
            dict(zip(("set", "part", "rule", "shard", "row", "score"), one, strict=True))
            | {"item": str(number), "tier": "verbatim", "start": 0, "end": 9}
            | {"score_without_common": 0.0 if number in common else one[-1]}
            for number, one in enumerate(overlap)
        ],
        "findings": [
            dict(zip(("detector", "tier", "shard", "row", "reserved"), one, strict=True))
            | {"class": "X", "start": number, "end": number + 1, "score": 1.0}
            for number, one in enumerate(findings)
        ],
    }
    make(folder, rows, clusters=clusters, tables=tables, metrics=metrics)
    return load_manifest(folder)


def drops(manifest, choice=None, entries=()):
    """Return the drop list."""
    quarantine = in_force(entries, digest="sha256:" + "0" * 64, on=AUTHOR.today)
    return drop_list(manifest, select(manifest, quarantine), quarantine, choice or Choice())


def listed(found):
    """Return {(shard, row): reasons}."""
    return {(row["shard"], row["row"]): row["reasons"] for row in found.table.to_pylist()}


def group(kind, number, *places, kept=0):
    """Return the rows of a cluster."""
    return [(kind, number, *place, index == kept) for index, place in enumerate(places)]


def test_all_but_the_kept_one_of_a_cluster_are_dropped(tmp_path):
    """As the manifest chose; the reason names the kind."""
    manifest = corpus(tmp_path / "m", group("exact", 0, (0, 0), (0, 1), (2, 0)) + group("near", 0, (0, 2), (1, 1)))
    assert listed(drops(manifest)) == {
        (0, 1): ["exact_duplicate"],
        (1, 1): ["near_duplicate"],
        (2, 0): ["exact_duplicate"],
    }


def test_another_one_is_kept_when_the_kept_one_goes(tmp_path):
    """Its shard is held back, or it is dropped for a secret: the text must not be lost altogether."""
    manifest = corpus(
        tmp_path / "m",
        group("near", 0, (0, 0), (1, 0), (2, 0)) + group("near", 1, (1, 1), (1, 2), (2, 1)),
        findings=[("secrets", "validated", 1, 1, False)],
    )
    found = drops(manifest, entries=[entry(target=target("0", sha256=digest(0), rows_digest=None))])
    assert listed(found) == {(1, 1): ["secrets:validated"], (2, 0): ["near_duplicate"], (2, 1): ["near_duplicate"]}


@pytest.mark.parametrize("kind", ["exact", "near"])
def test_of_a_training_document_and_its_held_out_copy_the_training_one_goes(tmp_path, kind):
    """Whichever the manifest keeps: a leak is mended in training data."""
    manifest = corpus(tmp_path / "m", group(kind, 0, (0, 0), (1, 1), (3, 0), (4, 2)))
    reasons = sorted([f"{kind}_duplicate", "held_out:val"])
    assert listed(drops(manifest)) == {(0, 0): reasons, (1, 1): reasons}
    assert listed(drops(manifest, Choice(held_out=True))) == {
        (0, 0): reasons,
        (1, 1): reasons,
        (4, 2): [f"{kind}_duplicate"],
    }


def test_training_documents_that_leak_are_dropped(tmp_path):
    """Items, spans and whole documents; 13-grams from the chosen share on."""
    overlap = [
        ("quiz", "both", "verbatim", 0, 0, 1.0),
        ("quiz", "answer", "alone", 0, 1, 1.0),
        ("val", "document", "span", 0, 0, 0.3),
        ("val", "document", "ngram", 1, 0, 0.4),
        ("val", "document", "ngram", 1, 1, 0.5),
    ]
    manifest = corpus(tmp_path / "m", overlap=overlap)
    assert listed(drops(manifest)) == {
        (0, 0): ["benchmark:quiz", "held_out:val"],
        (0, 1): ["benchmark:quiz"],
        (1, 1): ["held_out:val"],
    }
    assert (1, 0) in listed(drops(manifest, Choice(ngram_score=0.1)))


def test_exact_copies_of_a_leak_go_with_it(tmp_path):
    """The manifest lists the first thousand places of an item; a copy beyond them leaks all the same."""
    manifest = corpus(
        tmp_path / "m", group("exact", 0, (0, 0), (1, 0), (2, 3)), overlap=[("quiz", "both", "verbatim", 1, 0, 1.0)]
    )
    assert listed(drops(manifest)) == {place: ["benchmark:quiz"] for place in [(0, 0), (1, 0), (2, 3)]}


def test_chosen_detectors_and_tiers_drop_documents(tmp_path):
    """Validated secrets unless told otherwise; reserved values never."""
    findings = [
        ("secrets", "validated", 0, 0, False),
        ("secrets", "validated", 0, 1, True),
        ("pii", "validated", 1, 0, False),
        ("secrets", "contextual", 0, 2, False),
        ("secrets", "validated", 3, 0, False),
    ]
    manifest = corpus(tmp_path / "m", findings=findings)
    assert listed(drops(manifest)) == {(0, 0): ["secrets:validated"]}
    both = Choice(findings=(("secrets", "contextual"), ("pii", "validated")), held_out=True)
    assert listed(drops(manifest, both)) == {(0, 2): ["secrets:contextual"], (1, 0): ["pii:validated"]}
    assert listed(drops(manifest, Choice(held_out=True)))[3, 0] == ["secrets:validated"]


def test_entries_of_documents_are_dropped_in_any_split(tmp_path):
    """Somebody named them; a row that the shard does not have is counted."""
    manifest = corpus(tmp_path / "m")
    entries = [
        entry(target=target("x", row, sha256=digest(number), rows_digest=None), reason="spike")
        for number, row in ((0, 1), (3, 2), (3, 99))
    ]
    found = drops(manifest, Choice(origins=()), entries)
    assert (listed(found), found.beyond) == ({(0, 1): ["quarantine:spike"], (3, 2): ["quarantine:spike"]}, 1)


def test_only_the_chosen_origins_count(tmp_path):
    """The others are as if the manifest did not have them."""
    manifest = corpus(
        tmp_path / "m",
        group("exact", 0, (0, 0), (0, 1)),
        [("quiz", "both", "verbatim", 1, 0, 1.0)],
        [("secrets", "validated", 2, 0, False)],
    )
    assert [
        set(listed(drops(manifest, Choice(origins=(origin,))))) for origin in ("clusters", "overlap", "findings")
    ] == [{(0, 1)}, {(1, 0)}, {(2, 0)}]


def test_what_is_counted_and_not_listed_is_said(tmp_path):
    """Rows of a very common item are cut in the manifest; the shard's count tells that documents are missing."""
    rows = [shard("a.jsonl", documents=9, contaminated=5, held_out_copies=1, sha256=digest("a"))]
    metrics = [
        Metric(metric="near_dup_rate", stat="undecided", unit="documents", value=7.0, n=9),
        Metric(
            metric="train_val_overlap",
            stat="ngram",
            scope=Scope(set="val"),
            unit="ratio",
            value=0.1,
            low=0.0,
            high=0.2,
            confidence=0.95,
            n=9,
            method="sampled",
        ),
    ]
    overlap = [
        ("quiz", "both", "verbatim", 0, 0, 1.0),
        ("quiz", "both", "verbatim", 0, 0, 1.0),
        ("val", "document", "ngram", 0, 1, 1.0),
    ]
    found = drops(corpus(tmp_path / "m", overlap=overlap, metrics=metrics, shards=rows))
    assert [words.split(" ")[0] for words in found.incomplete] == ["1", "4", "copies", "near-duplicates"]
    assert found.absent == ("exact_dup", "near_dup", "overlap", "secrets")


def test_the_list_is_sorted_and_names_its_shards(tmp_path):
    """By shard and row, whatever found them; the digests let a loader check its file."""
    manifest = corpus(tmp_path / "m", group("exact", 0, (2, 0), (0, 3), (1, 2), kept=2))
    table = drops(manifest).table
    assert [(row["shard"], row["row"]) for row in table.to_pylist()] == [(0, 3), (2, 0)]
    assert table["sha256"].to_pylist() == [digest(0), digest(2)]
    pq.write_table(table, tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == table.to_pylist()


class Slow:
    """Says what is dropped, a document at a time; shares no code with what it checks."""

    def __init__(self, excluded, held_out):
        self.excluded, self.held_out, self.reasons = excluded, held_out, {}

    def note(self, place, why):
        if place[0] not in self.excluded:
            self.reasons.setdefault(place, set()).add(why)

    def leaks(self, clusters, overlap, score):
        for name, part, rule, one, row, share in overlap:
            if one in self.excluded or (rule == "ngram" and share < score):
                continue
            why = f"held_out:{name}" if part == "document" else f"benchmark:{name}"
            self.note((one, row), why)
            mine = {number for kind, number, *place, _ in clusters if kind == "exact" and place == [one, row]}
            for kind, number, *place, _ in clusters:
                if kind == "exact" and number in mine and training(place):
                    self.note(tuple(place), why)

    def findings(self, found):
        for detector, tier, one, row, reserved in found:
            if (detector, tier, reserved) == ("secrets", "validated", False) and (self.held_out or training([one])):
                self.note((one, row), "secrets:validated")

    def duplicates(self, clusters, kind):
        dropped = set(self.reasons)
        for number in {cluster[1] for cluster in clusters if cluster[0] == kind}:
            members = [
                (tuple(place), kept) for which, mine, *place, kept in clusters if (which, mine) == (kind, number)
            ]
            left = [one for one in members if one[0][0] not in self.excluded and one[0] not in dropped]
            if left:
                self.all_but_one(left, kind)

    def all_but_one(self, left, kind):
        best, _ = min(left, key=lambda member: (training(member[0]), not member[1], member[0]))
        for place, _ in left:
            if place != best and (training(place) or self.held_out):
                self.note(place, f"{kind}_duplicate")
                if training(place) and not training(best):
                    self.note(place, "held_out:val")


def training(place):
    return SPLITS[place[0]] == "train"


def slow(clusters, overlap, findings, excluded, *, held_out, score):
    """Return {(shard, row): reasons}."""
    twin = Slow(excluded, held_out)
    twin.leaks(clusters, overlap, score)
    twin.findings(findings)
    for kind in ("exact", "near"):
        twin.duplicates(clusters, kind)
    return {place: sorted(why) for place, why in sorted(twin.reasons.items())}


PLACES = st.tuples(st.integers(0, len(SPLITS) - 1), st.integers(0, ROWS - 1))
TRAINING = st.tuples(st.integers(0, 2), st.integers(0, ROWS - 1))


@st.composite
def found_tables(draw):
    """Clusters that share no document within a kind, leaks of training documents, findings anywhere."""
    clusters = []
    for kind in ("exact", "near"):
        places = draw(st.lists(PLACES, unique=True, max_size=10))
        number = 0
        while len(places) > 1:
            size = draw(st.integers(2, len(places)))
            clusters += group(kind, number, *sorted(places[:size]), kept=draw(st.integers(0, size - 1)))
            places, number = places[size:], number + 1
    kinds = [("quiz", "both", "verbatim"), ("val", "document", "span"), ("val", "document", "ngram")]
    overlap = [
        (*draw(st.sampled_from(kinds)), *draw(TRAINING), draw(st.sampled_from([0.2, 0.5, 1.0])))
        for _ in range(draw(st.integers(0, 4)))
    ]
    findings = [
        ("secrets", draw(st.sampled_from(["validated", "pattern"])), *draw(PLACES), draw(st.booleans()))
        for _ in range(draw(st.integers(0, 3)))
    ]
    return clusters, overlap, findings


@settings(max_examples=examples(60))
@given(found_tables(), st.sets(st.integers(0, 4), max_size=2), st.booleans(), st.sampled_from([0.1, 0.5]))
def test_the_drop_list_is_that_of_its_slow_twin(tables, excluded, held_out, score):
    """For any clusters, leaks, findings and shards that are left out; exactly one document of each cluster stays."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = corpus(Path(folder) / "m", *tables)
        entries = [entry(target=target("x", sha256=digest(one), rows_digest=None)) for one in sorted(excluded)]
        found = listed(drops(manifest, Choice(held_out=held_out, ngram_score=score), entries))
    assert found == slow(*tables, excluded, held_out=held_out, score=score)


def test_the_day_does_not_matter_to_documents(tmp_path):
    """Only entries expire; they are chosen before."""
    manifest = corpus(tmp_path / "m", group("exact", 0, (0, 0), (0, 1)))
    later = in_force((), digest="x", on=AUTHOR.today + dt.timedelta(days=99))
    assert drop_list(manifest, select(manifest, later), later, Choice()).table == drops(manifest).table
