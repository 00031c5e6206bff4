"""The judgement of a canary: its interval covers, its states and verdicts, and a record that is judged again."""

from __future__ import annotations

import datetime as dt
import json

import jsonschema
import numpy as np
import pytest
from lanes import thinned
from scipy import stats

from dataaudit.base.errors import ManifestError
from dataaudit.base.statistics import wilson
from dataaudit.manifest.canary_record import (
    LOST,
    RATE,
    CanaryCore,
    CanaryRecord,
    RunFacts,
    SeedRun,
    Side,
    judge,
    judge_speed,
    read_canary,
    sealed,
)

DIGEST = "sha256:" + "0" * 64
OTHER = "sha256:" + "1" * 64
HEALTHY = np.array([2.0, 2.1, 1.9, 2.05, 1.95, 2.02, 1.98, 2.0])


def side(**changes):
    """Return eight healthy runs, whose losses are those above and a tenth more on held-out data."""
    losses = changes.pop("losses", HEALTHY)
    more = changes.pop("more", {})
    orders = changes.pop("orders", [DIGEST] * len(losses))
    runs = [
        SeedRun(
            seed=seed,
            order=orders[seed],
            values={}
            if not np.isfinite(loss)
            else {"train_loss_raw": loss, "val_loss": 1.1 * loss} | {name: own[seed] for name, own in more.items()},
            problem="" if np.isfinite(loss) else "not_finite",
        )
        for seed, loss in enumerate(losses)
    ]
    digests = dict.fromkeys(("manifest", "training_shards", "held_out_shards", "code"), DIGEST)
    return Side(**digests | {"function": "f", "config": {}, "steps": 500, "last": 50, "seeds": runs} | changes)


def reference(before, after, healthy, rate):
    """Return the state by a two-sample prediction interval of scipy's t, written a second time."""
    n, m = len(healthy), len(before)
    mean = sum(a - b for a, b in zip(after, before, strict=True)) / m
    variance = sum((x - sum(healthy) / n) ** 2 for x in healthy) / (n - 1)
    limit = stats.t.ppf(1 - rate / 2, n - 1) * (variance * 2 / m) ** 0.5
    return limit, "same" if abs(mean) <= limit else "worse" if mean > 0 else "better"


@pytest.mark.parametrize("seeds", [3, 8])
@pytest.mark.parametrize("shift", [-1.0, -0.1, 0.0, 0.1, 0.17, 1.0])
def test_a_loss_is_judged_as_the_reference_does(seeds, shift):
    """Two losses share half of the rate."""
    after = HEALTHY[:seeds] + shift
    made = judge("code", side(), side(losses=after))
    limit, state = reference(HEALTHY[:seeds], after, HEALTHY, RATE / 2 / 2)
    own = made["metrics"][0]
    assert own.state == state
    assert own.limit == pytest.approx(limit, rel=1e-9)
    assert own.difference == pytest.approx(shift, abs=1e-9)
    verdict = {"worse": "regressed", "same": "pass"}.get(state, "better")
    assert (made["verdict"], made["exit_code"]) == (verdict, int(state != "same"))


def test_a_loss_that_falls_out_of_its_interval_has_to_be_expected():
    """It may be a leak of labels: no pass without a declaration, which excuses nothing else and is part of the id."""
    made = judge("code", side(), side(losses=HEALTHY - 1))
    assert (made["verdict"], made["exit_code"]) == ("better", 1)
    sd = np.std(HEALTHY, ddof=1)
    assert f"val_loss is {1 / sd:.3g} sd below healthy seeds: look for a leak of labels" in made["reasons"][1]
    assert made["reasons"][1].endswith("if the change is meant to lower it, --expect better")
    declared = judge("code", side(), side(losses=HEALTHY - 1), "better")
    assert (declared["verdict"], declared["reasons"], declared["exit_code"]) == ("pass", (), 0)
    assert judge("code", side(), side(losses=HEALTHY + 1), "better")["verdict"] == "regressed"
    lost = side(losses=HEALTHY - 1)
    assert judge("code", side(more={"norm": HEALTHY}), lost)["verdict"] == "better"
    assert judge("code", side(more={"norm": HEALTHY}), lost, "better")["verdict"] == "undecidable"
    moved = side(losses=HEALTHY - 1, more={"norm": HEALTHY + 1})
    made = judge("code", side(more={"norm": HEALTHY}), moved)
    assert (made["verdict"], len(made["reasons"])) == ("regressed", 3)
    facts = {"changed": "code", "baseline_id": side().id, "baseline": side(), "canary": side(losses=HEALTHY - 1)}
    assert CanaryCore(**facts, expect="better", **declared).verdict == "pass"
    with pytest.raises(ValueError, match="the verdict is not what the runs say"):
        CanaryCore(**facts, **declared)


