"""Odd blocks by their losses: p-values hold, few discoveries are false, and a bad neighbour accuses nobody."""

from dataclasses import replace

import numpy as np
import pytest
from lanes import thinned
from scipy import stats

from dataaudit.training.attribution.loss_decomposition import Stretches
from dataaudit.training.attribution.residual_outliers import Documents, document_residuals, residual_test

BLOCK_ROWS = 8


def made_documents(random, *, blocks=400, size=8, sources=2, effect=0.1, noise=0.5, bad=(), shift=0.0):
    """Return documents of blocks with a random effect each; bad ones are off."""
    unit = np.repeat(np.arange(blocks), size)
    source = unit % sources
    between = random.standard_normal(blocks) * effect
    between[list(bad)] += shift
    precision = 1 / (noise**2 * random.uniform(0.5, 2.0, len(unit)))
    mean = between[unit] + random.standard_normal(len(unit)) / np.sqrt(precision) + 0.3 * source
    return documents_of(unit, source + 1, mean, precision)


def documents_of(unit, source, mean, precision):
    """Return residuals of documents with nothing beside them."""
    none = np.zeros(len(unit))
    columns = {"own": unit, "unit": unit, "source": source, "mean": mean, "precision": precision}
    return Documents(**columns, beside=0.0, left_out=0, overlap=none, steps_left_out=0, unknown=none)


@pytest.mark.runs
@pytest.mark.parametrize("effect", [0.0, 0.3])
def test_p_values_of_a_clean_run_are_uniform(effect):
    """The smallest of 100 blocks' p-values, times 100, is at most a in a share a of runs; likewise each of them."""
    least, all_p = [], []
    for seed in range(thinned(300, 60)):
        random = np.random.default_rng(seed)
        found = residual_test(made_documents(random, blocks=100, effect=effect), seed=seed)
        assert found.tested == 100
        p = np.array([one.p for one in found.units])
        least.append(min(1.0, p.min() * 100))
        all_p.append((p <= 0.05).sum())
    least = np.array(least)
    for a in (0.05, 0.2, 0.5):
        share = 1 - (1 - a / 100) ** 100
        assert (least <= a).mean() <= share + 4 * np.sqrt(share * (1 - share) / len(least))
    assert 3.5 <= np.mean(all_p) <= 6.5


@pytest.mark.runs
def test_few_discoveries_are_false_and_most_bad_blocks_are_found():
    """20 bad ones of 10,000, and 20 of 2,000 at several seeds: false discoveries among all, power."""
    random = np.random.default_rng(0)
    bad = random.choice(10_000, 20, replace=False)
    shown = residual_test(made_documents(random, blocks=10_000, bad=bad, shift=1.5), seed=0)
    named = {one.shard for one in shown.units if one.outlier}
    assert len(named & set(bad.tolist())) >= 18
    false, share = 0, []
    for seed in range(thinned(60, 20)):
        random = np.random.default_rng(seed)
        bad = random.choice(2_000, 20, replace=False)
        found = residual_test(made_documents(random, blocks=2_000, bad=bad, shift=1.5), seed=seed)
        named = {one.shard for one in found.units if one.outlier}
        false = len(named - set(bad.tolist()))
        share.append(false / max(1, len(named)))
    assert np.mean(share) <= 0.05 + 4 * np.std(share) / np.sqrt(len(share))


def test_blocks_that_are_lower_are_found_too():
    random = np.random.default_rng(4)
    found = residual_test(made_documents(random, bad=(7,), shift=-1.5))
    assert found.units[0].shard == 7
    assert found.units[0].mean < -1
    assert found.units[0].outlier


def test_what_differs_by_itself_is_not_odd():
    """Blocks far apart by a random effect: none is called odd, though documents alone would say so of most."""
    random = np.random.default_rng(5)
    found = residual_test(made_documents(random, effect=2.0, noise=0.3))
    assert not any(one.outlier for one in found.units)


def test_small_units_and_sources_with_few_are_not_tested():
    random = np.random.default_rng(6)
    made = made_documents(random, blocks=50, sources=1)
    columns = {"unit": [1_000, 1_000], "source": [1, 1], "mean": [9.0, 9.0], "precision": [1.0, 1.0]}
    more = documents_of(**{name: np.append(getattr(made, name), two) for name, two in columns.items()})
    found = residual_test(more)
    assert (found.tested, found.too_small) == (50, 1)
    few = residual_test(made_documents(random, blocks=10, sources=1))
    assert (few.tested, few.too_small, few.units) == (0, 10, ())


def test_the_same_log_gives_the_same_numbers():
    made = made_documents(np.random.default_rng(7))
    assert residual_test(made) == residual_test(made)


