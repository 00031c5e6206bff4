"""A policy that demands a record of token files: it has to be of this manifest, its splits and lists, and prove it."""

import json
from pathlib import Path
from typing import get_args

import pytest

from dataaudit.base.errors import ConfigError, ManifestError, ManifestMismatch
from dataaudit.decide.gate.run import judge, policy_of
from dataaudit.decide.gate.verdict import ListSeen
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.token_proof import Faults, Kind, TokenProof, read_proof

DEMO = load_manifest(Path(__file__).parents[4] / "manifests/demo")
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


def judged(folder, made, lists=(), refuses=None):
    """Judge the demo by a policy that demands a record."""
    (folder / "proof.json").write_text(json.dumps(made))
    rule = {"name": "r", "metric": "documents", "stat": "count", "unit": "documents", "comparator": ">=", "budget": 1}
    asked = {"token_proof": "proof.json"} | ({} if refuses is None else {"token_proof_refuses": refuses})
    policy = policy_of({"policy": "p", "rules": [rule], **asked}).from_folder(folder)
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


@pytest.mark.parametrize(
    ("refuses", "fault", "said"),
    [
        (["held_out"], "missing", ""),
        (["held_out"], "extra", ""),
        (["missing", "truncated"], "reordered", ""),
        (["missing", "truncated"], "truncated", "1 document truncated"),
        (["missing"], "held_out", "1 document held out"),
        (["held_out"], "held_out", "1 document held out"),
    ],
)
def test_a_policy_names_what_refuses_and_held_out_documents_always_do(tmp_path, refuses, fault, said):
    """Whoever trains on a part of the corpus can still ask that nothing of a test is in it."""
    faults = dict.fromkeys(Faults.model_fields, NONE) | {fault: ONE}
    made = record(faults=faults, result="differs", exit_code=5 if fault == "held_out" else 1)
    if said:
        with pytest.raises(ManifestMismatch, match=said):
            judged(tmp_path, made, refuses=refuses)
    else:
        assert judged(tmp_path, made, refuses=refuses).policy == "p"
        with pytest.raises(ManifestMismatch, match="not what was audited"):
            judged(tmp_path, made)
    unread = made | {"unread_splits": ["val"]}
    if fault == "extra":
        with pytest.raises(ManifestMismatch, match="does not say whether documents of val are in the files"):
            judged(tmp_path, unread, refuses=refuses)


def test_kinds_of_difference_are_asked_of_a_record_and_are_its_own(tmp_path):
    """Wrong use is an error of the policy."""
    assert get_args(Kind) == tuple(Faults.model_fields)
    rule = {"name": "r", "metric": "documents", "stat": "count", "unit": "documents", "comparator": ">=", "budget": 1}
    for more in ({"token_proof_refuses": ["missing"]}, {"token_proof": "p.json", "token_proof_refuses": ["absent"]}):
        with pytest.raises(ConfigError, match="token_proof_refuses"):
            policy_of({"policy": "p", "rules": [rule], **more})


def test_the_list_of_the_gate_has_to_be_that_of_the_record(tmp_path):
    """A list that has grown since makes the record old."""
    seen = ListSeen(digest="sha256:" + "1" * 64, lines=())
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
