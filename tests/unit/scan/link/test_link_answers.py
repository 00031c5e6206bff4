"""What a judge said: rows of documents that have a verdict and are of the sample, and of no others."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from dataaudit.manifest.locate import places_of
from dataaudit.metrics.pii.stage import OPINIONS
from dataaudit.scan.link.judging import SEEN, Answers
from dataaudit.scan.link.step import SecondPassPart, SecondPassResult


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


def verdicts(found):
    """Return (stratum, candidates, confirmed) of every document that has a verdict."""
    rows = found.table("opinions", OPINIONS)
    said = found.verdicts(rows, rows["confirmed"].to_numpy(), rows["candidates"].to_numpy())
    return list(zip(said.strata.tolist(), said.tokens.tolist(), said.hits.tolist(), strict=True))


def test_a_copy_of_a_part_counts_only_where_its_document_was_drawn():
    """Two equal parts are read once, for what is wanted of either; each document is judged where it was drawn."""
    found = answers([(1, 4, 7), (0, 2, 5)], part(0, [2, 4]), part(1, [2, 4]))
    assert (len(found), found.failed) == (2, 0)
    assert verdicts(found) == [(5, 2, 1), (7, 4, 1)]
    assert found.table("opinions", OPINIONS)["shard"].to_pylist() == [0, 1]


@pytest.mark.parametrize("failed", [2, 3, 4])
def test_what_is_said_of_a_document_without_a_verdict_counts_for_no_other(failed):
    """Candidates may be confirmed in a document that failed as a whole: it has no part in any rate."""
    found = answers([(0, row, row) for row in (2, 3, 4)], part(0, [2, 3, 4], failed=(failed,)))
    assert (len(found), found.failed) == (2, 1)
    assert verdicts(found) == [(row, row, 1) for row in (2, 3, 4) if row != failed]
