"""Phone numbers: ``phonenumbers`` says which are in use; without a country's code, in some regions."""

from __future__ import annotations

import re

from dataaudit.detectors.patterns.entity import Candidate, Evidence
from dataaudit.detectors.pii.checksums import digits_of, one_digit
from dataaudit.detectors.pii.plans import in_use, in_use_in

REGIONS = (
    "US",
    "GB",
    "DE",
    "FR",
    "IN",
    "BR",
    "JP",
    "CN",
    "ES",
    "IT",
    "AU",
    "MX",
    "RU",
    "NL",
    "PL",
    "SE",
    "KR",
    "TR",
    "ZA",
    "ID",
    "CH",
    "AR",
    "NG",
    "IL",
)
"""Regions in which a number without a country's code is tried, by how much they write, in this order."""
_AMERICAN_FICTION = re.compile(
    r"[( ]{0,2}(?:(?:\+|00|011[ .-]?)?1[ .()/-]{0,3})?"
    r"(?:555[ .()/-]{0,3}[0-9]{3}[ .-]?[0-9]{4}|(?:[2-9][0-9]{2}[ .()/-]{0,3})?555[ .-]?01[0-9]{2})(?![ .-]?[0-9])"
)
_BRITISH_FICTION = re.compile(r"(?:44|0044|0)0?(?:7700900|2079460|1632960)")
_EXTENSION = re.compile(r"\s?(?:x|ext\.?|extension|#)\s?[0-9]{1,6}\Z", re.IGNORECASE)
_DATE = re.compile(
    r"(?:(?:19|20)[0-9]{2}[-./ ][0-9]{1,2}[-./ ][0-9]{1,2}|[0-9]{1,2}[-./ ][0-9]{1,2}[-./ ](?:19|20)[0-9]{2}|"
    r"(?:19|20)[0-9]{2}\s?[-/ ]\s?(?:19|20)[0-9]{2}|(?:19|20)[0-9]{6})(?![0-9])"
)
_QUAD = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}\Z|[0-9]{1,5}\.[0-9]+\Z")


def without_extension(text: str) -> str:
    """Return the number without ``x123``, ``ext. 123``."""
    return _EXTENSION.sub("", text)


def international(candidate: Candidate) -> Evidence:
    """Judge a number with ``+`` or ``00``: in use by its country's plan is strong, of a right length the form."""
    plain = without_extension(candidate.text)
    digits = digits_of(plain)
    plus = plain.lstrip("( ").startswith("+")
    if not plus:
        digits = digits.removeprefix("011") if digits.startswith("011") else digits.removeprefix("00")
    if not 7 <= len(digits) <= 16 or one_digit(digits[2:]):
        return Evidence.REJECTED
    used = in_use(digits.replace("0", "", 1) if "(0)" in plain else digits)
    if used:
        return Evidence.STRONG if plus or not plain.isdigit() else Evidence.WEAK
    if plain.isdigit() or (used is None and not candidate.context):
        return Evidence.REJECTED
    return Evidence.FORM


def national(candidate: Candidate) -> Evidence:
    """Judge a number without a country's code, dates and dotted quads left out.

    The plans of :data:`REGIONS` are not asked: nine of ten random numbers of 7 to 12 digits are in use in one.
    """
    plain = without_extension(candidate.text).strip()
    digits = digits_of(plain)
    if not 6 <= len(digits) <= 15 or one_digit(digits) or _DATE.match(plain) or _QUAD.match(plain):
        return Evidence.REJECTED
    groups = re.findall(r"[0-9]+", plain)
    mixed = "." in plain and " " in plain.replace(") ", ")")
    dashed = [len(one) for one in groups] == [3, 2, 4] and " " not in plain
    if mixed or dashed or _is_range(plain, groups) or groups.count("00") > 1:
        return Evidence.REJECTED
    return Evidence.FORM


def _is_range(plain: str, groups: list[str]) -> bool:
    """Whether it is two pages or lines, as in 671-685."""
    if len(groups) != 2 or len(groups[0]) != len(groups[1]) or "-" not in plain:
        return False
    return 0 <= int(groups[1]) - int(groups[0]) < 200


def trunk(candidate: Candidate) -> Evidence:
    """Judge a number that begins with 0 and has no word beside it: it must be in use in one of :data:`REGIONS`."""
    said = national(candidate)
    digits = digits_of(without_extension(candidate.text))
    if said is not Evidence.FORM or candidate.context:
        return said
    if not 9 <= len(digits) <= 12:
        return Evidence.REJECTED
    return Evidence.FORM if in_use_in(digits, REGIONS) else Evidence.REJECTED


def reserved_phone(candidate: Candidate) -> bool:
    """Whether it is fiction: 555-0100 to 555-0199 and the 555 area, Ofcom's numbers for drama, counting digits."""
    digits = digits_of(without_extension(candidate.text))
    if _AMERICAN_FICTION.match(candidate.text) or _BRITISH_FICTION.match(digits):
        return True
    return any(
        digits[-size:] in run for size in (9, 10) for run in ("01234567890", "9876543210") if len(digits) >= size
    )
