"""Batches of documents that Hypothesis draws: any text, any sources, token ids made of the text."""

from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from made_content import made_findings, made_screen

from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.protected.eval_items import index_items
from dataaudit.scan.corpus.protected.index_file import ProtectedIndex
from dataaudit.scan.corpus.protected.matching import Matcher
from dataaudit.scan.corpus.protected.ngram_index import HeldOutPart, PlainWords, index_held_out
from dataaudit.scan.corpus.segments import text_buffers
from dataaudit.scan.corpus.texts import text_digests
from dataaudit.scan.corpus.tokens import TokenBatch
from dataaudit.scan.detectors.base import LanguageBatch
from dataaudit.scan.kernels.characters import count_names
from dataaudit.scan.kernels.words import split_words

PROTECTED = " ".join(
    f"{prefix}{word}" for prefix in "abcdefgh" for word in ("one", "two", "six", "ten", "red", "sea", "ox")
)
TEXTS = st.one_of(
    st.sampled_from(["", " ", "a", "a  b", "a b", " a b ", "e\u0301", "\u00e9", "\u4e2d\u6587", "x" * 300]),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40),
    st.integers(0, 2000).map(lambda size: "w " * size),
    st.sampled_from([PROTECTED, f"before {PROTECTED} after", PROTECTED.replace("one", "another")]),
)
SOURCES = st.sampled_from(["web", "code", "(none)", "\u00fc", "books"])
DOCUMENTS = st.lists(st.tuples(TEXTS, SOURCES), max_size=12)


LANGUAGES = ("und", "de", "en", "zh")


def make_languages(documents):
    """Return a language for each document, by its text alone; a sample of them is looked at twice."""
    sizes = np.array([len(text) for text, _ in documents], dtype=np.int64)
    sampled = sizes % 3 == 0
    return LanguageBatch(
        names=LANGUAGES,
        codes=(sizes % len(LANGUAGES)).astype(np.int32),
        confidence=np.full(len(sizes), 0.5, dtype=np.float32),
        sampled=sampled,
        agreeing=sampled & (sizes % 2 == 0),
    )


def held_out_part(words):
    """Return documents as held-out ones, by their words as they are; their keys are 0, 1, ..."""
    rows = np.arange(len(words.offsets) - 1, dtype=np.int64)
    return HeldOutPart(
        shard=0,
        rows=rows,
        keys=rows.astype(np.uint64),
        words=words.hashes,
        offsets=words.offsets,
        plain=PlainWords.of(words, words),
    )


@cache
def protected():
    """Return what looks for a held-out document of 56 words, one of a single letter, and an item."""
    texts = pa.array([PROTECTED, "a"], pa.large_string())
    offsets, values = text_buffers(texts)
    part = held_out_part(split_words(values, offsets))
    return Matcher(ProtectedIndex(held_out=index_held_out([part], 10**6), items=index_items([[(PROTECTED, ["a b"])]])))


def make_batch(documents, first_row=0):
    """Return a batch of (text, source) pairs; a token is a run of up to three characters."""
    texts = pa.array([text for text, _ in documents], pa.large_string())
    names = tuple(dict.fromkeys(source for _, source in documents))
    counts = np.array([-(-len(text) // 3) for text, _ in documents], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    tokens = TokenBatch(
        offsets=offsets,
        ids=(np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)).astype(np.uint32) % 97,
        by_reference=np.array([not text.isascii() for text, _ in documents], dtype=bool),
        sampled=sum(len(text) % 2 for text, _ in documents),
        differing=0,
    )
    batch = DocBatch(
        texts=texts,
        rows=first_row + np.arange(len(documents), dtype=np.int64),
        source_codes=np.array([names.index(source) for _, source in documents], dtype=np.int32),
        source_names=names,
    )
    words = split_words(batch.byte_values(), batch.byte_offsets())
    return replace(
        batch,
        digests=text_digests(texts),
        annotations={
            "tokens": tokens,
            "languages": make_languages(documents),
            "words": words,
            "names": count_names(batch.byte_values(), batch.byte_offsets()),
            "matches": protected().match(words, batch.byte_values(), batch.byte_offsets()),
            "toxicity": made_screen([text for text, _ in documents]),
            "findings": made_findings([text for text, _ in documents]),
        },
    )
