"""Check digits by python-stdnum: the schemes that national numbers, cards and accounts share, over ASCII digits."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

_OTHER = re.compile(r"[^0-9]+")


@cache
def stdnum(name: str) -> Any:
    """Return a module of python-stdnum, imported when the first number asks for it.

    Only what depends on the number alone is used: some of its checks look at today's date (those of Belgian, Swedish,
    South African and Norwegian numbers), and a corpus must give the same manifest next year.
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
    """Whether the number repeats one digit: never issued, and what people type as a filler."""
    return len(set(digits)) <= 1
