"""National identifiers with check digits: by python-stdnum, and by rules of ours where it has none or another one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from dataaudit.detectors.patterns.entity import Candidate, Evidence, Validator
from dataaudit.detectors.pii.checksums import digits_of, luhn, one_digit, stdnum, weighted

_CODICE_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
_CODICE_MONTHS = "ABCDEHLMPRST"
_FI = "0123456789ABCDEFHJKLMNPRSTUVWXY"
_PROVINCES = frozenset(map(str, (*range(11, 16), *range(21, 24), *range(31, 38), *range(41, 47), *range(50, 55),
                                 *range(61, 66), 71, 81, 82, 83, 91)))  # fmt: skip
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
    """The whole check of a module of python-stdnum."""

    module: str

    def __call__(self, plain: str) -> bool:
        return bool(stdnum(self.module).is_valid(plain))


def fr_nir(text: str) -> bool:
    """French NIR with its key; months beyond 12 are of people whose month is not known."""
    month = int(text[3:5])
    return (1 <= month <= 12 or 20 <= month <= 42 or month >= 50) and bool(stdnum("fr.nir").is_valid(text))


def it_fiscal_code(text: str) -> bool:
    """Italian codice fiscale: a birthday, and a letter from weights of odd and even places (DM 23 December 1976)."""
    if text[8] not in _CODICE_MONTHS or not 1 <= int(text[9:11]) % 40 <= 31 or int(text[9:11]) > 71:
        return False
    values = [int(letter) if letter.isdigit() else ord(letter) - 65 for letter in text[:15]]
    total = sum(_CODICE_ODD[value] if place % 2 == 0 else value for place, value in enumerate(values))
    return chr(65 + total % 26) == text[15]


def au_medicare(digits: str) -> bool:
    """Medicare card: begins with 2 to 6, weights 1 3 7 9, the ninth digit is the check."""
    return digits[0] in "23456" and weighted(digits[:8], (1, 3, 7, 9, 1, 3, 7, 9)) % 10 == int(digits[8])


def se_personnummer(digits: str) -> bool:
    """Personnummer: a birthday (or the day plus 60, a coordination number), Luhn over the last ten."""
    ten = digits[-10:]
    day = int(ten[4:6])
    return real_date(2000 + int(ten[:2]), int(ten[2:4]), day - 60 if day > 60 else day) and luhn(ten)


def no_fnr(digits: str) -> bool:
    """Norwegian birth number: a day (plus 40 for a D-number) and month, and two check digits, MOD 11."""
    day = int(digits[:2]) % 40
    if not 1 <= day <= 31 or not 1 <= int(digits[2:4]) % 40 <= 12:
        return False
    first = weighted(digits[:10], (3, 7, 6, 1, 8, 9, 4, 5, 2, 1)) % 11
    return first == 0 and weighted(digits, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1)) % 11 == 0


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


def fi_hetu(text: str) -> bool:
    """Finnish personal identity code: a birthday, and one of 31 characters, the nine digits modulo 31."""
    century = 1800 if text[6] == "+" else 1900 if text[6] in "-YXWVU" else 2000
    if not real_date(century + int(text[4:6]), int(text[2:4]), int(text[:2])):
        return False
    return _FI[int(text[:6] + text[7:10]) % 31] == text[10]


def kr_rrn(digits: str) -> bool:
    """Korean registration number: a birthday, a digit of sex and century; weights, MOD 11 (until October 2020)."""
    if not real_date((1900 if digits[6] in "1256" else 2000) + int(digits[:2]), int(digits[2:4]), int(digits[4:6])):
        return False
    total = weighted(digits[:12], (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5))
    return (11 - total % 11) % 10 == int(digits[12])


@dataclass(frozen=True, slots=True)
class _National:
    """A check over the digits (or digits and letters) of a candidate."""

    check: Callable[[str], bool]
    """The authority's rule."""
    lengths: frozenset[int]
    """How many digits or letters there are."""
    letters: bool
    """Whether letters belong to the number."""
    evidence: Evidence
    """What passing says."""

    def __call__(self, candidate: Candidate) -> Evidence:
        text = candidate.text.upper()
        plain = "".join(one for one in text if one.isascii() and one.isalnum()) if self.letters else digits_of(text)
        if len(plain) not in self.lengths or one_digit(plain) or not self.check(plain):
            return Evidence.REJECTED
        return self.evidence


_WEAK, _STRONG = Evidence.WEAK, Evidence.STRONG
_CHECKS: dict[str, tuple[Callable[[str], bool], set[int], bool, Evidence]] = {
    "uk_nhs": (_Stdnum("gb.nhs"), {10}, False, _WEAK),
    "de_tax_id": (_Stdnum("de.idnr"), {11}, False, _WEAK),
    "es_nif": (_Stdnum("es.nif"), {9}, True, _WEAK),
    "fr_nir": (fr_nir, {15}, True, _WEAK),
    "it_fiscal_code": (it_fiscal_code, {16}, True, _STRONG),
    "in_aadhaar": (_Stdnum("in_.aadhaar"), {12}, False, _WEAK),
    "br_cpf": (_Stdnum("br.cpf"), {11}, False, _WEAK),
    "nl_bsn": (_Stdnum("nl.bsn"), {9}, False, _WEAK),
    "pl_pesel": (_Stdnum("pl.pesel"), {11}, False, _WEAK),
    "ca_sin": (_Stdnum("ca.sin"), {9}, False, _WEAK),
    "au_tfn": (_Stdnum("au.tfn"), {9}, False, _WEAK),
    "au_medicare": (au_medicare, {10, 11}, False, _WEAK),
    "se_personnummer": (se_personnummer, {10, 12}, False, _WEAK),
    "no_fnr": (no_fnr, {11}, False, _WEAK),
    "be_nrn": (be_nrn, {11}, False, _WEAK),
    "ch_ahv": (_Stdnum("ch.ssn"), {13}, False, _WEAK),
    "pt_nif": (pt_nif, {9}, False, _WEAK),
    "ie_pps": (ie_pps, {8, 9}, True, _WEAK),
    "hr_oib": (_Stdnum("hr.oib"), {11}, False, _WEAK),
    "tr_kimlik": (_Stdnum("tr.tckimlik"), {11}, False, _WEAK),
    "cn_resident_id": (cn_resident_id, {18}, True, _STRONG),
    "sg_nric": (sg_nric, {9}, True, _WEAK),
    "za_id": (za_id, {13}, False, _WEAK),
    "mx_curp": (mx_curp, {18}, True, _STRONG),
    "th_tnin": (_Stdnum("th.pin"), {13}, False, _WEAK),
    "cl_rut": (_Stdnum("cl.rut"), {8, 9}, True, _WEAK),
}


def _hetu(candidate: Candidate) -> Evidence:
    return Evidence.WEAK if fi_hetu(candidate.text.upper()) else Evidence.REJECTED


def _rrn(candidate: Candidate) -> Evidence:
    """Korean numbers given since October 2020 have no check digit, so only the birthday can be asked of them."""
    digits = digits_of(candidate.text)
    if kr_rrn(digits):
        return Evidence.WEAK
    born = real_date((1900 if digits[6] in "1256" else 2000) + int(digits[:2]), int(digits[2:4]), int(digits[4:6]))
    return Evidence.FORM if born else Evidence.REJECTED


NATIONAL: dict[str, Validator] = {
    name: _National(check, frozenset(lengths), letters, evidence)
    for name, (check, lengths, letters, evidence) in _CHECKS.items()
} | {"fi_hetu": _hetu, "kr_rrn": _rrn}
"""Validators by name; the rule decides with layout and context what the evidence is worth."""
