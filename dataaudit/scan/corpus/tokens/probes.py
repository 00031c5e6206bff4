"""Texts that show where two encoders disagree; and the added tokens and normalization of a model file.

Encoders differ where their tables of Unicode do: which code points are letters, marks, numbers, spaces, their case,
composition and the order of marks. So every code point is put next to each kind of neighbour, a document a code point,
and the kinds are then mixed at random. The lines of a document cannot hide one another: ids decode to the text, so ids
that are equal for the document are equal for each part of it.
"""

from __future__ import annotations

import json
import random
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dataaudit.scan.corpus.tokens.spec import TokenizerFile

_BRIEF = (
    (0x3400, 0x9FFF),
    (0xA000, 0xA48F),
    (0xAC00, 0xD7A3),
    (0xE000, 0xF8FF),
    (0x12000, 0x1254F),
    (0x13000, 0x14646),
    (0x16800, 0x16A3F),
    (0x17000, 0x18DFF),
    (0x1B000, 0x1B2FF),
    (0x20000, 0x3347F),
)
"""Ideographs, syllables and signs that no Unicode table treats singly, and private use."""

UNTESTED = (
    (0x14647, 0x160FF),
    (0x18E00, 0x1AFEF),
    (0x1BD00, 0x1CBFF),
    (0x33480, 0xDFFFF),
    (0xE1000, 0x10FFFF),
)
"""Nothing is assigned here but private use in the last two planes: always risky, not worth the time."""

_SURROGATES = (0xD800, 0xDFFF)

CONTRACTIONS = ("'s", "'S", "'\u017f", "'ll", "'lL", "'Ve", "'re", "'T", "'d", "'m", "\u2019s")
_SPACES = (" ", "  ", "\n", "\r", "\r\n", "\n\n", "\t", "\u00a0", "\u2028", "\x85", "\u3000", "\u180e", "\x1c")
_JOINERS = ("\u200b", "\u200c", "\u200d", "\u2060", "\ufe0f", "\ufeff", "\u00ad")
_MARKS = ("\u0301", "\u0327", "\u0345", "\u0334", "\u05b0", "\u064b", "\u0651", "\u0e38", "\u094d", "\u3099")
_LETTERS = ("a", "B", "Ab", "\u212a", "\u0131", "\u0130", "\u00df", "\u01c5", "\u00e9", "e\u0301", "\u042f")
_ASIA = ("\uac00", "\u1100", "\u1161", "\u11a8", "\u3042", "\u6f22", "\u30fc", "\u3005", "\u0e01", "\u0915")
_NUMBERS = ("1", "23", "4567", "\u0663", "\u096b", "\u2167", "\u00b2", "\u00bd", "\uff11")
_SIGNS = ("!", "?", "/", "//", "...", "\u2026", "\u2014", "_", "-", "=", "\u20ac", "^", "`", "<", ">", "|", "<|")
_EMOJI = (
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea",
    "\U0001f44d\U0001f3fd",
    "#\ufe0f\u20e3",
)
_MODEL = ("\u2581", "\u0120", "\x00", "\ue000", "</", "[", "]")
_ATOMS = (*CONTRACTIONS, *_SPACES, *_JOINERS, *_MARKS, *_LETTERS, *_ASIA, *_NUMBERS, *_SIGNS, *_EMOJI, *_MODEL)


def code_point_probes(*, normalizes: bool) -> Iterator[tuple[int, str]]:
    """Yield each tested code point with its document."""
    brief = _members(_BRIEF)
    left_out = _members((*UNTESTED, _SURROGATES))
    for number in range(sys.maxunicode + 1):
        if number not in left_out:
            yield number, _among_neighbours(chr(number), brief=number in brief, normalizes=normalizes)


def _members(ranges: Iterable[tuple[int, int]]) -> set[int]:
    """Return the numbers in inclusive ranges."""
    return {number for low, high in ranges for number in range(low, high + 1)}


def _among_neighbours(it: str, *, brief: bool, normalizes: bool) -> str:
    """Put one character after and before each kind of neighbour."""
    if brief:
        return f"a{it}b {it}1\n\u662f{it}'s"
    # A mark of class 1 after it, or one of class 240 before it, moves past it if it is a mark too: the lowest
    # and the highest class in use, so that any disagreement about its class shows.
    moved = f"\na{it}\u0334\na\u0345{it}" if normalizes else ""
    return f"a{it}b {it}1{it}2345\n{it}A  {it}{it}.{it}'s\na!{it}\n \n{it}\nz\u662f{it}\u662f{moved}"


