"""Series against their own past: healthy runs raise nothing whatever the rate does, and faults are named."""

import json

import healthy_runs as runs
import numpy as np
import pytest
from lanes import sample

from dataaudit.vitals.alarms import Alarms
from dataaudit.vitals.metric import Key
from dataaudit.vitals.surprise import JUDGED_FROM

STEPS = 600


def alarms_of(found):
    return [(step, one.detail) for step, one in found if one.kind == "alarm"]


@pytest.mark.parametrize("schedule", sample(runs.SCHEDULES, len(runs.SCHEDULES), part="runs"))
def test_a_healthy_run_raises_no_incident_whatever_its_schedule(schedule):
    """benchmarks/vitals_alarms.py is the same over 50,000 steps and more."""
    keys, values, rate, tokens = runs.healthy(schedule, STEPS, 7, layers=6, heads=4)
    assert runs.incidents(runs.judged(Alarms(keys), keys, values, rate, tokens)) == set()


def faulty(metric, grow, schedule="cosine", seed=3):
    """Return alarms of a run in which a series is multiplied by something from step 401 on, and its place."""
    keys, values, rate, tokens = runs.healthy(schedule, STEPS, seed, layers=6, heads=4)
    place = next(at for at, key in enumerate(keys) if key.metric == metric and key.layer == 3)
    values[400:, place] *= grow(np.arange(1, STEPS - 399))
    return alarms_of(runs.judged(Alarms(keys), keys, values, rate, tokens)), keys[place]


@pytest.mark.parametrize(
    ("metric", "grow", "within", "seed"),
    sample(
        [
            ("max_attn_logit", lambda since: 1.03**since, 60, 3),
            ("attn_entropy", lambda since: 0.9 ** np.minimum(since, 40), 40, 3),
            ("residual_rms", lambda since: np.full(len(since), 2.0), 24, 5),
            ("activation_mean_abs", lambda since: np.full(len(since), 0.1), 8, 3),
        ],
        4,
        part="runs",
    ),
)
def test_what_leaves_what_the_rate_explains_is_named_with_its_place(metric, grow, within, seed):
    found, key = faulty(metric, grow, seed=seed)
    step, alarm = found[0]
    assert (alarm["metric"], alarm["layer"], alarm["head"]) == (key.metric, key.layer, key.head)
    assert 400 < step <= 400 + within
    assert step - 80 <= alarm["first_step"] <= step
    waits = alarm["rule"] == "drift" and key.head >= 0  # for a second alarm
    assert (alarm["incident"], alarm["severity"]) == ((0, 3) if waits else (1, 2))
    assert alarm["rule"] == "drift" or not alarm["low"] <= alarm["value"] <= alarm["high"]
    json.dumps(alarm, allow_nan=False)


def test_an_update_that_follows_the_rate_is_none():
    """A rate that falls to a tenth within 40 steps."""
    draw = np.random.default_rng(1)
    keys = [Key("update_to_weight", layer, -1, "all") for layer in range(4)]
    rate = 1e-3 * np.r_[np.ones(300), np.geomspace(1, 0.1, 40), np.full(100, 0.1)]
    values = 2.0 * rate[:, None] * np.exp(0.05 * draw.standard_t(4, (len(rate), 4)))
    known = np.full(len(rate), np.nan)
    assert not alarms_of(runs.judged(Alarms(keys), keys, values, rate, known))


@pytest.mark.parametrize("every", [1, 4])
def test_coverage_says_how_many_are_judged_and_from_when_the_rest_will_be(every):
    keys, values, rate, tokens = runs.healthy("constant", 120, 5, layers=3, heads=2)
    alarms = Alarms([*keys, Key("dead_neuron_count", 0, -1, "units")], healthy=(1, 120))
    values = np.column_stack([values, np.zeros(120)])
    found = runs.judged(alarms, alarms.keys, values, rate, tokens, every=every)
    ((step, coverage),) = [(step, one) for step, one in found if one.kind == "coverage"]
    said = coverage.detail["metrics"]["attn_entropy"]
    assert step == 120
    if every == 1:
        assert said == {"judged": 6, "series": 6, "why": ""}
    else:
        assert said["judged"] == 0
        assert said["why"] == f"30 of {JUDGED_FROM} values yet, one in 4 steps: from about step 256"
    assert coverage.detail["metrics"]["dead_neuron_count"]["why"] == "how many counts it is a share of is not known"


