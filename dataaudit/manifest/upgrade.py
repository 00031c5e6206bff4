"""Manifests of older schema versions, brought to the one that this program knows as they are read.

A step knows one version and the next. Steps are applied one after another to the pointer's core and run, and to each
table, so that nobody else ever sees an older form. The id is the digest of the core as it was written, and the digest
of a table that of its rows as they were written: both are checked before a step changes anything.

Version 1 is the first that was released, so there is no step yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import pyarrow as pa

from dataaudit.manifest.core import SCHEMA_VERSION

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """How a manifest of one schema version becomes one of the next."""

    document: Callable[[Json], Json]
    """Takes ``{"id", "core", "run"}`` and returns it as the next version would have it; changes no argument."""
    table: Callable[[str, pa.Table | None], pa.Table]
    """Takes the name of a table of the next version and its rows, None when this version has no such table."""


STEPS: Final[dict[int, Step]] = {}
"""Steps by the version that they begin at."""


def readable(version: object) -> TypeGuard[int]:
    """Return whether a manifest of this schema version can be read."""
    if not isinstance(version, int) or isinstance(version, bool) or version > SCHEMA_VERSION:
        return False
    return all(one in STEPS for one in range(version, SCHEMA_VERSION))


def upgraded_document(document: Json, version: int) -> Json:
    """Return a pointer in the form of the newest version."""
    for one in range(version, SCHEMA_VERSION):
        document = STEPS[one].document(document)
    return document


def upgraded_table(name: str, table: pa.Table | None, version: int) -> pa.Table:
    """Return a table of an older version in the form of the newest."""
    for one in range(version, SCHEMA_VERSION):
        table = STEPS[one].table(name, table)
    assert table is not None
    return table
