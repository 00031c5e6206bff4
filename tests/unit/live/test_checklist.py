"""Which musts a run is not fed: by scale and phase, too seldom, once, stale, NaN, on some ranks; and the command."""

import json
import math
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from click.testing import CliRunner
from live_logs import Run, file_of

from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.live.checklist import PHASES, SCALES, State, check_log, checklists
from dataaudit.live.heartbeats import BEATS_FOLDER, Heartbeat
from dataaudit.live.rules import default_text
from dataaudit.runlog.writer import supersede_ranks

EARLY = {
    "nan_inf_events", "skipped_updates", "loss_scale", "overflow_rate", "train_loss_ema", "tokens_per_update",
    "grad_global_norm", "update_to_weight", "max_attn_logit", "tokens_per_sec", "step_time", "dataloader_stall_frac",
}  # fmt: skip
"""Musts of a nano run that begins."""


def musts(scale, phase):
    """Return the musts that the checklists declare."""
    families = checklists().families.values()
    return {name for own in families for name in own.metrics if own.grade(name, scale, phase) == "must"}


def log(folder, steps=200, ranks=1, without=(), every=None, values=None, told=None, rates=None):
    """Write the log of a run that feeds all a nano run needs at first, but for what is left out."""
    for rank in range(ranks):
        run = Run(folder, rank, ranks)
        run.happen("started", sparse={"skipped_updates": 0.0}, ranks=ranks, told={"scaler": False} | (told or {}))
        run.happen("vitals", preset="nano", metrics={"moe_drop_rate": "not_applicable: no router of experts found"})
        for step in range(1, steps + 1):
            given = {"grad_global_norm": 1.0, "update_to_weight": 1e-3, "max_attn_logit": 5.0, "attn_entropy": 2.0}
            given |= {"step_time": 0.5, "dataloader_wait": 0.1, "learning_rate": 1.0 if rates is None else rates(step)}
            given |= values(rank, step) if values else {}
            given = {name: own for name, own in given.items() if name not in without}
            given = {name: own for name, own in given.items() if not every or step in every.get(name, (step,))}
            run.end_step(**given)
        run.close()
    return folder


def states(folder, scale="nano", phase="early", **more):
    """Return by metric the state of what is not fed as it should be, and why."""
    return {row.metric: (row.state, row.why) for row in check_log(folder, scale, phase, **more).unfed}


@pytest.mark.parametrize("scale", SCALES)
def test_each_phase_asks_for_more_but_for_attention(scale):
    """Attention's vitals are a must until a run is late."""
    early, steady, late = (musts(scale, phase) for phase in PHASES)
    assert early <= steady
    assert steady - late == ({"max_attn_logit"} if scale == "nano" else {"max_attn_logit", "attn_entropy"})
    assert {"val_loss", "slice_val_loss", "near_dup_rate", "train_val_overlap"} <= steady - early


def test_each_scale_asks_for_more():
    """A nano run begins with the least; probes of safety are a must at the end of each."""
    assert musts("nano", "early") == EARLY
    for phase in PHASES:
        nano, medium, large = (musts(scale, phase) for scale in SCALES)
        assert nano < medium < large
        assert large - medium == {"mfu", "comm_time_frac", "compute_time_frac", "straggler_ratio"}
    assert {"rtp_toxicity_prob", "memorization_rate"} <= musts("nano", "late")
    assert "moe_drop_rate" in musts("medium", "early") - musts("nano", "late")


def test_each_metric_has_a_cadence_and_a_line():
    """And each rule of the shipped alerts that a metric feeds is judged by the same name."""
    families = checklists().families
    metrics = {name: own for family in families.values() for name, own in family.metrics.items()}
    assert len(metrics) == sum(len(own.metrics) for own in families.values())
    assert {own.every for own in metrics.values()} == set(checklists().cadences)
    assert all(own.feeds for own in metrics.values())
    ruled = {rule.get("metric") for rule in yaml.safe_load(default_text())["rules"]}
    assert {"max_attn_logit", "mfu", "val_loss", "moe_drop_rate", "heartbeat_missing"} <= ruled & set(metrics)


