"""Check digits: the schemes that national numbers, cards and accounts share, over strings of ASCII digits."""

from __future__ import annotations

import re
from collections.abc import Sequence

# ISO/IEC 7064 and Verhoeff (1969): multiplication in the dihedral group of order 10, and the permutation of places.
_DIHEDRAL = tuple(
    tuple((a + b) % 5 if a < 5 and b < 5
          else (a + b % 5) % 5 + 5 if a < 5
          else (a - b - 5) % 5 + 5 if b < 5
          else (a - b) % 5
          for b in range(10))
    for a in range(10)
)  # fmt: skip
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
_OTHER = re.compile(r"[^0-9]+")
_STEP = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)


def digits_of(text: str) -> str:
    """Return the ASCII digits of a text."""
    return _OTHER.sub("", text)


def luhn(digits: str) -> bool:
    """Whether the last digit is Luhn's check digit (ISO/IEC 7812-1, annex B): meets 1 number in 10."""
    total = sum(map(int, digits[-1::-2])) + sum(_DOUBLED[int(digit)] for digit in digits[-2::-2])
    return len(digits) > 1 and total % 10 == 0


def verhoeff(digits: str) -> bool:
    """Whether the last digit is Verhoeff's check digit: meets 1 number in 10."""
    check = 0
    for place, letter in enumerate(reversed(digits)):
        value = ord(letter) - 48
        for _ in range(place % 8):
            value = _STEP[value]
        check = _DIHEDRAL[check][value]
    return len(digits) > 1 and check == 0


def mod97(text: str) -> bool:
    """Whether digits and letters (A is 10) leave 1 when divided by 97 (ISO/IEC 7064, MOD 97-10): 1 in 97."""
    return len(text) > 2 and int("".join(str(int(letter, 36)) for letter in text)) % 97 == 1


def mod11_10(digits: str) -> bool:
    """Whether the last digit is the check digit of ISO/IEC 7064, MOD 11,10: meets 1 number in 10."""
    product = 10
    for letter in digits[:-1]:
        product = ((product + int(letter)) % 10 or 10) * 2 % 11
    return len(digits) > 1 and (product + int(digits[-1])) % 10 == 1


def weighted(digits: str, weights: Sequence[int]) -> int:
    """Return the sum of digits times weights; both have one length."""
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=True))


def one_digit(digits: str) -> bool:
    """Whether the number repeats one digit: never issued, and what people type as a filler."""
    return len(set(digits)) <= 1
