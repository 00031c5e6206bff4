"""Every format of shards is known wherever formats are told apart: none is left out in silence."""

import inspect
import re
from pathlib import Path

import pytest

from dataaudit.manifest.formats import FORMATS
from dataaudit.scan.corpus.readers import Reader, reader_of
from dataaudit.scan.corpus.shards import format_of

PAGE = Path(__file__).parents[4] / "docs/reference/inputs.md"
FILES = [row for row in FORMATS.values() if row.suffixes]


@pytest.mark.parametrize("row", FORMATS.values(), ids=lambda row: row.name)
def test_each_has_a_reader(row):
    """With functions that take what they are given."""
    reader = reader_of(row.name)
    for name in ["read_part", "peek_columns"] if row.lines else ["plan_parts", "read_part", "peek_columns"]:
        asked = inspect.signature(getattr(Reader, name)).parameters
        assert len(inspect.signature(getattr(reader, name)).parameters) == len(asked) - 1


@pytest.mark.parametrize("row", FILES, ids=lambda row: row.name)
def test_each_format_of_files_has_a_media_type(row):
    """A shard of a format without one would be missing in Croissant."""
    assert row.media_types


@pytest.mark.parametrize("row", FILES, ids=lambda row: row.name)
def test_a_suffix_names_one_format_and_stands_in_the_page(row):
    """Compressed as a whole only where that can be read."""
    text = PAGE.read_text("utf-8")
    for suffix in row.suffixes:
        assert format_of(f"A{suffix.upper()}") == (row.name, "none")
        assert format_of(f"a{suffix}.gz") == (row.name if row.lines else "unknown", "gzip")
        assert re.search(rf"^\|.*`{re.escape(suffix)}`", text, re.MULTILINE), suffix
