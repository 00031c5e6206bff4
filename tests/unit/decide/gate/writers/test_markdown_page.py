"""Markdown: parsed as GitHub's tables are; a name is never markup, and a limit is never passed."""

import functools
import re
import time

import pytest
from hypothesis import given, settings
from lanes import examples
from made_verdict import HOSTILE, case, hostile, many, mixed, result, rule, subject, verdict, verdicts, waiver
from markdown_it import MarkdownIt

from dataaudit.base.errors import ExitCode
from dataaudit.base.render.blocks import web_address
from dataaudit.decide.gate.verdict import State, WaiverState
from dataaudit.decide.gate.writers.words import headline
from dataaudit.decide.gate.writers.writing import COMMENT_CHARACTERS, SUMMARY_BYTES, comment, marker, step_summary
from dataaudit.manifest.metric import Scope

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = re.compile(r"<!-- dataaudit-gate [0-9a-f]{16} -->|<details><summary>[0-9,]+ other rules?</summary>|</details>")
AUTOLINK = re.compile(r"https?://|www\.|@[A-Za-z0-9]|#[0-9]|GH-[0-9]|:[a-z]+:|\$|\b[0-9a-f]{7,40}\b", re.IGNORECASE)
"""What GitHub makes links, mentions, pictures or formulas of outside of code."""


def tokens(page):
    """Return all tokens, those inside of paragraphs and cells too."""
    found = []
    for one in PARSER.parse(page):
        found.append(one)
        found += one.children or []
    return found


def tables(page):
    """Return the rows of each table as the number of their cells."""
    found = []
    for one in PARSER.parse(page):
        if one.type == "table_open":
            found.append([])
        elif one.type == "tr_open":
            found[-1].append(0)
        elif one.type in {"td_open", "th_open"}:
            found[-1][-1] += 1
    return found


def assert_safe(page, rules):
    """No markup but ours: HTML, links, pictures, headings, lists, and nothing that GitHub would link by itself."""
    for one in tokens(page):
        if one.type in {"html_block", "html_inline"}:
            assert all(OURS.fullmatch(line) for line in one.content.strip().splitlines()), one.content
        if one.type == "link_open":
            assert web_address(one.attrs["href"].replace("&amp;", "&")), one.attrs
        if one.type == "text":
            assert not AUTOLINK.search(one.content), one.content
        assert one.type not in {"image", "fence", "code_block", "blockquote_open", "hr", "s_open", "em_open"}
        assert one.type != "heading_open" or one.tag in {"h2", "h3"}
    for table in tables(page):
        assert len(set(table)) == 1
    assert page.count("### What does not hold") <= 1
    assert len(tables(page)) <= 3
    assert rules >= 0


def test_the_verdict_comes_first_with_the_code_and_what_to_do():
    """Before any table."""
    page = comment(mixed())
    lines = [line for line in page.splitlines() if line]
    assert lines[0] == marker(mixed())
    assert lines[1] == "## dataaudit gate: FAIL, NOT EVALUATED"
    assert lines[2].startswith(
        "**Exit code 3 (also 1): 2 rules fail, 1 rule could not be evaluated, 1 rule warns, 2 rules hold"
    )
    assert lines[3].startswith("Do not release it: 2 rules fail, and 1 could not be judged")


def test_a_row_has_rule_place_value_limit_baseline_owner_and_runbook():
    """As a person reads it."""
    page = step_summary(mixed())
    assert ("| **fail** | `copied-spans` `train_val_overlap.span` | set `val` `") in page
    assert "| 0.0012 | `<= 0` |" in page
    assert "| 40 tokens | `distance <= 5 robust SD` (distance: 7.25 robust SD, median 200 tokens) |" in page
    look = page.partition("### Where to look")[2]
    assert "- `copied-spans`: set `val`: `train/part-3.jsonl` (12 documents with copied spans); fingerprint" in look
    assert "  - [`https://wiki.example/runbooks/leak?step=1`](<https://wiki.example/runbooks/leak?step=1>)" in look
    assert "  - owner `Evaluation`" in look
    assert "| skipped | `drift` `token_kl_drift.kl` | it waits for a baseline |" in page
    assert_safe(page, 7)


def test_all_waivers_are_shown_expired_ones_first():
    """With owner, reason and last day; used ones with what they cover."""
    page = comment(mixed())
    rows = page.partition("### Waivers")[2].partition("<details>")[0].strip().splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == ["**expired**", "unused", "used"]
    assert "| `data team` | `known, and agreed on` | `2027-01-31` |" in rows[2]
    assert "set gsm8k: 0.0004" in rows[2]


def test_a_passing_verdict_says_so():
    """And nothing does not hold."""
    page = comment(verdict(result(rule(), case(State.PASSED, value=0.0))))
    assert "## dataaudit gate: PASS\n\n**Exit code 0: 1 rule holds.**\n\nThe manifest may be released." in page
    assert "What does not hold" not in page
    assert "<details><summary>1 other rule</summary>" in page


