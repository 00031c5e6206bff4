"""docs/reference/diff.md names every code that a difference can hold."""

from pathlib import Path

from dataaudit.decide.diff import compare, drifts
from dataaudit.decide.diff import drifts as recuts
from dataaudit.decide.diff.difference import Bump, MetricChangeKind, ShardChangeKind
from dataaudit.metrics import comparable

PAGE = (Path(__file__).parents[4] / "docs/reference/diff.md").read_text("utf-8")


def test_every_code_is_explained():
    """Fates, reasons, complaints and causes, each in its own type."""
    reasons = {value for name, value in vars(comparable).items() if name.startswith("OTHER_")}
    places = {drifts.NEW, drifts.GONE, drifts.FOLDED, drifts.NO_HISTOGRAM, drifts.OTHER_TOKENIZER, "shard_ordinal"}
    complaints = {"too_small", "unchanged", "backwards", "not_semver", "other_dataset", compare.SPLIT_ROLE}
    kinds = {*ShardChangeKind, *MetricChangeKind, Bump.NONE, "removed_empty", "removed_unread"}
    codes = {*kinds, *reasons, *places, *complaints}
    assert [code for code in sorted(codes) if f"`{code}`" not in PAGE] == []


def test_everything_that_a_cut_is_compared_by_is_named():
    """In the words of the output."""
    held = (recuts.TOTALS, recuts.TOKENS, recuts.LENGTHS, recuts.LANGUAGES, recuts.DUPLICATES, recuts.RULES)
    assert [words for words in held if words not in PAGE] == []


def test_the_bump_of_every_fate_is_the_one_of_the_page():
    """The table and the code agree."""
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| `")]
    said = {row[1].strip(" `"): row[3].strip().split(",")[0] for row in rows if len(row) == 5}
    meant = {str(fate): str(meaning[0]) for fate, meaning in compare._MEANING.items()}
    assert {fate: said[fate] for fate in meant} == meant
