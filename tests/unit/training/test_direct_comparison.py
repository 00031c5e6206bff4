"""The direct test holds its rate: on clean units, on units that are hard together, with tails of several kinds."""

import math

import numpy as np
import pytest
from lanes import sample, thinned

from dataaudit.training.replay.direct_comparison import compare_units, direct, one_sided
from dataaudit.training.replay.protocol import Candidates

DOCUMENTS = 12


def losses(random, units, *, effect="normal", above=0.0, checkpoints=3):
    """Return losses by checkpoint, units and strata of documents; unit 0 is the suspect."""
    sizes = random.integers(6, 2 * DOCUMENTS, units)
    unit = np.repeat(np.arange(units), sizes)
    strata = random.integers(0, 3, len(unit))
    own = {
        "normal": lambda: random.normal(size=units),
        "t5": lambda: random.standard_t(5, units),
        "skewed": lambda: random.exponential(size=units),
        "decoys": lambda: random.normal(size=units) + 4.0 * (random.random(units) < 0.05),
    }[effect]()
    base = 2.5 + 0.3 * strata + 0.15 * own[unit] + random.normal(size=len(unit)) * 0.3
    base[unit == 0] += above
    found = base + random.normal(size=(checkpoints, 1)) * 0.2 + random.normal(size=(checkpoints, len(unit))) * 0.05
    return found, unit, strata


@pytest.mark.runs
@pytest.mark.parametrize("effect", sample(["normal", "skewed", "decoys", "t5"], 2))
def test_p_is_uniform_on_clean_units_hard_ones_among_them(effect):
    number = thinned(4_000, 250)
    random = np.random.default_rng(1)
    p = np.array([compare_units(*losses(random, 60, effect=effect))[1]["p"] for _ in range(number)])
    for level in (0.01, 0.05, 0.1, 0.25, 0.5):
        error = math.sqrt(level * (1 - level) / number)
        assert (p <= level).mean() <= level + 4 * error
    assert (p <= 0.5).mean() >= 0.5 - 4 * math.sqrt(0.25 / number) - 0.05  # and not empty of meaning


def test_the_worst_of_many_clean_units_is_not_called_odd_more_often_than_stated():
    """Hard ones are a twentieth, and whoever is named was the worst of 30: p times 30, at 0.05, is held."""
    random, number, called = np.random.default_rng(2), thinned(400, 40), 0
    for _ in range(number):
        table, unit, strata = losses(random, 100, effect="decoys")
        scores = np.bincount(unit, table.mean(axis=0)) / np.bincount(unit)
        worst = int(np.argmax(scores[:30]))
        swapped = np.where(unit == worst, 0, np.where(unit == 0, worst, unit))
        called += compare_units(table, swapped, strata)[1]["p"] * 30 <= 0.05
    assert called <= 0.05 * number + 4 * math.sqrt(0.05 * 0.95 * number)


@pytest.mark.parametrize("above", [3.0, -3.0])
def test_what_is_far_off_is_found(above):
    random = np.random.default_rng(3)
    found = [compare_units(*losses(random, 60, above=above))[1] for _ in range(20)]
    assert all(test["p"] < 1e-3 for test in found)
    assert all(np.sign(test["effect"]) == np.sign(above) for test in found)


@pytest.mark.runs
def test_the_interval_holds_the_mean_over_control_units_and_checkpoints():
    """Control units and checkpoints are drawn anew; the suspect and its true distance stay."""
    random, number, held = np.random.default_rng(4), thinned(2_000, 150), 0
    for _ in range(number):
        units, checkpoints = 40, 3
        effects = np.concatenate([[0.7], 0.15 * random.normal(size=units)])
        steps = random.normal(size=checkpoints) * 0.1
        unit = np.repeat(np.arange(units + 1), DOCUMENTS)
        table = 2.5 + effects[unit] + random.normal(size=len(unit)) * np.where(unit > 0, 0.3, 0.0)
        table = table + (unit == 0) * steps[:, None]
        low, high = compare_units(table, unit, np.zeros(len(unit), np.int64))[1]["interval"]
        held += low <= 0.7 <= high
    assert held / number >= 0.95 - 4 * math.sqrt(0.05 * 0.95 / number)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("units", [25, 60, 150])
def test_the_tail_holds_its_rate_where_a_few_units_are_hard(units, share):
    random, number = np.random.default_rng(5), thinned(40_000, 3_000)
    drawn = random.normal(size=(number, units + 1)) + 4 * (random.random((number, units + 1)) < share)
    p = np.array([min(one_sided(one[0], one[1:]), one_sided(-one[0], -one[1:])) for one in drawn]) * 2
    for level in (0.001, 0.01, 0.05):
        assert (p <= level).mean() <= level + 4 * math.sqrt(level / number)


class Scored:
    """A replay that only scores: losses by a law, odd documents above it; each step reads the next documents."""

    def __init__(self, units=60, size=10, above=0.0, checkpoints=(10, 20, 30, 40), seed=0):
        random = np.random.default_rng(seed)
        number = units * size
        self.checkpoints = checkpoints
        self.documents = Candidates(
            shard=np.repeat(np.arange(units), size),
            row=np.tile(np.arange(size), units),
            source=np.zeros(number, np.int64),
            tokens=random.integers(64, 128, number),
            language=np.zeros(number, np.int64),
        )
        self.loss = 3 + random.normal(size=number) * 0.3 + 0.1 * random.normal(size=units)[self.documents.shard]
        self.loss[self.documents.shard == units - 1] += above
        self.at, self.asked = None, []

    def restore(self, step):
        self.at = step

    def score(self, documents):
        self.asked.append((self.at, documents))
        return self.loss[documents] - 0.01 * self.at


