"""What the gate proposes: shards that failed a per-shard rule, with the numbers that decided."""

import dataclasses

import pytest
from made_manifest import make, shard
from quarantine_made import AUTHOR, digest

from dataaudit.base.errors import ManifestError
from dataaudit.decide.gate.policy import parse_policy
from dataaudit.decide.gate.verdict import Case, RuleResult, State, Subject, Verdict
from dataaudit.decide.quarantine.changes import accept, proposals, propose_shards, propose_verdict
from dataaudit.decide.quarantine.list import load_quarantine, read
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Scope

RULES = """
policy: p
rules:
  - {name: dups, metric: exact_dup_rate, stat: rate, unit: ratio, budget: 0.1, scope: {per: shard}}
  - {name: drift, metric: token_js_drift, stat: js, unit: nats, robust_sd: 6, scope: {per: shard}}
  - {name: pii, metric: pii_hit_rate, stat: hits, unit: hits/million tokens, budget: 1, scope: {per: shard}}
  - {name: leaks, metric: train_val_overlap, stat: span, unit: ratio, budget: 0.1, scope: {per: set}}
  - {name: whole, metric: near_dup_rate, stat: rate, unit: ratio, budget: 0.1}
"""
POLICY = parse_policy(RULES, where="test")


def case(rule, ordinal, *, state=State.FAILED, **more):
    """Return a case of a shard."""
    given = {"stat": "rate", "unit": "ratio", "value": 0.5, "judged": 0.5} | more
    return Case(rule=rule, scope=Scope(shard=ordinal), state=state, **given)


def verdict(*cases, subject="sha256:" + "1" * 64):
    """Return a verdict with these cases."""
    results = tuple(
        RuleResult(rule=rule, state=State.FAILED, counts={}, cases=tuple(one for one in cases if one.rule == rule.name))
        for rule in POLICY.rules
    )
    return Verdict(
        policy="p",
        policy_version="1",
        policy_digest=POLICY.digest,
        baseline=None,
        fail_on="fail",
        on="2026-11-21",
        subject=Subject(id=subject, name="x", version="1", documents=9, shards=3),
        rules=results,
        waivers=(),
    )


def row(number, **more):
    """Return a row of the table of shards."""
    return shard(f"{number}.jsonl", sha256=digest(number), rows_digest=digest(f"r{number}")) | more


ROWS = [row(0), row(1), row(2)]


def test_a_shard_that_failed_is_proposed_with_what_decided():
    """Target by digests; metric, value, limit, rule, policy and manifest as evidence; the metric as reason."""
    [request] = proposals(verdict(case("dups", 1)), ROWS, ()).requests
    assert (request.target.sha256, request.target.uri, request.reason) == (digest(1), "1.jsonl", "exact_dup_rate")
    evidence = request.evidence
    assert (evidence.value, evidence.limit, evidence.comparator, evidence.limit_kind) == (0.5, 0.1, "<=", "budget")
    assert (evidence.rule, evidence.policy, evidence.manifest) == ("dups", POLICY.digest, "sha256:" + "1" * 64)


def test_a_distance_is_told_beside_the_value():
    """The number that was judged is not the metric's."""
    [request] = proposals(verdict(case("drift", 0, value=0.3, judged=9.0)), ROWS, ()).requests
    assert (request.evidence.value, request.evidence.judged, request.evidence.limit_kind) == (0.3, 9.0, "robust_sd")


def test_only_cases_that_failed_and_are_not_waived_count():
    """A warning, what could not be evaluated, and rules of the whole dataset propose nothing."""
    others = [case("dups", 0, state=state) for state in State if state != State.FAILED]
    waived = dataclasses.replace(case("dups", 1), waived=True)
    whole = Case(rule="whole", stat="rate", scope=Scope(), state=State.FAILED)
    assert proposals(verdict(*others, waived, whole), ROWS, ()).requests == ()


def test_personal_data_of_one_shard_is_not_written_down():
    """The list lies in git; the number may speak of one person."""
    [request] = proposals(verdict(case("pii", 0, value=3.0, judged=3.0)), ROWS, ()).requests
    assert (request.evidence.value, request.evidence.judged, request.evidence.limit) == (None, None, 1.0)


