"""Reference implementations: plain Python integers and loops. Nothing of ours is imported."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

_SPACES = "".join(chr(point) for point in range(0x110000) if chr(point).isspace())


def bucket_bounds(value: int) -> tuple[int, int]:
    """Return the bounds of one value's bucket: all binary digits after the eighth are free."""
    digits = f"{value:b}"
    free = max(len(digits) - 8, 0)
    kept = digits[: len(digits) - free]
    return int(kept + "0" * free, 2), int(kept + "1" * free, 2)


def quantile(values: Sequence[int], percent: int) -> int:
    """Return the smallest value such that at least ``percent`` % of the values are at or below it."""
    ordered = sorted(values)
    for position, value in enumerate(ordered, start=1):
        if position * 100 >= percent * len(ordered):
            return value
    return ordered[-1]


def normal_digest(text: str) -> bytes:
    """Return the digest of the ``nfc_space`` form, word by word."""
    words: list[str] = []
    word = ""
    for character in unicodedata.normalize("NFC", text):
        if character in _SPACES:
            words += [word] if word else []
            word = ""
        else:
            word += character
    words += [word] if word else []
    return hashlib.new("sha256", " ".join(words).encode("utf-8")).digest()[:16]


def earlier_duplicates(
    keys: Sequence[bytes], places: Sequence[tuple[int, int]], splits: Sequence[int]
) -> list[tuple[bool, bool, int]]:
    """Return (seen before, seen before in its split, index of the first equal one) of every document."""
    answers: list[tuple[bool, bool, int]] = []
    for index, key in enumerate(keys):
        equal = [other for other in range(len(keys)) if keys[other] == key]
        earlier = [other for other in equal if places[other] < places[index]]
        first = min(equal, key=lambda other: places[other])
        answers.append((bool(earlier), any(splits[other] == splits[index] for other in earlier), first))
    return answers


def names_in(text: str) -> int:
    """Count capitalised words within sentences."""
    return len(re.findall("(?<=[a-z,] )[A-Z](?=[a-z])", text))
