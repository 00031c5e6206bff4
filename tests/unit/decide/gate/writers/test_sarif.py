"""SARIF: read by sarif-tools and by strict models, within GitHub's limits, red exactly when the gate is."""

import gzip
import json
import os
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import jsonschema
import pytest
import sarif_pydantic
from hypothesis import given, settings
from lanes import examples
from made_verdict import HOSTILE, case, hostile, many, mixed, result, rule, subject, verdict, verdicts
from sarif import loader

from dataaudit.decide.gate.verdict import State
from dataaudit.decide.gate.writers import sarif as writer
from dataaudit.decide.gate.writers.annotations import PolicyFile
from dataaudit.decide.gate.writers.sarif import MOST_RESULTS, sarif_json
from dataaudit.manifest.metric import Scope

PLACE = PolicyFile(name="gates/policy.yaml", in_repository="gates/policy.yaml", lines={"copied-spans": 12})
SCHEMA = os.environ.get("DATAAUDIT_SARIF_SCHEMA")


def run_of(made, **more):
    """Return the only run."""
    return json.loads(sarif_json(made, PLACE, **more))["runs"][0]


def results(made, level=None):
    """Return the results of a level, or all."""
    return [one for one in run_of(made)["results"] if level in {None, one["level"]}]


def assert_valid(content):
    """Hold a file against the models, GitHub's demands, and the standard's schema where it is at hand."""
    whole = json.loads(content)
    sarif_pydantic.Sarif.model_validate(whole)
    for run in whole["runs"]:
        ids = [one["id"] for one in run["tool"]["driver"]["rules"]]
        assert len(ids) == len(set(ids))
        assert all(one["help"]["text"] and one["shortDescription"]["text"] for one in run["tool"]["driver"]["rules"])
        for one in run["results"]:
            assert ids[one["ruleIndex"]] == one["ruleId"]
            place = one["locations"][0]["physicalLocation"]
            assert place["artifactLocation"]["uri"]
            assert place["region"]["startLine"] >= 1
            assert one["message"]["text"]
    if SCHEMA:
        jsonschema.Draft7Validator(
            json.loads(Path(SCHEMA).read_text()), format_checker=jsonschema.FormatChecker()
        ).validate(whole)


def test_sarif_tools_count_what_the_gate_says(tmp_path):
    """A program of others reads the file: levels, rules and lines."""
    path = tmp_path / "gate.sarif"
    path.write_bytes(sarif_json(mixed(), PLACE))
    file = loader.load_sarif_file(str(path))
    assert {
        level: len(file.get_records()) and sum(one["Severity"] == level for one in file.get_records())
        for level in ("error", "warning", "note")
    } == {"error": 4, "warning": 1, "note": 1}
    first = file.get_records()[0]
    assert (first["Location"], first["Line"]) == ("gates/policy.yaml", 12)
    assert_valid(path.read_bytes())


def test_worst_come_first():
    """Failures, what could not be evaluated, warnings, waived ones."""
    shown = [one["message"]["text"].partition(":")[0] for one in results(mixed())]
    assert shown == ["FAIL", "FAIL", "NOT EVALUATED", "WARN", "WAIVED", "expired"]


def test_a_waived_case_is_a_suppressed_note():
    """With the reason, the owner and the last day."""
    (one,) = [one for one in results(mixed()) if "suppressions" in one]
    assert one["level"] == "note"
    assert one["suppressions"] == [
        {
            "kind": "external",
            "status": "accepted",
            "justification": "known, and agreed on (owner data team, expires 2027-01-31)",
        }
    ]


def test_a_result_points_at_the_shards_that_hold_most():
    """As related locations, below a base of their own."""
    (place,) = results(mixed())[0]["relatedLocations"]
    assert place["physicalLocation"]["artifactLocation"] == {"uri": "train/part-3.jsonl", "uriBaseId": "DATA"}
    assert place["message"]["text"] == "train/part-3.jsonl: 12 documents with copied spans"


