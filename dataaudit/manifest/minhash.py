"""MinHash signatures beside the tables: a Parquet file for each shard, with its digest in the table `signatures`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.base.errors import ManifestError
from dataaudit.manifest.files import open_file
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.reading import RESTORE

FOLDER = "signatures"
STAGE = "near_dup"
CLASS_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureSettings:
    """How signatures are made; those of two manifests can be compared when all fields agree."""

    num_perm: int
    ngram: int
    version: str
    """Of the stage, with its words and hashes."""


def signature_schema(num_perm: int) -> pa.Schema:
    """Return the schema of a shard's file, ordered by row."""
    return pa.schema([("row", pa.int64()), ("class", pa.binary(CLASS_BYTES)), ("signature", pa.binary(4 * num_perm))])


def file_name(shard: int) -> str:
    """Return the name of a shard's file, below the manifest's folder."""
    return f"{FOLDER}/{shard:07}.parquet"


def digest_signatures(table: pa.Table) -> str:
    """Return ``sha256:<hex>`` of a shard's rows: numbers little-endian, column after column."""
    state = hashlib.sha256(np.ascontiguousarray(table["row"].to_numpy().astype("<i8")).tobytes())
    for name in ("class", "signature"):
        for chunk in table[name].chunks:
            width = chunk.type.byte_width
            values = chunk.buffers()[1]
            state.update(memoryview(values)[chunk.offset * width : (chunk.offset + len(chunk)) * width])
    return f"sha256:{state.hexdigest()}"


def signature_settings(manifest: Manifest) -> SignatureSettings | None:
    """Return how the signatures of a manifest were made; None when it has none."""
    for stage in manifest.core.stages:
        if stage.name == STAGE and stage.parameters.get("signatures"):
            parameters = stage.parameters
            return SignatureSettings(num_perm=parameters["num_perm"], ngram=parameters["ngram"], version=stage.version)
    return None


def read_signatures(
    manifest: Manifest, wanted: Callable[[int], bool] = lambda _: True
) -> Iterator[tuple[int, pa.Table]]:
    """Yield shards' signatures, one shard at a time, each checked against its digest."""
    settings = signature_settings(manifest)
    if settings is None:
        return
    for row in manifest.table("signatures").to_pylist():
        if wanted(row["shard"]):
            yield row["shard"], _read(manifest, file_name(row["shard"]), row, settings.num_perm)


def _read(manifest: Manifest, name: str, row: dict[str, object], num_perm: int) -> pa.Table:
    path = manifest.folder / name
    try:
        with open_file(path) as file:
            manifest.reader.hold_bytes(name, file)
            table = pq.read_table(file, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise ManifestError(f"signatures {path}: {error}", RESTORE) from None
    if not table.schema.equals(signature_schema(num_perm)):
        raise ManifestError(f"signatures {path}: other columns than expected", RESTORE)
    if table.num_rows != row["documents"] or digest_signatures(table) != row["digest"]:
        raise ManifestError(f"signatures {path}: not what the manifest says", RESTORE)
    return table
