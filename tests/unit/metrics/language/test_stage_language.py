"""The numbers of `language_share`, against plain Python over the same documents."""

import pyarrow as pa
import pytest
from hypothesis import given
from strategies import DOCUMENTS, LANGUAGES, make_batch

from dataaudit.manifest.metric import Scope
from dataaudit.metrics.language.stage import Language
from dataaudit.scan.stages.base import Context, merge, nothing

STAGE = Language()
WHOLE = Scope()


def found(documents, scope=WHOLE):
    """Return {(metric, stat, source, language): record}."""
    partial = merge(STAGE, [nothing(STAGE), STAGE.map(make_batch(documents))])
    records = STAGE.finalize(partial, Context(scope=scope, mixture={}))
    assert all(record.scope.split == scope.split for record in records)
    return {(one.metric, one.stat, one.scope.source, one.scope.language): one for one in records}


def language_of(text):
    """Return the language that the fixture gives."""
    return LANGUAGES[len(text) % len(LANGUAGES)]


def tokens_of(text):
    """Count tokens as the fixture does."""
    return -(-len(text) // 3)


@given(documents=DOCUMENTS)
def test_counts_and_shares_are_those_of_a_plain_loop(documents):
    records = found(documents, Scope(split="train"))
    for source in {None, *(name for _, name in documents)}:
        own = [text for text, name in documents if source in (None, name)]
        whole = sum(map(tokens_of, own))
        for language in {language_of(text) for text in own}:
            texts = [text for text in own if language_of(text) == language]
            tokens = sum(map(tokens_of, texts))
            share = records["language_share", "share", source, language]
            assert share.denominator == whole
            assert share.value == (pytest.approx(tokens / whole, rel=1e-11) if whole else None)
            if source is None:
                size = sum(len(text.encode()) for text in texts)
                assert records["documents", "count", None, language].value == len(texts)
                assert records["bytes", "count", None, language].value == size
                assert records["tokens", "count", None, language].value == tokens
                density = records["bytes_per_token", "ratio", None, language].value
                assert density == (pytest.approx(size / tokens, rel=1e-11) if tokens else None)


@given(documents=DOCUMENTS)
def test_shares_of_a_scope_add_up_to_one(documents):
    shares = [one.value for key, one in found(documents).items() if key[1] == "share" and key[2] is None]
    assert sum(value or 0 for value in shares) == pytest.approx(
        1 if any(tokens_of(text) for text, _ in documents) else 0
    )


def test_und_is_always_told():
    assert found([("abcde", "web")])["language_share", "share", None, "und"].value == 0.0
    assert found([])["language_share", "share", None, "und"].status == "not_evaluated"


@given(documents=DOCUMENTS)
def test_agreement_is_a_sampled_share_with_an_interval(documents):
    record = found(documents)["language_share", "detector_agreement", None, None]
    sample = [text for text, _ in documents if len(text) % 3 == 0]
    assert record.method == "sampled"
    assert record.n == len(sample)
    if not sample:
        assert (record.status, record.reason) == ("not_evaluated", "empty_denominator")
        return
    assert record.value == pytest.approx(sum(len(text) % 2 == 0 for text in sample) / len(sample))
    assert record.low <= record.value <= record.high
    assert record.confidence == 0.95


@given(documents=DOCUMENTS)
def test_a_shard_lists_its_languages(documents):
    listed = STAGE.shard_columns(merge(STAGE, [STAGE.map(make_batch(documents))]))["languages"]
    assert [row["language"] for row in listed] == sorted({language_of(text) for text, _ in documents})
    assert sum(row["documents"] for row in listed) == len(documents)
    assert sum(row["tokens"] for row in listed) == sum(tokens_of(text) for text, _ in documents)


def test_sources_fold_without_loss():
    table = merge(STAGE, [STAGE.map(make_batch([("abc", "a"), ("abc", "b")]))])["languages"]
    assert table.column_names == ["source", "language", "documents", "bytes", "tokens", "sampled", "agreeing"]
    assert table["source"].type == pa.string()
    assert table.num_rows == 2
