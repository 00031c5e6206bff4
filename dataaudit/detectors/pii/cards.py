"""Payment cards: issuer ranges (ISO/IEC 7812), lengths and Luhn's check digit."""

from __future__ import annotations

import re

from dataaudit.detectors.patterns.entity import Candidate, Evidence
from dataaudit.detectors.pii.checksums import digits_of, luhn, one_digit

# Lowest and highest prefix, lengths. Ranges that the schemes publish; four digits tell all of them apart.
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


def in_row(candidate: Candidate) -> bool:
    """Whether four hexadecimal digits stand right before or behind it."""
    return bool(_ROW_BEFORE.search(candidate.before) or _ROW_AFTER.match(candidate.after))


def issued(digits: str) -> bool:
    """Whether an issuer has this prefix and length."""
    prefix = int(digits[:4])
    return any(low <= prefix <= high and len(digits) in lengths for low, high, lengths in _ISSUERS)


def card(candidate: Candidate) -> Evidence:
    """Reject what Luhn refuses; an issuer's prefix is weak evidence, in the groups of a card's face a strong one."""
    digits = digits_of(candidate.text)
    if not luhn(digits) or one_digit(digits):
        return Evidence.REJECTED
    groups = tuple(len(group) for group in candidate.text.replace("-", " ").split())
    if not issued(digits):
        return Evidence.FORM if len(digits) in {15, 16} and digits[0] != "0" else Evidence.REJECTED
    return Evidence.STRONG if groups in _GROUPS and not in_row(candidate) else Evidence.WEAK
