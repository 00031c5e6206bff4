"""Reference implementation of :mod:`dataaudit.scan.kernels.toxic`: lists and characters, by the definitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from unicodedata import normalize

_MASK = (1 << 64) - 1
_GRAMS = {3: 0xD6E8FEB86659FD93, 4: 0xA0761D6478BD642F, 5: 0xE7037ED1A0B428DB}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MASKS = "!#$%*@"
_LATIN = {
    "\u00c6": "a",
    "\u00e6": "a",
    "\u00d0": "d",
    "\u00f0": "d",
    "\u00d8": "o",
    "\u00f8": "o",
    "\u00de": "t",
    "\u00fe": "t",
    "\u00df": "s",
}


def word_features(
    text: str, words: Sequence[tuple[int, int, int]], bits: tuple[int, int, int], window: int
) -> list[list[tuple[str, int]]]:
    """Return the features of every word of a document as (table, slot), in any order.

    Args:
        text: The document.
        words: Hash, first byte and byte after the last of each word.
        bits: Of the tables of words, pairs and grams.
        window: Words within which a word counts once.
    """
    data = text.encode()
    found: list[list[tuple[str, int]]] = []
    before = None
    for index, (value, start, end) in enumerate(words):
        repeated = is_repeated(words, index, window)
        number = value % 2 == 1
        identity = 0x9AE16A3B2F90404F if number else value
        features = []
        if before is not None:
            features.append(("pairs", _mixed(before * 0xC2B2AE3D27D4EB4F + identity) >> (64 - bits[1])))
        if not number and not repeated:
            features.append(("words", (identity * 0x9E3779B97F4A7C15 & _MASK) >> (64 - bits[0])))
            letters = folded(data[start:end].decode())
            symbols = ("`" + letters + "`")[:25].encode("latin-1")
            for size, factor in _GRAMS.items():
                for place in range(len(symbols) - size + 1):
                    packed = int.from_bytes(symbols[place : place + size], "big")
                    features.append(("grams", (packed * factor & _MASK) >> (64 - bits[2])))
        found.append(features)
        before = identity
    return found


def is_repeated(words: Sequence[tuple[int, int, int]], index: int, window: int) -> bool:
    """Tell whether a word was there less than ``window`` words before, with none of the same ten bits since."""
    value = words[index][0]
    for when in range(index - 1, max(-1, index - window), -1):
        if words[when][0] >> 54 == value >> 54:
            return words[when][0] == value
    return False


def folded(word: str) -> str:
    """Return the letters of a word, without what nobody sees; DEL for a letter that is not Latin."""
    letters = []
    for char in word:
        code = ord(char)
        if "\u00c0" <= char <= "\u00ff":
            letters.append(_LATIN.get(char) or normalize("NFD", char)[0].lower())
        elif code < 128:
            letters.append(char.lower() if char.isalnum() else "")
        elif 0xFF21 <= code <= 0xFF3A or 0xFF41 <= code <= 0xFF5A:
            letters.append(normalize("NFKC", char).lower())
        elif code < 0xC0 or 0x300 <= code < 0x370 or 0x2000 <= code < 0x2040 or code == 0xFEFF:
            letters.append("")
        else:
            letters.append("\x7f")
    return "".join(letters)


def disguised_weight(
    text: str, words: Sequence[tuple[int, int, int]], index: int, table: dict[int, int], *, repeated: bool
) -> int:
    """Return what the word at ``index`` weighs if it is a disguise; 0 if it is none that is known.

    Args:
        text: The document.
        words: Hash, first byte and byte after the last of each word.
        index: Of the word.
        table: Weight by key.
        repeated: Whether the word has been there a short while before.
    """
    data = text.encode()
    value, start, end = words[index]
    if value % 2 == 1:
        return 0
    letters = folded(data[start:end].decode())[:24]
    after = data[end : end + 1]
    if (any(char.isdigit() for char in letters) and not repeated) or (after and after in _MASKS.encode()):
        return _masked(data[start:], table)
    if not repeated and any(letters[place : place + 3] == letters[place] * 3 for place in range(len(letters) - 2)):
        return _plain(folded(data[start:end].decode()), table)
    if end - start == 1 and index + 1 < len(words) and words[index + 1][1] - end == 1:
        return _spaced(data, words[index:], table)
    return 0


def window_score(scores: Sequence[int], norms: Sequence[int], passage: int, margin: int) -> int:
    """Return the score of a document from those of its words: its worst window or passage, in fixed point."""
    whole = len(norms) - 1
    if not scores:
        return 0
    found = [_worst(scores, min(whole, len(scores)), norms)]
    if len(scores) > passage:
        found.append(_worst(scores, passage, norms) - margin)
    return max(found)


def _worst(scores: Sequence[int], size: int, norms: Sequence[int]) -> int:
    return max(sum(scores[place : place + size]) for place in range(len(scores) - size + 1)) * norms[size] >> 16


def key_of(letters: str, *, masked: bool) -> int:
    """Return the key of a disguise: a word with ``*`` for letters, or one whose runs of a letter count once."""
    key = 0x8EBC6AF09C88C6E3 if masked else 0x589965CC75374CC3
    for place, letter in enumerate(letters):
        if masked or place == 0 or letters[place - 1] != letter:
            key = (key ^ ord(letter)) * 0xD6E8FEB86659FD93 & _MASK
            key ^= key >> 32
    return key


def _masked(rest: bytes, table: dict[int, int]) -> int:
    chars = [chr(byte).lower() if byte < 128 else "" for byte in rest[:21]] + [""]
    pattern = ""
    for char, after in pairwise(chars[:21]):
        between = char.isdigit() and after != "" and after in _LETTERS
        if char and char in _LETTERS:
            pattern += char
        elif pattern and char and (char in _MASKS or between):
            pattern += "*"
        else:
            break
    for candidate in (pattern, pattern.rstrip("*")):
        if len(candidate) >= 4 and "*" in candidate:
            weight = table.get(key_of(candidate, masked=True), 0)
            if weight:
                return weight
    return 0


def _plain(letters: str, table: dict[int, int]) -> int:
    runs = [letter for place, letter in enumerate(letters) if letters[place - 1 : place] != letter]
    return table.get(key_of("".join(runs), masked=False), 0) if len(runs) <= 20 else 0


def _spaced(data: bytes, words: Sequence[tuple[int, int, int]], table: dict[int, int]) -> int:
    letters = ""
    for place, (_, start, end) in enumerate(words[:20]):
        letter = chr(data[start]).lower()
        if end - start != 1 or letter not in _LETTERS or (place and start - words[place - 1][2] != 1):
            break
        letters += letter
        if len(letters) >= 4:
            weight = table.get(key_of(letters, masked=False), 0)
            if weight:
                return weight
    return 0


def _mixed(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
