"""Items inside documents, against lists of words."""

import numpy as np
from buffers import words_of
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from reference import overlap as slow

from dataaudit.scan.corpus.protected.eval_items import SEED_TEXTS, index_items
from dataaudit.scan.kernels.items import Finder, nearest_segment

FEW = st.lists(st.sampled_from(["a", "b", "c", "7", "8"]), max_size=9)
WORDS = [
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu",
    "xi", "omikron",
]  # fmt: skip


@given(document=FEW, text=FEW.filter(bool))
@settings(max_examples=examples(50))
def test_the_nearest_stretch_is_that_of_all_stretches(document, text):
    """The least distance, at the first end that has it, from as far before as it can begin; numbers are equal."""
    batch = words_of([document, text])
    words, own = batch.hashes[: len(document)], batch.hashes[len(document) :]
    differing, start, end = nearest_segment(words, own)
    assert differing == slow.nearest(document, text)
    if differing < len(text):
        assert document[start:end] == slow._first_nearest(document, text, differing)
    plain, _, _ = nearest_segment(words, own, letters_only=True)
    assert plain == slow.nearest(slow.letters(document), slow.letters(text))


@st.composite
def texts_and_documents(draw):
    """Some long texts, and documents in which pieces of them were edited."""
    word = st.sampled_from([*WORDS, "7", "8"])
    texts = draw(st.lists(st.permutations([*WORDS, "7"]).map(lambda words: words[:14]), min_size=1, max_size=3))
    texts = [text for text in texts if len(set(slow.letters(text))) >= 8]
    pieces = [[]]
    for text in draw(st.lists(st.sampled_from(texts), max_size=2)):
        edited = list(text)
        for _ in range(draw(st.integers(0, 4))):
            place = draw(st.integers(0, len(edited) - 1))
            edited[place : place + draw(st.integers(0, 2))] = draw(st.lists(word, max_size=2))
            edited = edited or ["alpha"]
        pieces += [draw(st.lists(word, max_size=6)), edited]
    return texts, [word for piece in [*pieces, draw(st.lists(word, max_size=6))] for word in piece]


@given(texts_and_documents())
@settings(max_examples=examples(50))
def test_long_texts_are_found_as_the_slow_twin_finds_them(drawn):
    """Tier and distance of every text in a document."""
    texts, document = drawn
    unique = [list(text) for text in dict.fromkeys(map(tuple, texts))]
    items = index_items([[(" ".join(text), ()) for text in unique]])
    batch = words_of([document])
    hits = Finder(items.seeds).find(batch.hashes, batch.offsets)
    found = {text: (("verbatim", "similar")[tier], differing) for _, text, tier, _, _, differing, _ in hits.tolist()}
    seeds = slow.usable_seeds(unique, most_texts=SEED_TEXTS, most_numbers=3)
    assert found == slow.long_hits(document, unique, seeds)
    for _, text, _, start, end, differing, _ in hits.tolist():
        assert slow.distance(document[start:end], unique[text]) == differing


def test_hits_beyond_the_room_for_them_are_found(monkeypatch):
    """A batch with more hits than there is room for is looked through again."""
    items = index_items([[(" ".join(WORDS), ())]])
    finder = Finder(items.seeds)
    finder._capacity = 2
    batch = words_of([WORDS] * 9)
    hits = finder.find(batch.hashes, batch.offsets)
    assert hits[:, 0].tolist() == list(range(9))
    assert finder.find(batch.hashes, batch.offsets).tolist() == hits.tolist()


def test_any_cut_into_batches_finds_the_same():
    """Word for word: no word differs, in a text that is too short for seeds either."""
    short = ["sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "digamma"]
    items = index_items([[(" ".join(WORDS), [" ".join(reversed(WORDS))]), (" ".join(short), ())]])
    documents = [["x", *WORDS], WORDS[:9], [*WORDS[::-1], "7"], [], WORDS, short]
    batch = words_of(documents)
    whole = Finder(items.seeds).find(batch.hashes, batch.offsets)
    finder, pieces = Finder(items.seeds), []
    for number, document in enumerate(documents):
        one = words_of([document])
        hits = finder.find(one.hashes, one.offsets)
        hits[:, 0] += number
        pieces.append(hits)
    assert np.concatenate(pieces).tolist() == whole.tolist()
    assert [(hit[0], *hit[2:]) for hit in whole.tolist()] == [
        (0, 0, 1, 16, 0, 0), (2, 0, 0, 15, 0, 0), (4, 0, 0, 15, 0, 0), (5, 0, 0, 8, 0, 0),
    ]  # fmt: skip


LONG = st.integers(60, 140).flatmap(lambda size: st.lists(st.sampled_from("abc7"), min_size=size, max_size=size))


@given(text=LONG, document=LONG, edits=st.lists(st.tuples(st.integers(0, 139), st.sampled_from("abcd8")), max_size=30))
@settings(max_examples=examples(40), deadline=None)
def test_texts_of_several_blocks_are_compared_as_the_table_of_distances_says(text, document, edits):
    """Blocks of 64 words hand on what they carry: distance, first end and farthest beginning are those of Sellers."""
    near = list(text)
    for place, word in edits:
        near[place % len(near)] = word
    document = [*document[:20], *near, *document[:20]]
    batch = words_of([document, text])
    words, own = batch.hashes[: len(document)], batch.hashes[len(document) :]
    assert nearest_segment(words, own) == slow.sellers(document, text)
