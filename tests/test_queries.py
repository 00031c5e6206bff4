"""The queries of docs/howto/queries.md: each is run against the demo's manifest, and returns the rows below it.

`python tests/test_queries.py` writes the rows of the page anew.
"""

import re
import runpy
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/howto/queries.md"
_BLOCK = re.compile(r"^```(sql|python)\n(.*?)^```\n(?:\n((?:\|[^\n]*\n)+))?", re.MULTILINE | re.DOTALL)


def blocks():
    """Return every query of the page: language, text, the lines of the table below it."""
    return [(match[1], match[2], (match[3] or "").splitlines()) for match in _BLOCK.finditer(PAGE.read_text())]


def rows_of(language, text):
    """Run a query in the root of the repository; return its columns and rows."""
    if language == "sql":
        import duckdb

        with duckdb.connect() as connection:
            connection.execute(f"SET file_search_path = '{ROOT}'")
            found = connection.execute(text)
            return [column[0] for column in found.description], found.fetchall()
    import os

    before = Path.cwd()
    os.chdir(ROOT)
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write(text)
            program.flush()
            names = runpy.run_path(program.name)
    finally:
        os.chdir(before)
    return names["result"].columns, names["result"].rows()


def table(language, text):
    """Return what a query gives as the lines of a Markdown table."""
    columns, rows = rows_of(language, text)
    numbers = [all(isinstance(row[index], int | float) for row in rows) for index in range(len(columns))]
    rule = ["---:" if number else "---" for number in numbers]
    return [f"| {' | '.join(line)} |" for line in (columns, rule, *([_cell(value) for value in row] for row in rows))]


def _cell(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) else f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@pytest.mark.parametrize("number", range(len(blocks())))
def test_a_query_returns_the_rows_that_the_page_shows(number):
    language, text, shown = blocks()[number]
    assert table(language, text) == shown
    assert len(shown) > 2, "a query that returns nothing shows nothing"


def test_every_code_block_of_the_page_is_one_of_these():
    assert PAGE.read_text().count("```") == 2 * len(blocks())


if __name__ == "__main__":
    PAGE.write_text(
        _BLOCK.sub(lambda m: f"```{m[1]}\n{m[2]}```\n\n" + "\n".join(table(m[1], m[2])) + "\n", PAGE.read_text())
    )
