"""What a report may be given beside the manifest: a verdict, a difference, a quarantine list."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dataaudit import text as t
from dataaudit.diff.compare import load_pair
from dataaudit.diff.difference import Difference
from dataaudit.errors import ConfigError, ManifestError, ManifestMismatch
from dataaudit.gate.document import read_verdict
from dataaudit.gate.run import judge, policy_of
from dataaudit.gate.verdict import Verdict
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.metrics.pii.cells import hidden_records
from dataaudit.quarantine.list import load_quarantine
from dataaudit.quarantine.released import held_against
from dataaudit.quarantine.selection import COLUMNS, digests_of, row_digests_of
from dataaudit.render.line import Line, Name, join, say

if TYPE_CHECKING:
    from dataaudit.manifest.trust import Signer

VERDICT = "gate.json"


def verdict_of(
    manifest: Manifest,
    policy: Path | None,
    baseline: Path | None,
    given: Path | Verdict | None = None,
    signer: Signer | None = None,
) -> Verdict | None:
    """Return the verdict of a policy, or one that the gate wrote; None without either.

    Args:
        manifest: The manifest.
        policy: Policy to judge by.
        baseline: Older manifest, for rules of change.
        given: A verdict, or a ``gate.json``; without it, the one in the manifest's folder, if there is one.
            What a file says is not judged anew: who shows it says so.
        signer: Who has to have signed the baseline.

    Raises:
        SignatureRefused: The baseline is not signed by the signer.
        ConfigError: The policy cannot be read, or a verdict was given beside it.
        QuarantineError: The list that the policy names holds back what the manifest releases, or cannot be relied on.
        ManifestError: ``gate.json`` cannot be read.
        ManifestMismatch: ``gate.json`` speaks of another manifest.
    """
    if policy is not None and given is not None:
        raise ConfigError("--policy judges anew, --verdict shows what was judged", "Give one of them.")
    if policy is not None:
        older = None if baseline is None else load_manifest(baseline)
        if older is not None and signer is not None:
            from dataaudit.manifest.attestation import attested

            older = attested(older, signer)
        rules = policy_of(policy)
        return judge(manifest, rules, baseline=older, lists=held_against(manifest, rules, baseline=older))
    if given is None and not (manifest.folder / VERDICT).exists():
        return None
    path = manifest.folder / VERDICT if given is None else given
    if given is None and not (manifest.folder / VERDICT).is_file():  # a pipe would be waited for
        raise ManifestError(f"{path} is no file", "Take it away, or give --policy.")
    verdict = path if isinstance(path, Verdict) else read_verdict(path)
    if verdict.subject.id != manifest.id:
        name = "the verdict" if isinstance(path, Verdict) else path
        raise ManifestMismatch(
            f"{name} judges the manifest {verdict.subject.id}, this one is {manifest.id}",
            "Run `dataaudit gate` again, or give --policy.",
        )
    return verdict


def difference_of(manifest: Manifest, baseline: Path | None) -> Difference | None:
    """Return what changed since an older manifest; None without one.

    Raises:
        ManifestError: It is absent or damaged.
    """
    if baseline is None:
        return None
    return load_pair(baseline, manifest, hidden=hidden_records)


def quarantined_shards(manifest: Manifest, path: Path | None) -> dict[int, Line]:
    """Return the shards that a quarantine list holds back, with reasons in words, by ordinal.

    Raises:
        QuarantineError: The list cannot be read.
    """
    if path is None:
        return {}
    held = load_quarantine(path)
    found: dict[int, Line] = {}
    for row in manifest.table("shards", COLUMNS).to_pylist():
        if not (digests := digests_of(row)):
            continue
        if entries := held.shard_entries(**digests):
            codes = join(", ", (Name(code, 60) for code in sorted({str(one.reason) for one in entries})))
            until = max((str(one.until) for one in entries if one.until), default="")
            found[row["shard"]] = say("on the quarantine list: {}{}", codes, f", until {until}" if until else "")
        elif rows := held.rows(**row_digests_of(row)):
            found[row["shard"]] = f"{t.plural(len(rows), 'document')} of it on the quarantine list"
    return found
