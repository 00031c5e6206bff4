"""Padding: every way to batch against simulating it document by document."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import drift as slow
from strategies import make_batch

from dataaudit.base.errors import ConfigError
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.padding.stage import Padding
from dataaudit.metrics.stages import make_stages
from dataaudit.scan.stages.base import Context, merge

STAGE = Padding(contexts=(16, 40), batch=3)
TOKENS = st.lists(st.tuples(st.integers(0, 100), st.sampled_from(["web", "code"])), max_size=8)


def fractions(tokens, stage=STAGE):
    """Return {(stat, source): record} of documents with so many tokens; a token is three characters."""
    documents = [("abc" * number, source) for number, source in tokens]
    partial = merge(stage, [stage.map(make_batch(documents))])
    found = stage.finalize(partial, Context(scope=Scope(split="train"), mixture={}))
    return {(record.stat, record.scope.source): record for record in found}


def expected(found, stat, source, padding, positions):
    """Check one fraction; without a position it is not evaluated."""
    record = found[stat, source]
    if positions == 0:
        assert (record.status, record.reason) == ("not_evaluated", "empty_denominator")
        return
    assert record.value == pytest.approx(padding / positions, rel=1e-11, abs=1e-12)


@given(tokens=TOKENS)
def test_fractions_are_those_of_a_simulation(tokens):
    found = fractions(tokens)
    for context in STAGE.contexts:
        pieces = [piece for number, _ in tokens for piece in slow.pieces(number, context)]
        total = sum(pieces)
        bins = slow.packed_bins(pieces, context)
        expected(found, f"packed_{context}", None, bins * context - total, bins * context)
        positions = float(slow.batched_positions(pieces, STAGE.batch)) if pieces else 0
        expected(found, f"padded_batch_{context}", None, positions - total, positions)
        for source in (None, *{source for _, source in tokens}):
            own = [number for number, name in tokens if source in (None, name)]
            cut = [piece for number in own for piece in slow.pieces(number, context)]
            expected(found, f"padded_{context}", source, len(cut) * context - sum(cut), len(cut) * context)
            stream = sum(own) + len(own) if sum(own) else 0
            sequences = -(-stream // context)
            expected(found, f"concatenated_{context}", source, sequences * context - stream, sequences * context)


def test_values_worked_by_hand():
    found = fractions([(16, "web"), (8, "web"), (8, "web"), (1, "web")], Padding(contexts=(16,), batch=2))
    assert found["padded_16", None].value == pytest.approx(31 / 64)
    assert found["packed_16", None].value == pytest.approx(15 / 48)  # 16 | 8 + 8 | 1
    longest = (16 * 3 + 8 * 3) / 6  # over the six pairs
    assert found["padded_batch_16", None].value == pytest.approx(1 - 33 / (4 * longest), rel=1e-11)
    assert found["concatenated_16", None].value == pytest.approx((48 - 37) / 48)


def test_a_batch_of_one_pads_nothing():
    assert fractions([(5, "web"), (9, "web")], Padding(contexts=(16,), batch=1))["padded_batch_16", None].value == 0.0


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"contexts": []}, "1 to 8 ascending"),
        ({"contexts": [4096, 2048]}, "ascending"),
        ({"contexts": [8]}, "16 to 131072"),
        ({"contexts": [262144]}, "16 to 131072"),
        ({"batch": 0}, "batch"),
        ({"separator": -1}, "separator"),
        ({"contexts": "2048"}, "contexts"),
    ],
)
def test_wrong_parameters_are_named(chosen, message):
    with pytest.raises(ConfigError, match=message):
        make_stages({"padding": chosen})


def test_contexts_are_taken_from_the_config():
    stage = next(one for one in make_stages({"padding": {"contexts": [1024]}}) if one.name == "padding")
    assert stage.contexts == (1024,)
