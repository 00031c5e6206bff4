"""Which column is the text of each split: those of a corpus ought to have the same name."""

from __future__ import annotations

from collections.abc import Mapping

from dataaudit.manifest.formats import has_columns
from dataaudit.manifest.load import Manifest
from dataaudit.text import clean


def differing_texts(columns: Mapping[str, str]) -> str:
    """Return which columns splits read where their names differ, in words; nothing where they do not.

    Args:
        columns: Of each split that reads columns, that of its text.
    """
    if len(set(columns.values())) < 2:
        return ""
    listed = ", ".join(f"{clean(split)} `{clean(text)}`" for split, text in sorted(columns.items()))
    return f"the splits read differently named columns as their text: {listed}"


def text_columns(manifest: Manifest) -> dict[str, str]:
    """Return the column of the text of each split that has columns.

    Raises:
        ManifestError: The table of shards is absent or damaged.
    """
    shards = manifest.table("shards", ["split", "format"]).to_pylist()
    with_columns = {row["split"] for row in shards if has_columns(row["format"])}
    rules = manifest.core.config.get("splits", {})
    return {name: rule["text"] for name, rule in rules.items() if name in with_columns and rule.get("text")}
