"""A second opinion on :mod:`dataaudit.scan.kernels.words`: plain Python, character by character, by ``unicodedata``.

A build checks some of its pairs of near-duplicates by it; tests check the kernel by it. It shares no code with what it
checks, and holds no compiled code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple
from unicodedata import category, combining, decimal, name, normalize

_SCRIPTS = (
    "CJK .HIRAGANA.KATAKANA.HALFWIDTH KATAKANA.HENTAIGANA.IDEOGRAPHIC.BOPOMOFO.THAI .LAO .KHMER .MYANMAR .TIBETAN .YI ."
    "TAI .NEW TAI .JAVANESE .BALINESE .TANGUT .NUSHU .KHITAN "
)
_SCRIPTS_WITHOUT_SPACES = tuple(_SCRIPTS.split("."))
_NOT_THERE = {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *range(0x180B, 0x1810)}
_NOT_THERE |= {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0}


class Word(NamedTuple):
    """One word."""

    text: str
    """Folded."""
    start: int
    """First byte."""
    end: int
    """Byte after its last."""


_PIECE = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9.,'\x80-\U0010ffff]+|.", re.DOTALL)
"""Letters and digits of ASCII, other signs of it, a character that needs a closer look."""

_ASCII = re.compile(r"[A-Za-z0-9]+(?:(?:(?<=[A-Za-z])'(?=[A-Za-z])|(?<=[0-9])[.,](?=[0-9]))[A-Za-z0-9]+)*")
_POINTS = re.compile("[.,']")


def words_of(text: str) -> list[Word]:
    """Cut a text into words."""
    if text.isascii():
        found = _ASCII.finditer(text)
        return [Word(_POINTS.sub("", match[0].lower()), match.start(), match.end()) for match in found]
    words: list[Word] = []
    folded, start, end, lone, place = "", 0, 0, False, 0

    def close() -> None:
        nonlocal folded
        if folded:  # marks in their canonical order
            words.append(Word(folded if folded.isascii() else normalize("NFD", folded), start, end))
        folded = ""

    for match in _PIECE.finditer(text):
        char = match[0]
        first = char[0]
        width = len(char) if first < "\x80" else len(char.encode())
        if first.isalnum() and first < "\x80":
            if lone:
                close()
            if not folded:
                start, lone = place, False
            folded += char.lower()
            end = place + width
        elif char in "'\u2019\u02bc\uff07":
            after = text[match.end() : match.end() + 1]
            if not (folded and not lone and not _is_digit(_last_base(folded)) and _is_plain_letter(after)):
                close()
        elif char in ".,":
            if not (folded and _is_digit(_last_base(folded)) and _folds_to_digits(text[match.end() : match.end() + 1])):
                close()
        elif first < "\x80":
            close()
        else:
            parts, is_base, only_marks, alone = _look(char)
            if parts is None:
                close()
            else:
                if is_base:
                    if alone or lone:
                        close()
                    if not folded:
                        lone = alone
                if parts and (folded or not only_marks):
                    if not folded:
                        start, lone = place, lone and alone
                    folded += parts
                    end = place + width
        place += width
    close()
    return words


_SHORT = 64
"""Characters of a run of text whose words are remembered: of texts that are alike most runs are the same."""


def folded_words(text: str) -> list[str]:
    """Return the words of a text alone; white space ends a word, so each run between it is cut by itself."""
    words: list[str] = []
    for run in text.split():
        words += _folded_run(run) if len(run) <= _SHORT else (word.text for word in words_of(run))
    return words


@lru_cache(maxsize=1 << 16)
def _folded_run(run: str) -> tuple[str, ...]:
    return tuple(word.text for word in words_of(run))


@cache
def _look(char: str) -> tuple[str | None, bool, bool, bool]:
    """Return what a character folds to, None if it separates; whether that is a letter, marks alone, alone a word."""
    kind = category(char)
    if kind in ("Cf", "Me") or ord(char) in _NOT_THERE:
        return "", False, True, False
    if kind[0] not in "LMN":
        return None, False, False, False
    parts = fold(char)
    only_marks = all(map(combining, parts))
    return parts, bool(kind[0] != "M" and parts.strip() and not only_marks), only_marks, _is_alone(char)


def _last_base(folded: str) -> str:
    return next(part for part in reversed(folded) if not combining(part))


def text_shingles(words: Sequence[str], ngram: int) -> list[bytes]:
    """Return the digests of a document's distinct shingles, ascending, of the words themselves."""
    if not words:
        return []
    written, blake2b = [word.encode() for word in words], hashlib.blake2b
    found = {b" ".join(written[start : start + ngram]) for start in range(max(1, len(words) - ngram + 1))}
    return sorted(blake2b(gram, digest_size=16).digest() for gram in found)


@cache
def fold(char: str) -> str:
    """Return what a letter, mark or number folds to."""
    iota = "\u0345"  # below a Greek letter: case folding would make a letter of this mark
    folded = normalize("NFKD", iota.join(part.casefold() for part in normalize("NFKD", char).split(iota)))
    return "".join(str(decimal(part, part)) for part in folded if category(part)[0] in "LMN")


def _is_digit(char: str) -> bool:
    return "0" <= char <= "9"


@cache
def _is_alone(char: str) -> bool:
    if category(char)[0] not in "LN":
        return False
    nameless = 0x17000 <= ord(char) < 0x18D00  # Tangut and Khitan have no names in every Python
    return nameless or name(char, "").startswith(_SCRIPTS_WITHOUT_SPACES)


@cache
def _folds_to_digits(char: str) -> bool:
    return bool(char) and category(char)[0] in "LN" and not _is_alone(char) and all(map(_is_digit, fold(char) or "x"))


@cache
def _is_plain_letter(char: str) -> bool:
    if not char or category(char)[0] not in "LN" or _is_alone(char) or char == "\u02bc" or ord(char) in _NOT_THERE:
        return False
    return not _folds_to_digits(char) and not all(map(combining, fold(char)))