def test_the_rate_of_false_alarms_is_kept_and_five_sd_are_seen():
    """Runs of healthy code that share nothing but the seed's number are the worst case; shares have Wilson's bounds."""
    draw, number = np.random.default_rng(3), thinned(4_000, 800)
    alarms = seen = 0
    for _ in range(number):
        base, other = draw.normal(2, 0.1, (2, 8))
        more = dict(zip("abcd", draw.normal(0, 1, (4, 8)), strict=True))
        also = dict(zip("abcd", draw.normal(0, 1, (4, 8)), strict=True))
        made = judge("code", side(losses=base, more=more), side(losses=other, more=also))
        alarms += made["verdict"] != "pass"
        seen += judge("code", side(losses=base), side(losses=other + 0.5))["verdict"] == "regressed"
    assert wilson(alarms / number, number, 0.99)[0] <= RATE
    assert wilson(seen / number, number, 0.95)[0] > 0.95


def test_logged_values_move_both_ways_and_constants_only_as_a_whole():
    """A constant of all healthy seeds moves where every pair leaves it on one side."""
    rate, count = np.full(8, 3e-4), np.zeros(8)
    base = side(more={"learning_rate": rate, "dead": count, "norm": HEALTHY})
    some = count + np.array([1, 0, 0, 0, 0, 0, 0, 0])
    now = side(more={"learning_rate": rate / 10, "dead": some, "norm": HEALTHY - 1})
    states = {own.metric: own.state for own in judge("code", base, now)["metrics"]}
    assert states == {
        "train_loss_raw": "same",
        "val_loss": "same",
        "dead": "same",
        "learning_rate": "moved",
        "norm": "moved",
    }


@pytest.mark.parametrize("seeds", range(8, 15))
def test_equal_values_of_any_number_of_seeds_have_no_spread(seeds):
    """The mean of eleven times 2.3 is not 2.3 in binary, and a spread of 4e-16 is no spread."""
    value = np.full(seeds, 2.3)
    some = np.append(value[1:], 2.4)
    losses = np.resize(HEALTHY, seeds)
    made = judge("code", side(losses=losses, more={"rate": value}), side(losses=losses, more={"rate": some}))
    assert {own.metric: (own.state, own.seed_sd) for own in made["metrics"]}["rate"] == ("same", 0)
    alike = judge("code", side(losses=value), side(losses=value + 1))
    assert {own.state for own in alike["metrics"]} == {"not_evaluated"}
    assert alike["verdict"] == "undecidable"


@pytest.mark.parametrize(
    ("now", "changed", "said"),
    [
        ({"steps": 300, "last": 30}, "code", "300 steps, 500 in the baseline"),
        ({"held_out_shards": OTHER}, "data", "held-out shards are not the baseline's"),
        ({"training_shards": OTHER}, "code", "training shards are not the baseline's"),
        ({"orders": [OTHER, *[DIGEST] * 7]}, "code", "another order of them, than the baseline's: seed 0"),
    ],
)
def test_what_differs_makes_it_invalid(now, changed, said):
    """No metric is shown, and the exit code is 3."""
    made = judge(changed, side(), side(**now))
    assert (made["verdict"], made["exit_code"], made["metrics"]) == ("invalid", 3, ())
    assert said in made["reasons"][0]


def test_an_unknown_order_is_invalid():
    """Runs that hand no batches over are not known to be pairs."""
    made = judge("code", side(orders=[None] * 8), side(orders=[None] * 8))
    assert made["verdict"] == "invalid"
    assert "order of the data is not known" in made["reasons"][0]


def test_other_data_is_judged_by_held_out_losses_alone():
    """Shards and order are what was changed."""
    other = {"training_shards": OTHER, "orders": [OTHER] * 8, "manifest": OTHER}
    made = judge("data", side(), side(losses=HEALTHY, **other))
    assert [own.state for own in made["metrics"]] == ["not_evaluated", "same"]
    assert made["verdict"] == "pass"
    assert judge("data", side(), side(losses=HEALTHY + 1, **other))["verdict"] == "regressed"
    without = [run.model_copy(update={"values": {"train_loss_raw": 2.0}}) for run in side().seeds]
    made = judge("data", side(), side(**other).model_copy(update={"seeds": tuple(without)}))
    assert (made["verdict"], made["exit_code"]) == ("undecidable", 3)