def test_a_copy_of_another_shard_is_not_proposed_for_its_duplicates():
    """Both have one digest: an entry would hold back the text altogether. For other rules it is proposed."""
    rows = [row(0), row(1, sha256=digest(0), rows_digest=digest("r0")), row(2)]
    found = proposals(verdict(case("dups", 1), case("drift", 1), case("dups", 2)), rows, ())
    assert [(request.evidence.rule, request.target.uri) for request in found.requests] == [
        ("dups", "2.jsonl"),
        ("drift", "1.jsonl"),
    ]
    assert [(one.name, one.rule, one.why) for one in found.passed_over] == [("train/1.jsonl", "dups", "copy")]


def test_a_held_out_shard_is_not_proposed_for_its_duplicates():
    """It keeps them and training data loses them; other rules speak of the shard itself."""
    rows = [row(0), row(1, split="val"), row(2)]
    found = proposals(verdict(case("dups", 1), case("drift", 1)), rows, ["val"])
    assert [request.evidence.rule for request in found.requests] == ["drift"]
    assert [(one.name, one.why) for one in found.passed_over] == [("val/1.jsonl", "held_out")]


def test_a_shard_without_a_digest_is_passed_over():
    """It was not read; lists leave it out anyway."""
    rows = [row(0, sha256="", rows_digest=None, status="skipped", reason="absent")]
    assert [one.why for one in proposals(verdict(case("drift", 0)), rows, ()).passed_over] == ["unread"]


def test_proposals_are_written_once_and_hold_when_accepted(tmp_path):
    """Night after night the same verdict adds nothing; a verdict that proposes nothing still makes the list."""
    rows = {"m": ROWS, "later": [*ROWS, row(3)]}
    ids = {name: make(tmp_path / name, of_name) for name, of_name in rows.items()}
    manifest, later = (load_manifest(tmp_path / name) for name in rows)
    path = tmp_path / "q.jsonl"
    propose_verdict(path, verdict(subject=ids["m"]), manifest, AUTHOR)
    assert path.read_bytes() == b""
    assert read(path).entries == ()
    judged = verdict(case("dups", 1), case("drift", 1), subject=ids["m"])
    change, _ = propose_verdict(path, judged, manifest, AUTHOR)
    assert len(change.added) == 2
    again, _ = propose_verdict(path, verdict(case("dups", 1), subject=ids["later"]), later, AUTHOR)
    assert (again.added, again.known) == ((), change.added[:1])
    assert not load_quarantine(path).holds(sha256=digest(1))
    accept(path, None, AUTHOR)
    assert load_quarantine(path).holds(sha256=digest(1))
    assert len(read(path).entries) == 4


def test_the_gate_says_what_it_proposed_and_what_not(tmp_path):
    """How many, what to do next, and why a shard that failed is not among them; a replaced manifest is an error."""
    rows = [row(0), row(1, sha256=digest(0), rows_digest=digest("r0")), row(2)]
    identity = make(tmp_path / "m", rows)
    judged = verdict(case("dups", 1), case("dups", 2), subject=identity)
    path = tmp_path / "q.jsonl"
    first = propose_shards(path, judged, tmp_path / "m")
    assert first.startswith(f"quarantine: 1 proposal added to {path}\n  nothing is left out yet: ")
    assert "would be left out too: train/1.jsonl" in first
    again = propose_shards(path, judged, tmp_path / "m")
    assert "0 proposals added" in again
    assert f"that leak: dataaudit quarantine apply {path} --manifest {tmp_path / 'm'} --out DIR --documents" in again
    kept = [one if one.rule.name != "leaks" else dataclasses.replace(one, state=State.PASSED) for one in judged.rules]
    assert "leak" not in propose_shards(path, dataclasses.replace(judged, rules=tuple(kept)), tmp_path / "m")
    with pytest.raises(ManifestError, match="was replaced while it was judged"):
        propose_shards(path, verdict(case("dups", 2)), tmp_path / "m")
