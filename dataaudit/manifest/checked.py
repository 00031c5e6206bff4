"""Reading a table that a decision rests on: its rows are held against the digest in the core."""

from __future__ import annotations

import pyarrow as pa

from dataaudit.errors import ManifestError, ManifestMismatch
from dataaudit.manifest.canonical import digest_table, sorted_table
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
    if name in manifest.core.tables and found_digest(manifest, name, table) != manifest.core.tables[name].digest:
        raise ManifestMismatch(
            f"table {name} of {manifest.folder}: its rows are not those that the manifest was published with",
            "Restore the file or build again; `dataaudit verify` says more.",
        )
    return table


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
