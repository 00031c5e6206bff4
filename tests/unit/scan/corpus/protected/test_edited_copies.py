"""Edited copies of held-out documents: found with words changed, marks in them, lines numbered; and not by chance."""

import random
import textwrap

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import examples
from protected_made import match, matcher, numbered
from reference import overlap as slow

from dataaudit.scan.corpus.protected.ngram_index import EDITED, EDITED_WORDS, PHRASE_OWNERS, PHRASE_WORDS

WORDS = numbered("held", 400)
OTHERS = numbered("other", 2_000)
CUTS = st.tuples(st.integers(0, 150), st.integers(1, 120)).map(lambda cut: WORDS[cut[0] : sum(cut)])
JOINED = st.lists(CUTS, max_size=4).map(lambda cuts: [word for cut in cuts for word in cut])
FAR = st.tuples(JOINED, st.sampled_from([0, 3, 300, 600]), JOINED).map(
    lambda parts: [*parts[0], *OTHERS[: parts[1]], *parts[2]]
)


def found(held_out, text):
    """Return (words in common, of so many) by held-out document, for those that a text has an edited copy of."""
    rows = match(matcher(held_out), [text]).held_out
    return {row[2]: (row[5], row[6]) for row in rows[rows[:, 0] == EDITED].tolist()}


def each(every, change):
    """Return the words of the held-out document, each so many changed."""
    return [change(word) if number % every == 0 else word for number, word in enumerate(WORDS, 1)]


def lines(words, width=72):
    """Return lines of words."""
    return textwrap.wrap(" ".join(words), width)


@settings(max_examples=examples(150))
@given(st.lists(JOINED, min_size=1, max_size=4), st.lists(FAR, min_size=1, max_size=2))
@example([WORDS[:120]] * (PHRASE_OWNERS + 1), [WORDS[:120]])
@example([WORDS[:120]] * PHRASE_OWNERS, [WORDS[:120]])
@example([WORDS[:49], WORDS[50:100]], [WORDS[:100]])
@example([WORDS[:100] * 2], [[*WORDS[:60], *OTHERS[:300], *WORDS[60:100]]])
@example([WORDS[:260]], [[*OTHERS[:259], *WORDS[:130], *OTHERS[:253], *WORDS[130:260]]])
def test_copies_are_those_of_the_reference_implementation(held_out, training):
    """Which documents are found, how many words are in common and of how many: as lists and sets say."""
    rows = match(matcher([" ".join(words) for words in held_out]), [" ".join(words) for words in training]).held_out
    rows = rows[rows[:, 0] == EDITED].tolist()
    for number, words in enumerate(training):
        expected = slow.edited(words, held_out, PHRASE_WORDS, PHRASE_OWNERS, EDITED_WORDS)
        assert {row[2]: (row[5], row[6]) for row in rows if row[1] == number} == expected


