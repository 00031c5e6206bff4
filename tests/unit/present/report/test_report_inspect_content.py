"""`dataaudit inspect` of shards and documents that hold personal data, secrets, or what a judge found."""

import json

import pytest
from made_counts import docs, make_found

from dataaudit.present.report.inspect import inspect_place


def finding(name, row, *, detector="pii", tier="validated", shard=0, start=0, reserved=False):
    """Return a row of the table findings."""
    return {
        "detector": detector,
        "class": name,
        "tier": tier,
        "shard": shard,
        "row": row,
        "start": start,
        "end": start + 7,
        "score": 0.85,
        "reserved": reserved,
        "hmac": b"0123456789abcdef",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two shards; document 0:3 holds one of everything, 0:4 a dozen e-mail addresses."""
    made = tmp_path_factory.mktemp("content") / "m"
    judged = {"tier": "judged"}
    findings = [
        finding("EMAIL_ADDRESS", 3, start=30),
        finding("EMAIL_ADDRESS", 3, start=50, reserved=True),
        finding("JWT", 3, detector="secrets", tier="pattern", start=9),
        finding("toxicity", 3, detector="detoxify original", **judged),
        finding("PERSON", 3, detector="presidio", **judged),
        *(finding("PERSON", row, detector="presidio", **judged) for row in range(10, 30)),
        *(finding("EMAIL_ADDRESS", 4, start=start) for start in range(0, 120, 10)),
    ]
    documents = [
        *docs(20, "EMAIL_ADDRESS.validated", "secrets:JWT.pattern"),
        *docs(20, shard=1),
        *docs(2, "EMAIL_ADDRESS.validated", shard=1),
    ]
    make_found(made, documents, more={"tables": {"findings": findings}})
    return made


def shown(folder, place):
    """Return the JSON of a place, and its text with single blanks."""
    return json.loads(inspect_place(folder, place, as_json=True)), " ".join(
        inspect_place(folder, place, as_json=False).split()
    )


def test_findings_of_a_document_have_place_class_tier_and_score(folder):
    value, text = shown(folder, "0:3")
    found = value["row"]["found"]["findings"]
    assert found["count"] == 5
    assert set(found["first"][0]) == {"detector", "class", "tier", "start", "end", "score", "reserved"}
    assert "secrets JWT pattern 9 16 0.85 pii EMAIL_ADDRESS validated 30 37 0.85" in text
    assert "pii EMAIL_ADDRESS validated 50 57 0.85 reserved" in text
    assert "detoxify original toxicity judged 0 7 0.85" in text
    assert "holding personal data" not in text


def test_a_document_without_findings_is_not_listed(folder):
    assert "Not listed as: an exact duplicate; holding personal data; holding a secret." in shown(folder, "0:9")[1]


def test_ten_findings_are_listed_and_the_rest_counted(folder):
    value, text = shown(folder, "0:4")
    assert value["row"]["found"]["findings"]["not_listed"] == 2
    assert "and 2 more in the table `findings`" in text


def test_a_shard_shows_secrets_as_they_are_and_small_counts_of_personal_data_not(folder):
    value, text = shown(folder, "1")
    assert value["shard"]["pii"] == [
        {
            "entity": "EMAIL_ADDRESS",
            "tier": "validated",
            "hits": None,
            "documents": None,
            "suppressed": True,
            "fewer_than": None,
        }
    ]
    assert value["shard"]["pii_documents"] is value["shard"]["pii_hits"] is None
    assert "EMAIL_ADDRESS * 0 0" in text
    value, text = shown(folder, "0")
    assert value["shard"]["secrets"] == [{"entity": "JWT", "tier": "pattern", "hits": 20, "documents": 20}]
    assert "JWT 0 0 20" in text


def test_a_shard_shows_what_judges_found_in_it(folder):
    value, text = shown(folder, "0")
    assert value["judged"] == [
        {"judge": "detoxify original", "class": "toxicity", "hits": 1, "documents": 1},
        {"judge": "presidio", "class": "PERSON", "hits": 20, "documents": 20},
    ]
    assert "Found by a judge in the sampled documents" in text


def test_no_digest_of_a_finding_is_printed(folder):
    """The keyed digests are for joins of tables, by those who have the key."""
    assert "0123456789abcdef" not in inspect_place(folder, "0:3", as_json=True)
