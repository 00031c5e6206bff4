"""Folders named ``key=value``, as Hive, Spark, DuckDB and Arrow write them: columns that stand in the path of a file.

The files below have mostly no such column. Of a key that stands in a path twice the innermost folder counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import unquote

from dataaudit.manifest.uri import decode_path

SOURCE_KEYS = ("source", "dataset", "subset", "domain", "language", "lang")
"""Keys that name sources, in the order in which they are looked for: not dates, numbers and buckets."""
PLAIN_FOLDER = r"(?:^|/)(?P<source>[^/=]+)(?:/[^/=]+=[^/]*)*/[^/]+$"
"""Pattern of sources: the innermost folder that is no ``key=value``."""
_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_columns(uri: str) -> dict[str, str]:
    """Return the columns that the folders of a URI give; null is an empty text.

    Characters that a folder's name cannot hold are percent-encoded by those who write such folders.
    """
    found = {}
    for folder in decode_path(uri).split("/")[:-1]:
        key, sign, value = folder.encode("utf-8", "surrogateescape").decode("utf-8", "replace").partition("=")
        if key and sign:
            found[unquote(key)] = "" if value == _NULL else unquote(value)
    return found


def source_key(folders: Collection[str]) -> str | None:
    """Return the key that names the sources: one that all folders have, with several values unless it is the first.

    Args:
        folders: URIs of the folders that hold shards.
    """
    columns = [partition_columns(f"{folder}/") for folder in folders]
    for key in SOURCE_KEYS:
        values = {column.get(key) for column in columns}
        if None not in values and (len(values) > 1 or key == SOURCE_KEYS[0]):
            return key
    return None


def plain_folder(folder: str) -> str | None:
    """Return the innermost folder of a URI of a folder that is no ``key=value``; None when all are."""
    match = re.search(PLAIN_FOLDER, f"{folder}/-")
    return match and match["source"]
