"""Rules: conditions, what feeds them, the shipped rules, and messages about a file that is wrong."""

import json
from importlib import resources

import jsonschema
import numpy as np
import pytest
import yaml
from live_logs import Run, at, file_of, from_another, judged, steps

from dataaudit.base.errors import ConfigError
from dataaudit.live.feed import Feed, Numbers
from dataaudit.live.judging import Judge
from dataaudit.live.rules import default_text, load_alerts, parse_alerts, runbooks
from dataaudit.schemas import render

NAN = float("nan")


def states_of(states):
    """Return state and reason by rule."""
    return {own["rule"]: (own["state"], own["why"]) for own in states}


@pytest.mark.parametrize(
    ("condition", "losses", "expected"),
    [
        ({"threshold": {"above": 2}}, [1, 3, 3, 1, 3], [(2, 2, 3.0), (5, 5, 3.0)]),
        ({"threshold": {"below": 2, "for": 3}}, [1, 1, 3, 1, 1, 1, 1], [(6, 4, 1.0)]),
        ({"threshold": {"above": 2, "below": 1}}, [1.5, 0.5, 3, 1.5], [(2, 2, 0.5)]),
        ({"threshold": {"above": 2}, "after_step": 3}, [3, 3, 3, 3, 1], [(4, 4, 3.0)]),
        ({"not_finite": True}, [1, NAN, NAN, 1, float("inf")], [(2, 2, None), (5, 5, None)]),
        ({"ratio": {"below": 0.5, "healthy": 3}}, [4, 5, 4, 3, 1, 1], [(5, 5, 0.25)]),
        ({"ratio": {"above": 2, "healthy": [2, 4]}}, [90, 1, 2, 3, 4, 4.5], [(6, 6, 2.25)]),
        ({"ratio": {"above": 2, "healthy": 2, "for": 2}}, [1, 1, 3, 1, 3, 3], [(6, 5, 3.0)]),
        ({"change": {"above": 1, "over": 2}}, [1, 1, 1, 2, 2.5, 2.5], [(5, 5, 1.5)]),
        ({"change": {"above": 0.4, "over": 1, "relative": True}}, [10, 11, 16], [(3, 3, 5 / 11)]),
        ({"change": {"below": 1, "over": 2}}, [1, 3, 5, 5, 5], [(5, 5, 0.0)]),
        ({"threshold": {"above": 2}, "mean_over": 3}, [9, 0, 0, 5, 0, 0, 9, 0], [(1 + 2, 3, 3.0), (7, 7, 3.0)]),
    ],
)
def test_a_condition_of_a_metric(tmp_path, condition, losses, expected):
    """Each kind fires when, and only when, it is met long enough; and again only after it was not met."""
    alerts, _ = judged(
        tmp_path / "run",
        file_of({"metric": "loss", "cool_down": 1, **condition}),
        steps(len(losses), loss=lambda step: losses[step - 1]),
    )
    assert [own[1:] for own in alerts] == [pytest.approx(own) if own[2] is not None else own for own in expected]


def test_a_mean_is_judged_once_its_span_is_over_of_sampled_metrics_too(tmp_path):
    """A metric of every tenth step has a mean over 32."""
    script = steps(80, mfu=lambda step: None if step % 10 else 0.1)
    rule = {"metric": "mfu", "threshold": {"below": 0.2}, "mean_over": 32}
    alerts, _ = judged(tmp_path / "run", file_of(rule), script)
    assert alerts == [("rule0", 50, 50, pytest.approx(0.1))]


@pytest.mark.parametrize(("metric", "first", "fired"), [("loss", 3, 13), ("mfu", 3, 13), ("mfu", 0, 11)])
def test_seconds_of_the_log_count_beside_steps(tmp_path, metric, first, fired):
    """Both are asked for; a number that comes before its step ends has the time of the step before, or none yet."""
    numbers = {metric: lambda step: 5.0 if step > first else 1.0}
    script = steps(15, time=lambda step: 1e9 + 0.5 * step, **numbers)
    rule = {"metric": metric, "threshold": {"above": 2, "for": 3, "for_seconds": 4.5}}
    alerts, _ = judged(tmp_path / "run", file_of(rule), script)
    assert [own[1:3] for own in alerts] == [(fired, first + 1)]