def test_a_run_that_is_fed_passes(tmp_path):
    """What does not apply is named with the reason, and is no failure."""
    checked = check_log(log(tmp_path / "run"))
    assert (checked.scale, checked.phase, checked.exit_code, checked.unfed) == ("nano", "early", 0, [])
    apart = {row.metric: row.why for row in checked.rows if row.state == "not_applicable"}
    assert set(apart) == {"loss_scale", "overflow_rate", "moe_drop_rate"}
    assert apart["moe_drop_rate"] == "no router of experts found"


@pytest.mark.parametrize("name", ["grad_global_norm", "update_to_weight", "max_attn_logit", "dataloader_wait"])
def test_what_is_left_out_is_named_with_its_line(tmp_path, name):
    """Only that."""
    own = {"dataloader_wait": "dataloader_stall_frac"}.get(name, name)
    unfed = check_log(log(tmp_path / "run", without=[name])).unfed
    expected = {own} | ({"nan_inf_events"} if name == "grad_global_norm" else set())
    assert {row.metric for row in unfed} == expected
    assert all(row.state == "not_fed" and row.feeds for row in unfed)


def test_a_run_with_a_scaler_needs_its_scale_and_one_of_an_unknown_loop_too(tmp_path):
    """A scale that was written once holds until it changes."""
    assert {"loss_scale", "overflow_rate"} <= set(states(log(tmp_path / "a", told={"scaler": True})))
    assert {"loss_scale", "overflow_rate"} <= set(states(log(tmp_path / "b", told={"scaler": None})))
    scale = lambda _, step: {"loss_scale": 2.0**16} if step == 1 else {}  # noqa: E731
    assert states(log(tmp_path / "c", 1_000, told={"scaler": True}, values=scale)) == {}


def test_means_that_a_short_run_cannot_have_yet_are_no_fault_of_its_loop(tmp_path):
    """And where the loop hands over no waits, that is named from the first step on."""
    checked = check_log(log(tmp_path / "run", 3))
    apart = {row.metric: row.why for row in checked.rows if row.state == "not_applicable"}
    assert checked.unfed == []
    assert apart["tokens_per_sec"] == apart["dataloader_stall_frac"] == "too few steps yet: it is a mean of 17 or more"
    assert set(states(log(tmp_path / "unfed", 3, without=["dataloader_wait"]))) == {"dataloader_stall_frac"}
    assert "tokens_per_sec" not in {row.metric for row in check_log(log(tmp_path / "long", 20)).unfed}


def test_steps_that_are_done_again_are_seen_once(tmp_path):
    """A run of three ranks that goes on with two: of 1,000,000 planned tokens it has seen 1,000,000, and not more."""
    for ranks, first, last in ((3, 1, 300), (2, 101, 400)):
        supersede_ranks(tmp_path, ranks, first, 1)
        for rank in range(ranks):
            run = Run(tmp_path, rank, 3, first)
            run.happen("started", ranks=ranks, told={"planned_tokens": 1_000_000})
            for _ in range(first, last + 1):
                run.end_step(rank_time=1.0, step_time=1.0, targets=1_000 if ranks == 2 else 1_333)
            run.close()
    checked = check_log(tmp_path)
    seen = int(checked.phase_why.split(" of ")[0].replace(",", ""))
    assert seen == pytest.approx(100 * 4_000 + 300 * 2_000, rel=0.01)
    whys = {row.metric: row.why for row in checked.rows}
    assert "of 3 ranks" not in " ".join(whys.values())


def test_heartbeats_in_the_folder_of_the_log_are_fed(tmp_path):
    folder, found = log(tmp_path / "run"), []
    for _ in range(2):
        found += [row.state for row in check_log(folder).rows if row.metric == "heartbeat_missing"]
        with Heartbeat(folder / BEATS_FOLDER, 0):
            pass
    assert found == ["not_fed", "ok"]


def test_what_comes_too_seldom_once_or_no_more_is_told_apart(tmp_path):
    """Each has its words."""
    every = {"step_time": range(0, 500, 10), "max_attn_logit": [7], "grad_global_norm": range(1, 100)}
    found = states(log(tmp_path / "run", 500, every=every))
    assert found["step_time"] == ("too_seldom", "it comes every 10 steps; expected at least every 1")
    assert found["max_attn_logit"] == ("once", "it came once, at step 7, and step 500 has none")
    assert found["grad_global_norm"] == ("stale", "it came last at step 99, and step 500 has none")
    assert found["nan_inf_events"][0] == "stale"


