"""Joining what training documents hold, and the numbers that come of it, against plain counting."""

import os
from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lanes import examples
from reference import overlap as slow
from strategies import held_out_part

from dataaudit.base.files import DamagedFileError
from dataaudit.metrics.overlap.leakage import CommonText, Limits, common_text, documents_with, overlap
from dataaudit.metrics.overlap.link import SetFacts, contamination
from dataaudit.metrics.overlap.stage import (
    COPIES,
    GRAM_ROWS,
    MATCH_ROWS,
    Overlap,
    link_copies,
    link_grams,
    link_matches,
)
from dataaudit.metrics.overlap.stage import HELD_OUT as HELD_OUT_KIND
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.protected.eval_items import index_items
from dataaudit.scan.corpus.protected.index_file import ProtectedIndex
from dataaudit.scan.corpus.protected.matching import Matcher
from dataaudit.scan.corpus.protected.ngram_index import (
    EDITED,
    EDITED_WORDS,
    GRAM,
    PHRASE_OWNERS,
    PHRASE_WORDS,
    SPAN,
    WHOLE,
    index_held_out,
)
from dataaudit.scan.cross_shard.joins import LINK_FILES
from dataaudit.scan.cross_shard.keyed import write_keyed
from dataaudit.scan.kernels.words import split_words

LETTERS = "abcdefghij"
WORDS = ["w" + "".join(LETTERS[int(digit)] for digit in str(number)) for number in range(80)]
HELD_OUT = [WORDS, WORDS[:30], WORDS[40:] + WORDS[:20], ["only", "three", "words"], []]
ITEMS = [(" ".join(WORDS[5:25]), [" ".join(WORDS[30:33])]), ("an item that nobody has " * 4 + " ".join(WORDS[60:]), [])]
PIECES = st.lists(
    st.tuples(st.integers(0, 70), st.integers(1, 60)).map(lambda cut: WORDS[cut[0] : sum(cut)]), max_size=3
)
JOINED = PIECES.map(lambda pieces: [word for piece in pieces for word in piece])
ABOVE = Limits(wide=99, very_wide=99)
LIMITS = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda two: Limits(wide=min(two), very_wide=max(two)))
ENDS_IN_COMMON = [(WORDS[54:63] + WORDS[38:], "a"), (WORDS[60:78], "a"), (WORDS[62:] + WORDS[18:68], "a")]
DOCUMENTS = st.lists(st.tuples(JOINED | st.sampled_from(HELD_OUT), st.sampled_from(["a", "b"])), max_size=6)


@cache
def matcher():
    """Return what looks for the held-out documents and items of this page."""
    part = held_out_part(words_of([" ".join(document) for document in HELD_OUT]))
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


def join(folder, shards, *, cuts=(), parts=(0, 256), max_rows=1_000, limits=ABOVE):
    """Emit the shards' documents, cut into batches, and join them; return grams, counts, rows and copies."""
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
    seen = pa.concat_tables([link_grams(grams, start, stop).tables["seen"] for start, stop in pairwise(parts)])
    held_out = matcher().index.held_out
    common = CommonText.of(held_out, common_text(held_out, documents_with(held_out, seen), limits), limits.very_wide)
    counts, rows, copies = [], [], []
    for number, (start, stop) in enumerate(pairwise(parts)):
        joined = link_matches(matches, start, stop, max_rows=max_rows, common=common)
        counts.append(joined.tables["counts"])
        rows.append(joined.tables["rows"])
        path = folder / f"{number}.copies"
        write_keyed(path, [joined.keyed["copies"]], COPIES)
        copies.append((os.fsencode(path), -1, -1, 0))
    copies = pa.table([list(column) for column in zip(*copies, strict=True)], names=LINK_FILES.names).cast(LINK_FILES)
    copied = pa.concat_tables([link_copies(copies, start, stop).tables["copied"] for start, stop in pairwise(parts)])
    copied = copied.group_by(["shard", "source"]).aggregate([("held_out", "sum")])
    return seen, pa.concat_tables(counts), pa.concat_tables(rows), copied


def records_of(seen, limits, split_of=None, edited=()):
    """Return the records of one held-out split."""
    held_out = matcher().index.held_out
    documents = documents_with(held_out, seen)
    common = common_text(held_out, documents, limits)
    split_of = np.zeros(len(HELD_OUT), dtype=np.int64) if split_of is None else split_of
    marks = {"edited": np.isin(np.arange(len(HELD_OUT)), list(edited))}
    return overlap(held_out, ["val"], split_of, seen, documents, common=common, edited=marks, version="1")


def values(records, **scope):
    """Return the values of the records of a scope, by stat."""
    return {record.stat: record.value for record in records if record.scope.as_dict() == scope}


