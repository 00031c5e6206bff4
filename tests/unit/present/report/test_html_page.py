"""What the report says: verdict first, causes named, nothing claimed that was not measured."""

from dataclasses import replace
from pathlib import Path

import pytest
from made_manifest import make, shard

from dataaudit.base.render.blocks import Cell, Figure, Prose, Table, left_out, web_address
from dataaudit.base.render.html import broken, render, says
from dataaudit.base.render.line import PERCENT, spell
from dataaudit.decide.diff.compare import load_pair
from dataaudit.decide.gate.policy import parse_policy
from dataaudit.decide.gate.run import judge
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.registry import all_shown
from dataaudit.present.report.highlights import odd_shards
from dataaudit.present.report.page import page_of

pytestmark = pytest.mark.usefixtures("odd_numbers")
DEMO = Path(__file__).parents[4] / "manifests/demo"


@pytest.fixture(scope="module")
def demo():
    """The page of the demo's manifest."""
    return page_of(load_manifest(DEMO))


def section(page, name):
    """Return a section by id."""
    return next(one for one in page.sections if one.id == name)


def text(line):
    """Return a line as the page has it."""
    return spell(line.text if isinstance(line, Cell) else line, PERCENT).replace("\xa0", " ")


def words(grid):
    """Return the rows of a table as texts."""
    return [[text(cell) for cell in row] for row in (*grid.rows, *grid.foot)]


def table(page, name, title):
    """Return the rows of a table by its title, wherever it stands in a section."""
    for block in section(page, name).blocks:
        grid = block.table if isinstance(block, Figure) else block
        if isinstance(grid, Table) and text(grid.title) == title:
            return words(grid)
    raise AssertionError(title)


def test_the_findings_name_set_shard_and_count(demo):
    """The cause of a leak is read from the first lines alone."""
    texts = " ".join(text(one.text) for one in demo.findings)
    leak = "25 of 117 documents of val in training (21.4 %), most in shard 10 train/train/manual/part-000.jsonl.zst."
    assert leak in texts
    leak = "10 of 16 items of quiz in training, 6 word for word, in shard 5 train/train/code/part-004.parquet."
    assert leak in texts
    assert "truncated_stream (190.0 kB), in shard 13 train/train/manual/part-003.jsonl.zst." in texts
    assert "truncated_stream (after 829 records)" in text(section(demo, "coverage").lead)
    assert [one.tone for one in demo.findings] == sorted((one.tone for one in demo.findings), key=["bad", "warn"].index)


def test_every_finding_leads_to_a_section_of_the_page(demo):
    """Links of the first screen are none that lead nowhere."""
    assert {one.section for one in demo.findings} <= {one.id for one in demo.sections}


def test_sections_stand_in_the_order_of_reading(demo):
    """Changes, then the areas, then coverage and shards; families with a section of their own stand before coverage."""
    order = [
        "changes", "mixture", "languages", "lengths", "tokens", "duplicates", "leakage", "quality", "toxicity",
        "privacy", "secrets", "coverage", "shards",
    ]  # fmt: skip
    found = [one.id for one in demo.sections]
    assert [one for one in found if one in order] == order
    areas = {part.area for shown in all_shown() for part in shown.parts if part.area}
    assert sorted(found) == sorted({*order, *areas})
    assert found[-2:] == ["coverage", "shards"]


def test_a_policy_puts_its_verdict_first():
    """The shards behind it and the rules stand first; what stands out besides is said apart."""
    policy = parse_policy(
        "policy: p\nrules:\n  - {name: leak, metric: train_val_overlap, stat: span, unit: ratio,"
        " scope: {per: set}, budget: 0.001}\n",
        where="policy",
    )
    page = page_of(load_manifest(DEMO), judge(load_manifest(DEMO), policy))
    assert page.sections[0].id == "verdict"
    assert page.tone == "bad"
    assert page.headline.startswith("Stopped")
    assert text(page.findings[0].head) == "Shards behind this"
    assert "part-000.jsonl.zst" in text(page.findings[0].text)
    assert text(page.findings[1].head) == "leak fails"
    assert "of set val is 0.1263" in text(page.findings[1].text)
    assert "part-000.jsonl.zst" in text(page.findings[1].text)
    assert any("secrets" in text(one.text) for one in page.others)


POLICY = """
policy: p
rules:
  - {name: copies, metric: exact_dup_rate, stat: rate, unit: ratio, change: 0.01, owner: "dedup <x>", reason: Waste.,
     runbook: "https://wiki.example.com/dups?a=1"}
  - {name: tokens, metric: tokens, stat: count, unit: tokens, budget: 1, runbook: "javascript:alert(1)"}
  - {name: read, metric: coverage_unread_bytes, stat: bytes, unit: bytes, budget: 1000000}
"""


