"""Rules that need no baseline, the schedule of the rate, and incidents."""

import math

import numpy as np
import pytest

from dataaudit.vitals.alarms import Alarms
from dataaudit.vitals.fixed_rules import Schedule
from dataaudit.vitals.incidents import Incidents, kind_of
from dataaudit.vitals.metric import Key
from dataaudit.vitals.metrics.gradient_noise import SpikeScore

GRADIENT = Key("grad_norm", 1, -1, "at_step")
MLP = Key("activation_mean_abs", 1, -1, "mlp")
ENTROPY = Key("attn_entropy", 1, 2, "mean")
UPDATE = Key("update_to_weight", 1, -1, "all")
UNITS = Key("dead_neuron_count", 1, -1, "units")
STATE = Key("opt_state_finite", 1, -1, "share")


def said(key, values, rates=None, **settings):
    alarms = Alarms([key, Key("skipped_updates", -1, -1, "count")], **settings)
    rates = [1e-3] * len(values) if rates is None else rates
    return [
        (step, one.detail["rule"])
        for step, (value, rate) in enumerate(zip(values, rates, strict=True), 1)
        for one in alarms.see(step, np.array([value, 0.0]), rate=rate)
        if one.kind == "alarm"
    ]


@pytest.mark.parametrize("factor", [10.0, 0.1, 0.0, 5.0])
@pytest.mark.parametrize("key", [MLP, GRADIENT])
def test_a_fold_of_the_recent_median_is_an_alarm_from_the_ninth_value_on(key, factor):
    assert said(key, [1.0] * 10 + [factor] * 5) == [(13, "fold")]


@pytest.mark.parametrize(
    ("key", "values", "rates"),
    [
        (MLP, [1.0] * 10 + [3.0] * 9, None),
        (MLP, [1.0] * 10 + [10.0, 10.0, 1.0] * 3, None),
        (UPDATE, [1e-3] * 20 + [1e-4] * 20, [1e-2] * 20 + [1e-3] * 20),
        (GRADIENT, list(np.exp(np.resize([0.0, 1.0, -1.0, 2.0], 30))) + [12.0] * 4, None),
        (ENTROPY, [2.0] * 20 + [0.2] * 10, None),
        (ENTROPY, [0.02] * 40, None),
        (UNITS, [0.0, 3.0, 63.0], None),
    ],
)
def test_what_is_usual_or_explained_by_the_rate_is_none(key, values, rates):
    assert [one for one in said(key, values, rates, units={1: 128}) if one[1] != "rate"] == []


@pytest.mark.parametrize(
    ("key", "values", "expected"),
    [
        (ENTROPY, [2.0] * 10 + [0.01] * 5, [(13, "collapse")]),
        (UPDATE, [1e-3] * 3 + [math.nan, 0.0, math.nan, 0.0, 0.0], [(7, "frozen")]),
        (UNITS, [0.0, 128.0, math.nan, 128.0, 0.0, 64.0], [(2, "dead"), (6, "dead")]),
        (STATE, [1.0, 0.99], [(2, "state")]),
        (Key("q_norm", 1, 2, "rms"), [1.0] * 10 + [5.0] * 4 + [0.0] * 4, [(17, "fold")]),
    ],
)
def test_each_rule_names_its_fault_once(key, values, expected):
    assert said(key, values, units={1: 128}) == expected


def test_an_update_that_was_skipped_is_no_frozen_layer():
    alarms = Alarms([UPDATE, Key("skipped_updates", -1, -1, "count")])
    found = [one for step in range(1, 9) for one in alarms.see(step, np.array([0.0, 1.0]), rate=1e-3)]
    assert {one.kind for one in found} == {"warning"}


def left(rates):
    schedule = Schedule()
    return [step for step, rate in enumerate(rates, 1) if schedule.see(rate) is not None]


WARM = [1e-5 * step for step in range(1, 101)]
COSINE = [1e-3 * (0.001 + 0.4995 * (1 + math.cos(math.pi * step / 200))) for step in range(200)]
INVERSE = [1e-3 * step**-0.5 for step in range(1, 200)]


