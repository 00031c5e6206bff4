"""`dataaudit explain`: every code, rule and metric has a section of the site's pages, which the wheel carries."""

import json
import re
import shutil
import sys
from pathlib import Path, PurePath
from typing import get_args

import pytest
from click.testing import CliRunner

from dataaudit import explain
from dataaudit.cli import main
from dataaudit.decide.diff import compare, difference
from dataaudit.decide.gate.number_texts import REASONS
from dataaudit.decide.gate.policy import Policy, Rule, Waiver
from dataaudit.live.checklist import WANTED
from dataaudit.live.rules import load_alerts
from dataaudit.metrics import shown as meanings
from dataaudit.metrics.pii import definition as pii
from dataaudit.metrics.quality.stage import RULES
from dataaudit.metrics.registry import METRICS
from dataaudit.metrics.secrets import definition as secrets
from dataaudit.scan.corpus.loss import Reason
from dataaudit.training.attribution import findings, run_findings
from dataaudit.training.pages import foreign_log
from dataaudit.vitals.metrics import METRICS as VITALS

ROOT = Path(__file__).parents[2]
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "dataaudit").rglob("*"))
    if path.suffix in {".py", ".yaml", ".j2", ".js"}
}
PROBLEMS = sorted(set(re.findall(r'Problem\(\s*"(\w+)"', "".join(SOURCES.values()))))
KNOWN = {
    "losses": [str(code) for code in Reason],
    "gate": list(REASONS),
    "diff": [*difference.REASONS, *compare._COMPLAINTS],
    "judges, encoders, shards": [*meanings.ABSENCES, *meanings.ENCODERS, *meanings.STATUSES],
    "verify": PROBLEMS,
    "rules": [*Rule.model_fields, *Policy.model_fields, *Waiver.model_fields],
    "metrics": list(METRICS),
    "kinds of findings": [kind.lower() for kind in sorted(pii.ENTITIES | secrets.ENTITIES)],
    "episodes": [
        *get_args(findings.Reason),
        *get_args(run_findings.DirectReason),
        *get_args(run_findings.DirectOutcome),
    ],
    "replay": [*get_args(run_findings.ContagionOutcome)],
    "event test": [
        one
        for field in ("reason", "outcome")
        for one in get_args(findings.EventTestFound.model_fields[field].annotation)
    ],
    "rules of a live run": [rule.name for rule in load_alerts(None).rules],
    "vitals": [*VITALS],
    "musts of a run": sorted(name.rpartition(".")[2] for name in WANTED),
    "logs": [*get_args(foreign_log.Flagging.model_fields["kind"].annotation)],
}


