"""Local keys in PEM files: ed25519, or ECDSA on a NIST curve. They sign bytes and check signatures.

ECDSA signs with SHA-256 on P-256, SHA-384 on P-384, SHA-512 on P-521, as DSSE's implementations do, and with the
deterministic nonce of RFC 6979, so that the same statement gets the same signature.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
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

from dataaudit.errors import ConfigError
from dataaudit.export.output import read_file

PHRASE_FROM = "DATAAUDIT_KEY_PASSWORD"
"""Environment variable with the pass phrase of a private key."""
_EXPECTED = "expected an ed25519 key, or an ECDSA key on P-256, P-384 or P-521, in PEM"
_HOW = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out key.pub"
_HASHES: dict[str, hashes.HashAlgorithm] = {
    "secp256r1": hashes.SHA256(),
    "secp384r1": hashes.SHA384(),
    "secp521r1": hashes.SHA512(),
}


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that checks signatures."""

    key: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey
    """Of cryptography."""

    @property
    def id(self) -> str:
        """The sha256 of its DER (SubjectPublicKeyInfo), hex."""
        der = self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(der).hexdigest()

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Tell whether the signature is this key's of the data."""
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
    """A key that signs; it is not in any message or ``repr``."""

    key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
    """Of cryptography."""

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
    """Read a private key; the pass phrase of an encrypted one is taken from DATAAUDIT_KEY_PASSWORD.

    Raises:
        ConfigError: It cannot be read, or is of another kind.
    """
    pem = read_file(path, "the key")
    password = os.environ.get(PHRASE_FROM)
    key: Any = None
    try:
        key = load_pem_private_key(pem, password=password.encode() if password else None)
    except TypeError:  # a pass phrase too many, or none where one is needed
        state = "is not encrypted, but a pass phrase is set in" if password else "is encrypted; set its pass phrase in"
        raise ConfigError(f"the key {path} {state} {PHRASE_FROM}") from None
    except (ValueError, UnsupportedAlgorithm):
        pass
    if isinstance(key, ed25519.Ed25519PrivateKey) or (
        isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _HASHES
    ):
        return PrivateKey(key)
    raise ConfigError(f"the key {path}: {_EXPECTED}, found {_found(key, pem)}", f"Make one: {_HOW}")


def load_public_key(path: Path) -> PublicKey:
    """Read a public key.

    Raises:
        ConfigError: It cannot be read, or is of another kind.
    """
    pem = read_file(path, "the public key")
    key: Any = None
    with contextlib.suppress(ValueError, UnsupportedAlgorithm):
        key = load_pem_public_key(pem)
    if isinstance(key, ed25519.Ed25519PublicKey) or (
        isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _HASHES
    ):
        return PublicKey(key)
    raise ConfigError(f"the public key {path}: {_EXPECTED}, found {_found(key, pem)}", f"Make one: {_HOW}")


def _found(key: Any, pem: bytes) -> str:
    """Say what a file holds instead, never a byte of it."""
    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return f"one on the curve {key.curve.name}"
    if key is not None:
        return "a key of another kind"
    if b"PRIVATE KEY-----" in pem:
        return "a private key, damaged or with a wrong pass phrase, or in the place of a public one"
    return "a damaged key, or another kind of file"
