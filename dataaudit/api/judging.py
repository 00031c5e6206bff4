"""Judges, compares, reports and signs manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dataaudit.api.arguments import (
    Day,
    PathLike,
    day_of,
    expect,
    load,
    manifest_path,
    optional_path,
    path_of,
    signer_of,
)
from dataaudit.base.errors import ConfigError
from dataaudit.manifest.load import Manifest as LoadedManifest

if TYPE_CHECKING:
    from dataaudit.decide.diff.difference import Difference
    from dataaudit.decide.gate.evidence import Failing
    from dataaudit.decide.gate.policy import Policy
    from dataaudit.decide.gate.verdict import Verdict


def gate(
    manifest: PathLike | LoadedManifest,
    policy: PathLike | Mapping[str, Any] | Policy,
    *,
    baseline: PathLike | LoadedManifest | None = None,
    fail_on: Literal["fail", "warn"] = "fail",
    on: Day | None = None,
    public_key: PathLike | None = None,
    identity: str | None = None,
    issuer: str | None = None,
    quarantine: PathLike | None = None,
) -> Verdict:
    """Judge a manifest by a policy.

    Args:
        manifest: A loaded manifest, or its folder.
        policy: File of a policy, the name of a built-in policy (``release-gate``, ``strict``, ``canary``), or the
            content of such a file, as a mapping; see ``dataaudit explain gate``.
        baseline: An older manifest that rules of change compare with.
        fail_on: Least severity that stops a release: ``fail`` or ``warn``.
        on: The day, UTC, for which waivers are checked; today when None.
        public_key: Key that has to have signed manifest and baseline, by ``attestation.json``; or
        identity: who has to have signed them, as in sigstore's certificate, with
        issuer: who vouches for that identity.
        quarantine: Quarantine list: what it leaves out today may not be in the manifest's numbers, and it has to have
            every line that the builds of manifest and baseline saw in it. The policy's own list counts as well.

    Returns:
        The verdict: ``passed``, whether the manifest may be released; ``exit_code``, that of ``dataaudit gate``;
        ``rules``, every rule with its cases. A verdict that fails is no error.

    Raises:
        ConfigError: The policy is wrong, or an argument has no such value; or the policy asks for a signature, and
            nobody is named.
        SignatureRefused: A manifest is not signed, or not by the named signer.
        ReleasedHeldBack: The manifest has in its numbers what the list leaves out.
        QuarantineError: The list is absent, damaged, of another version, or has lost lines.
        ManifestError: A manifest is absent or damaged.
        ManifestMismatch: A table is not the published one.

    Example:
        >>> gate("manifests/demo", "release-gate").passed
        False
    """
    from dataaudit.base.yamlfile import nearest
    from dataaudit.decide.gate import policy_path
    from dataaudit.decide.gate.policy import Policy
    from dataaudit.decide.gate.run import judge, policy_of
    from dataaudit.decide.quarantine.released import compared_lists

    if fail_on not in (known := ("fail", "warn")):
        raise ConfigError(f"fail_on: no `{fail_on}`{nearest(str(fail_on), known)}")
    rules = policy_of(policy if isinstance(policy, Mapping | Policy) else policy_path(path_of(policy, "policy")))
    older = None if baseline is None else load(baseline)
    subject = load(manifest)
    signer = signer_of(public_key, identity, issuer)
    if signer is not None:
        from dataaudit.manifest.trust import attested

        subject, older = attested(subject, signer), None if older is None else attested(older, signer)
    lists = compared_lists(subject, rules, optional_path(quarantine, "quarantine"), older)
    return judge(subject, rules, baseline=older, fail_on=fail_on, on=day_of(on, "on"), lists=lists)


def failing(
    manifest: PathLike | LoadedManifest, verdict: Verdict, *, baseline: PathLike | LoadedManifest | None = None
) -> Iterator[Failing]:
    """Yield where each rule broke: the documents that stop a release, as shard and row, or the shards.

    Args:
        manifest: The manifest that was judged, loaded or its folder.
        verdict: Its verdict, from :func:`gate`.
        baseline: What it was compared with: a shift of the mixture, languages or tokens names the shards that are new.

    Returns:
        A named tuple for each: ``rule``, ``metric``, ``split``, ``shard``, ``row``, ``kind``, ``certain``, ``why``; the
        rules in the policy's order, then shards, then rows. Nothing for a verdict that passes. ``dataaudit gate
        --failing`` writes the same; ``dataaudit explain documents-that-broke-a-rule`` explains each table.

    Raises:
        ManifestMismatch: The verdict is of another manifest, or a table is not the published one.
        ManifestError: The manifest is absent or damaged.

    Example:
        >>> next(failing("manifests/demo", gate("manifests/demo", "release-gate"))).kind
        'bytes not read'
    """
    from dataaudit.decide.gate import evidence
    from dataaudit.decide.gate.verdict import Verdict

    expect(verdict, "verdict", Verdict, "a Verdict, as gate returns it")
    return evidence.failing(verdict, load(manifest), None if baseline is None else load(baseline))


def diff(old: PathLike | LoadedManifest, new: PathLike | LoadedManifest) -> Difference:
    """Compare two manifests: what changed, and which version bump it means.

    Args:
        old: The older manifest, loaded or its folder.
        new: The newer one.

    Returns:
        The difference: ``equal``, ``proposal``, ``shards``, ``metrics`` with intervals, ``drifts``, ``settings``.

    Raises:
        ManifestError: A manifest is absent, damaged, or not as it was published.

    Example:
        >>> diff("manifests/demo", "manifests/demo").equal
        True
    """
    from dataaudit.decide.diff.compare import load_pair, no_mismatch

    with no_mismatch():
        was, now = (
            manifest if isinstance(manifest, LoadedManifest) else manifest_path(manifest, "manifest")
            for manifest in (old, new)
        )
    return load_pair(was, now)


def report(
    manifest: PathLike | LoadedManifest,
    out: PathLike,
    *,
    baseline: PathLike | None = None,
    policy: PathLike | None = None,
    verdict: PathLike | Verdict | None = None,
    quarantine: PathLike | None = None,
    public_key: PathLike | None = None,
    identity: str | None = None,
    issuer: str | None = None,
) -> Path:
    """Write the report of a manifest: one HTML file that opens from disk and fetches nothing.

    Args:
        manifest: A loaded manifest, or its folder.
        out: The file; an older one is replaced in one step.
        baseline: Folder of an older manifest: the report lists what changed.
        policy: File of a policy to judge by, or the name of a built-in policy.
        verdict: Instead of a policy: what :func:`gate` returned, or a ``gate.json``; without both, the ``gate.json`` in
            the manifest's folder is shown when it is there.
        quarantine: Quarantine list whose shards are marked.
        public_key: As of :func:`gate`, of a policy that asks for a signature; or
        identity: as there, with
        issuer: as there.

    Returns:
        The path of the file.

    Raises:
        ConfigError: ``out`` cannot be written, or a policy and a verdict are given.
        ManifestError: A manifest is absent or damaged.
        ManifestMismatch: The verdict is of another manifest.
        SignatureRefused: A manifest is not signed, or not by the named signer.
        ReleasedHeldBack: The manifest has in its numbers what the policy's list leaves out.
        QuarantineError: A list is absent, damaged, of another version, or has lost lines.

    Example:
        >>> report("manifests/demo", "report.html").name
        'report.html'
    """
    from dataaudit.decide.gate import policy_path
    from dataaudit.decide.gate.verdict import Verdict
    from dataaudit.present.report.page import Given, make_report

    path = path_of(out, "out")
    given = Given(
        baseline=None if baseline is None else manifest_path(baseline, "baseline"),
        policy=None if policy is None else policy_path(path_of(policy, "policy")),
        verdict=verdict if isinstance(verdict, Verdict) else optional_path(verdict, "verdict"),
        quarantine=optional_path(quarantine, "quarantine"),
        signer=signer_of(public_key, identity, issuer),
    )
    make_report(load(manifest), path, given)
    return path


def sign(manifest: PathLike | LoadedManifest, *, key: PathLike | None = None, identity: bool = False) -> Path:
    """Check a manifest whole and put a signature of its id and of ``manifest.json`` into its folder.

    It vouches for what was built, whatever state that was built from: ``build(..., trust_state=False)``, or with a
    ``state_key``, believes nothing that others may have prepared.

    Args:
        manifest: A loaded manifest, or its folder.
        key: File of a private key, ed25519 or ECDSA, PEM; its pass phrase is read from ``DATAAUDIT_KEY_PASSWORD``. Or
        identity: whether to sign as this CI job, or as who logs in, with sigstore.

    Returns:
        The path of ``attestation.json``; an older one was replaced.

    Raises:
        ConfigError: Not just one of key and identity is given, the key cannot be used, or the signature not be written.
        ManifestError: The manifest is absent or damaged.
        ManifestMismatch: It is not as it was published, and is not signed.
        StoreError: sigstore's services do not answer.

    Example:
        >>> sign("manifests/mine", key="build.pem").name
        'attestation.json'
    """
    if (key is not None) == bool(identity):
        raise ConfigError("sign needs either key=FILE or identity=True")
    from dataaudit.manifest.replace import ATTESTATION
    from dataaudit.manifest.signing import Signing, load_seal
    from dataaudit.manifest.trust import sign_manifest

    loaded = load(manifest)
    seal = load_seal(Signing(key=optional_path(key, "key")), loaded.folder)
    sign_manifest(loaded, seal)
    return loaded.folder / ATTESTATION
