"""Signing with an identity instead of a key: sigstore, which needs a network and the extra `sign`.

The identity is that of the CI job or of whoever logs in; a certificate of ten minutes binds it to a key made for this
one signature, and a public log keeps that it happened. The result is a sigstore bundle around the same DSSE envelope.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dataaudit.errors import ConfigError, StoreError
from dataaudit.extras import require
from dataaudit.guarded import Guarded

_OFFLINE = "sigstore needs a network; sign with a local key (--key FILE) where there is none."


def bundle_of(payload: bytes) -> bytes:
    """Sign a statement with the identity of this CI job, or of whoever logs in, and return the bundle as JSON.

    Raises:
        ConfigError: sigstore is not installed, or there is no identity.
        StoreError: Its services do not answer.
    """
    require("--identity", "sign")
    from sigstore.dsse import Statement
    from sigstore.models import ClientTrustConfig
    from sigstore.sign import SigningContext

    signed = b""
    with Guarded(ConfigError) as call:
        config = ClientTrustConfig.production()
        context = SigningContext.from_trust_config(config)
        token = _token(config)
        with context.signer(token) as signer:
            signed = signer.sign_dsse(Statement(payload)).to_json().encode() + b"\n"
    if call.error is not None:
        raise StoreError(f"sigstore cannot sign: {_reason(call.error)}", _OFFLINE)
    return signed


def unseal_bundle(data: bytes, *, identity: str, issuer: str, path: Path) -> tuple[bytes, str]:
    """Return the payload type and payload of a bundle that an identity has signed.

    Args:
        data: Of the bundle.
        identity: An address or a URI, as in the certificate.
        issuer: URL of who vouches for it.
        path: Of the bundle, for messages.

    Returns:
        The payload and its type.

    Raises:
        ConfigError: sigstore is not installed, or the file is no bundle.
        BadEnvelope: The signature does not hold, or is another identity's.
        StoreError: The roots of trust cannot be fetched and none are stored.
    """
    require("--identity", "sign")
    from sigstore.models import Bundle
    from sigstore.verify import Verifier
    from sigstore.verify.policy import Identity

    from dataaudit.export.envelope import BadEnvelope

    with Guarded() as call:
        bundle = Bundle.from_json(data)
    if call.error is not None:
        raise BadEnvelope(f"{path} is no sigstore bundle: {_reason(call.error)}")
    with Guarded() as call:
        verifier = Verifier.production()
    if call.error is not None:
        raise StoreError(f"the roots of trust of sigstore cannot be had: {_reason(call.error)}", _OFFLINE)
    with Guarded() as call:
        kind, payload = verifier.verify_dsse(bundle, Identity(identity=identity, issuer=issuer))
    if call.error is not None:
        raise BadEnvelope(f"the signature does not hold: {_reason(call.error)}")
    return payload, kind


def _token(config: Any) -> Any:
    from sigstore.oidc import IdentityToken, Issuer, detect_credential

    found = detect_credential()
    if found is not None:
        return IdentityToken(found)
    if not sys.stdin.isatty():
        raise ConfigError(
            "--identity: this is no CI job that can prove who it is, and nobody is here to log in",
            "On GitHub give the job `permissions: id-token: write`, or sign with a local key: --key FILE.",
        )
    return Issuer(config.signing_config.get_oidc_url()).identity_token()


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]
