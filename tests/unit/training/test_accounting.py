"""The division of an excess: exact, as a slow twin has it, with an interval that covers what was planted."""

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples, thinned

from dataaudit.training.attribution.curve import judge
from dataaudit.training.attribution.loss_decomposition import Account, Groups, Stretches, account_of, fit

ROWS, SOURCES = 4, 3


def stretches_of(**columns):
    """Return stretches; columns that are not given are 0."""
    number = len(columns["step"])
    held = {name: np.asarray(columns.get(name, np.zeros(number)), np.int64) for name in Stretches.__slots__}
    return Stretches(**(held | {"loss": np.asarray(columns["loss"], np.float64)}))


def random_stretches(seed, steps, number):
    """Return stretches of some steps, of few shards, rows and sources, merged and unknown ones among them."""
    random = np.random.default_rng(seed)
    size = len(steps) * number
    shard = random.integers(-1, 4, size)
    return stretches_of(
        step=np.repeat(steps, number),
        start=random.integers(0, 300, size),
        shard=shard,
        row=np.where(shard < 0, -1, random.integers(0, 20, size)),
        source=random.integers(-1, SOURCES, size),
        targets=random.integers(1, 300, size),
        loss=random.gamma(8, 0.4, size),
    )


class Slow:
    """The same accounting in plain Python, from its definition."""

    def __init__(self, healthy, level):
        rows = self.rows(healthy)
        total = sum(row["targets"] for row in rows)
        self.mean = sum(row["targets"] * (row["loss"] - at) for row, at in zip(rows, level, strict=True)) / total
        self.offsets = {kind: defaultdict(float) for kind in ("source", "length", "position")}
        rest = [row["loss"] - at - self.mean for row, at in zip(rows, level, strict=True)]
        for _ in range(10):
            for kind, offsets in self.offsets.items():
                own = [one + offsets[row[kind]] for row, one in zip(rows, rest, strict=True)]
                sums = defaultdict(lambda: [0.0, 0.0, 0.0])
                for row, one in zip(rows, own, strict=True):
                    for place, value in enumerate((row["targets"] * one, row["targets"], row["targets"] ** 2)):
                        sums[row[kind]][place] += value
                for key, (weighted, targets, squares) in sums.items():
                    effective = targets**2 / squares
                    offsets[key] = weighted / targets * effective / (effective + 20)
                rest = [one - offsets[row[kind]] for row, one in zip(rows, own, strict=True)]
        self.usual = self.median(
            self.means([((row["step"], row["block"]), row["weight"], one) for row, one in zip(rows, rest, strict=True)])
        )

    @staticmethod
    def rows(stretches):
        names = Stretches.__slots__
        columns = zip(*(getattr(stretches, name).tolist() for name in names), strict=True)
        rows = [dict(zip(names, values, strict=True)) for values in columns]
        totals = defaultdict(int)
        for row in rows:
            totals[row["step"]] += row["targets"]
        for row in rows:
            row["length"], row["position"] = row["targets"].bit_length() - 1, (row["start"] + 1).bit_length() - 1
            row["block"] = "merged" if row["shard"] < 0 else (row["shard"], row["row"] // ROWS)
            row["weight"] = row["targets"] / totals[row["step"]]
        return rows

    def expected(self, row, level):
        return level + self.mean + sum(offsets.get(row[kind], 0.0) for kind, offsets in self.offsets.items())

    @staticmethod
    def means(parts):
        held = defaultdict(list)
        for key, weight, value in parts:
            held[key].append((weight, value))
        return [
            (math.fsum(w for w, _ in one), math.fsum(w * v for w, v in one) / math.fsum(w for w, _ in one))
            for one in held.values()
        ]

    @staticmethod
    def median(pairs):
        ordered, half, below = sorted(pairs, key=lambda one: one[1]), math.fsum(w for w, _ in pairs) / 2, 0.0
        for place, (weight, value) in enumerate(ordered):
            below += weight
            if math.isclose(below, half, rel_tol=1e-9) and place + 1 < len(ordered):
                return (value + ordered[place + 1][1]) / 2
            if below > half:
                return value
        return ordered[-1][1]

    def part(self, stretches, level, shard):
        """Return excess, common part and what a shard adds, its own blocks left out of the median."""
        rows = self.rows(stretches)
        total = sum(row["targets"] for row in rows)
        parts = [
            (row, row["targets"] / total, row["loss"] - self.expected(row, at))
            for row, at in zip(rows, level, strict=True)
        ]
        excess = math.fsum(weight * rest for _, weight, rest in parts)
        others = [(row["block"], weight, rest) for row, weight, rest in parts if row["shard"] != shard]
        common = self.median(self.means(others)) - self.usual
        held = math.fsum(weight * (rest - common) for row, weight, rest in parts if row["shard"] == shard)
        return excess, common, held


def accounted(healthy, level, stretches, at):
    """Return the account of an episode."""
    expectation = fit(healthy, level, SOURCES, ROWS)
    return Account(
        stretches=stretches,
        weights=stretches.targets / stretches.targets.sum(),
        residuals=stretches.loss - expectation.of(stretches, at),
        expectation=expectation,
        block_rows=ROWS,
        band=0.5,
        line_variance=0.0,
    )


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 30))
def test_it_is_what_the_slow_twin_has(seed, steps, number):
    """Excess, common part, and the part of a shard; and parts with the common part are the excess, to 1e-9."""
    healthy, stretches = (random_stretches((seed, one), np.arange(1, steps + 1), number) for one in (0, 1))
    level, at = 2.0 + 0.01 * healthy.step, 2.0 + 0.02 * stretches.step
    account, slow = accounted(healthy, level, stretches, at), Slow(healthy, level.tolist())
    shard = int(stretches.shard[0])
    own = stretches.shard == shard
    common = account.common()
    assert math.isclose(common + math.fsum(account.parts(common)), account.excess, rel_tol=1e-9, abs_tol=1e-9)
    if own.all():
        assert math.isnan(account.part(own).rest)
        return
    part = account.part(own)
    expected = slow.part(stretches, at.tolist(), shard)
    assert (account.excess, part.common, part.excess) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    rest = part.common + math.fsum(account.parts(part.common)[~own])
    assert part.excess + rest == pytest.approx(account.excess, abs=1e-9)
    assert part.weight * part.mean + (1 - part.weight) * part.rest == pytest.approx(account.excess, abs=1e-9)


