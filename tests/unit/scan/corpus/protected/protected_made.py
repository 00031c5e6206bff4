"""Documents of few words, and indexes of what is protected among them."""

import numpy as np
from hypothesis import strategies as st

from dataaudit.scan.corpus.protected.eval_items import index_items
from dataaudit.scan.corpus.protected.index_file import ProtectedIndex
from dataaudit.scan.corpus.protected.matching import Matcher
from dataaudit.scan.corpus.protected.ngram_index import HeldOutPart, PlainWords, index_held_out
from dataaudit.scan.kernels.markup import normal_words
from dataaudit.scan.kernels.words import split_words, without_marks

FEW = st.lists(st.sampled_from(["a", "b", "c", "7"]), max_size=40)


def buffers(texts):
    """Return the UTF-8 of some texts and their offsets."""
    encoded = [text.encode() for text in texts]
    bounds = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in encoded], out=bounds[1:])
    return np.frombuffer(b"".join(encoded) or b"\0", dtype=np.uint8)[: bounds[-1]], bounds


def words_of(texts):
    """Return the words of some texts."""
    return split_words(*buffers(texts))


def part_of(texts, shard=0, keys=None):
    """Return texts as held-out documents; by default their keys are 0, 1, ..."""
    text = buffers(texts)
    batch = split_words(*text)
    plain = PlainWords.of(without_marks(normal_words(batch, *text), batch, *text), batch)
    rows = np.arange(len(texts), dtype=np.int64)
    keys = rows.astype(np.uint64) if keys is None else np.array(keys, dtype=np.uint64)
    return HeldOutPart(shard=shard, rows=rows, keys=keys, words=batch.hashes, offsets=batch.offsets, plain=plain)


def matcher(held_out=(), sets=(), max_grams=10**6):
    """Return a matcher for held-out texts and sets of items, as (question, answer, several, or None)."""
    held = index_held_out([part_of(list(held_out))], max_grams)
    listed = [[(question, answers_of(answer)) for question, answer in items] for items in sets]
    return Matcher(ProtectedIndex(held_out=held, items=index_items(listed)))


def answers_of(answer):
    """Return an answer, several, or None as a list."""
    return [] if answer is None else [answer] if isinstance(answer, str) else answer


def match(found, texts):
    """Match texts."""
    values, bounds = buffers(texts)
    return found.match(split_words(values, bounds), values, bounds)


def numbered(prefix, count):
    """Return so many different words: aa0, aa1 as letters alone."""
    letters = "abcdefghij"
    return [prefix + "".join(letters[int(digit)] for digit in str(index)) for index in range(count)]
