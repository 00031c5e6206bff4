"""Loading a manifest: the pointer is read and checked, tables are opened when asked for."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from dataaudit import text as t
from dataaudit.errors import ConfigError, ManifestError, ManifestMismatch
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.core import SCHEMA_NAME, SCHEMA_VERSION, Core, ManifestFile, Run
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.replace import POINTER, hidden_copy
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.upgrade import readable, upgraded_document, upgraded_table
from dataaudit.yamlfile import nearest

_RESTORE = "Restore the file or build again."
_TRIES = 20
MOST_KEPT_BYTES = 1 << 29
"""Bytes of tables that a loaded manifest keeps; what would be more is read anew whenever it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A loaded manifest."""

    folder: Path
    """Where it lies."""
    id: str
    """``sha256:<hex>`` of the core."""
    core: Core
    """What the numbers are and what decided them."""
    run: Run
    """Circumstances of the build."""
    written_as: int = SCHEMA_VERSION
    """Schema version that it was written in; everything here is in the form of the newest."""
    pointer_sha256: str = ""
    """sha256 of the bytes of ``manifest.json`` that were loaded, hex."""

    _kept: dict[str, pa.Table] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Columns that were read, by table. Arrow's tables are immutable, so all who ask share them."""

    def __repr__(self) -> str:
        """Return what it is of and how much that is, on one line."""
        totals, shards = self.core.totals, self.core.ledger.shards
        name = t.clean(f"{self.core.dataset.name} {self.core.dataset.version}", 80)
        held = f"{totals.documents:,} documents, {totals.tokens:,} tokens, {t.plural(totals.shards, 'shard')} read"
        return f"<Manifest {name}: {held}, {shards.quarantined + shards.skipped:,} unread; {self.id}>"

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Return one table, or some of its columns.

        A column is read from the file when it is first asked for and kept, as long as all that is kept stays below
        :data:`MOST_KEPT_BYTES`; the same table is returned again.

        Args:
            name: One of the tables of docs/reference/inputs.md: ``shards``, ``metrics``, ``findings``, ...
            columns: Names of columns; all of them when None.

        Raises:
            ConfigError: There is no table, or no column, of that name.
            ManifestError: The file is absent, damaged, or not of the schema, or another manifest has taken
                its place since this one was loaded.
        """
        schema = _schema(name, columns)
        held = self._kept.get(name)
        missing = [one for one in schema.names if held is None or one not in held.column_names]
        if held is None or missing:
            older = self.written_as != SCHEMA_VERSION  # then a table is brought to the newest form as a whole
            read = self.read_table(name, None if older else missing)
            held = _joined(TABLES[name].schema, held, read, self.folder / f"{name}.parquet")
            if held.nbytes + sum(one.nbytes for key, one in self._kept.items() if key != name) <= MOST_KEPT_BYTES:
                self._kept[name] = held
        return held if held.column_names == schema.names else held.select(schema.names)

    def read_table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Read one table, or some of its columns, from the file, whatever was read before, and keep nothing.

        Raises:
            ConfigError: As of :meth:`table`.
            ManifestError: As of :meth:`table`.
        """
        expected = _schema(name, columns)
        if self.written_as == SCHEMA_VERSION:
            table = self._read_unmixed(name, columns)
        else:
            table = upgraded_table(name, self.table_as_written(name), self.written_as)
            table = table if columns is None else table.select(columns)
        if not table.schema.equals(expected):
            raise ManifestError(
                f"table {name} of {self.folder} has not the columns of schema version {SCHEMA_VERSION}: "
                + _differences(expected, table.schema),
                _RESTORE,
            )
        return table

    def table_as_written(self, name: str) -> pa.Table | None:
        """Read one table in the form of the schema version that it was written in; None when that has no such table.

        Raises:
            ManifestError: The file is absent or damaged.
        """
        return self._read_unmixed(name, None) if name in self.core.tables else None

    def _read_unmixed(self, name: str, columns: list[str] | None) -> pa.Table:
        """Read a table while the folder holds this manifest: it may be replaced at any moment."""
        path = self.folder / f"{name}.parquet"
        for _ in range(_TRIES):
            before = _stamp(self.folder)
            failure = ""
            try:
                table = pq.ParquetFile(path, page_checksum_verification=True).read(columns=columns)
            except (OSError, pa.ArrowException) as error:
                failure = _first_line(error)
            after = _stamp(self.folder)
            for stamp in (before, after):
                if stamp is not None and stamp[0] != self.id:
                    raise ManifestError(
                        f"the manifest {self.folder} was replaced while it was read: loaded was {self.id},"
                        f" there is {stamp[0]}",
                        "Load it again.",
                    )
            if before == after:
                break
        if failure:
            raise ManifestError(f"table {name} of {self.folder} cannot be read: {failure}", _RESTORE)
        return table

    def metrics(self, metric: str | None = None, stat: str | None = None, scope: Scope | None = None) -> list[Metric]:
        """Return metric records, filtered by name, statistic and exact scope.

        Args:
            metric: Name of the metric, as in docs/reference/metrics.md; all when None.
            stat: Name of the statistic; all when None.
            scope: Split, source, language, ... that it speaks of; every scope when None.

        Raises:
            ManifestError: As of :meth:`table`.
        """
        table = self.table("metrics")
        if metric is not None:
            table = table.filter(pc.equal(table["metric"], metric))
        if stat is not None:
            table = table.filter(pc.equal(table["stat"], stat))
        records = [metric_from_row(row) for row in table.to_pylist()]
        return records if scope is None else [record for record in records if record.scope == scope]


