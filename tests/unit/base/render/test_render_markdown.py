"""Markdown with names from data: whatever a name holds, a reader of Markdown sees one code span with it."""

import unicodedata

import pytest
from hypothesis import given
from made_verdict import HOSTILE, names
from markdown_it import MarkdownIt

from dataaudit.base.render.blocks import Table, numbers
from dataaudit.base.render.blocks import names as name_columns
from dataaudit.base.render.line import Name
from dataaudit.base.render.markdown import code, table


def grid(heads, *rows):
    """Return a table of a column of names and one of numbers."""
    return Table(title="", columns=(*name_columns(heads[0]), *numbers(heads[1])), rows=rows)


READER = MarkdownIt("commonmark").enable("table")


def spans(text):
    """Return what a reader makes of inline Markdown: (type, content) of every part."""
    blocks = [token for token in READER.parse(text) if token.type == "inline"]
    return [[(part.type, part.content) for part in block.children] for block in blocks]


@given(name=names)
def test_a_name_is_one_code_span_and_nothing_else(name):
    assert [[kind for kind, _ in block] for block in spans(code(name))] == [["code_inline"]]


@given(name=names)
def test_a_name_stays_in_its_cell(name):
    made = "\n".join(table(grid(("name", "number"), (Name(name), "7"), (Name(name), "8"))))
    assert [[kind for kind, _ in block] for block in spans(made)] == [
        ["text"],
        ["text"],
        ["code_inline"],
        ["text"],
        ["code_inline"],
        ["text"],
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_short_and_steers_nothing(name):
    assert not {unicodedata.category(character) for character in code(name)} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert len(code(name)) < 1000


def test_a_plain_name_is_shown_as_it_is():
    assert code("train/part-000.jsonl.zst") == "`train/part-000.jsonl.zst`"
    assert code("a|b`c") == "`a\\x7cb\\x60c`"
    assert code("") == "`(empty)`"
    assert code("abcdef", 3) == "`abc... (3 more characters)`"


def test_numbers_stand_right_and_a_table_without_rows_is_nothing():
    assert table(grid(("a", "b"), (Name("x"), 1))) == ["| a | b |", "| --- | ---: |", "| `x` | 1 |"]
    assert table(grid(("a", "b"))) == []
