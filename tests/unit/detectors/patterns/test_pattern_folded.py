from hypothesis import given, settings
from hypothesis import strategies as st
from levels import examples

from dataaudit.detectors.patterns.screen import Folded

LETTERS = st.lists(st.sampled_from(["a", "\u00e9", "\u00a0", "\u202f", "\u2011", "\u2013", "\u8a9e"]), max_size=12)
PLAIN = {"\u00a0": " ", "\u202f": " ", "\u2011": "-"}


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
