"""Reference implementations of the kernels ``overlap`` and ``items``: lists and sets of words.

A document is a list of words as text; a word of digits alone is a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

_ANY = "#"
"""Stands for every number."""
Words = list[str]
Gram = tuple[str, ...]


def grams(words: Words, length: int) -> list[Gram]:
    """Return every run of so many words."""
    return [tuple(words[first : first + length]) for first in range(len(words) - length + 1)]


def seen_grams(held_out: Words, training: list[Words], length: int) -> tuple[int, int]:
    """Return how many different grams of a document are in training data, and how many it has."""
    own = set(grams(held_out, length))
    return len(own & {gram for words in training for gram in grams(words, length)}), len(own)


def places_of(words: Words, known: set[Gram], length: int) -> set[int]:
    """Return the words of a document inside some grams."""
    firsts = [first for first, gram in enumerate(grams(words, length)) if gram in known]
    return {first + word for first in firsts for word in range(length)}


def covered_words(
    held_out: Words, training: list[Words], length: int, common: set[Gram] = frozenset(), short: int = 1
) -> int:
    """Return how many words of a document lie inside copied segments, and in no common gram.

    A segment is a run of words inside grams of training data; it counts with as many such words as a gram has.
    """
    copied = places_of(held_out, {gram for words in training for gram in grams(words, length)}, length)
    own, total = copied - places_of(held_out, common, short), 0
    for first in copied - {word + 1 for word in copied}:
        last = min(word for word in range(first, len(held_out) + 1) if word not in copied)
        number = len(own & set(range(first, last)))
        total += number if number >= length else 0
    return total


def common_text(held_out: list[Words], training: list[Words], length: int, wide: int, very_wide: int) -> set[Gram]:
    """Return the grams that are common: very wide, or wide and a smaller part of some held-out document."""
    common = set[Gram]()
    for words in held_out:
        widths = common_widths(words, training, length)
        found = {gram for gram, number in widths.items() if number > wide}
        is_mostly = 2 * len(found) > len(widths)
        common |= {gram for gram in found if widths[gram] > very_wide or not is_mostly}
    return common


def common_widths(held_out: Words, training: list[Words], length: int) -> dict[Gram, int]:
    """Return how many training documents hold each gram of a document."""
    held = [set(grams(own, length)) for own in training]
    return {gram: sum(gram in own for own in held) for gram in grams(held_out, length)}


def edited(training: Words, held_out: list[Words], length: int, owners: int, least: int) -> dict[int, tuple[int, int]]:
    """Return (words in common, of so many) of the documents of which a training document has an edited copy.

    Args:
        training: Words of the training document.
        held_out: The documents that are looked for.
        length: Words of a phrase.
        owners: Documents that may have a phrase, at most.
        least: Words in common, at least; half of the document's are needed, too.
    """
    found = {}
    for number, words in enumerate(held_out):
        firsts = phrases(held_out, number, length, owners)
        half, size = max(len(words), 256), len(cover(firsts.values(), length))
        windows = [
            {firsts[gram] for gram in grams(training, length)[start : start + 2 * half] if gram in firsts}
            for start in range(0, len(training) + 1, half)
        ]
        common = max(len(cover(window, length)) for window in windows)
        if size >= least and common >= max(least, size / 2):
            found[number] = common, size
    return found


def phrases(held_out: list[Words], number: int, length: int, owners: int) -> dict[Gram, int]:
    """Return the phrases of a document that few enough documents have, and where it first has each."""
    having = Counter(gram for words in held_out for gram in set(grams(words, length)))
    firsts: dict[Gram, int] = {}
    for place, gram in enumerate(grams(held_out[number], length)):
        if having[gram] <= owners:
            firsts.setdefault(gram, place)
    return firsts


def cover(firsts: Iterable[int], length: int) -> set[int]:
    """Return the words of runs of a length."""
    return {first + word for first in firsts for word in range(length)}


def wild(words: Words) -> Words:
    """Return words with every number made the same."""
    return [_ANY if word.isdigit() else word for word in words]


def letters(words: Words) -> Words:
    """Return words without the numbers."""
    return [word for word in words if not word.isdigit()]


def distance(left: Words, right: Words) -> int:
    """Return the fewest words to replace, insert or delete that make one of the other; numbers are equal."""
    left, right = wild(left), wild(right)
    row = list(range(len(right) + 1))
    for number, word in enumerate(left, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(right, 1):
            before, row[place] = row[place], min(before + (word != other), row[place] + 1, row[place - 1] + 1)
    return row[-1]


def nearest(words: Words, text: Words) -> int:
    """Return the distance of a text to the nearest stretch of a document."""
    stretches = [words[start:end] for start in range(len(words) + 1) for end in range(start, len(words) + 1)]
    return min(distance(stretch, text) for stretch in stretches)


def usable_seeds(texts: list[Words], *, most_texts: int, most_numbers: int) -> dict[Gram, set[int]]:
    """Return the seeds of some texts with the texts that have them; not those of numbers or of too many texts."""
    found: dict[Gram, set[int]] = {}
    for number, words in enumerate(texts):
        for gram in grams(wild(words), 5):
            if gram.count(_ANY) <= most_numbers:
                found.setdefault(gram, set()).add(number)
    return {gram: having for gram, having in found.items() if len(having) <= most_texts}


def long_hits(document: Words, texts: list[Words], seeds: dict[Gram, set[int]]) -> dict[int, tuple[str, int]]:
    """Return (tier, words that differ) of every long text that a document holds.

    Args:
        document: Words of the document.
        texts: Long texts.
        seeds: Of :func:`usable_seeds`.
    """
    places: dict[int, list[int]] = {}
    for place, gram in enumerate(grams(wild(document), 5)):
        for number in seeds.get(gram, ()):
            places.setdefault(number, []).append(place)
    own = Counter(number for having in seeds.values() for number in having)
    found = {}
    for number, seen in places.items():
        hit = _best(document, texts[number], seen, max(min(own[number], 2), own[number] // 8))
        if hit is not None:
            found[number] = hit
    return found


def _best(document: Words, text: Words, seen: list[int], need: int) -> tuple[str, int] | None:
    """Return the best hit in the windows around two neighbouring stretches that hold enough seeds."""
    size = len(text)
    stretches = Counter(place // size for place in seen)
    hits: list[tuple[str, int]] = []
    for number, count in sorted(stretches.items()):
        if count + stretches[number - 1] < need:
            continue
        low = max(0, (number - 1) * size - size // 2)
        window = document[low : (number + 2) * size + size // 2]
        if tuple(text) in grams(window, size):
            return "verbatim", 0
        differing = nearest(window, text)
        if 100 * differing <= 30 * size:
            stretch = _first_nearest(window, text, differing)
            if 100 * nearest(letters(stretch), letters(text)) <= 30 * len(letters(text)):
                hits.append(("similar", differing))
    return min(hits, key=lambda hit: hit[1], default=None)


def _first_nearest(words: Words, text: Words, differing: int) -> Words:
    """Return the first stretch to end, and the longest of those, that has the least distance."""
    for end in range(len(words) + 1):
        for start in range(end + 1):
            if distance(words[start:end], text) == differing:
                return words[start:end]
    raise AssertionError("some stretch has the least distance")


def sellers(words: Words, text: Words) -> tuple[int, int, int]:
    """Return the least distance of a text to a stretch, the farthest place where one that ends first begins, its end.

    Sellers' table, column by column; each cell holds the distance and where its stretch begins.
    """
    column = [(row, 0) for row in range(len(text) + 1)]
    best = (len(text), 0, 0)
    for place, word in enumerate(wild(words)):
        fresh = [(0, place + 1)]
        for row, other in enumerate(wild(text)):
            diagonal, left, above = column[row], column[row + 1], fresh[row]
            fresh.append(
                min((diagonal[0] + (word != other), diagonal[1]), (left[0] + 1, left[1]), (above[0] + 1, above[1]))
            )
        column = fresh
        if column[-1][0] < best[0]:
            best = (*column[-1], place + 1)
    return best
