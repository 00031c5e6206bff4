import re

import numpy as np
import pytest
from buffers import buffers
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples, sample, thinned
from pii_cases import FOUND, MISSED
from reference.patterns import PlainFinding, find_plainly

from dataaudit.scan.detectors.patterns.registry import compile_database, scan
from dataaudit.scan.detectors.patterns.screen import MAX_CANDIDATES, PatternScreen
from dataaudit.scan.detectors.patterns.written import full_regex
from dataaudit.scan.detectors.pii import load_pii

REGISTRY = load_pii()
SCREEN = PatternScreen(registry=REGISTRY)
PIECES = [before + value + after for _, _, _, before, value, after in FOUND] + [text for _, text in MISSED]
GLUE = [
    " ", "\n", "", ", ", "-", ".", "x", "7", "\u00e9", "\u8a9e", "phone ", "ip ", "CARD ", "Passport No. ", "\x00",
    "/",
]  # fmt: skip
LONG = b"roe@a." + (b"c" * 63 + b".") * 3 + b"d" * 56 + b".de"
RULES = [(REGISTRY.entities[code].name, index, rule) for index, (code, rule) in enumerate(REGISTRY.rules)]


def found_in(text):
    batch = SCREEN.find(*buffers([text]))
    return [
        PlainFinding(
            start=int(batch.starts[place]),
            end=int(batch.ends[place]),
            detector="pii",
            entity=batch.entities[batch.codes[place]],
            tier=int(batch.tiers[place]),
            reserved=bool(batch.reserved[place]),
        )
        for place in range(batch.documents.size)
    ]


def plainly(text):
    return find_plainly(text, REGISTRY.entities, REGISTRY.validators, REGISTRY.reserved, REGISTRY.labels)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(GLUE)), max_size=8))
def test_the_screen_finds_what_plain_regular_expressions_find(pieces):
    text = "".join(piece + glue for piece, glue in pieces).encode()
    assert found_in(text) == plainly(text)


@settings(max_examples=examples(25), deadline=None)
@given(st.text(alphabet="0123456789 -.()+/:@xXaAbBzZ\u00e9\u00df\u96fb\n", max_size=200))
def test_the_screen_agrees_with_its_twin_on_any_text(text):
    assert found_in(text.encode()) == plainly(text.encode())


@pytest.mark.judges
@pytest.mark.parametrize(("entity", "index", "rule"), RULES, ids=[f"{name}-{rule.name}" for name, _, rule in RULES])
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_the_first_pass_misses_nothing_that_a_rule_matches(entity, index, rule, data):
    flags = re.IGNORECASE if rule.ignore_case else 0
    value = data.draw(st.from_regex(re.compile(rule.regex.encode(), flags), fullmatch=True))
    if rule.anchored:  # it looks for the words, without which nothing is found
        words = REGISTRY.entities[REGISTRY.rules[index][0]].context
        word = data.draw(st.sampled_from(words)).removesuffix("*")
        value = data.draw(st.sampled_from([word, word.upper(), word.title()])).encode() + b" " + value
    text = data.draw(st.sampled_from([b"", b" ", "\u00e9 ".encode()])) + value + b" "
    assert missed(index, rule, text) == [], entity


@pytest.mark.parametrize("text", ["Moradora da \u00c1rea Rural, 12 em Goi\u00e1s.", "Escriba al Apdo. de 12 de Lima."])
def test_the_first_pass_sees_values_that_begin_beyond_ascii_or_leave_a_word_out(text):
    assert plainly(text.encode())
    assert found_in(text.encode()) == plainly(text.encode())


def missed(index, rule, text):
    """Return the matches of a rule's regex that no stretch around a match of its prefilter holds."""
    prefilters = compile_database(REGISTRY)
    spans = [
        (start - rule.reach[0], end + rule.reach[1])
        for place, start, end in scan(prefilters, text)[0]
        if index in prefilters.rules[place]
    ]
    first, last = min((start for start, _ in spans), default=0), max((end for _, end in spans), default=-1)
    return [
        match.group()
        for match in full_regex(rule).finditer(text)
        if not any(start <= match.start() and match.end() <= end for start, end in [*spans, (first, last)])
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0@-.-.AA ", None),
        (b"roe@mailhaus.-.de ", None),
        (b"roe@-mailhaus.de ", None),
        (b"roe@mailhaus.de.-x ", b"roe@mailhaus.de"),
        (b"a" * 40 + b"..." + b"%41" * 8 + b"b" * 64 + b"@mailhaus.de ", b"b" * 64 + b"@mailhaus.de"),
        (LONG + b" ", LONG),
        (b"roe@a." + (b"c" * 63 + b".") * 7 + b"d" * 24 + b" ", None),
    ],
    ids=["two hyphens", "inner", "first", "behind", "longest before", "253 bytes", "longest behind"],
)
def test_the_first_pass_and_the_regex_of_addresses_agree_on_labels_and_lengths(text, value):
    """No label of a host's name begins with a hyphen (RFC 1123, 2.1); a name of more than 253 bytes is none."""
    (index, rule), *_ = [(index, rule) for name, index, rule in RULES if name == "EMAIL_ADDRESS"]
    assert missed(index, rule, text) == []
    found = found_in(text)
    assert found == plainly(text)
    assert [text[hit.start : hit.end] for hit in found if hit.entity == "EMAIL_ADDRESS"] == ([value] if value else [])


@pytest.mark.judges
@pytest.mark.parametrize(
    "piece",
    sample(
        [
            "1234567890", "4111 1111 ", "a@a.aa ", "+1 650 253 0000\n", "1.2.3.4:", "phone 0301234567 ",
            "passport C01X00T47 ", "a:b::c:", "0" * 64,
        ],
        3,
    ),
)  # fmt: skip
def test_hostile_repetitions_are_bounded_and_said(piece):
    text = (piece * (3_000_000 // len(piece))).encode()
    batch = SCREEN.find(*buffers([text]))
    assert batch.documents.size <= 2 * MAX_CANDIDATES  # of two entities
    assert batch.truncated[0] or batch.documents.size < MAX_CANDIDATES


@pytest.mark.tables
def test_megabytes_of_digits_are_read_without_findings():
    text = np.full(thinned(64, few=4) * 1024 * 1024, ord("7"), dtype=np.uint8)
    batch = SCREEN.find(text, np.array([0, text.size], dtype=np.int64))
    assert batch.documents.size == 0


def test_places_inside_text_beyond_ascii_are_bytes():
    text = "\u00e9\u8a9e\U0001f600 roe@mailhaus.de \u96fb\u8a71+41446681800\u53f7".encode()
    found = [(hit.entity, text[hit.start : hit.end]) for hit in found_in(text)]
    assert found == [("EMAIL_ADDRESS", b"roe@mailhaus.de"), ("PHONE_NUMBER", b"+41446681800")]


def test_equal_values_in_other_spellings_have_one_keyed_digest():
    text = b"card 4929 7226 5379 7141 card 4929-7226-5379-7141 ROE@mailhaus.de roe@MAILHAUS.de"
    batch = SCREEN.find(*buffers([text]), key=b"k" * 16)
    assert batch.keyed is not None
    rows = [bytes(row) for row in batch.keyed]
    assert len(rows) == 4
    assert rows[0] == rows[1] != rows[2] == rows[3]


def test_a_list_of_numbers_is_looked_at_wholly():
    lines = "".join(f"+1 415 867 {number:04}\n" for number in range(5000))
    batch = SCREEN.find(*buffers([lines]))
    assert (batch.documents.size, batch.truncated.tolist()) == (5000, [False])
