"""A verdict as an in-toto statement: version 1, with the verification summary of SLSA as its predicate.

The subject is the manifest: its digest is the manifest's id. The predicate says who verified it, when, by which policy,
on the ground of which files, and PASSED or FAILED. What the predicate has no field for stands under one field whose
name is a URI, as SLSA asks for: https://slsa.dev/spec/v1.2/verification_summary.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dataaudit import __version__
from dataaudit.export.names import PROGRAM, dataset_uri, digest_of, manifest_uri
from dataaudit.gate.verdict import State, Subject, Verdict, WaiverState
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.load import Manifest

PREDICATE = "https://slsa.dev/verification_summary/v1"
STATEMENT = "https://in-toto.io/Statement/v1"
SLSA_VERSION = "1.2"
VERIFIER = f"{PROGRAM}:gate"
EXTENSION = f"{PROGRAM}:verdict:v1"
PASSED, FAILED = "PASSED", "FAILED"
LEVEL = "DATAAUDIT_POLICY_PASSED"
"""Of `verifiedLevels` when the verdict is PASSED; names that begin with SLSA_ are SLSA's own."""


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


def statement(
    verdict: Verdict,
    manifest: Manifest,
    baseline: Manifest | None,
    *,
    time: str,
    policy_uri: str | None = None,
    resource_uri: str | None = None,
    verifier: str = VERIFIER,
) -> bytes:
    """Return the statement of a verdict as canonical JSON.

    Args:
        verdict: Of the gate.
        manifest: That was judged.
        baseline: That it was compared with.
        time: When, UTC, ISO 8601.
        policy_uri: Where the policy is; by default a URN of its name and version.
        resource_uri: Where consumers get the dataset; by default its package URL.
        verifier: URI of who runs the gate.

    Raises:
        ValueError: The verdict is of another manifest, or compares with another one.
    """
    from google.protobuf.json_format import MessageToDict
    from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
    from in_toto_attestation.v1.statement import Statement

    if verdict.subject.id != manifest.id:
        raise ValueError(f"the verdict is of {verdict.subject.id}, the manifest is {manifest.id}")
    if baseline is not None and (verdict.baseline is None or verdict.baseline.id != baseline.id):
        raise ValueError(f"the verdict does not compare with {baseline.id}")
    subject = verdict.subject
    predicate = {
        "verifier": {"id": verifier, "version": {"dataaudit": __version__}},
        "timeVerified": time,
        "resourceUri": resource_uri or dataset_uri(subject.name, subject.version),
        "policy": {
            "uri": policy_uri or policy_urn(verdict.policy, verdict.policy_version),
            "digest": {"sha256": digest_of(verdict.policy_digest)},
        },
        "inputAttestations": [_input(one) for one in (manifest, baseline) if one is not None],
        "verificationResult": PASSED if verdict.passed else FAILED,
        "verifiedLevels": [LEVEL if verdict.passed else FAILED],
        "slsaVersion": SLSA_VERSION,
        EXTENSION: _facts(verdict),
    }
    descriptor = ResourceDescriptor(
        name=f"{subject.name}@{subject.version}",
        uri=manifest_uri(subject.id),
        digest={"sha256": digest_of(subject.id)},
    )
    made = Statement([descriptor.pb], PREDICATE, predicate)
    made.validate()
    return canonical_json(MessageToDict(made.pb))


def policy_urn(name: str, version: str) -> str:
    """Return the URN of a policy that nobody gave a URI."""
    from urllib.parse import quote

    return f"{PROGRAM}:policy:{quote(name, safe='')}:{quote(version, safe='')}"


def summary(payload: bytes) -> Summary:
    """Read a statement.

    Raises:
        BadStatement: It is none, or has another predicate.
    """
    try:
        document = json.loads(payload.decode(), object_pairs_hook=_once)
        kind, predicate_type, predicate = document["_type"], document["predicateType"], document["predicate"]
        if kind != STATEMENT or predicate_type != PREDICATE:
            raise BadStatement(
                f"expected a statement {STATEMENT} with the predicate {PREDICATE},"
                f" found {str(kind)[:100]!r} with {str(predicate_type)[:100]!r}"
            )
        policy, verifier = predicate["policy"], predicate["verifier"]
        return Summary(
            subjects=tuple((_text(one.get("name", "")), _sha256(one)) for one in document["subject"]),
            verifier=_text(verifier["id"]),
            versions={_text(name): _text(version) for name, version in verifier.get("version", {}).items()},
            time=_text(predicate.get("timeVerified", "")),
            resource=_text(predicate["resourceUri"]),
            policy=_text(policy["uri"]),
            policy_digest=_sha256(policy),
            inputs=tuple((_text(one.get("uri", "")), _sha256(one)) for one in predicate.get("inputAttestations", [])),
            result=_text(predicate["verificationResult"]),
            facts=dict(predicate.get(EXTENSION, {})),
        )
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        if isinstance(error, BadStatement):
            raise
        raise BadStatement("it is no in-toto statement with the verification summary of SLSA") from None


def _input(manifest: Manifest) -> dict[str, Any]:
    return {"uri": manifest_uri(manifest.id), "digest": {"sha256": manifest.pointer_sha256}}


def _facts(verdict: Verdict) -> dict[str, Any]:
    """Return what the predicate has no field for."""
    return {
        "exitCode": int(verdict.exit_code),
        "policy": {"name": verdict.policy, "version": verdict.policy_version},
        "failOn": verdict.fail_on,
        "waiversHeldAgainst": verdict.on,
        "dataset": _dataset(verdict.subject),
        "baseline": None if verdict.baseline is None else _dataset(verdict.baseline),
        "rules": {state.value: verdict.count(state) for state in State},
        "failed": [result.rule.name for result in verdict.rules if result.state == State.FAILED],
        "notEvaluated": [result.rule.name for result in verdict.rules if result.state == State.NOT_EVALUATED],
        "waiting": list(verdict.waiting),
        "waivers": [
            {
                "fingerprint": one.waiver.fingerprint,
                "rule": one.waiver.rule,
                "owner": one.waiver.owner,
                "expires": one.waiver.expires.isoformat(),
                "state": one.state.value,
            }
            for one in verdict.waivers
            if one.state != WaiverState.UNUSED
        ],
    }


def _dataset(subject: Subject) -> dict[str, Any]:
    return {
        "manifest": subject.id,
        "name": subject.name,
        "version": subject.version,
        "documents": subject.documents,
        "shards": subject.shards,
    }


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
