"""Indexes the items of evaluation sets, and decides by which rule each text of them can be found.

A text of an item (its question, its answer) is

* ``indexed``: 13 words or more, of which 8 distinct words are no numbers. It is found by its seeds;
* ``short``: shorter, but 8 words or more, of which 3 distinct words are rare. It is found word for word, anywhere;
* ``context``: found word for word, with the whole of the item's other text within 200 words of it; the text of an item
  with a single text has to stand alone between line breaks;
* ``too_short``: no rule tells it from chance;
* ``boilerplate``: all its seeds are in too many different texts of the sets.

Texts are searched for in normal form (:mod:`dataaudit.scan.kernels.markup`). Options of a question are reordered,
relabelled and left out elsewhere, so the question is searched for without them where it is distinctive enough, and with
them, in their order, where it is not ("Which of these is true?").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from importlib import resources
from itertools import islice, pairwise

import numpy as np

from dataaudit.scan.corpus.segments import bounds_of, changes
from dataaudit.scan.kernels.items import SEED_WORDS, SeedIndex
from dataaudit.scan.kernels.markup import normal_words
from dataaudit.scan.kernels.ngrams import NUMBER, gram_hashes, make_table
from dataaudit.scan.kernels.normal import normalized
from dataaudit.scan.kernels.words import WordBatch, split_words

_LABEL = r"(?:\((?P<open>[A-Ha-h1-8])\)|(?P<plain>[A-Ha-h1-8])[.):\]])"
_LINE_LABEL = re.compile(rf"^[ \t>*_-]*{_LABEL}[*_]*(?:[ \t]+|$)", re.MULTILINE)
_INLINE_LABEL = re.compile(r"(?:(?<=\s)|^)\((?P<open>[A-Ha-h1-8])\)(?=\s*\S)|(?<=\s)(?P<plain>[A-H])[).:](?=\s)")
_HEAD = re.compile(r"\n[ \t*_#]*(?:answer )?(?:options|choices)[ \t*_]*+:?[ \t*_]*+\n", re.IGNORECASE)
_MOST_LINES, _MOST_LINE_WORDS = 10, 20
_CODE = re.compile(r">>>|[={}]|\"\"\"|\w\(|;$", re.MULTILINE)


def without_options(text: str) -> str:
    """Return a question without the options that follow it, if any.

    Options are labelled in order from A or 1, two at least, each at the beginning of a line or all in a line; or they
    are the short lines, two at least, behind a line that ends with a question mark.
    """
    cuts = [cut for cut in (_at_labels(text), _at_lines(text)) if cut]
    stem = text[: min(cuts)].rstrip() if cuts else text
    head = _HEAD.search(stem + "\n")
    stem = stem[: head.start()] if head else stem
    return stem if stem.strip() else text


def _at_labels(text: str) -> int:
    """Return the position of the first of some labels in order; 0 without any."""
    for pattern in (_LINE_LABEL, _INLINE_LABEL):
        labels = [(match.start(), match["open"] or match["plain"]) for match in pattern.finditer(text)]
        for (start, label), (_, following) in pairwise(labels):
            if label in "Aa1" and ord(following) == ord(label) + 1 and start and text[:start].strip():
                return start
    return 0


def _at_lines(text: str) -> int:
    """Return the end of a question's line when all lines behind it are short; 0 otherwise."""
    lines = text.rstrip().split("\n")
    for index, line in enumerate(lines):
        if not line.rstrip().endswith("?"):
            continue
        behind = [name for name in lines[index + 1 :] if name.strip()]
        is_list = 2 <= len(behind) <= _MOST_LINES and all(len(name.split()) <= _MOST_LINE_WORDS for name in behind)
        if is_list and not _CODE.search("\n".join(behind)) and not any(name.rstrip().endswith("?") for name in behind):
            return len("\n".join(lines[: index + 1]))
        return 0
    return 0


