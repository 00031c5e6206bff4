import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.annotators import num_tokens
from dataaudit.scan.corpus.batch import BatchBuilder
from dataaudit.scan.corpus.segments import runs

documents = st.lists(st.tuples(st.text(max_size=8), st.sampled_from(["web", "books", ""])), max_size=20)


@given(documents=documents, max_bytes=st.integers(1, 40), max_documents=st.integers(1, 6))
@settings(max_examples=examples(200), deadline=None)
def test_batches_hold_all_documents_in_order(documents, max_bytes, max_documents):
    """Nothing is lost or moved between batches, and each is closed as soon as it is full."""
    builder = BatchBuilder(max_bytes, max_documents)
    batches = []
    for row, (text, source) in enumerate(documents):
        if builder.add(text, row, source, len(text.encode())):
            batches.append(builder.take())
    if len(builder):
        batches.append(builder.take())
    found = [
        item for batch in batches for item in zip(batch.texts.to_pylist(), batch.sources().to_pylist(), strict=True)
    ]
    assert found == documents
    assert [row for batch in batches for row in batch.rows.tolist()] == list(range(len(documents)))
    for index, batch in enumerate(batches):
        sizes = batch.num_bytes()
        assert sizes.tolist() == [len(text.encode()) for text in batch.texts.to_pylist()]
        assert len(batch) <= max_documents
        assert sizes[:-1].sum() < max_bytes
        assert len(set(batch.source_names)) == len(batch.source_names)
        if index < len(batches) - 1:
            assert len(batch) == max_documents or sizes.sum() >= max_bytes


def test_an_empty_batch_has_one_offset():
    """No documents have no bytes, whatever Arrow keeps for them."""
    batch = BatchBuilder(1).take()
    assert (len(batch), batch.byte_offsets().tolist(), batch.num_bytes().tolist()) == (0, [0], [])
    assert (batch.rows.dtype, batch.source_codes.dtype) == (np.int64, np.int32)


def test_tokens_have_to_be_asked_for():
    """A stage that forgot to say that it needs tokens finds out at once."""
    with pytest.raises(LookupError, match="tokens has to declare it in `needs`"):
        num_tokens(BatchBuilder(1).take())


def test_runs_cover_all_segments_and_keep_to_the_limit():
    """Runs are adjacent, within the limit unless a single segment exceeds it, and cover everything."""
    assert runs(np.array([0, 3, 3, 10, 11, 40, 41]), 10) == [(0, 3), (3, 4), (4, 5), (5, 6)]
    assert runs(np.zeros(1, dtype=np.int64), 10) == []
