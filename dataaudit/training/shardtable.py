"""The table of shards that the processes of a node share: Arrow IPC files named by their digest, memory-mapped.

A row is a shard, and its number the shard's ordinal in the manifest. What else a training run asks of the manifest
stands as JSON in the schema's metadata, so that a copy of the file says of which corpus it is. The documents to skip
lie in a second file, one sorted number a document: :func:`dataaudit.manifest.places.places_of`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.atomic import write_whole
from dataaudit.errors import ConfigError
from dataaudit.kept import private_folder, user_places
from dataaudit.manifest.places import places_of, rows_of
from dataaudit.manifest.tables import COUNT, RATIO, STRING
from dataaudit.manifest.tables import field as column

FORM: Final = {"name": "dataaudit-corpus", "version": 1}
_ABOUT = b"dataaudit"
COPIED = ("shard", "split", "uri", "format", "compression", "size", "sha256", "rows_digest", "status")
COUNTS = ("rows", "documents", "tokens", "bytes")
METRICS = (
    "bytes_per_token",
    "seq_len_p50",
    "exact_dup_rate",
    "near_dup_rate",
    "repeat_token_share",
    "token_kl_drift",
    "filter_reject_rate",
    "toxicity_screen",
    "pii_documents",
    "secret_hits",
    "contaminated",
    "held_out_copies",
)
"""What attribution shows of a shard."""
_COUNTED = frozenset({"pii_documents", "secret_hits", "contaminated", "held_out_copies"})
SCHEMA: Final = pa.schema(
    [
        column("shard", pa.int32(), "ordinal in the manifest; the number of the row"),
        column("split", STRING, "split"),
        column("uri", STRING, "URI relative to the root"),
        column("format", STRING, "how its records are stored"),
        column("compression", STRING, "how its bytes are compressed"),
        column("size", COUNT, "stored bytes"),
        column("sha256", STRING, "of the stored bytes, hex; of a streamed dataset its rows_digest; empty: unread"),
        column("rows_digest", STRING, "sha256 over the documents' texts and sources in order", null=True),
        column("status", STRING, "ok, partial, quarantined or skipped"),
        column("rows", COUNT, "rows of the shard, as in the manifest"),
        column("documents", COUNT, "documents that are read of it, with those that the list of the build held back"),
        *(column(name, COUNT, f"{name} of the shard, as in the manifest") for name in COUNTS[2:]),
        column("path", STRING, "file or address that opens it now; empty when it is held or streamed"),
        column("held", STRING, "why loaders do not get it; empty: they do"),
        column("twin_of", pa.int32(), "lowest ordinal of the shards with equal bytes; its own when there is none"),
        *(column(name, COUNT if name in _COUNTED else RATIO, "as in the manifest", null=True) for name in METRICS),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Who said PASSED of the manifest."""

    policy: str
    """Name, or URI, of the policy."""
    version: str
    """Of the policy; empty when that is not said."""
    digest: str
    """``sha256:<hex>`` of the policy; empty when that is not said."""
    signer: str
    """Whose signature holds; empty when the manifest was judged as it was opened."""
    at: str
    """When the signed verdict was given, UTC, ISO 8601; empty when the manifest was judged as it was opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What stands in the metadata of the table."""

    id: str
    """Of the manifest."""
    dataset: str
    """``name@version``."""
    passed: Passed | None
    """None when the manifest was verified only."""
    digests: Mapping[str, str]
    """Digests of what the run depends on, by name; empty where there is no such thing."""
    splits: tuple[str, ...]
    """Those that were chosen, sorted."""
    sources: tuple[str, ...]
    """Every source of the corpus, sorted: a source's code is its place."""
    config: Mapping[str, Any]
    """``core.config`` of the manifest."""


def make_table(shards: pa.Table, *, paths: Sequence[str], held: Sequence[str], about: About) -> pa.Table:
    """Return the table.

    Args:
        shards: Columns of the manifest's table of shards: :data:`COPIED`, :data:`COUNTS`, :data:`METRICS`, and
            ``bad_records``.
        paths: Where each shard's file lies; empty for none.
        held: Why loaders do not get it; empty when they do.
        about: What is said of the corpus.
    """
    made = {
        "path": pa.array(paths, STRING),
        "held": pa.array(held, STRING),
        "documents": _documents(shards),
        "twin_of": pa.array(_twins(shards["sha256"]), pa.int32()),
    }
    columns = [made[name] if name in made else shards[name] for name in SCHEMA.names]
    said = {
        "schema": FORM,
        "id": about.id,
        "dataset": about.dataset,
        "passed": None if about.passed is None else {name: getattr(about.passed, name) for name in Passed.__slots__},
        "digests": dict(about.digests),
        "splits": about.splits,
        "sources": about.sources,
        "config": about.config,
    }
    schema = SCHEMA.with_metadata({_ABOUT: json.dumps(said, sort_keys=True).encode()})
    return pa.table(columns, schema=schema).combine_chunks()


