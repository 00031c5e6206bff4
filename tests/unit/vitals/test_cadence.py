"""Which layers are measured when: bounds of the rotation, a budget that settles in noise, escalation, checkpoints."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from lanes import thinned

from dataaudit.vitals.cadence import BARE, PRESETS, SHARE, Budget, Cadence, Preset, plan, rotation

MODELS = {
    "one_layer": [7],
    "four_equal": [100] * 4,
    "twelve_equal": [100] * 12,
    "embedding_first": [5000, *[100] * 24],
    "uneven": [1, 900, 3, 50, 50, 50, 2000, 1, 1, 700],
    "forty_eight": [100] * 48,
}


def due(step, elements, every):
    return plan(step, rotation(elements), every)


@pytest.fixture(params=MODELS)
def elements(request):
    return MODELS[request.param]


@pytest.mark.parametrize("every", [1, 2, 16])
def test_every_layer_is_measured_within_the_stated_steps(elements, every):
    slots = len(rotation(elements))
    within = slots * every if every > 1 else slots + -(-slots // (BARE - 1))
    seen = {layer: [0] for layer in range(len(elements))}
    for step in range(1, 4 * within + 1):
        for layer in due(step, elements, every):
            seen[layer].append(step)
    for steps in seen.values():
        assert max(np.diff([*steps, 4 * within + 1])) <= within


def test_a_step_reads_at_most_an_eighth_or_one_larger_layer(elements):
    room = SHARE * sum(elements)
    for slot in rotation(elements):
        assert sum(elements[one] for one in slot) <= room or len(slot) == 1


def test_the_mean_of_a_round_is_at_most_an_eighth(elements):
    slots = rotation(elements)
    assert sorted(one for slot in slots for one in slot) == list(range(len(elements)))
    assert sum(elements) / len(slots) <= SHARE * sum(elements) * (1 + 1e-9)


def test_at_any_step_an_eighth_of_a_pass_a_step_was_read_and_at_most_one_layer_more(elements):
    read = 0
    for step, slot in enumerate(rotation(elements), 1):
        read += sum(elements[one] for one in slot)
        assert read <= SHARE * sum(elements) * (step - 1) * (1 + 1e-9) + max(*elements, SHARE * sum(elements))


def test_forty_eight_equal_layers_are_eight_slots_of_six():
    assert [len(slot) for slot in rotation([100] * 48)] == [6] * 8


def test_what_is_due_follows_from_the_step_alone(elements):
    forward = [due(step, elements, 4) for step in range(1, 200)]
    assert [due(step, elements, 4) for step in reversed(range(1, 200))] == forward[::-1]


def test_one_step_in_sixteen_is_bare_where_every_step_would_be_measured():
    bare = [step for step in range(1, 161) if not due(step, [100] * 48, 1)]
    assert bare == list(range(BARE, 161, BARE))


def test_after_an_escalation_the_rotation_goes_on_where_it_would_have_been():
    cadence, other = Cadence([100] * 48, "medium"), Cadence([100] * 48, "medium")
    decided = cadence.escalate(100, 10)
    assert (decided["first"], decided["last"], decided["layers"]) == (101, 110, None)
    assert [len(cadence.due(step)) for step in (99, 101, 110, 111)] == [0, 48, 48, 0]
    assert [cadence.due(step) for step in range(111, 300)] == [other.due(step) for step in range(111, 300)]


def test_after_an_escalation_it_rests_as_long():
    cadence = Cadence([100] * 4)
    assert cadence.escalate(100, 10) is not None
    assert [cadence.escalate(step, 10) for step in (100, 105, 110, 120)] == [None] * 4
    assert cadence.escalate(121, 10)["first"] == 122


def simulate(
    cost: float, preset: Preset, steps: int, *, noise: float = 0.03, drift: float = 0.0, seed: int = 0
) -> tuple[Cadence, list[dict]]:
    """Return a cadence and its decisions after steps of 1 s, and ``cost`` seconds more where something is measured.

    Times have the tails of a Student's t of 3 degrees of freedom.
    """
    rng = np.random.default_rng(seed)
    cadence = Cadence([100] * 48, preset)
    said = []
    for step in range(1, steps + 1):
        seconds = 1 + noise * rng.standard_t(3) + (cost if cadence.due(step) else 0)
        said.append(cadence.see(step, max(seconds, 0.1) * (1 + drift * step / steps)))
    return cadence, [one for one in said if one]


@pytest.mark.parametrize("seed", range(thinned(4, 1)))
@pytest.mark.parametrize("cost", [0.002, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("name", ["nano", "medium", "large"])
def test_the_cost_settles_below_the_budget_without_oscillation(name, cost, seed):
    """Step times of heavy tails, 3 %, that double over the run."""
    preset = PRESETS[name]
    cadence, said = simulate(cost, preset, 12_000, drift=1.0, seed=seed)
    every = cadence.budget.every
    assert 100 * cost * (1 / every if every > 1 else 1 - 1 / BARE) <= preset.percent * 1.1
    ways = [one["every"] > one["every_before"] for one in said]
    assert sum(one != other for one, other in itertools.pairwise(ways)) <= 2


def test_a_cadence_that_is_too_dear_is_slower_at_once_and_says_why():
    _, said = simulate(0.5, PRESETS["nano"], 400, noise=0.01)
    assert said[0]["step"] <= BARE * 17
    assert (said[0]["every_before"], said[0]["every"]) == (1, 32)
    assert said[0]["percent"] == pytest.approx(47, abs=1)
    assert said[0]["budget_percent"] == 3.0
    json.dumps(said)


def test_a_cadence_that_costs_nothing_becomes_as_fast_as_it_may():
    cadence, said = simulate(0.0, Preset(every=16, fastest=2, slowest=64, percent=1.0), 6000, noise=0.001)
    assert cadence.budget.every == 2
    assert [one["every"] for one in said] == [8, 4, 2]


def test_a_cost_that_no_cadence_meets_is_said_once():
    cadence, said = simulate(5.0, Preset(every=4, fastest=1, slowest=8, percent=1.0), 3000, noise=0.01)
    assert cadence.budget.every == 8
    assert [one.get("slowest", False) for one in said] == [False, True]


def test_a_faster_cadence_that_proved_too_dear_is_tried_again_later_and_later():
    """What is measured costs four times as much where every second step is: the estimate cannot know."""
    budget = Budget(Preset(every=4, fastest=2, slowest=64, percent=1.0))
    tried = []
    for step in range(1, 40_000):
        measured = step % budget.every == 0
        cost = 0.04 if budget.every == 2 else 0.01
        decided = budget.see(step, 1 + cost * measured, measured=measured)
        if decided and decided["every"] == 2:
            tried.append(step)
    waits = np.diff(tried)
    assert len(tried) >= 4
    assert (waits[1:] > 1.5 * waits[:-1]).all()


def test_escalated_steps_are_not_counted():
    cadence = Cadence([100] * 48, "nano")
    cadence.escalate(0, 2000)
    assert all(cadence.see(step, 9.0 if step % BARE else 1.0) is None for step in range(1, 2001))


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_times_that_are_none_are_passed_over(seconds):
    budget = Budget(PRESETS["nano"])
    before = budget.state()
    assert budget.see(1, seconds, measured=False) is None
    assert budget.state() == before


@pytest.mark.parametrize("stop", [100, 300, 1_000])
def test_a_run_that_goes_on_measures_and_decides_the_same(stop):
    seconds = 1 + 0.05 * np.random.default_rng(3).random(3000)

    def go(cadence: Cadence, first: int, last: int) -> list:
        made = []
        for step in range(first, last):
            due = cadence.due(step)
            made.append((due, cadence.see(step, seconds[step] + 0.08 * bool(due))))
            made.append(cadence.escalate(step, 20) if step % 290 == 0 else None)
        return made

    whole = go(Cadence([100] * 48), 1, 3000)
    first = Cadence([100] * 48)
    begun = go(first, 1, stop)
    again = Cadence([100] * 48).load(json.loads(json.dumps(first.state())))
    assert again.state() == first.state()
    assert begun + go(again, stop, 3000) == whole
    assert any(one for one in whole if isinstance(one, tuple) and one[1])


def test_wrong_use_is_refused():
    with pytest.raises(ValueError, match="has elements"):
        Cadence([])
    with pytest.raises(ValueError, match="has elements"):
        Cadence([3, 0])
    with pytest.raises(ValueError, match="nano, medium, large, found tiny"):
        Cadence([3], "tiny")
    with pytest.raises(ValueError, match="powers of 2"):
        Cadence([3], Preset(every=3, fastest=1, slowest=8, percent=1.0))
    with pytest.raises(ValueError, match="cannot be"):
        Cadence([3]).escalate(1, 0)
    with pytest.raises(ValueError, match="no state"):
        Cadence([3]).load({})
    with pytest.raises(ValueError, match="out of bounds"):
        Cadence([3]).load({"budget": {**Budget(PRESETS["nano"]).state(), "every": 4096}, "escalation": None})


def budget_from_the_first_step(cost, steps=512, noise=0.03, seed=0):
    """Return what looks cost of all steps so far, float64[steps], and when the cadence moved first."""
    draw, cadence, moved = np.random.default_rng(seed), Cadence([1], "nano", adapt=True), []
    spent = np.zeros(steps)
    for step in range(1, steps + 1):
        looked = cadence.measures(step)
        first = 5.0 if step == 1 else 1.0  # what a first step has to make ready
        dear = 3.0 if looked and not spent.any() else 1.0  # and what a first look has
        spent[step - 1] = looked * cost
        seconds = (first + dear * looked * cost) * np.exp(noise * draw.normal())
        if cadence.see(step, seconds) is not None:
            moved.append(step)
    return np.cumsum(spent) / np.arange(1, steps + 1), moved


@pytest.mark.parametrize("cost", [0.1, 0.3, 1.0, 3.0])
def test_the_budget_holds_from_the_first_steps_on(cost):
    """A look at a model of a few milliseconds costs a third of a step to three of them, and the budget is 3 %."""
    share, moved = budget_from_the_first_step(cost)
    assert moved[0] == 17
    assert share[16:].max() <= max(3 * cost / 17, 0.03) + 1e-9
    assert share[-1] <= 0.03 + 3 * cost / 512 + (cost > 1) * cost / 64


def test_a_model_that_looks_cost_little_of_is_looked_at_every_step_after_three_looks():
    cadence = Cadence([1], "nano", adapt=True)
    assert [step for step in range(1, 18) if cadence.measures(step)] == [1, 9, 17]
    for step in range(1, 18):
        decided = cadence.see(step, 1.001 if cadence.measures(step) else 1.0)
    assert (decided["every"], decided["every_before"], decided["pairs"]) == (1, 8, 2)
    again = Cadence([1], "nano", adapt=True).load(cadence.state())
    assert [again.measures(step) for step in range(25, 60)] == [cadence.measures(step) for step in range(25, 60)]


def test_all_layers_are_looked_at_in_the_first_step_so_that_a_short_run_has_each_number_once():
    cadence = Cadence([1] * 20, "nano", adapt=True)
    assert [len(cadence.due(step)) for step in (1, 2, 9, 17)] == [20, 0, 2, 2]
    assert len(Cadence([1] * 20, "nano").due(1)) == 2


def test_a_cadence_that_does_not_follow_its_cost_begins_where_its_preset_says():
    assert [Cadence([1], "nano").measures(step) for step in (1, 2, 3)] == [True] * 3
    assert Cadence([1], "large", adapt=True).budget.every == 16
