"""Tokens that carry a CRC-32 of themselves: a random string passes one time in four billion."""

from __future__ import annotations

import re
import zlib

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_BASE62_DIGITS = 6
_BASE36_DIGITS = 7
_GITLAB = re.compile(
    r"(?P<head>(?:gl[a-z]{2,6}-|GR1348941)?(?P<payload>[A-Za-z0-9_-]{20,})\.(?:[0-9a-z]{2}\.)?(?P<length>[0-9a-z]{2}))"
    r"(?P<crc>[0-9a-z]{7})"
)


def _digits(number: int, alphabet: str, width: int) -> str:
    found = ""
    while number:
        number, digit = divmod(number, len(alphabet))
        found = alphabet[digit] + found
    return found.rjust(width, alphabet[0])


def is_github_token(token: str) -> bool:
    """Tell whether the last six letters are the CRC-32, in base 62, of those after the last underscore before them.

    The scheme of GitHub's and npm's tokens ("Behind GitHub's new authentication token formats", GitHub, 2021).
    """
    body = token.rpartition("_")[2]
    random = body[:-_BASE62_DIGITS]
    if not random or not body.isascii():
        return False
    return _digits(zlib.crc32(random.encode()), _BASE62, _BASE62_DIGITS) == body[-_BASE62_DIGITS:]


def is_gitlab_token(token: str) -> bool:
    """Tell whether a routable GitLab token ends in its payload's length and the CRC-32 of all before, in base 36."""
    found = _GITLAB.fullmatch(token)
    if found is None or int(found["length"], 36) != len(found["payload"]):
        return False
    return _digits(zlib.crc32(found["head"].encode()), _BASE36, _BASE36_DIGITS) == found["crc"]


def is_grafana_token(token: str) -> bool:
    """Tell whether a Grafana token ends in the CRC-32 of what is before its last underscore, lowest byte first."""
    body, _, check = token.rpartition("_")
    return body.isascii() and zlib.crc32(body.encode()).to_bytes(4, "little").hex() == check.lower()
