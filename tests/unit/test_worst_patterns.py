"""No regular expression takes steps that grow faster than the text it sees, or the text has a bound that is stated.

Nobody lists patterns here: they are found in the product, and what is worst for each is made of its own parts.
"""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples, sample
from product_patterns import Found, patterns_of_modules
from pumped import grown, pumps
from steps import spans_of, steps_of

from dataaudit.scan.detectors.pii.contacts import MAX_LOCAL

LETTERS = 150
"""Of the smaller of two texts; the other has twice as many."""
GROWTH = 2.4
FEW = 20
"""Steps a letter that are none too many, however they grew."""
LIMIT = 400_000


def worst(found, letters=LETTERS):
    """Return the most steps a letter, and whether a text is among them whose steps grow faster than it does."""
    pattern = found.pattern
    written = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    most = 0
    for text in pumps(written, pattern.flags & ~re.UNICODE, longest=letters):
        for less, more in zip(grown(text, letters), grown(text, 2 * letters), strict=True):
            few, many = (steps_of(pattern, one, at_start=found.at_start, limit=LIMIT) for one in (less, more))
            most = max(most, many / len(more))
            if many > FEW * len(more) and many / few > GROWTH * len(more) / len(less) / 2:
                return most, True
    return most, False


SHORT = {
    "scan.detectors.pii.contacts._ID_BEFORE": 64,
    "scan.detectors.pii.contacts._ID_PART": MAX_LOCAL,
    "scan.detectors.pii.contacts._LOGIN": 64,
    **{f"scan.detectors.pii.labels.{name}": 72 for name in ("_KEYED", "_BIRTH", "_LICENCE", "_PASSPORT", "_ACCOUNT")},
    "scan.detectors.secrets.assigned._HEAD": 1024,
    "scan.detectors.secrets.assigned._PUBLIC": 1100,
    "scan.detectors.secrets.validators._TEMPLATE": 120,
    "scan.detectors.secrets.validators._PASSWORD_COMMAND": 200,
}
"""Patterns that take more than proportional time, and letters that they are given at most: names and what stands before
them are cut from a window, values from rules and by ``is_placeholder``; the parts of an address by ``email``."""
SHORT_STEPS = 1_500_000
"""Of the worst text of that length."""


@pytest.mark.tables
def test_steps_of_patterns_in_modules_grow_with_the_text():
    """Whoever adds one that does not makes it so, or says here how short its texts are."""
    assert {name for name, found in patterns_of_modules().items() if worst(found)[1]} == set(SHORT)


@pytest.mark.tables
@pytest.mark.parametrize("name", sample(SHORT, 3))
def test_what_grows_faster_is_given_short_texts(name):
    found = patterns_of_modules()[name]
    pattern, letters = found.pattern, SHORT[name]
    texts = [text for pump in pumps(pattern.pattern, 0, longest=letters) for text in grown(pump, letters)]
    assert max(steps_of(pattern, text[:letters], limit=2 * SHORT_STEPS) for text in texts) <= SHORT_STEPS


@pytest.mark.parametrize(
    ("regex", "grows"),
    [
        (r"\s+$", True),
        (r"\s++$", True),
        (r'"\s*[+.]*\s*$', True),
        (r'"\s*+[+.]*+\s*+$', False),
        ("a+b", True),
        ("ab", False),
    ],
)
def test_the_count_tells_slow_from_fast(regex, grows):
    assert worst(Found(re.compile(regex), at_start=False))[1] is grows


@given(
    st.sampled_from(
        [
            r"(a|ab)(c|bcd)*", r"a{1,3}?b*", r"(?:ab?)++b", r"(?<!a)b\b", r"(?i)A[^b]{0,2}$", r"(.)\1+",
            r"^a|b(?=c)", r"(?>a+)b",
        ]
    ).map(re.compile),
    st.text("abcd \n", max_size=12),
)  # fmt: skip
@settings(max_examples=examples(400), deadline=None)
def test_counted_steps_find_what_re_finds(pattern, text):
    """Empty matches beside others aside, of which `re` tells more."""
    expected = [match.span() for match in pattern.finditer(text) if match.end() > match.start()]
    assert [span for span in spans_of(pattern, text) if span[0] < span[1]] == expected
