"""Payment cards (ISO/IEC 7812), IBANs (ISO 13616), addresses of crypto-currencies, and check digits by python-stdnum.

All are checked over ASCII digits; an address by the checksum of its currency.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from dataaudit.scan.detectors.patterns.encodings import BASE58, decode_base58_checked, read_bech32
from dataaudit.scan.detectors.patterns.entity import Candidate, Evidence

_OTHER = re.compile(r"[^0-9]+")


@cache
def stdnum(name: str) -> Any:
    """Return a module of python-stdnum, imported when the first number needs it.

    Only functions of the number alone are used. Some checks depend on today's date (of Belgian, Swedish, South African
    and Norwegian numbers), and a corpus must give the same manifest next year.
    """
    return importlib.import_module(f"stdnum.{name}")


def digits_of(text: str) -> str:
    """Return the ASCII digits of a text."""
    return _OTHER.sub("", text)


def luhn(digits: str) -> bool:
    """Whether the last digit is Luhn's check digit (ISO/IEC 7812-1, annex B): meets 1 number in 10."""
    return len(digits) > 1 and stdnum("luhn").checksum(digits) == 0


def verhoeff(digits: str) -> bool:
    """Whether the last digit is Verhoeff's check digit (1969): meets 1 number in 10."""
    return len(digits) > 1 and stdnum("verhoeff").checksum(digits) == 0


def mod97(text: str) -> bool:
    """Whether digits and letters (A is 10) leave 1 when divided by 97 (ISO/IEC 7064, MOD 97-10): 1 in 97."""
    return len(text) > 2 and stdnum("iso7064.mod_97_10").checksum(text) == 1


def mod11_10(digits: str) -> bool:
    """Whether the last digit is the check digit of ISO/IEC 7064, MOD 11,10: meets 1 number in 10."""
    return len(digits) > 1 and stdnum("iso7064.mod_11_10").checksum(digits) == 1


def weighted(digits: str, weights: Sequence[int]) -> int:
    """Return the sum of digits times weights; both have one length."""
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=True))


def one_digit(digits: str) -> bool:
    """Whether the number repeats one digit: never issued, and typed as a filler."""
    return len(set(digits)) <= 1


# Lowest and highest prefix, lengths: the ranges that the schemes publish; four digits tell all of them apart.
_ISSUERS = (
    (4000, 4999, {13, 16, 19}),  # Visa
    (5100, 5599, {16}),
    (2221, 2720, {16}),  # Mastercard
    (3400, 3499, {15}),
    (3700, 3799, {15}),  # American Express
    (3000, 3059, {14, 16, 17, 18, 19}),
    (3095, 3095, {14, 16, 17, 18, 19}),  # Diners Club
    (3600, 3699, {14, 15, 16, 17, 18, 19}),
    (3800, 3999, {14, 16, 17, 18, 19}),
    (6011, 6011, {16, 17, 18, 19}),
    (6440, 6599, {16, 17, 18, 19}),  # Discover
    (3500, 3599, {16, 17, 18, 19}),  # JCB issues 3528 to 3589; test data use all of 35
    (1800, 1800, {15}),
    (2131, 2131, {15}),
    (6200, 6299, {16, 17, 18, 19}),
    (8100, 8171, {16, 17, 18, 19}),  # UnionPay
    (5000, 5099, set(range(12, 20))),
    (5600, 5899, set(range(12, 20))),
    (6000, 6799, set(range(12, 20))),  # Maestro
    (2200, 2204, {16, 17, 18, 19}),  # Mir
    (9792, 9792, {16}),  # Troy
    (8600, 8600, {16}),
    (9860, 9860, {16}),  # UzCard, Humo
)
_GROUPS = {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3), (4, 4, 4, 1)}

# Four digits beside it: a row of a table or of a dump, in which chance meets Luhn and an issuer again and again.
_ROW_BEFORE = re.compile(r"(?<![0-9a-z])[0-9a-f]{4}[\s-]{1,8}\Z")
_ROW_AFTER = re.compile(r"[\s-]{1,8}[0-9a-f]{4}(?![0-9a-z/])")


_NUMBER_BEFORE = re.compile(r"[0-9][\s\[\](){},;]{1,8}\Z")
_NUMBER_AFTER = re.compile(r"[\s\[\](){},;]{1,8}-?[0-9]+(?:[.\s\])},;]|\Z)")
"""Coordinates, tables, dumps; an expiry date or a code behind a card stands in the same line."""
_CODE_AFTER = re.compile(r"[ \t]{1,3}(?:[0-9]{3,4}\b(?![ \t]*[-0-9])|[01][0-9](?:/|[ \t]+)[0-9]{2})")
_LAST_CARD = re.compile(r"([0-9]{4}(?:[ -]?[0-9]{4}){3})\s{1,3}\Z")
_NEXT_CARD = re.compile(r"\s{1,3}([0-9]{4}(?:[ -]?[0-9]{4}){3})(?![0-9])")


