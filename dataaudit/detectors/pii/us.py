"""Numbers of the United States: social security, tax, bank routing, prescribers."""

from __future__ import annotations

from dataaudit.detectors.patterns.entity import Candidate, Evidence
from dataaudit.detectors.pii.checksums import digits_of, one_digit, weighted

_ADVERTISED = frozenset(("078051120", "219099999", "457555462", "123456789", "987654321", "111223333", "123121234"))


def ssn(candidate: Candidate) -> Evidence:
    """Reject areas 000, 666 and 9xx, group 00, serial 0000: the Social Security Administration never issues them."""
    digits = digits_of(candidate.text)
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    if area in {"000", "666"} or area[0] == "9" or group == "00" or serial == "0000" or one_digit(digits):
        return Evidence.REJECTED
    return Evidence.FORM


def reserved_ssn(candidate: Candidate) -> bool:
    """Whether it was printed in advertisements, or counts."""
    return digits_of(candidate.text) in _ADVERTISED


def itin(candidate: Candidate) -> Evidence:
    """Reject groups that the IRS does not give: 50 to 65, 70 to 88, 90 to 92, 94 to 99 are in use, areas 9xx."""
    digits = digits_of(candidate.text)
    group = int(digits[3:5])
    used = 50 <= group <= 65 or 70 <= group <= 88 or 90 <= group <= 92 or 94 <= group <= 99
    return Evidence.FORM if digits[0] == "9" and used else Evidence.REJECTED


def aba_routing(candidate: Candidate) -> Evidence:
    """Judge a routing number: a Federal Reserve prefix, weights 3 7 1, divisible by 10."""
    digits = digits_of(candidate.text)
    prefix = int(digits[:2])
    known = prefix <= 12 or 21 <= prefix <= 32 or 61 <= prefix <= 72 or prefix == 80
    if not known or one_digit(digits) or weighted(digits, (3, 7, 1) * 3) % 10:
        return Evidence.REJECTED
    return Evidence.WEAK


def dea(candidate: Candidate) -> Evidence:
    """Judge a DEA number: odd places plus twice the even places end in the check digit."""
    digits = digits_of(candidate.text)[-7:]
    total = weighted(digits[:6], (1, 2, 1, 2, 1, 2))
    return Evidence.WEAK if total % 10 == int(digits[6]) and not one_digit(digits) else Evidence.REJECTED


def licence(candidate: Candidate) -> Evidence:
    """Reject fillers: a licence or passport has no check digit that is printed."""
    digits = digits_of(candidate.text)
    return Evidence.REJECTED if not digits or one_digit(digits) else Evidence.FORM
