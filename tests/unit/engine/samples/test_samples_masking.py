"""Windows around findings: nothing that was found can be read in them, and nothing in them steers a terminal."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.engine.samples import WHOLE_BYTES, WINDOW_BYTES, Span, masked_window

LETTERS = "\u0394\u03a3\u03a9"
"""Letters that stand in findings alone."""


def window(before, value, after, *others, whole=False):
    """Return the window around a value."""
    text = (before + value + after).encode()
    start = len(before.encode())
    return masked_window(text, Span(start, start + len(value.encode()), "SECRET"), others, whole=whole)


def test_the_finding_is_named_and_not_shown():
    """Its class stands where it was."""
    assert window("write to ", "anna", " today") == "write to <<SECRET>> today"


def test_other_findings_are_named_in_their_places():
    """Also those that the window cuts: they are masked whole."""
    text = b"b" * WINDOW_BYTES + b" otherfinding and value here"
    start = text.index(b"value")
    other = Span(text.index(b"b"), text.index(b" and"), "OTHER")
    assert masked_window(text, Span(start, start + 5, "SECRET"), [other]) == "...[OTHER] and <<SECRET>> here"


def test_findings_that_overlap_are_one_mask():
    """A finding inside of another one, or across its end, shows nothing of either."""
    assert window("x ", "value", " y", Span(0, 4, "A"), Span(5, 8, "B")) == "<<A|B|SECRET>>y"


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_characters_are_whole(place):
    """A window that would begin or end within a character takes the whole of it."""
    shown = window("\u4e2d" * 40 + "a" * place, "value", "b" * place + "\u4e2d" * 40)
    assert "\ufffd" not in shown
    assert shown.startswith("...\u4e2d")


def test_digits_and_long_tokens_are_masked_even_if_nothing_was_found():
    """What no detector knows may still be a number, a key or an address."""
    shown = window("call 0171 555 now ", "value", " key abcdEFGH1234ijklMNOP5678 to jos\u00e9@nowhere today")
    assert shown == "call **** *** now <<SECRET>> key [LONG] to [LONG] today"


def test_a_long_token_that_the_window_cuts_is_masked():
    """Cut to a few characters it would look harmless."""
    shown = window("Q" * 300 + " " * (WINDOW_BYTES - 5), "value", " " * (WINDOW_BYTES - 5) + "W" * 300)
    assert "Q" not in shown
    assert "W" not in shown


def test_a_verdict_of_a_document_shows_its_beginning():
    """The finding is the whole document, so only what else was found is masked."""
    text = b"you are anna and more " + b"word " * 100
    shown = masked_window(text, Span(0, len(text), "toxicity"), [Span(8, 12, "PERSON")], whole=True)
    assert shown.startswith("you are [PERSON] and more word")
    assert shown.endswith("...")
    assert len(shown) < WHOLE_BYTES + 10


def test_nothing_steers_a_terminal():
    """Escape sequences, line ends and bidirectional marks are shown as escapes."""
    shown = window("a\x1b[31m\r\n\u202e\u200b::error::", "value", "\x07\x9b")
    assert shown.isprintable()
    assert "\\x1b[**m" in shown


spans = st.lists(
    st.tuples(st.text("ab \u00e9\u4e2d", max_size=40), st.text(LETTERS, min_size=1, max_size=60)), min_size=1
)


@settings(max_examples=examples(50), deadline=None)
@given(spans, st.data())
def test_no_letter_of_any_finding_is_shown(pieces, data):
    """Whatever is around, however close findings are, whichever is asked for."""
    text, found = b"", []
    for before, value in pieces:
        text += before.encode()
        found.append(Span(len(text), len(text) + len(value.encode()), "KIND"))
        text += value.encode()
    asked = data.draw(st.sampled_from(found))
    shown = masked_window(text, asked, found, whole=data.draw(st.booleans()))
    assert not set(shown) & set(LETTERS)
