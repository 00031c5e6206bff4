"""Triage of logs made by hand: the cause by its evidence, and no verdict where something was not looked at."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import triage_world as made
from click.testing import CliRunner

from dataaudit import ConfigError
from dataaudit.base.render.line import spell
from dataaudit.cli import main
from dataaudit.live import Alerts
from dataaudit.live.rules import AlertsFile
from dataaudit.probes.report import EvalArtifacts
from dataaudit.probes.triage import internals
from dataaudit.probes.triage.run import shown, triage
from dataaudit.probes.triage.steps import TITLES, Check, Step, Triage

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return made.manifest(tmp_path_factory.mktemp("triage") / "manifest")


@pytest.fixture(scope="module")
def baseline(manifest):
    """Return a healthy run with its report."""
    folder = made.run(manifest.parent / "baseline", manifest, seed=1)
    made.report(folder)
    return folder


@pytest.fixture
def judged(tmp_path, manifest, baseline):
    """Return a function that makes a run with something wrong, and triages it beside the healthy one."""

    def judge(*, report=True, artifacts=None, losses=2.0, given=None, **wrong):
        folder = made.run(tmp_path / "run", manifest, **wrong)
        if report:
            made.report(folder, losses=losses, **(artifacts or {}))
        return triage(folder, manifest, baseline=baseline, **(given or {}))

    return judge


def check(result, step, name):
    """Return a check by the names of its step and its own."""
    (own,) = [check for each in result.steps if each.name == step for check in each.checks if check.name == name]
    return own


# --- the verdict -----------------------------------------------------------------------------------------------------

STATES = ("clean", "clean", "clean", "clean")


@pytest.mark.parametrize(
    ("states", "verdict", "cause", "code"),
    [
        (STATES, "none", "none", 0),
        (("found", *STATES[1:]), "found", "evaluation: x", 1),
        (("found", "found", "found", "found"), "found", "evaluation: x", 1),
        (("clean", "clean", "found", "not_evaluated"), "found", "internals: x", 1),
        (("clean", "clean", "clean", "found"), "found", "architecture: x", 1),
        (("not_evaluated", "clean", "found", "clean"), "undecidable", "", 3),
        (("clean", "clean", "clean", "not_evaluated"), "undecidable", "", 3),
        (("clean", "not_applicable", "clean", "clean"), "undecidable", "", 3),
    ],
)
def test_a_cause_is_named_only_behind_steps_that_are_clean(states, verdict, cause, code):
    steps = tuple(Step(name, (Check("c", state, "why", part="x"),)) for name, state in zip(TITLES, states, strict=True))
    result = Triage(run="r", baseline="b", manifest="m", steps_seen=9, steps=steps)
    assert (result.verdict, result.cause, result.exit_code) == (verdict, cause, code)
    if "found" in states:
        assert result.document()["suspect"] == f"{list(TITLES)[states.index('found')]}: x"


def test_a_check_that_is_not_needed_leaves_a_step_clean_and_one_alone_does_not():
    lacking = Check("c", "not_evaluated", "why", needed=False)
    assert Step("data", (lacking, Check("d", "clean", ""))).state == "clean"
    assert Step("data", (lacking,)).state == "not_evaluated"
    assert Step("data", ()).state == "not_evaluated"


def test_of_checks_that_are_off_the_earliest_names_the_part():
    off = [Check(name, "found", "", part=name, onset=onset) for name, onset in (("a", None), ("b", 9), ("c", 4))]
    assert Step("internals", tuple(off)).named == "internals: c"


# --- a whole run -----------------------------------------------------------------------------------------------------


def test_a_clean_pair_has_no_cause(judged):
    result = judged()
    assert (result.cause, result.exit_code) == ("none", 0), result.document()
    assert [step.state for step in result.steps] == ["clean"] * 4
    assert {check.name for check in result.symptoms} == {"val_loss", "fixed_probe_loss"}


def test_every_step_of_a_lone_run_says_what_would_feed_it(tmp_path, manifest):
    result = triage(made.run(tmp_path / "run", manifest, vitals=False), manifest)
    assert (result.verdict, result.exit_code) == ("undecidable", 3)
    assert [step.state for step in result.steps] == ["not_evaluated", "clean", "not_evaluated", "not_evaluated"]
    assert {check.feed for check in result.missing} == {
        "--baseline RUNLOG",
        "Vitals(model, optimizer, VitalsConfig(), sinks=[monitor])",
    }


def test_a_log_without_a_step_is_no_data(tmp_path, manifest):
    result = triage(made.run(tmp_path / "run", manifest, steps=0), manifest)
    assert (result.verdict, result.exit_code, result.steps) == ("no_data", 4, ())
    assert shown(result, "text").startswith("No data")


# --- evaluation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", [field.name for field in fields(EvalArtifacts)])
def test_another_artifact_is_the_cause_whatever_else_is_off(judged, field):
    value = "dataaudit-probes/held_out 2" if field == "harness" else "other"
    result = judged(artifacts={field: value}, code=0.9)
    assert result.cause == f"evaluation: {field}"
    assert "dataaudit probe OLD --cross NEW" in check(result, "evaluation", "eval_artifact_hash").feed
    (symptom,) = [each for each in result.symptoms if each.name == "val_loss"]
    assert "not compared" in spell(symptom.words)


@pytest.mark.parametrize(("follows", "cause"), [("checkpoint", "data: mixture"), ("harness", "evaluation: dtype")])
def test_a_cross_product_beside_the_reports_decides_whether_to_go_on(tmp_path, judged, follows, cause):
    hashes = list(made.report(tmp_path / "elsewhere", dtype="bfloat16").artifacts)
    (tmp_path / "run/probes").mkdir(parents=True)
    (tmp_path / "run/probes/cross.json").write_text(json.dumps({"follows": follows, "artifacts": {"new": hashes}}))
    result = judged(artifacts={"dtype": "bfloat16"}, code=0.9)
    assert result.cause == cause
    assert follows in spell(check(result, "evaluation", "eval_artifact_hash").words)


def test_a_cross_product_of_other_artifacts_decides_nothing(tmp_path, judged):
    (tmp_path / "run/probes").mkdir(parents=True)
    (tmp_path / "run/probes/cross.json").write_text(json.dumps({"follows": "checkpoint", "artifacts": {"new": ["x"]}}))
    assert judged(artifacts={"dtype": "bfloat16"}).cause == "evaluation: dtype"


def test_without_a_report_data_that_is_off_is_suspected_and_no_cause(judged):
    result = judged(report=False, code=0.9)
    assert (result.verdict, result.cause, result.exit_code) == ("undecidable", "", 3)
    assert result.document()["suspect"] == "data: mixture"
    assert "dataaudit probe CHECKPOINT" in result.missing[0].feed
    assert shown(result, "text").startswith("Undecidable: data: mixture is off, but of the steps before")


def test_artifacts_that_only_the_log_holds_are_compared(judged, tmp_path):
    plain = made.report(tmp_path / "elsewhere", tokenizer="swapped").document()["artifacts"]
    odd = [(161, "probed", {"artifacts": ["of an older version"]}), (162, "probed", {"artifacts": {"x": {"y": 1}}})]
    result = judged(report=False, events=[(160, "probed", {"artifacts": plain}), *odd])
    assert result.cause == "evaluation: tokenizer"


def test_probes_of_a_single_run_are_named_and_no_fault(judged):
    result = judged(artifacts={"frozen": False})
    assert result.cause == "none"
    assert "frozen" in spell(check(result, "evaluation", "probes of a single run").words)


def test_the_newest_report_counts_and_others_of_another_step_are_not_compared(tmp_path, manifest, baseline, judged):
    made.report(tmp_path / "run", step=80, tokenizer="old")
    assert judged().cause == "none"
    made.report(tmp_path / "run", step=200)
    result = triage(tmp_path / "run", manifest, baseline=baseline)
    assert result.symptoms == ()
    assert check(result, "architecture", "held-out loss").state == "not_evaluated"


# --- data ------------------------------------------------------------------------------------------------------------


def test_shares_off_the_declared_mixture_are_the_cause(judged):
    result = judged(code=0.8)
    assert result.cause == "data: mixture"
    assert "declared 50.0%" in spell(check(result, "data", "source shares").words)


@pytest.mark.parametrize(("code", "cause"), [(0.8, "data: mixture"), (0.5, "none")])
def test_without_a_declared_mixture_shares_are_those_of_the_baseline(tmp_path, code, cause):
    folder = made.manifest(tmp_path / "m", mixture=False)
    runs = [
        made.run(tmp_path / name, folder, seed=at, code=own) for at, (name, own) in enumerate([("a", 0.5), ("b", code)])
    ]
    for own in runs:
        made.report(own)
    assert triage(runs[1], folder, baseline=runs[0]).cause == cause
    alone = triage(runs[1], folder)
    assert check(alone, "data", "source shares").state == "not_evaluated"


def test_a_shard_behind_spikes_is_the_cause_unless_the_baseline_has_it_too(tmp_path, manifest, baseline, judged):
    result = judged(bad=range(100, 106))
    assert result.cause == "data: shards"
    assert "part-0.jsonl (behind a spike)" in spell(check(result, "data", "shards behind losses").words)
    both = made.run(tmp_path / "both", manifest, seed=5, bad=range(100, 106))
    made.report(both)
    again = triage(tmp_path / "run", manifest, baseline=both)
    assert check(again, "data", "shards behind losses").state == "clean"


def test_a_baseline_of_another_manifest_needs_that_manifest(tmp_path):
    folders = [made.manifest(tmp_path / f"m{number}", shards=number, mixture=False) for number in (14, 12)]
    runs = [made.run(tmp_path / f"run-{at}", own, seed=at) for at, own in enumerate(folders)]
    for own in runs:
        made.report(own)
    unnamed = triage(runs[1], folders[1], baseline=runs[0])
    assert unnamed.verdict == "undecidable"
    assert "--baseline-manifest DIR" in {check.feed for check in unnamed.missing}
    result = triage(runs[1], folders[1], baseline=runs[0], baseline_manifest=folders[0])
    assert result.cause == "data: manifest"
    assert "2 shards (80 documents) gone" in spell(check(result, "data", "manifest").words)


# --- internal behaviour ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("off", "since", "part"),
    [
        ({"attn_entropy": 0.05}, 80, "attention"),
        ({"attn_entropy": 0.99}, 80, "attention"),
        ({"max_attn_logit": 400.0}, 80, "attention"),
        ({"k_norm": 60.0, "moe_util_entropy": 0.2}, {"k_norm": 60, "moe_util_entropy": 100}, "attention"),
        ({"k_norm": 60.0, "moe_util_entropy": 0.2}, {"k_norm": 100, "moe_util_entropy": 60}, "router"),
        ({"router_token_entropy": 0.01}, 80, "router"),
        ({"router_weight_similarity": 0.7}, 80, "router"),
        ({"residual_rms": 50.0}, 80, "activations"),
        ({"stable_rank": 1.0}, 80, "weights"),
        ({"update_to_weight": 0.0001}, 80, "optimizer"),
    ],
)
def test_a_number_that_stays_far_from_the_baseline_names_its_part(judged, off, since, part):
    result = judged(off=off, since=since)
    assert result.cause == f"internals: {part}"
    first = next(iter(off))
    begins = since if isinstance(since, int) else min(since.values())
    assert check(result, "internals", part).onset == begins + 2 * made.EVERY  # by the median of five
    assert f"the baseline's {made.LEVELS[next(key for key in made.LEVELS if key[0] == first)]:.1g}"[:14] in repr(result)


def test_a_number_that_comes_back_at_the_end_is_off_since_it_left():
    steps, levels = np.arange(40), np.full(40, 0.5)
    off = np.where((steps >= 20) & (steps < 37), 0.05, levels)
    entropy = next(number for number in internals.NUMBERS if number.metric == "attn_entropy")
    assert internals._compared((steps, off), (steps, levels), entropy, alike=True) == (22, 0.05, 0.5)


def test_an_amount_that_is_far_on_the_healthy_side_is_no_cause(judged):
    healthier = {"q_norm": 0.5, "max_attn_logit": 1.0, "spectral_norm": 0.4}
    assert judged(off=healthier, since=80).cause == "none"


def test_too_few_measured_steps_are_not_evaluated(judged):
    result = judged(every=40)
    assert result.verdict == "undecidable"
    assert {check.name for check in result.missing} >= {"attention", "router"}


def test_a_dense_model_has_no_routers_to_look_at(tmp_path, manifest):
    runs = [
        made.run(tmp_path / name, manifest, seed=at, shape={"experts": "0 of 2 layers"}) for at, name in enumerate("ab")
    ]
    for own in runs:
        made.report(own)
    result = triage(runs[1], manifest, baseline=runs[0])
    assert check(result, "internals", "router").state == "not_applicable"
    assert result.cause == "none"
    named = {own["name"]: own["state"] for own in result.experiments}
    assert named["experts and capacity"] == "not_applicable"


RULE = {"metric": "max_attn_logit", "rule": "limit", "severity": 1, "incident": 1, "layer": 0}


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([(90, "alarm", RULE)], "internals: attention"),
        ([(90, "alarm", RULE | {"severity": 3})], "none"),
        ([(90, "alarm", RULE | {"rule": "drift"})], "none"),
        ([(90, "alarm", RULE | {"metric": "moe_dead_experts", "rule": "unused"})], "internals: router"),
        ([(90, "nan_inf", {"where": "loss"})], "internals: numbers"),
    ],
)
def test_a_fixed_rule_that_the_baseline_kept_is_a_cause_and_a_statistical_alarm_is_none(judged, events, cause):
    assert judged(events=events).cause == cause


def test_a_rule_that_the_baseline_broke_too_is_no_cause(tmp_path, manifest):
    runs = [made.run(tmp_path / name, manifest, seed=at, events=[(90, "alarm", RULE)]) for at, name in enumerate("ab")]
    for own in runs:
        made.report(own)
    assert triage(runs[1], manifest, baseline=runs[0]).cause == "none"


@pytest.mark.parametrize(
    ("metric", "severity", "cause"),
    [
        ("tokens_per_sec", 1, "none"),
        ("router_token_entropy", 2, "none"),
        ("router_token_entropy", 1, "internals: router"),
    ],
)
def test_an_alert_on_the_model_is_a_cause_and_another_is_none(
    judged, metric, severity, cause, tmp_path, manifest, baseline
):
    judged()
    rule = {"name": "low", "about": "It is low.", "severity": severity, "metric": metric, "threshold": {"below": 0.1}}
    with Alerts(tmp_path / "run", AlertsFile.model_validate({"version": 1, "rules": [rule]})) as alerts:
        alerts.joins(0, 0)
        for step in range(60, 80):
            alerts.take("values", made.values([(step, metric, -1, "value", 0.01)]))
    assert list((tmp_path / "run/alerts").glob("*/incident.json"))
    result = triage(tmp_path / "run", manifest, baseline=baseline)
    assert result.cause == cause
    if cause != "none":
        assert check(result, "internals", "alerts").onset == 60


# --- architecture ----------------------------------------------------------------------------------------------------

SMALL = {"parameters": 100_000, "layers": 1, "width": 32}


def test_a_smaller_model_that_underfits_alike_is_too_small(judged):
    result = judged(shape=SMALL, loss=2.3, losses=2.3)
    assert result.cause == "architecture: too small"
    words = spell(check(result, "architecture", "capacity").words)
    assert "parameters 100,000, the baseline's 1,000,000" in words
    assert "a doubling of its tokens gains" in words
    assert "only what does not depend on it" in spell(check(result, "internals", "attention").words)


@pytest.mark.parametrize(
    ("wrong", "verdict"),
    [
        ({"loss": 2.3, "losses": 2.3}, "undecidable"),
        ({"shape": SMALL, "losses": 2.3}, "undecidable"),
        ({"shape": SMALL | {"parameters": 2_000_000}, "loss": 2.3, "losses": 2.3}, "undecidable"),
        ({"shape": SMALL}, "none"),
        ({"loss": 2.3, "losses": 2.3, "given": {"worse": 0.2}}, "none"),
    ],
)
def test_a_worse_loss_that_no_smaller_shape_explains_is_undecidable(judged, wrong, verdict):
    result = judged(**wrong)
    assert result.verdict == verdict, result.document()
    if verdict == "undecidable":
        assert [check.name for check in result.missing] == ["capacity"]


@pytest.mark.parametrize(("right", "verdict"), [(30, "none"), (10, "undecidable")])
@pytest.mark.parametrize("lm_eval", [False, True])
def test_a_benchmark_that_dropped_beside_equal_losses_is_not_explained(tmp_path, manifest, right, verdict, lm_eval):
    """Scores have a task, and none was looked at: such a run was clean."""
    runs = [made.run(tmp_path / name, manifest, seed=at) for at, name in enumerate("ab")]
    for own, number in zip(runs, (30, right), strict=True):
        made.report(own, right=number, lm_eval=lm_eval)
    result = triage(runs[1], manifest, baseline=runs[0])
    assert result.verdict == verdict
    name = "microbench_score.acc quiz" if lm_eval else "microbench_score cloze"
    assert name in {check.name for check in result.symptoms}
    assert (name in spell(check(result, "architecture", "capacity").words)) == (verdict == "undecidable")


def test_a_collapse_of_a_smaller_model_is_its_internal_behaviour(judged):
    assert judged(shape=SMALL, loss=2.3, losses=2.3, off={"router_token_entropy": 0.0}).cause == "internals: router"


def test_validations_of_the_logs_stand_in_for_reports(tmp_path, manifest):
    events = [(160, "probed", {"artifacts": {}})]
    before = made.run(tmp_path / "a", manifest, seed=1, validation=2.0, events=events)
    worse = made.run(tmp_path / "b", manifest, loss=2.3, validation=2.3, shape=SMALL)
    result = triage(worse, manifest, baseline=before)
    assert check(result, "architecture", "capacity").state == "found"
    assert result.verdict == "undecidable"


def test_experiments_cost_what_their_steps_cost_here(judged):
    result = judged()
    own = result.experiments[0]
    tokens = 2 * 200 * made.ROWS * made.TARGETS
    assert own["tokens"][0] == tokens
    assert own["flops"][0] == pytest.approx(6 * made.SHAPE["parameters"] * tokens)
    assert own["device_hours"] == pytest.approx([2 * 200 * 0.5 / 3600, 2 * 2000 * 0.5 / 3600])
    assert len(result.experiments) == 4


# --- what people see -------------------------------------------------------------------------------------------------


def command(*options):
    return CliRunner().invoke(main, ["triage", *map(str, options)])


def test_the_command_prints_a_page_markdown_and_json(tmp_path, manifest, baseline, judged):
    judged(code=0.8)
    given = [tmp_path / "run", "--manifest", manifest, "--baseline", baseline]
    page = command(*given)
    assert page.exit_code == 1, page.output
    assert page.stdout.startswith("Cause: data: mixture. code is ")
    assert [page.stdout.index(title) for title in TITLES.values()] == sorted(map(page.stdout.index, TITLES.values()))
    text = command(*given, "--format", "md").stdout
    assert text.startswith("## Cause: data: mixture. `code` is ")
    assert "### 2. Data: off" in text
    plain = json.loads(command(*given, "--json").stdout)
    assert (plain["schema"], plain["cause"], plain["exit_code"]) == ("dataaudit-triage/1", "data: mixture", 1)
    assert [step["name"] for step in plain["steps"]] == list(TITLES)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--baseline", "{run}"], "is the run itself"),
        (["--baseline-manifest", "{run}"], "no baseline"),
        (["--probes", "{run}"], "holds no report of a probe"),
        (["--baseline", "{run}/none"], "no run log at"),
    ],
)
def test_wrong_use_is_named(tmp_path, judged, manifest, options, words):
    judged()
    given = [option.format(run=tmp_path / "run") for option in options]
    result = command(tmp_path / "run", "--manifest", manifest, *given)
    assert result.exit_code == 2, result.output
    assert words in result.stderr


def test_a_run_of_another_manifest_is_refused(tmp_path, manifest, judged):
    judged()
    other = made.manifest(tmp_path / "other", shards=4)
    result = command(tmp_path / "run", "--manifest", other)
    assert result.exit_code == 2
    assert "is the log of a run on the manifest" in result.stderr
    with pytest.raises(ConfigError):
        triage(tmp_path / "run", manifest, probes=tmp_path / "empty")


# --- logs that lost something ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["half", "gone"])
@pytest.mark.parametrize(
    ("table", "side", "verdict", "words"),
    [
        ("stretches", "run", "undecidable", "sources are counted of 0 of 81,920 targets"),
        ("stretches", "baseline", "undecidable", "baseline: sources are counted of 0 of 81,920 targets"),
        ("events", "run", "undecidable", "its tokenizer"),
        ("steps", "run", "no_data", ""),
    ],
)
def test_what_a_log_lost_is_no_cause(tmp_path, manifest, baseline, table, side, verdict, words, how):
    """Half a file is what a copy or a full disk leaves."""
    folders = {"run": made.run(tmp_path / "run", manifest), "baseline": made.run(tmp_path / "old", manifest, seed=1)}
    for folder in folders.values():
        made.report(folder)
    (path,) = folders[side].glob(f"ranks/*/{table}-*")
    path.unlink() if how == "gone" else path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    result = triage(folders["run"], manifest, baseline=folders["baseline"])
    assert (result.verdict, result.cause) == (verdict, "")
    if words:
        assert words in spell(check(result, "data", "run log").words)
        assert "run log" in {own.name for own in result.missing}
    if side == "run" and how == "half":
        assert "bytes of it cannot be read" in result.log
        assert result.log in shown(result, "md")


def test_losses_of_segments_that_are_not_there_are_not_clean(tmp_path, manifest, baseline):
    folder = made.run(tmp_path / "run", manifest, scored=False)
    made.report(folder)
    result = triage(folder, manifest, baseline=baseline)
    assert check(result, "data", "shards behind losses").state == "not_evaluated"


@pytest.mark.parametrize("worse", [float("nan"), 0.0, 1.5])
def test_a_share_that_is_none_is_refused(manifest, baseline, tmp_path, worse):
    with pytest.raises(ConfigError, match="a share above 0"):
        triage(made.run(tmp_path / "run", manifest), manifest, baseline=baseline, worse=worse)
