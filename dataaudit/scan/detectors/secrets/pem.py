"""Private keys in armour: PEM (RFC 7468), OpenSSH, OpenPGP (RFC 9580), SSH2 (RFC 4716's ancestor) and PuTTY.

DER (X.690) is read as far as it shows whether bytes are a private key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dataaudit.scan.detectors.patterns.encodings import decode_base64

_LINES = re.compile(r"\\r\\n|\\n|\\r|\r?\n|\r")
_COMMENT = re.compile(r"^\s*(?://+|#+|\*+|>+|;+|--)\s+")
_JOIN = re.compile(r"[\"'`]\s*+[+.,;)\\&_]*+\s*+$")
_BODY = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_HEADER = re.compile(r"^(?P<key>[A-Za-z][A-Za-z0-9-]*): *+(?P<value>.*+)$")
_CIPHER = re.compile(r"[A-Z0-9-]+,[0-9A-Fa-f]{16,32}")
_PUTTY_LINES = re.compile(r"Private-Lines: *(\d{1,3})")
_PUTTY_CODE = re.compile(r"Private-MAC: *([0-9a-f]{64}|[0-9a-f]{40})\b")
_OPENSSH = b"openssh-key-v1\0"
_SSH2 = b"\x3f\x6f\xf9\xeb"
_CRC24_START, _CRC24_STEP = 0xB704CE, 0x1864CFB
_SECRET_PACKETS = frozenset({0x94, 0x95, 0x96, 0xC5})
_MIN_BODY = 32
"""Letters of base64 that the smallest block has: an Ed25519 key in PKCS#8 has 64."""


def read_lines(block: str) -> tuple[dict[str, str], list[str]]:
    """Undo what surrounds a block in code, logs and JSON: quotes, comments, joins, escaped line ends."""
    headers: dict[str, str] = {}
    lines = []
    for raw in _LINES.split(block)[1:]:
        line = _COMMENT.sub("", raw).strip()
        line = _JOIN.sub("", line).strip("\"'`\\ \t,;")
        if line.startswith("----"):
            break
        if _BODY.fullmatch(line) or re.fullmatch(r"=[A-Za-z0-9+/]{4}", line):
            lines.append(line)
        elif match := _HEADER.match(line):
            headers[match["key"]] = match["value"]
    return headers, lines


def body_of(block: str) -> str:
    """Return the base64 alone: the normal form, the same however a key is wrapped, quoted and indented."""
    return "".join(read_lines(block)[1])


def has_body(block: str) -> bool:
    """Tell whether something that may be a key stands behind the marker; program text that names markers has none."""
    return len(body_of(block)) >= _MIN_BODY


def is_private_block(block: str) -> bool:
    """Tell whether a block decodes to a private key of the kind that its marker names."""
    headers, lines = read_lines(block)
    if block.startswith("PuTTY"):
        return _is_putty(block, lines)
    marker = block[:64].partition("KEY")[0]
    if "PGP" in marker:
        return _is_pgp(lines)
    raw = decode_base64("".join(lines))
    return bool(raw) and _is_encoded_key(raw or b"", marker, headers)


def _is_encoded_key(raw: bytes, marker: str, headers: dict[str, str]) -> bool:
    if "OPENSSH" in marker:
        return _is_openssh(raw)
    if "SSH2" in marker:
        return raw.startswith(_SSH2) and int.from_bytes(raw[4:8], "big") == len(raw)
    if "DEK-Info" in headers:
        return len(raw) % 8 == 0 and _CIPHER.fullmatch(headers["DEK-Info"].strip()) is not None
    return is_private_key(raw)


def _is_openssh(raw: bytes) -> bool:
    """Follow OpenSSH's PROTOCOL.key: strings around a count of 1, which fill the bytes."""
    if not raw.startswith(_OPENSSH):
        return False
    at = len(_OPENSSH)
    for step in ("cipher", "kdf", "options", "count", "public", "private"):
        size = int.from_bytes(raw[at : at + 4], "big")
        at += 4
        if step == "count":
            if size != 1:
                return False
            continue
        at += size
        if at > len(raw):
            return False
    # Authenticated ciphers put their tag of 16 bytes behind the last string.
    return len(raw) - at in {0, 16}


