"""Receipts of a user's run log, and rules of alerts that demand them."""

import json
import shlex

import numpy as np
import pytest
from click.testing import CliRunner

from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.lab.ingest import ingest
from dataaudit.lab.page import terminal_text
from dataaudit.lab.receipts import FIELDS, check_rules
from dataaudit.live.rules import load_alerts, parse_alerts
from dataaudit.runlog.format import RunFile
from dataaudit.runlog.writer import RankWriter, create_run

RULES = """
version: 1
rules:
  - name: ranks
    severity: 1
    about: Weights lose rank.
    metric: stable_rank
    source: {source}
    ratio: {{below: 0.5}}
  - name: files
    severity: 2
    about: A checkpoint failed.
    event: checkpoint
"""


def write_log(folder, steps=1200, fault=900, *, seed=0, broken=0, first=1, bump=()):
    """Write the log of a run whose stable rank falls from a step on, and whose loss follows 200 steps later."""
    draw = np.random.default_rng(seed)
    run = RunFile(
        manifest=None, dataset="a run", sources=(), block_rows=1, ranks=1, started="2026-01-01T00:00:00Z", program="0"
    )
    create_run(folder, run, None)
    writer = RankWriter(folder, 0, first, 1)
    for step in range(first, steps + 1):
        late = max(0, step - fault)
        if step % 4 == 0:
            rank = np.exp(2.0 - 0.01 * late + draw.normal(0, 0.02))
            writer.add(
                "values",
                {
                    "step": np.full(2, step),
                    "metric": ["stable_rank", "residual_rms"],
                    "layer": np.zeros(2),
                    "head": np.full(2, -1),
                    "stat": ["least", "block"],
                    "value": np.array([rank, np.exp(draw.normal(0, 0.02))]),
                },
            )
        loss = np.nan if step == broken else 3.0 + draw.normal(0, 0.05) + 0.02 * max(0, late - 200) + (step in bump)
        counts = dict.fromkeys(("micro_batches", "targets", "scored", "merged"), np.zeros(1))
        row = {"step": [step], "time": [float(step)], "loss_sum": [0.0], "user_loss": [loss]}
        writer.add("steps", {**counts, **row})
    writer.close()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Return the folder of such a log."""
    folder = tmp_path_factory.mktemp("runs") / "7b"
    write_log(folder)
    return folder


def test_a_run_gets_a_receipt_whose_lead_is_that_of_the_log(log):
    made = ingest(log, (1, 880), "ranks fall", "test")
    own = made["receipts"]["stable_rank"]
    assert all(own[field] for field in FIELDS)
    verdict = made["verdicts"][0]
    assert 900 < verdict["first"]["stable_rank"] < 930
    assert verdict["first"]["residual_rms"] is None
    assert 1120 < verdict["diverged"] < 1160
    assert own["lead_time"]["7b"]["lead_over_divergence"]["median"] > 190
    assert made["receipts"]["loss.band"]["lead_time"]["7b"]["lead_over_divergence"]["median"] < 60


def test_a_gradient_that_the_log_lacks_missed_nothing(log):
    """Its detectors judged a norm of 1 at each step, and none of them caught the fault."""
    made = ingest(log, (1, 880), "ranks fall", "test")
    for name in ("gradient.band", "gradient.ours", "gradient.gss"):
        own = made["receipts"][name]
        assert (own["lead_time"], own["threshold"][:16]) == ({}, "it has no series")
    row = terminal_text(made).split("Fired (first) of runs")[1].split("7b")[1].split("command")[0]
    assert row.count("no series") == 4
    assert row.split("no series")[3].split() == ["0", "(0)", "of", "1", "1", "(1)", "of", "1", "1", "(0)", "of", "1"]


def test_a_healthy_run_counts_false_alarms(log):
    made = ingest(log, (1, 600), "", "test")
    assert made["false_alarms"]["monitors"]["healthy_runs"] == 1


def test_the_command_writes_the_receipt_beside_the_log_and_shows_it(log):
    result = CliRunner().invoke(main, ["lab", "ingest", str(log), "--healthy", "1-880", "--fault", "ranks fall"])
    assert result.exit_code == 0, result.output
    assert (log / "receipts.json").is_file()
    shown = CliRunner().invoke(main, ["lab", "show", str(log)])
    assert shown.exit_code == 0, shown.output
    assert "stable_rank" in shown.output


@pytest.mark.parametrize(
    ("span", "words"),
    [
        ((1, 300), "the log has 300 of the steps 1-300, and limits need 400"),
        ((300, 1), "the log has 0 of the steps 300-1"),
        ((1, 1200), "nothing is left to judge"),
    ],
    ids=["short", "backwards", "whole"],
)
def test_a_span_that_cannot_be_used_is_refused(log, span, words):
    with pytest.raises(ConfigError, match=words):
        ingest(log, span, "", "test")


def test_a_span_with_a_loss_that_is_not_finite_is_not_healthy(tmp_path):
    """Limits of such a span were NaN, which no score is above."""
    write_log(tmp_path / "run", 700, broken=123)
    with pytest.raises(ConfigError, match="the loss of step 123 is not finite, so steps 1-500 are not healthy"):
        ingest(tmp_path / "run", (1, 500), "", "test")
    assert ingest(tmp_path / "run", (124, 600), "", "test")["runs"] == 1


@pytest.mark.parametrize(("span", "has"), [((700, 1200), 201), ((100, 900), 0)], ids=["partly", "before"])
def test_steps_of_a_span_that_the_log_lacks_give_no_limits(tmp_path, span, has):
    """Limits of 201 steps were called those of 501, and a span before the log was a fault of the program."""
    write_log(tmp_path / "run", 2600, 2200, first=1000)
    with pytest.raises(ConfigError, match=f"(?s)the log has {has} of the steps .* such as --healthy 1000-1999"):
        ingest(tmp_path / "run", span, "ranks fall", "test")
    own = ingest(tmp_path / "run", (700, 1400), "ranks fall", "test")["receipts"]["stable_rank"]
    assert own["healthy_baseline"].startswith("steps 1000 to 1400 of the run itself")


def test_a_span_in_which_the_run_diverged_is_not_healthy(tmp_path):
    """The fault came 661 steps after the divergence, and every monitor was said to have missed it."""
    write_log(tmp_path / "run", bump=range(200, 260))
    with pytest.raises(ConfigError, match="the run diverged at step 219, so steps 1-880 are not healthy"):
        ingest(tmp_path / "run", (1, 880), "ranks fall", "test")


def test_the_page_of_a_run_that_has_no_aim_claims_none(log, tmp_path):
    """It said that every aim is met, whatever monitors missed."""
    made, page = tmp_path / "own.json", tmp_path / "page.html"
    given = ["--healthy", "1-880", "--fault", "x", "--out", str(made)]
    done = CliRunner().invoke(main, ["lab", "ingest", str(log), *given])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(main, ["lab", "show", str(made), "--page", str(page)]).exit_code == 0
    assert "No fault here has an aim" in page.read_text()
    assert "Every aim is met" not in page.read_text()


def test_a_run_in_the_current_folder_has_a_name(log, monkeypatch):
    monkeypatch.chdir(log)
    made = CliRunner().invoke(main, ["lab", "ingest", ".", "--healthy", "1-880", "--fault", "ranks fall"])
    assert made.exit_code == 0, made.output
    assert "\n  7b " in made.stdout


def test_the_command_of_a_receipt_is_one_that_a_shell_takes(log, monkeypatch, tmp_path):
    """Names of two words were not quoted."""
    given = [
        "lab",
        "ingest",
        str(log),
        "--healthy",
        "1-880",
        "--fault",
        "ranks fall",
        "--out",
        str(tmp_path / "r.json"),
    ]
    monkeypatch.setattr("sys.argv", ["dataaudit", *given])
    assert CliRunner().invoke(main, given).exit_code == 0
    assert shlex.split(json.loads((tmp_path / "r.json").read_text())["command"]) == ["dataaudit", *given]


def test_a_run_log_that_is_not_there_is_not_made(tmp_path):
    made = CliRunner().invoke(main, ["lab", "ingest", str(tmp_path / "nope"), "--healthy", "1-880"])
    assert made.exit_code == 2
    assert "mkdir" not in made.stderr


def test_a_rule_that_cites_a_receipt_needs_one_that_caught_something(log):
    made = ingest(log, (1, 880), "ranks fall", "test")
    cited = parse_alerts(RULES.format(source=f"receipt {made['verdicts_digest'][:12]}"), where="alerts.yaml")
    assert check_rules(cited, [made], every=False)["lacking"] == []
    assert check_rules(cited, [], every=False)["lacking"] == ["ranks"]
    healthy = ingest(log, (1, 600), "", "test")
    assert check_rules(cited, [healthy], every=False)["lacking"] == ["ranks"]
    literature = parse_alerts(RULES.format(source="literature"), where="alerts.yaml")
    assert check_rules(literature, [], every=False)["lacking"] == []
    assert check_rules(literature, [], every=True)["lacking"] == ["ranks"]


@pytest.mark.parametrize("source", ["own", "definition", "literature", "receipt"])
def test_a_demanded_receipt_counts_wherever_the_limit_comes_from(log, source):
    """Any source but a receipt was taken for a digest, so no receipt that was given counted."""
    rules = parse_alerts("require_receipts: true\n" + RULES.format(source=source).strip(), where="alerts.yaml")
    assert check_rules(rules, [], every=False)["lacking"] == ["ranks"]
    made = ingest(log, (1, 880), "ranks fall", "test")
    checked = check_rules(rules, [made], every=False)
    assert checked["lacking"] == []
    assert "stable_rank: 1 of 1 caught" in checked["rules"][0]["receipt"]


def test_every_shipped_rule_says_where_its_limit_comes_from():
    sources = {rule.name: rule.source for rule in load_alerts(None).rules if rule.metric is not None}
    assert sources
    assert "own" not in sources.values(), sources


def test_the_command_fails_where_a_receipt_is_lacking(tmp_path, log):
    file = tmp_path / "alerts.yaml"
    file.write_text(RULES.format(source="receipt"))
    made = CliRunner().invoke(main, ["lab", "check", str(file)])
    assert made.exit_code == 1
    assert "1 rules lack" in made.output or "lack a receipt" in made.output
