"""The envelope of a signed statement: DSSE 1.0, https://github.com/secure-systems-lab/dsse.

Signed is not the JSON but the pre-authentication encoding of payload type and payload: ``DSSEv1``, and of both the
length in bytes and the bytes, parted by single spaces. What is read is held to one form: no field is unknown or given
twice, base64 is canonical, a key id that is given is the key's. So no byte of an envelope that this program wrote can
change without being noticed.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dataaudit.export.keys import PrivateKey, PublicKey
from dataaudit.manifest.canonical import canonical_json

PAYLOAD_TYPE = "application/vnd.in-toto+json"


class BadEnvelope(ValueError):
    """What is read is no envelope, or its signature does not hold; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A payload with its signatures."""

    payload: bytes
    payload_type: str
    signatures: tuple[tuple[str, bytes], ...]
    """Key id, empty when none is given, and signature."""


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
    """Read an envelope; nothing of it is to be trusted before :func:`unseal`.

    Raises:
        BadEnvelope: It is none.
    """
    if data not in {data.strip(), data.strip() + b"\n"}:
        raise BadEnvelope("there is something before or after the envelope")
    try:
        document = json.loads(data.decode(), object_pairs_hook=_once)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, BadEnvelope) else "it is not JSON"
        raise BadEnvelope(reason) from None
    fields = _fields(document, "envelope", {"payload": str, "payloadType": str, "signatures": list})
    signatures = []
    for given in fields["signatures"]:
        one = _fields(given, "signature", {"sig": str}, {"keyid": str})
        signatures.append((one.get("keyid", ""), _bytes(one["sig"], "sig")))
    if not signatures:
        raise BadEnvelope("it has no signature")
    return Envelope(
        payload=_bytes(fields["payload"], "payload"),
        payload_type=fields["payloadType"],
        signatures=tuple(signatures),
    )


def unseal(data: bytes, key: PublicKey) -> bytes:
    """Return the payload of an envelope that a key has signed.

    Raises:
        BadEnvelope: It is none, holds no in-toto statement, or the key has not signed it.
    """
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


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadEnvelope("a field is given twice")
    return found


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