@pytest.fixture
def judged(tmp_path):
    """A manifest of which two rules fail, one of them against a baseline, with its verdict."""
    rate = Metric(metric="exact_dup_rate", stat="rate", unit="ratio", value=0.1, n=1000, denominator=1000)
    make(tmp_path / "old", [shard("a")], metrics=[rate])
    make(tmp_path / "new", [shard("a")], metrics=[replace(rate, value=0.3)])
    policy = parse_policy(POLICY, where="policy")
    new, old = load_manifest(tmp_path / "new"), load_manifest(tmp_path / "old")
    return new, judge(new, policy, baseline=old)


def test_owner_reason_and_runbook_stand_with_the_rules_that_fail(judged):
    """On the first screen and among the rules; an address of the web is a link, anything else is text."""
    page = page_of(*judged)
    found = {text(one.head): one for one in page.findings}["copies fails"]
    assert (text(found.owner), text(found.reason), text(found.runbook)) == (
        "dedup <x>",
        "Waste.",
        "https://wiki.example.com/dups?a=1",
    )
    look = next(one for one in section(page, "verdict").blocks if text(getattr(one, "title", "")) == "Where to look")
    told = [text(value) for name, value in look.pairs]
    assert told[1:4] == ["https://wiki.example.com/dups?a=1", "owner dedup <x>", "why: Waste."]
    html = render(page)
    assert html.count('<a href="https://wiki.example.com/dups?a=1" rel="noopener noreferrer">') == 2
    assert "javascript:alert(1)" in html
    assert 'href="javascript' not in html
    assert "dedup &lt;x&gt;" in html


def test_a_rule_of_change_shows_the_baseline_and_what_was_judged(judged):
    """The number, the one it is held against, and the change."""
    page = page_of(*judged)
    rules = next(one for one in section(page, "verdict").blocks if one.title == "What does not hold")
    found = {text(row[1]): row for row in rules.rows}["copies"]
    assert (text(found[3]), text(found[4].detail)) == ("0.3", "change: 0.2, from 0.1")
    assert "is 0.3, change: 0.2, from 0.1, limit" in text(page.findings[0].text)


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "runbooks/leak.md",
        "//host/x",
        "https://",
        "http://a b",
        "https://me@host/",
        "data:,x",
        "https://h/\n",
        "https:\\\\h",
        "ftp://h/",
        "https://[",
        "https://h/" + "a" * 2000,
    ],
)
def test_what_is_no_address_of_the_web_is_no_link(address):
    """Neither is one that hides its host or has no end."""
    assert web_address(address) == ""


def test_an_area_is_red_only_where_one_of_its_rules_fails():
    """The demo leaks, holds secrets and lost a shard: with rules that hold, or none, that is amber."""
    policy = "policy: p\nrules:\n  - {name: %s, metric: %s, stat: %s, unit: %s, scope: {per: set}, budget: %s}\n"
    passing = policy % ("leak", "train_val_overlap", "span", "ratio", 1)
    page = page_of(load_manifest(DEMO), judge(load_manifest(DEMO), parse_policy(passing, where="policy")))
    tones = {one.id: one.tone for one in page.sections}
    assert {name for name, tone in tones.items() if tone == "bad"} <= {"verdict", "coverage"}
    assert (tones["leakage"], tones["secrets"]) == ("warn", "warn")
    assert {one.tone for one in page.others if one.section != "coverage"} == {"warn"}
    failing = policy % ("leak", "train_val_overlap", "span", "ratio", 0)
    page = page_of(load_manifest(DEMO), judge(load_manifest(DEMO), parse_policy(failing, where="policy")))
    tones = {one.id: one.tone for one in page.sections}
    assert (tones["leakage"], tones["secrets"]) == ("bad", "warn")


def test_a_shard_with_few_copies_is_amber_and_the_guilty_one_is_red(demo):
    """Red are the worst of a set, shards with copies in 1 % of their documents, unread ones and those with secrets."""
    odd = odd_shards(load_manifest(DEMO), {})
    tones = {one.name: one.tone for one in odd}
    assert tones["train/train/manual/part-000.jsonl.zst"] == "bad"
    assert tones["train/train/messages/part-000.jsonl"] == "warn"
    reds = [one for one in odd if one.tone == "bad"]
    assert odd[: len(reds)] == tuple(reds)


