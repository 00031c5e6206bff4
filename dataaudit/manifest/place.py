"""``SHARD[:ROW]``: from what the user typed to one shard of the manifest, and a row of it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.errors import ConfigError

_CHOICES = 5
_NEAR_AMONG = 20_000
"""Shards up to which similar names are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A shard, and a row when one was asked for."""

    shard: int
    row: int | None


def find_place(given: str, shards: pa.Table) -> Place:
    """Resolve ``SHARD[:ROW]``.

    SHARD is an ordinal, a URI or ``split/uri``. A URI may hold a colon: every reading that names a shard
    counts, and more than one is an error that lists them.

    Args:
        given: What the user typed.
        shards: Columns ``shard``, ``split`` and ``uri`` of the manifest.

    Raises:
        ConfigError: No shard, or several, are meant.
    """
    readings: list[tuple[str, int | None]] = [(given, None)]
    head, colon, tail = given.rpartition(":")
    if colon and tail.isascii() and tail.isdecimal():
        readings.append((head, int(tail)))
    found = {Place(shard=shard, row=row): None for name, row in readings for shard in _named(name, shards)}
    if len(found) == 1:
        return next(iter(found))
    if not found:
        raise ConfigError(_not_found(given, shards), "SHARD is an ordinal, a URI, or split/uri.")
    lines = [f"  - {_handle(place, shards)}" for place in list(found)[:_CHOICES]]
    more = [f"  - and {len(found) - _CHOICES} more"] if len(found) > _CHOICES else []
    raise ConfigError(
        f"`{given}` may mean {len(found)} things:\n" + "\n".join(lines + more),
        "Give the ordinal, or split/uri.",
    )


def _named(name: str, shards: pa.Table) -> list[int]:
    """Return the ordinals of all shards that a name fits."""
    found: list[int] = []
    if name.isascii() and name.isdecimal() and len(name) < 10 and int(name) < shards.num_rows:
        found.append(int(name))
    masks = [pc.equal(shards["uri"], name)]
    split, slash, uri = name.partition("/")
    if slash:
        masks.append(pc.and_(pc.equal(shards["split"], split), pc.equal(shards["uri"], uri)))
    for mask in masks:
        found += shards.filter(mask)["shard"].to_pylist()
    return list(dict.fromkeys(found))


def _handle(place: Place, shards: pa.Table) -> str:
    row = shards.slice(place.shard, 1).to_pylist()[0]
    what = "the shard" if place.row is None else f"row {place.row} of the shard"
    return f"{what} {place.shard}: {row['split']}/{row['uri']}"


def _not_found(given: str, shards: pa.Table) -> str:
    """Say what there is, with the shards that come nearest."""
    if shards.num_rows == 0:
        return f"no shard `{given}`: the manifest has no shards"
    message = f"no shard `{given}`; the manifest has the shards 0 to {shards.num_rows - 1}"
    uris = shards["uri"]
    close = uris.filter(pc.match_substring(uris, given)).slice(0, _CHOICES).to_pylist() if given else []
    if not close and uris and shards.num_rows <= _NEAR_AMONG:
        close = difflib.get_close_matches(given, uris.to_pylist(), n=_CHOICES)
    if not close:
        return message
    return f"{message}; similar:\n" + "\n".join(f"  - {uri}" for uri in close)