def of_documents(world, shards):
    """Return how hard each document is by itself, nats/token: float64[shards, rows]."""
    return np.random.default_rng(world).standard_normal((shards, 4 * BLOCK_ROWS)) * 0.1


def made_stretches(random, *, world=1, steps=600, rows=4, places=4, blocks=60, beside=0.0, bad=None, shift=3.0):
    """Return stretches of rows of several documents; a bad block's loss is off, and its neighbours' with it."""
    number = steps * rows * places
    step = np.repeat(np.arange(1, steps + 1), rows * places)
    shard = random.integers(0, blocks // 4, number)
    row = random.integers(0, 4 * BLOCK_ROWS, number)
    source = shard % 2
    targets = random.integers(20, 200, number)
    start = np.tile(np.arange(places) * 200, steps * rows)
    wrong = np.zeros(number, dtype=bool) if bad is None else (shard == bad[0]) & (row // BLOCK_ROWS == bad[1])
    document = of_documents(world, blocks // 4)[shard, row]
    own = document + random.standard_normal(number) * np.sqrt(20 / targets) + shift * wrong
    carried = np.where(start > 0, np.roll(own, 1), 0.0) * beside
    loss = 3 + 5 / np.sqrt(step) + 0.5 * source + 0.2 * (start == 0) + 3 / targets + own + carried
    zero = np.zeros(number, int)
    return Stretches(
        step=step,
        rank=zero,
        micro_batch=zero,
        batch_row=np.tile(np.repeat(np.arange(rows), places), steps),
        start=start,
        shard=shard,
        row=row,
        offset=zero,
        source=source,
        epoch=zero,
        targets=targets,
        loss=loss,
    )


def test_a_bad_block_is_found_and_its_neighbours_are_not_accused():
    """Without a mask a bad document raises what stands behind it."""
    false, means = 0, []
    for world in range(worlds := thinned(40, 10)):
        stretches = made_stretches(np.random.default_rng(world), world=world, beside=0.3, bad=(3, 2))
        documents = document_residuals(stretches, BLOCK_ROWS)
        assert documents.beside == pytest.approx(0.3, abs=0.06)
        assert documents.left_out > 50
        found = residual_test(documents)
        assert found.units[0].shard == 3 << 40 | 2
        assert found.units[0].outlier
        means.append(found.units[0].mean)
        false += sum(one.outlier for one in found.units[1:]) > 0
    assert false <= most_of(worlds, 0.1)  # one of two discoveries is false in one run of ten, at most
    assert np.mean(means) == pytest.approx(3.0, rel=0.12)  # it lifts the means of its steps and its source a little
    shards = residual_test(document_residuals(stretches, BLOCK_ROWS, shards=True))
    assert shards.tested == 0  # seven or eight of each source: nobody knows how much they differ by themselves


@pytest.mark.runs
def test_with_a_mask_nothing_is_taken_from_neighbours():
    false = 0
    for world in range(worlds := thinned(40, 10)):
        documents = document_residuals(made_stretches(np.random.default_rng(world), world=world), BLOCK_ROWS)
        assert abs(documents.beside) < 0.05
        false += any(one.outlier for one in residual_test(documents).units)
    assert false <= most_of(worlds, 0.05)


def most_of(runs, share):
    """Return how many of so many runs are still no sign that their share is larger (p of 0.001)."""
    return int(stats.binom.isf(0.001, runs, share))


def test_what_predicts_a_loss_is_taken_away():
    """Steps, sources, lengths and places explain all but the documents: what is left has their size."""
    stretches = made_stretches(np.random.default_rng(3))
    documents = document_residuals(stretches, BLOCK_ROWS)
    truth = of_documents(1, 15)
    keys = np.unique(np.stack([stretches.shard, stretches.row]), axis=1)
    true = truth[keys[0], keys[1]]
    assert len(true) == len(documents.mean)
    assert np.corrcoef(true, documents.mean)[0, 1] > 0.6
    assert abs(np.mean(documents.mean)) < 0.05
    counted = document_residuals(replace(stretches, epoch=stretches.epoch - 1), BLOCK_ROWS)  # by the log: -1, -2
    assert np.array_equal(counted.mean, documents.mean)


def burst(random, stretches, *, shard, steps, share=0.4, above=3.0):
    """Give a part of the stretches of some steps to one shard, with losses that are too high; return what is left."""
    inside = np.isin(stretches.step, steps) & (random.random(len(stretches)) < share)
    own = stretches.shard == shard
    loss = stretches.loss + above * (inside | own)
    return replace(stretches, shard=np.where(inside, shard, stretches.shard), loss=loss)


def named(stretches, *, shards=False):
    """Return the units that are named."""
    found = residual_test(document_residuals(stretches, BLOCK_ROWS, shards=shards))
    return {one.shard for one in found.units if one.outlier}, found


@pytest.mark.runs
def test_what_stands_in_a_bad_shards_steps_is_not_pulled_down():
    """A shard is bad in a burst of steps, of which it has two fifths; clean blocks are in these steps, too."""
    false, known, low = 0, 0, []
    for world in range(worlds := thinned(40, 6)):
        random = np.random.default_rng(world)
        stretches = made_stretches(random, world=world, blocks=200)
        steps = np.arange(200, 260)
        stretches = burst(random, stretches, shard=7, steps=steps)
        names, found = named(stretches)
        known += len(names)
        false += len({one for one in names if one >> 40 != 7})
        low += [one.mean for one in found.units if one.shard >> 40 != 7 and one.overlap > 0.5]
    assert known >= worlds
    assert false <= most_of(known, 0.05)
    assert np.mean(low) > -0.15 if low else True


@pytest.mark.runs
def test_a_state_that_moves_sources_by_amounts_of_their_own_accuses_no_unit():
    """Four steps, and what comes after: one source rises by 4 nats, the other by 1."""
    false = 0
    for world in range(worlds := thinned(40, 6)):
        stretches = made_stretches(np.random.default_rng(world), world=world, blocks=200)
        late = np.clip(stretches.step - 300, -1, 40)
        rise = np.where(late >= 0, np.exp(-late / 10), 0.0) * np.where(stretches.source == 1, 4.0, 1.0)
        false += bool(named(replace(stretches, loss=stretches.loss + rise))[0])
    assert false <= most_of(worlds, 0.01)


def test_units_that_are_too_small_are_pooled_before_they_are_given_up():
    """Blocks of one or two documents: the small ones of a shard together; and few units of many sources together."""
    random = np.random.default_rng(2)
    stretches = made_stretches(random, steps=40, blocks=400)
    found = residual_test(document_residuals(stretches, BLOCK_ROWS))
    assert found.pooled > 100
    assert found.too_small < 40
    assert found.tested + found.too_small == len(np.unique(stretches.units(BLOCK_ROWS)))
    many = replace(stretches, source=stretches.shard % 12)
    assert residual_test(document_residuals(many, BLOCK_ROWS, shards=True)).tested > 90


def test_a_unit_that_is_never_beside_another_is_counted_as_not_tested():
    stretches = made_stretches(np.random.default_rng(2), steps=60, blocks=40)
    alone = replace(stretches, shard=stretches.step // 6)
    found = residual_test(document_residuals(alone, BLOCK_ROWS, shards=True))
    assert (found.tested, found.too_small) == (0, 11)


def test_a_block_of_a_source_that_varies_little_is_no_more_odd_than_blocks_of_others():
    """A nat is far among blocks of one source, and usual among those of another; three nats are far beside both."""
    random = np.random.default_rng(3)
    tight = made_documents(random, sources=1, effect=0.05)
    loose = made_documents(random, sources=1, effect=0.4)
    for shift, odd in ((1.0, set()), (3.0, {7})):
        columns = {name: np.concatenate([getattr(tight, name), getattr(loose, name)]) for name in ("mean", "precision")}
        columns["mean"][: len(tight.unit)][tight.unit == 7] += shift
        columns |= {name: np.concatenate([tight.unit, loose.unit + 400]) for name in ("own", "unit")}
        columns |= {name: np.zeros(2 * len(tight.unit)) for name in ("overlap", "unknown")}
        source = np.concatenate([tight.source, loose.source + 1])
        found = residual_test(replace(tight, source=source, **columns))
        assert {one.shard for one in found.units if one.outlier} == odd


@pytest.mark.runs
def test_a_source_that_moves_accuses_no_shard_that_is_alone_in_its_time():
    """Shards are read twelve at a time, and sources are learnt at speeds of their own: what moved is the source."""
    false = 0
    for world in range(worlds := thinned(20, 6)):
        random = np.random.default_rng(world)
        stretches = made_stretches(random, world=world, blocks=240)
        shard = np.minimum(stretches.step * 60 // 660 + random.integers(0, 12, len(stretches)), 59)
        source = random.integers(0, 20, 60)[shard]
        rise = 1.5 * random.standard_normal(20)[source] * np.exp(-stretches.step / 150)
        made = replace(stretches, shard=shard, source=source, loss=stretches.loss + rise)
        false += len(named(made, shards=True)[0])
    assert false <= most_of(worlds, 0.05)