@pytest.mark.runs
def test_a_healthy_span_raises_nothing_calibrated_before_its_end():
    keys, values, rate, tokens = runs.healthy("constant", 300, 5, layers=3, heads=2)
    values[150:, 0] *= 1.03 ** np.arange(150)
    before = runs.judged(Alarms(keys, healthy=(1, 300)), keys, values, rate, tokens)
    assert not alarms_of(before)
    assert alarms_of(runs.judged(Alarms(keys), keys, values, rate, tokens))


@pytest.mark.runs
@pytest.mark.parametrize("stop", [100, 250, 420])
def test_a_run_that_goes_on_from_a_checkpoint_says_the_same(stop):
    keys, values, rate, tokens = runs.healthy("restarts", 500, 2, layers=3, heads=2)
    values[400:, 1] *= 1.05 ** np.arange(100)
    whole = runs.judged(Alarms(keys), keys, values, rate, tokens)
    first = Alarms(keys)
    said = runs.judged(first, keys, values[:stop], rate, tokens)
    again = Alarms(keys).load(json.loads(json.dumps(first.state(), allow_nan=False)))
    assert again.state() == first.state()
    for at in range(stop, 500):
        said += [(at + 1, one) for one in again.see(at + 1, values[at], rate=rate[at], tokens=tokens[at])]
    assert said == whole
    assert alarms_of(whole)


EARLY = """408 407 396 446 459 493 591 420 388 466 396 473 501 468 437 419 417 382 406 455 453 402 436 434 460 435 485
454 482 447 454 445 489 414 418 456 504 441 483 456 467 455 517 508 539 452 494 499 477 484 457 477 521 550 491 490 477
496 513 526 509 513 526 519 521 512 523 560 529 504"""
"""Thousandths of `activation_mean_abs` of an MLP in a healthy run: its first seven values rise by 40 %."""


def test_first_values_that_foretell_nothing_are_forgotten_before_a_series_is_judged():
    """A trend that was learnt of them was believed for good: errors were cut, and the noise was learnt no more."""
    values = np.array([float(number) / 1_000 for number in EARLY.split()])[:, None]
    keys = [Key("activation_mean_abs", 1, -1, "mlp")]
    alarms = Alarms(keys)
    found = [item for at, value in enumerate(values) for item in alarms.see(4 * at + 4, value, rate=3e-3, tokens=256.0)]
    assert [item for item in found if item.kind == "alarm"] == []
    late = np.log(values[30:, 0])
    noise = (late - np.polyval(np.polyfit(range(len(late)), late, 1), range(len(late)))).std()
    assert alarms.judge.expected.scale[0] == pytest.approx(noise, rel=0.4)
    wrong = [item for at in range(140) for item in alarms.see(284 + 4 * at, np.array([5.2]), rate=3e-3, tokens=256.0)]
    assert [item.detail["rule"] for item in wrong if item.kind == "alarm"]


def test_a_noise_scale_is_judged_by_its_lower_bound():
    """The estimate itself is a ratio whose denominator may be next to nothing: healthy ones rose to 60,000."""
    draw = np.random.default_rng(2)
    keys = [Key("grad_noise_scale", -1, -1, stat) for stat in ("ema", "low", "high")]
    inverse = np.full(1200, 0.03)
    for step in range(1, len(inverse)):
        inverse[step] = 0.03 + 0.9 * (inverse[step - 1] - 0.03) + draw.normal(0, 0.006)
    inverses = inverse[:, None] + np.array([0.0, 0.03, -0.03])
    with np.errstate(divide="ignore"):
        values = np.where(inverses > 0, 1 / inverses, np.nan)
    assert np.nanmax(values[:, 0]) > 2000
    nothing, alarms = np.full(len(values), np.nan), Alarms(keys)
    assert not alarms_of(runs.judged(alarms, keys, values, np.ones(len(values)), nothing))
    assert alarms.coverage()["grad_noise_scale"]["judged"] == 1
