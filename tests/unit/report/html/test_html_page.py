"""What the report says: verdict first, causes named, nothing claimed that was not measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_manifest import make, shard

from dataaudit.gate.policy import parse_policy
from dataaudit.gate.run import judge_manifest
from dataaudit.manifest.load import load_manifest
from dataaudit.report.html.oddities import oddities
from dataaudit.report.html.page import page_of
from dataaudit.report.html.pieces import Figure, Grid

DEMO = Path(__file__).parents[4] / "manifests/demo"


@pytest.fixture(scope="module")
def demo():
    """The page of the demo's manifest."""
    return page_of(load_manifest(DEMO))


def section(page, name):
    """Return a section by id."""
    return next(one for one in page.sections if one.id == name)


def words(grid):
    """Return the rows of a table as texts."""
    return [[cell.text.replace("\xa0", " ") for cell in row] for row in grid.rows]


def table(page, name, title):
    """Return the rows of a table by its title, wherever it stands in a section."""
    for block in section(page, name).blocks:
        grid = block.table if isinstance(block, Figure) else block
        if isinstance(grid, Grid) and grid.title == title:
            return words(grid)
    raise AssertionError(title)


def test_the_findings_name_set_shard_and_count(demo):
    """The cause of a leak is read from the first lines alone."""
    texts = " ".join(one.text for one in demo.findings).replace("\xa0", " ")
    assert "25 of 117 documents of val (21.4 %) are also in training data" in texts
    assert "train/train/manual/part-000.jsonl.zst holds copies of 25" in texts
    assert "10 of 16 findable items of quiz are in training data (6 word for word)" in texts
    assert "train/train/code/part-004.parquet" in texts
    assert "truncated_stream (after 829 records)" in texts
    assert [one.tone for one in demo.findings] == sorted((one.tone for one in demo.findings), key=["bad", "warn"].index)


def test_every_finding_leads_to_a_section_of_the_page(demo):
    """Links of the first screen are none that lead nowhere."""
    assert {one.section for one in demo.findings} <= {one.id for one in demo.sections}


def test_sections_stand_in_the_order_of_reading(demo):
    """Changes, then the areas, then coverage and shards."""
    assert [one.id for one in demo.sections] == [
        "changes", "mixture", "languages", "lengths", "tokens", "duplicates", "leakage", "quality", "toxicity",
        "privacy", "secrets", "coverage", "shards",
    ]  # fmt: skip


def test_a_policy_puts_its_verdict_first():
    """The rules stand first; what stands out besides is said apart."""
    policy = parse_policy(
        "policy: p\nrules:\n  - {name: leak, metric: train_val_overlap, stat: span, unit: ratio,"
        " scope: {per: set}, budget: 0.001}\n", where="policy",
    )  # fmt: skip
    page = page_of(load_manifest(DEMO), judge_manifest(DEMO, policy))
    assert page.sections[0].id == "verdict"
    assert page.tone == "bad"
    assert page.headline.startswith("Stopped")
    assert page.findings[0].head == "leak fails"
    assert "of set val is 0.1263" in page.findings[0].text
    assert "part-000.jsonl.zst" in page.findings[0].text
    assert any("secrets" in one.text for one in page.others)


def test_a_shard_that_stands_out_says_why(demo):
    """Gravest first: unread, then leaks, then secrets, then what is far from the others."""
    rows = table(demo, "shards", "Shards that stand out, gravest first")
    assert rows[0][1:] == ["train/train/manual/part-003.jsonl.zst", "quarantined: truncated_stream (after 829 records)"]
    assert rows[1][2] == "holds copies of 25 documents of val"
    reasons = {row[1]: row[2] for row in rows}
    assert (
        "rejected by gopher_repetition 96.5 %, median 21.0 % (+6.6 robust sd)"
        in reasons["train/train/manual/part-002.jsonl.zst"]
    )
    assert (
        reasons["train/train/code/part-000.parquet"] == "100 % of its 448 documents repeat earlier ones word for word"
    )


