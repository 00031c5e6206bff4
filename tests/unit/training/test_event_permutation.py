"""Episodes and what was read before them: exact under redrawn orders, valid under shifts, blind where it must be."""

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from lanes import thinned

from dataaudit.training.attribution.event_permutation import alpha_of_look, event_test, exposure_of, read_without_a_gap

BLOCK_ROWS, SHARDS, DOCUMENTS = 4, 6, 40


def stream(random, order, *, packed=True, lines=False, context=64, rows=2, shards=SHARDS, documents=DOCUMENTS):
    """Return the stretches of one pass, as the log has them, steps and targets; ``lines``: rows are shuffled."""
    lengths = random.integers(8, 90, (shards, documents))
    met = {
        "shuffled": lambda: random.permutation(shards * documents),
        "sequential": lambda: np.arange(shards * documents),
        "interleaved": np.arange(shards * documents).reshape(shards, documents).T.ravel,
    }[order]()
    held = []
    at = 0
    for one in met.tolist():
        shard, row = divmod(one, documents)
        left, offset = int(lengths[shard, row]) if packed else context, 0
        while left:
            size = min(left, context - at % context)
            line, start = divmod(at, context)
            held.append((line // rows + 1, 0, 0, line % rows, start, shard, row, 0, size))
            at, left, offset = at + size, left - size, offset + size
    names = ("step", "micro_batch", "rank", "batch_row", "start", "shard", "row", "epoch", "targets")
    last = at // (context * rows)
    held = [one for one in held if one[0] <= last]
    if lines:
        to = random.permutation(last * rows)
        places = [to[(one[0] - 1) * rows + one[3]] for one in held]
        held = [(at // rows + 1, 0, 0, at % rows, *one[4:]) for at, one in zip(places, held, strict=True)]
    columns = {name: np.array([one[place] for one in held]) for place, name in enumerate(names)}
    steps = np.arange(1, last + 1)
    return pa.table(columns), steps, np.full(last, context * rows)


def exposed(table, steps, targets, **more):
    return exposure_of(table, steps, targets, np.arange(SHARDS), BLOCK_ROWS, **more)


def slow_windows(table, onsets, lag):
    """Count episodes after each block and shard, straight from the table."""
    found = {}
    for at in onsets:
        units = set()
        for row in table.to_pylist():
            if at - lag <= row["step"] - 1 <= at - 1:
                units |= {row["shard"] << 40 | row["row"] // BLOCK_ROWS, -1 - row["shard"]}
        for one in units:
            found[one] = found.get(one, 0) + 1
    return found


@pytest.mark.parametrize("order", ["shuffled", "sequential", "interleaved"])
@pytest.mark.parametrize("moves", ["documents", "rows"])
@pytest.mark.parametrize("random_order", [True, False])
def test_counts_of_the_real_order_are_those_of_the_log(order, moves, random_order):
    random = np.random.default_rng(3)
    table, steps, targets = stream(random, order)
    exposure = exposed(table, steps, targets, moves=moves)
    onsets = np.array([20, 33, 47])
    found = event_test(exposure, onsets, onsets, random_order=random_order, lag=4, orders=9)
    expected = slow_windows(table, onsets.tolist(), 4)
    assert found.units or (order != "shuffled" and not random_order)
    for one in found.units:
        assert one.episodes == expected[one.shard]
        assert 0 < one.p <= 1
    assert found.last_step - found.first_step + 1 == len(steps)


@pytest.mark.runs
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("moves", "order"), [("documents", "shuffled"), ("rows", "shuffled")])
def test_p_values_of_a_clean_run_are_uniform_when_orders_are_redrawn(packed, moves, order):
    """300 orders of the data, episodes at the same steps: P(p <= a) is at most a, and not far below at the top."""
    least = []
    for seed in range(thinned(300, 100)):
        random = np.random.default_rng(seed)
        table, steps, targets = stream(random, order, packed=packed, lines=moves == "rows")
        onsets = np.array([11, 25, 40, 52])
        exposure = exposed(table, steps, targets, moves=moves)
        least.append(event_test(exposure, onsets, onsets, random_order=True, lag=3, orders=39, seed=seed).units[0].p)
    within_bounds(least)


@pytest.mark.runs
def test_p_values_of_a_clean_run_are_uniform_when_episodes_are_shifted():
    """The order is fixed, episodes fall anywhere: each shift of them is as likely."""
    table, steps, targets = stream(np.random.default_rng(5), "shuffled")
    exposure, least = exposed(table, steps, targets), []
    for seed in range(thinned(300, 150)):
        onsets = np.random.default_rng(seed).choice(len(steps), 4, replace=False)
        least.append(event_test(exposure, onsets, onsets, random_order=False, lag=3, orders=999).units[0].p)
    within_bounds(least)


def within_bounds(p):
    """Hold the shares of p-values at most a against a, within four standard errors; ties make them smaller alone."""
    p = np.array(p)
    for a in (0.05, 0.1, 0.25, 0.5, 0.75):
        error = np.sqrt(a * (1 - a) / len(p))
        assert (p <= a).mean() <= a + 4 * error
    assert (p <= 0.5).mean() > 0.15


def planted(random, *, shard=2, block=3, size=8, lag=3):
    """Return a run whose episodes begin shortly after a block was read, each time."""
    table, steps, targets = stream(random, "shuffled", documents=80)
    rows = table.filter(pa.compute.equal(table["shard"], shard))
    met = sorted({one["step"] - 1 for one in rows.to_pylist() if one["row"] // size == block})
    onsets = np.unique([min(len(steps) - 1, at + int(random.integers(2, lag + 1))) for at in met])
    return exposure_of(table, steps, targets, np.arange(SHARDS), size), onsets


@pytest.mark.runs
@pytest.mark.parametrize("random_order", [True, False])
def test_a_block_that_every_episode_follows_upon_is_found(random_order):
    hits = 0
    for seed in range(10):
        exposure, onsets = planted(np.random.default_rng(seed))
        found = event_test(exposure, onsets, onsets, random_order=random_order, lag=3, orders=99)
        hits += any(one.shard == 2 << 40 | 3 and one.p <= 0.05 for one in found.units)
    assert hits >= 8


def test_what_was_read_in_one_stretch_is_not_identifiable_when_episodes_are_shifted():
    table, steps, targets = stream(np.random.default_rng(0), "sequential")
    found = event_test(exposed(table, steps, targets), np.array([9, 30]), np.array([9, 30]), random_order=False)
    assert found.tested == 0
    assert found.units == ()
    assert found.not_identifiable == SHARDS * DOCUMENTS // BLOCK_ROWS + SHARDS


def test_the_smallest_p_is_said_and_never_undercut():
    table, steps, targets = stream(np.random.default_rng(1), "shuffled")
    exposure = exposed(table, steps, targets)
    onsets = np.array([12])
    whole = event_test(exposure, onsets, onsets, random_order=False, lag=2)
    assert whole.smallest_p == pytest.approx(1 / len(steps))  # every shift there is
    short = event_test(exposure, onsets, onsets, random_order=False, lag=2, phases=(8, 20))
    assert short.smallest_p == pytest.approx(1 / 12)  # within the episode's phase alone
    both = event_test(exposure, np.array([5, 30]), onsets, random_order=False, lag=2, phases=(10,), orders=99)
    assert both.smallest_p == 1 / 100
    for found in (whole, short, both):
        assert min(one.p for one in found.units) >= found.smallest_p


def test_shifts_in_a_phase_are_all_of_its_circle():
    """Of one episode and all shifts, the p of a unit is the share of steps with as rare a unit before them: by hand."""
    table, steps, targets = stream(np.random.default_rng(2), "shuffled", shards=3, documents=12)
    exposure = exposure_of(table, steps, targets, np.arange(3), BLOCK_ROWS)
    lag, onset, number = 1, 6, len(steps)
    found = event_test(exposure, np.array([onset]), np.array([onset]), random_order=False, lag=lag)
    apart = set(exposure.units[read_without_a_gap(exposure, lag)].tolist())
    assert found.not_identifiable == len(apart)
    read = [set(slow_windows(table, [at or number], lag)) - apart for at in range(number)]
    share = {unit: sum(unit in one for one in read) / number for unit in set().union(*read)}
    rarest = [min((share[unit] for unit in one), default=1.0) for one in read]
    best = min(read[onset], key=lambda unit: (share[unit], unit))
    assert share[best] == min(share[unit] for unit in read[onset])
    p = sum(one <= share[best] * (1 + 1e-9) for one in rarest) / number
    assert found.units[0].p == pytest.approx(p)


@pytest.mark.runs
def test_what_flagged_steps_hold_stays_where_it_is():
    """Episodes that begin where hard shards are read are no sign of what was read before: their steps do not move."""
    least = []
    for seed in range(thinned(200, 80)):
        random = np.random.default_rng(seed)
        table, steps, targets = stream(random, "shuffled")
        hard = np.unique(table.filter(pa.compute.equal(table["shard"], 1))["step"].to_numpy()) - 1
        onsets = random.choice(hard[hard > 4], 4, replace=False)
        found = event_test(exposed(table, steps, targets), onsets, onsets, random_order=True, lag=3, orders=39)
        least.append(found.units[0].p)
    within_bounds(least)


def test_all_looks_together_spend_alpha():
    assert sum(alpha_of_look(look) for look in range(1, 10_000)) < 0.05
    assert alpha_of_look(1) == 0.025


def test_only_whole_steps_that_follow_each_other_are_looked_at():
    table, steps, targets = stream(np.random.default_rng(1), "shuffled")
    kept = table.filter(pa.compute.not_equal(table["step"], 17))
    exposure = exposed(kept, steps, targets)
    assert (exposure.first_step, exposure.steps) == (18, len(steps) - 17)
    assert exposed(table.slice(0, 0), steps, targets) is None
    merged = table.set_column(
        5, "shard", pa.array(np.where(table["step"].to_numpy() == 20, -1, table["shard"].to_numpy()))
    )
    assert not any(unit >> 40 < 0 and unit < -SHARDS for unit in exposed(merged, steps, targets).units.tolist())


def test_rooms_are_the_targets_of_each_step():
    table, steps, targets = stream(np.random.default_rng(4), "shuffled")
    exposure = exposed(table, steps, targets)
    everything = np.arange(len(exposure))
    assert exposure.room_of(everything).tolist() == targets.tolist()
    for item in range(40):
        assert exposure.units_of(np.array([item])).tolist() == sorted(
            exposure.members[exposure.pointers[item] : exposure.pointers[item + 1]].tolist()
        )