def in_turn(made, a_step=10):
    """Return first reads when so many documents are read each step, in their order."""
    return 1 + np.arange(len(made.documents)) // a_step


def compared(made, shard, a_step=10, **more):
    """Compare the documents of a shard with those of others."""
    suspects = np.flatnonzero(made.documents.shard == shard)
    return direct(made, suspects, made.documents.shard, first=in_turn(made, a_step), **more)


class TestDirect:
    def test_odd_documents_are_found_at_checkpoints_from_before_they_were_read(self):
        made = Scored(above=2.0)
        found = compared(made, 59)
        assert found.outcome == "outlier_data"
        assert found.checkpoints == (10, 20, 30)  # at 40 fewer than 20 controls were unread
        assert 1.5 < found.effect < 2.5
        assert found.interval[0] < found.effect < found.interval[1]
        for step, documents in made.asked:
            assert (in_turn(made)[documents] > max(found.checkpoints)).all()
            assert step in found.checkpoints

    def test_being_named_among_many_costs(self):
        made = Scored(above=2.0)
        alone, many = compared(made, 59), compared(made, 59, among=1_000_000)
        assert (alone.outcome, many.outcome) == ("outlier_data", "undecided")
        assert many.p == alone.p
        assert many.smallest_p * many.among > 0.01

    @pytest.mark.parametrize(
        ("change", "reason"),
        [({"checkpoints": (10, 20)}, "checkpoints"), ({"units": 15, "checkpoints": (1, 2, 3)}, "controls")],
    )
    def test_too_little_is_said_by_name(self, change, reason):
        made = Scored(**change)
        found = compared(made, made.documents.shard.max())
        assert (found.outcome, found.reason) == ("not_evaluated", reason)

    def test_what_was_read_before_three_checkpoints_is_not_judged(self):
        assert compared(Scored(above=2.0), 12).reason == "checkpoints"

    def test_suspects_of_another_length_have_no_controls(self):
        made = Scored(above=2.0)
        suspects = np.flatnonzero(made.documents.shard == 59)
        made.documents.tokens[suspects] = 5_000
        found = compared(made, 59)
        assert (found.outcome, found.reason, found.unmatched) == ("not_evaluated", "suspects", len(suspects))


def blocks_of(made, rows=5):
    """Return the block of each document."""
    return (made.documents.shard << 40) | (made.documents.row // rows)


class TestControls:
    """Who a suspect is compared with, and what is said where they cannot tell."""

    def test_no_block_of_a_suspects_shard_is_its_control(self):
        """A shard of twenty bad blocks beside clean ones of thirty shards."""
        made = Scored(units=30, size=100, checkpoints=(1, 2, 3))
        bad = made.documents.shard == 29
        made.loss[bad] += 3.0
        suspects = np.flatnonzero(bad & (made.documents.row < 5))
        found = direct(made, suspects, blocks_of(made), first=in_turn(made, 50))
        assert found.outcome == "outlier_data"
        assert found.p < 1e-4
        scored = np.unique(np.concatenate([documents for _, documents in made.asked]))
        assert not np.isin(scored, np.setdiff1d(np.flatnonzero(bad), suspects)).any()

    @pytest.mark.parametrize("above", [3.0, -3.0])
    @pytest.mark.parametrize("others", [0, 4, 8])
    @pytest.mark.parametrize("among", [1, 300, 100_000])
    def test_what_is_far_off_is_never_called_usual(self, above, others, among):
        """Bad units among the controls, and being named among many, hide it from p: then that is said."""
        made = Scored(units=40, above=above, checkpoints=(1, 2, 3))
        made.loss[np.isin(made.documents.shard, np.arange(20, 20 + others))] += above
        found = compared(made, 39, 50, among=among)
        assert found.outcome in ("outlier_data", "undecided")
        if found.outcome == "undecided":
            assert found.smallest_p * among > 0.01
            assert abs(found.effect) > found.usual

    @pytest.mark.runs
    def test_clean_units_are_usual_and_few_are_undecided(self):
        clean = (Scored(units=40, checkpoints=(1, 2, 3), seed=seed) for seed in range(40))
        outcomes = [compared(made, 39, 50, among=30).outcome for made in clean]
        assert "outlier_data" not in outcomes
        assert outcomes.count("undecided") <= 3

    def test_controls_are_looked_for_by_steps_and_what_that_costs_is_kept(self):
        """A script of its own: same source and length; a source of its own, too: same length alone."""
        for own_source, matched in ((0, ("source", "length")), (1, ("length",))):
            made = Scored(units=40, above=3.0, checkpoints=(1, 2, 3))
            suspects = np.flatnonzero(made.documents.shard == 39)
            made.documents.language[suspects] = 7
            made.documents.source[suspects] = own_source
            found = compared(made, 39, 50)
            assert (found.outcome, found.matched) == ("unlike_others", matched)
            assert found.unmatched == 0
        found = compared(Scored(units=40, above=3.0, checkpoints=(1, 2, 3)), 39, 50)
        assert (found.outcome, found.matched) == ("outlier_data", ("source", "language", "length"))

    def test_a_few_documents_of_the_usual_language_do_not_stand_for_all(self):
        made = Scored(units=40, above=3.0, checkpoints=(1, 2, 3))
        suspects = np.flatnonzero(made.documents.shard == 39)
        made.documents.language[suspects[3:]] = 7
        found = compared(made, 39, 50)
        assert (found.matched, found.documents) == (("source", "length"), len(suspects))