def compositions() -> list[str]:
    """Return the sequences that a normalizer may compose: each canonical decomposition, a step deep."""
    steps = (unicodedata.decomposition(chr(number)) for number in range(sys.maxunicode + 1))
    canonical = (step.split() for step in steps if step and not step.startswith("<"))
    leads = (unicodedata.normalize("NFD", chr(number))[:2] for number in range(0xAC00, 0xD7A4, 28))
    return [
        *("".join(chr(int(part, 16)) for part in parts) for parts in canonical),
        *(text for lead in leads for text in (lead, f"{lead}\u11a8")),
    ]


def adjoining(sequence: str) -> str:
    """Put a sequence by itself and after letters that form a grapheme with its marks."""
    return f"a{sequence} {sequence} \u0915{sequence}"


def interrupted(sequence: str) -> str:
    """Put a mark of the lowest class behind, and inside, a sequence and its full decomposition."""
    parts = unicodedata.normalize("NFD", sequence)
    return f"a {parts}\u0334b {sequence}\u0334 {parts[0]}\u0334{parts[1:]}"


def plain_texts() -> list[str]:
    """Return texts that any corpus has, ASCII alone."""
    printable = [chr(number) for number in range(0x20, 0x7F)]
    code = "def f(x):\n\treturn {'a': x[0] ** 2}  # 12345\n\n\nif __name__ == '__main__':\r\n    f(1_000)\n"
    prose = "It's 10:30, and we'll SEE what they'd said -- don't you?  (Perhaps.)\n\n  * item one\n  * item 2\n"
    return [
        "",
        " ",
        "\n",
        code,
        prose,
        prose * 3,
        *printable,
        *(f"a{sign}b {sign}1 {sign}{sign}\n" for sign in printable),
    ]


def mixes(literals: Sequence[str], *, seed: int, num_texts: int) -> list[str]:
    """Mix spaces, marks, joiners, cases, scripts and the spelling of special tokens at random."""
    chance = random.Random(seed)
    kinds = _kinds()
    names = sorted(kinds)

    def atom() -> str:
        draw = chance.random()
        if draw < 0.45:
            return chance.choice(_ATOMS)
        if draw < 0.88 or not literals:
            return chance.choice(kinds[chance.choice(names)])
        if draw < 0.95:
            literal = chance.choice(literals)
            return literal if chance.random() < 0.6 else literal[: chance.randrange(1, len(literal) + 1)]
        return chance.choice(_ATOMS) * chance.randrange(2, 6)

    return ["".join(atom() for _ in range(chance.randrange(2, 14))) for _ in range(num_texts)]


def _kinds() -> dict[str, list[str]]:
    """Group the assigned code points below plane 3 by general category."""
    kinds = defaultdict(list)
    for number in range(0x30000):
        kinds[unicodedata.category(chr(number))].append(chr(number))
    del kinds["Cn"], kinds["Cs"]
    return dict(kinds)


_NORMAL, _BYTE = 1, 6
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def added_literals(file: TokenizerFile) -> tuple[str, ...]:
    """Return the spellings that a model may treat as a token whatever is around them, in the file's order."""
    content = file.path.read_bytes()
    if file.format == "sentencepiece":
        return tuple(_odd_pieces(content))
    document: dict[str, Any] = json.loads(content)
    return tuple(token["content"] for token in document.get("added_tokens") or () if token["content"])


def has_normalizer(file: TokenizerFile) -> bool:
    """Tell whether the model rewrites characters before it splits; replacing a space does not count."""
    content = file.path.read_bytes()
    if file.format == "sentencepiece":
        return any(_charsmaps(content))
    document: dict[str, Any] = json.loads(content)
    return any(step["type"] not in {"Replace", "Prepend"} for step in _steps(document.get("normalizer")))


def _steps(normalizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Flatten nested sequences of normalizers."""
    if normalizer is None:
        return []
    if normalizer["type"] == "Sequence":
        return [step for inner in normalizer["normalizers"] for step in _steps(inner)]
    return [normalizer]


def _odd_pieces(model: bytes) -> Iterator[str]:
    """Yield the control, unknown and user-defined pieces; the Python library does not name the last kind.

    In the model's protocol buffer field 1 is a piece, with its text in field 1 and its type in field 3.
    """
    for field, piece in _fields(model):
        if field == 1 and isinstance(piece, bytes):
            parts = dict(_fields(piece))
            text = parts.get(1, b"")
            if parts.get(3, _NORMAL) not in {_NORMAL, _BYTE} and isinstance(text, bytes) and text:
                yield text.decode("utf-8", "replace")


def _charsmaps(model: bytes) -> Iterator[bytes]:
    """Yield the table of rewritten characters: field 2 of the normalizer, which is field 3 of the model."""
    for field, normalizer in _fields(model):
        if field == 3 and isinstance(normalizer, bytes):
            yield from (value for inner, value in _fields(normalizer) if inner == 2 and isinstance(value, bytes))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field of a protocol buffer message."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, position = _varint(message, position)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}[kind]
        yield tag >> 3, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return a base-128 number and the position after it."""
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
