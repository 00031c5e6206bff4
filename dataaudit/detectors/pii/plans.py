"""Numbering plans: the patterns of ``phonenumbers``' data by country code, compiled once, without its slow parser.

``phonenumbers.is_valid_number`` takes 50 to 100 microseconds and a national number has to be tried in many regions.
Whether a number is in use is in the end a match of its national digits with the patterns of a region's kinds of numbers
(fixed line, mobile, ...); those are put into one regular expression for each country code.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_KINDS = (
    "fixed_line",
    "mobile",
    "toll_free",
    "premium_rate",
    "shared_cost",
    "personal_number",
    "voip",
    "pager",
    "uan",
    "voicemail",
)


def in_use(digits: str) -> bool | None:
    """Say whether a number is in use, by its digits from the country's code on; None where there is no such code."""
    from phonenumbers import COUNTRY_CODE_TO_REGION_CODE

    for size in (1, 2, 3):
        code = int(digits[:size] or "0")
        if code in COUNTRY_CODE_TO_REGION_CODE and not digits.startswith("0"):
            return _country(code).fullmatch(digits, size) is not None
    return None


def in_use_in(digits: str, regions: tuple[str, ...]) -> bool:
    """Say whether digits are dialled in one of the regions (ISO 3166 codes), with or without its trunk prefix."""
    return _regions(regions).fullmatch(digits) is not None


@lru_cache(maxsize=512)
def _country(code: int) -> re.Pattern[str]:
    from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, PhoneMetadata

    regions = COUNTRY_CODE_TO_REGION_CODE[code]
    if regions == ("001",):
        return re.compile("|".join(_patterns(PhoneMetadata.metadata_for_nongeo_region(code, None))))
    return re.compile(
        "|".join(one for region in regions for one in _patterns(PhoneMetadata.metadata_for_region(region)))
    )


@lru_cache(maxsize=8)
def _regions(regions: tuple[str, ...]) -> re.Pattern[str]:
    from phonenumbers import PhoneMetadata

    parts = []
    for region in regions:
        metadata = PhoneMetadata.metadata_for_region(region)
        prefix = metadata.national_prefix if metadata is not None else None
        trunk = f"(?:{prefix})?" if prefix else ""
        parts.append(f"{trunk}(?:{'|'.join(_patterns(metadata))})")
    return re.compile("|".join(parts))


def _patterns(metadata: Any) -> list[str]:
    """Return the patterns of all kinds of numbers that a plan has."""
    if metadata is None:
        return []
    kinds = [getattr(metadata, kind) for kind in _KINDS]
    return [f"(?:{kind.national_number_pattern})" for kind in kinds if kind and kind.national_number_pattern]
