"""No check of a candidate runs lines of Python that grow faster than the candidate, which has 16 kB at most."""

import random

import pytest
from lines import Lines

from dataaudit.scan.detectors.content import shipped_patterns
from dataaudit.scan.detectors.patterns.entity import Candidate
from dataaudit.scan.detectors.patterns.screen import _call

LETTERS = 1000
"""Of the shorter of two candidates."""
GROWTH = 2.4
FEW = 4
"""Lines a letter that are none too many."""
_RANDOM = random.Random(17)
TILES = {
    "zeros": "0",
    "sevens": "7",
    "small letters": "a",
    "capitals": "A",
    "points": ".",
    "blanks": " ",
    "signs": "=",
    "labels": "a.",
    "addresses": "a@",
    "groups": "2a:",
    "keys": "".join(_RANDOM.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", k=500)),
    "hexadecimal": "".join(_RANDOM.choices("0123456789abcdef", k=500)),
    "web token": "eyJhbGciOiJIUzI1NiJ9.",
    "armour": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n" + ("lQ" + "A" * 62 + "\n") * 7,
    "quotes": '-----BEGIN RSA PRIVATE KEY-----\n"' + " " * 400 + "x\n",
}
REGISTRY = shipped_patterns()
CHECKS = {
    **{name: lambda given, check=check: _call(check, given) for name, check in REGISTRY.validators.items()},
    **{name: lambda given, check=check: _call(check, given) for name, check in REGISTRY.reserved.items()},
    **{f"label of {name}": lambda given, check=check: _call(check, given) for name, check in REGISTRY.labels.items()},
}
"""All that the registry holds, so what is added is here."""


def lines_of(check, text):
    around = dict.fromkeys(("body", "user", "suffix", "name", "gap"), text)
    candidate = Candidate(text=text, before="key = ", after=" ", context=True, groups=around)
    with Lines() as lines:
        check(candidate)
    return lines.count


@pytest.mark.parametrize("name", CHECKS)
def test_lines_of_a_check_grow_with_the_candidate(name):
    for said, tile in TILES.items():
        text = (tile * (2 * LETTERS // len(tile) + 1))[: 2 * LETTERS]
        CHECKS[name](Candidate(text=text, before="", after="", context=True))  # what is imported once
        few, many = lines_of(CHECKS[name], text[:LETTERS]), lines_of(CHECKS[name], text)
        assert many <= max(FEW * len(text), GROWTH * few), said


def test_the_count_tells_what_grows_with_the_square():
    def slow(candidate):
        return sum(1 for left in candidate.text for right in candidate.text if left != right)

    assert lines_of(slow, "a" * 200) > GROWTH * lines_of(slow, "a" * 100)
