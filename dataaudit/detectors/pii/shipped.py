"""The shipped registry of personal data: ``pii.yaml``, its validators, and the user's files on top."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from dataaudit.detectors.patterns.entity import Candidate, Evidence, Predicate, Validator
from dataaudit.detectors.patterns.registry import Registry, build_registry
from dataaudit.detectors.patterns.written import Layer, Names, parse_layer, read_layer, shipped_layer
from dataaudit.detectors.pii import cards, checksums, crypto, dates, email, iban, network, phone, reserved, us
from dataaudit.detectors.pii.national import NATIONAL

PII_VERSION = "2"
"""Raised when a validator or a reserved value changes what is found."""


def _luhn(candidate: Candidate) -> Evidence:
    return _passed(checksums.luhn(checksums.digits_of(candidate.text)))


def _verhoeff(candidate: Candidate) -> Evidence:
    return _passed(checksums.verhoeff(checksums.digits_of(candidate.text)))


def _mod11_10(candidate: Candidate) -> Evidence:
    return _passed(checksums.mod11_10(checksums.digits_of(candidate.text)))


def _mod97(candidate: Candidate) -> Evidence:
    return _passed(checksums.mod97("".join(one for one in candidate.text if one.isascii() and one.isalnum())))


def _passed(holds: bool) -> Evidence:
    return Evidence.WEAK if holds else Evidence.REJECTED


_VALIDATORS: dict[str, Validator] = {
    "luhn": _luhn,
    "verhoeff": _verhoeff,
    "mod97": _mod97,
    "mod11_10": _mod11_10,
    "card": cards.card,
    "iban": iban.iban,
    "email": email.email,
    "ipv4": network.ipv4,
    "ipv6": network.ipv6,
    "mac": network.mac,
    "phone_international": phone.international,
    "phone_national": phone.national,
    "phone_trunk": phone.trunk,
    "crypto": crypto.crypto,
    "us_ssn": us.ssn,
    "us_itin": us.itin,
    "aba_routing": us.aba_routing,
    "dea": us.dea,
    "licence": us.licence,
    "birthday": dates.birthday,
    **NATIONAL,
}
_RESERVED: dict[str, Predicate] = {
    "email": email.reserved_email,
    "ip": network.reserved_ip,
    "mac": network.reserved_mac,
    "phone": phone.reserved_phone,
    "card": reserved.reserved_card,
    "iban": reserved.reserved_iban,
    "ssn": us.reserved_ssn,
    "crypto": crypto.reserved_crypto,
    "id": reserved.reserved_id,
}


def pii_names() -> Names:
    """Return the validators and predicates that a file of entities may name."""
    return Names(validators=dict(_VALIDATORS), reserved=dict(_RESERVED))


def load_pii(paths: Sequence[Path] = ()) -> Registry:
    """Return the shipped entities with those of the user's files, later files first in right.

    Args:
        paths: YAML files of the user, each over all before it.

    Raises:
        ConfigError: A file cannot be read or something in it is wrong.
    """
    names = pii_names()
    layers = [_shipped(names)] + [read_layer(path, detector="pii", names=names) for path in paths]
    libraries = {name: version(name) for name in ("phonenumbers", "python-stdnum")}
    return build_registry(layers, names=names, versions={"pii": PII_VERSION, **libraries})


def _shipped(names: Names) -> Layer:
    def parsed(text: str) -> Layer:
        return parse_layer(text, where="pii.yaml", detector="pii", names=names)

    return shipped_layer(Path(__file__).parent, "pii.yaml", parsed)
