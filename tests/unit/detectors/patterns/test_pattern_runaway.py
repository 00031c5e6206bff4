import pytest

from dataaudit.detectors.patterns.written import runs_away
from dataaudit.detectors.pii import load_pii
from dataaudit.detectors.secrets.rules import load_secrets


@pytest.mark.parametrize(
    "regex",
    [
        "(a+)+b",
        "(?:[a-z]+[.-]?)+@",
        "x(?:a*)*y",
        "(?:b|a+)+c",
        "((a{1,40}))*c",
        "(?=(a+)+b)a",
        "(?:a{0,99}){2,99}z",
        "(?:(?:a+)?b?)+c",
    ],
)
def test_a_repeat_of_a_repeat_runs_away(regex):
    assert runs_away(regex)


@pytest.mark.parametrize(
    "regex", ["a+b+", "(?:[a-z]+-)+x", "(?:a{1,3}){1,3}", "(?:a++)+b", "(?>(?:a+)+)b", "(?:[a-z]{1,20}[.]){1,8}com"]
)
def test_other_repeats_do_not_run_away(regex):
    assert not runs_away(regex)


@pytest.mark.parametrize("load", [load_pii, load_secrets])
def test_no_shipped_regex_runs_away(load):
    assert not [rule.name for _, rule in load().rules if runs_away(rule.regex)]
