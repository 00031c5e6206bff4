"""The registry of personal data: ``pii.yaml``, the functions that it names, and the user's files on top.

:data:`VALIDATORS`, :data:`RESERVED` and :data:`LABELS` have a row for each name. Test cards, example IBANs and example
identifiers are those printed in manuals and test suites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from dataaudit.scan.detectors.patterns.entity import Candidate, Evidence, Predicate, Validator
from dataaudit.scan.detectors.patterns.registry import Registry, build_registry
from dataaudit.scan.detectors.patterns.written import Layer, Names, parse_layer, read_layer, shipped_layer
from dataaudit.scan.detectors.pii import contacts, labels, national, payments
from dataaudit.scan.detectors.pii.payments import digits_of

PII_VERSION = "8"
"""Raised when a validator or a reserved value changes what is found."""


@dataclass(frozen=True, slots=True)
class _WeakIf:
    """Weak evidence where a check of the plain number passes; a class, so that registries can be sent to workers."""

    passes: Callable[[str], bool]
    plain: Callable[[str], str]

    def __call__(self, candidate: Candidate) -> Evidence:
        return Evidence.WEAK if self.passes(self.plain(candidate.text)) else Evidence.REJECTED


def _letters_and_digits(text: str) -> str:
    return "".join(name for name in text if name.isascii() and name.isalnum())


# Numbers that payment processors publish for tests.
_TEST_CARDS_LIST = (
    "4111111111111111 4242424242424242 4000056655665556 4012888888881881 4222222222222 4000000000000002 "
    "4000000000000077 4000002500003155 4000000000009995 4000000000000069 4000000000000127 4000000000000119 "
    "4917610000000000 4263982640269299 4005519200000004 4009348888881881 4012000033330026 4012000077777777 "
    "4217651111111119 4500600000000061 5555555555554444 5105105105105100 2223003122003222 2223000048400011 "
    "5200828282828210 5454545454545454 5424000000000015 5431111111111111 2222400070000005 378282246310005 "
    "371449635398431 378734493671000 341111111111111 370000000000002 6011111111111117 6011000990139424 "
    "6011000000000004 6011981111111113 3056930009020004 30569309025904 38520000023237 36227206271667 "
    "3566002020360505 3530111333300000 3566111111111113 6200000000000005 6205500000000000004 6304000000000000 "
    "6759649826438453 5019717010103742 6331101999990016 4462030000000000 4917300800000000 5610591081018250 "
    "76009244561"
)
_TEST_CARDS = frozenset(_TEST_CARDS_LIST.split())
# The examples of SWIFT's IBAN registry and of national banks.
_EXAMPLE_IBANS_LIST = (
    "GB29NWBK60161331926819 GB82WEST12345698765432 GB33BUKB20201555555555 DE89370400440532013000 "
    "DE75512108001245126199 FR1420041010050500013M02606 FR7630006000011234567890189 ES9121000418450200051332 "
    "ES7921000813610123456789 IT60X0542811101000000123456 NL91ABNA0417164300 NL02ABNA0123456789 BE68539007547034 "
    "BE71096123456769 CH9300762011623852957 CH5604835012345678009 AT611904300234573201 AT483200000012345864 "
    "SE4550000000058398257466 SE7280000810340009783242 NO9386011117947 NO8330001234567 DK5000400440116243 "
    "DK9520000123456789 FI2112345600000785 FI1410093000123458 PL61109010140000071219812874 "
    "PL10105000997603123456789123 PT50000201231234567890154 PT50002700000001234567833 IE29AIBK93115212345678 "
    "IE64IRCE92050112345678 GR1601101250000000012300695 CZ6508000000192000145399 CZ5508000000001234567899 "
    "HU42117730161111101800000000 SK3112000000198742637541 SK8975000000000012345671 RO49AAAA1B31007593840000 "
    "RO09BCYP0000001234567890 BG80BNBG96611020345678 HR1210010051863000160 LU280019400644750000 "
    "LU120010001234567891 SA0380000000608010167519 AE070331234567890123456 TR330006100519786457841326 "
    "BR1800360305000010009795493C1 IL620108000000099999999"
)
_EXAMPLE_IBANS = frozenset(_EXAMPLE_IBANS_LIST.split())
_TEST_IDS_LIST = (
    "9434765919 4505577104 12345678Z X1234567L 12345678909 11144477735 52998224725 111222333 123456782 046454286 "
    "123456789 12345678911 756123456789 86095742719 AB1234563 123456785"
)
_TEST_IDS = frozenset(_TEST_IDS_LIST.split())


def reserved_card(candidate: Candidate) -> bool:
    """Whether payment processors publish it for tests."""
    digits = digits_of(candidate.text)
    return digits in _TEST_CARDS or digits.startswith(("424242424242", "411111111111")) or len(set(digits)) <= 3


def reserved_iban(candidate: Candidate) -> bool:
    """Whether it is the example of a registry or a bank."""
    return payments.normal_iban(candidate.text) in _EXAMPLE_IBANS


def reserved_id(candidate: Candidate) -> bool:
    """Whether manuals show this identifier, or its digits count up."""
    plain = _letters_and_digits(candidate.text.upper())
    digits = digits_of(plain)
    return plain in _TEST_IDS or (len(digits) > 5 and digits[:8] in "1234567890123456") or len(set(digits)) <= 2


VALIDATORS: dict[str, Validator] = {
    "luhn": _WeakIf(payments.luhn, digits_of),
    "verhoeff": _WeakIf(payments.verhoeff, digits_of),
    "mod97": _WeakIf(payments.mod97, _letters_and_digits),
    "mod11_10": _WeakIf(payments.mod11_10, digits_of),
    "card": payments.card,
    "iban": payments.iban,
    "email": contacts.email,
    "ipv4": contacts.ipv4,
    "ipv6": contacts.ipv6,
    "mac": contacts.mac,
    "phone_international": contacts.international,
    "phone_national": contacts.national,
    "phone_trunk": contacts.trunk,
    "crypto": payments.crypto,
    "us_ssn": national.ssn,
    "us_itin": national.itin,
    "aba_routing": national.aba_routing,
    "dea": national.dea,
    "licence": national.licence,
    "birthday": national.birthday,
    "street_number_first": labels.number_first,
    "street_number_and_name": labels.number_and_name,
    "street_kind_first": labels.kind_first,
    "street_brazilian": labels.brazilian,
    "street_french": labels.french,
    "street_before_a_town": labels.before_a_town,
    **national.NATIONAL,
}
RESERVED: dict[str, Predicate] = {
    "email": contacts.reserved_email,
    "ip": contacts.reserved_ip,
    "mac": contacts.reserved_mac,
    "phone": contacts.reserved_phone,
    "card": reserved_card,
    "iban": reserved_iban,
    "ssn": national.reserved_ssn,
    "crypto": payments.reserved_crypto,
    "id": reserved_id,
}
LABELS: dict[str, Predicate] = {
    "email": labels.names_email,
    "phone": labels.names_phone,
    "birth": labels.names_birth,
    "licence": labels.names_licence,
    "account": labels.names_account,
    "passport": labels.names_passport,
}


def pii_names() -> Names:
    """Return the validators and predicates that a file of entities may name."""
    return Names(validators=dict(VALIDATORS), reserved=dict(RESERVED), labels=dict(LABELS))


def load_pii(paths: Sequence[Path] = ()) -> Registry:
    """Return the shipped entities with those of the user's files; a later file overrides an earlier one."""
    names = pii_names()
    layers = [_shipped(), *(read_layer(path, detector="pii", names=names) for path in paths)]
    libraries = {name: version(name) for name in ("phonenumbers", "python-stdnum")}
    return build_registry(layers, names=names, versions={"pii": PII_VERSION, **libraries})


@cache
def _shipped() -> Layer:
    def parsed(text: str) -> Layer:
        return parse_layer(text, where="pii.yaml", detector="pii", names=pii_names())

    return shipped_layer(Path(__file__).parent, "pii.yaml", parsed)