@given(shards=st.lists(DOCUMENTS, min_size=1, max_size=3), limits=LIMITS)
@settings(max_examples=examples(40))
def test_overlap_is_what_sets_of_words_say(shards, limits, tmp_path_factory):
    """Leaked documents and covered words, in all and by source, whichever shard holds the grams; common or not."""
    seen, *_ = join(tmp_path_factory.mktemp("rows"), shards)
    records = records_of(seen, limits)
    training = [document for shard in shards for document in shard]
    total = sum(map(len, HELD_OUT))
    for source in (None, "a", "b"):
        own = [words for words, name in training if source in (None, name)]
        scope = {"set": "val"} if source is None else {"source": source, "set": "val"}
        found = values(records, **scope)
        for suffix in ("", "_without_common") if source is None else ("",):
            leaked, covered = 0, 0
            for words in HELD_OUT:
                limit = (limits.wide, limits.very_wide) if suffix else (99, 99)
                common = slow.common_text(HELD_OUT, own, 13, *limit)
                counted = set(slow.grams(words, 13)) - common
                leaked += (
                    2 * len(counted & {gram for other in own for gram in slow.grams(other, 13)}) >= len(counted) > 0
                )
                leaked += 0 < len(words) < 13 and 0 < own.count(words) <= limit[1]
                covered += slow.covered_words(words, own, 50, common, 13)
            if source is not None and not found:
                assert (leaked, covered) == (0, 0)
                continue
            assert found[f"ngram{suffix}"] == pytest.approx(leaked / 4, rel=1e-11)
            assert found[f"span{suffix}"] == pytest.approx(covered / total, rel=1e-11)


@given(shards=st.lists(DOCUMENTS, min_size=1, max_size=3), cuts=st.lists(st.integers(0, 6), max_size=3))
@settings(max_examples=examples(30))
def test_cuts_and_partitions_change_nothing(shards, cuts, tmp_path_factory):
    def ordered(tables):
        names = [[name for name in table.column_names if name != "score"] for table in tables]
        return [
            table.sort_by([(name, "ascending") for name in own]).to_pylist()
            for table, own in zip(tables, names, strict=True)
        ]

    whole = ordered(join(tmp_path_factory.mktemp("whole"), shards))
    assert ordered(join(tmp_path_factory.mktemp("cut"), shards, cuts=cuts, parts=(0, 64, 100, 256))) == whole


def test_common_grams_are_told_apart(tmp_path):
    seen, *_ = join(tmp_path, [[(WORDS[:30], "a")] * 3])
    found = values(records_of(seen, Limits(wide=2, very_wide=2)), set="val")
    assert (found["ngram"], found["ngram_without_common"], found["common_grams"]) == (0.25, 0.0, 18.0)
    assert found["too_short"] == found["no_words"] == 1


def test_a_document_that_is_copied_often_is_no_notice(tmp_path):
    """What is most of the only document that holds it is common above the second limit; what others hold, too, is."""
    seen, *_ = join(tmp_path, [[(HELD_OUT[2][5:], "a")] * 3])
    found = values(records_of(seen, Limits(wide=2, very_wide=3)), set="val")
    assert (found["ngram_without_common"], found["common_grams"]) == (0.25, 31.0)


@given(shards=st.lists(DOCUMENTS, min_size=1, max_size=3), limits=LIMITS)
@example(shards=[ENDS_IN_COMMON], limits=Limits(wide=2, very_wide=2))
@settings(max_examples=examples(60))
def test_what_is_shared_without_common_text_is_what_sets_of_words_say(shards, limits, tmp_path_factory):
    """Of each match, and the copies that are left by shard and source: any texts, any limits.

    A span that ends within a common 13-gram of the held-out document has fewer words of its own.
    """
    _, _, rows, copied = join(tmp_path_factory.mktemp("rows"), shards, limits=limits, parts=(0, 90, 256))
    training = [words for shard in shards for words, _ in shard]
    copies, edited = set(), Counter(row["target"] for row in rows.to_pylist() if row["rule"] == EDITED)
    for row in rows.filter(pc.equal(rows["kind"], HELD_OUT_KIND)).to_pylist():
        owner = HELD_OUT[row["target"]]
        words = shards[row["shard"]][row["row"]][0]
        common = slow.common_text(HELD_OUT, training, 13, limits.wide, limits.very_wide)
        if row["rule"] == GRAM:
            of, here = slow.grams(owner, 13), set(slow.grams(words, 13))
            places = [place for place, gram in enumerate(of) if gram in here]
            between = set(of[min(places) : max(places) + 1])
            own = max(0, row["common"] - len(common & between)), row["of"] - len(common & set(of))
        elif row["rule"] == WHOLE:
            own = row["common"] if training.count(owner) <= limits.very_wide else 0, row["of"]
        elif row["rule"] == EDITED:
            own = own_of_edited(row, words, common)
            own = own if edited[row["target"]] <= limits.very_wide else (0, own[1])
        else:
            span = " ".join(words).encode()[row["start"] : row["end"]].decode().split()
            own = slow.covered_words(owner, [span], 50, common, 13), row["of"]
        copies |= {(row["shard"], row["row"])} if own[0] and row["rule"] != GRAM else set()
        assert (row["own"], row["own_of"]) == own
    counted = Counter((shard, shards[shard][row][1]) for shard, row in copies)
    assert {(row["shard"], row["source"]): row["held_out_sum"] for row in copied.to_pylist()} == counted