@pytest.mark.parametrize(
    "rates",
    [
        WARM + [1e-3] * 50,
        WARM + COSINE,
        WARM + COSINE * 3,
        WARM + [1e-3 * (1 - step / 100) for step in range(101)],
        WARM + INVERSE,
        [0.0, 1e-3, 1e-3],
        [1e-3],
        [math.nan, 1e-3, math.nan, 1e-3],
        [1e-3 * 2.5**step for step in range(6)],
        [*WARM, 1e-3, 2e-3, 1e-3],
    ],
)
def test_a_rate_that_keeps_to_a_schedule_is_none(rates):
    assert left(rates) == []


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([1e-3] * 10 + [1e-2] * 10, [11]),
        (WARM + COSINE[:60] + [10 * one for one in COSINE[60:80]], [161]),
        (WARM[:50] + [one * 10 for one in WARM[50:]], [51]),
        ([1e-3] * 10 + [3e-4] * 5, [11]),
        ([1e-3] * 10 + [0.0] * 5, [11]),
        ([1e-3] * 10 + [1e-4] * 10 + [1e-5] * 10, [11]),
        ([1e-3] * 10 + [1e-2] + [1e-3] * 10, [11, 12]),
        ([1e-3] * 20 + [4e-3] * 3, [21]),
    ],
)
def test_a_rate_that_leaves_its_schedule_is_an_incident_at_that_step(rates, expected):
    assert left(rates) == expected


def test_the_rate_is_an_alarm_of_its_own():
    alarms = Alarms([MLP])
    found = [one for step in range(1, 9) for one in alarms.see(step, np.ones(1), rate=1e-3 if step < 6 else 1e-2)]
    assert [(one.detail["metric"], one.detail["severity"], one.detail["value"]) for one in found] == [
        ("learning_rate", 1, 1e-2)
    ]


def joined(incidents, step, metric, layer, rule, head=-1, first=None, **more):
    """Return incident, severity and whether it opens, of all that an alarm yields."""
    detail = {"metric": metric, "layer": layer, "head": head, "rule": rule, "first_step": first or step, **more}
    found = list(incidents.join(step, {"baseline": None, "stat": "all", **detail}))
    return [(one["metric"], one["incident"], one["severity"], opens) for one, opens in found]


def test_alarms_that_belong_together_are_one_incident_with_its_first_and_its_gravest():
    incidents = Incidents()
    assert joined(incidents, 110, "a", 5, "drift", first=104) == [("a", 1, 2, True)]
    assert joined(incidents, 120, "b", 2, "fold", first=101) == [("b", 1, 1, True)]
    assert incidents.first["layer"] == 2
    assert joined(incidents, 130, "c", 2, "jump", first=128) == [("c", 1, 2, False)]
    assert joined(incidents, 400, "c", 2, "jump", first=390) == [("c", 2, 2, True)]


def test_a_drift_of_a_head_is_a_hint_until_another_alarm_follows():
    incidents = Incidents()
    assert joined(incidents, 100, "a", 1, "drift", head=3, first=80) == [("a", 0, 3, False)]
    assert Incidents().load(incidents.state()) is None
    assert joined(incidents, 140, "a", 1, "drift", head=3, first=120) == [("a", 0, 3, False)], "the same series again"
    assert joined(incidents, 150, "b", 1, "jump", head=3, first=148) == [("a", 1, 2, True), ("b", 1, 2, False)]
    assert incidents.first["metric"] == "a"


def test_a_rate_of_outliers_waits_as_a_head_does():
    incidents, rate = Incidents(), "activation_outlier_rate"
    assert joined(incidents, 100, rate, 1, "jump") == [(rate, 0, 3, False)]
    assert joined(incidents, 120, "residual_rms", 1, "jump") == [(rate, 1, 2, True), ("residual_rms", 1, 2, False)]
    assert joined(Incidents(), 100, rate, 1, "jump", baseline={}) == [(rate, 1, 2, True)]


