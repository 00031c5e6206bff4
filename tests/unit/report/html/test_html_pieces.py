"""Names and numbers of the report: harmless, short enough, and never more certain than they are."""

from __future__ import annotations

import pytest

from dataaudit.report.html.pieces import first, label, more, named, percent, worst


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (None, "-"),
        (0.213675, "21.4 %"),
        (0.05, "5.00 %"),
        (0.99999, "99.99 %"),
        (0.0012, "0.12 %"),
        (0.00028, "0.028 %"),
        (0.000001, "1e-4 %"),
    ],
)
def test_a_share_is_shown_in_percent_and_is_0_or_100_only_when_it_is(value, shown):
    """What is nearly all or nearly nothing does not read as all or nothing."""
    assert percent(value) == shown.replace(" %", "\xa0%")


def test_a_label_keeps_its_beginning_and_its_end():
    """The end of a URI tells shards apart."""
    shown = label("train/web/crawl-2026-10/part-00017.parquet")
    assert len(shown) <= 26
    assert shown.startswith("train/")
    assert shown.endswith("17.parquet")
    assert label("web") == "web"


def test_names_are_made_harmless_and_bounded():
    """Controls become escapes; how much is left out is said."""
    assert named("a\x1b[31m\u202eb") == "a\\x1b[31m\\u202eb"
    assert named("x" * 300).endswith("... (180 more characters)")
    assert "\x1b" not in label("\x1b" * 300)


def test_one_item_is_not_left_out_alone():
    """A line that says that there is one more could be that one."""
    assert list(first([1, 2, 3], 2)) == [1, 2, 3]
    assert list(first([1, 2, 3, 4], 2)) == [1, 2]
    assert more([1, 2, 3, 4], [1, 2], "shard") == "and 2 more shards"
    assert more([1, 2], [1, 2], "shard") == ""


def test_the_worst_tone_stands_for_all():
    """Bad before warn before good."""
    assert worst(["good", "bad", "warn"]) == "bad"
    assert worst(["good", "", "warn"]) == "warn"
    assert worst([]) == ""
