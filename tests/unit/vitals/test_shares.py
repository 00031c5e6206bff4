"""Shares near 0 against their own law: few false alarms over whole runs, and what a fault has to be to be named."""

import numpy as np
import pytest
from healthy_runs import rates
from lanes import thinned

from dataaudit.vitals.alarms import Alarms
from dataaudit.vitals.baseline import baseline_of
from dataaudit.vitals.metric import Key
from dataaudit.vitals.shares import Shares

HEADS, LAYERS, ROWS, ELEMENTS = 48, 6, 32, 200_000
KEYS = [Key("dead_head_rate", one // 8, one % 8, "share") for one in range(HEADS)]
KEYS += [Key("activation_outlier_rate", one, -1, "block") for one in range(LAYERS)]
TRIALS = np.array([ROWS] * HEADS + [ELEMENTS] * LAYERS, np.float64)


def healthy(seed, steps, schedule="constant", memory=0.0):
    """Return float64[steps, series]: beta-binomial shares, means from 1e-6 to 0.9, moved by the rate to a power."""
    draw = np.random.default_rng(seed)
    rate = rates(schedule, steps)
    means = np.concatenate([10 ** draw.uniform(-5, -0.05, HEADS), 10 ** draw.uniform(-6, -2, LAYERS)])
    scatter = 10 ** np.concatenate([draw.uniform(-2.5, -0.7, HEADS), draw.uniform(-6, -3, LAYERS)])
    normal = draw.normal(size=(steps, len(means)))
    for at in range(1, steps):
        normal[at] = memory * normal[at - 1] + np.sqrt(1 - memory**2) * normal[at]
    exponent = draw.normal(0, 0.2, len(means))
    now = np.clip(means * (rate[:, None] / rate.max()) ** exponent, 0, 0.95)
    if memory:  # batches that are alike: a lognormal share in place of a beta's
        spread = np.sqrt(np.log1p(scatter / means))
        shares = np.clip(now * np.exp(spread * normal - spread**2 / 2), 0, 1)
    else:
        total = (1 - scatter) / scatter
        shares = draw.beta(now * total, (1 - now) * total)
    return draw.binomial(TRIALS.astype(int), shares) / TRIALS, rate


def raised(values, rate, every=1, **settings):
    """Return (step, key, rule) of alarms."""
    alarms, found = Alarms(KEYS, **settings), []
    for step, row in enumerate(values, 1):
        own = row if step % every == 0 else np.full(len(row), np.nan)
        seen = [one.detail for one in alarms.see(step, own, trials=TRIALS, rate=rate[step - 1]) if one.kind == "alarm"]
        found += [(step, tuple(one[name] for name in Key._fields), one["rule"]) for one in seen]
    return found, alarms


@pytest.mark.runs
@pytest.mark.parametrize("memory", [0.0, 0.7])
@pytest.mark.parametrize("schedule", ["constant", *thinned(["cosine", "restarts", "wsd"], ["restarts"])])
def test_healthy_shares_raise_no_alarm(schedule, memory):
    """4 runs of 600 steps of 54 series, at 1 in 10,000 steps: 0.24 alarms are asked for."""
    found = [one for seed in range(4) for one in raised(*healthy(seed, 600, schedule, memory))[0]]
    assert len(found) <= 1, found


@pytest.mark.parametrize(("place", "to"), [(3, 0.7), (HEADS + 2, 0.03)])
def test_a_share_that_jumps_is_named_within_16_values(place, to):
    values, rate = healthy(5, 400)
    draw = np.random.default_rng(1)
    values[300:, place] = draw.binomial(int(TRIALS[place]), draw.beta(to * 99, (1 - to) * 99, 100)) / TRIALS[place]
    found, _ = raised(values, rate)
    assert found
    assert {key for _, key, _ in found} == {tuple(KEYS[place])}
    assert 301 < found[0][0] <= 316


def test_one_outlier_and_two_are_no_alarm_where_none_ever_was():
    values, rate = healthy(7, 300)
    values[:, HEADS] = 0.0
    values[200, HEADS] = 1 / ELEMENTS
    values[202, HEADS] = 2 / ELEMENTS
    assert not raised(values, rate)[0]


def test_single_elements_that_begin_to_be_outliers_are_no_alarm_and_a_hundredth_is():
    """Eleven of 32,768 elements within 16 values, after none for 188: so they began in a healthy run."""
    keys, elements = [Key("activation_outlier_rate", 1, -1, "block")], 2_048
    counts = [0] * 188 + [4, 0, 1, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 3, *[0] * 20, *[20] * 16]
    alarms = Alarms(keys)
    steps = [
        step
        for step, count in enumerate(counts)
        for item in alarms.see(step + 1, np.array([count / elements]), rate=1e-3, trials=np.array([float(elements)]))
        if item.kind == "alarm"
    ]
    assert [step >= 224 for step in steps] == [True]


def test_where_the_counts_are_not_known_it_says_so_and_judges_nothing():
    values, rate = healthy(8, 200)
    alarms = Alarms(KEYS)
    for step, row in enumerate(values, 1):
        assert not [one for one in alarms.see(step, row, rate=rate[step - 1]) if one.kind == "alarm"]
    cover = alarms.coverage()
    assert {one["judged"] for one in cover.values()} == {0}
    assert {one["why"] for one in cover.values()} == {"how many counts it is a share of is not known"}


def test_a_baseline_that_was_given_has_no_band_for_shares_and_their_own_law_judges_them():
    values, rate = healthy(9, 400)
    given = baseline_of(KEYS, np.arange(1, 301), values[:300])
    values[392:, 3] = 0.8
    found, alarms = raised(values, rate, baseline=given)
    assert {key for _, key, _ in found} == {tuple(KEYS[3])}
    assert not alarms.judge.judged.any()
    assert alarms.coverage()["dead_head_rate"] == {"judged": HEADS, "series": HEADS, "why": ""}


def test_series_of_shares_and_others_share_one_rate():
    values, rate = healthy(4, 200)
    keys = [*KEYS, *(Key("layer_std", one, -1, "all") for one in range(40))]
    alarms = Alarms(keys)
    other = np.exp(np.random.default_rng(0).normal(0, 0.1, (200, 40)))
    for step in range(1, 201):
        trials = np.append(TRIALS, np.full(40, np.nan))
        alarms.see(step, np.append(values[step - 1], other[step - 1]), trials=trials, rate=rate[step - 1])
    assert alarms.judge.detail(len(KEYS))["family"] == alarms.shares.detail(0)["family"] == len(keys)


def test_a_count_of_units_is_judged_as_a_count():
    key = Key("dead_neuron_count", 0, -1, "units")
    draw, shares = np.random.default_rng(2), Shares([key], 1e-4)
    found = []
    for step in range(1, 201):
        value = draw.binomial(512, 0.01 if step <= 180 else 0.2)
        found += shares.see(step, np.array([value]), np.array([512.0]), rate=np.nan, tokens=np.nan).tolist()
        if found:
            break
    assert found == [0]
    assert step <= 190
    assert 0 <= shares.detail(0)["low"] < 6 < shares.detail(0)["high"] < 100


@pytest.mark.runs
def test_a_run_that_goes_on_judges_as_one_that_never_stopped():
    values, rate = healthy(3, 300)
    whole, halves = Alarms(KEYS), [Alarms(KEYS), Alarms(KEYS)]
    values[250:, 5] = 0.9
    found = [[], []]
    for step, row in enumerate(values, 1):
        found[0] += whole.see(step, row, trials=TRIALS, rate=rate[step - 1])
        if step == 151:
            halves[1].load(halves[0].state())
        found[1] += halves[step > 150].see(step, row, trials=TRIALS, rate=rate[step - 1])
    assert found[0] == found[1]
    assert [one for one in found[0] if one.kind == "alarm"]


def test_a_run_that_went_back_is_not_judged_by_the_values_that_it_left():
    values, rate = healthy(5, 400)
    found, alarms = raised(values, rate)
    assert found == []
    for step in range(401, 431):
        alarms.see(step, np.where(np.arange(len(KEYS)) == 3, 0.7, values[step - 300]), trials=TRIALS, rate=rate[0])
    again = [alarms.see(step, values[step - 1], trials=TRIALS, rate=rate[0]) for step in range(380, 400)]
    assert [one.detail for own in again for one in own if one.kind == "alarm"] == []


def test_a_run_that_went_back_by_all_that_is_known_of_a_share_learns_it_anew():
    values, rate = healthy(5, 400)
    _, alarms = raised(values, rate)
    again = [alarms.see(step, values[step - 1], trials=TRIALS, rate=rate[0]) for step in range(1, 200)]
    assert [one.detail for own in again for one in own if one.kind == "alarm"] == []
