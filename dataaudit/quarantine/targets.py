"""From ``SHARD[:ROW]`` and a manifest to what an entry names: digests, with the names for people beside them."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.errors import ConfigError
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.place import find_place
from dataaudit.quarantine.changes import Wish
from dataaudit.quarantine.entry import Evidence, Target
from dataaudit.quarantine.selection import COLUMNS, digests_of, row_digests_of

_DIGEST = re.compile(r"(sha256|rows):([0-9a-f]{64})(?::([0-9]{1,15}))?")
_PERSONAL = "pii"


def wishes_for(
    places: Sequence[str], manifest: Manifest | None, *, reason: str, metric: str | None, run: str | None
) -> tuple[list[Wish], list[str]]:
    """Return what a user asks to hold back, and what an entry of it holds back besides, in words.

    Args:
        places: Shards and rows as people write them, or digests.
        manifest: Where the shards stand; None when only digests are given.
        reason: Short code.
        metric: Column of the table of shards whose value becomes evidence.
        run: Id of a training run, as evidence.

    Raises:
        ConfigError: A place means nothing or several things, the shard has no digest, or there is no such number.
        ManifestError: The table of shards cannot be read.
    """
    shards = None if manifest is None else manifest.table("shards", list(dict.fromkeys([*COLUMNS, *_numbers(metric)])))
    wishes, notes = [], []
    for place in places:
        match = _DIGEST.fullmatch(place)
        if match:
            evidence = Evidence(run=run)
            target = _by_digest(match)
        elif manifest is None or shards is None:
            raise ConfigError(
                f"`{place}` is no digest, and no manifest says which shard it is",
                "Add --manifest DIR, or give sha256:HEX of the stored bytes.",
            )
        else:
            found = find_place(place, shards)
            row = shards.slice(found.shard, 1).to_pylist()[0]
            target = target_of(row, found.row)
            value = None if metric is None else row[metric]
            evidence = Evidence(metric=metric, value=value, manifest=manifest.id, run=run)
            if found.row is None:
                notes += [f"{name} has the same digest: it is left out too" for name in _twins(row, shards)]
        wishes.append(Wish(target=target, reason=reason, evidence=evidence))
    return wishes, notes


def target_of(row: dict[str, Any], record: int | None = None) -> Target:
    """Return what an entry of a shard, or of one of its records, names.

    Args:
        row: Of the table of shards, with the columns of :data:`dataaudit.quarantine.selection.COLUMNS`.
        record: The document's row; None for the shard.

    Raises:
        ConfigError: The shard was not read, so it has no digest, or it has no such row.
    """
    name = f"{row['split']}/{row['uri']}"
    digests = digests_of(row) if record is None else row_digests_of(row)
    if not digests:
        raise ConfigError(
            f"{name} was not read ({row['reason']}), so it has no digest to name it by",
            "Lists of `quarantine apply` leave out what was not read anyway.",
        )
    if record is not None and record >= row["rows"]:
        raise ConfigError(f"{name} has {row['rows']} rows, counted from 0; found {record}")
    kind: Literal["shard", "document"] = "shard" if record is None else "document"
    return Target(kind=kind, row=record, split=row["split"], uri=row["uri"], **digests)


def _twins(row: dict[str, Any], shards: pa.Table) -> list[str]:
    """Return the names of other shards with the digest of a shard: an entry cannot tell them apart."""
    masks = [pc.fill_null(pc.equal(shards[name], digest), False) for name, digest in digests_of(row).items()]
    same = shards.filter(functools.reduce(pc.or_, masks)) if masks else shards.slice(0, 0)
    return [f"{one['split']}/{one['uri']}" for one in same.to_pylist() if one["shard"] != row["shard"]]


def _by_digest(match: re.Match[str]) -> Target:
    kind, digest, row = match.groups()
    named = {"sha256" if kind == "sha256" else "rows_digest": digest}
    return Target(kind="document" if row else "shard", row=int(row) if row else None, **named)


def _numbers(metric: str | None) -> list[str]:
    """Return the column of a metric.

    Raises:
        ConfigError: No column of that name holds numbers that may stand in a list.
    """
    if metric is None:
        return []
    from dataaudit.manifest.tables import TABLES

    known = [
        field.name
        for field in TABLES["shards"].schema
        if (pa.types.is_floating(field.type) or pa.types.is_int64(field.type)) and not field.name.startswith(_PERSONAL)
    ]
    if metric not in known:
        raise ConfigError(f"--metric {metric}: the table of shards has no such number", f"Known: {', '.join(known)}.")
    return [metric]
