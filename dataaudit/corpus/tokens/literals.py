"""What a model file says about added tokens and normalization, read without loading an encoder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dataaudit.corpus.tokens.spec import TokenizerFile

_NORMAL, _BYTE = 1, 6
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def added_literals(file: TokenizerFile) -> tuple[str, ...]:
    """List the spellings that a model may treat as one token whatever is around them, in the file's order."""
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
    """Yield the control, unknown and user-defined pieces; the Python library does not tell the last kind.

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
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, place = _varint(message, place)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}[kind]
        yield tag >> 3, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Read a base-128 number; returns it and the place after it."""
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place
