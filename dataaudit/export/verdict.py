"""``dataaudit export verdict``: what a policy says of a manifest, as a statement for others, signed or not."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from pathlib import Path

from dataaudit import text as t
from dataaudit.errors import ConfigError, ManifestError
from dataaudit.export.names import dataset_name
from dataaudit.export.output import export_time, write_file
from dataaudit.export.statement import FAILED, PASSED, VERIFIER, statement
from dataaudit.extras import require
from dataaudit.gate.verdict import Verdict
from dataaudit.manifest.load import Manifest, load_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """How a statement is signed."""

    key: Path | None = None
    """File of a private key; None: with an identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What of a statement the caller may set."""

    time: str | None = None
    """When it was verified; see :func:`dataaudit.export.output.export_time`."""
    policy_uri: str | None = None
    resource_uri: str | None = None
    verifier: str | None = None


def signing_of(sign: bool, key: Path | None, identity: bool) -> Signing | None:
    """Return what the options ask for; None when nothing is to be signed.

    Raises:
        ConfigError: They do not go together.
    """
    if not sign:
        if key is not None or identity:
            raise ConfigError(f"{'--key' if key else '--identity'} says how to sign", "Add --sign, or leave it out.")
        return None
    if (key is not None) == identity:
        raise ConfigError("--sign needs either --key FILE or --identity")
    return Signing(key=key)


def judge_and_export(
    folder: Path, policy: Path, baseline: Path | None, out: Path, fail_on: str, about: About, signing: Signing | None
) -> str:
    """Judge a manifest and write the verdict; waivers are held against the day of the statement.

    Args:
        folder: The manifest.
        policy: File of the policy.
        baseline: Folder of an older manifest.
        out: The file.
        fail_on: ``fail`` or ``warn``.
        about: What the caller sets.
        signing: How it is signed.

    Raises:
        ConfigError: The policy is wrong, the key cannot be used, or the file not be written.
        ManifestError: A manifest is absent or damaged.
        StoreError: sigstore's services do not answer.
    """
    from dataaudit.gate.run import judge_manifest, read_policy

    time = export_time(about.time)
    rules = read_policy(policy)
    manifest = load_manifest(folder)
    older = None if baseline is None else load_manifest(baseline)
    day = dt.datetime.fromisoformat(time).date()
    verdict = judge_manifest(folder, rules, baseline=baseline, fail_on=fail_on, on=day)
    judged = verdict.subject.id, None if verdict.baseline is None else verdict.baseline.id
    if judged != (manifest.id, None if older is None else older.id):
        raise ManifestError(
            f"the manifest {folder}, or the baseline, was replaced while it was judged", "Run it again."
        )
    return export_verdict(verdict, manifest, older, out, replace(about, time=time), signing)


def export_verdict(
    verdict: Verdict, manifest: Manifest, baseline: Manifest | None, out: Path, about: About, signing: Signing | None
) -> str:
    """Write the statement of a verdict, or an envelope or bundle with it; return a line that says what was written.

    Args:
        verdict: Of the gate.
        manifest: That was judged.
        baseline: That it was compared with.
        out: The file.
        about: What the caller sets.
        signing: How it is signed.

    Raises:
        ConfigError: The file cannot be written, or the key not be used.
        StoreError: sigstore's services do not answer.
    """
    require("export verdict", "export", *(("sign",) if signing is not None and signing.key is None else ()))
    key = None
    if signing is not None and signing.key is not None:
        from dataaudit.export.keys import load_private_key

        key = load_private_key(signing.key)  # before anything is done: a wrong key is known at once
    payload = statement(
        verdict,
        manifest,
        baseline,
        time=export_time(about.time),
        policy_uri=about.policy_uri,
        resource_uri=about.resource_uri,
        verifier=about.verifier or VERIFIER,
    )
    if signing is None:
        data, how = payload + b"\n", "not signed"
    elif key is not None:
        from dataaudit.export.envelope import seal

        data, how = seal(payload, key), f"signed by the key {key.public.id}"
    else:
        from dataaudit.export.identity import bundle_of

        data, how = bundle_of(payload), "signed by an identity, as a sigstore bundle"
    write_file(out, data, manifest.folder)
    result = PASSED if verdict.passed else FAILED
    return f"{t.clean(str(out))}: {result}, {t.clean(dataset_name(manifest))} by {t.clean(verdict.policy)}; {how}\n"