def own_of_edited(row, words, common):
    """Return what an edited copy shares outside of common text, 0 where that is too little, and of how many words."""
    owner = HELD_OUT[row["target"]]
    firsts = slow.phrases(HELD_OUT, row["target"], PHRASE_WORDS, PHRASE_OWNERS)
    here = [firsts[gram] for gram in slow.grams(words, PHRASE_WORDS) if gram in firsts]
    shared = slow.places_of(owner, common, 13) & slow.cover(firsts.values(), PHRASE_WORDS)
    own = row["common"] - len(shared & set(range(min(here), max(here) + PHRASE_WORDS)))
    of = row["of"] - len(shared)
    return own if own >= max(EDITED_WORDS, of / 2) else 0, of


def test_edited_copies_of_common_text_alone_are_none(tmp_path):
    """A copy of which a notice leaves too little, and those of a document with too many copies; they are counted."""
    own = [*WORDS[:30], "other", *WORDS[31:]]
    for copies, limits, own_found in (
        ([(WORDS[:35], "a")] * 3 + [(WORDS[:60], "b")], Limits(wide=3, very_wide=9), 0),
        ([(own, "b")] * 3, Limits(wide=9, very_wide=3), 3),
        ([(own, "b")] * 4, Limits(wide=9, very_wide=3), 0),
    ):
        _, counts, rows, copied = join(tmp_path, [copies], limits=limits)
        found = [row for row in rows.to_pylist() if row["rule"] == EDITED and row["target"] == 0]
        counted = counts.filter(pc.and_(pc.equal(counts["part"], EDITED), pc.equal(counts["target"], 0)))
        assert (sum(row["own"] > 0 for row in found), len(found)) == (own_found, pc.sum(counted["documents"]).as_py())
        assert pc.sum(counted["own"]).as_py() == own_found
        assert sum(row["held_out_sum"] for row in copied.to_pylist()) == own_found


def test_matches_of_common_text_are_listed_after_all_others(tmp_path):
    """A held-out document holds a notice that four others hold: the one with more of it is listed before them."""
    notice, leak = WORDS[:50], WORDS[15:]
    shards = [[(notice, "a")] * 4, [(leak, "b")]]
    limits = Limits(wide=3, very_wide=3)
    _, _, rows, copied = join(tmp_path, shards, limits=limits, max_rows=1)
    spans = [row for row in rows.to_pylist() if row["kind"] == HELD_OUT_KIND and row["target"] == 0]
    assert [(row["shard"], row["row"], row["rule"]) for row in spans] == [(1, 0, GRAM)]
    assert copied.to_pylist() == []


def test_what_repeats_itself_is_cut_where_it_does():
    """A copy of a held-out text that says something twice: each piece, and where of the text it is."""
    text = [*WORDS[:60], *WORDS[:60], *WORDS[60:]]
    part = held_out_part(words_of([" ".join(text)]))
    index = ProtectedIndex(held_out=index_held_out([part], 10**6), items=index_items([]))
    values, bounds = buffers([" ".join(text[30:])])
    found = Matcher(index).match(split_words(values, bounds), values, bounds).held_out
    assert found[found[:, 0] == SPAN][:, [5, 8, 9]].tolist() == [[79, 30, 79], [60, 0, 60], [69, 71, 69]]


def test_documents_of_unread_shards_are_in_no_number(tmp_path):
    seen, *_ = join(tmp_path, [[(WORDS, "a")]])
    records = records_of(seen, ABOVE, np.array([-1, 0, 0, 0, 0]))
    assert values(records, set="val")["documents"] == 4


def test_items_are_counted_by_part_and_tier(tmp_path):
    exact, edited = WORDS[5:25], [*WORDS[5:10], "another", *WORDS[11:25]]
    _, counts, rows, _ = join(tmp_path, [[([*exact, "and", *WORDS[30:33]], "a")], [(edited, "b"), (edited, "b")]])
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
    shards = [[(WORDS[5:25], "a")] * 4, [(WORDS[5:25], "a")]]
    _, counts, rows, _ = join(tmp_path, shards, max_rows=3)
    listed = [row for row in rows.to_pylist() if row["kind"] == 0]
    assert [(row["shard"], row["row"]) for row in listed] == [(0, 0), (0, 1), (0, 2)]
    assert [row["documents"] for row in counts.to_pylist() if row["kind"] == 0] == [5]


def test_all_damaged_files_are_named(tmp_path):
    files = pa.table([[b"/no/a", b"/no/b"], [0, 1], [0, 0], [0, 0]], names=LINK_FILES.names).cast(LINK_FILES)
    with pytest.raises(DamagedFileError) as raised:
        link_grams(files, 0, 256)
    assert raised.value.paths == ("/no/a", "/no/b")
