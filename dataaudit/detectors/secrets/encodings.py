"""What strings are made of: strict decoding, and how random they look.

Strict decoding of the alphabets that tokens are written in; what does not decode is None, never an error.

How random a string looks: for rules whose form alone is met by words, numbers and identifiers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from collections import Counter

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_INDEX = {letter: i for i, letter in enumerate(_BASE58)}
_BECH32_INDEX = {letter: i for i, letter in enumerate("qpzry9x8gf2tvdw0s3jn54khce6mua7l")}
_BECH32_STEPS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_MAX_BASE58 = 128
"""Letters; decoding takes quadratic time, and no key is longer."""


def decode_base64(text: str) -> bytes | None:
    """Decode base64 of either alphabet, padded or not; None unless it is what an encoder writes."""
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
    # Bits beyond the last byte are 0 in what encoders write; in random letters they are so 1 time in 4 or 16.
    return raw if base64.b64encode(raw).rstrip(b"=") == bare.encode() else None


def decode_base58_checked(text: str) -> bytes | None:
    """Decode Base58Check (Bitcoin); None unless the last four bytes are the double SHA-256 of the others."""
    if len(text) > _MAX_BASE58:
        return None
    number = 0
    for letter in text:
        digit = _BASE58_INDEX.get(letter)
        if digit is None:
            return None
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    raw = b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")
    body, check = raw[:-4], raw[-4:]
    return body if hashlib.sha256(hashlib.sha256(body).digest()).digest()[:4] == check else None


def decode_bech32(text: str) -> tuple[str, tuple[int, ...]] | None:
    """Decode Bech32 (BIP 173) into its prefix and its groups of five bits; None unless the checksum holds."""
    if text not in (text.lower(), text.upper()):
        return None
    prefix, _, data = text.lower().rpartition("1")
    groups = [_BECH32_INDEX.get(letter, -1) for letter in data]
    if not prefix or len(groups) < 6 or min(groups) < 0:
        return None
    check = 1
    for value in (*(ord(c) >> 5 for c in prefix), 0, *(ord(c) & 31 for c in prefix), *groups):
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, step in enumerate(_BECH32_STEPS):
            if top >> bit & 1:
                check ^= step
    return (prefix, tuple(groups[:-6])) if check == 1 else None


_WORDS = re.compile(r"[A-Z]?[a-z]{4,}")
_SEPARATOR = re.compile(r"[_.-]")
_JOINED = re.compile(r"(?<![A-Za-z])[A-Za-z]{3,}[_.-]?")
"""Words of an identifier in one case: ``base_of_the_4th_table``."""
_RUN = re.compile(r"(.)\1{2,}")
_CLASSES = (re.compile(r"[a-z]"), re.compile(r"[A-Z]"), re.compile(r"[0-9]"))
_HEX = re.compile(r"[0-9a-fA-F]+")
_MIN_SHARE = 0.75
"""Of the entropy that a random string of this length and alphabet shows at the median."""
_MIN_VARIED = 0.7
"""The same, of a random string of hexadecimal digits."""
_MAX_WORDS = 0.7
"""Share of letters in words, beyond which a string is one of words."""
_MAX_JOINED = 0.8
"""The same of words of an identifier: random letters in one case have 0.6, three and more in a row."""


def bits_per_letter(text: str) -> float:
    """Measure Shannon's entropy of the letters of ``text``, in bits a letter; 0 for an empty text."""
    if not text:
        return 0.0
    total = len(text)
    return math.log2(total) - sum(count * math.log2(count) for count in Counter(text).values()) / total


def _expected_bits(length: int, alphabet: int) -> float:
    """Bits a letter that random text shows: the alphabet's less Miller's bias, at most that of distinct letters."""
    distinct = alphabet * (1 - (1 - 1 / alphabet) ** length)
    return min(math.log2(length), math.log2(alphabet) - (distinct - 1) / (2 * length * math.log(2)))


def is_varied(text: str) -> bool:
    """Tell whether the letters of a string vary as those of a key do; for forms that no words and numbers meet."""
    return len(text) > 1 and bits_per_letter(text) >= _MIN_VARIED * _expected_bits(len(text), 16)


def is_random(text: str) -> bool:
    """Tell whether a string may come from a generator of random letters rather than from a person.

    It must show three quarters of the entropy that a random string of its length and alphabet shows, must not be made
    of words for more than 70 or 80 %, and, if it is no hexadecimal number, must mix letters and digits or both cases.
    """
    body = text.rstrip("=")
    if len(body) < 8:
        return False
    digits = body.replace("-", "")
    if _HEX.fullmatch(digits):
        if digits.isdigit():
            return False
        body, alphabet = digits, 16
    else:
        kinds = [bool(kind.search(body)) for kind in _CLASSES]
        if sum(kinds) < 2:
            return False
        alphabet = 26 * kinds[0] + 26 * kinds[1] + 10 * kinds[2]
        both = kinds[0] and kinds[1]
        words = _WORDS if both else _JOINED if _SEPARATOR.search(body) else None
        if words and sum(map(len, words.findall(body))) > (_MAX_WORDS if both else _MAX_JOINED) * len(body):
            return False
    if _RUN.search(body) and len(_RUN.sub("", body)) < 0.6 * len(body):
        return False
    return bits_per_letter(body) >= _MIN_SHARE * _expected_bits(len(body), alphabet)
