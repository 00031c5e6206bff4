"""Signatures of statements: proves that a key, or an identity, signed a payload.

Keys are ed25519, or ECDSA on a NIST curve, in PEM files. ECDSA signs with SHA-256 on P-256, SHA-384 on P-384, SHA-512
on P-521, as DSSE's implementations do, and with the deterministic nonce of RFC 6979, so that the same statement gets
the same signature.

The envelope is DSSE 1.0, https://github.com/secure-systems-lab/dsse. Signed is the pre-authentication encoding of
payload type and payload: ``DSSEv1``, then length in bytes and bytes of both, separated by single spaces. A reader
accepts a single form: no unknown or repeated field, canonical base64, the key's own id. So no byte of an envelope that
this program wrote can change unnoticed.

An identity, instead of a key, is that of the CI job or of whoever logs in: sigstore, which needs a network and the
extra `sign`. A certificate of ten minutes binds the identity to a key made for this signature, and a public log records
it. The result is a sigstore bundle around the same envelope.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from dataaudit.base.errors import CatchErrors, ConfigError, StoreError
from dataaudit.base.extras import require
from dataaudit.base.files import lies_in
from dataaudit.base.yamlfile import read_named
from dataaudit.manifest.canonical import RepeatedKeyError, canonical_json, unique_keys
from dataaudit.manifest.s3 import shown

PHRASE_FROM = "DATAAUDIT_KEY_PASSWORD"
"""Environment variable with the pass phrase of a private key."""
_EXPECTED = "expected an ed25519 key, or an ECDSA key on P-256, P-384 or P-521, in PEM"
_HOW = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out key.pub"
_HASHES: dict[str, hashes.HashAlgorithm] = {
    "secp256r1": hashes.SHA256(),
    "secp384r1": hashes.SHA384(),
    "secp521r1": hashes.SHA512(),
}
PAYLOAD_TYPE = "application/vnd.in-toto+json"
_OFFLINE = "sigstore needs a network; sign with a local key (--key FILE) where there is none."


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that checks signatures."""

    key: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey

    @property
    def id(self) -> str:
        """The sha256 of its DER (SubjectPublicKeyInfo), hex."""
        der = self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(der).hexdigest()

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Return whether the signature is this key's of the data."""
        try:
            if isinstance(self.key, ed25519.Ed25519PublicKey):
                self.key.verify(signature, data)
            else:
                self.key.verify(signature, data, ec.ECDSA(_HASHES[self.key.curve.name]))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A key that signs; no message or ``repr`` shows it."""

    key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"PrivateKey({self.public.id})"

    @property
    def public(self) -> PublicKey:
        """The key that checks its signatures."""
        return PublicKey(self.key.public_key())

    def sign(self, data: bytes) -> bytes:
        """Return a signature."""
        if isinstance(self.key, ed25519.Ed25519PrivateKey):
            return self.key.sign(data)
        return self.key.sign(data, ec.ECDSA(_HASHES[self.key.curve.name], deterministic_signing=True))


def load_private_key(path: Path) -> PrivateKey:
    """Read a private key; the pass phrase of an encrypted one is taken from DATAAUDIT_KEY_PASSWORD."""
    pem = read_named(path, "the key")
    password = os.environ.get(PHRASE_FROM)
    key: Any = None
    try:
        key = load_pem_private_key(pem, password=password.encode() if password else None)
    except TypeError:  # a pass phrase too many, or none where one is needed
        state = "is not encrypted, but a pass phrase is set in" if password else "is encrypted; set its pass phrase in"
        raise ConfigError(f"the key {path} {state} {PHRASE_FROM}") from None
    except (ValueError, UnsupportedAlgorithm):
        pass
    return PrivateKey(_supported(key, pem, f"the key {path}"))


def load_public_key(path: Path) -> PublicKey:
    """Read a public key."""
    pem = read_named(path, "the public key")
    key: Any = None
    with contextlib.suppress(ValueError, UnsupportedAlgorithm):
        key = load_pem_public_key(pem)
    return PublicKey(_supported(key, pem, f"the public key {path}"))


def _supported(key: Any, pem: bytes, name: str) -> Any:
    """Refuse a key that this program cannot use; the message says what the file holds, never a byte of it."""
    is_curve = isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey)
    is_edwards = isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey)
    if is_edwards or (is_curve and key.curve.name in _HASHES):
        return key
    found = "a damaged key, or another kind of file"
    if is_curve:
        found = f"one on the curve {key.curve.name}"
    elif key is not None:
        found = "a key of another kind"
    elif b"BEGIN CERTIFICATE-----" in pem:
        found = "a certificate: openssl x509 -pubkey -noout takes its key out; it is checked without a chain or a day"
    elif b"PRIVATE KEY-----" in pem:
        found = "a private key, damaged or with a wrong pass phrase, or in the place of a public one"
    raise ConfigError(f"{name}: {_EXPECTED}, found {found}", f"Make one: {_HOW}")


class BadEnvelope(ValueError):
    """The bytes are no envelope, or its signature is not valid; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A payload with its signatures."""

    payload: bytes
    payload_type: str
    signatures: tuple[tuple[str, bytes], ...]
    """Key id, which may be empty, and signature."""


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, key: PrivateKey, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """Sign a payload and return the envelope as JSON."""
    signature = key.sign(pae(payload_type, payload))
    document = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": payload_type,
        "signatures": [{"keyid": key.public.id, "sig": base64.b64encode(signature).decode()}],
    }
    return canonical_json(document) + b"\n"


def parse(data: bytes) -> Envelope:
    """Read an envelope, which is not to be trusted before :func:`unseal`."""
    if data not in {data.strip(), data.strip() + b"\n"}:
        raise BadEnvelope("there is something before or after the envelope")
    try:
        document = json.loads(data.decode(), object_pairs_hook=unique_keys)
    except RepeatedKeyError:
        raise BadEnvelope("a field is given twice") from None
    except (ValueError, RecursionError):
        raise BadEnvelope("it is not JSON") from None
    fields = _fields(document, "envelope", {"payload": str, "payloadType": str, "signatures": list})
    signatures = []
    for given in fields["signatures"]:
        record = _fields(given, "signature", {"sig": str}, {"keyid": str})
        signatures.append((record.get("keyid", ""), _bytes(record["sig"], "sig")))
    if not signatures:
        raise BadEnvelope("it has no signature")
    return Envelope(
        payload=_bytes(fields["payload"], "payload"),
        payload_type=fields["payloadType"],
        signatures=tuple(signatures),
    )


def unseal(data: bytes, key: PublicKey) -> bytes:
    """Return the payload of an envelope that a key has signed."""
    envelope = parse(data)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise BadEnvelope(f"the payload is of type {envelope.payload_type[:100]!r}, expected {PAYLOAD_TYPE}")
    mine = [signature for identity, signature in envelope.signatures if identity in {"", key.id}]
    if not mine:
        others = ", ".join(identity[:16] for identity, _ in envelope.signatures[:3])
        raise BadEnvelope(f"another key signed it: its id begins with {others}, the given one's with {key.id[:16]}")
    signed = pae(envelope.payload_type, envelope.payload)
    if not any(key.verifies(signature, signed) for signature in mine):
        raise BadEnvelope("the signature does not hold: the envelope was changed, or another key signed it")
    return envelope.payload


def _fields(
    found: Any, what: str, needed: Mapping[str, type], optional: Mapping[str, type] | None = None
) -> dict[str, Any]:
    """Return an object that has the needed fields and no unknown one."""
    known = {**needed, **(optional or {})}
    if not isinstance(found, dict) or not needed.keys() <= found.keys() or not found.keys() <= known.keys():
        raise BadEnvelope(f"expected the {what} to be an object with the fields {', '.join(known)}, and no others")
    wrong = [name for name, value in found.items() if not isinstance(value, known[name])]
    if wrong:
        raise BadEnvelope(f"the field {wrong[0]} of the {what} is of the wrong type")
    return found


def _bytes(text: str, field: str) -> bytes:
    """Return the bytes of canonical base64."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadEnvelope(f"the field {field} is not base64") from None
    if base64.b64encode(data).decode() != text:
        raise BadEnvelope(f"the field {field} is not canonical base64")
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """How a statement is signed: with the private key of a file, or, None, with an identity."""

    key: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """Signs statements with a key that was loaded, or, None, with an identity."""

    key: PrivateKey | None

    def sign(self, payload: bytes) -> tuple[bytes, str]:
        """Return the envelope or bundle of a statement, and how it was signed."""
        if self.key is not None:
            return seal(payload, self.key), f"signed by the key {self.key.public.id}"
        return bundle_of(payload), "signed by an identity, as a sigstore bundle"


