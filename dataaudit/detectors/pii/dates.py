"""Days of birth: dates that the calendar has, of people who may live."""

from __future__ import annotations

import re

from dataaudit.detectors.patterns.entity import Candidate, Evidence
from dataaudit.detectors.pii.national import real_date

_OLDEST, _YOUNGEST = 1900, 2035


def birthday(candidate: Candidate) -> Evidence:
    """Reject what no calendar has: numbers in any order of day, month, year; names of months are not looked at."""
    numbers = [int(part) for part in re.findall(r"[0-9]+", candidate.text)]
    if len(numbers) == 1 and candidate.text.isdigit() and len(candidate.text) == 8:
        numbers = [numbers[0] // 10_000, numbers[0] // 100 % 100, numbers[0] % 100]
    if len(numbers) == 2:
        day, year = numbers if numbers[1] > 31 else reversed(numbers)
        return Evidence.FORM if 1 <= day <= 31 and _OLDEST <= year <= _YOUNGEST else Evidence.REJECTED
    if len(numbers) != 3:
        return Evidence.REJECTED
    first, second, third = numbers
    orders = [(first, second, third), (third, second, first), (third, first, second)]
    real = any(
        real_date(year + (1900 if year < 100 else 0), month, day) and (year < 100 or _OLDEST <= year <= _YOUNGEST)
        for year, month, day in orders
        if (year > 31 or year < 100)
    )
    return Evidence.FORM if real else Evidence.REJECTED
