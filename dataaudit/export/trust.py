"""``dataaudit verify --signature``: whether somebody who is trusted said PASSED of exactly this manifest.

In the order of SLSA's own steps: the signature by the key or identity that was given; the subject against the manifest;
the predicate's type; the result. Beyond them: the bytes of ``manifest.json``, and the policy when one is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataaudit import text as t
from dataaudit.errors import ConfigError
from dataaudit.export.envelope import PAYLOAD_TYPE, BadEnvelope, unseal
from dataaudit.export.names import digest_of
from dataaudit.export.output import read_file
from dataaudit.export.statement import PASSED, BadStatement, Summary, summary
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.verify import Problem

CODES = frozenset({"signature", "statement", "subject", "manifest_file", "verdict", "policy"})
"""Codes of problems with a signed verdict; the manifest itself may be well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What the user trusts, and what was signed."""

    signature: Path
    """The signed verdict."""
    public_key: Path | None = None
    """Of who signs verdicts; or:"""
    identity: str | None = None
    """Who signs verdicts, as in the certificate of sigstore, and"""
    issuer: str | None = None
    """who vouches for that identity."""
    policy: Path | None = None
    """The policy that has to have been used; any when None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedVerdict:
    """What a signed verdict says; nothing of it when the signature does not hold."""

    signer: str
    """Who is trusted: ``key 1a2b...`` or an identity with its issuer."""
    summary: Summary | None


def trust_of(
    signature: Path | None,
    public_key: Path | None,
    identity: str | None,
    issuer: str | None,
    policy: Path | None,
) -> Trust | None:
    """Return what the options of verify ask for; None when no signature is to be checked.

    Raises:
        ConfigError: They do not go together.
    """
    others = {
        "--public-key": public_key,
        "--identity": identity,
        "--issuer": issuer,
        "--policy": policy,
    }
    if signature is None:
        given = [name for name, value in others.items() if value is not None]
        if given:
            raise ConfigError(f"{given[0]} says what a signature has to be, but there is none", "Add --signature FILE.")
        return None
    if (public_key is None) == (identity is None):
        raise ConfigError(
            "--signature needs either --public-key FILE or --identity WHO with --issuer URL",
            "A signature says nothing without knowing whose it has to be.",
        )
    if (identity is None) != (issuer is None):
        raise ConfigError("--identity and --issuer go together", "Anybody can have an identity from some other issuer.")
    return Trust(signature=signature, public_key=public_key, identity=identity, issuer=issuer, policy=policy)


def check_trust(manifest: Manifest, trust: Trust) -> tuple[SignedVerdict, list[Problem]]:
    """Check a signed verdict against a manifest.

    Returns:
        What the verdict says, and everything that is wrong with it.

    Raises:
        ConfigError: A file that the user named cannot be read, or sigstore is asked for and not installed.
        StoreError: The roots of trust of sigstore cannot be had.
    """
    signer, payload, problem = _payload(trust)
    if payload is None:
        return SignedVerdict(signer=signer, summary=None), [Problem("signature", problem)]
    try:
        said = summary(payload)
    except BadStatement as error:
        return SignedVerdict(signer=signer, summary=None), [Problem("statement", str(error))]
    verdict = SignedVerdict(signer=signer, summary=said)
    return verdict, [*_about(manifest, said), *_result(said), *_policy(said, trust.policy)]


def _payload(trust: Trust) -> tuple[str, bytes | None, str]:
    """Return who is trusted, and the payload or why there is none."""
    data = read_file(trust.signature, "the signature")
    try:
        if trust.public_key is not None:
            from dataaudit.export.keys import load_public_key

            key = load_public_key(trust.public_key)
            return f"key {key.id}", unseal(data, key), ""
        from dataaudit.export.identity import unseal_bundle

        assert trust.identity is not None
        assert trust.issuer is not None
        payload, kind = unseal_bundle(data, identity=trust.identity, issuer=trust.issuer, path=trust.signature)
        if kind != PAYLOAD_TYPE:
            raise BadEnvelope(f"the payload is of type {kind[:100]!r}, expected {PAYLOAD_TYPE}")
    except BadEnvelope as error:
        who = f"key of {trust.public_key}" if trust.identity is None else f"{trust.identity} ({trust.issuer})"
        return who, None, str(error)
    return f"{trust.identity} ({trust.issuer})", payload, ""


def _about(manifest: Manifest, said: Summary) -> list[Problem]:
    """Say whether the verdict is about this manifest."""
    digests = [digest for _, digest in said.subjects]
    if digests != [digest_of(manifest.id)]:
        found = ", ".join(f"sha256:{digest}" for digest in digests[:3]) or "nothing"
        return [Problem("subject", f"the verdict is of {found}, this manifest is {manifest.id}")]
    if manifest.pointer_sha256 not in {digest for _, digest in said.inputs}:
        return [
            Problem(
                "manifest_file",
                "manifest.json has the id that was judged but other bytes: the part `run` was written or changed"
                " after the verdict",
            )
        ]
    return []


def _result(said: Summary) -> list[Problem]:
    if said.result == PASSED:
        return []
    return [Problem("verdict", f"the verdict is {said.result}, expected {PASSED}")]


def _policy(said: Summary, path: Path | None) -> list[Problem]:
    if path is None:
        return []
    from dataaudit.gate.policy import load_policy

    expected = load_policy(path).digest
    if said.policy_digest == digest_of(expected):
        return []
    found = f"sha256:{said.policy_digest}" if said.policy_digest else "none"
    return [Problem("policy", f"the verdict is by the policy {said.policy} ({found}), {path} is {expected}")]


def verdict_facts(found: SignedVerdict) -> dict[str, Any]:
    """Return a signed verdict as plain JSON values."""
    said = found.summary
    if said is None:
        return {"signer": found.signer, "holds": False}
    return {
        "signer": found.signer,
        "holds": True,
        "result": said.result,
        "verified_at": said.time,
        "verifier": {"id": said.verifier, "versions": said.versions},
        "subject": [{"name": name, "sha256": digest} for name, digest in said.subjects],
        "resource": said.resource,
        "policy": {"uri": said.policy, "sha256": said.policy_digest},
        "facts": said.facts,
    }


def verdict_pairs(found: SignedVerdict) -> list[tuple[str, str]]:
    """Return a signed verdict as lines for a terminal: name and value."""
    said = found.summary
    if said is None:
        return [("signed by", f"not by {t.clean(found.signer, 200)}")]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(said.versions.items()))
    digest = f" (sha256:{said.policy_digest})" if said.policy_digest else ""
    pairs = [
        ("verdict", said.result),
        ("signed by", found.signer),
        ("verified at", said.time or "not said"),
        ("by", f"{said.verifier} ({versions})" if versions else said.verifier),
        ("of", ", ".join(name for name, _ in said.subjects)),
        ("policy", f"{said.policy}{digest}"),
    ]
    return [(name, t.clean(value, 300)) for name, value in pairs]