LONG_WORDS = 13
"""Words of the shortest text that is found by seeds."""
TELLING_WORDS = 8
"""Distinct words that are no numbers, which such a text needs."""
ITSELF_WORDS = 8
"""Words of a short text that is found anywhere."""
ITSELF_RARE_WORDS = 3
"""Distinct rare words of such a text, see :func:`num_rare`."""
SHORT_WORDS = 8
"""Words that the two texts of an item need together to be found by the rule for short texts."""
SHORT_TELLING_WORDS = 5
"""Distinct words of them that are no numbers."""
ALONE_WORDS = 6
"""Words that a short text needs as the only text of its item."""
SHORT_BYTES = 5
"""Bytes of letters and digits that a short text needs."""
CONTEXT_WORDS = 200
"""Words around a text within which the item's other text has to stand."""
MOST_WORDS = 1_024
"""Words at the start of a text that are found by seeds: the cost of verifying grows with their square. The rest of a
longer text decides whether it matches word for word."""
SEED_TEXTS = 64
"""Distinct texts that may share a seed; a seed of more is boilerplate and not used."""
_NEED_ONE_IN = 8
"""A text needs one in so many of its seeds, and two at least."""
_MOST_NUMBERS = 3
"""Numbers in a seed at most."""
_RARE_LETTERS = 4
"""Letters of a rare word, at least."""
PARTS = ("question", "answer")
NONE = -1


class Judged(IntEnum):
    """How a text can be found; ``ABSENT`` is a text that the item does not have."""

    ABSENT = 0
    INDEXED = 1
    SHORT = 2
    TOO_SHORT = 3
    BOILERPLATE = 4
    CONTEXT = 5


ITSELF = (Judged.INDEXED, Judged.SHORT)
"""Texts that are found anywhere."""
FOUND = (*ITSELF, Judged.CONTEXT)
"""Texts that a rule finds, some of them only beside another text."""
_FROM_WORST = (Judged.TOO_SHORT, Judged.BOILERPLATE, *reversed(FOUND))


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemIndex:
    """All distinct items of all sets, ``m``; a pair is a question with an accepted answer."""

    sets: np.ndarray
    """int32[m] number of the set."""
    numbers: np.ndarray
    """int64[m] number of the item in its set."""
    owners: np.ndarray
    """int64[p] item of each pair, ascending."""
    texts: np.ndarray
    """int64[p, 2] text of the question and of the answer, -1 for none; equal words are one text."""
    judged: np.ndarray
    """uint8[p, 2] of :class:`Judged`."""
    holder_offsets: np.ndarray
    """int64[t + 1]: the pairs with text i are ``holders[holder_offsets[i]:holder_offsets[i + 1]]``."""
    holders: np.ndarray
    """int64[h] 2 * pair + 1 when the text is its answer."""
    long: np.ndarray
    """bool[t] texts that are long enough for seeds."""
    rest_offsets: np.ndarray
    """int64[t + 1]: the words of text i behind the first 1,024 are ``rests[rest_offsets[i]:rest_offsets[i + 1]]``."""
    rests: np.ndarray
    """uint64[r] words."""
    seeds: SeedIndex

    def any_of(self, pairs: np.ndarray) -> np.ndarray:
        """Return bool[m, k]: items that have any of some pairs, bool[p, k]."""
        starts = np.searchsorted(self.owners, np.arange(len(self.sets)))
        return np.logical_or.reduceat(pairs, starts, axis=0) if len(starts) else pairs

    def best_judged(self) -> np.ndarray:
        """Return uint8[m, 2]: the best :class:`Judged` of each item's question, and of its answers."""
        best = np.full((len(self.sets), 2), Judged.ABSENT, dtype=np.uint8)
        for judged in _FROM_WORST:
            best[self.any_of(self.judged == judged)] = judged
        return best


