"""Checks of national identifiers and of days of birth.

:data:`NATIONAL` has a row for each identifier: python-stdnum's check, or a rule of ours where that lacks or differs.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass

from dataaudit.scan.detectors.patterns.entity import Candidate, Evidence, Validator
from dataaudit.scan.detectors.pii.payments import digits_of, luhn, one_digit, stdnum, weighted

_PROVINCES = frozenset(
    map(str, (*range(11, 16), *range(21, 24), *range(31, 38), *range(41, 47), *range(50, 55), *range(61, 66)))
) | {"71", "81", "82", "83", "91"}
"""First digits of Chinese identities, GB/T 2260; 83 and 91 are residents of Taiwan and foreigners."""


def real_date(year: int, month: int, day: int) -> bool:
    """Whether the calendar has this day."""
    try:
        dt.date(year, month, day)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Stdnum:
    """The check of a module of python-stdnum."""

    module: str

    def __call__(self, plain: str) -> bool:
        return bool(stdnum(self.module).is_valid(plain))


def fr_nir(text: str) -> bool:
    """French NIR with its key; months beyond 12 are of people whose month is not known."""
    month = int(text[3:5])
    return (1 <= month <= 12 or 20 <= month <= 42 or month >= 50) and bool(stdnum("fr.nir").is_valid(text))


def it_fiscal_code(text: str) -> bool:
    """Italian codice fiscale; python-stdnum takes a day of 81 to 99, which nobody has, for 1 to 19."""
    return text[9] in "01234567LMNPQRST" and bool(stdnum("it.codicefiscale").is_valid(text))


def au_medicare(digits: str) -> bool:
    """Medicare card: begins with 2 to 6, weights 1 3 7 9, the ninth digit is the check."""
    return digits[0] in "23456" and weighted(digits[:8], (1, 3, 7, 9, 1, 3, 7, 9)) % 10 == int(digits[8])


def se_personnummer(digits: str) -> bool:
    """Personnummer: a birthday (or the day plus 60, a coordination number), Luhn over the last ten."""
    ten = digits[-10:]
    day = int(ten[4:6])
    return real_date(2000 + int(ten[:2]), int(ten[2:4]), day - 60 if day > 60 else day) and luhn(ten)


def no_fnr(digits: str) -> bool:
    """Norwegian birth number, D-number (day plus 40) or H-number (month plus 40): two check digits and a birthday."""
    number = stdnum("no.fodselsnummer")
    right = number.calc_check_digit1(digits) + number.calc_check_digit2(digits) == digits[9:]
    return right and bool(number.get_birth_date(digits))


def be_nrn(digits: str) -> bool:
    """Belgian register number: a birthday, and 97 minus the number modulo 97; a 2 goes before from 2000 on."""
    if int(digits[2:4]) % 20 > 12 or int(digits[4:6]) > 31:
        return False
    check = int(digits[9:])
    return any(97 - int(century + digits[:9]) % 97 == check for century in ("", "2"))


def pt_nif(digits: str) -> bool:
    """Portuguese NIF of a person: it begins with 1 to 4."""
    return digits[0] in "1234" and bool(stdnum("pt.nif").is_valid(digits))


def ie_pps(text: str) -> bool:
    """Irish PPS number; a second letter counts, but for the W of numbers before 2013."""
    return bool(text[7] == stdnum("ie.vat").calc_check_digit(text[:7] + text[8:].replace("W", "")))


def cn_resident_id(text: str) -> bool:
    """Chinese resident identity: region, birthday, and ISO 7064 MOD 11-2, whose 10 is X."""
    if text[:2] not in _PROVINCES or not real_date(int(text[6:10]), int(text[10:12]), int(text[12:14])):
        return False
    return bool(stdnum("cn.ric").calc_check_digit(text) == text[17])


def sg_nric(text: str) -> bool:
    """Singapore NRIC and FIN: weights 2 7 6 5 4 3 2, an offset by series, a letter of eleven."""
    total = weighted(text[1:8], (2, 7, 6, 5, 4, 3, 2)) + {"S": 0, "F": 0, "T": 4, "G": 4, "M": 3}[text[0]]
    letters = {"S": "JZIHGFEDCBA", "T": "JZIHGFEDCBA", "F": "XWUTRQPNMLK", "G": "XWUTRQPNMLK", "M": "XWUTRQPNJLK"}
    return letters[text[0]][total % 11] == text[8]


def za_id(digits: str) -> bool:
    """South African identity number: a birthday, citizenship 0 to 2 (2: refugees), Luhn."""
    born = real_date(2000 + int(digits[:2]), int(digits[2:4]), int(digits[4:6]))
    return born and digits[10] in "012" and luhn(digits)


def mx_curp(text: str) -> bool:
    """Mexican CURP: a birthday and a check digit; the sex may be X."""
    number = stdnum("mx.curp")
    return bool(number.calc_check_digit(text) == text[17] and number.get_birth_date(text))


@dataclass(frozen=True, slots=True)
class _National:
    """A check over the digits (or digits and letters) of a candidate; a module of python-stdnum by its name."""

    check: Callable[[str], bool]
    lengths: tuple[int, ...]
    letters: bool = False
    """Whether letters belong to the number."""
    evidence: Evidence = Evidence.WEAK
    """Of a number that passes."""

    def __call__(self, candidate: Candidate) -> Evidence:
        text = candidate.text.upper()
        plain = "".join(name for name in text if name.isascii() and name.isalnum()) if self.letters else digits_of(text)
        if len(plain) not in self.lengths or one_digit(plain) or not self.check(plain):
            return Evidence.REJECTED
        return self.evidence


def _hetu(candidate: Candidate) -> Evidence:
    return Evidence.WEAK if stdnum("fi.hetu").is_valid(candidate.text) else Evidence.REJECTED


def _rrn(candidate: Candidate) -> Evidence:
    """Korean numbers given since October 2020 have no check digit, only a birthday."""
    digits = digits_of(candidate.text)
    number = stdnum("kr.rrn")
    if number.is_valid(digits):
        return Evidence.WEAK
    return Evidence.FORM if number.get_birth_date(digits) else Evidence.REJECTED


_STRONG = Evidence.STRONG
NATIONAL: dict[str, Validator] = {
    "uk_nhs": _National(_Stdnum("gb.nhs"), (10,)),
    "de_tax_id": _National(_Stdnum("de.idnr"), (11,)),
    "es_nif": _National(_Stdnum("es.nif"), (9,), letters=True),
    "fr_nir": _National(fr_nir, (15,), letters=True),
    "it_fiscal_code": _National(it_fiscal_code, (16,), letters=True, evidence=_STRONG),
    "in_aadhaar": _National(_Stdnum("in_.aadhaar"), (12,)),
    "br_cpf": _National(_Stdnum("br.cpf"), (11,)),
    "nl_bsn": _National(_Stdnum("nl.bsn"), (9,)),
    "pl_pesel": _National(_Stdnum("pl.pesel"), (11,)),
    "ca_sin": _National(_Stdnum("ca.sin"), (9,)),
    "au_tfn": _National(_Stdnum("au.tfn"), (9,)),
    "au_medicare": _National(au_medicare, (10, 11)),
    "se_personnummer": _National(se_personnummer, (10, 12)),
    "no_fnr": _National(no_fnr, (11,)),
    "be_nrn": _National(be_nrn, (11,)),
    "ch_ahv": _National(_Stdnum("ch.ssn"), (13,)),
    "pt_nif": _National(pt_nif, (9,)),
    "ie_pps": _National(ie_pps, (8, 9), letters=True),
    "hr_oib": _National(_Stdnum("hr.oib"), (11,)),
    "tr_kimlik": _National(_Stdnum("tr.tckimlik"), (11,)),
    "cn_resident_id": _National(cn_resident_id, (18,), letters=True, evidence=_STRONG),
    "sg_nric": _National(sg_nric, (9,), letters=True),
    "za_id": _National(za_id, (13,)),
    "mx_curp": _National(mx_curp, (18,), letters=True, evidence=_STRONG),
    "th_tnin": _National(_Stdnum("th.pin"), (13,)),
    "cl_rut": _National(_Stdnum("cl.rut"), (8, 9), letters=True),
    "fi_hetu": _hetu,
    "kr_rrn": _rrn,
}
"""Validators by name; layout and context of the rule decide the tier."""


_ADVERTISED = frozenset(("078051120", "219099999", "457555462", "123456789", "987654321", "111223333", "123121234"))


def ssn(candidate: Candidate) -> Evidence:
    """Reject areas 000, 666 and 9xx, group 00, serial 0000: the Social Security Administration never issues them."""
    digits = digits_of(candidate.text)
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    if area in {"000", "666"} or area[0] == "9" or group == "00" or serial == "0000" or one_digit(digits):
        return Evidence.REJECTED
    return Evidence.FORM


def reserved_ssn(candidate: Candidate) -> bool:
    """Whether it was printed in advertisements, or counts."""
    return digits_of(candidate.text) in _ADVERTISED


def itin(candidate: Candidate) -> Evidence:
    """Reject groups that the IRS does not give; 50 to 65, 70 to 88, 90 to 92, 94 to 99 are in use, areas 9xx."""
    digits = digits_of(candidate.text)
    group = int(digits[3:5])
    used = 50 <= group <= 65 or 70 <= group <= 88 or 90 <= group <= 92 or 94 <= group <= 99
    return Evidence.FORM if digits[0] == "9" and used else Evidence.REJECTED


def aba_routing(candidate: Candidate) -> Evidence:
    """Check a routing number: a Federal Reserve prefix, weights 3 7 1, divisible by 10."""
    digits = digits_of(candidate.text)
    prefix = int(digits[:2])
    known = prefix <= 12 or 21 <= prefix <= 32 or 61 <= prefix <= 72 or prefix == 80
    if not known or one_digit(digits) or weighted(digits, (3, 7, 1) * 3) % 10:
        return Evidence.REJECTED
    return Evidence.WEAK


def dea(candidate: Candidate) -> Evidence:
    """Check a DEA number: odd digits plus twice the even digits end in the check digit."""
    digits = digits_of(candidate.text)[-7:]
    total = weighted(digits[:6], (1, 2, 1, 2, 1, 2))
    return Evidence.WEAK if total % 10 == int(digits[6]) and not one_digit(digits) else Evidence.REJECTED


def licence(candidate: Candidate) -> Evidence:
    """Reject fillers: no check digit of a licence or passport is printed."""
    digits = digits_of(candidate.text)
    return Evidence.REJECTED if not digits or one_digit(digits) else Evidence.FORM


_OLDEST, _YOUNGEST = 1900, 2035


def birthday(candidate: Candidate) -> Evidence:
    """Reject dates that no calendar has: numbers in any order of day, month, year; names of months are not checked."""
    numbers = [int(part) for part in re.findall(r"[0-9]+", candidate.text)]
    if len(numbers) == 1 and candidate.text.isdigit() and len(candidate.text) == 8:
        numbers = [numbers[0] // 10_000, numbers[0] // 100 % 100, numbers[0] % 100]
    if len(numbers) == 2:
        day, year = numbers if numbers[1] > 31 else reversed(numbers)
        return Evidence.FORM if 1 <= day <= 31 and _OLDEST <= year <= _YOUNGEST else Evidence.REJECTED
    if len(numbers) != 3:
        return Evidence.REJECTED
    first, second, third = numbers
    orders = [(first, second, third), (third, second, first), (third, first, second)]
    real = any(
        real_date(year + (1900 if year < 100 else 0), month, day) and (year < 100 or _OLDEST <= year <= _YOUNGEST)
        for year, month, day in orders
        if (year > 31 or year < 100)
    )
    return Evidence.FORM if real else Evidence.REJECTED
