"""Joining what training documents hold, and the numbers that come of it, against plain counting."""

from __future__ import annotations

import os
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from twins import overlap as slow

from dataaudit.atomic import DamagedFileError
from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.protected.held_out import HeldOutPart, index_held_out
from dataaudit.corpus.protected.index import ProtectedIndex
from dataaudit.corpus.protected.items import index_items
from dataaudit.corpus.protected.matching import Matcher
from dataaudit.kernels.words import split_words
from dataaudit.link.joins import LINK_FILES
from dataaudit.link.keyed import write_keyed
from dataaudit.metrics.contamination.records import SetFacts, contamination
from dataaudit.metrics.overlap.joins import link_grams, link_matches
from dataaudit.metrics.overlap.leakage import overlap
from dataaudit.metrics.overlap.stage import GRAM_ROWS, MATCH_ROWS, Overlap

LETTERS = "abcdefghij"
WORDS = ["w" + "".join(LETTERS[int(digit)] for digit in str(number)) for number in range(80)]
HELD_OUT = [WORDS, WORDS[:30], WORDS[40:] + WORDS[:20], ["only", "three", "words"], []]
ITEMS = [(" ".join(WORDS[5:25]), [" ".join(WORDS[30:33])]), ("an item that nobody has " * 4 + " ".join(WORDS[60:]), [])]
PIECES = st.lists(
    st.tuples(st.integers(0, 70), st.integers(1, 60)).map(lambda cut: WORDS[cut[0] : sum(cut)]), max_size=3
)
JOINED = PIECES.map(lambda pieces: [word for piece in pieces for word in piece])
DOCUMENTS = st.lists(st.tuples(JOINED | st.sampled_from(HELD_OUT), st.sampled_from(["a", "b"])), max_size=6)


@cache
def matcher():
    """Return what looks for the held-out documents and items of this page."""
    words = words_of([" ".join(document) for document in HELD_OUT])
    rows = np.arange(len(HELD_OUT))
    part = HeldOutPart(shard=0, rows=rows, keys=rows.astype(np.uint64), words=words.hashes, offsets=words.offsets)
    return Matcher(ProtectedIndex(held_out=index_held_out([part], 10**6), items=index_items([ITEMS])))


def words_of(texts):
    """Return the words of texts."""
    values, bounds = buffers(texts)
    return split_words(values, bounds)


def buffers(texts):
    """Return the UTF-8 of texts."""
    encoded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(encoded) or b" ", dtype=np.uint8), np.cumsum([0, *map(len, encoded)]).astype(np.int64)


def emitted(documents, first_row):
    """Return what the stage emits of a batch."""
    texts = [" ".join(words) for words, _ in documents]
    names = tuple(dict.fromkeys(source for _, source in documents))
    values, bounds = buffers(texts)
    batch = DocBatch(
        texts=pa.array(texts, pa.large_string()),
        rows=first_row + np.arange(len(texts)),
        source_codes=np.array([names.index(source) for _, source in documents], dtype=np.int32),
        source_names=names,
        annotations={"matches": matcher().match(split_words(values, bounds), values, bounds)},
    )
    return Overlap().emit(batch)


def join(folder, shards, *, cuts=(), parts=(0, 256), max_rows=1_000):
    """Emit the shards' documents, cut into batches, and join them."""
    files = {GRAM_ROWS: [], MATCH_ROWS: []}
    for number, documents in enumerate(shards):
        bounds = sorted({0, len(documents), *(min(cut, len(documents)) for cut in cuts)})
        pieces = [emitted(documents[start:stop], start) for start, stop in pairwise(bounds)]
        for name, listed in files.items():
            path = folder / f"{number}.{name}"
            write_keyed(path, [piece[name] for piece in pieces], Overlap.emits[name])
            listed.append((os.fsencode(path), number, 0, 0))
    grams, matches = (
        pa.table([list(column) for column in zip(*listed, strict=True)], names=LINK_FILES.names).cast(LINK_FILES)
        for listed in files.values()
    )
    seen, counts, rows = [], [], []
    for start, stop in pairwise(parts):
        seen.append(link_grams(grams, start, stop).tables["seen"])
        joined = link_matches(matches, start, stop, max_rows=max_rows).tables
        counts.append(joined["counts"])
        rows.append(joined["rows"])
    return tuple(pa.concat_tables(tables) for tables in (seen, counts, rows))


def values(records, **scope):
    """Return the values of the records of a scope, by stat."""
    return {record.stat: record.value for record in records if record.scope.as_dict() == scope}


