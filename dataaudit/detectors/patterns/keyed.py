"""Digests of what was found, under a key that only the user has: equal values can be counted without being known."""

from __future__ import annotations

import hashlib
import hmac

NORMAL_FORMS = ("text", "lower", "digits", "alnum")
DIGEST_BYTES = 16


def normal_form(text: bytes, form: str) -> bytes:
    """Return the part of a value that names it: ``digits`` only, ``alnum`` upper-cased, ``lower`` or the ``text``."""
    if form == "digits":
        return bytes(byte for byte in text if 0x30 <= byte <= 0x39)
    if form == "alnum":
        return bytes(byte for byte in text.upper() if 0x30 <= byte <= 0x39 or 0x41 <= byte <= 0x5A)
    return text.strip().lower() if form == "lower" else text


def keyed_digest(key: bytes, entity: str, text: bytes, form: str) -> bytes:
    """Return the first 16 bytes of HMAC-SHA256 over the entity's name, a zero byte and the normal form."""
    message = entity.encode() + b"\0" + normal_form(text, form)
    return hmac.new(key, message, hashlib.sha256).digest()[:DIGEST_BYTES]
