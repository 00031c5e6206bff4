"""`dataaudit inspect`."""

import json

import pytest
from made_manifest import make, shard

from dataaudit.base.errors import ConfigError
from dataaudit.present.report.inspect import inspect_place
from dataaudit.present.report.show import show_manifest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shards that share duplicates, a partial and an unread one, and URIs with colons and slashes."""
    shards = [
        shard("a.jsonl", documents=20),
        shard("a.jsonl:5", documents=8),
        shard("7", documents=5),
        shard("val/x.jsonl"),
        shard("bad.jsonl", status="partial", reason="invalid_json", bad=25, documents=75),
        shard("gone.gz", status="quarantined", reason="truncated_stream", size=99, sha256=""),
        shard("x.jsonl", split="val", documents=30),
        shard("z.jsonl", split="val"),
        shard("zz.jsonl", split="val", status="quarantined", reason="too_many_bad_records", rows=6, bad=3),
    ]
    ledger = [
        (4, "invalid_json", "record 9", 1, 5),
        (4, "invalid_json", "record 30", 1, 5),
        (4, "invalid_json", "further records", 23, 50),
        (8, "too_many_bad_records", "", -1, 50),
        (8, "invalid_json", "record 1", 1, 5),
        (8, "invalid_json", "further records", 2, 5),
        (5, "truncated_stream", "after record 3", -1, 99),
    ]
    clusters = [
        ("exact", 0, 0, 1, True),
        *(("exact", 0, 6, row, False) for row in range(15)),
        ("exact", 1, 0, 2, True),
        ("exact", 1, 0, 3, False),
        ("exact", 1, 7, 0, False),
    ]
    made = tmp_path_factory.mktemp("inspect") / "m"
    make(made, shards, ledger=ledger, clusters=clusters, roots="/data", odd=True)
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
    [
        ("99", "0 to 8"),
        ("jsonl", "a.jsonl"),
        ("bda.jsonl", "bad.jsonl"),
        ("", "0 to 8"),
        (":", "0 to 8"),
        ("-1", "0 to 8"),
        ("9" * 30, "0 to 8"),
        ("\u0663", "0 to 8"),
        ("\x1b[2J", "0 to 8"),
    ],
)
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
        ("record 9", 1),
        ("record 30", 1),
        ("further records", 23),
    ]
    assert shown["losses"][0]["meaning"] == "a line is not one JSON value that can be read"
    text = inspect_place(folder, "gone.gz", as_json=False)
    assert "quarantined (truncated_stream)" in text
    assert "after record 3" in text
    assert "not known" in text


def test_a_shard_shows_with_whom_it_shares_duplicates(folder):
    """Documents to drop are counted by the shard that keeps their twin."""
    assert facts(folder, "6")["duplicates"]["exact"] == {
        "documents_in_groups": 15,
        "documents_to_drop": 15,
        "kept_in": {"shards": 1, "top": [{"shard": 0, "name": "train/a.jsonl", "count": 15}]},
        "shares_groups_with": {"shards": 1, "top": [{"shard": 0, "name": "train/a.jsonl", "count": 1}]},
    }
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


def counts(**documents):
    """Return the column `filters` of one set of rules and its rules; `_` stands for the dot."""
    return [{"rule": rule.replace("_", "."), "documents": number} for rule, number in documents.items()]


def language(name, tokens):
    """Return one entry of the column `languages`."""
    return {"language": name, "documents": 1, "bytes": 4 * tokens, "tokens": tokens}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Six usual shards of a split and what is unusual: all flags, no rule that hits, over ten of each, no stage."""
    many = {f"c4_r{index:02d}": index for index in range(13)}
    shards = [
        *(shard(f"{index}.jsonl", documents=10, filters=counts(c4=index, c4_a=0)) for index in range(6)),
        shard(
            "odd.jsonl",
            documents=20,
            bytes_per_token=1.5,
            filters=counts(c4=20, c4_a=5, c4_b=0, c4_new=1),
            languages=[language("en", 10), language("fr", 70), language("und", 20)],
            token_kl_drift=0.25,
            token_js_drift=0.0625,
            token_kl_bias=0.001,
        ),
        shard("clean.jsonl", split="val", documents=10, filters=counts(c4=0, c4_a=0)),
        shard("off.jsonl", split="val"),
        shard(
            "wide.jsonl",
            split="wide",
            documents=12,
            filters=counts(**many),
            languages=[language(f"l{index:02d}", index) for index in range(13)],
        ),
        shard("gone.jsonl", split="wide", status="quarantined", reason="truncated_stream"),
        shard("empty.jsonl", split="wide", documents=0, tokens=0, filters=[], languages=[]),
    ]
    made = tmp_path_factory.mktemp("judged") / "m"
    make(made, shards, odd=True)
    return made


def block(folder, place, heading):
    """Return the lines of one block of a shard's text, without its heading; None when there is no such block."""
    parts = inspect_place(folder, place, as_json=False).split("\n\n")
    found = [part.splitlines()[1:] for part in parts if part.startswith(heading)]
    assert len(found) < 2
    return [line.split() for line in found[0]] if found else None