def test_a_single_gap_is_not_too_seldom(tmp_path):
    """An evaluation, a resume: what counts is how often a number mostly comes."""
    every = {"grad_global_norm": [step for step in range(1, 201) if not 50 < step < 80]}
    assert states(log(tmp_path / "run", every=every)) == {}


def test_numbers_that_are_all_nan_are_not_fed(tmp_path):
    """A few that are not finite are the business of alerts."""
    bad = lambda _, step: {"grad_global_norm": math.nan, "max_attn_logit": math.inf if step < 9 else 3.0}  # noqa: E731
    found = states(log(tmp_path / "run", values=bad))
    assert set(found) == {"grad_global_norm", "nan_inf_events"}
    assert found["grad_global_norm"] == ("all_nan", "none of its newest 64 values is finite, up to step 200")


def test_ranks_that_do_not_feed_are_named(tmp_path):
    """The norm of all gradients is a number of the whole run: any rank may feed it."""
    folder = tmp_path / "run"
    log(folder, ranks=3, values=lambda rank, _: {} if rank == 0 else {"grad_global_norm": 1.0})
    assert states(folder) == {}
    folder = tmp_path / "other"
    names = ("max_attn_logit", "grad_global_norm")
    for rank in range(3):
        run = Run(folder, rank, 3)
        for step in range(1, 101):
            run.end_step(**{name: 1.0 for name in names if rank == 1 or step < 0})
        run.close()
    found = states(folder)
    assert found["max_attn_logit"] == ("some_ranks", "2 of 3 ranks do not feed it: 0, 2")
    assert "grad_global_norm" not in found


def test_steps_that_are_done_again_count_once(tmp_path):
    """What the attempt before fed beyond the checkpoint feeds the new one no more."""
    folder = log(tmp_path / "run", 300)
    run = Run(folder, first=101)
    for _ in range(400):
        run.end_step(step_time=0.5, grad_global_norm=1.0)
    run.close()
    found = states(folder)
    assert found["max_attn_logit"] == ("stale", "it came before the run was resumed, and not since")
    assert "grad_global_norm" not in found


@pytest.mark.parametrize(
    ("steps", "planned", "rates", "phase", "why"),
    [
        (200, 10_000_000, None, "early", "200,000 of 10,000,000 planned tokens are seen"),
        (200, 1_000_000, None, "steady", "200,000 of 1,000,000 planned tokens are seen"),
        (200, 220_000, None, "late", "200,000 of 220,000 planned tokens are seen"),
        (200, 220_000, lambda step: step / 300, "early", "the learning rate still rises, it is 0.667"),
        (200, None, lambda step: 0.99**step, "early", "the log has no `planned_tokens`; step 200"),
        (200, None, lambda step: 0.97**step, "late", "the log has no `planned_tokens`; the learning rate is"),
        (1200, None, None, "steady", "the log has no `planned_tokens`; step 1,200"),
    ],
)
def test_the_phase_follows_from_tokens_and_the_rate(tmp_path, steps, planned, rates, phase, why):
    """A warm-up is early, however much is planned."""
    if phase == "early" and rates is not None and planned is None:
        rates = lambda step: 0.995**step  # noqa: E731
    checked = check_log(log(tmp_path / "run", steps, told={"planned_tokens": planned}, rates=rates))
    assert checked.phase == phase
    assert checked.phase_why.startswith(why)


def test_a_validation_counts_by_slice_and_whole(tmp_path):
    """Slices feed no whole loss, and the whole no slice."""
    sliced = lambda _, step: {"val_loss.code": 2.0} if step in {100, 200} else {}  # noqa: E731
    found = states(log(tmp_path / "a", values=sliced), phase="steady")
    assert "val_loss" in found
    assert "slice_val_loss" not in found


def call(*arguments):
    """Return the exit code and the output of a command."""
    done = CliRunner().invoke(main, ["doctor", *map(str, arguments)])
    return done.exit_code, done.output


