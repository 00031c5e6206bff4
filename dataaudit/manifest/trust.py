"""Signed statements: prove whose a manifest is (attestation), and that a trusted signer let it pass (verdict).

Digests show damage and careless edits. Whoever can write the folder can compute digests and id anew, but not a
signature by another's key: ``dataaudit explain threat-model``. Both are in-toto statements, version 1, in an envelope
of DSSE by a local key, or in a sigstore bundle by an identity (:mod:`dataaudit.manifest.signing`). Their predicates are
of different types, so neither ever counts as the other.

*Attestation*: ``attestation.json`` in the manifest's folder. Its two subjects are the manifest, by its id, and the file
``manifest.json``, which holds the digests of everything else.

*Verdict* (``dataaudit verify --signature``): its predicate is the verification summary of SLSA,
https://slsa.dev/spec/v1.2/verification_summary, and the digest of its subject the manifest's id. Checked are, in SLSA's
order, the signature by the given key or identity, the subject, the predicate's type and the result; then the bytes of
``manifest.json``, waivers, and the policy when one is given.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from dataaudit.base.errors import ConfigError, ManifestMismatch, SignatureRefused
from dataaudit.base.files import NotAFileError, lies_in, open_safely, replacing, sync_file, sync_folder
from dataaudit.base.yamlfile import read_named
from dataaudit.manifest.canonical import RepeatedKeyError, canonical_json, unique_keys
from dataaudit.manifest.core import PROGRAM, digest_of, manifest_uri
from dataaudit.manifest.files import table_file
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.replace import ATTESTATION, POINTER, publish_lock
from dataaudit.manifest.s3 import stored_address
from dataaudit.manifest.signing import (
    PAYLOAD_TYPE,
    BadEnvelope,
    Seal,
    load_public_key,
    unseal,
    unseal_bundle,
)
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.verify import Problem, check_bytes, verify

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
ATTESTATION_PREDICATE = f"{PROGRAM}:attestation:v1"
MOST_BYTES = 1 << 20
"""Most bytes of an attestation; this program writes some thousands."""
_SIGN = "Take it from where it was built; `dataaudit sign DIR --key FILE` signs it there."
_Loaded = TypeVar("_Loaded", bound=Manifest)


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
    try:
        document: dict[str, Any] = json.loads(payload.decode(), object_pairs_hook=unique_keys)
    except RepeatedKeyError:
        raise BadStatement("a field of the statement is given twice") from None
    kind, found = document["_type"], document["predicateType"]
    if kind != STATEMENT or found != predicate:
        raise BadStatement(
            f"expected a statement {STATEMENT} with the predicate {predicate},"
            f" found {str(kind)[:100]!r} with {str(found)[:100]!r}"
        )
    return document


def _sha256(descriptor: dict[str, Any]) -> str:
    return _text(descriptor.get("digest", {}).get("sha256", ""))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """The required signer (``key 1a2b...``, or an identity with its issuer), and why the signature does not count."""

    signer: str
    problem: str = ""
    """Empty when it counts."""


def attestation(manifest: Manifest) -> bytes:
    """Return the statement about a manifest as canonical JSON."""
    dataset = manifest.core.dataset
    return canonical_json(
        {
            "_type": STATEMENT,
            "subject": [
                {
                    "name": dataset.label,
                    "uri": manifest_uri(manifest.id),
                    "digest": {"sha256": digest_of(manifest.id)},
                },
                {"name": POINTER, "digest": {"sha256": manifest.pointer_sha256}},
            ],
            "predicateType": ATTESTATION_PREDICATE,
            "predicate": {
                "dataset": {"name": dataset.name, "version": dataset.version},
                "schemaVersion": manifest.core.schema_.version,
            },
        }
    )


def sign_manifest(manifest: Manifest, seal: Seal) -> str:
    """Verify a manifest, sign it, and put the signature into its folder; return how it was signed."""
    if problems := verify(manifest):
        raise ManifestMismatch(
            f"the manifest {manifest.place} is not signed, as it is not what was published: {problems[0].text}",
            "`dataaudit verify` lists every problem; restore the folder or build again.",
        )
    data, how = seal.sign(attestation(manifest))
    folder = Path(os.path.realpath(manifest.folder))
    try:
        with publish_lock(folder.parent):
            if hashlib.sha256((folder / POINTER).read_bytes()).hexdigest() != manifest.pointer_sha256:
                raise ManifestMismatch(
                    f"the manifest {manifest.place} was replaced while it was signed; the new one is not signed",
                    "Sign it again.",
                )
            with replacing(folder / ATTESTATION) as file:
                file.write(data)
                sync_file(file)
            sync_folder(folder)
    except OSError as error:
        raise ConfigError(
            f"{manifest.place}/{ATTESTATION} cannot be written: {error.strerror or type(error).__name__};"
            " the manifest is as it was, not signed",
            f"Mend that, then run `dataaudit sign {quote(str(manifest.place))}`: nothing is built again.",
        ) from None
    if stored_address(manifest.folder) is not None:
        from dataaudit.manifest.remote import put_signature

        put_signature(manifest)
    return how


def check_attestation(manifest: Manifest, signer: Signer) -> Attestation:
    """Check the signature in a manifest's folder."""
    path = manifest.folder / ATTESTATION
    if signer.public_key is not None:
        _expect_outside(signer.public_key, manifest.folder)
    data, problem = _read(path)
    who, payload, refused = signed_payload(data, signer, path)
    if problem or payload is None:
        return Attestation(signer=who, problem=problem or _other_kind(data, signer) or refused)
    return Attestation(signer=who, problem=_about_manifest(payload, manifest))


