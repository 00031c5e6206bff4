"""Changes of a run: jumps of the learning rate, other batches, clipping in a row, skipped updates; and their words."""

import numpy as np
import pyarrow as pa
import pytest

from dataaudit.training.attribution.curve import Curve
from dataaudit.training.attribution.findings import Change
from dataaudit.training.attribution.run_facts import run_changes
from dataaudit.training.pages.blocks import change_line, change_lines

STEPS = np.arange(1, 401)


def curve(targets=None):
    targets = np.full(len(STEPS), 4096) if targets is None else targets
    return Curve(step=STEPS, value=np.full(len(STEPS), 2.0), targets=targets, ranks=np.ones(len(STEPS), np.int64))


def values(**series):
    """Return a table of values of numbers by step, the whole run."""
    rows = [
        (int(step), name, float(one)) for name, held in series.items() for step, one in zip(STEPS, held, strict=True)
    ]
    steps, names, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    layer = pa.array([-1] * len(steps), pa.int32())
    return pa.table(
        {
            "step": pa.array(steps, pa.int64()),
            "metric": pa.array(names, pa.string()),
            "layer": layer,
            "value": pa.array(numbers, pa.float64()),
        }
    )


def found(targets=None, **series):
    return [(one.kind, one.first_step, one.last_step) for one in run_changes(curve(targets), values(**series))]


def rates(jump=1.0, first=200, last=202, base=None):
    rate = np.full(len(STEPS), 3e-3) if base is None else base
    return np.where((first <= STEPS) & (last >= STEPS), rate * jump, rate)


COSINE = 3e-3 * np.minimum(1, STEPS / 50) * (0.5 + 0.5 * np.cos(np.pi * STEPS / 400))


class TestRates:
    @pytest.mark.parametrize("jump", [60, 3, 1.2, 0.5, 0.01, 0.0])
    @pytest.mark.parametrize("base", [None, COSINE], ids=["constant", "cosine"])
    def test_a_jump_and_back_is_one_change(self, jump, base):
        assert found(learning_rate=rates(jump, base=base)) == [("learning_rate", 200, 202)]

    def test_a_rate_that_stays_is_a_change_at_its_first_step(self):
        assert found(learning_rate=rates(0.1, 200, 400)) == [("learning_rate", 200, 200)]

    @pytest.mark.parametrize(
        "rate",
        [
            COSINE,
            np.minimum(1, STEPS / 100) * 1e-3,
            1e-3 * np.minimum(1, (401 - STEPS) / 80),
            1e-3 * STEPS**-0.5,
            np.full(len(STEPS), 1e-3),
            1e-3 * np.minimum(1, np.exp(0.1 * (STEPS - 60))),
        ],
        ids=["cosine", "linear warm-up", "trapezoid", "inverse root", "constant", "exponential warm-up"],
    )
    def test_a_schedule_is_no_change(self, rate):
        assert found(learning_rate=rate) == []


class TestOthers:
    @pytest.mark.parametrize(("times", "steps"), [(2.0, 400), (0.5, 400), (4.0, 205), (0.25, 200)])
    def test_another_batch_is_named(self, times, steps):
        targets = np.where((STEPS >= 200) & (steps >= STEPS), 4096 * times, 4096).astype(np.int64)
        (one,) = run_changes(curve(targets), values())
        assert (one.kind, one.first_step, one.before, one.after) == ("batch", 200, 4096, 4096 * times)

    def test_batches_that_vary_a_little_are_none(self):
        targets = 4096 + np.random.default_rng(0).integers(-400, 400, len(STEPS))
        assert found(targets) == []

    def test_clipping_in_a_row_is_named_where_it_was_rare_before(self):
        norms = np.where((STEPS >= 200) & (STEPS < 220), 5.0, np.where(STEPS % 10 == 0, 1.5, 0.5))
        assert found(grad_global_norm=norms, grad_max_norm=np.ones(len(STEPS))) == [("clipping", 200, 220)]

    def test_clipping_that_is_usual_is_none(self):
        norms = np.where(np.random.default_rng(0).random(len(STEPS)) < 0.9, 5.0, 0.5)
        assert found(grad_global_norm=norms, grad_max_norm=np.ones(len(STEPS))) == []
        assert found(grad_global_norm=norms) == []

    def test_skipped_updates_in_a_row_are_one(self):
        skipped = (STEPS >= 100) & (STEPS < 104) | (STEPS == 300)
        assert found(skipped_updates=skipped.astype(float)) == [
            ("skipped_updates", 100, 103),
            ("skipped_updates", 300, 300),
        ]


def test_what_is_said():
    rate = Change(kind="learning_rate", first_step=250, last_step=252, before=0.003, after=0.18)
    assert change_line(rate) == "the learning rate 0.18 after 0.003 (x 60) from steps 250 to 252"
    clipped = Change(kind="clipping", first_step=9, last_step=30, before=0.1, after=1.0)
    assert change_line(clipped) == "every update clipped in steps 9 to 30, 10% before"
    skipped = Change(kind="skipped_updates", first_step=9, last_step=9, before=0, after=1)
    assert change_lines((skipped,) * 5) == "; ".join(["1 skipped update at step 9"] * 3) + "; 2 more changes"
