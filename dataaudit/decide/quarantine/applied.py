"""Reads back what ``quarantine apply`` wrote to a folder: shards that are left out, documents to skip."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.base.errors import QuarantineDamaged, QuarantineError
from dataaudit.base.files import kind_of, read_safely
from dataaudit.decide.quarantine.entry import digest_of
from dataaudit.decide.quarantine.selection import DROPPED

RECORD: Final = "applied.json"
"""What a folder of `apply` is known by."""
FORM: Final = {"name": "dataaudit-applied", "version": 2}
"""Version 2 has the sha256 of every file."""
EXCLUDED: Final = "excluded.jsonl"
DOCUMENTS: Final = "documents.parquet"
_AGAIN = "Write it again: `dataaudit quarantine apply FILE --manifest DIR --out FOLDER --documents`."


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedFolder:
    """A folder that was written with a drop list: ids of the manifest and the list, and what they come to."""

    manifest: str
    quarantine: str
    digest: str
    """``sha256:`` and the sha256 of the record, which has those of all files."""
    excluded: tuple[tuple[str, str, str], ...]
    """Split, URI and why (quarantined, changed, unread) of each shard that is left out."""
    lacks: tuple[str, ...]
    """What the drop list is known to lack, in words."""
    documents: pa.Table
    """Documents to skip: the columns shard, sha256 and row of :data:`dataaudit.decide.quarantine.selection.DROPPED`."""


def read_applied(folder: Path) -> AppliedFolder:
    """Read a folder."""
    try:
        data = read_safely(folder / RECORD)
    except OSError as error:
        raise QuarantineError(
            f"{folder} is no folder of `quarantine apply`: {RECORD} cannot be read: {error.strerror}", _AGAIN
        ) from None
    try:
        record = orjson.loads(data)
        schema, choice = record["schema"], record["documents"]
        manifest, quarantine = str(record["manifest"]), str(record["quarantine"])
        lacks = () if choice is None else tuple(map(str, choice["incomplete"]))
        if schema == FORM:
            digests = {str(name): str(digest) for name, digest in record["files"].items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise _damaged(folder, RECORD, "it is not what `quarantine apply` writes") from None
    if schema != FORM:
        raise QuarantineError(f"{folder / RECORD}: expected {FORM}, found {str(schema)[:100]}", _AGAIN)
    if choice is None:
        raise QuarantineError(f"{folder} holds no drop list: it was written without --documents", _AGAIN)
    lines, table = _checked(folder, digests)
    return AppliedFolder(
        manifest=manifest,
        quarantine=quarantine,
        digest=digest_of(data),
        excluded=_excluded(folder, lines),
        lacks=lacks,
        documents=_documents(folder, table),
    )


def _checked(folder: Path, digests: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Compare every file of a folder with the record; return what is read of them."""
    there = set()
    for path in folder.rglob("*"):
        mode, name = path.lstat().st_mode, str(path.relative_to(folder))
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise _damaged(folder, name, f"expected a file, found {kind_of(mode)}")
        if stat.S_ISREG(mode) and name != RECORD:
            there.add(name)
    for name in sorted({*digests, EXCLUDED, DOCUMENTS} - there):
        raise _damaged(folder, name, "it is absent")
    for name in sorted(there - digests.keys()):
        raise _damaged(folder, name, f"{RECORD} has no such file")
    read: dict[str, bytes] = {}
    for name, expected in sorted(digests.items()):
        try:
            data = read_safely(folder / name)
        except OSError as error:
            raise _damaged(folder, name, str(error.strerror)) from None
        if (digest := digest_of(data)) != expected:
            raise _damaged(folder, name, f"its digest is {digest}, {RECORD} has {expected[:71]}")
        if name in {EXCLUDED, DOCUMENTS}:
            read[name] = data
    return read[EXCLUDED], read[DOCUMENTS]


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
    return QuarantineDamaged(
        f"{folder / name} is not as it was written, so which documents to skip is not known: {why}", _AGAIN
    )