def attested(manifest: _Loaded, signer: Signer) -> _Loaded:
    """Return a manifest with :attr:`Manifest.signed_by`, or refuse it; hashing its files takes about 1 s for a GB."""
    found = check_attestation(manifest, signer)
    if found.problem:
        raise SignatureRefused(f"the manifest {manifest.place} is not believed: {found.problem}", _SIGN)
    if problems := check_bytes(manifest, [table_file(name) for name in TABLES]):
        more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        raise SignatureRefused(
            f"the manifest {manifest.place} is signed, its files are others: {problems[0].text}{more}",
            "Restore the files or build again; `dataaudit verify` lists all.",
        )
    return replace(manifest, signed_by=found.signer)


def load_attested(folder: Path, signer: Signer | None) -> Manifest:
    """Load a manifest, and check its signature when a signer is required."""
    manifest = load_manifest(folder)
    return manifest if signer is None else attested(manifest, signer)


def _read(path: Path) -> tuple[bytes, str]:
    """Return the bytes of an attestation, or the reason why there are none; never wait for a pipe."""
    try:
        with open(path, "rb", opener=open_safely) as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return b"", f"it is not signed, there is no {ATTESTATION}"
    except (NotAFileError, IsADirectoryError):
        return b"", f"{ATTESTATION} is no file"
    except OSError as error:
        return b"", f"{ATTESTATION} cannot be read: {error.strerror or type(error).__name__}"
    if len(data) > MOST_BYTES:
        return b"", f"{ATTESTATION} is larger than any signature, {MOST_BYTES:,} bytes"
    return data, "" if data else f"{ATTESTATION} is empty"


def _expect_outside(key: Path, folder: Path) -> None:
    """Refuse a key in the manifest's folder: whoever forges a manifest can put a key beside it."""
    if lies_in(key, folder):
        raise ConfigError(
            f"the public key {key} lies in the folder that it is to vouch for; whoever can write there can put theirs",
            "Name one from a place of its own: a reviewed branch, a secret store.",
        )


def _other_kind(data: bytes, signer: Signer) -> str:
    """Return a message when a key was named for the signature of an identity, or the other way round."""
    try:
        fields = set(json.loads(data))
    except (ValueError, TypeError, RecursionError):
        return ""
    if signer.public_key is not None and "dsseEnvelope" in fields:
        return "an identity signed it with sigstore, and a key is expected: name it with --identity and --issuer"
    if signer.public_key is None and "payload" in fields:
        return "a key signed it, and an identity is expected: name the key with --public-key"
    return ""


def _about_manifest(payload: bytes, manifest: Manifest) -> str:
    """Return why a signed statement is not about exactly this manifest; empty when it is."""
    try:
        subjects = [
            (item["name"], item["digest"]) for item in read_statement(payload, ATTESTATION_PREDICATE)["subject"]
        ]
    except BadStatement as error:
        return str(error)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        return "what was signed is no in-toto statement"
    expected = [
        (manifest.core.dataset.label, {"sha256": digest_of(manifest.id)}),
        (POINTER, {"sha256": manifest.pointer_sha256}),
    ]
    if subjects == expected:
        return ""
    if len(subjects) != len(expected):
        return f"the signature is of {len(subjects)} subjects, expected the manifest and its {POINTER} alone"
    if subjects[0] != expected[0]:
        return f"the signature is of another manifest, this one is {manifest.id}"
    return (
        f"the signature is of this id, but of other bytes of {POINTER}: its part `run` was changed after it was signed"
    )