def index_items(sets: Sequence[Sequence[tuple[str, Sequence[str]]]]) -> ItemIndex:
    """Index the items of some sets."""
    texts = [text for items in sets for question, answers in items for text in (_stem(question), *answers)]
    whole, bounds, sizes, rare, parts = _unique_texts(texts)
    words, offsets, rests, rest_offsets = _cut(whole, bounds)
    numbers, owners, pairs = _distinct(sets, parts.tolist())
    long = _long_texts(words, offsets)
    itself = (np.diff(offsets) >= ITSELF_WORDS) & (rare >= ITSELF_RARE_WORDS)
    judged, anchors = _judge(pairs, words, offsets, sizes, long, itself)
    seeds = _index_seeds(words, offsets, long, anchors)
    findable = seeds.needs >= 0
    _mark_boilerplate(judged, pairs, findable, long, offsets)
    holder_offsets, holders = _holders(pairs, len(offsets) - 1)
    return ItemIndex(
        sets=numbers[:, 0].astype(np.int32),
        numbers=numbers[:, 1].copy(),
        owners=owners,
        texts=pairs,
        judged=judged,
        holder_offsets=holder_offsets,
        holders=holders,
        long=long,
        rest_offsets=rest_offsets,
        rests=rests,
        seeds=seeds,
    )