def _is_pgp(lines: list[str]) -> bool:
    check = lines[-1] if lines and lines[-1].startswith("=") else None
    raw = decode_base64("".join(lines[:-1] if check else lines))
    if not raw or raw[0] not in _SECRET_PACKETS:
        return False
    if check is None:
        return len(raw) > _MIN_BODY
    crc = _CRC24_START
    for byte in raw:
        crc ^= byte << 16
        for _ in range(8):
            crc = crc << 1 ^ (_CRC24_STEP if crc & 0x800000 else 0)
        crc &= 0xFFFFFF
    return decode_base64(check[1:]) == crc.to_bytes(3, "big")


def _is_putty(block: str, lines: list[str]) -> bool:
    count = _PUTTY_LINES.search(block)
    if count is None or not _PUTTY_CODE.search(block):
        return False
    private = lines[-int(count[1]) :]
    text = "".join(private)
    # Whole groups of four, padded: PuTTY writes no other base64.
    return 0 < int(count[1]) == len(private) and len(text) % 4 == 0 and decode_base64(text) is not None


INTEGER = 0x02
OCTETS = 0x04
OBJECT = 0x06
SEQUENCE = 0x30
_MAX_LENGTH_BYTES = 3
_MAX_FIELDS = 32


@dataclass(frozen=True, slots=True, repr=False)
class Field:
    """A value and its tag, the first byte: class, form and number; no repr shows it."""

    tag: int
    value: bytes

    @property
    def number(self) -> int:
        """The value as an integer of any size."""
        return int.from_bytes(self.value, "big", signed=True)


def read_fields(data: bytes) -> list[Field] | None:
    """Read the values that fill ``data`` to its last byte; None unless they are in canonical form and do."""
    fields: list[Field] = []
    at = 0
    while at < len(data):
        if len(fields) == _MAX_FIELDS or at + 2 > len(data):
            return None
        tag, length = data[at], data[at + 1]
        at += 2
        if length >= 0x80:
            count = length & 0x7F
            size = data[at : at + count]
            if not 1 <= count <= _MAX_LENGTH_BYTES or len(size) < count or not size[0]:
                return None
            length = int.from_bytes(size, "big")
            at += count
            if length < 0x80:
                return None
        if at + length > len(data):
            return None
        fields.append(Field(tag, data[at : at + length]))
        at += length
    return fields


def read_sequence(data: bytes) -> list[Field] | None:
    """Read the fields of the SEQUENCE that fills ``data``."""
    outer = read_fields(data)
    if outer is None or len(outer) != 1 or outer[0].tag != SEQUENCE:
        return None
    return read_fields(outer[0].value)


def is_private_key(data: bytes) -> bool:
    """Tell whether this is a private key: PKCS#1, SEC 1, DSA's of OpenSSL, PKCS#8 or encrypted PKCS#8.

    Sources: RFC 8017 appendix A.1.2 (the product of the primes is checked), RFC 5915, RFC 5208 and 5958.
    """
    fields = read_sequence(data)
    if not fields:
        return False
    tags = [field.tag for field in fields]
    if tags[:9] == [INTEGER] * 9:
        return fields[4].number * fields[5].number == fields[1].number > 0
    if tags == [INTEGER] * 6:
        return fields[0].number == 0 and 0 < fields[5].number < fields[2].number < fields[1].number
    if tags[:2] == [INTEGER, OCTETS]:
        return fields[0].number == 1 and 16 <= len(fields[1].value) <= 72
    if tags[:3] == [INTEGER, SEQUENCE, OCTETS]:
        return fields[0].number in {0, 1} and _names_algorithm(fields[1].value)
    return tags == [SEQUENCE, OCTETS] and _names_algorithm(fields[0].value)


def _names_algorithm(value: bytes) -> bool:
    fields = read_fields(value)
    return fields is not None and fields[:1] != [] and fields[0].tag == OBJECT and 3 <= len(fields[0].value) <= 16
