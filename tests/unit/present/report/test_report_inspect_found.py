"""`dataaudit inspect` of documents that are near-duplicates, hold what is protected, or hold a hotspot."""

import json

import pytest
from made_manifest import make, shard

from dataaudit.present.report.inspect import inspect_place

LOOKED = {"near_dup_rate": 0.1, "repeat_token_share": 0.25, "held_out_copies": 2, "contaminated": 1}


def match(item, row, *, part="question", rule="verbatim", name="quiz", start=0):
    """Return a row of the table overlap, in shard 0."""
    return {
        "set": name,
        "item": item,
        "part": part,
        "tier": "verbatim",
        "rule": rule,
        "shard": 0,
        "row": row,
        "start": start,
        "end": start + 90,
        "score": 0.75,
        "score_without_common": 0.75,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two training shards and a held-out one; document 0:0 has some of everything, 0:1 a dozen matches."""
    shards = [
        shard("a.jsonl", **LOOKED),
        shard("b.jsonl", **(LOOKED | {"near_dup_rate": 0.5, "contaminated": 3})),
        shard("v.jsonl", split="val", near_dup_rate=0.0),
    ]
    made = tmp_path_factory.mktemp("found") / "m"
    pairs = [(0, 0, 1, 4, 0.9), (0, 0, 1, 5, 1.0), (1, 4, 1, 5, 0.85)]
    make(
        made,
        shards,
        odd=True,
        clusters=[("near", 0, 0, 0, True), ("near", 0, 1, 4, False), ("near", 0, 1, 5, False)],
        tables={
            "pairs": [
                {
                    "left_shard": ls,
                    "left_row": lr,
                    "right_shard": rs,
                    "right_row": rr,
                    "jaccard": alike,
                    "verified": True,
                }
                for ls, lr, rs, rr, alike in pairs
            ],
            "overlap": [
                match("q1", 0, start=7),
                match("2:3", 0, part="document", rule="span", name="val"),
                *(match(f"q{index:02d}", 1) for index in range(12)),
                *(match(f"s{at}", 2, name="like") | {"rule": "similar", "tier": "similar"} for at in range(12)),
                match("s9", 2, name="like", part="both") | {"score": 1.0},
            ],
            "hotspots": [
                {
                    "hotspot": 1,
                    "hash": "ab",
                    "words": 60,
                    "documents": 30,
                    "occurrences": 40,
                    "tokens": 3000,
                    "variants": 0,
                    "shards": [{"shard": 0, "documents": 1, "occurrences": 1}],
                    "sources": [{"source": "web", "documents": 1, "occurrences": 1}],
                }
            ],
            "hotspot_members": [{"hotspot": 1, "shard": 0, "row": 0, "start": 11, "end": 500}],
        },
    )
    return made


def found(folder, place):
    """Return the JSON of a document's findings, and its text with single blanks."""
    value = json.loads(inspect_place(folder, place, as_json=True))["row"]["found"]
    return value, " ".join(inspect_place(folder, place, as_json=False).split())


def test_neighbours_are_listed_with_their_similarity_and_the_kept_one(folder):
    value, text = found(folder, "1:5")
    assert [(one["shard"], one["row"], one["jaccard"], one["kept"]) for one in value["neighbours"]["first"]] == [
        (0, 0, 1.0, True),
        (1, 4, 0.85, False),
    ]
    assert "0:0 train/a.jsonl 1.0000 kept 1:4 train/b.jsonl 0.8500" in text


def test_matches_of_protected_sets_are_listed_with_their_places(folder):
    value, text = found(folder, "0:0")
    assert [one["item"] for one in value["overlap"]["first"]] == ["q1", "2:3"]
    assert "quiz q1 question verbatim verbatim 7 97 0.7500" in text
    assert "val 2:3 document verbatim span 0 90 0.7500" in text


def test_ten_matches_are_listed_and_the_rest_counted(folder):
    value, text = found(folder, "0:1")
    assert (value["overlap"]["count"], len(value["overlap"]["first"]), value["overlap"]["not_listed"]) == (12, 10, 2)
    assert "and 2 more" in text


def test_the_surest_matches_come_first(folder):
    """The item that is there stood behind ten others of its template."""
    value, _ = found(folder, "0:2")
    assert [(one["item"], one["part"]) for one in value["overlap"]["first"][:2]] == [("s9", "both"), ("s0", "question")]


def test_a_held_out_document_names_the_training_documents_that_hold_it(folder):
    value, text = found(folder, "2:3")
    assert [(one["shard"], one["row"]) for one in value["copied_by"]["first"]] == [(0, 0)]
    assert "Training documents that hold a piece of it" in text
    assert "0:0 train/a.jsonl span 0 90 0.7500" in text


def test_hotspots_are_listed_with_words_and_documents(folder):
    value, text = found(folder, "0:0")
    assert value["hotspots"]["first"] == [
        {"hotspot": 1, "words": 60, "documents": 30, "occurrences": 40, "start": 11, "end": 500}
    ]
    assert "1 60 30 40 11 500" in text


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("0:0", "Not listed as: an exact duplicate."),
        (
            "1:5",
            (
                "Not listed as: an exact duplicate; holding a hotspot; holding a piece of a held-out document;"
                " holding an evaluation item."
            ),
        ),
        ("2:4", "Not listed as: an exact duplicate; a near-duplicate; a held-out document that is in training data."),
    ],
)
def test_only_what_was_looked_for_and_is_not_there_is_denied(folder, place, says):
    assert says in found(folder, place)[1]


def test_a_shard_stands_beside_the_median_of_the_others(folder):
    text = " ".join(inspect_place(folder, "0", as_json=False).split())
    for part in (
        "near_dup_rate 0.1000 (median of the others 0.5000)",
        "repeat_token_share 0.2500 (median of the others 0.2500)",
        "held_out_copies 2 (0.2000 of its documents; median of the others 0.2000)",
        "contaminated 1 (0.1000 of its documents; median of the others 0.3000)",
    ):
        assert part in text
    assert json.loads(inspect_place(folder, "0", as_json=True))["medians_of_others"]["contaminated"] == 0.3
