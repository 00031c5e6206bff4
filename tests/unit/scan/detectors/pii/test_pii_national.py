"""National numbers: no clock decides, and where a rule is not python-stdnum's own, the public definition is met."""

import datetime as dt
import importlib
from string import ascii_uppercase

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.detectors.patterns.entity import Candidate, Evidence
from dataaudit.scan.detectors.pii.national import NATIONAL

PAIRS = [f"{number:02d}" for number in range(100)]
DIGITS = "0123456789"
BORN = st.dates(dt.date(1930, 1, 1), dt.date(2020, 12, 31))
_SAMPLES_LIST = (
    "uk_nhs:9434765919 de_tax_id:65929970489 es_nif:12345678Z fr_nir:295109912611193 it_fiscal_code:RSSMRA85T10A562S "
    "in_aadhaar:234123412346 br_cpf:52998224725 nl_bsn:111222333 pl_pesel:44051401359 ca_sin:130692544 "
    "au_tfn:123456782 au_medicare:2123456701 se_personnummer:8112289874 no_fnr:15108695088 be_nrn:85073003328 "
    "ch_ahv:7569217076985 pt_nif:123456789 ie_pps:1234567FA hr_oib:33392005961 tr_kimlik:17291716060 "
    "cn_resident_id:11010519491231002X sg_nric:S1234567D za_id:8001015009087 mx_curp:HEGG560427MVZRRL04 "
    "th_tnin:1101700230708 cl_rut:76086428-5 fi_hetu:131052-308T kr_rrn:900101-1234568"
)
SAMPLES = dict(pair.split(":") for pair in _SAMPLES_LIST.split())
"""One number of each kind: published examples, and some made for the test."""


def say(name, text):
    """Return what a check says, as a scan takes it: a ValueError rejects."""
    try:
        return NATIONAL[name](Candidate(text=text, before="", after="", context=True))
    except ValueError:
        return Evidence.REJECTED


def completed(name, head, ends):
    """Return how many of the endings make a number of its beginning."""
    return sum(say(name, head + end) >= Evidence.WEAK for end in ends)


class NoClock(dt.date):
    """A calendar that does not know which day it is."""

    @classmethod
    def today(cls):
        raise AssertionError("a check asked for today's date")


@pytest.mark.parametrize("name", sorted(NATIONAL))
def test_no_check_asks_for_the_date(name, monkeypatch):
    """A corpus has the same findings next year; every check is run to its end by a number that passes."""
    monkeypatch.setattr(dt, "date", NoClock)
    assert say(name, SAMPLES[name]) >= Evidence.WEAK


def test_a_clock_would_be_seen(monkeypatch):
    """The test before fails where a check does ask: python-stdnum's whole check of a Swedish number."""
    monkeypatch.setattr(dt, "date", NoClock)
    with pytest.raises(AssertionError, match="today"):
        importlib.import_module("stdnum.se.personnummer").is_valid("811228-9874")


@given(st.dates(dt.date(2000, 1, 1), dt.date(2020, 12, 31)), st.integers(0, 999))
@example(dt.date(2000, 2, 29), 1)
@settings(max_examples=examples(25))
def test_belgian_numbers_are_stdnums(born, serial):
    """Of years that both centuries have seen the same endings are right, of register and BIS numbers."""
    peer = importlib.import_module("stdnum.be.ssn")
    for more in (0, 20, 40):
        head = f"{born:%y}{born.month + more:02d}{born:%d}{serial:03d}"
        right = [end for end in PAIRS if peer.is_valid(head + end)]
        assert [end for end in PAIRS if say("be_nrn", head + end) > Evidence.REJECTED] == right


@given(BORN, st.integers(0, 999))
@example(dt.date(2000, 2, 29), 1)
@settings(max_examples=examples(25))
def test_swedish_and_south_african_numbers_are_stdnums(born, serial):
    for name, peer, head in (
        ("se_personnummer", "stdnum.se.personnummer", f"{born:%Y%m%d}{serial:03d}"),
        ("za_id", "stdnum.za.idnr", f"{born:%y%m%d}5{serial:03d}08"),
    ):
        right = [end for end in DIGITS if importlib.import_module(peer).is_valid(head + end)]
        assert [end for end in DIGITS if say(name, head + end) > Evidence.REJECTED] == right
        assert len(right) == 1


@pytest.mark.parametrize(
    ("name", "head", "ends", "right"),
    [
        ("se_personnummer", "701063239", DIGITS, 1),  # a coordination number: the day plus 60
        ("za_id", "800101500928", DIGITS, 1),  # a refugee
        ("za_id", "800101500938", DIGITS, 0),
        ("fr_nir", "2953099126111", PAIRS, 1),  # the month of birth is not known
        ("fr_nir", "2951399126111", PAIRS, 0),
        ("pt_nif", "12345678", DIGITS, 1),
        ("pt_nif", "50123456", DIGITS, 0),  # a company
        ("cn_resident_id", "81000019491231002", DIGITS + "X", 1),  # a resident of Hong Kong
        ("cn_resident_id", "99000019491231002", DIGITS + "X", 0),
        ("mx_curp", "HEGG560427XVZRRL0", DIGITS, 1),  # a sex that is not said
        ("mx_curp", "HEGG560431MVZRRL0", DIGITS, 0),
        ("it_fiscal_code", "RSSMRA85D50H501", ascii_uppercase, 1),
        ("it_fiscal_code", "RSSMRA85D81H501", ascii_uppercase, 0),  # no day of anybody
        ("it_fiscal_code", "RSSMRA85B70H501", ascii_uppercase, 0),  # 30 February
        ("fi_hetu", "131052-899", DIGITS + ascii_uppercase, 1),
        ("fi_hetu", "131052-900", DIGITS + ascii_uppercase, 0),  # given for a stay, to nobody for good
        ("fi_hetu", "131052-001", DIGITS + ascii_uppercase, 0),
        ("no_fnr", "151086950", PAIRS, 1),
        ("no_fnr", "551086950", PAIRS, 1),  # a D-number: the day plus 40
        ("no_fnr", "155086950", PAIRS, 1),  # an H-number: the month plus 40
        ("no_fnr", "159086950", PAIRS, 0),  # the month plus 80: a made-up person of the tax office's
        ("no_fnr", "951086950", PAIRS, 0),  # an FH-number holds no birthday
        ("no_fnr", "300286950", PAIRS, 0),  # 30 February
        ("no_fnr", "151049647", PAIRS, 0),  # 500 to 749 are of 1854 to 1899, 900 on of 1940 to 1999
        ("kr_rrn", "900101-196456", DIGITS, 1),
        ("kr_rrn", "900101-197456", DIGITS, 0),  # no such place
    ],
)
def test_what_the_definition_leaves_open_and_closed(name, head, ends, right):
    assert completed(name, head, ends) == right


def test_a_korean_number_without_a_check_digit_is_a_form():
    """Those given since October 2020 have only a birthday."""
    assert {say("kr_rrn", f"900101-197456{end}") for end in DIGITS} == {Evidence.FORM}
    assert {say("kr_rrn", f"901301-197456{end}") for end in DIGITS} == {Evidence.REJECTED}
