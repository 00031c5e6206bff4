"""Headlines over versions: their order, limits of a policy, the baseline, the page, and what is refused."""

import datetime as dt
import json

import pytest
from click.testing import CliRunner
from made_manifest import make, shard

from dataaudit.base.render.line import PLAIN, spell
from dataaudit.cli import main
from dataaudit.decide.gate.policy import parse_policy
from dataaudit.manifest.load import load_manifest
from dataaudit.present.report.history import History, history_page

POLICY = """
policy: small
rules:
  - {name: few, metric: documents, stat: count, unit: documents, budget: 25}
  - {name: each, metric: documents, stat: count, unit: documents, scope: {per: split}, budget: 40}
"""


@pytest.fixture
def versions(tmp_path):
    """Three manifests of one corpus, in other order than their names."""
    for name, day in (("c", 1), ("a", 2), ("b", 3)):
        make(tmp_path / name, [shard("x.jsonl", documents=10 * day)])
        path = tmp_path / name / "manifest.json"
        document = json.loads(path.read_bytes())
        document["run"]["finished"] = dt.datetime(2026, 11, day, tzinfo=dt.UTC).isoformat()
        path.write_text(json.dumps(document))
    return [tmp_path / name for name in "abc"]


def test_versions_stand_in_the_order_of_when_they_were_built(versions):
    """Whatever the order of the arguments; equal versions have numbers."""
    history = History([load_manifest(folder) for folder in versions])
    followed = {own.name: own.values for own in history.followed}
    assert followed["documents"] == (10, 20, 30)
    assert history.names == ["1.0.0 #1", "1.0.0 #2", "1.0.0 #3"]
    assert history.baseline.folder.name == "a"


def test_limits_stand_beside_numbers_and_judge(versions):
    """A number beyond the limit of the whole is red; a limit of parts is named as that."""
    policy = parse_policy(POLICY, where="policy")
    history = History([load_manifest(folder) for folder in versions], policy)
    own = next(own for own in history.followed if own.metric == "documents")
    assert [own.beyond(value) for value in own.values] == [False, False, True]
    page = history_page(history)
    assert page.tone == "bad"
    assert page.headline == "FAIL: version 1.0.0 #3"
    assert any("few" in spell(point.head, PLAIN) + spell(point.text, PLAIN) for point in page.findings)
    chart = next(figure.chart for figure in page.charts if spell(figure.title, PLAIN) == "documents")
    assert [(value, spell(name, PLAIN)) for value, name in chart.limits] == [
        (20, "baseline"),
        (25, "few"),
        (40, "each"),
    ]
    assert [spell(name, PLAIN) for _, name in chart.ticks] == history.names


def test_the_baseline_may_be_another(versions):
    """The change is from it."""
    manifests = [load_manifest(folder) for folder in versions]
    history = History(manifests, None, manifests[2])
    assert history.document()["baseline"] == manifests[2].id
    assert history.before["documents", "count"] == 10


def run(*arguments):
    """Run the command."""
    return CliRunner().invoke(main, ["history", *map(str, arguments)])


def test_the_command_prints_a_table_json_and_a_page(versions, tmp_path):
    """With the exit code of the last version's verdict."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    out = tmp_path / "history.html"
    result = run(*versions, "--policy", policy, "--out", out)
    assert result.exit_code in {1, 3}, result.stderr
    assert "<= 25" in result.output
    assert "+50.0%" in result.output
    assert "<script>" in out.read_text()
    plain = json.loads(run(*versions, "--json").output)
    assert [row["values"] for row in plain["metrics"] if row["metric"] == "documents"] == [[10, 20, 30]]
    assert run(*versions).exit_code == 0


def test_what_is_no_history_is_refused(versions, tmp_path):
    """A single manifest, the same one twice, or another corpus."""
    make(tmp_path / "other", [shard("x.jsonl")], dataset="other")
    for given, says in (
        (versions[:1], "expected two manifests or more"),
        ([versions[0], versions[0]], "expected two manifests or more"),
        ([versions[0], tmp_path / "other"], "several datasets: made, other"),
    ):
        result = run(*given)
        assert result.exit_code == 2
        assert says in result.stderr