def test_whole_copies_and_copied_passages_are_counted_apart(demo):
    """Neither number is a part of the other, and the sentence says so."""
    lead = text(section(demo, "leakage").lead)
    whole, _, passages = lead.partition(" Counted apart, copied passages of 50 words and more: ")
    assert "25 of 117 documents of val (21.4 %) are also in training data" in whole
    assert whole.endswith("Whole documents: train/train/manual/part-000.jsonl.zst holds 25 of them.")
    assert "train/train/code/part-003.parquet holds passages of 2 documents of it" in passages
    rows = table(demo, "leakage", "Which shards hold them")
    assert rows[1][:6] == ["val", "10", "train/train/manual/part-000.jsonl.zst", "25", "25", "25"]


def test_names_are_folded_at_separators_and_numbers_are_not():
    """A long name without one is folded as well, and markup stays text."""
    assert broken("near_dup_rate rate") == "near_<wbr>dup_<wbr>rate rate"
    assert broken("train/a-000.jsonl.zst") == "train/<wbr>a-<wbr>000.<wbr>jsonl.<wbr>zst"
    assert broken("-0.18 to 1.5, 2026-11-22.") == "-0.18 to 1.5, 2026-11-22."
    assert broken("a" * 50) == "a" * 24 + "<wbr>" + "a" * 24 + "<wbr>aa"
    assert broken("<b>_x") == "&lt;b&gt;_<wbr>x"


def test_a_few_changed_metrics_stand_open_and_the_rest_is_folded(tmp_path):
    """Twelve rows to read, forty to unfold, the number of what is left."""
    held = [
        Metric(
            metric="exact_dup_rate",
            stat="rate",
            unit="ratio",
            value=0.1,
            n=1000,
            denominator=1000,
            scope=Scope(source=f"s{number}"),
        )
        for number in range(80)
    ]
    make(tmp_path / "old", [shard("a")], metrics=held)
    make(tmp_path / "new", [shard("a")], metrics=[replace(one, value=0.3 + n / 1000) for n, one in enumerate(held)])
    manifest = load_manifest(tmp_path / "new")
    page = page_of(manifest, None, load_pair(tmp_path / "old", manifest))
    assert len(table(page, "changes", "Metrics, what matters most first")) == 12
    tables = [one for one in section(page, "changes").blocks if isinstance(one, Table)]
    rest = next(one for one in tables if one.folded and "next" in text(one.title))
    assert (rest.title, rest.folded, len(rest.rows), left_out(rest, len(rest.rows))) == (
        "The next 40 changed metrics",
        True,
        40,
        "and 28 more changed records",
    )


def test_a_shard_that_stands_out_says_why(demo):
    """Gravest first: unread, then leaks, then secrets, then what is far from the others."""
    rows = table(demo, "shards", "Shards that stand out, worst first")
    assert rows[0][1:] == ["train/train/manual/part-003.jsonl.zst", "quarantined: truncated_stream (after 829 records)"]
    assert rows[1][2] == "holds whole copies of 25 documents of val, in 27 of its 1,479 documents (1.83 %)"
    reasons = {row[1]: row[2] for row in rows}
    assert "gopher_repetition rejects 96.5 %, median" in reasons["train/train/manual/part-002.jsonl.zst"]
    assert (
        reasons["train/train/code/part-000.parquet"] == "100 % of its 448 documents repeat earlier ones word for word"
    )


def _with_secrets(number, *, of, far=None):
    return [shard(f"{at:02}", secrets_validated=99 if at == far else int(at < number)) for at in range(of)]


@pytest.mark.parametrize(("number", "of", "quiet"), [(41, 45, 40), (23, 45, 22), (22, 45, 0), (4, 4, 0), (5, 5, 4)])
def test_what_most_shards_share_marks_none(tmp_path, number, of, quiet):
    """More than half of at least five: said once with the number, and only who has far more is red."""
    make(tmp_path / "m", _with_secrets(number, of=of, far=3))
    manifest = load_manifest(tmp_path / "m")
    odd = odd_shards(manifest, {})
    assert [one.tone for one in odd].count("quiet") == quiet
    assert len(odd) == number
    assert (odd[0].shard, odd[0].tone) == (3, "bad")
    page = page_of(manifest)
    shown = section(page, "shards")
    said = [text(one.text) for one in shown.blocks if isinstance(one, Prose)]
    expected = f"In {number} of {of} shards: secrets confirmed by structure. It is no mark of a shard"
    assert [one.startswith(expected) for one in said] == [True] * bool(quiet)
    assert len(table(page, "shards", "Shards that stand out, worst first")) == number - quiet
    assert text(shown.lead).startswith(f"{number - quiet} of {of} shards stand")