def test_events_are_counted_within_steps(tmp_path):
    """Three within ten steps fire; they are used up by it. What a rule asks of the detail has to be there."""

    def script(run):
        for step in range(1, 41):
            run.end_step()
            if step in {3, 5, 9, 20, 21, 35}:
                run.happen("flagged", kind="spike", first_step=step - 1)
            if step == 7:
                run.happen("flagged", kind="other")
        run.close()

    rule = {"event": "flagged", "where": {"kind": "spike"}, "count": {"at_least": 3, "within": 10}, "fed_by": ["loss"]}
    each = {"event": "flagged", "where": {"kind": "other"}, "name": "each"}
    alerts, states = judged(tmp_path / "run", file_of(rule, each), script)
    assert [own[:3] for own in alerts] == [("each", 7, 7), ("rule0", 9, 2)]
    assert {name: own[0] for name, own in states_of(states).items()} == {"rule0": "ok", "each": "ok"}


def test_absence_in_steps_fires_again_after_the_metric_was_there(tmp_path):
    """No value for three steps, of a metric that was there, and of another that never was."""
    rules = [{"metric": name, "absent": {"steps": 3}, "cool_down": 1} for name in ("val_loss", "mfu")]
    alerts, states = judged(tmp_path / "run", file_of(*rules), steps(11, val_loss=at(3.0, 1, 2, 6)))
    assert [own[:3] for own in alerts] == [("rule1", 3, 0), ("rule0", 5, 2), ("rule0", 9, 6)]
    assert {own["state"] for own in states} == {"firing"}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, [(2, 1), (2, 3)]),
        ({"over": "max"}, [(2, 3)]),
        ({"over": "min"}, []),
        ({"over": "mean"}, []),
        ({"layer": 1}, [(2, 1)]),
        ({"stat": "other"}, []),
        ({"head": 0}, []),
    ],
)
def test_layers_are_judged_each_or_together(tmp_path, how, expected):
    """`any` is each layer by itself, with its own state."""

    def script(run):
        for _ in range(3):
            run.step += 1
            run.value("max_attn_logit", [1, 60, 1, 70] if run.step > 1 else [1, 1, 1, 1], "sampled")
            run.step -= 1
            run.end_step()
        run.close()

    file = file_of({"metric": "max_attn_logit", "threshold": {"above": 50}, **how})
    incidents, _ = from_another(tmp_path / "run", file) if judged(tmp_path / "run", file, script) else None
    found = [(own["step"], own.get("layer", -1)) for _, _, alerts in incidents.values() for own in alerts]
    assert found == expected


def test_numbers_that_a_log_writes_where_they_change_are_judged_at_every_step(tmp_path):
    """Skipped updates are written where there are some; their share over a window counts the others."""
    script = steps(60, skipped_updates=lambda step: 1.0 if 20 < step <= 40 and step % 4 else None)
    rules = [
        {"metric": "skipped_updates", "mean_over": 10, "threshold": {"above": 0.65}},
        {"metric": "opt_state_finite", "threshold": {"below": 1}},
    ]
    alerts, states = judged(tmp_path / "run", file_of(*rules), script)
    assert [own[0] for own in alerts] == ["rule0"]
    assert alerts[0][1] == 29
    assert states_of(states) == {"rule0": ("ok", ""), "rule1": ("ok", "")}


def test_numbers_that_no_table_holds(tmp_path):
    """Tokens, their rate, and the share of waiting."""

    def script(run):
        for step in range(1, 101):
            slow = step > 40
            run.end_step(time=1e9 + step * (2 if slow else 1), step_time=1.0, dataloader_wait=0.3 if slow else 0.01)
        for _ in range(30):
            run.end_step(targets=0, step_time=1.0)
        run.close()

    rules = [
        {"metric": "dataloader_stall_frac", "threshold": {"above": 0.2}},
        {"metric": "tokens_seen", "change": {"below": 1, "over": 20}},
        {"metric": "tokens_per_sec", "ratio": {"below": 0.8, "healthy": 40}},
        {"metric": "tokens_per_update", "threshold": {"below": 1}},
    ]
    alerts, _ = judged(tmp_path / "run", file_of(*rules), script)
    assert sorted(own[0] for own in alerts) == ["rule0", "rule1", "rule2", "rule3"]
    by_rule = {own[0]: own for own in alerts}
    assert by_rule["rule1"][1] == 120
    assert by_rule["rule3"][1] == 101


