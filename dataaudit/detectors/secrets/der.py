"""A minimal reader of DER (X.690): enough to tell whether bytes are a private key."""

from __future__ import annotations

from dataclasses import dataclass

INTEGER = 0x02
BITS = 0x03
OCTETS = 0x04
OBJECT = 0x06
SEQUENCE = 0x30
_MAX_LENGTH_BYTES = 3
_MAX_FIELDS = 32


@dataclass(frozen=True, slots=True, repr=False)
class Field:
    """One value and its tag; without a repr that shows it."""

    tag: int
    """First byte: class, form and number."""
    value: bytes
    """Contents."""

    @property
    def number(self) -> int:
        """The contents as an integer of any size."""
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
    """Read the fields of the one SEQUENCE that ``data`` is."""
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
