"""How random a string looks: for rules whose form alone is met by words, numbers and identifiers."""

from __future__ import annotations

import math
import re
from collections import Counter

_WORDS = re.compile(r"[A-Z]?[a-z]{4,}")
_SEPARATOR = re.compile(r"[_.-]")
_JOINED = re.compile(r"(?<![A-Za-z])[A-Za-z]{3,}[_.-]?")
"""Words of an identifier in one case: ``base_of_the_4th_table``."""
_RUN = re.compile(r"(.)\1{2,}")
_CLASSES = (re.compile(r"[a-z]"), re.compile(r"[A-Z]"), re.compile(r"[0-9]"))
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_MIN_SHARE = 0.75
"""Of the entropy that a random string of this length and alphabet shows at the median."""
_MIN_VARIED = 0.7
"""The same, of a random string of hexadecimal digits."""
_MAX_WORDS = 0.7
"""Share of letters in words, beyond which a string is one of words."""


def bits_per_letter(text: str) -> float:
    """Measure Shannon's entropy of the letters of ``text``, in bits a letter; 0 for an empty text."""
    if not text:
        return 0.0
    total = len(text)
    return math.log2(total) - sum(count * math.log2(count) for count in Counter(text).values()) / total


def _expected_bits(length: int, alphabet: int) -> float:
    """Bits a letter that random text shows: the alphabet's less Miller's bias, at most that of distinct letters."""
    distinct = alphabet * (1 - (1 - 1 / alphabet) ** length)
    return min(math.log2(length), math.log2(alphabet) - (distinct - 1) / (2 * length * math.log(2)))


def is_varied(text: str) -> bool:
    """Tell whether the letters of a string vary as those of a key do; for forms that no words and numbers meet."""
    return len(text) > 1 and bits_per_letter(text) >= _MIN_VARIED * _expected_bits(len(text), 16)


def is_random(text: str) -> bool:
    """Tell whether a string may come from a generator of random letters rather than from a person.

    It must show three quarters of the entropy that a random string of its length and alphabet shows, must not be made
    of words for more than 70 %, and, if it is no hexadecimal number, must mix letters and digits or both cases.
    """
    body = text.rstrip("=")
    if len(body) < 8:
        return False
    if _HEX.fullmatch(body):
        if body.isdigit():
            return False
        alphabet = 16
    else:
        kinds = [bool(kind.search(body)) for kind in _CLASSES]
        if sum(kinds) < 2:
            return False
        alphabet = 26 * kinds[0] + 26 * kinds[1] + 10 * kinds[2]
        words = _WORDS if kinds[0] and kinds[1] else _JOINED if _SEPARATOR.search(body) else None
        if words and sum(map(len, words.findall(body))) > _MAX_WORDS * len(body):
            return False
    if _RUN.search(body) and len(_RUN.sub("", body)) < 0.6 * len(body):
        return False
    return bits_per_letter(body) >= _MIN_SHARE * _expected_bits(len(body), alphabet)