def test_a_drift_of_a_head_does_not_begin_an_incident_of_another_layer_nor_a_late_one():
    incidents = Incidents()
    joined(incidents, 100, "a", 0, "drift", head=3)
    assert joined(incidents, 150, "b", 1, "limit", value=1.0) == [("b", 0, 3, False)]
    assert joined(incidents, 150, "b", 1, "jump") == [("b", 1, 2, True)]
    assert joined(incidents, 300, "a", 1, "drift", head=3) == [("a", 0, 3, False)]
    assert joined(incidents, 365, "a", 1, "drift", head=2) == [("a", 0, 3, False)]
    assert joined(incidents, 366, "a", 0, "drift", head=2) == [("a", 0, 3, False)]
    assert joined(incidents, 380, "b", 1, "drift", head=1) == [("a", 2, 2, True), ("b", 2, 2, False)]


def test_a_drift_of_a_head_joins_an_open_incident_with_the_alarm_of_its_layer_that_follows():
    incidents = Incidents()
    joined(incidents, 100, "a", 3, "drift", head=2, first=80)
    assert joined(incidents, 110, "b", 5, "jump") == [("b", 1, 2, True)]
    assert joined(incidents, 120, "c", 3, "jump") == [("a", 1, 2, False), ("c", 1, 2, False)]
    assert incidents.first["metric"] == "a"


def test_a_run_that_went_back_has_no_drift_of_later_steps_and_a_new_incident():
    incidents = Incidents()
    joined(incidents, 990, "b", 5, "jump")
    joined(incidents, 1100, "a", 3, "drift", head=2, first=1080)
    incidents.go_back(500)
    assert joined(incidents, 600, "c", 3, "jump") == [("c", 2, 2, True)]


def test_a_drift_that_waited_is_an_alarm_beside_a_warning():
    alarms = Alarms([Key("max_attn_logit", 1, 2, "sampled")])
    assert joined(alarms.incidents, 100, "a", 1, "drift", head=2) == [("a", 0, 3, False)]
    found = alarms.see(120, np.array([17_700.0]))
    assert [(one.kind, one.detail["metric"]) for one in found] == [("alarm", "a"), ("warning", "max_attn_logit")]
    assert kind_of(found[0].detail, "nan_inf") == "alarm"


def test_a_hint_opens_no_incident():
    found = joined(Incidents(), 5, "update_to_weight", 1, "limit", value=0.02)
    assert found == [("update_to_weight", 0, 3, False)]


def test_the_gravest_of_many_warnings_is_listed():
    keys = [Key("max_attn_logit", layer, head, "sampled") for layer in range(10) for head in range(10)]
    values = np.full(100, 110.0)
    values[97] = 17_700.0
    found = [one.detail for one in Alarms(keys).see(1, values)]
    worst = next(one for one in found if one["value"] == 17_700)
    assert (worst["layer"], worst["head"], worst["severity"]) == (9, 7, 1)
    assert sum(one.get("others", 0) for one in found) == 100 - len(found)


def test_while_the_rate_warms_up_a_threshold_is_warned_of_once():
    keys = [Key("update_to_weight", layer, -1, "all") for layer in range(6)]
    alarms = Alarms(keys)
    warned = []
    for step in range(1, 40):
        values = np.where(np.arange(6) < step % 7, 0.02, 0.001)
        warned += [one.detail for one in alarms.see(step, values, rate=step * 1e-5) if one.kind == "warning"]
    assert len(warned) == 1


def test_the_score_of_a_gradient_is_its_norm_over_the_average_of_earlier_ones():
    spikes = SpikeScore()
    scores = [spikes.see(norm, math.nan) for norm in [1.0] * 10 + [3.0, math.nan, 1.0]]
    assert all(map(math.isnan, scores[:8]))
    assert scores[8:11] == pytest.approx([1.0, 1.0, 3.0])
    assert math.isnan(scores[11])
    assert scores[12] == pytest.approx(1 / 1.2)
