"""Which reports of probes triage compares."""

from __future__ import annotations

import pytest
import triage_world as made

from dataaudit import ConfigError
from dataaudit.base.render.line import spell
from dataaudit.probes.report import Number
from dataaudit.probes.triage.architecture import dropped
from dataaudit.probes.triage.run import triage


@pytest.fixture
def runs(tmp_path):
    """Return a manifest, and a healthy run and another of it, the first with reports of steps 80 and 160."""
    manifest = made.manifest(tmp_path / "manifest")
    healthy, other = (made.run(tmp_path / name, manifest, seed=at) for at, name in enumerate("ab"))
    for step in (80, 160):
        made.report(healthy, step=step)
    return manifest, healthy, other


def held_out(result):
    return next(check for check in result.steps[-1].checks if check.name == "held-out loss")


def test_a_baseline_that_trained_on_is_compared_at_the_step_of_the_run(runs):
    """Its newest report was taken, of another step, though it has one of that step, too."""
    manifest, healthy, other = runs
    made.report(other, step=80, losses=2.3)
    result = triage(other, manifest, baseline=healthy)
    assert held_out(result).numbers["change"] == pytest.approx(0.3)


def test_a_step_that_the_baseline_lacks_is_named_with_the_line_to_type(runs):
    """The line was for a report of the run, which is there."""
    manifest, healthy, other = runs
    made.report(other, step=120)
    own = held_out(triage(other, manifest, baseline=healthy))
    assert spell(own.words) == "the run's newest report is of step 120, and the baseline has none of that step"
    assert own.feed == f"dataaudit probe CHECKPOINT --manifest DIR --step 120 --out {healthy}/probes"


def test_a_line_to_type_quotes_a_folder(runs):
    manifest, healthy, _ = runs
    other = made.run(manifest.parent / "c d", manifest)
    result = triage(other, manifest, baseline=healthy)
    assert result.missing[0].feed.endswith(f"--out '{other}/probes'")


def test_a_report_is_not_compared_with_itself(runs):
    """All was equal, so the cause was none."""
    manifest, healthy, other = runs
    with pytest.raises(ConfigError, match="both runs have the same report, of step 160"):
        triage(other, manifest, baseline=healthy, probes=healthy / "probes")


def test_a_resumed_run_that_was_killed_is_not_closed_though_it_was_before(runs):
    """Closed before the resume, it was taken for a run that has ended."""
    manifest, healthy, _ = runs
    resumed = (100, "closed", {"lost_steps": 0}), (100, "resumed", {"told": {}})
    killed = made.run(manifest.parent / "killed", manifest, events=resumed, closed=False)
    assert triage(killed, manifest).log == "not closed: the run was killed, or goes on"
    assert triage(healthy, manifest).log == ""


@pytest.mark.parametrize(("scores", "fell"), [(1, ["microbench_score.acc task0"]), (20, [])])
def test_one_of_many_scores_that_chance_lets_fall_is_no_drop(scores, fell):
    """Two points beyond the interval of a single score, within that of twenty."""
    wide = {"metric": "microbench_score", "stat": "acc", "unit": "ratio"}
    pairs = [
        tuple(Number(**wide, scope={"task": f"task{at}"}, value=own, low=own - 0.1, high=own + 0.1) for own in values)
        for at in range(scores)
        for values in [(0.6, 0.76) if at == 0 else (0.6, 0.6)]
    ]
    assert dropped(pairs) == fell
