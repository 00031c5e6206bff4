"""A second opinion on :mod:`dataaudit.scan.kernels.words`: plain Python, character by character, by ``unicodedata``.

A build checks some of its pairs of near-duplicates by it; tests check the kernel by it. It shares no code with what it
checks, and holds no compiled code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from unicodedata import category, combining, decimal, name, normalize

_SCRIPTS = (
    "CJK .HIRAGANA.KATAKANA.HALFWIDTH KATAKANA.HENTAIGANA.IDEOGRAPHIC.BOPOMOFO.THAI .LAO .KHMER .MYANMAR .TIBETAN .YI ."
    "TAI .NEW TAI .JAVANESE .BALINESE .TANGUT .NUSHU .KHITAN "
)
_SCRIPTS_WITHOUT_SPACES = tuple(_SCRIPTS.split("."))
_NOT_THERE = {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *range(0x180B, 0x1810)}
_NOT_THERE |= {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0}


@dataclass(frozen=True)
class Word:
    """One word."""

    text: str
    """Folded."""
    start: int
    """First byte."""
    end: int
    """Byte after its last."""


def words_of(text: str) -> list[Word]:
    """Cut a text into words."""
    words: list[Word] = []
    folded, start, end, lone, place = "", 0, 0, False, 0

    def close() -> None:
        nonlocal folded
        if folded:
            words.append(Word(normalize("NFD", folded), start, end))  # marks in their canonical order
        folded = ""

    for index, char in enumerate(text):
        width = 1 if char < "\x80" else len(char.encode())
        kind = category(char)
        if char in "'\u2019\u02bc\uff07":
            after = text[index + 1 : index + 2]
            if not (folded and not lone and not _is_digit(_last_base(folded)) and _is_plain_letter(after)):
                close()
        elif char in ".,":
            if not (folded and _is_digit(_last_base(folded)) and _folds_to_digits(text[index + 1 : index + 2])):
                close()
        elif kind in ("Cf", "Me") or ord(char) in _NOT_THERE:
            pass
        elif kind[0] not in "LMN":
            close()
        else:
            parts = fold(char)
            if kind[0] != "M" and parts.strip() and not all(map(combining, parts)):
                alone = _is_alone(char)
                if alone or lone:
                    close()
                if not folded:
                    lone = alone
            if parts and (folded or not all(map(combining, parts))):
                if not folded:
                    start = place
                    lone = lone and _is_alone(char)
                folded += parts
                end = place + width
        place += width
    close()
    return words


def _last_base(folded: str) -> str:
    return next(part for part in reversed(folded) if not combining(part))


def text_shingles(words: Sequence[str], ngram: int) -> list[bytes]:
    """Return the digests of a document's distinct shingles, ascending, of the words themselves."""
    if not words:
        return []
    found = {" ".join(words[start : start + ngram]) for start in range(max(1, len(words) - ngram + 1))}
    return sorted(hashlib.blake2b(gram.encode("utf-8"), digest_size=16).digest() for gram in found)


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
