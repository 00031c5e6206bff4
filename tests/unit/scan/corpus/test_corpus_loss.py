import pickle

from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.corpus.loss import MAX_PLACES, LossLog, Reason, ShardUnreadable


@given(st.lists(st.tuples(st.sampled_from(list(Reason)[:3]), st.integers(0, 99)), max_size=99))
@settings(max_examples=examples(100), deadline=None)
def test_every_loss_is_counted_and_the_first_are_placed(found):
    """Counts and bytes are exact for any number of losses; places stop at the limit of each reason."""
    log = LossLog()
    for row, (reason, size) in enumerate(found):
        log.add(reason, row, size)
    for reason in Reason:
        own = [(row, size) for row, (other, size) in enumerate(found) if other is reason]
        assert log.records.get(reason, 0) == len(own)
        assert log.num_bytes.get(reason, 0) == sum(size for _, size in own)
        assert log.places.get(reason, []) == own[:MAX_PLACES]


def test_an_unreadable_shard_crosses_processes_with_its_reason_and_place():
    """The exception survives pickling, as what a worker raises has to."""
    sent = pickle.dumps(ShardUnreadable(Reason.TRUNCATED, "after 3 records"))
    error = pickle.loads(sent)
    assert (error.reason, error.place) == (Reason.TRUNCATED, "after 3 records")


def test_reason_codes_are_plain_words():
    """Codes are public API: lower case, no spaces, each once."""
    codes = [str(reason) for reason in Reason]
    assert all(code.replace("_", "").isalnum() and code == code.lower() for code in codes)
    assert len(set(codes)) == len(Reason)
