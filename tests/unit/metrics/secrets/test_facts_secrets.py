"""What is shown of secrets: the confirmed ones first, above all else; small counts, too."""

import json

import pytest
from made_counts import docs, make_found
from made_manifest import make, shard
from shown import shown, told

from dataaudit.base.render.line import spell
from dataaudit.manifest.load import load_manifest
from dataaudit.metrics.secrets.definition import secrets, section, warning
from dataaudit.present.report.show import show_manifest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three shards: one with a confirmed key, one with a likely token and a placeholder."""
    made = tmp_path_factory.mktemp("secrets") / "m"
    documents = [
        *docs(20),
        *docs(2, "secrets:AWS_KEY.validated", "secrets:AWS_KEY.validated", shard=1),
        *docs(9, "secrets:JWT.pattern", "secrets:JWT.contextual!", shard=2, source="code"),
    ]
    make_found(made, documents)
    return made


def test_confirmed_secrets_stand_above_everything_else(folder):
    title, _, rest = show_manifest(folder, whole=True, as_json=False).partition("\n")
    warning = "WARNING: 4 secrets, confirmed by structure, in 2 documents (AWS_KEY 4). Revoke them"
    assert title
    assert " ".join(rest.split()).startswith(warning)


def test_kinds_are_listed_by_tier_the_confirmed_first(folder):
    shown = told(section(secrets(load_manifest(folder))))
    assert "AWS_KEY 4 0 0 2 0 <-- JWT 0 0 9 9 9 (all) 4 0 9 11 9 <--" in shown
    assert "1 train/001.jsonl 4 4" in shown
    assert "2 train/002.jsonl 0 9" in shown
    assert "code 0 9 9" in shown


def test_facts_hold_places_and_exact_small_counts(folder):
    found = json.loads(show_manifest(folder, None, as_json=True))["secrets"]
    assert found["total"]["validated"] == 4
    assert [(one["shard"], one["validated"]) for one in found["places"]] == [(1, 4), (2, 0)]


def test_without_confirmed_ones_there_is_no_warning(tmp_path):
    make_found(tmp_path / "m", docs(3, "secrets:JWT.pattern"))
    found = secrets(load_manifest(tmp_path / "m"))
    assert warning(found) == ""
    assert "JWT" in told(section(found))


def test_none_found_is_said_and_not_looked_for_is_not(tmp_path):
    make_found(tmp_path / "m", docs(3))
    assert "No secret was found." in told(section(secrets(load_manifest(tmp_path / "m"))))
    make(tmp_path / "n", [shard("a.jsonl")])
    assert secrets(load_manifest(tmp_path / "n")) is None
    assert shown(section(None)) == [] == list(warning(None))


def test_many_kinds_are_summed_up_in_the_warning(tmp_path):
    make_found(tmp_path / "m", docs(1, *(f"secrets:K{number}.validated" for number in range(5))))
    shown = spell(warning(secrets(load_manifest(tmp_path / "m"))))
    assert "5 secrets, confirmed by structure, in 1 document (K0 1, K1 1, K2 1, 2 more kinds)" in shown
