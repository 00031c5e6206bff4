"""Rates of a judge's sample: every scope, what they rest on, and why there is none."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from dataaudit.manifest.locate import places_of
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.pii.stage import OPINIONS
from dataaudit.scan.cross_shard.judge_rates import SEEN, Answers, Rates, Verdicts, not_evaluated
from dataaudit.scan.cross_shard.sampling import OTHER, Frame, Question, Sampled
from dataaudit.scan.cross_shard.step import SecondPassPart, SecondPassResult
from dataaudit.scan.kernels.two_phase import Allocation

QUESTION = Question(metric="data_toxicity_rate", half_width=0.01, most=100, languages=("en",), guesses={}, salt=1)
FRAME = Frame(
    sources=("books", "web"),
    languages=("en",),
    strata=((0, "books", "en", 0), (0, "web", "en", 0), (0, "web", "en", 3), (1, OTHER, "en", 0)),
)
SIZES = np.array([50, 30, 20, 10])


def rates(unread=0):
    """Return the rates of four strata in two splits."""
    plan = Allocation(counts=SIZES, wanted=110, half_width=0.0)
    none = np.zeros(0, dtype=np.int64)
    sampled = Sampled(
        frame=FRAME,
        splits=("train", "val"),
        documents=SIZES,
        tokens=SIZES * 100,
        guesses=np.array([0, 0.1, 0.9, 0]),
        plan=plan,
        unread=unread,
        places=none,
        strata=none,
    )
    return Rates(QUESTION, sampled, "1")


def verdicts(judged, hits):
    """Return so many judged documents of each stratum, the first of them with a hit each."""
    strata = np.repeat(np.arange(len(SIZES)), judged)
    found = np.concatenate([np.arange(count) < number for count, number in zip(judged, hits, strict=True)])
    return Verdicts(strata=strata, tokens=np.full(len(strata), 100), hits=found.astype(np.int64))


def test_a_census_gives_exact_rates_of_every_scope():
    """All documents were judged: shares are those of the documents, and intervals have no width."""
    records = rates().shares("rate", None, verdicts(SIZES, [5, 0, 20, 1]))
    found = {tuple(sorted(record.scope.as_dict().items())): record for record in records}
    assert {key: record.value for key, record in found.items()} == pytest.approx(
        {
            (): 26 / 110,
            (("source", "books"),): 0.1,
            (("source", "web"),): 0.4,
            (("language", "en"),): 26 / 110,
            (("split", "train"),): 0.25,
            (("split", "val"),): 0.1,
            (("source", "books"), ("split", "train")): 0.1,
            (("source", "web"), ("split", "train")): 0.4,
        }
    )
    assert all(record.low == record.value == record.high for record in records)
    assert all(record.method == "sampled" for record in records)


def test_a_sample_has_an_interval_around_its_rate():
    """A scope nobody looked into is not evaluated, with its documents as denominator; never zero."""
    records = rates().shares("rate", "insult", verdicts([10, 10, 10, 0], [1, 0, 9, 0]))
    found = {tuple(sorted(record.scope.as_dict().items())): record for record in records}
    whole = found[("entity", "insult"),]
    assert whole.n == 30
    assert whole.low < whole.value < whole.high
    empty = found[("entity", "insult"), ("split", "val")]
    assert (empty.status, empty.reason, empty.value, empty.denominator) == ("not_evaluated", "not_judged", None, 10)


def test_hits_per_million_tokens_and_parts_of_candidates():
    """Every document has 100 tokens: 26 hits in 11,000 tokens; of 100 candidates a document a hundredth."""
    judged = verdicts(SIZES, [5, 0, 20, 1])
    (whole,) = [record for record in rates().per_million("analyzer_hits", None, judged) if record.scope == Scope()]
    assert whole.value == pytest.approx(26 / 11_000 * 1e6)
    (part,) = [record for record in rates().parts("confirmed", None, judged) if record.scope == Scope()]
    assert part.value == pytest.approx(26 / 11_000)
    assert part.high <= 1


def test_where_nothing_could_be_confirmed_there_is_no_share_and_no_claim_that_nobody_looked():
    """40 documents were judged and none of them holds a candidate."""
    judged = verdicts([10, 10, 10, 10], [0, 0, 0, 0])
    (part,) = [
        record
        for record in rates().parts("confirmed", None, replace(judged, tokens=judged.hits))
        if record.scope == Scope()
    ]
    assert (part.status, part.reason, part.n, part.denominator) == ("not_evaluated", "empty_denominator", 40, 110)


def test_what_the_judge_cannot_read_and_what_it_saw_are_shares_of_their_own():
    """10 of 120 documents are in languages that it does not read; it saw 44 of the others."""
    found = {record.stat: record for record in rates(unread=10).coverage(44)}
    assert found["judge_reads"].value == pytest.approx(110 / 120)
    assert found["judged_share"].value == pytest.approx(44 / 110)


def test_the_table_shows_what_every_rate_rests_on():
    """A row a stratum: its size, judged, positive, hits; totals are those of the verdicts."""
    table = rates().table("insult", verdicts([10, 5, 5, 0], [2, 1, 5, 0]))
    assert table.schema == TABLES["judged"].schema
    assert table["judged"].to_pylist() == [10, 5, 5, 0]
    assert table["positive"].to_pylist() == table["hits"].to_pylist() == [2, 1, 5, 0]
    assert table["documents"].to_pylist() == SIZES.tolist()
    assert table["split"].to_pylist() == ["train", "train", "train", "val"]
    assert table["judged_tokens"].to_pylist() == [1000, 500, 500, 0]


def test_without_a_judge_every_stat_says_why():
    """The reason is that of the judge's absence."""
    (record,) = not_evaluated(QUESTION, {"rate": "ratio"}, "weights_absent", "1")
    assert (record.status, record.reason, record.value) == ("not_evaluated", "weights_absent", None)


