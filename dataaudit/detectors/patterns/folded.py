"""Spaces and hyphens that do not break a line, as people set numbers with: looked at as a space and a hyphen."""

from __future__ import annotations

import re
from bisect import bisect_left

_UNBROKEN = {b"\xc2\xa0": b" ", b"\xe2\x80\xaf": b" ", b"\xe2\x80\x91": b"-"}
"""U+00A0 and U+202F, spaces; U+2011, a hyphen; in UTF-8."""
_ANY = re.compile(b"|".join(_UNBROKEN))


class Folded:
    """A text with plain spaces and hyphens, and the way back to the places of the text as it is written."""

    __slots__ = ("_longer", "_places", "text")

    def __init__(self, written: bytes) -> None:
        """Fold a text; one without such letters stays the same object."""
        self.text = written
        self._places: list[int] = []
        self._longer: list[int] = [0]
        # The last byte of each is rare and found ten times faster than all of them.
        if not any(letter[-1:] in written and letter in written for letter in _UNBROKEN):
            return
        pieces: list[bytes] = []
        size = end = 0
        for match in _ANY.finditer(written):
            start = match.start()
            pieces += written[end:start], _UNBROKEN[match[0]]
            size += start - end
            end = match.end()
            self._places.append(size)
            self._longer.append(self._longer[-1] + end - start - 1)
            size += 1
        self.text = b"".join((*pieces, written[end:]))

    def written(self, place: int) -> int:
        """Return the place in the written text of a place in the folded one."""
        return place + self._longer[bisect_left(self._places, place)]
