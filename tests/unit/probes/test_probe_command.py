"""``dataaudit probe``: a table, JSON, exit codes, comparisons and alerts, from files alone."""

import json
import re

import pytest

torch = pytest.importorskip("torch", reason="models are of torch")
from dataaudit.runlog.reader import load_run  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def run(probing):
    """Return a call of the command on a checkpoint."""
    return probing


def test_checkpoints_are_measured_compared_and_judged(run, tmp_path):
    wanted = ["--probes", "frozen,held_out", "--out", "out", "--run", "log"]
    first = run("a", *wanted, "--step", "100")
    assert first.exit_code == 0, first.output
    assert "val_loss" in first.stdout
    assert "at 95" not in first.stdout
    second = run("b", *wanted, "--step", "200")
    assert second.exit_code == 0, second.output
    assert "compared with a (step 100)" in second.stdout
    assert "output_kl_to_prev" in second.stdout
    table = load_run(tmp_path / "log").table("values")
    assert set(table["step"].to_pylist()) == {100, 200}
    assert list((tmp_path / "log" / "alerts").glob("*200*")), "a loss that rises between two commands alerts"
    again = run("a", *wanted, "--step", "100")
    assert again.exit_code == 0
    table = load_run(tmp_path / "log").table("values")
    steps = [
        step
        for step, name, stat in zip(*(table[c].to_pylist() for c in ("step", "metric", "stat")), strict=True)
        if (name, stat) == ("val_loss", "value")
    ]
    assert sorted(steps) == [100, 200]


def test_json_has_every_number_and_its_artifacts(run):
    made = run("a", "--probes", "frozen,cloze", "--prompts", "8", "--json")
    plain = json.loads(made.stdout)
    assert plain["schema"] == "dataaudit-probes/1"
    loss = next(number for number in plain["numbers"] if number["metric"] == "fixed_probe_loss")
    assert loss["low"] < loss["value"] < loss["high"]
    assert plain["artifacts"][loss["artifacts"]]["dtype"] == "float32"


def test_another_tokenizer_is_exit_code_3_and_named(run):
    run("a", "--probes", "held_out", "--out", "out", "--step", "1")
    made = run("a", "--probes", "held_out", "--out", "out", "--step", "2", "--dtype", "bfloat16")
    assert made.exit_code == 3
    assert "comparison invalid: dtype differ" in made.stdout


def test_a_frozen_batch_of_another_tokenizer_compares_nothing(run):
    """It went by the tokenizer of the batch, so a swapped tokenizer was a change of the model."""
    run("a", "--probes", "frozen", "--out", "out", "--step", "1")
    made = run("a", "--probes", "frozen", "--out", "out", "--step", "2", end="32")
    assert made.exit_code == 3, made.output
    assert "comparison invalid: tokenizer differ" in made.stdout
    assert "made with another tokenizer: another --out" in made.stdout
    short = run("a", "--probes", "frozen", "--out", "out", "--step", "3", "--context", "16")
    assert "not evaluated: context_below_64" in short.stdout
    assert short.exit_code == 4


@pytest.mark.parametrize("scale", ["nan", "inf"])
def test_a_checkpoint_that_broke_after_a_healthy_one_is_not_evaluated(run, tmp_path, scale):
    """The change since then was NaN, which no JSON holds: an internal error, and the report was lost."""
    (tmp_path / "broken").write_text(scale)
    wanted = ["--probes", "frozen,held_out", "--out", "out", "--step"]
    run("a", *wanted, "1")
    made = run("broken", *wanted, "2")
    assert made.exit_code == 4, made.output
    assert re.search(r"val_loss +leaks=out +- +not evaluated: not_finite\n", made.stdout)
    assert not re.search(r"\bnan\b", made.stdout)
    assert run("a", *wanted, "3", "--json").exit_code == 3
    crossed = json.loads(run("a", "--cross", "broken", "--new", "end=32", *wanted[:2], "--json").stdout)
    assert crossed["not_evaluated"]["val_loss"] == "new x old: not_finite"


def test_domains_are_slices(run, tmp_path):
    (tmp_path / "domains.yaml").write_text("web: prose\ncodee: code\n")
    made = run("a", "--probes", "held_out", "--domains", "domains.yaml")
    assert "domain=prose" in made.stdout
    assert "domain=other" in made.stdout
    assert "--domains: the manifest has no source codee" in made.stderr


def test_a_report_without_a_step_is_said_to_replace_and_compare_nothing(run):
    """The second of two checkpoints took the place of the first, and was compared with nothing."""
    wanted = ["--probes", "frozen", "--out", "out"]
    assert "no --step: the report is of step 0" in run("a", *wanted).stderr
    assert "--step" not in run("a", *wanted, "--step", "7").stderr


def test_reports_in_the_checkpoint_are_refused(run, tmp_path):
    """Progress in it changed its digest, so a killed probe began anew."""
    (tmp_path / "folder").mkdir()
    made = run("folder", "--probes", "frozen", "--out", "folder/probes", "--step", "7")
    assert made.exit_code == 2
    assert "--out lies in the checkpoint" in made.stderr


def test_a_model_that_fails_is_asked_what_it_takes(run):
    made = run("a", "--probes", "held_out", end="9999")
    assert made.exit_code == 4, made.output
    assert "does the model take 64 tokens at once, of 10,000 different? Else --context N" in made.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--probes", "frozen,nothing"], "expected some of frozen, held_out"),
        (["--probes", ""], "expected some of frozen, held_out"),
        (["--probes", "rtp"], "needs --rtp FILE"),
        (["--probes", "lm_eval"], "needs a task"),
        (["--alert", "x.yaml"], "name a folder with --run"),
        (["--probes", "frozen", "--run", "log"], "--step N, 2 or more"),
        (["--baseline", "none"], "holds no report"),
        (["--domains", "a"], "expected `source: domain`"),
        (["--probes", "contamination", "--set", "x"], "expected NAME=FILE"),
        (["--rtp", "x"], "--rtp is read by the probe rtp"),
        (["--task", "x"], "--task is read by the probe lm_eval"),
        (["--set", "x=a"], "--set is read by the probe contamination"),
        (["--probes", "frozen", "--domains", "a"], "--domains is read by the probe held_out"),
        (["--out", "a/x"], "--out: a/x cannot be written: a: it is no folder"),
        (["--run", "a", "--step", "2"], "--run: a cannot be written: a: it is no folder"),
        (["--run", "log", "--step", "2", "--alert", "none.yaml"], "alerts none.yaml cannot be read"),
    ],
)
def test_wrong_use_is_named(run, options, words):
    made = run("a", *(["--probes", "held_out"] if "--probes" not in options else []), *options)
    assert made.exit_code == 2, made.output
    assert words in made.stderr
    assert "probe held_out ..." not in made.stderr, "it is found before anything is measured"
    assert "probe frozen ..." not in made.stderr