def test_the_share_of_a_source_comes_from_counts_of_lengths(tmp_path):
    """By source, since the counts before; its name is the statistic."""

    def script(run):
        for step in range(1, 101):
            run.end_step()
            if step % 10 == 0:
                rows = {"step": [step] * 3, "source": [0, 0, -1], "length": [10, 20, 40], "begun": [0, 0, 0]}
                run.writer.add("lengths", {**rows, "stretches": [1, 1, 1 if step < 70 else 4]})
        run.close()

    rule = {"metric": "source_mix_share", "ratio": {"below": 0.5, "healthy": 50}}
    alerts, _ = judged(tmp_path / "run", file_of(rule), script)
    assert alerts == [("rule0", 70, 70, pytest.approx(30 / 190 / (30 / 70)))]
    incidents, _ = from_another(tmp_path / "run", file_of(rule))
    assert "source_mix_share (web) is 0.157895" in str(incidents)


@pytest.mark.parametrize(
    ("documents", "uneven", "fires"), [(20, 0, False), (2_000, 0, True), (2_000, 10, False), (0, 0, True)]
)
def test_a_share_of_few_documents_moves_by_chance(tmp_path, documents, uneven, fires):
    """From a half to 0.38: within five standard errors of 20 documents, not of 2,000; of 0 nothing is known.

    Where a few long documents move it in the healthy span, 2,000 are few, too.
    """

    def script(run):
        for step in range(1, 301):
            run.end_step()
            if step % 10 == 0:
                apart = uneven if step % 20 else -uneven
                lengths = [50 + apart, 50 - apart] if step <= 200 else [38, 62]
                rows = {"step": [step] * 2, "source": [0, 1], "length": lengths, "stretches": [1, 1]}
                run.writer.add("lengths", {**rows, "begun": [documents // 2] * 2})
        run.close()

    rule = {"metric": "source_mix_share", "ratio": {"below": 0.77, "healthy": 100, "by": 0.02}}
    alerts, _ = judged(tmp_path / "run", file_of(rule), script)
    assert bool(alerts) == fires


def shipped(*names):
    """Return some of the shipped rules."""
    file = load_alerts(None)
    return file.model_copy(update={"rules": tuple(rule for rule in file.rules if rule.name in names)})


@pytest.mark.parametrize(("pauses", "fires"), [([700], False), (range(700, 780, 2), True)])
def test_a_single_pause_is_neither_a_slow_run_nor_a_slow_loader(tmp_path, pauses, fires):
    """An evaluation, a new pass of the loader; both numbers are of 64 steps, and it is in all of them."""
    took = {step: 42.0 if step in pauses else 2.0 for step in range(1, 901)}
    ended = np.cumsum([1e9, *took.values()])
    waits = {"dataloader_wait": lambda step: took[step] - 2, "step_time": took.get}
    script = steps(900, time=lambda step: float(ended[step]), **waits)
    alerts, states = judged(tmp_path / "run", shipped("throughput", "loader_stalls"), script)
    assert {own[0] for own in alerts} == ({"throughput", "loader_stalls"} if fires else set())
    assert {own["state"] for own in states} == {"ok"}


def test_a_loss_that_rises_slower_than_its_band_is_an_alert(tmp_path):
    """It is named once; a few spikes are another rule's, and dips are nobody's."""

    def script(run):
        for step in range(1, 2_001):
            run.end_step(loss=3.0 + 0.005 * max(0, step - 1_500) + 30 * (step in {1_300, 1_301}))
            if 1_200 <= step < 1_204:
                run.happen("flagged", kind="loss_dip", first_step=step)
        run.close()

    alerts, _ = judged(tmp_path / "run", shipped("loss_spikes", "loss_rises"), script)
    ((name, step, first, _),) = alerts
    assert (name, step - first) == ("loss_rises", 99)
    assert 1_600 < first < 1_700


def test_lost_rows_are_neither_slow_steps_nor_part_of_a_mean(tmp_path):
    """A full disk takes 300 steps out of a log; what was trained in them is not known."""

    def script(run):
        for step in range(1, 1_701):
            run.step = step - 1 if not 700 < step <= 1_000 else run.step
            if 700 < step <= 1_000:
                continue
            lengths = {"step": [step] * 2, "source": [0, 1], "length": [60, 40], "begun": [0, 0], "stretches": [1, 1]}
            if step == 1_050:
                lengths["length"] = [10, 90]
            if step % 50 == 0:
                run.writer.add("lengths", lengths)
            run.end_step(time=1e9 + step)
        run.close()

    rules = [
        {"metric": "tokens_per_sec", "ratio": {"below": 0.8, "healthy": 300}, "name": "slow"},
        {"metric": "source_mix_share", "mean_over": 500, "ratio": {"below": 0.8, "healthy": 300}, "name": "mixture"},
    ]
    alerts, states = judged(tmp_path / "run", file_of(*rules), script)
    assert alerts == []
    assert {state["rule"]: state["state"] for state in states} == {"slow": "ok", "mixture": "ok"}


@pytest.mark.parametrize("set_by", [3_600, -3_600])
def test_a_clock_that_is_set_makes_no_run_slow(tmp_path, set_by):
    """The machine's, by an hour, at step 200; steps take a second by the clock that nobody sets."""
    rule = {"metric": "tokens_per_sec", "ratio": {"below": 0.8, "healthy": 40}}
    script = steps(300, step_time=1.0, time=lambda step: 1e9 + step + (set_by if step >= 200 else 0))
    alerts, states = judged(tmp_path / "run", file_of(rule), script)
    assert (alerts, states[0]["state"]) == ([], "ok")


def test_a_source_that_is_gone_has_a_share_of_0_and_a_small_source_moves_by_chance(tmp_path):
    def script(run):
        for step in range(1, 201):
            run.end_step()
            if step % 10 == 0:
                small = [1, 3][step % 20 == 0]
                lengths = [900, small, 99] if step <= 120 else [900, small, 0]
                own = [at for at, length in enumerate(lengths) if length]
                rows = {"source": own, "length": [lengths[at] for at in own], "begun": [0] * len(own)}
                run.writer.add("lengths", {"step": [step] * len(own), **rows, "stretches": [1] * len(own)})
        run.close()

    rule = {"metric": "source_mix_share", "ratio": {"above": 1.25, "below": 0.8, "healthy": 100, "by": 0.02}}
    alerts, _ = judged(tmp_path / "run", file_of(rule), script)
    assert alerts == [("rule0", 130, 130, 0.0)]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"metric": "mfu", "threshold": {"below": 0.2}}, "no value of `mfu` came"),
        ({"metric": "straggler_ratio", "threshold": {"above": 1.2}}, "several ranks"),
        ({"metric": "loss", "stat": "ema", "threshold": {"above": 1}}, "of stat ema"),
        ({"metric": "val_loss", "threshold": {"above": 9}}, "came last at step 20 (rank 0), and step 300 has none"),
        ({"metric": "loss", "threshold": {"above": 9}, "after_step": 500}, "judged behind step 500"),
        ({"metric": "loss", "ratio": {"above": 9, "healthy": 500}}, "healthy span is not complete"),
        ({"metric": "loss", "ratio": {"above": 9, "healthy": [900, 950]}}, "of steps 900 to 950 was not seen"),
        ({"event": "alarm", "fed_by": ["attn_entropy"]}, "somebody looks for `alarm`: attn_entropy"),
        ({"event": "alarm"}, "has no `fed_by`"),
        ({"metric": "loss", "threshold": {"above": 1}, "silence": {"until_step": 400}}, "silenced up to step 400"),
        ({"event": "alarm", "fed_by": ["val_loss"]}, "val_loss came last at step 20 (rank 0), and step 300 has none"),
        ({"metric": "ends", "threshold": {"above": 9}}, "ends came last at step 20 (rank 0), and step 300 has NaN"),
        ({"metric": "ends", "change": {"above": 9, "over": 5}, "mean_over": 3}, "step 300 has NaN"),
        ({"metric": "gone", "ratio": {"above": 9, "healthy": 5}}, "no value of `gone` came that is a number"),
    ],
)
def test_a_rule_that_is_not_fed_is_not_evaluated_and_says_why(tmp_path, rule, why):
    """It is never healthy."""
    numbers = {"val_loss": at(3.0, 10, 20), "ends": lambda step: 0.4 if step <= 20 else NAN, "gone": NAN}
    alerts, states = judged(tmp_path / "run", file_of(rule), steps(300, **numbers))
    assert alerts == []
    assert states[0]["state"] == "not_evaluated"
    assert why in states[0]["why"]


