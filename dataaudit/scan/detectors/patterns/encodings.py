"""Strict decoding of the alphabets of keys and addresses; what does not decode is None, never an error."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32 = {letter: value for value, letter in enumerate("qpzry9x8gf2tvdw0s3jn54khce6mua7l")}
_BECH32_STEPS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_MAX_BASE58 = 128
"""Letters; decoding takes quadratic time, and no key is longer."""


def decode_base64(text: str) -> bytes | None:
    """Decode base64 of either alphabet, padded or not; None unless it is as encoders write it."""
    plain = text.replace("-", "+").replace("_", "/")
    if not _BASE64.fullmatch(plain):
        return None
    bare = plain.rstrip("=")
    if len(bare) % 4 == 1 or (len(plain) != len(bare) and len(plain) % 4):
        return None
    try:
        raw = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return None
    # Encoders write 0 in the bits beyond the last byte; in random letters they are so 1 time in 4 or 16.
    return raw if base64.b64encode(raw).rstrip(b"=") == bare.encode() else None


def decode_base58_checked(text: str, alphabet: str = BASE58) -> bytes | None:
    """Decode Base58Check (Bitcoin); None unless the last four bytes are the double SHA-256 of the others."""
    if len(text) > _MAX_BASE58:
        return None
    number = 0
    for letter in text:
        digit = alphabet.find(letter)
        if digit < 0:
            return None
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip(alphabet[0]))
    raw = b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")
    body, check = raw[:-4], raw[-4:]
    return body if hashlib.sha256(hashlib.sha256(body).digest()).digest()[:4] == check else None


def read_bech32(text: str) -> tuple[str, list[int], int] | None:
    """Return prefix, groups of five bits and checksum of Bech32: 1 by BIP 173, 0x2BC830A3 by BIP 350 where it is right.

    The last six groups make the checksum what it is. None where letters do not belong to the alphabet or to one case.
    """
    if text not in (text.lower(), text.upper()):
        return None
    prefix, _, data = text.lower().rpartition("1")
    groups = [_BECH32.get(letter, -1) for letter in data]
    if not prefix or len(groups) < 6 or min(groups) < 0:
        return None
    check = 1
    for value in (*(ord(c) >> 5 for c in prefix), 0, *(ord(c) & 31 for c in prefix), *groups):
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, step in enumerate(_BECH32_STEPS):
            if top >> bit & 1:
                check ^= step
    return prefix, groups, check
