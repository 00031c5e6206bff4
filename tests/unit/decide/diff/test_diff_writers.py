"""The three forms: harmless whatever the names are, short by default, the same bytes for the same manifests."""

import json
import re
from dataclasses import replace

import jsonschema
import pytest
from diff_made import difference, histogram, shard

from dataaudit.decide.diff.blocks import MOST_CHARACTERS, render, render_markdown, render_text
from dataaudit.decide.diff.difference import diff_schema, render_json
from dataaudit.manifest.metric import Metric, Scope

pytestmark = pytest.mark.usefixtures("odd_numbers")
HOSTILE = (
    "<script>alert(1)</script>",
    "\x1b[31mred",
    "\u202eevil",
    "::error::x",
    "##[error]x",
    "=cmd()",
    "a|b",
    "`x`",
    "line\nbreak",
    "../../etc",
    "</details>",
    "@everyone",
    "[a](http://x)",
    "w" * 10_000,
)
BASE = [shard("a"), shard("b")]
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A difference in which every name is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    old, new = [], []
    for number, name in enumerate(HOSTILE):
        held = {"split": f"train{name}", "sources": {name: 50, f"{name}2": 50}}
        old += [shard(f"{number}{name}", **held), shard(f"gone{number}{name}", **held)]
        new += [shard(f"{number}{name}", "changed", reason=name, **held), shard(f"new{number}{name}", **held)]
    metrics = [
        Metric(
            metric="exact_dup_rate",
            stat="rate",
            scope=Scope(split=f"train{name}", source=name),
            unit="ratio",
            value=0.1,
            n=100,
            denominator=100,
        )
        for name in HOSTILE
    ]
    words = [{(f"train{name}", name): {1: first, 2: 9} for name in HOSTILE} for first in (5, 50)]
    tables = [{"histogram": histogram(held)} for held in words]
    setting = {"dataset": {"name": HOSTILE[0], "version": HOSTILE[3]}}
    return difference(
        folder,
        old,
        new,
        old_with={"metrics": metrics, "tables": tables[0], "core": setting},
        new_with={
            "metrics": [replace(one, value=0.5) for one in metrics],
            "tables": tables[1],
            "config": {name: name for name in HOSTILE},
        },
    )


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("form", ["text", "md", "json"])
def test_nothing_that_a_name_holds_steers_a_terminal_or_a_runner(hostile, form, everything):
    """No escape sequence, no bidirectional control, no line that a runner takes for a command."""
    shown = render(hostile, form, everything=everything)
    assert not STEERS.search(shown)
    assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")]
    assert form == "json" or "##[" not in shown


def test_a_name_is_never_markup(hostile):
    """Outside code spans only our own words stand: no tag but the folds, no link, no mention."""
    shown = render_markdown(hostile, everything=True)
    bare = re.sub(r"`[^`\n]*`", "", shown)
    assert set(re.findall(r"<[^>]*>", bare)) == {"<details>", "</details>", "<summary>", "</summary>"}
    assert bare.count("<details>") == bare.count("</details>") == 4
    for mark in ("@", "](", "`", "http", "script"):
        assert mark not in bare, mark
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} <= {5, 6, 7, 9}


@pytest.mark.tables
def test_a_comment_always_fits(tmp_path):
    """With thousands of changes of long names it is cut down, and says how many more there are."""
    old = [shard(f"{number}-{'n' * 200}", documents=1, sources={f"source {number}": 100}) for number in range(1500)]
    new = [row | {"rows_digest": "ab" * 32} for row in old]
    found = difference(tmp_path, old, new)
    for everything in (False, True):
        shown = render_markdown(found, everything=everything)
        assert len(shown) <= MOST_CHARACTERS
        assert "more shards" in shown
    assert len(render_markdown(found, everything=True)) > MOST_CHARACTERS / 4


def test_a_page_is_short_unless_everything_is_asked_for(tmp_path):
    """Ten rows of a section, and how many more."""
    old = [shard(f"{number:03}") for number in range(50)]
    found = difference(tmp_path, old, [shard(f"{number:03}", f"new {number}") for number in range(50)])
    short, long = render_text(found, width=100), render_text(found, width=100, everything=True)
    assert "and 40 more shards; --all lists them" in short
    assert "train/049" not in short
    assert "train/049" in long
    assert "--all" not in long
    assert len(json.loads(render_json(found))["shards"]) == 50


def test_the_page_says_what_happened(tmp_path):
    """The bump, its cause and the version's complaint stand first; a setting is shown as it was and as it is."""
    settings = {f"{side}_with": {"config": {"seed": seed}} for side, seed in (("old", 1), ("new", 20))}
    shown = render_text(difference(tmp_path, BASE, BASE[:1], **settings), width=100)
    assert shown.splitlines()[0] == "made 1.0.0 -> made 1.0.0: major bump: 2.0.0 or later"
    assert "major: 1 shard (10 documents) gone: no shard holds their rows, or one copy of them less is there" in shown
    assert "VERSION: the version did not change, but the data demand a major bump." in shown
    assert re.search(r"^ +config +seed +1 +20$", shown, re.MULTILINE)


def test_two_equal_manifests_are_two_lines(tmp_path):
    """And no table."""
    found = difference(tmp_path, BASE, BASE)
    assert render_text(found, width=100).splitlines()[0].endswith("equal: both manifests are the same")
    assert len(render_text(found, width=100).splitlines()) == 3
    assert render_markdown(found).startswith("## Data: equal")


@pytest.mark.parametrize("form", ["text", "md", "json"])
def test_the_same_manifests_give_the_same_bytes(tmp_path, form):
    """Nothing of the folders, the time or the order of a set gets into it."""
    new = [shard("a", "x", split="val"), *(shard(f"c{number}") for number in range(20))]
    shown = {render(difference(tmp_path / name, BASE, new), form) for name in ("one", "two")}
    assert len(shown) == 1
    assert str(tmp_path) not in shown.pop()


def test_json_meets_its_schema(hostile, tmp_path):
    """And the schema refuses what it does not know."""
    schema = diff_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for found in (hostile, difference(tmp_path, BASE, BASE), difference(tmp_path / "2", [], BASE)):
        value = json.loads(render_json(found))
        validator.validate(value)
        assert value["schema"] == {"name": "dataaudit-diff", "version": 1}
    assert not validator.is_valid(value | {"more": 1})
    assert not validator.is_valid({name: value[name] for name in value if name != "proposal"})