def part(shard, rows, *, failed=()):
    """Return what was found in a part: row r has r tokens, and r candidates of which one is confirmed."""
    failures = ["judge_failed" if row in failed else "" for row in rows]
    columns = {"row": rows, "tokens": rows, "whole": [True] * len(rows), "failure": failures}
    opinions = {"row": rows, "class": ["X"] * len(rows), "candidates": rows, "confirmed": [1] * len(rows)}
    tables = {"seen": pa.table(columns, schema=SEEN), "opinions": pa.table(opinions, schema=OPINIONS)}
    return SecondPassPart(shard=shard, split=0, first_row=0, key="", tables=tables)


def answers(wanted, *parts):
    """Return the answers for a sample of (shard, row, stratum)."""
    shards, rows, strata = (np.array(column) for column in zip(*wanted, strict=True))
    sampled = SimpleNamespace(places=places_of(shards, rows), strata=strata)
    return Answers(SecondPassResult.of("visit", parts), sampled)


def answered(found):
    """Return (stratum, candidates, confirmed) of every document that has a verdict."""
    rows = found.table("opinions", OPINIONS)
    verdicts = found.verdicts(rows, rows["confirmed"].to_numpy(), rows["candidates"].to_numpy())
    return list(zip(verdicts.strata.tolist(), verdicts.tokens.tolist(), verdicts.hits.tolist(), strict=True))


def test_a_copy_of_a_part_counts_only_where_its_document_was_drawn():
    """Two equal parts are read once, for what is wanted of either; each document is judged where it was drawn."""
    found = answers([(1, 4, 7), (0, 2, 5)], part(0, [2, 4]), part(1, [2, 4]))
    assert (len(found), found.failed) == (2, 0)
    assert answered(found) == [(5, 2, 1), (7, 4, 1)]
    assert found.table("opinions", OPINIONS)["shard"].to_pylist() == [0, 1]


@pytest.mark.parametrize("failed", [2, 3, 4])
def test_what_is_said_of_a_document_without_a_verdict_counts_for_no_other(failed):
    """Candidates may be confirmed in a document that failed as a whole: it has no part in any rate."""
    found = answers([(0, row, row) for row in (2, 3, 4)], part(0, [2, 3, 4], failed=(failed,)))
    assert (len(found), found.failed) == (2, 1)
    assert answered(found) == [(row, row, 1) for row in (2, 3, 4) if row != failed]