def _documents(shards: pa.Table) -> pa.ChunkedArray:
    """Return the documents that are read of each shard: those that a list holds back stand in the file as well."""
    was_read = pc.is_in(shards["status"], pa.array(["ok", "partial"]))
    there = pc.subtract(shards["rows"], shards["bad_records"])
    return pc.if_else(was_read, there, shards["documents"])


def about_of(table: pa.Table) -> About:
    """Return what a table's metadata say.

    Raises:
        ConfigError: It is no table of shards, or one of a newer version.
    """
    said = json.loads((table.schema.metadata or {}).get(_ABOUT, b"null"))
    schema = said.get("schema") if isinstance(said, dict) else None
    if schema != FORM:
        raise ConfigError(f"expected a table of shards, {FORM}, found {str(schema)[:100]}")
    return About(
        id=said["id"],
        dataset=said["dataset"],
        passed=None if said["passed"] is None else Passed(**said["passed"]),
        digests=said["digests"],
        splits=tuple(said["splits"]),
        sources=tuple(said["sources"]),
        config=said["config"],
    )


def sources_of(shards: pa.Table) -> tuple[str, ...]:
    """Return every source in the column ``sources`` of a table of shards, sorted."""
    found = pc.struct_field(pc.list_flatten(shards["sources"]), "source")
    return tuple(sorted(pc.unique(found).to_pylist()))


def listed_places(lists: Sequence[pa.Table]) -> np.ndarray:
    """Return the places of the documents that any of some lists names.

    Args:
        lists: Columns ``shard`` and ``row`` of each.

    Returns:
        int64[documents], sorted.
    """
    found = [places_of(one["shard"].to_numpy(), one["row"].to_numpy()) for one in lists]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *found]))


def rows_in(places: np.ndarray, shard: int) -> np.ndarray:
    """Return the rows of one shard.

    Args:
        places: int64[documents], sorted.
        shard: Its ordinal.

    Returns:
        int64[rows], sorted.
    """
    low, high = np.searchsorted(places, places_of(np.array([shard, shard + 1]), np.zeros(2, dtype=np.int64)))
    return rows_of(places[low:high])


def cache_folder(given: Path | None) -> Path:
    """Return the folder of the shared files, created.

    Raises:
        ConfigError: None can be written.
    """
    if given is not None:
        try:
            given.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the cache folder {given} cannot be made: {error.strerror}") from None
        return given.absolute()
    folder = private_folder(*user_places("corpora"))
    if folder is None:
        raise ConfigError("no folder for the shared table of shards can be written", "Name one: cache=FOLDER.")
    return folder


def share(table: pa.Table, kind: str, folder: Path) -> Path:
    """Write a table as one Arrow IPC file, named by its digest, unless it is there; return its path.

    What is there is held against the digest, and written anew when it was cut or changed. Processes that do so at
    once write equal bytes, and each file appears whole.

    Raises:
        ConfigError: It cannot be written.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]:
            writer.write_batch(batch)
    data = sink.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    path = folder / f"{kind}-{digest}.arrow"
    try:
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            write_whole(path, data)
    except OSError as error:
        raise ConfigError(
            f"the shared table {path} cannot be written: {error.strerror}", "Free space or name a folder: cache=FOLDER."
        ) from None
    return path


def open_shared(path: Path) -> pa.Table:
    """Return a table of :func:`share`, memory-mapped.

    Raises:
        ConfigError: It is absent or damaged.
    """
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(
            f"the shared table {path} cannot be read: {str(error).partition(chr(10))[0]}", "Open the manifest again."
        ) from None


def _twins(digests: pa.ChunkedArray) -> np.ndarray:
    """Return for each shard the lowest ordinal with equal bytes; what was not read has no twin.

    Returns:
        int32[shards]
    """
    codes = digests.combine_chunks().dictionary_encode()
    own = np.arange(len(codes), dtype=np.int32)
    _, first = np.unique(codes.indices.to_numpy(), return_index=True)
    unread = pc.equal(digests, "").to_numpy()
    twins: np.ndarray = np.where(unread, own, first[codes.indices.to_numpy()])
    return twins.astype(np.int32)