@pytest.mark.parametrize("back", [191, 51])
def test_a_resumed_run_misses_what_is_absent_since_it_resumed(tmp_path, back):
    """Its first step was an alert of all before it. What fed a rule in steps that are done again counts no more."""
    folder = tmp_path / "run"
    rules = {"absent": {"steps": 100}}, {"threshold": {"above": 9}}
    Run(folder).steps(200, val_loss=lambda step: None if step % 10 else 3.0)
    Run(folder, first=back).steps(99, val_loss=at(3.0))
    file = file_of(*({"metric": "val_loss", **rule} for rule in rules))
    assert from_another(folder, file)[0] == {}
    Run(folder, first=back).steps(300)
    incidents, states = from_another(folder, file)
    ((_, number, (alert,)),) = incidents.values()
    assert (number, alert["step"], alert["first_step"]) == (1, back + 99, back - 1)
    assert alert["seen"] == f"no val_loss for 100 steps, none since step {back - 1}"
    assert states[1]["state"] == "not_evaluated"
    assert states[1]["last_step"] < back


@pytest.mark.parametrize("rule", [{"event": "alarm", "fed_by": ["started"]}, {"event": "flagged", "fed_by": "loss"}])
def test_what_shows_once_for_all_that_somebody_looks_feeds_a_rule(tmp_path, rule):
    _, states = judged(tmp_path / "run", file_of(rule), steps(300))
    assert states[0]["state"] == "ok"


