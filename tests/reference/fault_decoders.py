"""Reference implementation of the kernel for wrongly decoded text: Python's own codecs, a character at a time."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

PAGES = (
    *("cp1250", "cp1251", "cp1253", "cp1255", "cp1256", "cp1257", "cp874", "koi8-r"),
    *("cp437", "cp850", "cp852", "cp866", "mac-roman", "mac-cyrillic"),
)
_LEADS = {0xC2, 0xC3, 0xC4, 0xC5, 0xCE, 0xCF, 0xD0, 0xD1, 0xD7, 0xD8, 0xD9, *range(0xE0, 0xF0)}
_LETTERS = re.compile(r"[\xa1-\xff]{2,}(?:[\x00-\x09\x0b-\x7f]{1,2}[\xa1-\xff]+)*")
_KANA = re.compile("(?:[\u201a\u0192][^\n]){3,}")
_SPLITTING = {*"\u201a\u201e\u2020\u2021\xaf\xb3\xb6\xb8\xb9", *map(chr, (*range(0xA1, 0xA9), *range(0xBC, 0xC0)))}


@cache
def _byte(page: str, sign: str) -> int:
    """Return the byte of a code page that a character is; 0 for none, and for those that begin no script."""
    try:
        byte = sign.encode(page)[0]
    except UnicodeEncodeError:
        return 0
    return byte if 0x80 <= byte < 0xC0 or byte in _LEADS else 0


def _sequence_end(text: str, at: int, page: str) -> int:
    """Return where a sequence of UTF-8 in a code page ends; its own place where none begins."""
    lead = _byte(page, text[at]) if at < len(text) else 0
    size = 0 if lead < 0xC2 else 2 if lead < 0xE0 else 3
    taken = text[at : at + size]
    try:
        is_one = len(bytes(_byte(page, sign) for sign in taken).decode()) == 1 and len(taken) == size
    except UnicodeDecodeError:
        is_one = False
    return at + size if is_one and not re.fullmatch("[\u2500-\u25bf]+", taken) else at


def _chain(text: str, done: int, at: int, page: str) -> tuple[int, int] | None:
    leads = [lead for lead in range(max(done, at - 2), at) if _sequence_end(text, lead, page) > at]
    if not leads:
        return None
    first, end, number = leads[0], _sequence_end(text, leads[0], page), 1
    sequence = [_byte(page, sign) for sign in text[first:end]]
    is_sure = sequence[:2] == [0xE2, 0x80] or (
        sequence[0] in (0xC3, 0xC4) and first > done and re.fullmatch("[a-z]", text[first - 1]) is not None
    )
    while before := [lead for lead in range(max(done, first - 3), first) if _sequence_end(text, lead, page) == first]:
        first, number = before[0], number + 1
    while (after := _sequence_end(text, end, page)) > end:
        end, number = after, number + 1
    is_sure |= number == 2 and first > done and "a" <= text[first - 1] <= "z"
    return (first, end) if number >= 3 or is_sure else None


def page_chain(text: str, done: int, at: int) -> tuple[int, int] | None:
    """Return the longest chain of sequences around a character of Latin-1 or of U+2000 to U+2FFF."""
    sign = text[at]
    if not ("\x80" <= sign <= "\xff" or "\u2000" <= sign <= "\u2fff") or at == done or text[at - 1] in (sign, *_ASCII):
        return None
    found = [span for page in PAGES if (span := _chain(text, done, at, page))]
    return max(found, key=lambda span: len(text[span[0] : span[1]].encode()), default=None)


_ASCII = [*map(chr, range(128))]


def letters(text: str, at: int) -> tuple[int, bool]:
    """Return where letters of Latin-1 side by side end that begin here, and whether they are none of a language."""
    found = _LETTERS.match(text, at)
    if not found:
        return at, False
    runs = [run for run in re.findall(r"[\xa1-\xff]+", found[0]) if len(run) >= 6]
    steps = [[span < other for span, other in pairwise(run) if span != other] for run in runs]
    return found.end(), any(min(some.count(True), some.count(False)) >= 2 for some in steps)


def kana_end(text: str, at: int) -> int | None:
    """Return where Kana of Shift-JIS end."""
    found = _KANA.match(text, at) if text[at] == "\u201a" else None
    return found.end() if found else None


def splits_word(text: str, at: int) -> bool:
    """Tell whether a sign stands inside a word."""
    is_inside = re.fullmatch("[a-z]{2}", text[max(0, at - 2) : at]) and re.match("[a-z]{2}", text[at + 1 :])
    return text[at] in _SPLITTING and is_inside is not None
