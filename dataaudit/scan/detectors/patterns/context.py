"""Words near a candidate: a window of the text in lower case, and the context words of all entities in it.

Compiling the patterns of a registry by hyperscan takes a second, so a database is kept on disk.
"""

from __future__ import annotations

import platform
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from dataaudit.base.cache import kept


def make_database(patterns: Sequence[tuple[bytes, int]]) -> Any:
    """Return a database of patterns and their flags, from disk if an earlier process compiled it."""
    import hyperscan

    inputs = [_machine(), *(f"{flags} ".encode() + pattern for pattern, flags in patterns)]
    return kept("patterns", inputs, lambda: hyperscan.dumpb(compile_patterns(patterns)), _read)


def _read(written: bytes) -> Any:
    """Return a cached database; None when it is not of this machine or version after all."""
    import hyperscan

    try:
        database = hyperscan.loadb(written, hyperscan.HS_MODE_BLOCK)
        database.scratch = hyperscan.Scratch(database)
    except hyperscan.error:
        return None
    return database


def compile_patterns(patterns: Sequence[tuple[bytes, int]]) -> Any:
    """Compile patterns; their ids are their indices."""
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[pattern for pattern, _ in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=[flags for _, flags in patterns],
    )
    return database


@lru_cache(maxsize=1)
def _machine() -> bytes:
    """Return the library's version and the processor's features: with the patterns they decide the compiled bytes."""
    features: bytes = compile_patterns([(b"a", 0)]).info()
    return b" ".join([version("hyperscan").encode(), platform.machine().encode(), features])


_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_GAP = r"[ \t\r\n_-]{0,4}"
"""Between the words of a phrase."""


def lowered(text: str) -> str:
    """Return the text in lower case, letter by letter: a letter whose lower case is several letters stays."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


class _Lower(dict[int, str]):
    """Lower case by code point, filled as letters occur."""

    def __missing__(self, point: int) -> str:
        self[point] = _lower(chr(point))
        return self[point]


_LOWER = _Lower()


def _lower(letter: str) -> str:
    low = letter.lower()
    return low if len(low) == 1 and (letter.isascii() or not low.isascii()) else letter


def unaccented(text: str) -> str:
    """Return the text without accents."""
    decomposed = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(name for name in decomposed if not unicodedata.combining(name)))


def before(document: bytes, start: int, size: int) -> str:
    """Return up to ``size`` bytes that end at ``start`` in lower case; a word that is cut is left out."""
    first = max(0, start - size)
    while 0 < first < start and _is_inside(document, first):
        first += 1
    return lowered(document[first:start].decode("utf-8", "ignore"))


def after(document: bytes, end: int, size: int) -> str:
    """Return up to ``size`` bytes from ``end`` in lower case; a word that is cut is left out."""
    last = min(len(document), end + size)
    while end < last < len(document) and _is_inside(document, last):
        last -= 1
    return lowered(document[end:last].decode("utf-8", "ignore"))


def _is_inside(document: bytes, at: int) -> bool:
    """Tell whether a cut before a byte goes through a character or an ASCII word."""
    return document[at] & 0xC0 == 0x80 or (document[at] in _LETTERS and document[at - 1] in _LETTERS)


class ContextWords:
    """All context words of a registry, searched for in one pass over a window: by their first words, as literals.

    A word inside of a longer one does not count, unless ``*`` ends it. Scripts without case (Chinese, Arabic, Thai)
    join their words, so there a word counts anywhere. A word with accents also counts without them.
    """

    def __init__(self, words: Iterable[tuple[int, Iterable[str]]]) -> None:
        """Compile the words of each entity, by code."""
        entities: dict[str, set[int]] = {}
        for code, listed in words:
            for word in listed:
                for form in forms(word):
                    entities.setdefault(form, set()).add(code)
        words_ = sorted(entities)
        pieces = [word.removesuffix("*").split() for word in words_]
        self._codes = [frozenset(entities[word]) for word in words_]
        self._edges = [(cased(word[0]), cased(word[-1]) and not word.endswith("*")) for word in words_]
        self._sizes = [len(listed[0].encode()) for listed in pieces]
        self._phrases = [
            re.compile(_GAP.join(map(re.escape, listed)).encode()) if len(listed) > 1 else None for listed in pieces
        ]
        self._database: Any = None
        if words_:
            self._database = make_database(
                [("".join(_written(letter, any_case=False) for letter in listed[0]).encode(), 0) for listed in pieces]
            )

    def near(self, *windows: str) -> frozenset[int]:
        """Return the codes of the entities of which a word stands in some window."""
        if self._database is None:
            return frozenset()
        text = "\0".join(windows).encode()
        hits: list[tuple[int, int]] = []

        def on_match(word: int, _start: int, end: int, _flags: int, _context: object) -> None:
            hits.append((word, end))

        self._database.scan(text, match_event_handler=on_match)
        codes: set[int] = set()
        for word, first_end in hits:
            start, end = first_end - self._sizes[word], first_end
            phrase = self._phrases[word]
            if phrase is not None:
                match = phrase.match(text, start)
                if match is None:
                    continue
                end = match.end()
            left, right = self._edges[word]
            if (left and _letter_before(text, start)) or (right and _letter_after(text, end)):
                continue
            codes |= self._codes[word]
        return frozenset(codes)


def anchor(words: Iterable[str]) -> str:
    """Return a pattern, over text as it is written, that matches wherever one of the words stands; ignores case."""
    parts = []
    for word in sorted({form for name in words for form in forms(name)}):
        left = r"(?:^|[^a-z])" if word[0].isascii() and cased(word[0]) else ""
        right = r"(?:[^a-z]|$)" if word[-1].isascii() and cased(word[-1]) else ""
        pieces = word.removesuffix("*").split()
        phrase = _GAP.join("".join(_written(letter, any_case=True) for letter in piece) for piece in pieces)
        parts.append(left + phrase + right)
    return "|".join(parts)


def forms(word: str) -> set[str]:
    """Return a context word in lower case, as it is and without accents; ``*`` stays."""
    low = lowered(word)
    return {low, unaccented(low)}


def cased(letter: str) -> bool:
    """Whether a letter has an upper and a lower case."""
    return letter.isalpha() and letter.upper() != letter.lower()


def _written(letter: str, *, any_case: bool) -> str:
    if letter.isascii() or not any_case:
        return re.escape(letter) if letter.isascii() else f"(?:{letter})"
    return f"(?:{'|'.join(_spellings().get(letter, [letter]))})"


@lru_cache(maxsize=1)
def _spellings() -> dict[str, list[str]]:
    """Return, by letter, the letters beyond ASCII that it is the lower case of, itself included."""
    spelled: dict[str, list[str]] = {}
    for point in range(0x80, 0x1E944):
        letter, low = chr(point), _lower(chr(point))
        if low != letter:
            spelled.setdefault(low, [low]).append(letter)
    return spelled


def _letter_before(text: bytes, at: int) -> bool:
    if at and text[at - 1] < 0x80:
        return text[at - 1] in _LETTERS
    return text[max(0, at - 4) : at].decode("utf-8", "ignore")[-1:].isalpha()


def _letter_after(text: bytes, at: int) -> bool:
    if at < len(text) and text[at] < 0x80:
        return text[at] in _LETTERS
    return text[at : at + 4].decode("utf-8", "ignore")[:1].isalpha()
