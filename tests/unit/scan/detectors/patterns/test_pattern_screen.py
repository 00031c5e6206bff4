"""The pattern screen and the folding of texts, against plain regular expressions."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from patterns_made import batch_of, listed, plainly, registry_of
from reference.patterns import _HYPHENS, _SCRIPTS, _SPACES, _with_plain_spaces

from dataaudit.scan.detectors.patterns import registry as database
from dataaudit.scan.detectors.patterns import screen
from dataaudit.scan.detectors.patterns.entity import Tier
from dataaudit.scan.detectors.patterns.screen import MAX_CANDIDATES, Finding, Folded, PatternScreen, keyed_digest

REGISTRY = registry_of()
SCREEN = PatternScreen(registry=REGISTRY)
PIECES = st.sampled_from(
    [
        "1234-5678", "1234-5678-9012", "3333-1114", "0000-0002", "#1234", "##77", "a.b@cc.de", "x@y.zz@q.rst",
        "ticket ", "Fall", "Fallnummer ", "tickets ", "票号", "Numéro de billet: ", "numero_de_billet", "code: Ab12",
        "CODE=xyz", "example ", " ", "\n", "é", "-", "1", "9", "a", "語", "\U0001f600", "." * 30, "word " * 14,
    ]
)  # fmt: skip
TEXTS = st.lists(st.lists(PIECES, max_size=12).map("".join), min_size=1, max_size=4)


def find(texts, **more):
    return SCREEN.find(*batch_of(texts), **more)


@settings(max_examples=examples(50), deadline=None)
@given(TEXTS)
def test_the_screen_finds_what_plain_regular_expressions_find(texts):
    assert listed(find(texts)) == plainly(REGISTRY, texts)


@settings(max_examples=examples(25), deadline=None)
@given(TEXTS)
def test_a_document_is_judged_alone_whatever_batch_it_is_in(texts):
    together = listed(find(texts))
    assert together == [listed(find([text]))[0] for text in texts]


def test_places_are_bytes_of_the_utf8():
    batch = find(["", "é語 a.b@cc.de"])
    assert batch.documents.tolist() == [1]
    assert (batch.starts.tolist(), batch.ends.tolist()) == ([6], [15])


def test_evidence_and_context_decide_the_tier():
    batch = find(["1234-5678", "ticket 1234-5678", "3333-1115", "#123", "Fall #123", "a@bb.cc"])
    got = list(zip(batch.documents.tolist(), [batch.entities[code] for code in batch.codes], batch.tiers, strict=True))
    assert got == [
        (1, "TICKET", Tier.CONTEXTUAL),
        (2, "STRONG", Tier.VALIDATED),
        (4, "TICKET", Tier.CONTEXTUAL),
        (5, "MAIL", Tier.PATTERN),
    ]


def test_scores_follow_the_tier():
    batch = find(["ticket 1234-5678 3333-1115 a@bb.cc"])
    np.testing.assert_array_equal(batch.scores, np.float32([0.7, 0.95, 0.3]))


def test_of_two_findings_at_one_place_the_surer_stays():
    batch = find(["ticket 3333-1114"])
    assert [batch.entities[code] for code in batch.codes] == ["STRONG"]


def test_the_group_named_value_is_what_is_found():
    batch = find(["the code: Ab12."])
    assert (batch.starts.tolist(), batch.ends.tolist()) == ([10], [14])


def test_reserved_values_are_found_and_marked():
    batch = find(["ticket 0000-0002, ticket 1234-5678"])
    assert batch.reserved.tolist() == [True, False]


def test_a_key_gives_a_digest_of_the_normal_form():
    key = b"k" * 32
    batch = find(["ticket 1234-5678 A@b.cd", "a@bb.cc", "Fall 1234-5678"], key=key)
    assert batch.keyed is not None
    first, mail, second = (bytes(row) for row in batch.keyed)
    assert first == second == keyed_digest(key, "TICKET", b"12345678", "digits")
    assert mail == keyed_digest(key, "MAIL", b"a@bb.cc", "text")


def test_no_document_and_empty_documents_have_no_findings():
    for texts in ([], [""], ["", ""]):
        batch = find(texts, key=b"k")
        assert batch.documents.size == 0
        assert batch.truncated.tolist() == [False] * len(texts)
        assert batch.keyed is not None
        assert batch.keyed.shape == (0, 16)


@pytest.mark.judges
def test_a_finding_across_the_edge_of_a_block_is_found_once():
    for shift in (1, 5, 9, 20):
        text = " " * (65536 - shift) + "ticket 1234-5678 a.b@cc.de"
        assert listed(find([text])) == plainly(REGISTRY, [text])


def test_a_block_with_too_many_hits_is_not_looked_at_and_said_so(monkeypatch):
    monkeypatch.setattr(database, "MAX_BLOCK_HITS", 16 * 1024)
    dense = "#1234567" * 8192
    batch = find([dense + " " * 8192 + "ticket 1234-5678", "ticket 1234-5678"])
    assert batch.truncated.tolist() == [True, False]
    assert batch.documents.tolist() == [0, 1]


def test_candidates_beyond_the_limit_are_not_looked_at_and_said_so():
    text = "a@bb.cc " * MAX_CANDIDATES
    batch = find([text])
    assert batch.truncated.tolist() == [True]
    assert batch.documents.size <= MAX_CANDIDATES
    assert batch.documents.size >= MAX_CANDIDATES // 2


def test_no_flood_of_other_findings_hides_one(monkeypatch):
    """Each rule has candidates of its own, on either side of what another rule finds."""
    monkeypatch.setattr(screen, "MAX_CANDIDATES", 100)
    tickets = "ticket 1234-5678 " * 50
    for text in ("a@bb.cc " * 500 + tickets, tickets + "a@bb.cc " * 500, ("a@bb.cc " * 10 + "ticket 1234-5678 ") * 50):
        batch = find([text])
        names = np.array(batch.entities)[batch.codes].tolist()
        assert names.count("TICKET") == 50
        assert 0 < names.count("MAIL") <= 100
        assert batch.truncated.tolist() == [True]


def test_a_prefilter_that_is_full_leaves_the_others_to_search_on(monkeypatch):
    """Beyond the hits of a document, the frequent kinds keep their first ones; where all are frequent, it ends."""
    monkeypatch.setattr(database, "MAX_DOCUMENT_HITS", 4000)
    monkeypatch.setattr(database, "_MOST_OF_ONE", 500)
    batch = find(["a@bb.cc " * 50_000 + "ticket 1234-5678"])
    names = np.array(batch.entities)[batch.codes].tolist()
    assert names.count("TICKET") == 1
    assert 0 < names.count("MAIL") <= 500
    assert batch.truncated.tolist() == [True]
    monkeypatch.setattr(database, "_MOST_OF_ONE", 100_000)
    batch = find(["a@bb.cc " * 50_000 + "ticket 1234-5678"])
    assert "TICKET" not in np.array(batch.entities)[batch.codes].tolist()
    assert batch.truncated.tolist() == [True]


PLACES = st.tuples(st.integers(0, 40), st.integers(1, 9), st.integers(0, 2), st.integers(0, 3))


@given(st.lists(PLACES, max_size=30))
def test_overlaps_are_decided_as_if_all_findings_met_in_one_place(places):
    """Findings are decided where they meet; all against all gives the same."""
    found = [
        Finding(start=start, end=start + size, code=code, rule=rule, tier=code, score=0.5, reserved=False)
        for rule, (start, size, code, _) in enumerate(places)
    ]
    kept = []
    for one in sorted(found, key=lambda f: (f.tier, f.start - f.end, f.start, -f.score, f.code, f.rule)):
        if all(one.end <= other.start or other.end <= one.start for other in kept):
            kept.append(one)
    assert screen.without_overlaps(found) == sorted(kept, key=lambda f: f.start)


def test_no_representation_shows_a_candidate():
    seen = []
    registry = registry_of()
    registry = type(registry)(
        entities=registry.entities,
        validators={**registry.validators, "even": lambda one: seen.append(repr(one)) or 2},
        reserved=registry.reserved,
        digest="other",
    )
    PatternScreen(registry=registry).find(*batch_of(["ticket 1234-5678"]))
    assert seen
    assert not any("1234" in re.sub("0x[0-9a-f]+", "", text) for text in seen), "addresses have any digits"


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
def test_signs_are_folded_as_the_reference_folds_them_beside_every_letter(sign):
    beside = [*"09)(=a.@ ", "\u0669", "\u3042"]
    for text in (f"{before}{sign}{behind}{sign}{before}".encode() for before in beside for behind in beside):
        folded = Folded(text)
        plain, places = _with_plain_spaces(text)
        assert folded.text == plain
        assert [folded.written(place) for place in range(len(plain) + 1)] == places
