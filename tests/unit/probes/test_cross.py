"""The cross product of checkpoints and harnesses: what a change follows, from effects and from real checkpoints."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from dataaudit import ConfigError
from dataaudit.cli import main
from dataaudit.probes.cross import Cross, Crossed, crossed, parse_changes
from dataaudit.probes.estimates import Estimate


def effect(value, half=0.1):
    return Estimate(value, None if half is None else value - half, None if half is None else value + half, 9)


def number(checkpoint, harness, metric="val_loss"):
    own = {"metric": metric, "unit": "nats/token", "values": {}}
    return Crossed(**own, checkpoint=tuple(map(effect, checkpoint)), harness=tuple(map(effect, harness)))


@pytest.mark.parametrize(
    ("checkpoint", "harness", "follows"),
    [
        ((0.0, 0.05), (-0.05, 0.0), "neither"),
        ((1.0, 1.1), (0.0, 0.05), "checkpoint"),
        ((0.05, 0.0), (-1.0, -0.9), "harness"),
        ((1.0, 1.1), (0.2, 0.2), "checkpoint"),
        ((0.2, 0.2), (1.0, 1.1), "harness"),
        ((1.0, 1.1), (0.6, 0.5), "both"),
        ((1.0, -1.0), (0.0, 0.0), "undecidable"),
        ((1.0, 0.0), (0.0, 1.0), "undecidable"),
    ],
)
def test_a_side_moves_a_number_where_both_of_its_effects_do_and_agree(checkpoint, harness, follows):
    assert number(checkpoint, harness).follows == follows


def test_effects_without_an_interval_decide_nothing():
    lone = Crossed(metric="x", unit="", values={}, checkpoint=(effect(1, None),) * 2, harness=(effect(0, None),) * 2)
    assert lone.follows == "undecidable"


def test_a_held_out_loss_decides_before_other_numbers_unless_nothing_moves_it():
    same = {"old": "a", "new": "b", "changed": {}, "artifacts": {}, "differ": {}, "not_evaluated": {}}
    still, moved, other = number((0, 0), (0, 0)), number((1, 1), (0, 0)), number((0, 0), (1, 1), "topk_mass_probe")
    assert Cross(**same, numbers=(other, still)).follows == "harness"
    assert Cross(**same, numbers=(other, moved)).follows == "checkpoint"
    assert [Cross(**same, numbers=own).exit_code for own in ((), (still,), (moved,))] == [4, 0, 1]


def test_options_of_the_new_harness_are_parsed():
    made = parse_changes(["tokenizer=a=b.json", "context=64", "model=f.py:load", "manifest=m"])
    assert (made["tokenizer"], made["context"], made["function"]) == ("a=b.json", 64, "f.py:load")
    assert made["manifest"].name == "m"


@pytest.mark.parametrize("given", [[], ["context"], ["context=x"], ["out=y"], ["dtype="], ["step=3"]])
def test_what_is_no_option_of_a_harness_is_refused(given):
    with pytest.raises(ConfigError, match=r"--(cross|new)"):
        parse_changes(given)


@pytest.fixture
def run(probing):
    """Return a call of the command on two checkpoints."""
    return lambda old, new, *options: probing(old, "--probes", "frozen,held_out", "--cross", new, *options)


@pytest.mark.torch
def test_a_worse_checkpoint_is_followed_though_the_harness_changed(run, tmp_path):
    made = run("a", "b", "--new", "dtype=bfloat16", "--out", "out")
    assert made.exit_code == 1, made.output
    assert made.stdout.startswith("The change follows the checkpoint")
    assert re.search("artifacts that differ +frozen: dtype; held_out: dtype", made.stdout)
    plain = json.loads((tmp_path / "out/cross.json").read_text())
    (loss,) = [own for own in plain["numbers"] if own["metric"] == "val_loss"]
    assert loss["follows"] == "checkpoint"
    old, new = loss["values"]["old x old"], loss["values"]["new x old"]
    assert loss["checkpoint"][0]["value"] == pytest.approx(new - old)
    assert loss["checkpoint"][0]["low"] < new - old < loss["checkpoint"][0]["high"]
    assert (tmp_path / "out/cross/new-old").is_dir()


@pytest.mark.torch
def test_a_score_decides_before_a_loss(probing):
    """Scores have a task, and the table left them out as if they were slices."""
    made = probing("a", "--probes", "held_out,cloze", "--cross", "b", "--new", "dtype=bfloat16", "--json")
    plain = json.loads(made.stdout)
    assert {"microbench_score cloze", "val_loss"} <= {own["metric"] for own in plain["numbers"]}
    score = number((0, 0), (1, 1), "microbench_score cloze")
    same = {"old": "a", "new": "b", "changed": {}, "artifacts": {}, "differ": {}, "not_evaluated": {}}
    assert Cross(**same, numbers=(number((1, 1), (0, 0)), score)).follows == "harness"


@pytest.mark.torch
def test_another_end_token_is_the_harness_and_equal_weights_are_not(run):
    made = run("a", "c", "--new", "prompts=300", "--new", "end=32", "--json")
    plain = json.loads(made.stdout)
    assert plain["follows"] == "harness", made.output
    assert made.exit_code == 1
    assert all(own["checkpoint"][0]["value"] == 0 for own in plain["numbers"])
    nothing = run("a", "c", "--new", "prompts=300")
    assert nothing.exit_code == 0
    assert nothing.stdout.startswith("Neither the checkpoint nor the harness")


@pytest.mark.torch
def test_numbers_that_a_cell_lacks_are_named(run, tmp_path, world):
    from dataaudit.probes.report import ProbeReport

    run("a", "b", "--new", "dtype=bfloat16", "--out", "out")
    folders = {cell: next((tmp_path / "out/cross" / "-".join(cell)).glob("step-*")) for cell in CELLS}
    reports = {cell: ProbeReport.load(folder) for cell, folder in folders.items()}
    reports["new", "new"].numbers = [own for own in reports["new", "new"].numbers if own.metric != "val_loss"]
    made = crossed(reports, {})
    assert made.not_evaluated == {"val_loss": "new x new: not there"}
    assert "val_loss" not in {own.metric for own in made.numbers}


CELLS = [(a, b) for a in ("old", "new") for b in ("old", "new")]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--new NAME=VALUE"),
        (["--new", "dtype=float16", "--run", "log"], "leave out --run"),
        (["--new", "seed=x"], "whole numbers"),
        (["--new", "dtype=int3"], "expected float32"),
    ],
)
def test_wrong_use_is_named(run, options, words):
    made = run("a", "b", *options)
    assert made.exit_code == 2, made.output
    assert words in made.stderr


@pytest.mark.torch
def test_a_new_harness_without_a_newer_checkpoint_is_wrong_use(world):
    made = CliRunner().invoke(main, ["probe", "x", "--manifest", str(world.manifest), "--new", "dtype=float16"])
    assert made.exit_code == 2
    assert "--cross" in made.stderr
