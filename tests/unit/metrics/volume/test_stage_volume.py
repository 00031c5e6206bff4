"""Counts and shares of sources, against plain Python over the same documents."""

import pytest
from hypothesis import given
from strategies import DOCUMENTS, make_batch

from dataaudit.manifest.metric import Scope
from dataaudit.metrics.volume.stage import Volume
from dataaudit.scan.stages.base import Context, merge, nothing

CONTEXT = Context(scope=Scope(), mixture={})


def values(stage, documents, context=CONTEXT):
    """Return {(metric, stat, source): record} of some documents."""
    records = stage.finalize(merge(stage, [nothing(stage), stage.map(make_batch(documents))]), context)
    return {(record.metric, record.stat, record.scope.source): record for record in records}


def tokens_of(text):
    """Count tokens as the fixture does."""
    return -(-len(text) // 3)


@given(documents=DOCUMENTS)
def test_volume_counts_what_python_counts(documents):
    found = values(Volume(), documents)
    whole = sum(tokens_of(text) for text, _ in documents)
    for source in {None, *(source for _, source in documents)}:
        own = [text for text, name in documents if source in (None, name)]
        assert found["documents", "count", source].value == len(own)
        assert found["documents", "empty", source].value == own.count("")
        assert found["bytes", "count", source].value == sum(len(text.encode()) for text in own)
        assert found["tokens", "count", source].value == sum(map(tokens_of, own))
        if source is not None and whole:
            share = sum(map(tokens_of, own)) / whole
            assert found["source_mix_share", "share", source].value == pytest.approx(share, rel=1e-11)


def test_shares_against_the_declared_mixture():
    context = Context(scope=Scope(split="train"), mixture={"web": 3.0, "absent": 1.0})
    found = values(Volume(), [("a b c", "web")], context)
    assert found["source_mix_share", "declared", "web"].value == 0.75
    assert found["source_mix_share", "share", "absent"].value == 0.0


def test_absent_source_of_an_empty_corpus_has_no_share():
    context = Context(scope=Scope(), mixture={"absent": 1.0})
    assert values(Volume(), [], context)["source_mix_share", "share", "absent"].status == "not_evaluated"
