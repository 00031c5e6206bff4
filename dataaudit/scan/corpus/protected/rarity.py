"""Counts the words that tell a short text from others: neither short, nor numbers, nor common.

``common_words.txt`` is by hand: everyday words of four letters and more in English, and function words of other
languages that are much written. A word of any other language counts as rare: there a common phrase of eight words could
be taken for a question of a set that is the same phrase.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import resources

from dataaudit.scan.kernels.normal import normalized

RARE_LETTERS = 4
"""Letters of a rare word, at least."""


@cache
def common_words() -> frozenset[str]:
    """Return the words that tell nothing, without accents."""
    text = resources.files("dataaudit.scan.corpus.protected").joinpath("common_words.txt").read_text(encoding="utf-8")
    return frozenset(text.partition("\n")[2].split())


def num_rare(words: Iterable[str]) -> int:
    """Return how many different rare words there are; case and accents do not matter."""
    return len({folded for word in words if _is_rare(folded := _folded(word))})


def _is_rare(folded: str) -> bool:
    return len(folded) >= RARE_LETTERS and folded not in common_words() and not folded.isdecimal()


@lru_cache(maxsize=1 << 16)
def _folded(word: str) -> str:
    parts = normalized("NFKD", word.casefold())
    return "".join(part for part in parts if part.isalnum())
