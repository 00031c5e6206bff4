"""Spans are counted as a plain search counts them, wherever blocks are cut."""

import numpy as np
import pytest
from reference.probes import occurrences

from dataaudit.probes import memorization
from dataaudit.probes.memorization import ScanMatcher, copied_tokens, span_hashes


class Blocks:
    """Documents as their tokens alone, a shard or several."""

    def __init__(self, *shards):
        self.shards = shards

    def token_blocks(self):
        for documents in self.shards:
            values = np.array([token for document in documents for token in document], np.uint16)
            yield np.cumsum([0, *map(len, documents)]), values


def plain(rows, span, *shards):
    documents = [document for shard in shards for document in shard]
    return [[occurrences(row[at : at + span], documents) for at in range(len(row) - span + 1)] for row in rows]


@pytest.mark.parametrize("block", [64, 128, 1 << 21])
@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_a_plain_search(monkeypatch, block, seed):
    """Few tokens, so that most spans stand in several places; no span crosses documents, nor shards."""
    monkeypatch.setattr(memorization, "_BLOCK", block)
    draw = np.random.default_rng(seed)
    shards = [[draw.integers(0, 2, draw.integers(0, 90)).tolist() for _ in range(5)] for _ in range(3)]
    shards[1][2] = [1] * 300
    rows = [shards[0][0] + shards[0][1], draw.integers(0, 2, 60).tolist(), [1] * 40, [0, 1], []]
    own = ScanMatcher(Blocks(*shards)).counts([np.array(row, np.int64) for row in rows], span=9)
    assert [counts.tolist() for counts in own] == plain(rows, 9, *shards)


def test_equal_spans_have_equal_hashes_and_others_do_not():
    draw = np.random.default_rng(0)
    ids = draw.integers(0, 50_000, 4_000)
    ids[3_000:3_100] = ids[100:200]
    own = span_hashes(ids, 50)
    assert own[3_000] == own[100]
    assert len(np.unique(own)) == len(own) - 51
    assert len(span_hashes(ids[:49], 50)) == 0


def test_a_collision_is_no_match(monkeypatch):
    """Where all hashes are alike, tokens decide."""
    monkeypatch.setattr(memorization, "span_hashes", lambda ids, span: np.zeros(max(0, len(ids) - span + 1), np.uint64))
    counts = ScanMatcher(Blocks([[1, 2, 3, 4], [2, 3, 4, 5]])).counts([np.array([2, 3, 4])], span=3)
    assert counts[0].tolist() == [2]
    assert ScanMatcher(Blocks([[1, 2, 3]])).counts([np.array([7, 8, 9])], span=3)[0].tolist() == [0]


def test_a_run_of_one_token_is_no_memory():
    row = np.array([5] * 60 + list(range(40)))
    marks = copied_tokens(row, np.ones(51, np.int64))
    assert marks[60:].all()
    assert not marks[:17].any()
