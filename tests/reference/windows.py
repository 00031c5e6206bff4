"""Reference of :mod:`dataaudit.scan.kernels.windows`: regular expressions over one document, nothing of ours."""

from __future__ import annotations

import re

_PIECE = re.compile(
    rb"(?P<space>[\x00-\x20\x7f]+)"
    rb"|(?P<tag><[A-Za-z/!?][^>]{0,253}>)"
    rb"|(?P<url>[A-Za-z]+://[^\x00-\x20\x7f\x80-\xff]*)"
    rb"|(?P<other>.)",
    re.DOTALL,
)
_LETTER = re.compile(rb"[A-Za-z\x80-\xff]")


def window_words(text: str, windows: int, kept: int) -> tuple[str, bool]:
    """Return the words that are looked at, one space after each, and whether the document was one window."""
    data = text.encode()
    if len(data) <= windows * kept:
        return _words(data, len(data), final=True), True
    step = (len(data) - kept) // (windows - 1)
    found = ""
    for number in range(windows):
        begin = number * step
        end = len(data) if number == windows - 1 else begin + step
        end = _next_character(data, min(end, begin + 8 * kept))
        if number:
            begin = _next_character(data, begin)
            if not re.match(rb"[\x00-\x20\x7f]", data[begin - 1 : begin]):
                space = re.search(rb"[\x00-\x20\x7f]", data[begin : min(end, begin + 32)])
                begin += space.start() if space else 0
        found += _words(data[begin:end], kept, final=end == len(data))
    return found, False


def _next_character(data: bytes, place: int) -> int:
    while place < len(data) and 0x80 <= data[place] < 0xC0:
        place += 1
    return place


def _words(data: bytes, kept: int, *, final: bool) -> str:
    """Return words of some bytes, up to ``kept`` bytes with their spaces (the last space on top)."""
    words: list[bytes] = [b""]
    place = 0
    while match := _PIECE.match(data, place):
        place = match.end()
        if match.lastgroup == "other":
            words[-1] += match[0]
        else:
            words.append(b"")
    if words[-1].isascii() and not final:
        words.pop()
    copied = b""
    for word in words:
        if not _LETTER.search(word) or (word.isascii() and len(word) > 40):
            continue
        room = kept - len(copied)
        if room <= 0:
            break
        piece = word[:room].decode("utf-8", "ignore").encode()
        if not piece:
            break
        copied += piece + b" "
    return copied.decode()