FORMS = {
    "each 25th word replaced": each(25, lambda _: "other"),
    "each 10th word replaced": each(10, lambda _: "other"),
    "each 10th word left out": each(10, lambda _: ""),
    "a word more behind each 9th": each(9, lambda word: f"{word} other"),
    "NUL": each(10, lambda word: word[:2] + "\0" + word[2:]),
    "accents": each(10, lambda word: word.replace("e", "\u00e9")),
    "accents everywhere": each(1, lambda word: word.replace("e", "\u00e9").replace("l", "l\u0301")),
    "combining marks": each(10, lambda word: word[:2] + "\u0301" + word[2:]),
    "hyphens at line ends": [f"{line[:-3]}-\n{line[-3:]}" for line in lines(WORDS, 100)],
    "line numbers": [f"{number:4}  {line}\n" for number, line in enumerate(lines(WORDS, 100), 1)],
    "numbered bullets": [f"{number}. {line}\n" for number, line in enumerate(lines(WORDS, 100), 1)],
    "quoted": [f"> {line}\n" for line in lines(WORDS)],
    "bold": each(1, lambda word: f"<b>{word}</b>"),
    "tags inside words": each(1, lambda word: f"{word[:2]}<i>{word[2:]}</i>"),
    "empty tags inside words": each(1, lambda word: f"{word[:2]}<b></b>{word[2:]}"),
    "tags with attributes inside words": each(1, lambda word: f'{word[:2]}<i class="x"></i><wbr/>{word[2:]}'),
    "line breaks as tags": [f"{line}<br>\n" for line in lines(WORDS)],
    "Markdown": each(2, lambda word: f"**{word}**"),
    "Markdown links": each(8, lambda word: f"[{word}](https://example.org/a)"),
    "entities for spaces": ["&nbsp;".join(WORDS)],
    "numbered entities": each(1, lambda word: word.replace("e", "&#101;")),
    "soft hyphens": each(1, lambda word: word[:2] + "\u00ad" + word[2:]),
    "homoglyphs": each(1, lambda word: word.replace("e", "\u0435")),
    "TeX": each(1, lambda word: f"\\textbf{{{word}}}"),
    "upper case": each(1, str.upper),
    "pieces of 12 words in another order": [
        " ".join(WORDS[at : at + 12]) for at in (*range(0, 400, 24), *range(12, 400, 24))
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_copy_is_found_in_many_forms(form):
    """In the middle of a text that is no copy of anything."""
    text = " ".join([*OTHERS[:500], *FORMS[form], *OTHERS[500:1_000]])
    assert [*found([" ".join(WORDS)], text)] == [0]


def test_where_a_copy_stands_is_named():
    """Bytes from its first word to its last, and which words of the held-out document these are."""
    words = [word if place % 10 else "other" for place, word in enumerate(WORDS[:100])]
    before = " ".join(OTHERS[:20])
    rows = match(matcher([" ".join(WORDS[:200]), " ".join(WORDS[:100])]), [f"{before} {' '.join(words)}"]).held_out
    (row,) = rows[(rows[:, 0] == EDITED) & (rows[:, 2] == 1)].tolist()
    start = len(before) + 1 + len("other ")
    assert row[3:] == [start, start + len(" ".join(words[1:])), 90, 100, 0, 1, 99]


def test_markup_of_the_held_out_document_does_not_matter():
    """Which of its words are named is counted with the markup's, as its 13-grams are."""
    rows = match(matcher([f"<p class='x'>{' '.join(WORDS)}</p>"]), [" ".join(WORDS)]).held_out
    (row,) = rows[rows[:, 0] == EDITED].tolist()
    assert (row[5], row[8], row[9]) == (400, 3, 400)


def test_less_than_half_of_the_words_is_no_copy():
    """A long excerpt is a span, and a document of fewer than 50 words is not looked for."""
    assert found([" ".join(WORDS)], " ".join([*WORDS[:199], *OTHERS])) == {}
    assert found([" ".join(WORDS)], " ".join([*WORDS[:200], *OTHERS])) == {0: (200, 400)}
    assert found([" ".join(WORDS[:49])], " ".join(WORDS[:49])) == {}


def test_words_that_are_far_apart_are_no_copy():
    """Chance must not grow with the length of what is searched: words count together in a window alone."""
    pieces = [WORDS[at : at + 20] for at in range(0, 400, 20)]
    apart = [word for piece in pieces for word in [*piece, *OTHERS[:90]]]
    assert found([" ".join(WORDS)], " ".join(apart)) == {}
    assert found([" ".join(WORDS)], " ".join(word for piece in pieces[::-1] for word in piece)) == {0: (400, 400)}


def test_a_template_names_no_document():
    """What more than 16 held-out documents have is no sign of any; without it, too little is left of some."""
    template, own = WORDS[:200], [OTHERS[at : at + 60] for at in range(0, 60 * 20, 60)]
    held_out = [" ".join([*template, *words]) for words in own] + [" ".join([*template, "other"])]
    assert found(held_out, " ".join(template)) == {}
    assert found(held_out, " ".join([*template, *own[3]])) == {3: (67, 67)}


def test_words_of_one_vocabulary_are_no_copy():
    """Texts of the same few words, by chance: none has half of another in runs of eight words."""
    rng = random.Random(1)
    texts = [" ".join(rng.choices(WORDS[:30], k=300)) for _ in range(60)]
    rows = match(matcher(texts[:30]), texts[30:]).held_out
    assert not (rows[:, 0] == EDITED).any()