def test_the_command_says_what_is_not_fed_and_the_line(tmp_path):
    """Exit 0, 3 and 4; `--phase`, `--preset` and `--without` are taken."""
    folder = log(tmp_path / "run")
    assert call(folder)[0] == 0
    assert f"{folder}: step 200, nano, early" in call(folder)[1]
    code, output = call(folder, "--phase", "late")
    assert code == 3
    assert "  val_loss: not fed\n      monitor.validation(loss)\n" in output
    given = [f"--without={row.metric}" for row in check_log(folder, "nano", "late").unfed]
    assert call(folder, "--phase", "late", *given)[0] == 0
    record = json.loads(call(folder, "--preset", "large", "--json")[1])
    assert (record["exit_code"], record["scale"]) == (3, "large")
    assert set(record["unfed"]) == musts("large", "early") - {
        row["metric"] for row in record["rows"] if row["state"] in {"ok", "not_applicable"}
    }
    run = Run(tmp_path / "empty")
    run.close()
    code, output = call(tmp_path / "empty")
    assert code == 4
    assert "nothing can be judged" in output


def test_wrong_use_is_an_error(tmp_path):
    """Each names what to type next."""
    assert call(tmp_path / "no")[0] == 2
    assert "no run log at" in call(tmp_path / "no")[1]
    code, output = call(log(tmp_path / "run", 20), "--without", "val_los")
    assert code == 2
    assert "val_loss" in output
    code, output = call("--phase", "late")
    assert code == 2
    assert "go with RUNLOG" in output
    code, output = call(tmp_path / "run", "--state", tmp_path)
    assert code == 2
    assert "--state goes with what is installed" in output
    with pytest.raises(ConfigError, match="no metric"):
        check_log(tmp_path / "run", without=["nothing"])


def test_a_damaged_log_is_not_judged_as_fed(tmp_path):
    """Exit 3, with the file."""
    folder = log(tmp_path / "run", 2_000)
    path = next(folder.glob("ranks/00000/values-*.arrows"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    code, output = call(folder)
    assert code == 3
    assert "damaged" in output


def test_rules_and_the_checklist_see_the_same(tmp_path):
    """A number that feeds a rule feeds the checklist, by the same feed."""
    from live_logs import from_another

    folder = log(tmp_path / "run", without=["max_attn_logit"])
    rule = {"metric": "max_attn_logit", "threshold": {"above": 1}}
    _, rules = from_another(folder, file_of(rule))
    assert rules[0]["state"] == "not_evaluated"
    assert set(states(folder)) == {"max_attn_logit"}


def test_the_table_of_the_page_is_that_of_the_checklists():
    """Each family with its grades, each metric with how often it has to come; and each state."""
    page = (Path(__file__).parents[3] / "docs/live/checklists.md").read_text("utf-8")
    for own in checklists().families.values():
        often = {}
        for name, metric in own.metrics.items():
            grades = f" ({', '.join(metric.scale)})" if metric.scale else ""
            often.setdefault(metric.every, []).append(f"`{name}`{grades}")
        cells = "; ".join(f"{', '.join(names)}: {every}" for every, names in often.items())
        assert f"| {own.about} | {', '.join(own.scale)} | {', '.join(own.phase)} | {cells} |" in page
    assert [state for state in get_args(State) if state != "ok" and f"`{state}`" not in page] == []


def test_the_output_on_the_page_is_what_is_printed(tmp_path, monkeypatch):
    """Of a run that opened no manifest, and whose probes stopped."""
    monkeypatch.chdir(tmp_path)
    probes = {"rtp_toxicity_prob": range(0, 5_000, 500), "memorization_rate": [900]}
    names = ("val_loss", "val_loss.code", *probes)
    every = {"val_loss": range(0, 5_000, 500), "val_loss.code": range(0, 5_000, 500), **probes}
    log(Path("runs/7"), 3_200, every=every, values=lambda *_: dict.fromkeys(names, 1.0))
    page = (Path(__file__).parents[3] / "docs/live/checklists.md").read_text("utf-8")
    shown = re.search(r"\$ dataaudit doctor runs/7 --phase late\n(.*?)```", page, re.DOTALL)[1]
    assert call("runs/7", "--phase", "late") == (3, shown)
