"""Names of shards and documents: ``SHARD[:ROW]`` as users type it, URIs of shards, and documents as numbers.

A URI is relative to a root, printable, reversible, and the same on every machine. A file name may hold any byte but
``/`` and NUL; in a URI, ``%``, ``#``, ``?``, control, invisible and bidirectional characters, and bytes that are not
UTF-8, are percent-encoded. Each further listing of a file is a shard of its own: ``#copy=2``, ``#copy=3``, ...
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote_to_bytes

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import ConfigError

_CHOICES = 5
_NEAR_AMONG = 20_000
"""Most shards among which similar names are searched for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A shard, and a row when it was given."""

    shard: int
    row: int | None


def find_place(given: str, shards: pa.Table) -> Place:
    """Resolve ``SHARD[:ROW]``, where SHARD is an ordinal, a URI or ``split/uri``; several meanings are an error."""
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
    ordinals: list[int] = []
    if name.isascii() and name.isdecimal() and len(name) < 10 and int(name) < shards.num_rows:
        ordinals.append(int(name))
    masks = [pc.equal(shards["uri"], name)]
    split, slash, uri = name.partition("/")
    if slash:
        masks.append(pc.and_(pc.equal(shards["split"], split), pc.equal(shards["uri"], uri)))
    for mask in masks:
        ordinals += shards.filter(mask)["shard"].to_pylist()
    return list(dict.fromkeys(ordinals))


def _handle(place: Place, shards: pa.Table) -> str:
    row = shards.slice(place.shard, 1).to_pylist()[0]
    what = "the shard" if place.row is None else f"row {place.row} of the shard"
    return f"{what} {place.shard}: {row['split']}/{row['uri']}"


def _not_found(given: str, shards: pa.Table) -> str:
    """Return a message with the shards that have similar names."""
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


STREAMED = "datasets:"
"""How the root of a streamed dataset begins: its shards are no files."""
_COPY = "#copy="
_LONGEST = 100_000
"""Characters: no file system has longer paths."""
# Categories Cc, Cf, Cs, Zl and Zp, written out: no identity may depend on the tables of a Python version.
_UNSAFE = re.compile(
    "[%#?\\x00-\\x1f\\x7f-\\x9f\\xad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2\\u180e"
    "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ud800-\\udfff\\ufeff\\ufff9-\\ufffb\\U000110bd\\U000110cd"
    "\\U00013430-\\U0001345f\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]"
)


def encode_path(relative: str) -> str:
    """Return the URI of a relative path (``os.fsdecode`` form); also how a path is shown in a message."""
    return _UNSAFE.sub(_percent, relative)


def decode_path(uri: str) -> str:
    """Return the relative path (``os.fsdecode`` form) of a URI, its copy number dropped."""
    return os.fsdecode(unquote_to_bytes(uri.partition(_COPY)[0]))


def with_copy(uri: str, copy: int) -> str:
    """Return the URI of the ``copy``-th listing of a file, counted from 1."""
    return uri if copy == 1 else f"{uri}{_COPY}{copy}"


def relative_path(uri: str) -> str | None:
    """Return the relative path of a URI; None when it leaves its root."""
    path = decode_path(uri)
    parts = PurePosixPath(path)
    if not parts.parts or parts.is_absolute() or ".." in parts.parts or "\0" in path:
        return None
    return path


def is_canonical(uri: str) -> bool:
    """Return whether a build may write a URI: the only form for its file and copy, and no longer than a path."""
    path, _, copy = uri.partition(_COPY)
    is_copy = uri == path or bool(re.fullmatch("[1-9][0-9]{0,8}", copy) and int(copy) > 1)
    return is_copy and len(uri) <= _LONGEST and encode_path(decode_path(path)) == path


def is_roundabout(uri: str) -> bool:
    """Return whether a URI is another name of a file below a folder (`a//b`, `./a`); in a store these are objects.

    A `/` at the end is that of a folder that could not be listed.
    """
    return not {"", "."}.isdisjoint(decode_path(uri).removesuffix("/").split("/"))


def _percent(match: re.Match[str]) -> str:
    try:
        encoded = os.fsencode(match.group())
    except UnicodeEncodeError:  # a surrogate that stands for no byte; no file name holds one, a pattern may
        encoded = match.group().encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in encoded)


ROW_BITS = 40
"""A shard has fewer than 2^40 records (10^12), a corpus fewer than 2^23 shards: a place is below 2^63."""


def places_of(shards: int | np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return int64[n], the numbers of documents, ordered by shard, then row."""
    places: np.ndarray = np.left_shift(np.asarray(shards, dtype=np.int64), ROW_BITS) | rows
    return places


def shards_of(places: np.ndarray) -> np.ndarray:
    """Return int32[n] shards of places."""
    return (places >> ROW_BITS).astype(np.int32)


def rows_of(places: np.ndarray) -> np.ndarray:
    """Return int64[n] rows of places."""
    return places & ((1 << ROW_BITS) - 1)


def is_new(*columns: np.ndarray) -> np.ndarray:
    """Return bool[n]: where a row differs from the row before; the first row does."""
    new = np.ones(len(columns[0]), dtype=bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return new