def printed(*arguments):
    """Run the command; return what it prints."""
    done = CliRunner().invoke(main, ["explain", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("kind", KNOWN)
def test_every_code_rule_and_metric_that_the_package_knows_has_a_section(kind):
    """A heading, a row of a table or an item of a list begins with it; few are explained where others are."""
    known, mentioned = explain.names()
    codes = [code for code in KNOWN[kind] if code]
    assert len(codes) > 2
    assert [code for code in codes if code not in known and code not in mentioned] == []
    assert len([code for code in codes if code not in known]) <= len(codes) // 3


def test_the_codes_of_verify_are_found_in_the_source():
    """Else the test above would have none of them."""
    assert {"table_digest", "shard_gone", "contradiction", "manifest_file"} <= set(PROBLEMS)


def test_no_message_of_the_package_names_a_page_that_no_wheel_has():
    """But for decisions, which docstrings of a kernel name for who reads the repository."""
    found = {
        (path.name, line)
        for path, text in SOURCES.items()
        for line in re.findall(r"docs/[\w/-]*\.md", text)
        if path.name != "explain.py" and not line.startswith("docs/decisions/")
    }
    assert found == set()


def test_every_hint_to_explain_leads_somewhere():
    """In messages, help, docstrings and the runbooks of the policies."""
    texts = [*SOURCES.values(), *(path.read_text() for path in (ROOT / "pipelines").glob("*.yaml"))]
    wanted = {name for text in texts for name in re.findall(r"dataaudit explain\s+([a-z][\w.#-]*[\w])", text)}
    assert {"credentials", "training", "losses", "leakage"} <= wanted
    known, mentioned = explain.names()
    assert [name for name in wanted if name not in known and name not in mentioned] == []


def test_the_page_of_a_wheel_is_that_of_the_site(monkeypatch, tmp_path):
    """The wheel carries every page that is explained, and reads its own copy."""
    from hatchling.builders.wheel import WheelBuilder

    carried = {
        one.distribution_path: one.path
        for one in WheelBuilder(str(ROOT)).recurse_included_files()
        if one.distribution_path.startswith("dataaudit/docs/")
    }
    pages = {path.relative_to(ROOT / "docs") for page in explain.PAGES for path in (ROOT / "docs").glob(page)}
    assert {PurePath(name).relative_to("dataaudit/docs") for name in carried} == pages
    before = explain.explain("invalid_json", as_json=False)
    for name, path in carried.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / name)
    monkeypatch.setattr(explain, "_PACKAGE", tmp_path / "dataaudit")
    assert explain.docs_folder() == tmp_path / "dataaudit/docs"
    assert explain.explain("invalid_json", as_json=False) == before


def test_a_code_is_explained_by_its_row_and_a_metric_by_its_section():
    """What it means and what to do; headings come before what merely mentions the name."""
    code = printed("invalid_json")
    assert code.startswith("**Losses and bad input > Bad records**\n\n`invalid_json`\n\n- what it means: A line is not")
    assert "- what to do: Write with a strict encoder" in code
    metric = printed("exact_dup_rate")
    assert metric.startswith("## `exact_dup_rate`\n")
    assert "| `within_split_rate` |" in metric
    assert "## `train_val_overlap`" not in metric
    assert printed("INVALID_JSON") == code
    assert printed("docs/howto/remote.md") == printed("remote")
    assert printed("remote#credentials") == printed("credentials")
    assert printed("the-event-test") == printed("event-test")
    assert printed("baseline_no_judge") == printed("no_judge")
    pages = ("gate", "diff", "quarantine", "report")  # titles of sections of other pages, too
    assert [name for name in pages if not printed(name).startswith("# ")] == []


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_a_quality_rule_is_explained_under_the_name_that_is_printed(rule):
    """By what it rejects, before where it differs from datatrove's; a metric's statistic by its row likewise."""
    assert f"{rule.partition('.')[0]}: " in printed(rule).partition("\n")[0]
    assert "- rejects: " in printed(rule) or "- definition: " in printed(rule) or "are dropped" in printed(rule)


def test_a_statistic_is_explained_by_its_row_in_the_metric_s_section():
    assert printed("near_dup_rate.recall").startswith("**Metrics > near_dup_rate**\n\n`recall`")
    assert "is explained" in CliRunner().invoke(main, ["explain", "near_dup_rate.recal"]).stderr


def test_links_lead_to_names_that_are_explained_or_to_the_web():
    """A path of the site opens nothing in a terminal."""
    known, mentioned = explain.names()
    texts = [section.text for sections in known.values() for section in sections]
    assert not [text for text in texts if re.search(r"\]\((?!https?:)", text)]
    names = {name for text in texts for name in re.findall(r"\(`dataaudit explain ([^`]+)`\)", text)}
    assert len(names) > 50
    assert {name for name in names if name not in known and name not in mentioned} == set()


def test_json_holds_the_sections_and_without_a_name_every_name_by_page():
    said = json.loads(printed("no_judge", "--json"))
    assert said["name"] == "no_judge"
    assert {"page": "reference/gate.md", "titles": ["The gate", "Reasons"]}.items() <= said["sections"][0].items()
    listed = json.loads(printed("--json"))
    assert "not_parquet" in listed["reference/losses.md"]
    assert "not_parquet" in printed()


def test_an_unknown_name_gets_the_nearest():
    """Exit code 2, and how to list them all."""
    done = CliRunner().invoke(main, ["explain", "invalid_jsn"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "did you mean `invalid_json`" in done.stderr
    assert "`dataaudit explain` lists all." in done.stderr
    assert "did you mean" not in CliRunner().invoke(main, ["explain", "qqqqqqqqq"]).stderr


def test_a_terminal_gets_markdown_that_is_drawn(monkeypatch):
    """Else the text stays as it is written."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    shown = explain.explain("invalid_json", as_json=False)
    assert "- what it means" not in shown
    assert "what it means: A line is not one JSON value" in " ".join(shown.split())
