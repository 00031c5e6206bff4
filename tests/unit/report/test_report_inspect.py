"""`dataaudit inspect`."""

from __future__ import annotations

import json

import pytest
from made_manifest import make, shard

from dataaudit.errors import ConfigError
from dataaudit.report.inspect import inspect_place


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shards that share duplicates, a partial and an unread one, and URIs with colons and slashes."""
    shards = [
        shard("a.jsonl", documents=20), shard("a.jsonl:5", documents=8), shard("7", documents=5),
        shard("val/x.jsonl"), shard("bad.jsonl", status="partial", reason="invalid_json", bad=25, documents=75),
        shard("gone.gz", status="quarantined", reason="truncated_stream", size=99, sha256=""),
        shard("x.jsonl", split="val", documents=30), shard("z.jsonl", split="val"),
        shard("zz.jsonl", split="val", status="quarantined", reason="too_many_bad_records", rows=6, bad=3),
    ]  # fmt: skip
    ledger = [
        (4, "invalid_json", "record 9", 1, 5), (4, "invalid_json", "record 30", 1, 5),
        (4, "invalid_json", "further records", 23, 50), (8, "too_many_bad_records", "", -1, 50),
        (8, "invalid_json", "record 1", 1, 5), (8, "invalid_json", "further records", 2, 5),
        (5, "truncated_stream", "after record 3", -1, 99),
    ]  # fmt: skip
    clusters = [("exact", 0, 0, 1, True), *(("exact", 0, 6, row, False) for row in range(15)),
                ("exact", 1, 0, 2, True), ("exact", 1, 0, 3, False), ("exact", 1, 7, 0, False)]  # fmt: skip
    made = tmp_path_factory.mktemp("inspect") / "m"
    make(made, shards, ledger=ledger, clusters=clusters, roots="/data")
    return made


def facts(folder, place):
    """Return the JSON of a place, after its text was rendered without failing."""
    assert inspect_place(folder, place, as_json=False).endswith("\n")
    return json.loads(inspect_place(folder, place, as_json=True))


@pytest.mark.parametrize(
    ("place", "found", "row"),
    [
        ("0", 0, None), ("a.jsonl", 0, None), ("train/a.jsonl", 0, None), ("0:3", 0, 3), ("a.jsonl:3", 0, 3),
        ("train/a.jsonl:5", None, None), ("a.jsonl:5:2", 1, 2), ("1:0", 1, 0), ("train/7", 2, None),
        ("bad.jsonl:9", 4, 9), ("z.jsonl", 7, None),
    ],
)  # fmt: skip
def test_a_place_is_an_ordinal_a_uri_or_split_and_uri(folder, place, found, row):
    """Colons inside a URI do not mislead, and what has two meanings is refused."""
    if found is None:
        with pytest.raises(ConfigError, match="may mean 2 things"):
            inspect_place(folder, place, as_json=True)
        return
    shown = facts(folder, place)
    assert shown["shard"]["shard"] == found
    assert shown.get("row", {}).get("row") == row


@pytest.mark.parametrize(
    ("place", "choices"),
    [
        ("a.jsonl:5", ["the shard 1: train/a.jsonl:5", "row 5 of the shard 0: train/a.jsonl"]),
        ("7", ["the shard 7: val/z.jsonl", "the shard 2: train/7"]),
        ("val/x.jsonl", ["the shard 3: train/val/x.jsonl", "the shard 6: val/x.jsonl"]),
    ],
)
def test_an_ambiguous_place_lists_its_meanings(folder, place, choices):
    """Every meaning is named, so that the user can pick one."""
    with pytest.raises(ConfigError) as caught:
        inspect_place(folder, place, as_json=False)
    for choice in choices:
        assert choice in str(caught.value)


@pytest.mark.parametrize(
    ("place", "hint"),
    [("99", "0 to 8"), ("jsonl", "a.jsonl"), ("bda.jsonl", "bad.jsonl"), ("", "0 to 8"), (":", "0 to 8"),
     ("-1", "0 to 8"), ("9" * 30, "0 to 8"), ("\u0663", "0 to 8"), ("\x1b[2J", "0 to 8")],
)  # fmt: skip
def test_an_unknown_shard_is_answered_with_what_there_is(folder, place, hint):
    """The range of ordinals and similar names are shown."""
    with pytest.raises(ConfigError, match="no shard") as caught:
        inspect_place(folder, place, as_json=False)
    assert hint in str(caught.value)


def test_a_shard_shows_its_losses_with_their_places(folder):
    """Each line of the ledger has its reason, meaning, place and counts."""
    shown = facts(folder, "4")["shard"]
    assert shown["status"] == "partial"
    assert [(one["place"], one["records"]) for one in shown["losses"]] == [
        ("record 9", 1), ("record 30", 1), ("further records", 23),
    ]  # fmt: skip
    assert shown["losses"][0]["meaning"] == "a line is not one JSON value that can be read"
    text = inspect_place(folder, "gone.gz", as_json=False)
    assert "quarantined (truncated_stream)" in text
    assert "after record 3" in text
    assert "not known" in text


def test_a_shard_shows_with_whom_it_shares_duplicates(folder):
    """Documents to drop are counted by the shard that keeps their twin."""
    assert facts(folder, "6")["duplicates"]["exact"] == {
        "documents_in_groups": 15, "documents_to_drop": 15,
        "kept_in": {"shards": 1, "top": [{"shard": 0, "name": "train/a.jsonl", "count": 15}]},
        "shares_groups_with": {"shards": 1, "top": [{"shard": 0, "name": "train/a.jsonl", "count": 1}]},
    }  # fmt: skip
    own = facts(folder, "0")["duplicates"]["exact"]
    assert (own["documents_in_groups"], own["documents_to_drop"]) == (3, 1)
    assert own["kept_in"]["top"] == [{"shard": 0, "name": "train/a.jsonl", "count": 1}]


def test_a_duplicate_names_the_one_that_is_kept_and_ten_others(folder):
    """The kept document is always named, the others are capped and counted."""
    (group,) = facts(folder, "6:14")["row"]["groups"]
    assert group["kept"] == {"shard": 0, "row": 1, "name": "train/a.jsonl"}
    assert not group["this_one_is_kept"]
    assert (group["documents"], len(group["others"]), group["others_not_listed"]) == (16, 10, 5)
    (kept,) = facts(folder, "0:1")["row"]["groups"]
    assert kept["this_one_is_kept"]
    assert "the first in the manifest's order is 0:1" in inspect_place(folder, "6:14", as_json=False)


@pytest.mark.parametrize(
    ("place", "exists", "in_metrics", "says"),
    [
        ("0:7", True, True, "in the numbers"),
        ("0:20", False, False, "does not exist: the shard has 20 rows"),
        ("4:9", True, False, "a bad record, not in any number (invalid_json"),
        ("4:10", True, None, "unless it is one of 23 bad records"),
        ("4:100", False, False, "does not exist: the shard has 100 rows"),
        ("5:1", None, False, "not known: the shard was not read"),
        ("8:1", True, False, "a bad record, not in any number (invalid_json"),
        ("8:5", True, False, "not in any number: the shard was left out as a whole"),
        ("8:6", None, False, "not known: the shard was not read"),
    ],
)
def test_a_row_says_whether_it_exists_and_is_in_the_numbers(folder, place, exists, in_metrics, says):
    """A bad record, one past the end, one that may be bad and one of an unread shard are told apart."""
    row = facts(folder, place)["row"]
    assert (row["exists"], row["in_metrics"]) == (exists, in_metrics)
    assert says in " ".join(inspect_place(folder, place, as_json=False).split())
