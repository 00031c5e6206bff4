"""Reading a table that a decision rests on: its rows are held against the digest in the core."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from dataaudit.errors import ManifestError, ManifestMismatch
from dataaudit.manifest.canonical import digest_columns, digest_table, sorted_table
from dataaudit.manifest.core import SCHEMA_VERSION
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.tables import TABLES


def checked_table(manifest: Manifest, name: str) -> pa.Table:
    """Return a table in canonical order whose digest is the one in the core.

    Raises:
        ManifestError: It is absent or damaged.
        ManifestMismatch: It is not the table that the manifest was published with.
    """
    try:
        table = sorted_table(manifest.table(name), TABLES[name])
    except ValueError as error:
        raise ManifestError(f"table {name} of {manifest.folder}: {error}", "Restore the file or build again.") from None
    _hold(manifest, name, found_digest(manifest, name, table))
    return table


def checked_shards(manifest: Manifest, columns: Collection[str]) -> pa.Table:
    """Return columns of the table of shards, whose digest is the one in the core; few are in memory at a time.

    Raises:
        ManifestError: It is absent or damaged.
        ManifestMismatch: It is not the table that the manifest was published with.
    """
    if manifest.written_as != SCHEMA_VERSION:
        return checked_table(manifest, "shards").select(list(columns))
    kept: dict[str, pa.ChunkedArray] = {}

    def column(name: str) -> pa.ChunkedArray:
        if name not in columns:
            return manifest.read_table("shards", [name])[name]
        kept[name] = manifest.table("shards", [name])[name]
        return kept[name]

    schema = TABLES["shards"].schema
    ordinals = column("shard").to_numpy()
    if not np.array_equal(ordinals, np.arange(len(ordinals))):
        raise ManifestMismatch(
            f"table shards of {manifest.folder}: its rows are not numbered 0, 1, 2, ...",
            "Restore the file or build again; `dataaudit verify` says more.",
        )
    _hold(manifest, "shards", digest_columns(schema, len(ordinals), column))
    return pa.table({field.name: kept[field.name] for field in schema if field.name in kept})


def _hold(manifest: Manifest, name: str, found: str) -> None:
    """Hold a digest against the one in the core; a table that older versions did not have has none."""
    record = manifest.core.tables.get(name)
    if record is None and manifest.written_as == SCHEMA_VERSION:
        raise ManifestError(f"the core of {manifest.folder} names no table {name}", "Build again.")
    if record is not None and found != record.digest:
        raise ManifestMismatch(
            f"table {name} of {manifest.folder}: its rows are not those that the manifest was published with; the core"
            f" says {record.digest}, found {found}",
            "Restore the file or build again; `dataaudit verify` says more.",
        )


def found_digest(manifest: Manifest, name: str, ordered: pa.Table) -> str:
    """Return the digest of a table's rows as they were written.

    Args:
        manifest: Whose table it is.
        name: Name of the table.
        ordered: The table in the form of the newest schema version, in canonical order.
    """
    if manifest.written_as == SCHEMA_VERSION:
        return digest_table(ordered)
    written = manifest.table_as_written(name)
    return "" if written is None else digest_table(written.cast(_plain_lists(written.schema)))


def _plain_lists(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose lists name their items as Arrow does and not as Parquet does; rows are in order already."""
    fields = [
        field.with_type(pa.list_(field.type.value_type)) if pa.types.is_list(field.type) else field for field in schema
    ]
    return pa.schema(fields)