@pytest.mark.parametrize(
    ("rule", "fires"),
    [
        ({"threshold": {"above": 1, "for": 20}}, 69),
        ({"threshold": {"above": 1}, "mean_over": 10}, 53),
        ({"change": {"above": 1, "over": 10}}, 50),
    ],
)
def test_a_nan_among_values_hides_none_of_them(tmp_path, rule, fires):
    """It was taken for a value within the limit, and made the mean of many steps NaN."""
    numbers = {"mfu": lambda step: NAN if step % 7 == 3 else 3.0 if step >= 50 else 0.4}
    alerts, states = judged(tmp_path / "run", file_of({"metric": "mfu", **rule}), steps(70, **numbers))
    assert [alert[1] for alert in alerts] == [fires]
    assert states[0]["state"] == ("ok" if "change" in rule else "firing")


def test_each_rank_and_attempt_is_judged_by_itself(tmp_path):
    """A run that goes back forgets what it saw, and its alerts are a further incident."""
    folder = tmp_path / "run"
    for rank in range(2):
        run = Run(folder, rank, 2)
        for step in range(1, 21):
            run.end_step(loss=NAN if rank == 1 and step == 15 else 3.0)
        run.writer.close()
    for rank in range(2):
        run = Run(folder, rank, 2, first=11)
        for _ in range(10):
            run.end_step(loss=NAN if rank == 1 and run.step == 14 else 3.0)
        run.close()
    incidents, _ = from_another(folder, file_of({"metric": "loss", "not_finite": True}))
    assert list(incidents) == ["step00000015-rule0", "step00000015-rule0-attempt1"]
    assert {own["rank"] for _, _, alerts in incidents.values() for own in alerts} == {1}


