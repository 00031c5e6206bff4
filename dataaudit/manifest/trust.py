"""Whether somebody who is trusted said PASSED of exactly this manifest: ``dataaudit verify --signature``.

A signed verdict is an in-toto statement, version 1, with the verification summary of SLSA as its predicate,
https://slsa.dev/spec/v1.2/verification_summary. The subject is the manifest: its digest is the manifest's id. It is
checked in the order of SLSA's own steps: the signature by the key or identity that was given; the subject against the
manifest; the predicate's type; the result. Beyond them: the bytes of ``manifest.json``, and the policy when one is
given.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataaudit.base.yamlfile import read_named
from dataaudit.manifest.core import PROGRAM, digest_of
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.signing import PAYLOAD_TYPE, BadEnvelope, load_public_key, unseal, unseal_bundle
from dataaudit.manifest.verify import Problem

PREDICATE = "https://slsa.dev/verification_summary/v1"
STATEMENT = "https://in-toto.io/Statement/v1"
SLSA_VERSION = "1.2"
VERIFIER = f"{PROGRAM}:gate"
EXTENSION = f"{PROGRAM}:verdict:v1"
PASSED, FAILED = "PASSED", "FAILED"
LEVEL = "DATAAUDIT_POLICY_PASSED"
"""Of `verifiedLevels` when the verdict is PASSED; names that begin with SLSA_ are SLSA's own."""
CODES = frozenset({"attestation", "signature", "statement", "subject", "manifest_file", "verdict", "policy"})
"""Codes of problems with a signed verdict; the manifest itself may be well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a statement says, read back."""

    subjects: tuple[tuple[str, str], ...]
    """Name and sha256 of each subject."""
    verifier: str
    versions: dict[str, str]
    """Of the verifier's parts."""
    time: str
    """When it was verified, UTC; empty when that is not said."""
    resource: str
    """URI of what was verified."""
    policy: str
    """URI of the policy."""
    policy_digest: str
    """sha256 of it, hex; empty when that is not said."""
    inputs: tuple[tuple[str, str], ...]
    """URI and sha256 of each file that it rests on."""
    result: str
    facts: dict[str, Any]
    """Our own, empty in a statement of another program."""


class BadStatement(ValueError):
    """What is read is no statement with a verification summary; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedPolicy:
    """A policy that a verdict has to be of."""

    path: Path
    """Its file, for messages."""
    digest: str
    """``sha256:<hex>`` of what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Whose signature counts: a key's, or an identity's."""

    public_key: Path | None = None
    """File of the key; or:"""
    identity: str | None = None
    """Who signs, as in the certificate of sigstore, and"""
    issuer: str | None = None
    """who vouches for that identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust(Signer):
    """What the user trusts, and what was signed."""

    signature: Path
    """The signed verdict."""
    policy: TrustedPolicy | None = None
    """The policy that has to have been used; any when None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedVerdict:
    """What a signed verdict says; nothing of it when the signature does not hold."""

    signer: str
    """Who is trusted: ``key 1a2b...`` or an identity with its issuer."""
    summary: Summary | None


def check_trust(manifest: Manifest, trust: Trust) -> tuple[SignedVerdict, list[Problem]]:
    """Check a signed verdict against a manifest."""
    signer, payload, problem = signed_payload(read_named(trust.signature, "the signature"), trust, trust.signature)
    if payload is None:
        return SignedVerdict(signer=signer, summary=None), [Problem("signature", problem)]
    try:
        said = summary(payload)
    except BadStatement as error:
        return SignedVerdict(signer=signer, summary=None), [Problem("statement", str(error))]
    verdict = SignedVerdict(signer=signer, summary=said)
    return verdict, [*_about(manifest, said), *_result(said), *_waivers(said), *_policy(said, trust.policy)]


def signed_payload(data: bytes, signer: Signer, path: Path) -> tuple[str, bytes | None, str]:
    """Return who is trusted, and the payload that they signed, or why there is none."""
    try:
        if signer.public_key is not None:
            key = load_public_key(signer.public_key)
            return f"key {key.id}", unseal(data, key), ""
        assert signer.identity is not None
        assert signer.issuer is not None
        payload, kind = unseal_bundle(data, identity=signer.identity, issuer=signer.issuer, path=path)
        if kind != PAYLOAD_TYPE:
            raise BadEnvelope(f"the payload is of type {kind[:100]!r}, expected {PAYLOAD_TYPE}")
    except BadEnvelope as error:
        who = f"key of {signer.public_key}" if signer.identity is None else f"{signer.identity} ({signer.issuer})"
        return who, None, str(error)
    return f"{signer.identity} ({signer.issuer})", payload, ""


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


def _waivers(said: Summary) -> list[Problem]:
    """Say which waivers the verdict passed by and whose last day has passed since, by the clock."""
    listed = said.facts.get("waivers")
    today = dt.datetime.now(dt.UTC).date().isoformat()
    late = [
        f"{item.get('fingerprint')} of the rule {item.get('rule')}, {item.get('expires')}"
        for item in (listed if isinstance(listed, list) else [])
        if isinstance(item, dict) and item.get("state") == "used" and str(item.get("expires", "")) < today
    ]
    return (
        [Problem("waivers", f"it passed by a waiver whose last day has passed: {'; '.join(late[:5])}")] if late else []
    )


def _policy(said: Summary, expected: TrustedPolicy | None) -> list[Problem]:
    if expected is None or said.policy_digest == digest_of(expected.digest):
        return []
    found = f"sha256:{said.policy_digest}" if said.policy_digest else "none"
    text = f"the verdict is by the policy {said.policy} ({found}), {expected.path} is {expected.digest}"
    return [Problem("policy", text)]


def summary(payload: bytes) -> Summary:
    """Read a statement."""
    try:
        document = read_statement(payload, PREDICATE)
        predicate = document["predicate"]
        policy, verifier = predicate["policy"], predicate["verifier"]
        return Summary(
            subjects=tuple((_text(item.get("name", "")), _sha256(item)) for item in document["subject"]),
            verifier=_text(verifier["id"]),
            versions={_text(name): _text(version) for name, version in verifier.get("version", {}).items()},
            time=_text(predicate.get("timeVerified", "")),
            resource=_text(predicate["resourceUri"]),
            policy=_text(policy["uri"]),
            policy_digest=_sha256(policy),
            inputs=tuple(
                (_text(item.get("uri", "")), _sha256(item)) for item in predicate.get("inputAttestations", [])
            ),
            result=_text(predicate["verificationResult"]),
            facts=dict(predicate.get(EXTENSION, {})),
        )
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        if isinstance(error, BadStatement):
            raise
        raise BadStatement("it is no in-toto statement with the verification summary of SLSA") from None


def read_statement(payload: bytes, predicate: str) -> dict[str, Any]:
    """Return a statement that has a predicate of a type."""
    document: dict[str, Any] = json.loads(payload.decode(), object_pairs_hook=_once)
    kind, found = document["_type"], document["predicateType"]
    if kind != STATEMENT or found != predicate:
        raise BadStatement(
            f"expected a statement {STATEMENT} with the predicate {predicate},"
            f" found {str(kind)[:100]!r} with {str(found)[:100]!r}"
        )
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a field that is given twice: one reader takes the first, another one the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadStatement("a field of the statement is given twice")
    return found


def _sha256(descriptor: dict[str, Any]) -> str:
    return _text(descriptor.get("digest", {}).get("sha256", ""))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