@given(shards=st.lists(DOCUMENTS, min_size=1, max_size=3))
@settings(max_examples=examples(40))
def test_overlap_is_what_sets_of_words_say(shards, tmp_path_factory):
    """Leaked documents and covered words, in all and by source, whichever shard holds the grams."""
    seen, _, _ = join(tmp_path_factory.mktemp("rows"), shards)
    held = matcher().index.held_out
    split_of = np.zeros(len(HELD_OUT), dtype=np.int64)
    records = overlap(held, ["val"], split_of, seen, common_above=100, version="1")
    training = [document for shard in shards for document in shard]
    for source in (None, "a", "b"):
        own = [words for words, name in training if source in (None, name)]
        leaked, covered = 0, 0
        for words in HELD_OUT:
            found, of = slow.seen_grams(words, own, 13)
            leaked += 2 * found >= of > 0 or (0 < len(words) < 13 and words in own)
            covered += slow.covered_words(words, own, 50)
        scope = {"set": "val"} if source is None else {"source": source, "set": "val"}
        found = values(records, **scope)
        if source is not None and not found:
            assert (leaked, covered) == (0, 0)
            continue
        total = sum(map(len, HELD_OUT))
        assert found["ngram"] == pytest.approx(leaked / 4, rel=1e-11)
        assert found["span"] == pytest.approx(covered / total, rel=1e-11)


@given(shards=st.lists(DOCUMENTS, min_size=1, max_size=3), cuts=st.lists(st.integers(0, 6), max_size=3))
@settings(max_examples=examples(30))
def test_cuts_and_partitions_change_nothing(shards, cuts, tmp_path_factory):
    """Any batches, any partitions of the keys: the same grams, counts and rows."""

    def ordered(tables):
        names = [[name for name in table.column_names if name != "score"] for table in tables]
        return [
            table.sort_by([(name, "ascending") for name in own]).to_pylist()
            for table, own in zip(tables, names, strict=True)
        ]

    whole = ordered(join(tmp_path_factory.mktemp("whole"), shards))
    assert ordered(join(tmp_path_factory.mktemp("cut"), shards, cuts=cuts, parts=(0, 64, 100, 256))) == whole


def test_common_grams_are_told_apart(tmp_path):
    """A text in more training documents than the limit counts in `ngram`, not in `ngram_without_common`."""
    seen, _, _ = join(tmp_path, [[(WORDS[:30], "a")] * 3])
    held = matcher().index.held_out
    records = overlap(held, ["val"], np.zeros(len(HELD_OUT), dtype=np.int64), seen, common_above=2, version="1")
    found = values(records, set="val")
    assert (found["ngram"], found["ngram_without_common"], found["common_grams"]) == (0.25, 0.0, 18.0)
    assert found["too_short"] == found["no_words"] == 1


def test_documents_of_unread_shards_are_in_no_number(tmp_path):
    """A held-out shard that was quarantined after it was indexed does not count."""
    seen, _, _ = join(tmp_path, [[(WORDS, "a")]])
    held = matcher().index.held_out
    records = overlap(held, ["val"], np.array([-1, 0, 0, 0, 0]), seen, common_above=100, version="1")
    assert values(records, set="val")["documents"] == 4


def test_items_are_counted_by_part_and_tier(tmp_path):
    """Question word for word in one document, similar in another; the answer beside it."""
    exact, edited = WORDS[5:25], [*WORDS[5:10], "another", *WORDS[11:25]]
    _, counts, rows = join(tmp_path, [[([*exact, "and", *WORDS[30:33]], "a")], [(edited, "b"), (edited, "b")]])
    items = matcher().index.items
    facts = [SetFacts(name="set", ids=["one", "two"], lost={"invalid_json": 2})]
    records = contamination(items, facts, counts, common_above=1, version="1")
    assert values(records, set="set", entity="question", rule="verbatim") == {"rate": 0.5, "rate_without_common": 0.0}
    assert values(records, set="set", entity="both", rule="verbatim")["rate"] == 1.0
    assert values(records, set="set", entity="question")["common"] == 1
    assert values(records, source="b", set="set", entity="question", rule="verbatim") == {"rate": 0.0}
    assert values(records, source="b", set="set", entity="question", rule="similar") == {"rate": 0.5}
    assert values(records, set="set") == {"items": 2, "repeated": 0, "lost": 2, "matches": 5}
    question = [row for row in rows.to_pylist() if row["kind"] == 0 and row["part"] == 0]
    assert [(row["shard"], row["row"], row["tier"], row["common"], row["of"]) for row in question] == [
        (0, 0, 0, 20, 20),
        (1, 0, 1, 19, 20),
        (1, 1, 1, 19, 20),
    ]


def test_rows_are_listed_up_to_a_limit_and_counted_all(tmp_path):
    """The first in the manifest's order."""
    shards = [[(WORDS[5:25], "a")] * 4, [(WORDS[5:25], "a")]]
    _, counts, rows = join(tmp_path, shards, max_rows=3)
    listed = [row for row in rows.to_pylist() if row["kind"] == 0]
    assert [(row["shard"], row["row"]) for row in listed] == [(0, 0), (0, 1), (0, 2)]
    assert [row["documents"] for row in counts.to_pylist() if row["kind"] == 0] == [5]


def test_all_damaged_files_are_named(tmp_path):
    """And nothing is counted."""
    files = pa.table([[b"/no/a", b"/no/b"], [0, 1], [0, 0], [0, 0]], names=LINK_FILES.names).cast(LINK_FILES)
    with pytest.raises(DamagedFileError) as raised:
        link_grams(files, 0, 256)
    assert raised.value.paths == ("/no/a", "/no/b")