def in_row(candidate: Candidate) -> bool:
    """Whether four hexadecimal digits stand right before or behind it."""
    return bool(_ROW_BEFORE.search(candidate.before) or _ROW_AFTER.match(candidate.after))


def _neighbours(candidate: Candidate, digits: str) -> int:
    """Return on how many sides numbers other than cards stand; 2 as well where its groups are near each other."""
    groups = [int(digits[first : first + 4]) for first in range(0, len(digits) - 3, 4)]
    if 0 < max(groups) - min(groups) < 500:
        return 2
    before, after = candidate.before, candidate.after
    left = _NUMBER_BEFORE.search(before) and not _is_card(_LAST_CARD.search(before))
    right = _NUMBER_AFTER.match(after) and not _CODE_AFTER.match(after) and not _is_card(_NEXT_CARD.match(after))
    return bool(left) + bool(right)


def _is_card(match: re.Match[str] | None) -> bool:
    digits = digits_of(match[1]) if match else ""
    return bool(digits) and issued(digits) and luhn(digits)


_IN_URL = re.compile(r"://\S*\Z|(?<!\.)\.\Z")
"""Part of a URL or of a decimal number."""
_IN_NAME = re.compile(r"[a-z]-\Z")
_OF_A_PAYMENT = re.compile(r"\b(?:r[eé]f(?:[eé]rence)?|invoice|order)[ _]?(?:no|nr|number|id)?[.:#=]{0,2} {0,2}\Z")


def issued(digits: str) -> bool:
    """Whether an issuer has this prefix and length."""
    prefix = int(digits[:4])
    return any(low <= prefix <= high and len(digits) in lengths for low, high, lengths in _ISSUERS)


def card(candidate: Candidate) -> Evidence:
    """Reject numbers that Luhn refuses; an issuer's prefix is weak evidence, in the groups of a card's face strong."""
    digits = digits_of(candidate.text)
    if not luhn(digits) or one_digit(digits) or (neighbours := _neighbours(candidate, digits)) == 2:
        return Evidence.REJECTED
    plain = candidate.text.isdigit()
    if plain and (_IN_URL.search(candidate.before) or (_IN_NAME.search(candidate.before) and not candidate.context)):
        return Evidence.REJECTED
    groups = tuple(len(group) for group in candidate.text.replace("-", " ").split())
    alone = not neighbours and not in_row(candidate)
    if not issued(digits):
        return Evidence.FORM if alone and len(digits) in {15, 16} and digits[0] != "0" else Evidence.REJECTED
    if _OF_A_PAYMENT.search(candidate.before):
        return Evidence.FORM if candidate.context else Evidence.WEAK
    return Evidence.STRONG if alone and groups in _GROUPS else Evidence.WEAK


_LENGTHS_LIST = (
    "AD:24 AE:23 AL:28 AT:20 AZ:28 BA:20 BE:16 BG:22 BH:22 BI:27 BR:29 BY:28 CH:21 CR:22 CY:28 CZ:24 DE:22 DJ:27 "
    "DK:18 DO:28 EE:20 EG:29 ES:24 FI:18 FK:18 FO:18 FR:27 GB:22 GE:22 GI:23 GL:18 GR:27 GT:28 HN:28 HR:21 HU:28 "
    "IE:22 IL:23 IQ:23 IS:26 IT:27 JO:30 KW:30 KZ:20 LB:28 LC:32 LI:21 LT:20 LU:20 LV:21 LY:25 MC:27 MD:24 ME:22 "
    "MK:19 MN:20 MR:27 MT:31 MU:30 NI:28 NL:18 NO:15 OM:23 PK:24 PL:28 PS:29 PT:25 QA:29 RO:24 RS:22 RU:33 SA:24 "
    "SC:31 SD:18 SE:24 SI:19 SK:24 SM:27 SO:23 ST:25 SV:28 TL:23 TN:24 TR:26 UA:29 VA:22 VG:24 XK:20 YE:30"
)
LENGTHS = dict(pair.split(":") for pair in _LENGTHS_LIST.split())
"""Characters of an IBAN by country code, SWIFT's registry."""


def normal_iban(text: str) -> str:
    """Return the IBAN at the start of a text without separators, upper-cased; empty when its country has none."""
    letters = "".join(letter for letter in text.upper() if letter.isalnum())
    return letters if len(letters) == int(LENGTHS.get(letters[:2], -1)) else ""


