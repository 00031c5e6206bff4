"""Held-out documents in training documents, against sets of words."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from protected_made import match, matcher, numbered, part_of
from reference import overlap as slow

from dataaudit.scan.corpus.protected.ngram_index import (
    EDITED,
    GRAM,
    GRAM_WORDS,
    SPAN,
    SPAN_WORDS,
    WHOLE,
    index_held_out,
)

WORDS = numbered("w", 90)
PIECES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 80)).map(lambda cut: WORDS[cut[0] : sum(cut)]), max_size=3
)
DOCUMENTS = st.lists(PIECES.map(lambda pieces: [word for piece in pieces for word in piece]), max_size=4)


def entries_of(grams, document):
    """Return the entries of a held-out document."""
    return set(grams.entries[grams.offsets[document] : grams.offsets[document + 1]].tolist())


@given(held_out=DOCUMENTS, training=DOCUMENTS)
@settings(max_examples=examples(50))
def test_entries_are_the_grams_that_a_document_holds(held_out, training):
    """For every training document: how many 13-grams and 50-grams of every held-out one it holds."""
    found = matcher([" ".join(words) for words in held_out])
    rows = match(found, [" ".join(words) for words in training]).entries
    held = found.index.held_out
    for number, words in enumerate(training):
        for kind, grams, length in ((GRAM, held.grams, GRAM_WORDS), (SPAN, held.spans, SPAN_WORDS)):
            seen = set(rows[(rows[:, 0] == kind) & (rows[:, 1] == number), 2].tolist())
            common = [len(seen & entries_of(grams, document)) for document in range(len(held_out))]
            assert common == [slow.seen_grams(own, [words], length)[0] for own in held_out]


@given(held_out=DOCUMENTS, training=DOCUMENTS)
@settings(max_examples=examples(50))
def test_spans_name_copied_words(held_out, training):
    """Every span is a stretch whose 50-grams the held-out document holds; there is one where sets have one."""
    found = matcher([" ".join(words) for words in held_out])
    texts = [" ".join(words) for words in training]
    rows = match(found, texts).held_out
    for rule, document, owner, start, end, common, of, crowded, first, length in rows.tolist():
        stretch = texts[document][start:end].split()
        if rule == SPAN:
            assert set(slow.grams(stretch, SPAN_WORDS)) <= set(slow.grams(held_out[owner], SPAN_WORDS))
            assert (len(stretch), of, crowded) == (common, len(held_out[owner]), 0)
            assert (held_out[owner][first : first + length], length) == (stretch, common)
        elif rule == GRAM:
            assert (common, of) == slow.seen_grams(held_out[owner], [training[document]], GRAM_WORDS)
            assert 10 * common >= of
            shared = set(slow.grams(training[document], GRAM_WORDS))
            places = [place for place, gram in enumerate(slow.grams(held_out[owner], GRAM_WORDS)) if gram in shared]
            assert min(places) == first
            assert first + length - 1 <= max(places)
    for document, words in enumerate(training):
        for owner, own in enumerate(held_out):
            mine = rows[(rows[:, 0] == SPAN) & (rows[:, 1] == document) & (rows[:, 2] == owner)]
            assert (len(mine) > 0) == (slow.covered_words(own, [words], SPAN_WORDS) > 0)


def test_a_short_document_is_found_as_a_whole():
    """Fewer than 13 words leak when a training document has exactly these words."""
    found = matcher(["Only four words here.", "", "one"])
    rows = match(found, ["only FOUR words, here", "only four words here too", "words here"])
    assert rows.entries.tolist() == [[WHOLE, 0, rows.entries[0, 2]]]
    assert rows.held_out.tolist() == [[WHOLE, 0, 0, 0, 21, 4, 4, 0, rows.entries[0, 2], 0]]


def test_many_owners_are_counted_and_four_are_named():
    """A gram of six held-out documents names the first four, and says that there are more."""
    text = " ".join(WORDS[:60])
    rows = match(matcher([text] * 6), [text]).held_out
    assert sorted(set(rows[rows[:, 0] == SPAN, 2].tolist())) == [0, 1, 2, 3]
    assert (rows[rows[:, 0] != EDITED, 7] == 1).all()


def test_over_the_limit_documents_are_sampled_by_their_keys():
    """Half, a quarter, ... of the documents are taken until their grams fit, whatever the cut into parts."""
    texts = [" ".join(numbered(f"d{'abcdefghij'[index]}", 30)) for index in range(8)]
    keys = [0, 1, 2, 3, 4, 5, 6, 8]
    whole = index_held_out([part_of(texts, keys=keys)], 60)
    cut = index_held_out([part_of(texts[:3], keys=keys[:3]), part_of(texts[3:], keys=keys[3:])], 60)
    assert (whole.sample_bits, whole.rows.tolist()) == (2, [0, 4, 7])
    assert cut.sample_bits == 2
    assert np.array_equal(cut.grams.table.keys, whole.grams.table.keys)
    assert index_held_out([part_of(texts, keys=keys)], 10**6).sample_bits == 0
