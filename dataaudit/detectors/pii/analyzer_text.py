"""Places in a text, as characters and as bytes of its UTF-8, and the stretches that a long one is cut into."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
_REACH = 64


def byte_of(text: str, characters: Places) -> Places:
    """Return the byte that each character begins at; one past the last character is one past the last byte."""
    if text.isascii() or characters.size == 0:
        return characters
    # Few places of a text that may be long: what lies between them is encoded, not a number kept of every character.
    ordered = np.unique(characters)
    bounds = [0, *ordered.tolist()]
    sizes = [len(text[begin:end].encode("utf-8", "surrogatepass")) for begin, end in pairwise(bounds)]
    found: Places = np.cumsum(sizes, dtype=np.int64)[np.searchsorted(ordered, characters)]
    return found


def character_of(text: str, places: Places) -> Places:
    """Return the character that each byte belongs to; one past the last byte is one past the last character."""
    if text.isascii():
        return places
    found: Places = np.searchsorted(_begins(text), places, side="right") - 1
    return found


def _begins(text: str) -> Places:
    """int64[characters + 1] byte at which each character begins."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


def stretches(text: str, *, size: int, at_most: int, seed: int) -> tuple[list[tuple[int, int]], bool]:
    """Cut a text at white space, and draw some stretches where there are more than are looked at.

    The draw depends on the text and the seed alone.

    Args:
        text: The document.
        size: Characters of a stretch at most.
        at_most: Stretches that are looked at, at most.
        seed: Of the draw.

    Returns:
        (first character, character after the last) of each, ascending; whether they are all of the text.
    """
    cut = list(_cut(text, size))
    if len(cut) <= at_most:
        return cut, True
    key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=seed.to_bytes(8, "little")).digest()
    ranks = [blake2b(index.to_bytes(8, "little"), digest_size=8, key=key).digest() for index in range(len(cut))]
    chosen = sorted(range(len(cut)), key=lambda index: (ranks[index], index))[:at_most]
    return [cut[index] for index in sorted(chosen)], False


def _cut(text: str, size: int) -> Iterator[tuple[int, int]]:
    begin = 0
    while len(text) - begin > size:
        near = range(begin + size, max(begin, begin + size - _REACH), -1)
        # The last white space near the end of the stretch; without one the cut goes through a word.
        end = next((end for end in near if text[end - 1].isspace()), begin + size)
        yield begin, end
        begin = end
    if begin < len(text):
        yield begin, len(text)
