"""A table is declared by its columns: each takes a field of an item, or makes its cell, in a format."""

from types import SimpleNamespace

from dataaudit.base.render.blocks import MOST_ROWS, column, named, table_of, toned
from dataaudit.base.render.line import Name, share

COLUMNS = (
    column("source", shown=named),
    column("docs", "documents"),
    column("share of tokens", shown=share),
    column("twice", lambda row: toned(2 * row["documents"], when=row["documents"] > 1)),
    column("why", lambda row: f"for {row['source']}", kind="text"),
)


def row(source, documents, part):
    """Return an item with the fields that the columns name."""
    return {"source": source, "documents": documents, "share_of_tokens": part}


def test_a_column_takes_a_field_or_makes_a_cell():
    table = table_of("Sources", [row("web", 2, 0.5)], *COLUMNS, foot=[row("", 1, None)], noun="source")
    assert [made.kind for made in table.columns] == ["name", "number", "number", "number", "text"]
    assert table.rows == ((Name("web"), 2, share(0.5), toned(4), "for web"),)
    assert table.foot == (("(all)", 1, share(None), toned(2, ""), "for "),)
    assert (table.title, table.noun, table.number) == ("Sources", "source", 1)


def test_fields_of_records_are_taken_too():
    sources = [SimpleNamespace(name="web", old_count=7)]
    table = table_of("Sources", sources, column("name", shown=Name), column("old count"))
    assert table.rows == ((Name("web"), 7),)


def test_rows_are_made_of_the_first_items_alone():
    items = [row(f"s{number}", number, 0.1) for number in range(MOST_ROWS + 9)]
    short, whole = (table_of("Sources", items, *COLUMNS, most=most) for most in (MOST_ROWS, None))
    assert (len(short.rows), short.number) == (MOST_ROWS, len(items))
    assert (len(whole.rows), whole.number) == (len(items), len(items))
    assert table_of("Sources", items[:3], *COLUMNS, number=40).number == 40