def metric_from_row(row: dict[str, Any]) -> Metric:
    """Return the record of one row of the metrics table."""
    return Metric(**{**row, "scope": Scope(**row["scope"])})


def metrics_table(metrics: list[Metric]) -> pa.Table:
    """Return the metrics table of records.

    Raises:
        ValueError: Two records have the same metric, stat and scope.
    """
    seen: set[tuple[str, str, Scope]] = set()
    for record in metrics:
        key = (record.metric, record.stat, record.scope)
        if key in seen:
            raise ValueError(f"two records for {key}")
        seen.add(key)
    names = TABLES["metrics"].schema.names
    rows = [
        {name: _scope_row(record.scope) if name == "scope" else getattr(record, name) for name in names}
        for record in metrics
    ]
    return pa.Table.from_pylist(rows, schema=TABLES["metrics"].schema)


def load_manifest(folder: Path) -> Manifest:
    """Read and check the pointer of a manifest: schema, and id against core.

    Raises:
        ManifestError: Absent, not JSON, of another schema, or with unknown content.
        ManifestMismatch: The id is not the digest of the core.
    """
    path = folder / POINTER
    try:
        data = _read_pointer(path)
        document = orjson.loads(data)
    except OSError as error:
        raise _absent(folder, error) from None
    except orjson.JSONDecodeError as error:
        raise ManifestError(f"{path} is not valid JSON: {error}", _RESTORE) from None
    version = _check_schema(document, path)
    try:
        parsed = ManifestFile.model_validate(upgraded_document(document, version))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = "unknown field" if first["type"] == "extra_forbidden" else first["msg"]
        raise ManifestError(
            f"{path}: {error.error_count()} problem(s), the first at {place}: {message}", _RESTORE
        ) from None
    try:
        found = digest_json(document["core"])
    except ValueError as error:
        raise ManifestError(f"{path}: the core has no canonical form: {error}", _RESTORE) from None
    if found != parsed.id:
        raise ManifestMismatch(
            f"{path}: the id says {parsed.id}, the core's digest is {found}",
            f"The file was changed after it was written. {_RESTORE}",
        )
    return Manifest(
        folder=folder,
        id=parsed.id,
        core=parsed.core,
        run=parsed.run,
        written_as=version,
        pointer_sha256=hashlib.sha256(data).hexdigest(),
    )