def test_offsets_are_found_and_shrunk():
    """A source with a thousand stretches has nearly its own mean, one with twenty half of it, a new one none."""
    random = np.random.default_rng(1)
    source = np.repeat([0, 1], [2000, 20])
    loss = 3.0 + np.where(source == 1, 2.0, 0.0) + random.normal(size=len(source)) * 0.05
    healthy = stretches_of(step=np.arange(len(source)), targets=np.full(len(source), 64), source=source, loss=loss)
    found = fit(healthy, np.full(len(source), 3.0), SOURCES, ROWS)
    asked = stretches_of(step=[1] * 4, targets=[64] * 4, source=[0, 1, 2, -1], loss=[0.0] * 4)
    known, few, new, unnamed = found.of(asked, np.full(4, 3.0))
    assert known == pytest.approx(3.0, abs=0.02)
    assert few == pytest.approx(4.0, abs=0.15)
    assert new == unnamed == pytest.approx(3.0, abs=0.15)
    assert found.past_of(asked).tolist() == [2 * 990, 20, 0, 0], "twice those of the newer half, and at most all"


def test_healthy_units_that_are_compared_are_as_heavy_or_the_heaviest():
    weights, means = np.array([0.5, 0.4, 0.1, 0.1]), np.array([0.0, 2.0, 3.0, 0.5])
    for weight, least, of, bound in ((0.4, 2, [0.0, 2.0], 0.4), (0.9, 2, [0.0, 2.0], 0.4), (0.9, 4, means, 0.1)):
        units = Groups(unit=np.arange(4), weight=weights, mean=means, inverse=np.arange(4))
        like, lightest = units.as_heavy(weight, least)
        assert (like.tolist(), lightest) == (list(of), bound)


