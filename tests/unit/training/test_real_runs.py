"""Logs of small models that were trained on real text: what is planted is named, no spike follows upon clean data.

``runs/`` holds integers, and losses rounded to float16, of runs of ``benchmarks/spike_runs.py``: 1,600 steps of 8 rows
of 128 bytes, 528 blocks, some of them clean and hard (checksums, tables, Korean and numbers among others, whole shards
of Japanese, Chinese, Ukrainian and Russian).
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from lanes import thinned

from dataaudit.training.attribution.attribute import attribute
from dataaudit.training.attribution.curve import judge
from dataaudit.training.attribution.event_permutation import event_test, exposure_of
from dataaudit.training.attribution.residual_outliers import residual_test

ROOT = Path(__file__).parents[3]
RUNS = Path(__file__).parent / "runs"
HARD = {(9, 4), (12, 2), (15, 7), (18, 5), (20, 6)}
"""Blocks of checksums, tables, Korean and numbers that stand among others."""
HARD_SHARDS = {32, 38, 58, 63}
"""Japanese, Chinese, Ukrainian, Russian."""


@pytest.fixture(scope="module")
def study():
    """Return the module that reads logs of runs, and that which draws of them."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import spike_draws
    import spike_logs

    yield spike_logs, spike_draws
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def said(study):
    """Return a function from the name of a log to what `attribute` says of it."""
    logs, known = study[0], {}

    def say(name):
        if name not in known:
            log = logs.load(RUNS / f"{name}.npz")
            known[name] = log, attribute(logs.data_of(log))
        return known[name]

    return say


def odd_blocks(found):
    return {(one.shard, one.first_row // 8) for one in found.residual_tests[0].units if one.outlier}


@pytest.mark.runs
class TestPlanted:
    def test_blocks_of_random_bytes_are_odd_and_hold_their_spikes(self, said):
        log, found = said("random-bytes-buffered")
        assert set(log.blocks) <= odd_blocks(found)
        assert all(one.mean > 2 for one in found.residual_tests[0].units[:3])
        spikes = [one for one in found.episodes if one.found is not None and one.found.shard in dict(log.blocks)]
        assert len(spikes) >= 4
        assert {(one.found.shard, one.found.first_row // 8) for one in spikes} == set(log.blocks)

    @pytest.mark.parametrize("times", [4, 16])
    def test_larger_batches_hide_no_block_from_the_residual_test(self, study, times):
        log = study[0].load(RUNS / "random-bytes-buffered.npz").regrouped(times)
        odd = {one.shard for one in residual_test(log.documents()).units if one.outlier}
        assert {shard << 40 | block for shard, block in log.blocks} <= odd

    def test_a_jump_of_the_learning_rate_is_the_state(self, said):
        log, found = said("jump-shuffled")
        (own,) = [one for one in found.episodes if log.jumps[0] <= one.first_step <= log.jumps[0] + 10]
        assert (own.reason, own.found) == ("state", None)
        assert found.event_test.outcome == "no_more_than_chance"


@pytest.mark.runs
@pytest.mark.parametrize(
    "name",
    [
        "clean-sequential",
        *(pytest.param(f"clean-{one}", marks=pytest.mark.runs) for one in ("shuffled", "masked", "buffered")),
    ],
)
def test_spikes_of_clean_runs_sit_in_hard_data_and_follow_upon_none(said, name):
    _, found = said(name)
    for one in found.episodes:
        held = one.found
        assert held is None or held.shard in HARD_SHARDS or (held.shard, held.first_row // 8) in HARD
    assert found.event_test.outcome != "follows"
    assert len(odd_blocks(found)) <= 10


@pytest.mark.runs
def test_a_single_step_whose_losses_came_before_names_nothing(said):
    """Step 157 is above its limit by a clean shard, and 3 of 101 healthy shards before were as high."""
    (own,) = [one for one in said("clean-masked")[1].episodes if one.first_step == 157]
    assert (own.outcome, own.reason, own.found, own.shards[0].shard) == ("cannot_tell", "not_rare", None, 42)
    assert "of 101 units of healthy steps before" in own.detail


@pytest.mark.runs
@pytest.mark.parametrize("seed", [3, 4])
def test_an_order_that_repeats_blames_no_neighbour_of_a_hard_block(study, seed):
    """Shards in their order, some parts of it several times: a hard block has the same blocks before it each time."""
    logs, draws = study
    log = logs.load(RUNS / "clean-sequential.npz")
    data = logs.data_of(draws.resampled([log] * 3, np.random.default_rng(seed)))
    for judged in (data.judged, judge(data.curve.step, data.curve.value)):  # by composition, and by the loss alone
        data.__dict__["judged"] = judged
        test = attribute(data).event_test
        assert (test.outcome, test.reason) == ("not_evaluated", "own_data")
        assert test.own_data == len(judged.spikes)
    exposure = exposure_of(data.log.table("stretches"), data.curve.step, data.curve.targets, data.twins, 8)
    flagged = np.concatenate([data.curve.step[one.places] for one in judged.spikes]) - 1
    onsets = np.array([data.curve.step[one.first] for one in judged.spikes]) - 1
    blamed = event_test(exposure, onsets, flagged, random_order=False).units[0]
    assert blamed.p <= 0.025, "if all episodes counted, what is read before would be blamed"
    assert (blamed.shard >> 40, blamed.shard & 0xFF) not in HARD


@pytest.mark.runs
@pytest.mark.parametrize("name", ["clean-shuffled", "clean-masked"])
def test_p_values_of_relabelled_documents_are_uniform(study, name):
    """Names of documents are permuted within sources: P(p <= a) is at most a, and runs with an outlier are few."""
    logs, draws = study
    log, number = logs.load(RUNS / f"{name}.npz"), thinned(300, 30)
    counts, tested, outliers = dict.fromkeys((0.001, 0.005, 0.02), 0), 0, 0
    for one in range(number):
        made = draws.relabelled(log, np.random.default_rng(one), within_source=True)
        found = residual_test(made.documents(), seed=one)
        tested += found.tested
        outliers += any(unit.outlier for unit in found.units)
        for level in counts:
            counts[level] += sum(unit.p <= level for unit in found.units)
    for level, count in counts.items():
        assert count / tested <= level + 4 * np.sqrt(level * (1 - level) / tested)
    assert counts[0.02] / tested > 0.005
    assert outliers <= 0.05 * number + 4 * np.sqrt(0.05 * 0.95 * number)


def test_a_kept_log_is_the_log_of_its_run(study, tmp_path):
    logs, _ = study
    log = logs.load(RUNS / "clean-shuffled.npz")
    log.save(tmp_path / "again.npz")
    again = logs.load(tmp_path / "again.npz")
    assert all((again[name] == log[name]).all() for name in log.columns)
    whole = log.regrouped(4)
    assert whole.steps == 400
    assert whole.curve[0] == pytest.approx(np.mean(log.curve[:4]), abs=1e-3)
