import re
from itertools import product

import pytest
from steps import steps_of

from dataaudit.scan.detectors.patterns.written import _MANY_WAYS, _ONE_WAY, full_regex, runs_away
from dataaudit.scan.detectors.pii import load_pii
from dataaudit.scan.detectors.secrets.rules import load_secrets


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


def test_blanks_between_a_name_and_a_value_are_shared_out_in_one_way():
    """What is searched for instead of a part of detect-secrets' regexes takes the same texts."""
    many, one = (re.compile(f"n{part}v") for part in (_MANY_WAYS, _ONE_WAY))
    for size in range(7):
        for letters in product(" =:>", repeat=size):
            text = f"n{''.join(letters)}v"
            assert bool(many.fullmatch(text)) == bool(one.fullmatch(text)), text


def test_no_rule_tries_ways_to_share_out_blanks():
    """A name, blanks and no value: steps follow the blanks, in every rule that has such a part."""
    rules = [rule for _, rule in load_secrets().rules if _MANY_WAYS in rule.regex]
    assert len(rules) >= 5
    for rule in rules:
        name = next(one for one in ("cloudant_key", "ibm_key", "cos_secret_key", "sl_key") if one[:2] in rule.regex)
        few, many = (steps_of(full_regex(rule), f"[{name}{' ' * size}!") for size in (200, 400))
        assert many <= 2.4 * few, rule.name
