"""Addresses of machines: IPv4, IPv6 and MAC, and which of them belong to nobody in particular."""

from __future__ import annotations

import ipaddress
import re

from dataaudit.detectors.patterns.entity import Candidate, Evidence

_VERSION = re.compile(
    r"(?:\b(?:versions?|ver|v|vers|releases?|rev|revisions?|build|firmware|driver|kernel|linux|windows|chrome|chromium|"
    r"firefox|safari|edge|mysql|openssl|oracle|python|update|upgrade|patch|sdk|api|assemblyversion|fileversion|section|"
    r"chapter|since|before|after|than)[\s:=\"'(/_-]*|[a-z]/|[a-z]-)\Z"
)
_VERSION_AFTER = re.compile(r"\s?(?:-?(?:rc|alpha|beta|pre|dev|release|final|snapshot)\b|\s(?:release|version)\b)")

_ASSIGNED = ipaddress.IPv6Network("2000::/3")
"""All that IANA gives out of IPv6 to be reached from everywhere."""
_SAID = re.compile(r"\b(?:ips?|ip_?addr(?:ess)?|addr(?:ess)?|ping|dns|inet|resolver|nameserver)\b")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def ipv4(candidate: Candidate) -> Evidence:
    """Reject what is no dotted quad; the form is all that one shows."""
    return Evidence.REJECTED if _address(candidate.text) is None else Evidence.FORM


def ipv6(candidate: Candidate) -> Evidence:
    """Reject what RFC 4291 does not allow, and eight pairs (EUI-64, fingerprints).

    Eight groups, or four beside ``::``, are strong evidence.
    """
    text = candidate.text
    if _address(text) is None:
        return Evidence.REJECTED
    groups = [group for group in text.split(":") if group]
    if len(groups) < 3 and not text.lower().startswith(("fe80:", "2001:", "fd", "::ffff:", "2a", "26", "ff0")):
        return Evidence.REJECTED
    if len(groups) == 8 and all(len(group) <= 2 for group in groups):
        return Evidence.REJECTED
    wide = sum(len(group) for group in groups) >= 8
    if len(groups) >= 4 and wide:
        return Evidence.STRONG
    return Evidence.FORM if any(letter.isdigit() for letter in text) else Evidence.REJECTED


def reserved_ip(candidate: Candidate) -> bool:
    """Whether it is private, loopback, for documentation (RFC 5737, 3849), given to nobody or looks like a version."""
    address = _address(candidate.text)
    if address is None or not address.is_global or address.is_multicast:
        return True
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped is None and address not in _ASSIGNED
    if _SAID.search(candidate.before):
        return False
    small = all(int(part) < 40 for part in candidate.text.split("."))
    version = _VERSION.search(candidate.before) or _VERSION_AFTER.match(candidate.after)
    return small or version is not None


def mac(candidate: Candidate) -> Evidence:
    """Reject the broadcast address and fillers; six pairs are a form that dumps of bytes have too."""
    digits = re.sub(r"[^0-9a-f]", "", candidate.text.lower())
    return Evidence.REJECTED if len(set(digits)) == 1 else Evidence.FORM


def reserved_mac(candidate: Candidate) -> bool:
    """Whether it is for documentation (RFC 7042), locally administered, multicast or a run of digits."""
    digits = re.sub(r"[^0-9a-f]", "", candidate.text.lower())
    first = int(digits[:2], 16)
    runs = "0123456789abcdef0123456789abcdef", "fedcba9876543210", "00112233445566778899aabbccddeeff", "aabbccddeeff"
    return bool(first & 3) or digits.startswith(("00005e", "000000")) or any(digits in run for run in runs)
