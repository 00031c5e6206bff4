"""Addresses of crypto-currencies, each by the checksum that it carries."""

from __future__ import annotations

import hashlib
from functools import reduce

from dataaudit.detectors.patterns.entity import Candidate, Evidence

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_RIPPLE = "rpshnaf39wBUDNEGHJKLM4PQRST7VWXYZ2bcdeCg65jkm8oFqi1tuvAxyz"
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_MASK = (1 << 64) - 1


def base58check(text: str, alphabet: str = _BASE58) -> bool:
    """Whether the last four bytes are the double SHA-256 of the others: chance meets 1 in 4 thousand million."""
    value = 0
    for letter in text:
        place = alphabet.find(letter)
        if place < 0:
            return False
        value = value * 58 + place
    zeros = len(text) - len(text.lstrip(alphabet[0]))
    raw = b"\0" * zeros + value.to_bytes((value.bit_length() + 7) // 8, "big")
    if len(raw) != 25:
        return False
    return hashlib.sha256(hashlib.sha256(raw[:-4]).digest()).digest()[:4] == raw[-4:]


def bech32(text: str) -> bool:
    """Whether BIP 173's or BIP 350's checksum holds; letters are of one case."""
    if text not in {text.lower(), text.upper()}:
        return False
    prefix, _, data = text.lower().rpartition("1")
    if len(data) < 8 or not prefix or any(letter not in _BECH32 for letter in data):
        return False
    values = [ord(letter) >> 5 for letter in prefix] + [0] + [ord(letter) & 31 for letter in prefix]
    values += [_BECH32.index(letter) for letter in data]
    check = reduce(_polymod, values, 1)
    return check == (1 if data[0] == "q" else 0x2BC830A3)


def _polymod(check: int, value: int) -> int:
    top = check >> 25
    check = (check & 0x1FFFFFF) << 5 ^ value
    for place, generator in enumerate(_GENERATORS):
        check ^= generator if top >> place & 1 else 0
    return check


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
        state = [lane ^ turned[place % 5] for place, lane in enumerate(state)]
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
    """Judge an address of Bitcoin, Litecoin, Dogecoin, Tron, Ripple (base58), SegWit (bech32) or Ethereum."""
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
    return Evidence.STRONG if base58check(text, _RIPPLE if text[0] == "r" else _BASE58) else Evidence.REJECTED


def reserved_crypto(candidate: Candidate) -> bool:
    """Whether it is on a test network, or the address of the first block, which stands in every manual."""
    text = candidate.text
    return text[:3].lower() == "tb1" or text == "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"