def test_a_quarantine_list_is_marked(tmp_path):
    """A shard that the list holds back stands out, with the list's words."""
    make(tmp_path / "m", [shard("a"), shard("b")])
    found = oddities(load_manifest(tmp_path / "m"), {1: "on the quarantine list: leak"})
    assert [(one.shard, one.reasons) for one in found.shards] == [(1, ("on the quarantine list: leak",))]


def test_a_real_quarantine_list_is_read_by_digest(tmp_path):
    """The shard that was held back is found by its digest and named with the reason."""
    from click.testing import CliRunner

    from dataaudit import cli
    from dataaudit.report.html.inputs import quarantined_shards

    listed = tmp_path / "q.jsonl"
    arguments = ["quarantine", "add", str(listed), "--manifest", str(DEMO), "12", "--reason", "leak", "--who", "me"]
    assert CliRunner().invoke(cli.main, arguments).exit_code == 0
    assert quarantined_shards(load_manifest(DEMO), listed) == {12: "on the quarantine list: leak"}


def test_what_changed_names_bump_shards_and_metrics(tmp_path):
    """A removed shard is a major change, and it is named."""
    from dataaudit.report.html.inputs import difference_of

    rows = [shard("a", sha256="aa" * 32, rows_digest="1" * 64), shard("b", sha256="bb" * 32, rows_digest="2" * 64)]
    make(tmp_path / "old", rows)
    make(tmp_path / "new", rows[:1])
    manifest = load_manifest(tmp_path / "new")
    page = page_of(manifest, None, difference_of(manifest, tmp_path / "old"))
    assert "a major change" in section(page, "changes").lead
    assert ["removed", "train/b"] in [row[:2] for row in table(page, "changes", "Shards that changed, gravest first")]
    assert any("documents count" in row[0] for row in table(page, "changes", "Metrics, what matters most first"))
    same = page_of(manifest, None, difference_of(manifest, tmp_path / "new"))
    assert "are the same manifest" in section(same, "changes").lead


def test_a_shard_that_stands_out_is_on_the_first_screen(tmp_path):
    """The page never says that nothing stands out above a list of shards that do."""
    make(tmp_path / "m", [shard("a"), shard("b", exact_dup_rate=0.9)])
    page = page_of(load_manifest(tmp_path / "m"))
    assert page.headline == "1 thing to look at"
    assert page.findings[0].text.startswith("1 of 2 shards stands out; the gravest is train/b: 90.0")


def test_what_was_not_measured_is_said_and_is_no_pass(tmp_path):
    """A bare manifest has no green section but those that hold something."""
    make(tmp_path / "m", [shard("a"), shard("v", split="val")])
    page = page_of(load_manifest(tmp_path / "m"))
    assert page.headline == "Nothing stands out"
    assert {one.id for one in page.sections if one.tone == "quiet"} >= {
        "changes", "languages", "tokens", "quality", "toxicity", "privacy", "secrets"
    }  # fmt: skip
    assert "not looked for" in section(page, "secrets").lead


def test_an_empty_corpus_has_a_report(tmp_path):
    """No shard, no document: said in words, no division by nothing."""
    make(tmp_path / "m", [])
    page = page_of(load_manifest(tmp_path / "m"))
    assert page.findings[0].text == "No document was read: nothing was evaluated."
    assert page.tone == "bad"


def test_small_counts_of_personal_data_are_not_shown(demo):
    """The rule of the reports holds here too."""
    rows = {row[0]: row for row in table(demo, "privacy", "Personal data by kind")}
    assert rows["CREDIT_CARD"][3:6] == ["30", "<5", "<5"]
    assert rows["EMAIL_ADDRESS"][4:6] == ["*", "*"]


def test_the_matrix_points_out_what_crosses_splits(demo):
    """Copies within a split are blue, those of a held-out split in another are not."""
    chart = next(one.chart for one in demo.charts if one.id == "chart-matrix")
    loud = [(chart.rows[row], chart.columns[column], value) for row, column, value, _, cross in chart.values if cross]
    assert loud == [("val/manual", "train/manual", 25.0)]


def test_every_figure_says_in_words_what_it_shows(demo):
    """The text alternative is a sentence and a table with rows."""
    assert len({one.id for one in demo.charts}) == len(demo.charts) >= 8
    assert all(one.says and one.title and one.table.columns for one in demo.charts)