def _read_pointer(path: Path) -> bytes:
    """Read the pointer; tried again when its folder was replaced just as it was opened."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            return path.read_bytes()
        if not path.exists():
            break
    return path.read_bytes()


def _stamp(folder: Path) -> tuple[str, int, int] | None:
    """Return id, inode and time of the pointer that lies in a folder now; None when there is none to be read.

    The id alone would not do: the manifest may have been replaced by another and that by the first again.
    """
    try:
        with (folder / POINTER).open("rb") as handle:
            state = os.fstat(handle.fileno())
            return str(orjson.loads(handle.read())["id"]), state.st_ino, state.st_mtime_ns
    except (OSError, ValueError, LookupError, TypeError):
        return None  # gone or damaged: then the table is checked against the core that was loaded


def _absent(folder: Path, error: OSError) -> ManifestError:
    held = hidden_copy(folder.absolute()) if not folder.exists() else None
    if held is not None:
        return ManifestError(
            f"no manifest at {folder}: a publish was killed as it replaced it; the manifest lies in {held}",
            f"Build again, which puts it back first, or rename it yourself: mv {held} {folder}",
        )
    reason = "the folder has none" if folder.is_dir() else (error.strerror or str(error)).lower()
    return ManifestError(f"no manifest at {folder}: {reason}", "`dataaudit build ... --manifest DIR` writes one.")


def _check_schema(document: Any, path: Path) -> int:
    """Return the schema version of a pointer."""
    core = document.get("core") if isinstance(document, dict) else None
    schema = core.get("schema") if isinstance(core, dict) else None
    if not isinstance(schema, dict) or schema.get("name") != SCHEMA_NAME:
        raise ManifestError(
            f"{path}: expected a {SCHEMA_NAME}, found another kind of JSON", "Name the folder of a manifest."
        )
    version = schema.get("version")
    if not readable(version):
        raise ManifestError(
            f"{path}: schema version {version}, this program reads version {SCHEMA_VERSION}",
            "Install the version of dataaudit that wrote it, or a newer one.",
        )
    return version


def _schema(name: str, columns: list[str] | None) -> pa.Schema:
    """Return the schema of a table, or of some of its columns.

    Raises:
        ConfigError: There is no table, or no column, of that name.
    """
    if name not in TABLES:
        raise ConfigError(f"a manifest has no table `{name}`{nearest(name, list(TABLES))}")
    schema = TABLES[name].schema
    for column in columns or ():
        if column not in schema.names:
            raise ConfigError(f"the table {name} has no column `{column}`{nearest(column, schema.names)}")
    return schema if columns is None else pa.schema([schema.field(column) for column in columns])


def _joined(schema: pa.Schema, held: pa.Table | None, read: pa.Table, path: Path) -> pa.Table:
    """Return the columns that were held and those that were read, in the order of the schema; nothing is copied.

    Raises:
        ManifestError: The file was changed in between.
    """
    if held is None:
        return read
    if held.num_rows != read.num_rows:
        raise ManifestError(f"{path} was changed while it was read", _RESTORE)
    by_name = {name: table[name] for table in (held, read) for name in table.column_names}
    kept = pa.schema([one for one in schema if one.name in by_name])
    return pa.table([by_name[name] for name in kept.names], schema=kept)


def _differences(expected: pa.Schema, found: pa.Schema) -> str:
    """Return in words what differs between two schemas."""
    missing = [name for name in expected.names if name not in found.names]
    unknown = [name for name in found.names if name not in expected.names]
    words = [f"missing: {', '.join(missing)}"] if missing else []
    words += [f"unknown: {', '.join(unknown)}"] if unknown else []
    for column in expected:
        for index in found.get_all_field_indices(column.name):
            other = found.field(index)
            if not other.equals(column):
                null = " or null" if other.nullable and not column.nullable else ""
                words.append(f"{column.name}: expected {column.type}, found {other.type}{null}")
    return "; ".join(words) or f"expected the order {expected.names}, found {found.names}"


def _scope_row(scope: Scope) -> dict[str, Any]:
    return {name: getattr(scope, name) for name in Scope.__slots__}


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