@pytest.mark.parametrize("documents", [0, 5])
def test_nothing_evaluated_says_so(documents):
    """An empty corpus, or rules that could not be judged at all."""
    made = verdict(result(rule(required=False), state=State.NOT_APPLICABLE), subject=subject(documents=documents))
    assert made.exit_code == ExitCode.NOTHING_EVALUATED
    assert "## dataaudit gate: NOTHING EVALUATED" in comment(made)


@pytest.mark.parametrize("page", [comment, step_summary])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_never_markup(page, name):
    """The same tables with the same cells as with a plain name."""
    shown, plain = page(hostile(name)), page(hostile("plain"))
    assert_safe(shown, 5)
    assert tables(shown) == tables(plain)


@given(verdicts())
@settings(max_examples=examples(80), deadline=None)
def test_any_verdict_has_safe_pages_within_the_limits(made):
    """Never an error, never markup of others."""
    for page in (comment(made), step_summary(made)):
        assert_safe(page, len(made.rules))
        assert f"## dataaudit gate: {headline(made)}" in page
        assert ("PASS" in headline(made)) == made.passed
    assert len(comment(made).encode("utf-16-le")) <= 2 * COMMENT_CHARACTERS
    assert len(step_summary(made).encode()) <= SUMMARY_BYTES


@functools.cache
def large():
    """Return a verdict whose every part is too long for a comment."""
    long = "\U0001f4a9" * 400
    failing = [
        result(
            rule(f"rule-{index}", owner=long, runbook="https://wiki.example/" + "a" * 900),
            *(case(of=f"rule-{index}", scope=Scope(source=long + str(number))) for number in range(50)),
        )
        for index in range(300)
    ]
    held = [result(rule(f"held-{index}"), case(State.PASSED, of=f"held-{index}")) for index in range(3000)]
    waivers = [waiver(WaiverState.UNUSED, fingerprint=f"{index:016x}", reason=long) for index in range(3000)]
    return verdict(*failing, *held, waivers=tuple(waivers))


@pytest.mark.tables
@pytest.mark.parametrize(
    ("page", "measure", "limit"),
    [
        (comment, lambda text: len(text.encode("utf-16-le")) // 2, COMMENT_CHARACTERS),
        (step_summary, lambda text: len(text.encode()), SUMMARY_BYTES),
    ],
)
def test_a_page_that_is_too_long_keeps_whole_rows_and_counts_the_others(page, measure, limit):
    """The verdict and the policy stay; what is left out is said."""
    text = page(large())
    assert limit * 0.5 < measure(text) <= limit
    assert_safe(text, 3300)
    assert text.startswith("<!-- dataaudit-gate")
    assert "Policy `release-gate`" in text.splitlines()[-1]
    said = re.findall(r"([0-9,]+) more (case|waiver|rule|line)s? not shown here", text)
    assert said[0][1] == "case"
    shown = text.partition("### Where")[0].count("| **fail** |")
    assert int(said[0][0].replace(",", "")) == 300 * 50 - shown


@pytest.mark.tables
def test_a_summary_keeps_out_of_the_room_that_the_step_has_used():
    """A runner drops the whole of a summary that is too long."""
    for room in (0, 10, 100, 700, 2000, 5000, 100_000):
        assert len(step_summary(large(), used=SUMMARY_BYTES - room).encode()) <= room
    assert step_summary(mixed(), used=SUMMARY_BYTES - 100) == "**dataaudit gate: FAIL, NOT EVALUATED**, exit code 3.\n"
    assert step_summary(mixed(), used=SUMMARY_BYTES + 1) == ""


@pytest.mark.tables
def test_every_output_is_made_of_a_hundred_thousand_cases():
    """Within the limits; how long it takes is printed, not judged."""
    from dataaudit.decide.gate.writers.annotations import PolicyFile, annotation_lines
    from dataaudit.decide.gate.writers.junit import junit_xml
    from dataaudit.decide.gate.writers.sarif import sarif_json

    made = many(100_000)
    start = time.process_time()
    sizes = {
        "summary": len(step_summary(made).encode()),
        "comment": len(comment(made)),
        "junit": len(junit_xml(made)),
        "sarif": len(sarif_json(made, PolicyFile())),
        "annotations": len(annotation_lines(made, PolicyFile())),
    }
    print(sizes, f"{time.process_time() - start:.2f} s")
    assert sizes["summary"] <= SUMMARY_BYTES
    assert sizes["comment"] <= COMMENT_CHARACTERS
    assert "99,980 more cases not shown here" in step_summary(made)


def test_a_comment_is_found_again_by_its_first_line():
    """The same for the same policy and dataset, another for another; hidden."""
    first = marker(mixed())
    assert first == marker(verdict(subject=subject(name="made", version="9")))
    assert first != marker(verdict(subject=subject(name="other")))
    assert first != marker(verdict(policy="canary"))
    assert comment(mixed()).splitlines()[0] == first