def test_fingerprints_are_those_of_the_cases():
    """The same violation is the same alert in the next run."""
    assert results(mixed())[0]["partialFingerprints"] == {
        "primaryLocationLineHash": "0123456789abcdef:1",
        "dataauditCase/v1": "0123456789abcdef",
    }


def test_only_web_addresses_are_help_links():
    """A path is text, and so is what only looks like an address."""
    addresses = {
        "https://wiki.example/a?b=c#d": True,
        "runbooks/leak.md": False,
        "javascript:alert(1)": False,
        "https://user:secret@wiki.example/": False,
        "https://wiki.example/a b": False,
        "https://wiki.example/)": False,
        "HTTPS://wiki.example": False,
        "https://": False,
        "https://wiki.example/" + "a" * 900: True,
    }
    for address, linked in addresses.items():
        (descriptor, *_) = run_of(verdict(result(rule(runbook=address), case())))["tool"]["driver"]["rules"]
        assert ("helpUri" in descriptor) is linked, address


@pytest.mark.tables
def test_too_many_results_are_left_out_and_counted():
    """The worst of every rule stay."""
    noisy = many(100_000).rules[0]
    quiet = result(rule("quiet"), case(of="quiet", scope=Scope(set="val")))
    run = run_of(verdict(noisy, quiet))
    left = run["properties"]["resultsLeftOut"]
    assert len(run["results"]) <= MOST_RESULTS
    assert left == 100_001 - len(run["results"])
    assert any(one["ruleId"] == "quiet" for one in run["results"])
    (told,) = run["invocations"][0]["toolExecutionNotifications"]
    assert f"{left:,} results are left out" in told["message"]["text"]


def test_a_file_that_is_too_large_is_made_smaller():
    """Fewer results, until the compressed file fits."""
    made = many(400)
    content = sarif_json(made, PLACE, most_bytes=3000)
    assert len(gzip.compress(content)) <= 3000
    run = json.loads(content)["runs"][0]
    assert run["properties"]["resultsLeftOut"] == 400 - len(run["results"]) > 0


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_neither_link_nor_leave_their_base(name):
    """Addresses stay below the base; brackets of a message are escaped; the file is valid."""
    content = sarif_json(hostile(name), PLACE)
    assert_valid(content)
    for one in json.loads(content)["runs"][0]["results"]:
        plain = one["message"]["text"].replace("\\\\", "").replace("\\[", "").replace("\\]", "")
        assert "[" not in plain
        assert "]" not in plain
        for place in one.get("relatedLocations", []):
            uri = place["physicalLocation"]["artifactLocation"]["uri"]
            assert urlsplit(uri)[:2] == ("", "")
            assert urljoin("https://base.example/a/b/", uri).startswith("https://base.example/a/b/")


def test_an_empty_corpus_has_an_error():
    """Also when no rule fails."""
    (one,) = results(verdict(result(rule(), case(State.PASSED)), subject=subject(documents=0)))
    assert (one["ruleId"], one["level"]) == ("gate/verdict", "error")


@given(verdicts())
@settings(max_examples=examples(60), deadline=None)
def test_there_is_an_error_exactly_when_the_gate_stops(made):
    """For any verdict the file is valid; results of level error if and only if the exit code is not 0."""
    content = sarif_json(made, PLACE)
    assert_valid(content)
    levels = [one["level"] for one in json.loads(content)["runs"][0]["results"]]
    assert ("error" in levels) == (not made.passed)


def test_a_policy_outside_of_the_repository_has_no_base():
    """A viewer does not look for it in the repository."""
    run = json.loads(sarif_json(mixed(), PolicyFile(name="policy.yaml")))["runs"][0]
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "policy.yaml"}


def test_rules_of_our_own_cannot_be_a_policys():
    """Names of a policy's rules hold no slash."""
    assert all("/" in name for name in (writer._EXPIRED, writer._VERDICT))
