"""Manifests of older schema versions, brought to the one that this program knows as they are read.

A step knows one version and the next. Steps are applied one after another to the pointer's core and run, and to each
table, so that nobody else ever sees an older form. The id is the digest of the core as it was written, and the digest
of a table that of its rows as they were written: both are checked before a step changes anything.

Version 1 is the first that was released. Version 2 holds the bytes of every file in ``run.files``, and what a
quarantine list held back; of a manifest of version 1 the bytes are not held, and no list was honoured. Version 2 adds
what matches share without common text; of version 1 all of it counts. Version 2 adds columns of shards, which are null
of version 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import pyarrow as pa

from dataaudit.manifest.core import SCHEMA_VERSION
from dataaudit.manifest.tables import TABLES

Json = dict[str, Any]
BYTES_SINCE: Final = 2
"""The version from which on ``run.files`` holds the bytes of every file."""


@dataclass(frozen=True, slots=True)
class Step:
    """How a manifest of one schema version becomes one of the next."""

    document: Callable[[Json], Json]
    """Takes ``{"id", "core", "run"}`` and returns it as the next version would have it; changes no argument, and raises
    ValueError for a field that only a later version has."""
    table: Callable[[str, pa.Table | None], pa.Table]
    """Takes the name of a table of the next version and its rows, None when this version has no such table."""
    changed: Collection[str] = tuple(TABLES)
    """Tables that it adds or changes; others are read as if they were of the next version."""


_SINCE_2: Final = (
    ("run", "files"),
    ("run", "quarantine"),
    ("core", "quarantine"),
    ("core", "ledger", "listed_shards"),
    ("core", "ledger", "listed_bytes"),
    *(("core", "ledger", line, "held_back") for line in ("shards", "bytes", "documents")),
)
"""Fields that version 1 does not know."""


def _without_bytes(document: Json) -> Json:
    """Return a pointer of version 1 as one of version 2, of unknown bytes, built without a quarantine list."""
    for path in _SINCE_2:
        found: Any = document
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if found is not None:
            raise ValueError(f"{'.'.join(path)}: unknown field, before version 2")
    core = document["core"]
    return document | {"core": core | {"schema": core["schema"] | {"version": 2}}}


def _with_columns(name: str, table: pa.Table | None) -> pa.Table:
    """Return a table of version 1 with the columns that version 2 adds: a score, the same as theirs, and nulls."""
    assert table is not None, name
    if name == "shards":
        held = {one: table[one] for one in table.column_names}
        schema = TABLES[name].schema
        return pa.table([held.get(one.name, pa.nulls(table.num_rows, one.type)) for one in schema], schema=schema)
    if name != "overlap":
        return table
    return table.append_column(TABLES["overlap"].schema.field("score_without_common"), table["score"])


STEPS: Final[dict[int, Step]] = {1: Step(document=_without_bytes, table=_with_columns, changed=("overlap", "shards"))}
"""Steps by the version that they begin at."""


def readable(version: object) -> TypeGuard[int]:
    """Return whether a manifest of this schema version can be read."""
    if not isinstance(version, int) or isinstance(version, bool) or version > SCHEMA_VERSION:
        return False
    return all(one in STEPS for one in range(version, SCHEMA_VERSION))


def upgraded_document(document: Json, version: int) -> Json:
    """Return a pointer in the form of the newest version.

    Raises:
        ValueError: It has a field that only a later version has.
    """
    for one in range(version, SCHEMA_VERSION):
        document = STEPS[one].document(document)
    return document


def is_as_written(name: str, version: int) -> bool:
    """Tell whether a table has the form of the newest version already."""
    return not any(name in STEPS[one].changed for one in range(version, SCHEMA_VERSION))


def upgraded_table(name: str, table: pa.Table | None, version: int) -> pa.Table:
    """Return a table of an older version in the form of the newest."""
    for one in range(version, SCHEMA_VERSION):
        table = STEPS[one].table(name, table)
    assert table is not None
    return table
