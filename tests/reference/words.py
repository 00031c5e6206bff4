"""Reference of the hash of :mod:`dataaudit.scan.kernels.words`; for words see dataaudit.scan.kernels.plain_words."""

from __future__ import annotations

from unicodedata import combining

_MASK = (1 << 64) - 1


def word_hash(folded: str) -> int:
    """Return the 64-bit hash of a folded word."""
    value, chunk, accents, bases = 0xCBF29CE484222325, b"", 0, 0
    for char in folded:
        if combining(char):
            accents += _mixed((ord(char) | bases << 32) * 0xA0761D6478BD642F & _MASK)
            continue
        code = ord(char)
        token = (
            bytes([code]) if code < 0x80 else bytes([0x80 | part for part in (code >> 14, code >> 7 & 127, code & 127)])
        )
        if len(chunk) + len(token) > 8:
            value, chunk = _absorbed(value, chunk), b""
        chunk += token
        if len(chunk) == 8:
            value, chunk = _absorbed(value, chunk), b""
        bases += 1
    mixed = _mixed((value ^ int.from_bytes(chunk, "little")) + accents & _MASK)
    return mixed | 1 if all("0" <= char <= "9" for char in folded) else mixed & ~1


def _absorbed(value: int, chunk: bytes) -> int:
    value = (value ^ int.from_bytes(chunk, "little")) * 0xD6E8FEB86659FD93 & _MASK
    return value ^ value >> 32


def _mixed(value: int) -> int:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ value >> shift) * factor & _MASK
    return value ^ value >> 31
