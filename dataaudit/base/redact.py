"""Addresses in text that people see: user, password and the values of a query hidden, wherever the address stands.

Whoever mistypes an address in a config gets it quoted, by us or by a library. So every message, note and setting
that is shown or stored passes :func:`without_secrets`, whose result depends on no secret: two people with keys of their
own see the same.
"""

from __future__ import annotations

import re

HIDDEN = "***"
"""What stands in place of a secret."""
WEB = frozenset({"http", "https"})
CONTAINER_FIRST = frozenset({"abfs", "abfss", "az", "adl", "wasb", "wasbs"})
"""Schemes that write ``container@account``: what stands before the ``@`` is no user, unless it has a colon."""
_ADDRESS = re.compile(
    r"(?<![A-Za-z0-9+.])(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/{1,3})(?P<rest>[^\s'\"`<>]+)"
)
"""One slash is enough: that is what a normalised path leaves of two."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_AUTHORITY = re.compile(r"(?:(?!;[A-Za-z_][\w.%-]*=)[^/?#\\])*")
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::(?:[0-9]*|\*|\{[^}]*\}?))?")
"""A host with its port, a number; what follows the colon otherwise is a password."""
_END = ").,;:}"
"""What ends a sentence, and no address."""
_QUERY = re.compile(r"(?<!\()(?:\?|%(?:25)*3[Ff])(?=[A-Za-z_][\w.%\[\]-]{0,80}?(?:=|%(?:25)*3[Dd]))[^\s'\"`<>]+")
"""``?name=value``, percent-encoded or not, in an address or behind a name; ``(?P=name)`` is of regular expressions."""
_WEB_QUERY = re.compile(r"(?<!\()(?:\?|#)[^\s'\"`<>]+")
_PATH_QUERY = re.compile(r"(?<!\()(\?|#|%3[Ff]|%23)[^\s'\"`<>]+")
"""In a web address that was taken for a path, normalised and encoded."""
_VALUES = re.compile(r"(?P<name>[A-Za-z_][\w.%\[\]-]{0,80}?(?:=|%(?:25)*3[Dd]))[^&;#]*")
_PIECES = re.compile(r"[^?&;#]+")
_BARE = re.compile(r"(?<![\w@:.+-])(?![0-9]+:)[\w.+-]+:[^\s/@:'\"`<>]+@(?=[A-Za-z0-9])(?P<rest>[^\s'\"`<>]*)")
"""``user:password@host`` without a scheme."""
_ENCODED = re.compile(r"(?i)(?P<slashes>%(?:25)*3A(?:%(?:25)*2F){1,3})(?P<rest>[^\s'\"`<>&]+)")
"""An address that was percent-encoded, once or more."""
_ENCODED_USER = re.compile(r"(?s)\A.*(?=%(?:25)*40)")
_PARAMETER = re.compile(r"(?P<name>;[A-Za-z_][\w.%-]{0,80}=)[^&;?#]+")
"""``;name=value`` of a path (RFC 3986, section 3.3), or of a JDBC address behind its host."""


def without_secrets(text: str) -> str:
    """Return a text with the secrets of every address in it replaced by ``***``.

    Hidden are what stands before the ``@`` of an authority, what stands in place of a port and is no number, and the
    values of every query and parameter, since which of their names are secret is not known. Percent-encoded addresses
    are addresses. Applied twice it does what it does once.
    """
    text = _ENCODED.sub(_encoded, _ADDRESS.sub(_address, text))
    return _BARE.sub(_hide_user, _QUERY.sub(_hide_values, text))


def has_secrets(text: str) -> bool:
    """Tell whether :func:`without_secrets` would hide anything."""
    return without_secrets(text) != text


def is_address(path: str) -> bool:
    """Tell whether what is given as a path begins with a scheme and two slashes, so that it is none on this machine."""
    return _SCHEME.match(path) is not None


def is_host(authority: str) -> bool:
    """Tell whether a host is followed by nothing or by a port that is a number."""
    return _HOST.fullmatch(authority) is not None


def _address(match: re.Match[str]) -> str:
    scheme, whole = match["scheme"], match["rest"]
    rest = whole.rstrip(_END)
    head = _AUTHORITY.match(rest)
    authority = head.group() if head else ""
    after = rest[len(authority) :]
    user, at, _ = authority.rpartition("@")
    if at and not (
        scheme.lower() in CONTAINER_FIRST and ":" not in user
    ):  # a password may hold `@`, `/` and `?` as well
        shown, after = f"{HIDDEN}@", rest.rpartition("@")[2]
    elif at or is_host(authority):
        shown = authority
    else:  # a password that holds a slash, or that was cut off
        before, at, last = after.rpartition("@")
        shown, after = (f"{HIDDEN}@", last) if at else (f"{authority.partition(':')[0]}:{HIDDEN}", before + last)
    if scheme.lower() in WEB:
        if match["slashes"] == "/":
            after = _PATH_QUERY.sub(rf"\1{HIDDEN}", after)
        after = _WEB_QUERY.sub(_hide_pieces, after)
    shown = _PARAMETER.sub(rf"\g<name>{HIDDEN}", f"{shown}{after}")
    return f"{scheme}:{match['slashes']}{shown}{whole[len(rest) :]}"


def _encoded(match: re.Match[str]) -> str:
    return match["slashes"] + _ENCODED_USER.sub(HIDDEN, match["rest"], count=1)


def _hide_user(match: re.Match[str]) -> str:
    rest = match["rest"].rstrip(_END)
    return f"{HIDDEN}@{_WEB_QUERY.sub(_hide_pieces, rest)}{match['rest'][len(rest) :]}"


def _hide_values(match: re.Match[str]) -> str:
    query = match.group().rstrip(_END)
    return _VALUES.sub(rf"\g<name>{HIDDEN}", query) + match.group()[len(query) :]


def _hide_pieces(match: re.Match[str]) -> str:
    return _PIECES.sub(lambda piece: _hide_values(piece) if "=" in piece[0] else HIDDEN, match[0])
