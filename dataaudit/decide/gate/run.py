"""The gate from files: read policy and manifests, judge, and give the verdict.

Whether a record of ``dataaudit map`` proves that token files hold what a manifest audited; a policy may ask it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dataaudit.base.errors import ConfigError, ManifestMismatch
from dataaudit.base.text import clean, plural
from dataaudit.decide.gate.evaluate import evaluate
from dataaudit.decide.gate.evidence import Clues, evidence_columns, with_evidence
from dataaudit.decide.gate.facts import Facts, read_facts
from dataaudit.decide.gate.looked_for import check_detectors
from dataaudit.decide.gate.policy import Policy, check_values, load_policy
from dataaudit.decide.gate.scopes import check_entities, rule_problems, shard_statistics
from dataaudit.decide.gate.verdict import ListSeen, Verdict
from dataaudit.manifest.load import Manifest, differing_texts, text_columns
from dataaudit.manifest.token_proof import Faults, Kind, TokenProof, read_proof
from dataaudit.metrics.relations import hold_together


def check_proof(
    path: Path, manifest: Manifest, lists: Sequence[ListSeen], refuses: Collection[Kind] | None = None
) -> None:
    """Refuse a record that does not prove it of this manifest, all that it trains on, and the lists of today."""
    proof = read_proof(path)
    problem = _problem(proof, manifest, lists, refuses)
    if problem:
        raise ManifestMismatch(
            f"the record of token files {clean(str(path))} {problem}",
            f"Run `dataaudit map FILE... --manifest {clean(manifest.place)}` again, with the list in force.",
        )


def _problem(proof: TokenProof, manifest: Manifest, lists: Sequence[ListSeen], refuses: Collection[Kind] | None) -> str:
    """Return why a record does not count; nothing when it does."""
    if proof.manifest != manifest.id:
        return f"is of the manifest {proof.manifest}, judged is {manifest.id}"
    if proof.tokenizer != f"sha256:{manifest.core.tokenizer.sha256}":
        return "is of another tokenizer"
    trained = {split.name for split in manifest.core.splits if not split.held_out}
    if absent := sorted(trained - set(proof.splits)):
        return f"says nothing of the split {clean(absent[0])}"
    if lists and proof.quarantine not in {list_seen.digest for list_seen in lists}:
        return f"was made with another quarantine list: {proof.quarantine or 'none'}"
    return "" if proof.proves else _differences(proof, refuses)


def _differences(proof: TokenProof, refuses: Collection[Kind] | None) -> str:
    """Return which differences refuse a record; nothing when none of them does."""
    told = [
        f"{plural(found, 'document')} {name.replace('_', ' ')}"
        for name in Faults.model_fields
        if (found := getattr(proof.faults, name).documents)
        and (refuses is None or name == "held_out" or name in refuses)
    ]
    if refuses is not None and proof.matched and not told:
        unread = proof.unread_splits if proof.faults.extra.documents else ()
        return f"does not say whether documents of {clean(unread[0])} are in the files" if unread else ""
    return f"says that the files are not what was audited: {', '.join(told) or 'nothing was compared'}"


def policy_of(given: Path | Mapping[str, Any] | Policy) -> Policy:
    """Return a policy from a file, from what such a file says, or as it is, held against the catalogue of metrics."""
    if isinstance(given, Path):
        return load_policy(given, rule_problems, today())
    plain = given if isinstance(given, Policy) else dict(given)
    return check_values(plain, where="policy", more=rule_problems, on=today())


def judge(
    manifest: Manifest,
    policy: Policy,
    *,
    baseline: Manifest | None = None,
    fail_on: str = "fail",
    on: dt.date | None = None,
    lists: Sequence[ListSeen] = (),
) -> Verdict:
    """Judge a manifest, with evidence."""
    if policy.require_signature and not all(item.signed_by for item in (manifest, baseline) if item is not None):
        raise ConfigError(
            f"the policy {policy.policy} asks for signed manifests, and nobody said whose signature counts",
            "Name a key, --public-key FILE, or an identity, --identity WHO with --issuer URL.",
        )
    if policy.list_path is not None and not lists:
        raise ConfigError(
            f"the policy {policy.policy} names a quarantine list, and the manifest was not held against it",
            "Judge with `dataaudit gate`, in Python dataaudit.gate(...).",
        )
    if policy.proof_path is not None:
        check_proof(policy.proof_path, manifest, lists, policy.token_proof_refuses)
    facts = facts_for(manifest, policy)
    older = None if baseline is None else facts_for(baseline, policy, shards=False)
    for judged in (manifest, baseline) if policy.same_text_column else ():
        if judged is not None and (different := differing_texts(text_columns(judged))):
            raise ManifestMismatch(
                f"the policy {policy.policy} asks for the same text column in all splits; {judged.place}: {different}",
                "Look whether these are the texts; name the column of each split in a config, and build again.",
            )
    check_entities(policy, facts, older, f"policy {policy.policy}")
    check_detectors(policy, f"policy {policy.policy}")
    now = today()
    verdict = evaluate(policy, facts, older, on=max(on or now, now), fail_on=fail_on)
    if on is not None and not any(on <= waiver.expires < now for waiver in policy.waivers):
        verdict = replace(verdict, on=on.isoformat())  # the same on that day as now
    verdict = replace(verdict, quarantine_lists=tuple(lists))
    return with_evidence(verdict, Clues(manifest=manifest, facts=facts, baseline=baseline))


def today() -> dt.date:
    """Return the day by the clock, UTC."""
    return dt.datetime.now(dt.UTC).date()


def facts_for(manifest: Manifest, policy: Policy, *, shards: bool = True) -> Facts:
    """Read the facts that a policy asks for; those of shards only where asked for."""
    rules = policy.complete_rules
    hold_together(manifest, {rule.metric for rule in rules})
    kept = [statistic for rule in rules for statistic in shard_statistics(rule)]
    columns = evidence_columns(rules) | {name for statistic in kept for name in (statistic.column, statistic.of)}
    partial = any(rule.max_bad_records is not None for rule in rules)
    return read_facts(manifest, {rule.metric for rule in rules}, shards=columns if shards else (), partial=partial)
