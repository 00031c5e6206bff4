"""What a token says: an entry of a vocabulary is the spelling of one library, not text that a person reads."""

from __future__ import annotations

import json
import re

_ESCAPE = re.compile(r"\\(?:[\\ntr]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_BLANK = "\u2581"
"""What SentencePiece writes for a blank."""
_SHOWN = [*range(33, 127), *range(161, 173), *range(174, 256)]
"""Bytes that byte-level vocabularies write as the character of that number; the others follow from U+0100 on."""
_OTHERS = [byte for byte in range(256) if byte not in _SHOWN]
_BYTES = {chr(byte): byte for byte in _SHOWN} | {chr(256 + place): byte for place, byte in enumerate(_OTHERS)}


def token_text(piece: str) -> str:
    """Return the text of a token between quotes, ``" jest"``; of one without a text of its own its entry.

    Args:
        piece: Its entry in the vocabulary, escaped, as the table `drift` has it.
    """
    entry = _ESCAPE.sub(lambda found: found[0].encode().decode("unicode_escape"), piece)
    if byte := _BYTE.fullmatch(entry):
        text = chr(int(byte[1], 16))
        return json.dumps(text) if text.isascii() else entry
    return json.dumps(_of_bytes(entry) or entry.replace(_BLANK, " "), ensure_ascii=False)


def text_or_id(piece: str | None, token: int) -> str:
    """Return the text of a token as :func:`token_text` does; of one that is not in the vocabulary its id."""
    return token_text(piece) if piece else f"id {token}"


def _of_bytes(entry: str) -> str:
    """Return the text of a byte-level entry; nothing of what is none, or is a part of a character."""
    if entry.isascii() or any(character not in _BYTES for character in entry):
        return ""
    try:
        text = bytes(_BYTES[character] for character in entry).decode()
    except UnicodeDecodeError:
        return ""
    return text if all(character.isprintable() or character in "\t\n" for character in text.replace("\r\n", "")) else ""
