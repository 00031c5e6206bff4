"""What ``quarantine apply`` left in a folder, read back by a loader: shards that are left out, documents to skip."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.errors import QuarantineDamaged, QuarantineError
from dataaudit.quarantine.selection import DROPPED
from dataaudit.regular import read_regular

RECORD: Final = "applied.json"
"""What a folder of `apply` is known by."""
FORM: Final = {"name": "dataaudit-applied", "version": 1}
EXCLUDED: Final = "excluded.jsonl"
DOCUMENTS: Final = "documents.parquet"
_AGAIN = "Write it again: `dataaudit quarantine apply FILE --manifest DIR --out FOLDER --documents`."


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedFolder:
    """A folder that was written with a drop list."""

    manifest: str
    """Id of the manifest that the list was applied to."""
    quarantine: str
    """Digest of the list."""
    digest: str
    """``sha256:`` and the sha256 over the files that were read."""
    excluded: tuple[tuple[str, str, str], ...]
    """Split, URI and why (quarantined, changed, unread) of each shard that is left out."""
    lacks: tuple[str, ...]
    """What the drop list is known to lack, in words."""
    documents: pa.Table
    """Documents to skip: the columns shard, sha256 and row of :data:`dataaudit.quarantine.selection.DROPPED`."""


def read_applied(folder: Path) -> AppliedFolder:
    """Read a folder.

    Raises:
        QuarantineError: It is none of `apply`, or was written without a drop list.
        QuarantineDamaged: A file of it is absent or cannot be read.
    """
    try:
        data = read_regular(folder / RECORD)
    except OSError as error:
        raise QuarantineError(
            f"{folder} is no folder of `quarantine apply`: {RECORD} cannot be read: {error.strerror}", _AGAIN
        ) from None
    state = hashlib.sha256(data)
    try:
        record = orjson.loads(data)
        schema, choice = record["schema"], record["documents"]
        manifest, quarantine = str(record["manifest"]), str(record["quarantine"])
        lacks = () if choice is None else tuple(map(str, choice["incomplete"]))
    except (ValueError, LookupError, TypeError):
        raise _damaged(folder, RECORD, "it is not what `quarantine apply` writes") from None
    if schema != FORM:
        raise QuarantineError(f"{folder / RECORD}: expected {FORM}, found {str(schema)[:100]}", _AGAIN)
    if choice is None:
        raise QuarantineError(f"{folder} holds no drop list: it was written without --documents", _AGAIN)
    lines, table = _read(folder, EXCLUDED, state), _read(folder, DOCUMENTS, state)
    return AppliedFolder(
        manifest=manifest,
        quarantine=quarantine,
        digest=f"sha256:{state.hexdigest()}",
        excluded=_excluded(folder, lines),
        lacks=lacks,
        documents=_documents(folder, table),
    )


def _read(folder: Path, name: str, state: Any) -> bytes:
    """Return a file's bytes; ``state`` is updated with them."""
    try:
        data = read_regular(folder / name)
    except OSError as error:
        raise _damaged(folder, name, str(error.strerror)) from None
    state.update(hashlib.sha256(data).digest())
    return data


def _excluded(folder: Path, data: bytes) -> tuple[tuple[str, str, str], ...]:
    try:
        lines = [orjson.loads(line) for line in data.splitlines()]
        return tuple((str(line["split"]), str(line["uri"]), str(line["why"])) for line in lines)
    except (ValueError, LookupError, TypeError):
        raise _damaged(folder, EXCLUDED, "a line is not what `quarantine apply` writes") from None


def _documents(folder: Path, data: bytes) -> pa.Table:
    try:
        with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as file:
            if not file.schema_arrow.equals(DROPPED.schema):
                raise _damaged(folder, DOCUMENTS, "its columns are not those of a drop list")
            return file.read(columns=["shard", "sha256", "row"], use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(folder, DOCUMENTS, str(error).partition("\n")[0]) from None


def _damaged(folder: Path, name: str, why: str) -> QuarantineDamaged:
    return QuarantineDamaged(f"{folder / name} cannot be read, so which documents to skip is not known: {why}", _AGAIN)
