"""A policy that demands a record of token files: it has to be of this manifest, its splits and lists, and prove it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dataaudit.errors import ManifestError, ManifestMismatch
from dataaudit.gate.run import judge, policy_of
from dataaudit.gate.verdict import ListSeen
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.token_proof import Faults, TokenProof, read_proof

DEMO = load_manifest(Path(__file__).parents[3] / "manifests/demo")
NONE = {"documents": 0, "tokens": 0, "named": []}
ONE = {"documents": 1, "tokens": 3, "named": []}


def record(**changes):
    """Return a record that proves the demo's manifest."""
    faults = dict.fromkeys(Faults.model_fields, NONE)
    made = {
        "schema": {"name": "dataaudit-token-proof", "version": 1},
        "tool": "1",
        "at": "2026-11-23T20:00:00+00:00",
        "manifest": DEMO.id,
        "tokenizer": f"sha256:{DEMO.core.tokenizer.sha256}",
        "quarantine": "",
        "applied": "",
        "splits": [split.name for split in DEMO.core.splits],
        "files": [],
        "end_token": 0,
        "begin_token": None,
        "any_order": False,
        "expected": 5,
        "found": 5,
        "matched": 5,
        "matched_tokens": 50,
        "empty": 0,
        "faults": faults,
        "result": "proven",
        "exit_code": 0,
    }
    return made | changes


def judged(folder, made, lists=()):
    """Judge the demo by a policy that demands a record."""
    (folder / "proof.json").write_text(json.dumps(made))
    rule = {"name": "r", "metric": "documents", "stat": "count", "unit": "documents", "comparator": ">=", "budget": 1}
    policy = policy_of({"policy": "p", "rules": [rule], "token_proof": "proof.json"}).from_folder(folder)
    return judge(DEMO, policy, lists=lists)


def test_a_record_that_proves_it_passes(tmp_path):
    """And the key is part of the policy's digest only where it stands."""
    assert judged(tmp_path, record()).policy == "p"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"manifest": "sha256:" + "0" * 64}, "is of the manifest sha256:000"),
        ({"tokenizer": "sha256:" + "0" * 64}, "is of another tokenizer"),
        ({"splits": ["val"]}, "says nothing of the split train"),
        (
            {"faults": dict.fromkeys(Faults.model_fields, NONE) | {"held_back": ONE}, "result": "differs"}
            | {"exit_code": 1},
            "not what was audited: 1 document held back",
        ),
        ({"expected": 0, "found": 0, "matched": 0, "result": "differs", "exit_code": 1}, "nothing was compared"),
    ],
)
def test_a_record_that_proves_nothing_of_this_is_refused(tmp_path, changes, said):
    """Exit code 1, with the reason."""
    with pytest.raises(ManifestMismatch, match=said):
        judged(tmp_path, record(**changes))


def test_the_list_of_the_gate_has_to_be_that_of_the_record(tmp_path):
    """A list that has grown since makes the record old."""
    seen = ListSeen(digest="sha256:" + "1" * 64, heads=())
    with pytest.raises(ManifestMismatch, match="another quarantine list: none"):
        judged(tmp_path, record(), [seen])
    assert judged(tmp_path, record(quarantine=seen.digest), [seen]).policy == "p"


def test_a_record_that_is_absent_damaged_or_contradicts_itself_is_none(tmp_path):
    """Exit code 2: nobody can say what it would prove."""
    with pytest.raises(ManifestError, match="cannot be read"):
        read_proof(tmp_path / "gone.json")
    wrong = [{"result": "differs"}, {"exit_code": 1}, {"found": 6}, {"matched": 4}, {"more": 1}, {"manifest": "x"}]
    wrong += [{"faults": dict.fromkeys(Faults.model_fields, NONE) | {name: ONE}} for name in Faults.model_fields]
    for changes in wrong:
        with pytest.raises(ManifestError, match="no record of token files"):
            judged(tmp_path, record(**changes))
    (tmp_path / "x.json").write_bytes(b"{")
    with pytest.raises(ManifestError, match="no record of token files"):
        read_proof(tmp_path / "x.json")


def test_another_order_is_no_fault_when_it_was_not_asked_for(tmp_path):
    """A record may count moved documents and still prove, if it says that any order is fine."""
    faults = dict.fromkeys(Faults.model_fields, NONE) | {"reordered": ONE}
    assert TokenProof.model_validate(record(faults=faults, any_order=True)).proves