@pytest.mark.parametrize(
    ("base", "now", "verdict", "code", "said"),
    [
        ({"losses": HEALTHY[:7]}, {"losses": HEALTHY[:7]}, "undecidable", 3, "7 healthy seeds, 8 are needed"),
        ({}, {"losses": HEALTHY[:2]}, "undecidable", 3, "2 seeds of the changed code, 3 are needed"),
        ({}, {"losses": HEALTHY[:0]}, "undecidable", 4, "0 seeds of the changed code"),
        ({}, {"losses": [np.nan, *HEALTHY[1:]]}, "regressed", 1, "a loss is not finite with seed 0"),
        ({"losses": [*HEALTHY[:7], np.nan]}, {}, "undecidable", 3, "7 healthy seeds"),
        ({"losses": np.full(8, 2.0)}, {"losses": np.full(8, 2.0)}, "undecidable", 3, "does not use task.seed"),
    ],
)
def test_too_few_seeds_are_undecidable_and_a_loss_that_breaks_is_a_regression(base, now, verdict, code, said):
    """What is missing is named."""
    made = judge("code", side(**base), side(**now))
    assert (made["verdict"], made["exit_code"]) == (verdict, code)
    assert said in made["reasons"][0]


def test_a_metric_that_a_run_lacks_is_not_evaluated():
    """What all healthy runs have and a run of the change lacks leaves the verdict open; a new value does not."""
    runs = [run.model_copy(update={"values": {"train_loss_raw": run.values["train_loss_raw"]}}) for run in side().seeds]
    made = judge("code", side(), side().model_copy(update={"seeds": tuple(runs)}))
    assert (made["verdict"], made["reasons"]) == ("undecidable", (f"val_loss: {LOST}",))
    made = judge("code", side(more={"norm": HEALTHY}), side())
    assert (made["verdict"], made["reasons"]) == ("undecidable", (f"norm: {LOST}",))
    made = judge("code", side(), side(more={"norm": HEALTHY}))
    assert (made["verdict"], made["metrics"][-1].state) == ("pass", "not_evaluated")


def facts(scale=1.0, machine="here"):
    """Return circumstances."""
    seconds = {seed: scale * own / 100 for seed, own in enumerate(HEALTHY)}
    now = dt.datetime(2026, 11, 28, tzinfo=dt.UTC)
    rest = {"program": "p", "environment": {}, "tokens_per_sec": {}}
    return RunFacts(at=now, machine=machine, step_seconds=seconds, **rest)


@pytest.mark.parametrize(
    ("now", "state"),
    [
        (facts(1.05), "same"),
        (facts(1.5), "slower"),
        (facts(0.5), "faster"),
        (facts(1.5, machine="there"), "other_machine"),
    ],
)
def test_seconds_are_judged_apart(now, state):
    """By their ratio, on one machine."""
    assert judge_speed(facts(), now).state == state


def test_a_record_is_judged_again_when_it_is_read(tmp_path):
    """Its id, its verdict and its numbers are those of its runs; times are no part of the id."""
    base, now = side(), side(losses=HEALTHY + 1)
    core = CanaryCore(changed="code", baseline_id=base.id, baseline=base, canary=now, **judge("code", base, now))
    path = tmp_path / "canary.json"
    path.write_bytes(sealed(core, facts()))
    assert read_canary(path).core == core
    plain = json.loads(path.read_bytes())
    jsonschema.validate(plain, CanaryRecord.model_json_schema())
    assert json.loads(sealed(core, facts(2.0)))["id"] == plain["id"]
    for change, said in (
        ({"verdict": "pass", "exit_code": 0}, "the verdict is not what the runs say"),
        (
            {"metrics": [{**plain["core"]["metrics"][0], "limit": 9.0}, plain["core"]["metrics"][1]]},
            "the verdict is not",
        ),
        ({"baseline_id": OTHER}, "baseline_id is not the digest of the baseline's runs"),
        ({"expect": "better"}, "its id is not the digest of its core"),
    ):
        path.write_text(json.dumps(plain | {"core": plain["core"] | change}))
        with pytest.raises(ManifestError, match=said):
            read_canary(path)
    path.write_text("{}")
    with pytest.raises(ManifestError, match="no record of a canary"):
        read_canary(path)
    with pytest.raises(ManifestError, match="cannot be read"):
        read_canary(tmp_path / "absent.json")