def load_seal(signing: Signing, folder: Path) -> Seal:
    """Load the key, before any work is done; or check that sigstore is installed."""
    if signing.key is not None and lies_in(signing.key, folder):
        raise ConfigError(
            f"the private key {signing.key} lies in the folder that is signed, and would be published with it",
            "Move it to a place of its own, a secret store; if others have had the folder, make a new key.",
        )
    if signing.key is not None:
        return Seal(key=load_private_key(signing.key))
    require("--identity", "sign")
    return Seal(key=None)


def expect_identity() -> None:
    """Refuse to begin long work after which an identity is to sign, where there is none."""
    from sigstore.oidc import detect_credential

    credential = None
    with CatchErrors() as call:
        credential = detect_credential()
    if call.error is not None:
        raise StoreError(f"sigstore cannot sign: {_reason(call.error)}", _OFFLINE)
    if credential is None and not sys.stdin.isatty():
        raise _nobody()


def bundle_of(payload: bytes) -> bytes:
    """Sign a statement with the identity of this CI job, or of whoever logs in, and return the bundle as JSON."""
    require("--identity", "sign")
    from sigstore.dsse import Statement
    from sigstore.models import ClientTrustConfig
    from sigstore.sign import SigningContext

    signed = b""
    with CatchErrors(ConfigError) as call:
        config = ClientTrustConfig.production()
        context = SigningContext.from_trust_config(config)
        token = _token(config)
        with context.signer(token) as signer:
            signed = signer.sign_dsse(Statement(payload)).to_json().encode() + b"\n"
    if call.error is not None:
        raise StoreError(f"sigstore cannot sign: {_reason(call.error)}", _OFFLINE)
    return signed


