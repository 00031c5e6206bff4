"""Signed verdicts: prove that a trusted signer let exactly this manifest pass (``dataaudit verify --signature``).

A signed verdict is an in-toto statement, version 1, with the verification summary of SLSA as its predicate,
https://slsa.dev/spec/v1.2/verification_summary. The digest of its subject is the manifest's id. Checked are, in SLSA's
order, the signature by the given key or identity, the subject, the predicate's type and the result; then the bytes of
``manifest.json``, waivers, and the policy when one is given.
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
"""Codes of problems with a signed verdict; the manifest itself may be sound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Content of a statement; digests are sha256, hex; fields that it lacks are empty."""

    subjects: tuple[tuple[str, str], ...]
    """Name and sha256 of each subject."""
    verifier: str
    versions: dict[str, str]
    time: str
    resource: str
    policy: str
    policy_digest: str
    inputs: tuple[tuple[str, str], ...]
    result: str
    facts: dict[str, Any]
    """Our own extension; other programs write none."""


class BadStatement(ValueError):
    """The payload is no statement with a verification summary; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedPolicy:
    """The policy that a verdict has to be by: its file, for messages, and ``sha256:<hex>`` of its content."""

    path: Path
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Whose signature counts: that of a key (its file), or of an identity of sigstore and its issuer."""

    public_key: Path | None = None
    identity: str | None = None
    issuer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust(Signer):
    """Whom the user trusts, and the file of the signed verdict."""

    signature: Path
    policy: TrustedPolicy | None = None
    """The required policy; any when None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedVerdict:
    """The trusted signer (``key 1a2b...``, or an identity with its issuer), and the content, if validly signed."""

    signer: str
    summary: Summary | None


def check_trust(manifest: Manifest, trust: Trust) -> tuple[SignedVerdict, list[Problem]]:
    """Check a signed verdict of a manifest."""
    signer, payload, problem = signed_payload(read_named(trust.signature, "the signature"), trust, trust.signature)
    if payload is None:
        return SignedVerdict(signer=signer, summary=None), [Problem("signature", problem)]
    try:
        content = summary(payload)
    except BadStatement as error:
        return SignedVerdict(signer=signer, summary=None), [Problem("statement", str(error))]
    problems = [*_about(manifest, content), *_result(content), *_waivers(content), *_policy(content, trust.policy)]
    return SignedVerdict(signer=signer, summary=content), problems


def signed_payload(data: bytes, signer: Signer, path: Path) -> tuple[str, bytes | None, str]:
    """Return who is trusted, and the payload that they signed, or the reason why there is none."""
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


def _about(manifest: Manifest, verdict: Summary) -> list[Problem]:
    """Check that the verdict is about this manifest."""
    digests = [digest for _, digest in verdict.subjects]
    if digests != [digest_of(manifest.id)]:
        found = ", ".join(f"sha256:{digest}" for digest in digests[:3]) or "nothing"
        return [Problem("subject", f"the verdict is of {found}, this manifest is {manifest.id}")]
    if manifest.pointer_sha256 not in {digest for _, digest in verdict.inputs}:
        text = "manifest.json has the id that was judged but other bytes: the part `run` was written or changed"
        return [Problem("manifest_file", f"{text} after the verdict")]
    return []


def _result(verdict: Summary) -> list[Problem]:
    if verdict.result == PASSED:
        return []
    return [Problem("verdict", f"the verdict is {verdict.result}, expected {PASSED}")]


def _waivers(verdict: Summary) -> list[Problem]:
    """Check that no waiver that the verdict used has expired since, by the clock."""
    listed = verdict.facts.get("waivers")
    today = dt.datetime.now(dt.UTC).date().isoformat()
    late = [
        f"{item.get('fingerprint')} of the rule {item.get('rule')}, {item.get('expires')}"
        for item in (listed if isinstance(listed, list) else [])
        if isinstance(item, dict) and item.get("state") == "used" and str(item.get("expires", "")) < today
    ]
    return (
        [Problem("waivers", f"it passed by a waiver whose last day has passed: {'; '.join(late[:5])}")] if late else []
    )


def _policy(verdict: Summary, expected: TrustedPolicy | None) -> list[Problem]:
    if expected is None or verdict.policy_digest == digest_of(expected.digest):
        return []
    found = f"sha256:{verdict.policy_digest}" if verdict.policy_digest else "none"
    text = f"the verdict is by the policy {verdict.policy} ({found}), {expected.path} is {expected.digest}"
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
    """Refuse a repeated field: some readers take the first, others the last."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise BadStatement("a field of the statement is given twice")
    return fields


def _sha256(descriptor: dict[str, Any]) -> str:
    return _text(descriptor.get("digest", {}).get("sha256", ""))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