def iban(candidate: Candidate) -> Evidence:
    """Check an IBAN: chance seldom has country, length and MOD 97-10, but it has them without the length."""
    letters = "".join(letter for letter in candidate.text.upper() if letter.isalnum())
    if letters[:2] not in LENGTHS or not mod97(letters[4:] + letters[:4]):
        return Evidence.REJECTED
    grouped = not candidate.text.isalnum()
    return Evidence.STRONG if normal_iban(letters) and not (grouped and in_row(candidate)) else Evidence.WEAK


_RIPPLE = "rpshnaf39wBUDNEGHJKLM4PQRST7VWXYZ2bcdeCg65jkm8oFqi1tuvAxyz"
_MASK = (1 << 64) - 1


def bech32(text: str) -> bool:
    """Whether the checksum of BIP 173 (version 0) or BIP 350 is right; letters are of one case."""
    parts = read_bech32(text)
    if parts is None or len(parts[1]) < 8:
        return False
    _, groups, check = parts
    return check == (1 if groups[0] == 0 else 0x2BC830A3)


def keccak256(data: bytes) -> bytes:
    """Return Keccak-256 as Ethereum uses it: SHA-3's permutation with the padding of the submission of 2011."""
    rate = 136
    padded = bytearray(data + b"\x01" + bytes(rate - 1 - len(data) % rate))
    padded[-1] |= 0x80
    state = [0] * 25
    for first in range(0, len(padded), rate):
        for lane in range(rate // 8):
            state[lane] ^= int.from_bytes(padded[first + 8 * lane : first + 8 * lane + 8], "little")
        state = _permuted(state)
    return b"".join(lane.to_bytes(8, "little") for lane in state[:4])


def _permuted(state: list[int]) -> list[int]:
    """Keccak-f[1600], FIPS 202 section 3.3: 24 rounds of theta, rho and pi, chi, iota."""
    register = 1
    for _ in range(24):
        columns = [state[x] ^ state[x + 5] ^ state[x + 10] ^ state[x + 15] ^ state[x + 20] for x in range(5)]
        turned = [columns[(x - 1) % 5] ^ _rotated(columns[(x + 1) % 5], 1) for x in range(5)]
        state = [lane ^ turned[index % 5] for index, lane in enumerate(state)]
        x, y, current = 1, 0, state[1]
        for turn in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            current, state[x + 5 * y] = state[x + 5 * y], _rotated(current, (turn + 1) * (turn + 2) // 2 % 64)
        rows = [state[5 * y : 5 * y + 5] for y in range(5)]
        state = [row[x] ^ (~row[(x + 1) % 5] & _MASK & row[(x + 2) % 5]) for row in rows for x in range(5)]
        for power in range(7):
            if register & 1:
                state[0] ^= 1 << (1 << power) - 1
            register = register << 1 ^ (0x171 if register & 0x80 else 0)
    return state


def _rotated(lane: int, by: int) -> int:
    return (lane << by | lane >> 64 - by) & _MASK


def eip55(text: str) -> bool:
    """Whether the case of the letters is the checksum of ERC-55, over ``0x`` and 40 hexadecimal digits."""
    digits = text[2:]
    hashed = keccak256(digits.lower().encode()).hex()
    return all(
        letter == (letter.upper() if int(nibble, 16) >= 8 else letter.lower())
        for letter, nibble in zip(digits, hashed, strict=False)
    )


def crypto(candidate: Candidate) -> Evidence:
    """Check an address of Bitcoin, Litecoin, Dogecoin, Tron, Ripple (base58), SegWit (bech32) or Ethereum."""
    text = candidate.text
    if text[:2] in {"0x", "0X"}:
        digits = text[2:]
        if digits.isdigit() or len(set(digits.lower())) < 8:
            return Evidence.REJECTED
        if digits in {digits.lower(), digits.upper()}:
            return Evidence.FORM
        return Evidence.STRONG if eip55(text) else Evidence.REJECTED
    if text[:3].lower() in {"bc1", "tb1"} or text[:4].lower() == "ltc1":
        return Evidence.STRONG if bech32(text) else Evidence.REJECTED
    body = decode_base58_checked(text, _RIPPLE if text[0] == "r" else BASE58)
    return Evidence.STRONG if body is not None and len(body) == 21 else Evidence.REJECTED


def reserved_crypto(candidate: Candidate) -> bool:
    """Whether it is on a test network, or the address of the first block, which every manual shows."""
    text = candidate.text
    return text[:3].lower() == "tb1" or text == "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"