def _distinct(
    sets: Sequence[Sequence[tuple[str, Sequence[str]]]], texts: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (set, number in it) of each distinct item, the item of each pair, and the pairs."""
    known = set[tuple[int, ...]]()
    numbers, owners, pairs = list[tuple[int, int]](), list[int](), list[tuple[int, int]]()
    following = iter(texts)
    for number, items in enumerate(sets):
        for position, (_, answers) in enumerate(items):
            question, *own = islice(following, 1 + len(answers))
            right = sorted({text for text in own if text != NONE}) or [NONE]
            if (key := (number, question, *right)) in known:
                continue
            known.add(key)
            owners += [len(numbers)] * len(right)
            pairs += [(question, text) for text in right]
            numbers.append((number, position))
    listed, owner, pair = (np.array(rows, dtype=np.int64) for rows in (numbers, owners, pairs))
    return listed.reshape(-1, 2), owner, pair.reshape(-1, 2)


def _stem(question: str) -> str:
    """Return a question without its options, unless that is not distinctive enough."""
    stem = without_options(question)
    if stem == question:
        return question
    words, _, _, rare, _ = _unique_texts([stem])
    is_long = len(words) >= LONG_WORDS and _num_telling(words) >= TELLING_WORDS
    tells = len(words) >= ITSELF_WORDS and (is_long or rare[0] >= ITSELF_RARE_WORDS)
    return stem if tells else question


def _unique_texts(texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return words, offsets, bytes of words and rare words of the distinct texts, and the number of every text."""
    encoded = [text.encode() for text in texts]
    bounds = bounds_of([len(text) for text in encoded])
    data = np.frombuffer(b"".join(encoded) or b"\0", dtype=np.uint8)[: bounds[-1]]
    batch = normal_words(split_words(data, bounds), data, bounds)
    firsts, stops = batch.offsets[:-1], batch.offsets[1:]
    known: dict[bytes, int] = {}
    numbers = np.full(len(texts), NONE, dtype=np.int64)
    chosen: list[int] = []
    for index in range(len(texts)):
        own = batch.hashes[firsts[index] : stops[index]]
        if len(own) == 0:
            continue
        number = known.setdefault(own.tobytes(), len(known))
        if number == len(chosen):
            chosen.append(index)
        numbers[index] = number
    lengths = (batch.ends - batch.starts).astype(np.int64)
    pieces = [batch.hashes[firsts[index] : stops[index]] for index in chosen]
    sizes = [int(lengths[firsts[index] : stops[index]].sum()) for index in chosen]
    rare = [_num_rare(encoded[index], batch, firsts[index], stops[index]) for index in chosen]
    offsets = bounds_of([len(piece) for piece in pieces])
    words = np.concatenate([np.zeros(0, dtype=np.uint64), *pieces])
    return words, offsets, np.array(sizes, dtype=np.int64), np.array(rare, dtype=np.int64), numbers


def _num_rare(text: bytes, batch: WordBatch, first: int, stop: int) -> int:
    """Return the number of distinct rare words in a text; 0 of a text above 1,024 words."""
    if stop - first > MOST_WORDS:
        return 0
    spans = zip(batch.starts[first:stop].tolist(), batch.ends[first:stop].tolist(), strict=True)
    return num_rare(text[start:end].decode() for start, end in spans)


def _cut(words: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the first words of every text with their offsets, then the other words with theirs."""
    lengths = np.diff(offsets)
    places = np.arange(len(words), dtype=np.int64) - np.repeat(offsets[:-1], lengths)
    first = places < MOST_WORDS
    cut = np.minimum(lengths, MOST_WORDS)
    return words[first], bounds_of(cut), words[~first], bounds_of(lengths - cut)


def _num_telling(words: np.ndarray) -> int:
    """Return the number of distinct words that are no numbers."""
    return len(np.unique(words[words & NUMBER == 0]))


def _long_texts(words: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return bool[t]: texts that are long enough for seeds."""
    telling = [_num_telling(words[start:stop]) for start, stop in pairwise(offsets.tolist())]
    return (np.diff(offsets) >= LONG_WORDS) & (np.array(telling, dtype=np.int64) >= TELLING_WORDS)


def _judge(
    pairs: np.ndarray, words: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, long: np.ndarray, itself: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return uint8[p, 2]: :class:`Judged` of every pair's texts; and bool[t]: short texts that need a seed."""
    judged = np.full(pairs.shape, Judged.ABSENT, dtype=np.uint8)
    anchors = np.zeros(len(long), dtype=bool)
    for item, own in enumerate(pairs.tolist()):
        for part, text in enumerate(own):
            other = own[1 - part]
            if text == NONE:
                judged[item, part] = Judged.ABSENT if part else Judged.TOO_SHORT  # a question without a word
            elif long[text]:
                judged[item, part] = Judged.INDEXED
            elif itself[text]:
                judged[item, part] = Judged.SHORT
                anchors[text] = True
            elif sizes[text] >= SHORT_BYTES and _has_context(text, other, words, offsets, long):
                judged[item, part] = Judged.CONTEXT
                anchors[found_by_text(text, other, long, offsets)] = True
            else:
                judged[item, part] = Judged.TOO_SHORT
    return judged, anchors & ~long


def _has_context(text: int, other: int, words: np.ndarray, offsets: np.ndarray, long: np.ndarray) -> bool:
    """Tell whether its other text, or standing alone, tells a match of a short text from chance."""
    own = words[offsets[text] : offsets[text + 1]]
    if other in (NONE, text):
        return len(own) >= ALONE_WORDS and _num_telling(own) >= SHORT_TELLING_WORDS
    if long[other]:
        return True
    both = np.concatenate([own, words[offsets[other] : offsets[other + 1]]])
    anchor = found_by_text(text, other, long, offsets)
    has_seed = int(offsets[anchor + 1] - offsets[anchor]) >= SEED_WORDS
    return has_seed and len(both) >= SHORT_WORDS and _num_telling(both) >= SHORT_TELLING_WORDS


def found_by_text(text: int, other: int, long: np.ndarray, offsets: np.ndarray) -> int:
    """Return the text of an item whose seeds find ``text``.

    Itself when it is long or the only text, the other when that is long, else the text with more words, and of equals
    the smaller number.
    """
    if long[text] or other in (NONE, text):
        return text
    if long[other]:
        return other
    return min((text, other), key=lambda index: (int(offsets[index] - offsets[index + 1]), index))


def _index_seeds(words: np.ndarray, offsets: np.ndarray, long: np.ndarray, anchors: np.ndarray) -> SeedIndex:
    """Return the seeds of the texts; the need of a text without seeds is -1."""
    hashes, bounds = gram_hashes(words, offsets, SEED_WORDS, wild_numbers=True)
    texts = np.repeat(np.arange(len(long), dtype=np.int64), np.diff(bounds))
    places = np.arange(len(hashes), dtype=np.int64) - bounds[texts]
    numbers = bounds_of(words & NUMBER)
    firsts = offsets[texts] + places
    usable = (long | anchors)[texts] & (numbers[firsts + SEED_WORDS] - numbers[firsts] <= _MOST_NUMBERS)
    hashes, texts, places = hashes[usable], texts[usable], places[usable]
    order = np.lexsort((places, texts, hashes))
    order = order[changes(hashes[order], texts[order])]  # of each seed its first place in each text
    hashes, texts, places = hashes[order], texts[order], places[order]
    _, entries, shared = np.unique(hashes, return_inverse=True, return_counts=True)
    spread = shared[entries]
    rare = spread <= SEED_TEXTS
    hashes, texts, places, spread = hashes[rare], texts[rare], places[rare], spread[rare]
    needs = _needs(texts, long)
    used = long[texts] | _rarest(texts, places, spread, len(long))
    hashes, texts, places = hashes[used], texts[used], places[used]
    keys, counts = np.unique(hashes, return_counts=True)
    return SeedIndex(
        table=make_table(keys),
        post_offsets=bounds_of(counts),
        post_texts=texts.astype(np.uint32),
        post_places=places.astype(np.uint32),
        words=words,
        offsets=offsets,
        needs=needs,
    )


def _needs(texts: np.ndarray, long: np.ndarray) -> np.ndarray:
    """Return int32[t]: seeds that each text needs."""
    have = np.bincount(texts, minlength=len(long))
    needs = np.where(long, np.maximum(np.minimum(have, 2), have // _NEED_ONE_IN), 0)
    return np.where(have == 0, -1, needs).astype(np.int32)


def _rarest(texts: np.ndarray, places: np.ndarray, spread: np.ndarray, num_texts: int) -> np.ndarray:
    """Return bool[p]: of each text the seed that the fewest texts have, the first of those."""
    chosen = np.zeros(len(texts), dtype=bool)
    order = np.lexsort((places, spread, texts))
    _, first = np.unique(texts[order], return_index=True)
    chosen[order[first]] = True
    assert int(chosen.sum()) <= num_texts
    return chosen


def _mark_boilerplate(
    judged: np.ndarray, pairs: np.ndarray, findable: np.ndarray, long: np.ndarray, offsets: np.ndarray
) -> None:
    """Mark the texts of which no seed is left, or no seed of the text that finds them."""
    for item, part in zip(*np.nonzero(np.isin(judged, FOUND)), strict=True):
        text, other = (int(index) for index in (pairs[item, part], pairs[item, 1 - part]))
        by = text if judged[item, part] == Judged.SHORT else found_by_text(text, other, long, offsets)
        if not findable[by]:
            judged[item, part] = Judged.BOILERPLATE


def _holders(pairs: np.ndarray, num_texts: int) -> tuple[np.ndarray, np.ndarray]:
    flat = pairs.reshape(-1)
    holders = np.flatnonzero(flat != NONE)
    order = holders[np.argsort(flat[holders], kind="stable")]
    counts = np.bincount(flat[holders], minlength=num_texts)
    return bounds_of(counts), order.astype(np.int64)


def num_rare(words: Iterable[str]) -> int:
    """Return the number of distinct rare words: neither short, nor numbers, nor common; whatever case and accents.

    ``common_words.txt`` is by hand: everyday words of four letters and more in English, and function words of other
    languages that are much written. A word of any other language counts as rare: there a common phrase of eight words
    could be taken for a question of a set that is the same phrase.
    """
    folded = set(map(_folded, words))
    return sum(len(word) >= _RARE_LETTERS and word not in common_words() and not word.isdecimal() for word in folded)


@cache
def common_words() -> frozenset[str]:
    """Return the words that are not rare, without accents."""
    text = resources.files("dataaudit.scan.corpus.protected").joinpath("common_words.txt").read_text(encoding="utf-8")
    return frozenset(text.partition("\n")[2].split())


@lru_cache(maxsize=1 << 16)
def _folded(word: str) -> str:
    parts = normalized("NFKD", word.casefold())
    return "".join(part for part in parts if part.isalnum())
