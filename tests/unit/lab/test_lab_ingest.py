"""Receipts of a user's run log, and rules of alerts that demand them."""

import numpy as np
import pytest
from click.testing import CliRunner

from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.lab.demands import check_rules
from dataaudit.lab.ingest import ingest
from dataaudit.lab.receipts import FIELDS
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


def write_log(folder, steps=1200, fault=900, *, seed=0, broken=0):
    """Write the log of a run whose stable rank falls from a step on, and whose loss follows 200 steps later."""
    draw = np.random.default_rng(seed)
    run = RunFile(
        manifest=None, dataset="a run", sources=(), block_rows=1, ranks=1, started="2026-01-01T00:00:00Z", program="0"
    )
    create_run(folder, run, None)
    writer = RankWriter(folder, 0, 1, 1)
    for step in range(1, steps + 1):
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
        loss = np.nan if step == broken else 3.0 + draw.normal(0, 0.05) + 0.02 * max(0, late - 200)
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
    ("span", "words"), [((1, 300), "limits need 400"), ((1, 1200), "nothing is left to judge")], ids=["short", "whole"]
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


def test_a_file_may_demand_receipts_of_all_metrics(log):
    rules = parse_alerts("require_receipts: true\n" + RULES.format(source="own").strip(), where="alerts.yaml")
    assert check_rules(rules, [], every=False)["lacking"] == ["ranks"]


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