def test_a_run_that_goes_on_has_a_healthy_span_of_its_own(tmp_path):
    """It begins with the first step that is judged."""
    folder = tmp_path / "run"
    for first, low in ((1, 2.0), (5_001, 1.0)):
        run = Run(folder, first=first)
        for step in range(30):
            run.end_step(loss=low if step >= 20 else 4.0)
        run.close()
    incidents, _ = from_another(folder, file_of({"metric": "loss", "ratio": {"below": 0.6, "healthy": 10}}))
    assert list(incidents) == ["step00000021-rule0", "step00005021-rule0-attempt1"]


def test_the_slowest_rank_is_named(tmp_path):
    """Its median time over that of all ranks; in the process of a rank this is not known. Another may follow it."""
    folder = tmp_path / "run"
    for rank in range(4):
        run = Run(folder, rank, 4)
        run.steps(300, rank_time=lambda step, rank=rank: 1.5 if rank == 2 and step < 200 else 1.0 + 0.01 * (rank == 1))
    file = file_of({"metric": "straggler_ratio", "threshold": {"above": 1.2, "for": 100}})
    incidents, (state,) = from_another(folder, file)
    assert state["state"] == "ok"
    ((_, _, alerts),) = incidents.values()
    assert (alerts[0]["rank"], alerts[0]["step"], alerts[0]["value"]) == (2, 100, pytest.approx(1.5 / 1.005))


def test_a_rank_that_a_later_start_lacks_is_not_the_slowest():
    feed = Feed({"straggler_ratio"}, ranks=4)

    def slowest(rank, step, seconds):
        row = {"step": [step], "metric": ["rank_time"], "stat": ["value"], "layer": [-1], "head": [-1]}
        list(feed.take("values", rank, {**row, "value": np.array([seconds])}, 0.0))
        row = {"step": [step], "time": [float(step)], "targets": [1], "scored": [1], "loss_sum": [1], "user_loss": None}
        rows = feed.take("steps", rank, row, 0.0)
        return [(item.rank, float(item.value[0])) for item in rows if isinstance(item, Numbers)]

    for attempt, ranks in enumerate((4, 3)):
        for rank in range(ranks):
            list(feed.begin(rank, attempt, 0.0))
            row = {"step": [1 + 100 * attempt], "kind": ["resumed"], "detail": [json.dumps({"ranks": ranks})]}
            list(feed.take("events", rank, row, 0.0))
        found = [slowest(rank, 100 * attempt + 9, 1.0 + 2.0 * (rank == 3)) for rank in range(ranks)]
        assert found[-1] == [[(3, 3.0)], [(0, 1.0)]][attempt]


@pytest.mark.parametrize(("over", "value"), [("any", 9.0), ("max", 9.0), ("mean", 6.0), ("min", 3.0)])
def test_a_layer_without_a_number_hides_no_other(over, value):
    """The largest of NaN and 9 was NaN, which is above nothing; a rule of numbers that are not finite sees it."""
    for condition, expected in (({"threshold": {"above": 2}}, value), ({"not_finite": True}, NAN)):
        feed = Feed({"mfu"})
        judge = Judge(file_of({"metric": "mfu", "over": over, **condition}).rules, feed)
        list(feed.begin(0, 0, 0.0))
        row = {"step": [9] * 3, "metric": ["mfu"] * 3, "stat": ["value"] * 3, "head": [-1] * 3}
        row |= {"layer": [0, 1, 2], "value": np.array([NAN, 9.0, 3.0])}
        (alert, *_) = [alert for item in feed.take("values", 0, row, 0.0) for alert in judge.see(item)]
        assert alert.value == pytest.approx(expected, nan_ok=True)


def test_a_rule_does_not_fire_for_a_rank_that_a_later_start_lacks():
    feed = Feed({"mfu"}, ranks=2)
    (rule,) = file_of({"metric": "mfu", "threshold": {"below": 0.2}}).rules
    judge = Judge([rule], feed)
    row = {"step": [9], "metric": ["mfu"], "stat": ["value"], "layer": [-1], "head": [-1]}
    fired = []
    for rank in range(2):
        list(feed.begin(rank, 0, 0.0))
        items = feed.take("values", rank, {**row, "value": np.array([0.1 if rank else 0.4])}, 0.0)
        fired += [alert.rank for item in items for alert in judge.see(item)]
    assert (fired, judge.firing(rule)) == ([1], True)
    list(feed.begin(0, 1, 0.0))
    list(feed.take("events", 0, {"step": [10], "kind": ["resumed"], "detail": [json.dumps({"ranks": 1})]}, 0.0))
    assert not judge.firing(rule)
    assert judge.states()[0].state == "ok"


