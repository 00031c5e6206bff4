"""Folding: digits, signs, spaces and hyphens of typography and of other scripts, looked at as those of ASCII.

Patterns see bytes. People write numbers with spaces and hyphens that do not break a line, and with digits of full width
or of their script; HTML and URLs encode what stands between digits. Places of findings are those of the written text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable

_SCRIPTS = (
    (b"\xef", rb"\xef\xbc[\x90-\x99]"),
    (b"\xd9", rb"\xd9[\xa0-\xa9]"),
    (b"\xdb", rb"\xdb[\xb0-\xb9]"),
    (b"\xe0", rb"\xe0(?:[\xa5\xa7][\xa6-\xaf]|\xb9[\x90-\x99])"),
)
"""Digits of full width, Arabic, Persian; Devanagari, Bengali, Thai: in UTF-8, each behind its first byte."""
_ONE_SCRIPT = tuple((lead, re.compile(digits)) for lead, digits in _SCRIPTS)
_ANY_DIGIT = re.compile(b"|".join(digits for _, digits in _SCRIPTS))
_DIGITS = {
    letter.encode(): b"%d" % int(letter)
    for letter in "０１２３４５６７８９٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹०१२३४५६७८९০১২৩৪৫৬৭৮৯๐๑๒๓๔๕๖๗๘๙"
}
_UNBROKEN = {b"\xc2\xa0": b" ", b"\xe2\x80\xaf": b" ", b"\xe2\x80\x91": b"-"}
"""U+00A0 and U+202F, spaces; U+2011, a hyphen; in UTF-8."""
_ANY_SIGN = re.compile(
    b"|".join(_UNBROKEN) + rb"|\xe2(?<=[0-9)]\xe2)(?P<sign>\x80[\x87-\x8a\x90\x92\x93]|\x88\x92)(?=[0-9(])"
    rb"|\xef(?<=[0-9)]\xef)(?P<wide>\xbc\x8d)(?=[0-9(])|\xe3(?<=[0-9)]\xe3)(?P<asian>\x80\x80|\x83\xbc)(?=[0-9(])"
    rb"|&(?<=[0-9)]&)(?P<entity>nbsp|thinsp|hyphen|[nm]dash|minus|#160|#[xX][aA]0|#8239|#8209|#45|#[xX]2[dD]|#821[12]);(?=[0-9(])"
    rb"|%(?<=[0-9)]%)(?P<encoded>20|2[dD])(?=[0-9(])|%(?<=[=:/ \"'>]%)(?P<plus>2[bB])(?=[0-9])"
    rb"|\xef\xbc(?:(?P<wide_plus>\x8b)(?=[0-9])|(?P<opens>\x88)(?=[0-9]))|\xef(?<=[0-9]\xef)\xbc(?P<closes>\x89)"
    rb"|\xef(?<=[A-Za-z0-9_.-]\xef)\xbc(?P<at>\xa0)(?=[A-Za-z0-9])"
)
"""These, and between two digits also other spaces (U+2007 to U+200A, U+3000) and hyphens (U+2010, U+2012, U+2013,
U+2212, U+FF0D, U+30FC), what HTML and URLs write for them; ``%2B``, a plus and brackets of full width beside a digit;
an ``@`` of full width between letters."""
_ALONE = {"plus": b"+", "wide_plus": b"+", "opens": b"(", "closes": b")", "at": b"@"}
_SPACES = frozenset(
    (
        b"\x80\x87",
        b"\x80\x88",
        b"\x80\x89",
        b"\x80\x8a",
        b"\x80\x80",
        b"nbsp",
        b"thinsp",
        b"#160",
        b"#xa0",
        b"#8239",
        b"20",
    )
)
_LAST = tuple((letter[-1:], letter) for letter in _UNBROKEN)


def _has_digits(written: bytes) -> bool:
    # One byte is found ten times faster than two, and most documents have none of these.
    return any(lead in written and digits.search(written) is not None for lead, digits in _ONE_SCRIPT)


def _has_signs(written: bytes) -> bool:
    # The last byte of each is rare and found ten times faster than all of them.
    return (
        any(last in written and letter in written for last, letter in _LAST)
        or (b"\xe2" in written and (b"\xe2\x80" in written or b"\xe2\x88\x92" in written))
        or (b"\xef" in written and _WIDE.search(written) is not None)
        or (b"\xe3" in written and _ASIAN.search(written) is not None)
        or (b"%2" in written and _ANY_SIGN.search(written) is not None)
        or (b"&" in written and _ANY_ENTITY.search(written) is not None)
    )


_WIDE = re.compile(rb"\xef\xbc[\x88\x89\x8b\x8d\xa0]")
_ASIAN = re.compile(rb"\xe3(?:\x80\x80|\x83\xbc)[0-9(]")
_ANY_ENTITY = re.compile(rb"&(?:nbsp|#|thinsp|hyphen|[nm]dash|minus)")


def _digit(match: re.Match[bytes]) -> bytes:
    return _DIGITS[match[0]]


def _sign(match: re.Match[bytes]) -> bytes:
    kind = match.lastgroup
    if kind is None:
        return _UNBROKEN[match[0]]
    return _ALONE[kind] if kind in _ALONE else b" " if match[kind].lower() in _SPACES else b"-"


class _Replaced:
    """A text with shorter pieces for some of its own, and the way back."""

    __slots__ = ("_longer", "_places", "text")

    def __init__(self, written: bytes, pattern: re.Pattern[bytes], instead: Callable[[re.Match[bytes]], bytes]) -> None:
        """Replace each match by one byte; a text without any stays the same object."""
        self.text = written
        self._places: list[int] = []
        self._longer: list[int] = [0]
        pieces: list[bytes] = []
        size = end = 0
        for match in pattern.finditer(written):
            start = match.start()
            pieces += written[end:start], instead(match)
            size += start - end
            end = match.end()
            self._places.append(size)
            self._longer.append(self._longer[-1] + end - start - 1)
            size += 1
        if pieces:
            self.text = b"".join((*pieces, written[end:]))

    def written(self, place: int) -> int:
        """Return the place in the written text of a place in this one."""
        return place + self._longer[bisect_left(self._places, place)]


class Folded:
    """A text with digits, spaces and hyphens of ASCII, and the way back to the places of the text as it is written."""

    __slots__ = ("_steps", "text")

    def __init__(self, written: bytes) -> None:
        """Fold a text, digits first: signs are known by what stands beside them. A plain text stays the same object."""
        self.text = written
        self._steps: tuple[_Replaced, ...] = ()
        if _has_digits(written):
            self._fold(_ANY_DIGIT, _digit)
        if _has_signs(self.text):
            self._fold(_ANY_SIGN, _sign)

    def _fold(self, pattern: re.Pattern[bytes], instead: Callable[[re.Match[bytes]], bytes]) -> None:
        step = _Replaced(self.text, pattern, instead)
        self.text, self._steps = step.text, (step, *self._steps)

    def written(self, place: int) -> int:
        """Return the place in the written text of a place in the folded one."""
        for step in self._steps:
            place = step.written(place)
        return place
