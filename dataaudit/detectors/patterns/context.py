"""Words near a candidate: folded text, and a pattern of context words over it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def fold(text: str) -> str:
    """Return the text without case and accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def before(document: bytes, start: int, size: int) -> str:
    """Return up to ``size`` bytes that end at ``start``, folded; a word that is cut is left out."""
    first = max(0, start - size)
    while 0 < first < start and (
        document[first] & 0xC0 == 0x80 or (document[first] in _LETTERS and document[first - 1] in _LETTERS)
    ):
        first += 1
    return fold(document[first:start].decode("utf-8", "ignore"))


def after(document: bytes, end: int, size: int) -> str:
    """Return up to ``size`` bytes from ``end``, folded; a word that is cut is left out."""
    last = min(len(document), end + size)
    while end < last < len(document) and (
        document[last] & 0xC0 == 0x80 or (document[last] in _LETTERS and document[last - 1] in _LETTERS)
    ):
        last -= 1
    return fold(document[end:last].decode("utf-8", "ignore"))


@lru_cache(maxsize=1024)
def word_pattern(words: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds any of the words in folded text; None without words.

    A word is not found inside of a longer one, unless ``*`` ends it. Scripts without case (Chinese, Arabic, Thai)
    set no spaces or join their words, so there a word is found anywhere.
    """
    if not words:
        return None
    parts = []
    for word in sorted(set(words)):
        folded = fold(word.removesuffix("*"))
        left = r"(?<![^\W\d_])" if _cased(folded[0]) else ""
        right = r"(?![^\W\d_])" if _cased(folded[-1]) and not word.endswith("*") else ""
        parts.append(left + re.escape(folded).replace(r"\ ", r"[\s_-]*") + right)
    return re.compile("|".join(parts))


def _cased(letter: str) -> bool:
    return letter.isalpha() and letter.upper() != letter.lower()