def test_the_shipped_rules_name_every_severity_and_have_runbooks():
    """Each rule has a text of its own, with what to do; each text is of a rule."""
    rules = load_alerts(None).rules
    by_severity = {grade: {rule.name for rule in rules if rule.severity == grade} for grade in range(3)}
    assert {"loss_not_finite", "optimizer_state", "checkpoint_failed", "overflow_storm"} < by_severity[0]
    assert {"monitoring_blackout"} < by_severity[0]
    assert {"loss_spikes", "attention_logits", "attention_entropy", "mfu_collapse", "expert_drops"} < by_severity[1]
    assert {"skipped_updates", "tokens_stalled"} < by_severity[1]
    assert {"mixture_drift", "loader_stalls", "throughput", "memory_creep", "checkpoint_size"} < by_severity[2]
    assert {"straggler", "validation_loss", "slice_validation", "toxicity", "memorisation"} < by_severity[2]
    assert {"duplicates"} < by_severity[2]
    assert {rule.runbook or rule.name for rule in rules} == set(runbooks())
    assert all(rule.action for rule in rules)
    for name in runbooks():
        text = resources.files("dataaudit.live").joinpath("runbooks", f"{name}.md").read_text("utf-8")
        heads = [line for line in text.splitlines() if line.startswith("## ")]
        assert heads == [f"## {own}" for own in ("What it means", "Look first", "Safe action", "Replay the probe")] + [
            "## It is over when"
        ], name
        assert max(map(len, text.splitlines())) <= 120


def test_the_shipped_rules_keep_the_schema():
    """What is drafted is a file that the schema takes, too."""
    schema = json.loads(render("alerts"))
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(default_text()))


RULE = "version: 1\nrules:\n  - {name: a, about: A., severity: 1, "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 1\nrules: []\n", "rules: expected at least one entry"),
        (f"{RULE}metric: loss}}\n", "a metric needs one condition"),
        (f"{RULE}metric: loss, event: x, not_finite: true}}\n", "give either `metric` or `event`"),
        (f"{RULE}metric: loss, threshold: {{}}}}\n", "give `above`, `below`, or both"),
        (f"{RULE}metric: loss, threshold: {{abov: 1}}}}\n", "did you mean `above`?"),
        (f"{RULE}metric: loss, absent: {{steps: 1, seconds: 2}}}}\n", "either `steps` or `seconds`"),
        (f"{RULE}event: x, not_finite: true}}\n", "an event is counted"),
        (f"{RULE}metric: '*', not_finite: true}}\n", "goes with `absent`"),
        (f"{RULE}metric: loss, not_finite: true, runbook: nope}}\n", "no runbook `nope`"),
        (
            f"{RULE}metric: loss, not_finite: true}}\n  - {{name: a, about: B., severity: 1, event: x}}\n",
            "the name `a`",
        ),
        (
            f"{RULE}event: x}}\ndeliver: [{{name: s, to: slack, url: 'https://hooks.example/T0/B0/s3cr3t'}}]\n",
            "a secret",
        ),
        (f"{RULE}event: x}}\ndeliver: [{{name: s, to: pagerduty, key: s3cr3t}}]\n", "`key` is a secret"),
        (f"{RULE}event: x}}\ndeliver: [{{name: s, to: webhook, url: 'https://u:s3cr3t@a.example'}}]\n", "a secret"),
        (f"{RULE}event: x}}\ndeliver: [{{name: s, to: command}}]\n", "needs `command`"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_words(text, message):
    """Where, what was expected; and never a secret that was written into it."""
    with pytest.raises(ConfigError) as caught:
        parse_alerts(text, where="alerts.yaml")
    assert message in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert "dataaudit alerts draft" in str(caught.value)
