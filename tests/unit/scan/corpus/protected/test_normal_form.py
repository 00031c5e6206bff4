"""Items are found in other markup, other lookalikes, other options; numbers stay what they are."""

import html

import pytest
from protected_made import match, matcher

from dataaudit.scan.corpus.protected.eval_items import without_options

LONG = (
    "A baker's shop fills 12 trays with 1,030 rolls each, sells $x$ half of them before noon and gives 1.5 kg of the"
    " caf\u00e9's bread to a neighbour."
)
SHORT = "Which alpine river flows through the caf\u00e9 town of Ulm?"
BEFORE, AFTER = "Some page about other things entirely. " * 5, " And then it goes on with more words here. " * 5
LOOKALIKES = str.maketrans("aeopcx", "\u0430\u0435\u043e\u0440\u0441\u0445")
FORMS = {
    "homoglyphs": lambda text: text.translate(LOOKALIKES),
    "a homoglyph in two": lambda text: text.replace("o", "\u043e"),
    "entities": lambda text: html.escape(text).replace("\u00e9", "&eacute;"),
    "numbered entities": lambda text: text.replace("'", "&#39;").replace("\u00e9", "&#233;"),
    "escaped twice": lambda text: html.escape(html.escape(text)),
    "tags": lambda text: "<p>" + " ".join(f"<b class='x y'>{word}</b>" for word in text.split()) + "</p>",
    "breaks": lambda text: text.replace(" ", "<br/>"),
    "TeX": lambda text: " ".join(f"\\textbf{{{word}}}" for word in text.split()).replace("1,030", "1{,}030"),
    "TeX in a paragraph": lambda text: f"\\begin{{quote}}\\item {text}\\quad\\end{{quote}}",
    "Markdown": lambda text: " ".join(f"**{word}**" for word in text.split()),
    "links": lambda text: " ".join(f"[{word}](https://example.org/a/{n}?q=1)" for n, word in enumerate(text.split())),
    "escaped lines": lambda text: text.replace(" ", "\\n").replace("'", "\\'"),
    "escaped lines, upper case": lambda text: text.replace(" ", "\\n").upper(),
    "JSON": lambda text: text.replace("\u00e9", "\\u00e9").replace("'", "\\u0027"),
}


def tiers(text, document):
    """Return the tiers by which a text is found in a document."""
    return {("verbatim", "similar")[row[4]] for row in match(matcher(sets=[[(text, None)]]), [document]).items.tolist()}


@pytest.mark.parametrize("text", [LONG, SHORT], ids=["long", "short"])
@pytest.mark.parametrize("form", FORMS)
def test_an_item_is_verbatim_in_other_markup(form, text):
    """In a paragraph, the item plain and the page marked up, and the other way round."""
    made = FORMS[form](text)
    assert tiers(text, BEFORE + made + AFTER) == {"verbatim"}
    assert tiers(made, BEFORE + text + AFTER) == {"verbatim"}


@pytest.mark.parametrize(
    ("was", "now", "tier"),
    [
        ("1.5", "15", "similar"), ("1.5", "1.50", "similar"), ("1.5", "1,5", "similar"), ("1.5", "0.15", "similar"),
        ("1,030", "1030", "verbatim"), ("1,030", "10.30", "similar"), ("1,030", "1.030", "similar"),
        ("12", "1.2", "similar"),
    ],
)  # fmt: skip
def test_numbers_are_equal_as_they_are_read(was, now, tier):
    """A decimal point is part of a number, a comma between thousands is none."""
    assert tiers(LONG, BEFORE + LONG.replace(was, now, 1) + AFTER) == {tier}


def test_two_items_that_differ_in_a_point_are_two():
    """Each is found word for word where it stands; the other one is similar."""
    other = LONG.replace("1.5", "15")
    rows = match(matcher(sets=[[(LONG, None), (other, None)]]), [BEFORE + other + AFTER]).items.tolist()
    assert {(row[2], row[4]) for row in rows} == {(0, 1), (1, 0)}


def test_a_short_question_with_another_number_is_not_found():
    """Short texts are found word for word."""
    text = "How many liters does a 1.5 gallon aquarium canister hold?"
    assert tiers(text, BEFORE + text + AFTER) == {"verbatim"}
    assert tiers(text, BEFORE + text.replace("1.5", "15") + AFTER) == set()


@pytest.mark.parametrize(
    "listed",
    [
        "\nA) Danube\nB) Rhine\nC) Elbe\nD) Oder",
        "\n(A) Danube\n(B) Rhine\n(C) Elbe",
        "\n1. Danube\n2. Rhine\n3. Elbe",
        " (A) Danube (B) Rhine (C) Elbe",
        " A) Danube B) Rhine C) Elbe",
        "\nOptions:\n- Danube\n- Rhine\n- Elbe",
        "\nDanube\nRhine\nElbe\nOder",
    ],
)
def test_options_are_reordered_and_left_out(listed):
    """The question before them is what is found."""
    text = SHORT + listed
    assert without_options(text) == SHORT
    assert tiers(text, BEFORE + SHORT + AFTER) == {"verbatim"}
    assert tiers(text, f"{BEFORE}{SHORT}\n(a) Oder\n(b) Elbe\n(c) Rhine\n{AFTER}") == {"verbatim"}


def test_a_question_that_tells_nothing_keeps_its_options():
    """It is found with them, in their order, and not by itself."""
    stem = "Which one of these is true of it?"
    text = f"{stem}\nA) Danube water carries sediment\nB) Rhine barges anchor\nC) Elbe sandstone erodes"
    assert tiers(text, BEFORE + text + AFTER) == {"verbatim"}
    assert tiers(text, BEFORE + stem + AFTER) == set()


@pytest.mark.parametrize(
    "text",
    [
        'def is_prime(n):\n    """Is n a prime number?\n    >>> is_prime(7)\n    True\n    """',
        "A) Danube\nB) Rhine",
        "One question only?\nand a line",
        "Take a Danube boat (A) and go home.",
        "",
    ],
)
def test_what_lists_no_options_stays(text):
    """Code, a list alone, one line, one letter."""
    assert without_options(text) == text
