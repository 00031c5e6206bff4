import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from twins.patterns import _HYPHENS, _SCRIPTS, _SPACES, _with_plain_spaces

from dataaudit.scan.detectors.patterns.screen import Folded

SIGNS = [*(_SPACES + " " + _HYPHENS).split(" "), "%2b", *"\uff0b\uff08\uff09\uff20"]
SIGNS += [chr(zero + digit) for zero in _SCRIPTS for digit in (0, 9)]
PLAIN = {"\u00a0": " ", "\u202f": " ", "\u2011": "-", "\uff17": "7", "\u0667": "7", "\u06f7": "7", "\u0e57": "7"}
OTHERS = ["a", "\u00e9", "\u8a9e", "\u06cc", "\u0e01", "\uff0c"]
LETTERS = st.lists(st.sampled_from([*OTHERS, *PLAIN]), max_size=12)


@settings(max_examples=examples(50), deadline=None)
@given(LETTERS)
def test_every_place_of_the_folded_text_leads_back_to_its_letter(letters):
    folded = Folded("".join(letters).encode())
    plain = [PLAIN.get(letter, letter) for letter in letters]
    assert folded.text.decode() == "".join(plain)
    for count in range(len(letters) + 1):
        written, place = "".join(letters[:count]), "".join(plain[:count])
        assert folded.written(len(place.encode())) == len(written.encode())


def test_a_text_without_such_letters_is_not_copied():
    text = "caf\u00e9 \u2013 \u8a9e".encode()
    assert Folded(text).text is text


@pytest.mark.judges
@pytest.mark.parametrize("sign", SIGNS)
def test_signs_are_folded_as_the_twin_folds_them_beside_every_letter(sign):
    beside = [*"09)(=a.@ ", "\u0669", "\u3042"]
    for text in (f"{before}{sign}{behind}{sign}{before}".encode() for before in beside for behind in beside):
        folded = Folded(text)
        plain, places = _with_plain_spaces(text)
        assert folded.text == plain
        assert [folded.written(place) for place in range(len(plain) + 1)] == places
