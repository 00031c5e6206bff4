"""A ``.tiktoken`` rank file as an equal tokenizer.json.

The file holds ranks alone; the split expression and the special tokens live in the code that defines the
encoding, so the file's name must be one that OpenAI publishes.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from itertools import pairwise

from dataaudit.errors import TokenizerError

CONVERSION_VERSION = 1
"""Raised when `to_tokenizer_json` writes something else for the same file."""

_R50K = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_END = "<|endoftext|>"
_FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_PROMPT = "<|endofprompt|>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """What a rank file does not say."""

    pattern: str
    """Split expression, in the dialect that `tokenizers` reads."""

    specials: dict[str, int]
    """Special tokens and their ids."""


ENCODINGS = {
    "r50k_base": Encoding(pattern=_R50K, specials={_END: 50256}),
    "p50k_base": Encoding(pattern=_R50K, specials={_END: 50256}),
    "cl100k_base": Encoding(
        pattern=_CL100K,
        specials={_END: 100257, _FIM[0]: 100258, _FIM[1]: 100259, _FIM[2]: 100260, _PROMPT: 100276},
    ),
    "o200k_base": Encoding(pattern=_O200K, specials={_END: 199999, _PROMPT: 200018}),
}


def encoding_for(file_name: str) -> Encoding:
    """Find the published encoding that a rank file's name stands for.

    Raises:
        TokenizerError: The name is none of the known ones.
    """
    stem = file_name.removesuffix(".tiktoken")
    found = ENCODINGS.get(stem) or ENCODINGS.get(f"{stem}_base")
    if found is None:
        names = ", ".join(f"{name}.tiktoken" for name in ENCODINGS)
        raise TokenizerError(
            f"tokenizer {file_name}: expected a rank file with one of the names {names} "
            "(a rank file does not carry its split rule, only its name tells it)",
            "Rename the file if it is one of these, or give a tokenizer.json instead.",
        )
    return found


def read_ranks(data: bytes, *, name: str) -> dict[bytes, int]:
    """Read ``base64 rank`` lines.

    Raises:
        TokenizerError: A line is not of that form, or a token or a rank occurs twice.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise TokenizerError(
                f"tokenizer {name}: expected a base64 token and its rank on line {number}",
                "The file is damaged or is not a .tiktoken file; fetch it again.",
            ) from None
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing or len(set(ranks.values())) != len(ranks):
        found = f"no token for byte {missing[0]:#04x}" if missing else "one rank for two tokens"
        raise TokenizerError(
            f"tokenizer {name}: expected every single byte and distinct ranks, found {found}",
            "The file is damaged or cut short; fetch it again.",
        )
    return ranks


def to_tokenizer_json(data: bytes, *, name: str) -> bytes:
    """Convert a rank file to an equal tokenizer.json.

    BPE on ranks joins the adjacent pair whose joined bytes have the lowest rank. The same pairs in the order
    of those ranks are the merges, so each token gets one: the last pair that is left when the joins of lower
    rank have been done on its own bytes.
    """
    encoding = encoding_for(name)
    ranks = read_ranks(data, name=name)
    letters = byte_letters()
    spell = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = []
    for token in sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__):
        parts = _parts_before(token, ranks)
        if len(parts) == 2:
            merges.append([spell[parts[0]], spell[parts[1]]])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": encoding.pattern}, "behavior": "Isolated", "invert": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": rank, "content": text, **flags} for text, rank in encoding.specials.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            # An added token gets the id that the vocabulary gives its text, and the next free one without.
            "vocab": {**{spell[token]: rank for token, rank in ranks.items()}, **encoding.specials},
            "merges": merges,
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def byte_letters() -> list[str]:
    """Return the printable letter that byte-level vocabularies write for each of the 256 bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in plain}
    rest = (byte for byte in range(256) if byte not in letters)
    letters.update({byte: chr(256 + place) for place, byte in enumerate(rest)})
    return [letters[byte] for byte in range(256)]


def _parts_before(token: bytes, ranks: dict[bytes, int]) -> list[bytes]:
    """Join the token's bytes by ascending rank, stopping before the token itself appears."""
    limit = ranks[token]
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        joins = [(ranks.get(left + right, limit), place) for place, (left, right) in enumerate(pairwise(parts))]
        rank, place = min(joins)
        if rank >= limit:
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts
