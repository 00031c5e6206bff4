"""The detector by composition: against slow twins, what it sees that the loss alone hides, its state, its alarms."""

import json
import math

import numpy as np
import pytest

from dataaudit.training.attribution.spikes import SpikeDetector
from dataaudit.training.attribution.step_detector import SCALES, Composition, Segments, StepDetector

SOURCES = 4
LEVELS = np.array([0.0, 0.5, 1.5, -0.6])
"""What sources cost beyond the level."""


def made_step(drawn, step, *, documents=24, rise=0.0, bad=0, noise=0.3):
    """Return the segments of a step: sources in shares that wander, documents off by themselves, some of them bad."""
    shares = np.exp(1.2 * drawn.normal(size=SOURCES))
    source = drawn.choice(SOURCES, documents, p=shares / shares.sum())
    targets = drawn.integers(20, 120, documents)
    loss = 2 + 3 * (step + 20.0) ** -0.3 + LEVELS[source] + noise * drawn.normal(size=documents)
    loss[:bad] += rise
    row = drawn.integers(0, 1 << 20, documents)
    return Segments(source, row, source, drawn.integers(0, 500, documents), targets, loss)


def loss_of(segments):
    return float(np.average(segments.loss, weights=segments.targets))


def made_run(steps, seed=0, bursts=()):
    """Return the segments of steps from 1; bursts are first and last step, rise and bad documents."""
    drawn = np.random.default_rng(seed)
    found = []
    for step in range(1, steps + 1):
        own = next((held[2:] for held in bursts if held[0] <= step <= held[1]), (0.0, 0))
        found.append(made_step(drawn, step, rise=own[0], bad=own[1]))
    return found


def seen(run, detector=None, first=1):
    detector = detector or StepDetector(SOURCES)
    return [detector.see(step, loss_of(held), held) for step, held in enumerate(run, first)]


def flagged(verdicts, first=1):
    """Return flagged steps, with those that were judged together with one."""
    found = set()
    for step, one in enumerate(verdicts, first):
        if one.flagged:
            found |= set(range(one.since or step, step + 1))
    return found


def chance(composition, segments):
    return composition.chance(composition.coded(segments))


def slow_offsets(run, levels):
    """Return the offsets of sources, lengths and places, cell by cell in plain Python."""
    cells = {}
    for number, (segments, level) in enumerate(zip(run, levels, strict=True), 1):
        kept = 1 - 1 / min(max(number / 2, 20), 300)
        cells = {key: [value * kept for value in held] for key, held in cells.items()}
        mean = sum(segments.targets.tolist()) / len(segments.targets)
        columns = zip(*(one.tolist() for one in segments[2:]), strict=True)
        for source, start, targets, loss in columns:
            key = source + 1, int(math.log2(targets)), int(math.log2(start + 1))
            held = cells.setdefault(key, [0.0, 0.0, 0.0])
            weight = targets / mean
            for place, value in enumerate((weight, weight**2, weight * (loss - level))):
                held[place] += value
    mean = sum(held[2] for held in cells.values()) / sum(held[0] for held in cells.values())
    offsets = [{}, {}, {}]
    for _ in range(4):
        for axis in range(3):
            for code in {key[axis] for key in cells}:
                own = {key: held for key, held in cells.items() if key[axis] == code}
                weight, square = (sum(held[place] for held in own.values()) for place in (0, 1))
                rest = sum(
                    held[2] - held[0] * (mean + sum(offsets[one].get(key[one], 0.0) for one in {0, 1, 2} - {axis}))
                    for key, held in own.items()
                )
                number = weight**2 / square
                offsets[axis][code] = rest / weight * number / (number + 20)
    return mean, offsets


class TestComposition:
    def test_offsets_are_those_of_the_slow_twin(self):
        run, composition = made_run(30), Composition(SOURCES)
        levels = [3.0 - 0.01 * step for step in range(30)]
        for held, level in zip(run, levels, strict=True):
            composition.learn(composition.coded(held), level)
        mean, (source, length, place) = slow_offsets(run, levels)
        held = run[0]
        codes = zip((held.source + 1).tolist(), held.targets.tolist(), held.start.tolist(), strict=True)
        slow = [
            mean
            + source.get(one, 0.0)
            + length.get(int(math.log2(targets)), 0.0)
            + place.get(int(math.log2(start + 1)), 0.0)
            for one, targets, start in codes
        ]
        assert composition.coded(held).expected == pytest.approx(slow, abs=1e-9)

    def test_a_dear_source_raises_no_residual(self):
        composition = Composition(SOURCES)
        for held in map(composition.coded, made_run(200)):
            composition.learn(held, composition.residual(held))
        held = composition.coded(made_step(np.random.default_rng(9), 1, documents=400))
        by_source = [float(held.expected[held.source == one + 1].mean()) for one in range(SOURCES)]
        assert np.subtract(by_source, by_source[0]) == pytest.approx(LEVELS, abs=0.2)

    def test_few_documents_and_sources_that_vary_have_more_chance(self):
        """One document off in 20 steps of 24 moves what its source varies by no further than the cap."""
        composition = Composition(SOURCES)
        for held in map(composition.coded, made_run(200)):
            composition.learn(held, composition.residual(held))
        drawn = np.random.default_rng(5)
        few, many = (chance(composition, made_step(drawn, 1, documents=number)) for number in (6, 96))
        assert 0.8 * 0.3 / math.sqrt(6) < few < 2 * 0.3 / math.sqrt(6)
        assert 0.8 * 0.3 / math.sqrt(96) < many < 0.6 * few
        unread = made_step(drawn, 1, documents=96)._replace(source=np.full(96, -1))
        assert chance(composition, unread) > 0.25
        level = composition.residual(composition.coded(made_step(drawn, 200, documents=400)))
        for _ in range(20):
            composition.learn(composition.coded(made_step(drawn, 200, rise=50.0, bad=1)), level)
        assert chance(composition, made_step(drawn, 1, documents=96)) < 2 * many

    def test_a_source_without_a_name_and_lengths_beyond_the_largest_are_learnt_too(self):
        composition = Composition(0)
        one = np.array([1 << 40]), np.array([-1]), np.array([7]), np.array([1 << 30]), np.array([1 << 31])
        composition.learn(composition.coded(Segments(*one, np.array([2.0]))), 2.0)
        assert composition.coded(Segments(*one, np.array([9.0]))).expected == pytest.approx([0.0])


class TestSeen:
    def test_what_segments_are_is_looked_up_once_a_step(self, monkeypatch):
        number, own = [], Composition.coded
        monkeypatch.setattr(Composition, "coded", lambda *given: number.append(1) or own(*given))
        seen(made_run(150))
        assert len(number) == 150

    def test_composition_explains_what_the_loss_alone_takes_for_noise(self):
        verdicts, alone = seen(made_run(400)), SpikeDetector()
        band = [alone.see(step, one.value).limit for step, one in enumerate(verdicts, 1)][-1]
        single, five, _, twenty = verdicts[-1].limits
        assert single < 0.7 * band
        assert five < single / 1.5
        assert twenty < five

    @pytest.mark.parametrize(("rise", "bad", "last", "kind"), [(1.4, 6, 323, "loss_spike"), (-1.4, 6, 323, "loss_dip")])
    def test_a_plateau_that_no_step_shows_is_one_episode(self, rise, bad, last, kind):
        run = made_run(400, bursts=[(304, last, rise, bad)])
        alone = SpikeDetector()
        assert not any(alone.see(step, loss_of(held)).flagged for step, held in enumerate(run, 1))
        verdicts = seen(run)
        steps = sorted(flagged(verdicts))
        assert {one.kind for one in verdicts if one.flagged} == {kind}
        assert len(steps) >= 14
        assert 295 <= steps[0] <= 308
        assert 313 <= steps[-1] <= last + 4
        assert max(np.diff(steps)) <= 11

    def test_steps_of_one_shard_are_judged_alone(self):
        run = [one._replace(shard=np.zeros_like(one.shard)) for one in made_run(400, bursts=[(304, 323, 1.4, 6)])]
        assert all(one.since == step for step, one in enumerate(seen(run), 1) if one.flagged)

    def test_a_step_far_off_is_seen_alone(self):
        verdicts = seen(made_run(300, bursts=[(250, 250, 3.0, 12)]))
        assert flagged(verdicts) == {250}
        assert verdicts[249].since == 250

    def test_a_new_level_is_one_after_fifty_flags(self):
        verdicts = seen(made_run(320, bursts=[(200, 400, 3.0, 24)]))
        kinds = [one.kind for one in verdicts[199:]]
        assert kinds[:49] == ["loss_spike"] * 49
        assert kinds[49] == "level_shift"
        assert set(kinds[50:]) == {""}

    def test_what_is_no_number_is_flagged_at_once(self):
        detector = StepDetector(SOURCES)
        run = made_run(80)
        seen(run, detector)
        assert detector.see(81, math.nan, run[0]).kind == "not_finite"

    def test_steps_without_segments_are_judged_by_their_loss_alone(self):
        detector, alone = StepDetector(SOURCES), SpikeDetector()
        for step, held in enumerate(made_run(120, bursts=[(100, 100, 9.0, 24)]), 1):
            found, other = detector.see(step, loss_of(held)), alone.see(step, loss_of(held))
            assert (found.kind, found.limits) == (other.kind, ())

    def test_the_loops_own_loss_may_hold_more_than_its_segments(self):
        run = made_run(200, bursts=[(180, 180, 3.0, 16)])
        detector = StepDetector(SOURCES)
        kinds = [detector.see(step, loss_of(held) + 0.7, held).kind for step, held in enumerate(run, 1)]
        assert kinds[179] == "loss_spike"
        assert kinds.count("") == 149


class TestState:
    @pytest.mark.parametrize("at", [10, 30, 70, 131, 137, 200])
    def test_a_run_that_is_resumed_goes_on_to_the_bit(self, at):
        run = made_run(230, bursts=[(130, 140, 2.0, 8)])
        detector = StepDetector(SOURCES)
        whole = seen(run, detector)
        before = StepDetector(SOURCES)
        seen(run[:at], before)
        after = StepDetector.from_state(json.loads(json.dumps(before.state())))
        assert list(map(repr, seen(run[at:], after, at + 1))) == list(map(repr, whole[at:]))
        assert json.dumps(after.state()) == json.dumps(detector.state())

    def test_a_step_that_comes_again_takes_the_place_of_later_ones(self):
        run = made_run(150)
        detector = StepDetector(SOURCES)
        seen(run, detector)
        detector.see(101, loss_of(run[100]), run[100])
        assert [row[0] for row in detector.state()["line"]][-1] == 101
        assert detector.past == 51


class TestAlarms:
    @pytest.mark.runs
    @pytest.mark.parametrize("noise", ["normal", "skewed"])
    def test_healthy_runs_have_one_episode_in_ten_thousand_steps(self, noise):
        """Four runs of 1,000 steps: 0.4 episodes are expected, three or more come in 1 of 100 draws."""
        number = 0
        for seed in range(4):
            drawn = np.random.default_rng(100 + seed)
            detector, before = StepDetector(SOURCES), -100
            for step in range(1, 1_001):
                held = made_step(drawn, step, noise=0.0)
                errors = drawn.normal(size=24) if noise == "normal" else drawn.gamma(4, 0.5, 24) - 2
                held = held._replace(loss=held.loss + 0.3 * errors)
                if detector.see(step, loss_of(held), held).flagged:
                    number += step - before > SCALES[-1]
                    before = step
        assert number <= 2