def simulated(seed, *, steps, rows, state, skewed):
    """Return the true share of a planted shard, and the account of the episode, with a line that the detector fitted.

    24 stretches a step, of three to a row; their losses differ by source and place, and have a spread that falls with
    length; of the episode's steps, some rows are of shard 5 and 3 nats too high, and all are too high by the state.
    """
    random = np.random.default_rng(seed)
    healthy, width, places = 100, 8, 3
    many = healthy + steps
    cuts = np.sort(random.integers(1, 511, (many, width, places - 1)), axis=2) + np.arange(places - 1)
    edges = np.concatenate([np.zeros((many, width, 1), int), cuts, np.full((many, width, 1), 513)], axis=2)
    start, targets = edges[..., :-1].reshape(many, -1), np.diff(edges, axis=2).reshape(many, -1)
    shape = targets.shape
    step = np.broadcast_to(np.arange(1, many + 1)[:, None], shape)
    source, shard = random.integers(0, 2, shape), random.integers(0, 12, shape)
    noise = random.gamma(4, 0.5, shape) - 2 if skewed else random.normal(size=shape)
    loss = 2.5 + 2 * (step + 30.0) ** -0.5 - 0.6 * (source == 0) + 0.3 * (start == 0)
    loss = loss + noise * 0.25 * np.sqrt(0.3 + 70 / (100 + targets))
    late = step > healthy
    bad = late & (np.arange(shape[1]) // places < rows)
    loss, shard = loss + 3.0 * bad + state * late, np.where(bad, 5, shard)
    total = np.where(late, targets, 0).sum()
    planted = 3.0 * np.where(bad, targets, 0).sum() / total
    columns = {"step": step, "start": start, "shard": shard, "source": source, "targets": targets, "loss": loss}
    columns["row"] = random.integers(0, 4000, shape)
    flat = stretches_of(**{name: column.ravel() for name, column in columns.items()})
    by_step = np.arange(1, many + 1)
    value = (targets * loss).sum(axis=1) / targets.sum(axis=1)
    parts = flat.take(flat.step > healthy), flat.take(flat.step <= healthy)
    account, _, _ = account_of(*parts, judge(by_step, value), 2, ROWS)
    return planted / (planted + state), account


@pytest.mark.torch
@pytest.mark.parametrize("case", [(1, 3, 0.0, False), (8, 2, 0.3, False), (8, 2, 0.3, True)])
def test_the_interval_covers_what_was_planted(case):
    """93 to 97 % of them in 2,000 runs, as docs/reference/attribution.md says; of the fewer here, within chance."""
    steps, rows, state, skewed = case
    number, hits = thinned(2_000, 150), 0
    for seed in range(number):
        truth, account = simulated(seed, steps=steps, rows=rows, state=state, skewed=skewed)
        own = account.stretches.shard == 5
        low, high = account.interval(own, account.part(own))
        hits += low <= truth <= high
    slack = 2.5 * math.sqrt(0.95 * 0.05 / number)
    assert min(0.93, 0.95 - slack) <= hits / number <= max(0.97, 0.95 + slack)


def test_the_interval_has_no_bounds_where_nothing_else_is_there():
    healthy = random_stretches(1, np.arange(1, 9), 10)
    alone = stretches_of(step=[9, 9], targets=[10, 10], loss=[5.0, 5.0], shard=[2, 2])
    account = accounted(healthy, np.full(len(healthy), 3.0), alone, np.full(2, 3.0))
    own = np.ones(2, bool)
    assert account.interval(own, account.part(own)) is None
