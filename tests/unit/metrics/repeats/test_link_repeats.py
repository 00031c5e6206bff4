"""Hotspots of small corpora, against brute force over every 50 words."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lanes import examples
from repeats_made import repeats_of, spell, true_occurrences, true_windows

from dataaudit.scan.kernels.winnow import SPAN


def noise(seed, size):
    """Return random numbered words, some thousand different ones."""
    return np.random.default_rng([3, seed]).integers(0, 17_000, size).tolist()


def check(result, parts, times=None):
    """Hold a result to brute force, and to what find_hotspots promises."""
    times = times or [1] * len(parts)
    truth = true_windows(parts, result.floor, times)
    assert result.windows == truth
    union = {}
    for part, row, place in truth:
        union.setdefault((part, row), set()).update(range(place, place + SPAN))
    covered = {key: {w for start, stop in spans for w in range(start, stop)} for key, spans in result.covered.items()}
    assert covered == union
    for spot in result.hotspots:
        part, row, start, stop = spot["places"][0]
        assert spot["words"] == stop - start >= SPAN
        places = true_occurrences(parts, parts[part][row].split()[start:stop])
        assert spot["places"] == places
        assert spot["occurrences"] == sum(times[place[0]] for place in places)
        documents = {place[:2] for place in places}
        assert spot["documents"] == sum(times[part] for part, _ in documents) >= result.floor
        words = {}
        for place in places:
            words.setdefault(place[:2], set()).update(range(place[2], place[3]))
        assert spot["tokens"] == sum(len(inside) * times[key[0]] for key, inside in words.items())
    texts = {(part, row): text.split() for part, rows in enumerate(parts) for row, text in enumerate(rows)}
    windows = {place: " ".join(texts[place[:2]][place[2] : place[2] + SPAN]) for place in truth}
    first = {}
    for place in sorted(truth):
        first.setdefault(windows[place], place)
    owned = {
        windows[*spot["places"][0][:2], start]
        for spot in result.hotspots
        for start in range(spot["places"][0][2], spot["places"][0][3] - SPAN + 1)
    }
    for part, row, start in first.values():  # all 50 words share, where they stand first, a word with a hotspot
        assert any(windows.get((part, row, place)) in owned for place in range(start - SPAN + 1, start + SPAN))
    numbers = [(-spot["documents"], -spot["occurrences"]) for spot in result.hotspots]
    assert numbers == sorted(numbers)


BLOCKS = [noise(1, 61), noise(2, 50), noise(3, 120), noise(4, 8) * 9, [7] * 75, noise(5, 20), noise(6, 49)]
PIECE = st.one_of(
    st.integers(0, len(BLOCKS) - 1).map(lambda number: BLOCKS[number]),
    st.tuples(st.integers(0, 100), st.integers(1, 30)).map(lambda drawn: noise(*drawn)),
    st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(30, 80)).map(
        lambda drawn: BLOCKS[drawn[0]][drawn[1] : drawn[1] + drawn[2]]
    ),
)
TEXT = st.lists(PIECE, max_size=5).map(lambda pieces: spell([word for piece in pieces for word in piece]))
PARTS = st.lists(st.lists(TEXT, min_size=1, max_size=6), min_size=1, max_size=3)


@settings(
    max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(parts=PARTS, least=st.integers(2, 4), cuts=st.lists(st.integers(1, 255), max_size=2))
def test_what_is_found_is_what_brute_force_finds(parts, least, cuts, tmp_path_factory):
    """Windows, coverage, spans and counts, whatever repeats, nests, shifts or meets; for any cut of the keys."""
    result = repeats_of(tmp_path_factory.mktemp("r"), parts, min_documents=least, cuts=cuts)
    check(result, parts)


@settings(
    max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(parts=PARTS, times=st.lists(st.integers(1, 3), min_size=3, max_size=3))
def test_a_part_that_is_listed_twice_counts_twice(parts, times, tmp_path_factory):
    """Two shards of equal bytes share their keyed rows, and are documents of their own."""
    times = times[: len(parts)]
    result = repeats_of(tmp_path_factory.mktemp("r"), parts, min_documents=3, times=times)
    check(result, parts, times)


@settings(
    max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(parts=PARTS)
def test_the_cut_into_parts_changes_nothing(parts, tmp_path_factory):
    one = [[text for texts in parts for text in texts]]
    apart, together = (repeats_of(tmp_path_factory.mktemp("r"), given) for given in (parts, one))
    names = ("words", "documents", "occurrences", "tokens", "variants", "hash")
    assert [[spot[name] for name in names] for spot in apart.hotspots] == [
        [spot[name] for name in names] for spot in together.hotspots
    ]


def found(tmp_path, texts, least=3, **options):
    """Return (words, documents, occurrences, variants) of the hotspots of some texts, checked."""
    result = repeats_of(tmp_path, [texts], min_documents=least, **options)
    check(result, [texts])
    return [(spot["words"], spot["documents"], spot["occurrences"], spot["variants"]) for spot in result.hotspots]


def around(number, *pieces):
    """Return a text of some sequences of words with noise of its own between them."""
    parts = [noise(1000 + 10 * number, 15)]
    for place, piece in enumerate(pieces):
        parts += [piece, noise(1001 + 10 * number + place, 15)]
    return spell([word for part in parts for word in part])


def test_a_sentence_at_the_floor_is_found_and_one_below_it_is_not(tmp_path):
    plants = [noise(2000 + number, 50 + number) for number in range(12)]
    texts = [
        around(number, *(plant for at, plant in enumerate(plants) if number < 20 - at % 2)) for number in range(25)
    ]
    assert sorted(found(tmp_path, texts, 20)) == [(50 + number, 20, 20, 0) for number in range(0, 12, 2)]


def test_equal_pages_are_one_hotspot_of_their_full_length(tmp_path):
    page = noise(5, 5000)
    assert found(tmp_path, [around(number, page) for number in range(20)], 20) == [(5000, 20, 20, 0)]


def test_whole_documents_that_are_equal(tmp_path):
    """A span may begin and end with the document."""
    assert found(tmp_path, [spell(noise(5, 300))] * 4) == [(300, 4, 4, 0)]


def test_pages_of_one_template(tmp_path):
    head, foot = noise(1, 80), noise(2, 200)
    texts = [around(number, head, foot) for number in range(5)]
    assert found(tmp_path, texts) == [(80, 5, 5, 0), (200, 5, 5, 0)]


def test_a_sentence_that_stands_several_times_in_a_document(tmp_path):
    line = noise(1, 61)
    assert found(tmp_path, [around(number, *[line] * (number + 1)) for number in range(4)]) == [(61, 4, 10, 0)]


def test_two_sentences_that_meet_in_some_documents_only(tmp_path):
    """Each is a hotspot; what straddles them is a variant."""
    one, two = noise(1, 61), noise(2, 70)
    texts = [around(number, one, two) for number in range(10)] + [around(20 + number, one + two) for number in range(5)]
    assert found(tmp_path, texts) == [(61, 15, 15, 1), (70, 15, 15, 0)]


def test_a_sentence_within_a_page_that_fewer_documents_hold(tmp_path):
    """Both are hotspots: the page is more than 50 words longer, and is one span although the sentence is in it."""
    line = noise(1, 61)
    page = noise(2, 300) + line + noise(3, 300)
    texts = [around(number, page) for number in range(4)] + [around(10 + number, line) for number in range(20)]
    assert found(tmp_path, texts) == [(61, 24, 24, 0), (661, 4, 4, 0)]


def test_a_little_more_of_a_sentence_is_a_variant(tmp_path):
    """Ten words before and after that some documents share make no hotspot of their own."""
    before, line, after = noise(1, 10), noise(2, 61), noise(3, 10)
    texts = [around(number, line) for number in range(10)]
    texts += [around(20 + number, before + line) for number in range(4)]
    texts += [around(30 + number, line + after) for number in range(4)]
    assert found(tmp_path, texts) == [(61, 18, 18, 2)]


def test_quotes_from_everywhere_in_a_long_text(tmp_path):
    """No two documents share a beginning: spans follow each other without a gap of 50 words, each held by enough."""
    book = noise(1, 1500)
    starts = np.random.default_rng(5).integers(0, 1380, 400).tolist()
    texts = [spell(book)] + [around(number, book[start : start + 120]) for number, start in enumerate(starts)]
    spots = found(tmp_path, texts, 5)
    assert 12 <= len(spots) <= 30
    assert all(documents >= 5 for _, documents, _, _ in spots)


@pytest.mark.parametrize("period", [1, 7])
def test_a_line_that_repeats_for_ever(tmp_path, period):
    """Of periodic text one period is found, at all its places; memory and time stay those of other text."""
    texts = [around(number, (noise(1, period) * 3000)[:3000]) for number in range(4)]
    (spot,) = found(tmp_path, texts)
    assert spot[:2] == (SPAN + period - 1, 4)


def test_the_floor_rises_when_there_is_too_much(tmp_path):
    plants = [noise(number, 60) for number in range(6)]
    texts = [around(number, *plants[: 6 - number // 2]) for number in range(12)]
    result = repeats_of(tmp_path, [texts], min_documents=2, max_memory_bytes=3000)
    assert result.floor == 7
    assert [(spot["words"], spot["documents"]) for spot in result.hotspots] == [(60, 12), (60, 10), (60, 8)]
    check(result, [texts])


def test_nothing_repeats(tmp_path):
    assert found(tmp_path, [spell(noise(number, 200)) for number in range(5)]) == []
    (tmp_path / "none").mkdir()
    assert repeats_of(tmp_path / "none", [[]]).hotspots == []


def test_periodic_text_after_a_span_multiplies_nothing(tmp_path):
    """The window that a path is found by stands many times within it; each occurrence counts once."""
    base, period = noise(1, 150), noise(2, 10)
    texts = [base + period * 30] * 20 + [base] * 22 + [base[-49:] + period * 30] * 20
    found = repeats_of(tmp_path, [[spell(words) for words in texts]], min_documents=20)
    for hotspot in found.hotspots:
        assert len(set(hotspot["places"])) == len(hotspot["places"]) == hotspot["occurrences"]