def test_a_shard_shows_its_quality_rules_beside_the_other_shards(judged):
    """Shares are of its documents, highest first; the median is that of the others of its split, itself left out."""
    ordinal = ordinal_of(judged, "odd.jsonl")
    assert facts(judged, ordinal)["rules"] == [
        {"rule": "c4", "documents": 20, "rate": 1.0, "median_of_others": 0.25},
        {"rule": "c4.a", "documents": 5, "rate": 0.25, "median_of_others": 0.0},
        {"rule": "c4.new", "documents": 1, "rate": 0.05, "median_of_others": None},
        {"rule": "c4.b", "documents": 0, "rate": 0.0, "median_of_others": None},
    ]
    lines = block(judged, ordinal, "Quality rules")
    assert lines[3:6] == [
        ["c4", "20", "1.0000", "0.2500"],
        ["c4.a", "5", "0.2500", "0"],
        ["c4.new", "1", "0.0500", "-"],
    ]
    assert not any("c4.b" in line for line in lines)


def test_rules_that_reject_nothing_are_said_to(judged):
    """Rules that were looked at and rejected nothing are told from rules that were not looked at."""
    assert block(judged, "clean.jsonl", "Quality rules") == [["none", "would", "reject", "a", "document"]]


def test_a_shard_shows_its_largest_languages_first(judged):
    """The share is that of the tokens."""
    assert block(judged, "odd.jsonl", "Languages")[2:] == [
        ["fr", "1", "70", "0.7000"],
        ["und", "1", "20", "0.2000"],
        ["en", "1", "10", "0.1000"],
    ]


@pytest.mark.parametrize(
    ("heading", "first", "last", "more"),
    [("Quality rules", "c4.r12", "c4.r03", "and 2 more rules;"), ("Languages", "l12", "l03", "and 3 more languages;")],
)
def test_ten_rules_and_ten_languages_are_listed_and_the_rest_counted(judged, heading, first, last, more):
    """The rule that rejects nothing is not among those left out."""
    lines = block(judged, "wide.jsonl", heading)
    start = next(index for index, line in enumerate(lines) if line[0].startswith("--")) + 1
    assert (lines[start][0], lines[start + 9][0]) == (first, last)
    assert " ".join(lines[start + 10]).startswith(more)


def test_a_shard_shows_its_drift_beside_what_chance_gives(judged):
    """The three numbers are in nats."""
    assert block(judged, "odd.jsonl", "Drift") == [
        ["KL", "0.2500", "nats"],
        ["JS", "0.0625", "nats"],
        ["KL", "by", "chance", "0.0010", "nats"],
    ]


def test_a_shard_shows_the_flags_that_show_gives_it(judged):
    """Text and JSON hold its own outliers alone, the values those of `dataaudit show`."""
    ordinal = ordinal_of(judged, "odd.jsonl")
    shown = json.loads(show_manifest(judged, None, as_json=True))["outliers"]
    assert {one["shard"] for one in shown} == {int(ordinal)}
    assert facts(judged, ordinal)["outliers"] == shown
    assert [one["column"] for one in shown] == ["bytes_per_token"]
    assert block(judged, ordinal, "Over 6 robust sd")[3:] == [["bytes_per_token", "1.500", "4", "-31.2"]]
    assert facts(judged, "0.jsonl")["outliers"] == []
    assert block(judged, "0.jsonl", "Over 6 robust sd") is None


def test_a_flagged_set_of_rules_is_a_share_of_documents(tmp_path):
    """A shard that a set rejects far more often than its split is explained in the same block."""
    rows = [shard(f"{index}.jsonl", documents=100, filters=counts(c4=10)) for index in range(6)]
    make(tmp_path / "m", [*rows, shard("odd.jsonl", documents=100, filters=counts(c4=60))])
    lines = block(tmp_path / "m", "odd.jsonl", "Over 6 robust sd")
    assert lines[3] == ["c4", "0.6000", "0.1000", "+15.8"]
    assert " ".join(lines[4]).startswith("A set of quality rules stands for the share of documents")


def test_a_rule_rejects_one_document_more_or_less_by_chance(tmp_path):
    """Of shards of a single document a set rejects all or nothing: none of them stands out."""
    rows = [shard(f"{index}.txt", documents=1, filters=counts(c4=int(index % 3 == 0))) for index in range(12)]
    make(tmp_path / "m", rows)
    assert json.loads(show_manifest(tmp_path / "m", None, as_json=True))["outliers"] == []


def test_of_equal_rates_of_duplicates_the_largest_shard_is_named(tmp_path):
    """A shard of one document with a copy elsewhere hides no shard that is a copy as a whole."""
    rows = [shard(f"{index}.txt", documents=1, exact_dup_rate=1.0) for index in range(8)]
    make(tmp_path / "m", [*rows, shard("whole.jsonl", documents=120, exact_dup_rate=1.0)])
    shown = json.loads(show_manifest(tmp_path / "m", None, as_json=True))
    assert shown["most_duplicated"][0]["uri"] == "whole.jsonl"


@pytest.mark.parametrize("place", ["off.jsonl", "gone.jsonl", "empty.jsonl"])
def test_a_stage_that_was_off_and_a_shard_without_documents_give_no_block(judged, place):
    """Null columns, an unread shard and an empty one have no rules, languages, drift or flags."""
    shown = facts(judged, place)
    assert (shown["rules"], shown["outliers"]) == (None, [])
    for heading in ("Quality rules", "Languages", "Drift", "Over 6 robust sd"):
        assert block(judged, place, heading) is None


def ordinal_of(folder, uri):
    """Return a shard's ordinal as a place."""
    return str(facts(folder, uri)["shard"]["shard"])


def test_a_shard_with_too_many_bad_records_says_what_most_of_them_are(folder):
    shown = " ".join(show_manifest(folder, as_json=False).split())
    assert "1 of 9 shards not read, too_many_bad_records, most invalid_json (50 B)" in shown