def unseal_bundle(data: bytes, *, identity: str, issuer: str, path: Path) -> tuple[bytes, str]:
    """Return the payload type and payload of a bundle that an identity has signed."""
    require("--identity", "sign")
    from sigstore.models import Bundle
    from sigstore.verify import Verifier
    from sigstore.verify.policy import Identity

    with CatchErrors() as call:
        bundle = Bundle.from_json(data)
    if call.error is not None:
        raise BadEnvelope(f"{shown(path)} is no sigstore bundle: {_reason(call.error)}")
    with CatchErrors() as call:
        verifier = Verifier.production()
    if call.error is not None:
        raise StoreError(f"the roots of trust of sigstore cannot be had: {_reason(call.error)}", _OFFLINE)
    with CatchErrors() as call:
        kind, payload = verifier.verify_dsse(bundle, Identity(identity=identity, issuer=issuer))
    if call.error is not None:
        raise BadEnvelope(f"the signature does not hold: {_reason(call.error)}")
    return payload, kind


def _token(config: Any) -> Any:
    from sigstore.oidc import IdentityToken, Issuer, detect_credential

    credential = detect_credential()
    if credential is not None:
        return IdentityToken(credential)
    if not sys.stdin.isatty():
        raise _nobody()
    return Issuer(config.signing_config.get_oidc_url()).identity_token()


def _nobody() -> ConfigError:
    return ConfigError(
        "--identity: this is no CI job that can prove who it is, and nobody is here to log in",
        "On GitHub give the job `permissions: id-token: write`, or sign with a local key: --key FILE.",
    )


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]
