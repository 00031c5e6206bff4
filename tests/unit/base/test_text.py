"""Strings for a terminal."""

import json

import pytest

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Table, names, numbers
from dataaudit.base.render.line import Name, cells, fold, wrap
from dataaudit.base.render.terminal import page, table


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\rc\td", "a\\x0ab\\x0dc\\x09d"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2066\u2069\u200b", "\\u2066\\u2069\\u200b"),
        ("\u2028\u0085\x9b", "\\u2028\\x85\\x9b"),
        ("\U000e0041", "\\U000e0041"),
        ("\udcff", "\\udcff"),
        ("::error::x", ":\\x3aerror::x"),
        ("  ::stop-commands::y", "  :\\x3astop-commands::y"),
        ("##vso[task.setvariable]", "#\\x23vso[task.setvariable]"),
        ("\u65e5\u672c \u00fc [bold]x[/bold]", "\u65e5\u672c \u00fc [bold]x[/bold]"),
    ],
)
def test_what_steers_a_terminal_or_a_runner_is_shown_as_an_escape(hostile, shown):
    """Control, format and bidirectional characters and runner commands are escaped, all else stays."""
    assert t.clean(hostile) == shown


def test_a_long_name_is_cut_and_says_by_how_much():
    """A limit keeps the first characters and counts the others."""
    assert t.clean("x" * 70, 60) == "x" * 60 + "... (10 more characters)"
    assert t.clean("x" * 60, 60) == "x" * 60


def test_a_message_of_several_lines_cannot_begin_a_command_on_any_of_them():
    """Line ends of a message stay, its lines are harmless."""
    assert t.clean_message("one\n::error::two\x07") == "one\n:\\x3aerror::two\\x07"


def test_json_is_ascii_and_refuses_what_is_not_a_number():
    """JSON holds escapes only, so a terminal cannot be steered by it, and NaN is never written."""
    text = t.as_json({"source": "\u202e\x9b\u65e5"})
    assert text.isascii()
    assert text.endswith("}\n")
    assert json.loads(text) == {"source": "\u202e\x9b\u65e5"}
    with pytest.raises(ValueError, match="JSON"):
        t.as_json({"value": float("nan")})


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (t.count(55_963_661), "55,963,661"),
        (t.count(None), "-"),
        (t.size(999), "999 B"),
        (t.size(1000), "1.0 kB"),
        (t.size(214_367_659), "214.4 MB"),
        (t.size(999_999), "1.0 MB"),
        (t.size(3 * 10**18), "3,000.0 PB"),
        (t.ratio(0.135548), "0.1355"),
        (t.ratio(1.0), "1.0000"),
        (t.ratio(0.0), "0"),
        (t.ratio(None), "-"),
        (t.ratio(float("nan")), "not finite"),
        (t.decimal(float("-inf")), "not finite"),
        (t.ratio(0.000798), "0.00080"),
        (t.ratio(0.0000123), "0.000012"),
        (t.ratio(2.06e-6), "2.1e-06"),
        (t.ratio(-0.5), "-0.5000"),
        (t.decimal(1151.0), "1,151"),
        (t.decimal(3.83047), "3.830"),
        (t.decimal(None), "-"),
        (t.plural(1, "shard"), "1 shard"),
        (t.plural(1000, "shard"), "1,000 shards"),
    ],
)
def test_numbers_are_written_one_way(shown, expected):
    """Counts have separators, bytes decimal units, ratios four decimals or two digits."""
    assert shown == expected


def test_folding_loses_nothing_and_keeps_to_the_width():
    """The pieces of a folded name are within the width and join to the name."""
    for name in ("train/part-00001-of-00099.jsonl.zst", "x" * 100, "\u65e5\u672c\u8a9e" * 9, "", "a"):
        for width in (5, 12, 33):
            pieces = fold(name, width)
            assert "".join(pieces) == name
            assert all(cells(piece) <= width for piece in pieces)


def test_a_digest_is_never_broken():
    """Facts break at blanks only, so that what is copied is whole."""
    digest = "sha256:" + "0" * 64
    assert wrap(f"id {digest} of it", 20) == ["id", digest, "of it"]


@pytest.mark.parametrize("width", [80, 120])
def test_a_table_fits_the_width_by_folding_names_and_never_cuts_a_number(width):
    """Names are folded where a row is too wide, numbers stay whole."""
    columns = (*names("split/uri"), *numbers(*(f"n{index}" for index in range(4))))
    number, uri = "1,234,567,890", Name("train/" + "deep-folder/" * 12 + "a.jsonl", 1000)
    lines = table(Table(title="", columns=columns, rows=((uri, *[1_234_567_890] * 4),)), width)
    assert max(map(cells, lines)) <= width
    assert sum(line.count(number) for line in lines) == 4
    assert "".join(line[2:].split("  ")[0].strip() for line in lines[2:]).endswith("a.jsonl")


def test_numbers_wider_than_the_terminal_make_a_wider_row():
    """When nothing can be folded any more the row is too long, not wrong."""
    columns = numbers(*(f"n{index}" for index in range(9)))
    lines = table(Table(title="", columns=columns, rows=((1_234_567_890,) * 9,)), 80)
    assert lines[-1].count("1,234,567,890") == 9


def test_a_page_has_no_trailing_blanks_and_no_empty_sections():
    """Blocks without lines leave no gap."""
    assert page("title", ["a  "], [], ["b"]) == "title\na\n\nb\n"


def test_a_name_is_folded_at_blanks_before_dashes_and_never_inside_a_word_that_fits():
    assert fold("rule=documents=2", 12) == ["rule=", "documents=2"]
    assert fold("source=a-b rule=x_y=2", 16) == ["source=a-b", "rule=x_y=2"]