def test_a_shard_has_its_own_reasons_before_those_of_most(tmp_path):
    """That it is on the list is its own; that it has a secret as well stands last, and gives no colour."""
    make(tmp_path / "m", _with_secrets(9, of=9))
    odd = {one.shard: one for one in odd_shards(load_manifest(tmp_path / "m"), {4: "on the quarantine list: x"})}
    assert (odd[4].tone, odd[5].tone) == ("warn", "quiet")
    assert [text(one) for one in odd[4].reasons] == ["on the quarantine list: x", "1 secret confirmed by structure"]


def test_a_real_quarantine_list_is_read_by_digest(tmp_path):
    """The shard that was held back is found by its digest and named with the reason."""
    from click.testing import CliRunner

    from dataaudit import cli
    from dataaudit.present.report.page import quarantined_shards

    listed = tmp_path / "q.jsonl"
    arguments = ["quarantine", "add", str(listed), "--manifest", str(DEMO), "12", "--reason", "leak", "--who", "me"]
    assert CliRunner().invoke(cli.main, arguments).exit_code == 0
    found = quarantined_shards(load_manifest(DEMO), listed)
    assert {shard: text(why) for shard, why in found.items()} == {12: "on the quarantine list: leak"}


def test_what_changed_names_bump_shards_and_metrics(tmp_path):
    """A removed shard is a major change, and it is named."""
    rows = [shard("a", sha256="aa" * 32, rows_digest="1" * 64), shard("b", sha256="bb" * 32, rows_digest="2" * 64)]
    make(tmp_path / "old", rows)
    make(tmp_path / "new", rows[:1])
    manifest = load_manifest(tmp_path / "new")
    page = page_of(manifest, None, load_pair(tmp_path / "old", manifest))
    assert "a major change" in text(section(page, "changes").lead)
    assert ["removed", "train/b"] in [row[:2] for row in table(page, "changes", "Shards that changed, worst first")]
    assert any("documents count" in row[0] for row in table(page, "changes", "Metrics, what matters most first"))
    same = page_of(manifest, None, load_pair(tmp_path / "new", manifest))
    assert "are the same manifest" in text(section(same, "changes").lead)


def test_a_shard_that_stands_out_is_on_the_first_screen(tmp_path):
    """The page never says that nothing stands out above a list of shards that do."""
    make(tmp_path / "m", [shard("a"), shard("b", exact_dup_rate=0.9)])
    page = page_of(load_manifest(tmp_path / "m"))
    assert page.headline == "1 thing to look at"
    assert text(page.findings[0].text).startswith("1 of 2 shards stands out; the worst is train/b: 90.0")


def test_what_was_not_measured_is_said_and_is_no_pass(tmp_path):
    """A bare manifest has no green section but those that hold something."""
    make(tmp_path / "m", [shard("a"), shard("v", split="val")])
    page = page_of(load_manifest(tmp_path / "m"))
    assert page.headline == "Nothing stands out"
    assert {one.id for one in page.sections if one.tone == "quiet"} >= {
        "changes",
        "languages",
        "tokens",
        "quality",
        "toxicity",
        "privacy",
        "secrets",
    }
    assert "not searched for" in section(page, "secrets").lead


def test_an_empty_corpus_has_a_report(tmp_path):
    """No shard, no document: said in words, no division by nothing."""
    make(tmp_path / "m", [])
    page = page_of(load_manifest(tmp_path / "m"))
    assert text(page.findings[0].text) == "No document was read, of 0 shards: nothing was evaluated."
    assert page.tone == "bad"


def test_small_counts_of_personal_data_are_not_shown(demo):
    """The rule of the reports holds here too."""
    rows = {row[0]: row for row in table(demo, "privacy", "Personal data by kind")}
    assert rows["CREDIT_CARD"][3:6] == ["30", "<5", "<5"]
    assert rows["EMAIL_ADDRESS"][4:6] == ["*", "*"]


def test_the_matrix_points_out_what_crosses_splits(demo):
    """Copies within a split are blue, those of a held-out split in another are not."""
    chart = next(one.chart for one in demo.charts if one.id == "chart-matrix")
    loud = [
        (text(chart.rows[row]), text(chart.columns[column]), value)
        for row, column, value, _, cross in chart.values
        if cross
    ]
    assert loud == [("val/manual", "train/manual", 25.0)]


def test_every_figure_says_in_words_what_it_shows(demo):
    """The text alternative is a sentence and a table with rows."""
    assert len({one.id for one in demo.charts}) == len(demo.charts) >= 8
    assert all(says(one) and one.title and one.table.columns for one in demo.charts)
