"""Loading a manifest: the pointer is read and checked, tables are opened when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from dataaudit.errors import ManifestError, ManifestMismatch
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.core import SCHEMA_NAME, SCHEMA_VERSION, Core, ManifestFile, Run
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.publish import POINTER
from dataaudit.manifest.tables import TABLES


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

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Read one table, or some of its columns.

        Raises:
            ManifestError: The file is absent, damaged, or not of the schema.
        """
        path = self.folder / f"{name}.parquet"
        try:
            table = pq.ParquetFile(path, page_checksum_verification=True).read(columns=columns)
        except (OSError, pa.ArrowException) as error:
            raise ManifestError(
                f"table {name} of {self.folder} cannot be read: {_first_line(error)}"
            ) from None
        expected = TABLES[name].schema
        if columns is not None:
            expected = pa.schema([expected.field(column) for column in columns])
        if not table.schema.equals(expected):
            raise ManifestError(
                f"table {name} of {self.folder}: expected the columns {expected.names}, found {table.schema.names}"
                " or other types",
                "The table was not written by this version; `dataaudit verify` lists every difference.",
            )
        return table

    def metrics(
        self, metric: str | None = None, stat: str | None = None, scope: Scope | None = None
    ) -> list[Metric]:
        """Return metric records, filtered by name, statistic and exact scope."""
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
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ManifestError(
            f"no manifest at {folder}: {error.strerror}", "`dataaudit build ... --manifest DIR` writes one."
        ) from None
    except orjson.JSONDecodeError as error:
        raise ManifestError(f"{path} is not valid JSON: {error}") from None
    _check_schema(document, path)
    try:
        parsed = ManifestFile.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ManifestError(
            f"{path}: {error.error_count()} problem(s), the first at {place}: {first['msg']}"
        ) from None
    found = digest_json(document["core"])
    if found != parsed.id:
        raise ManifestMismatch(
            f"{path}: the id says {parsed.id}, the core's digest is {found}",
            "The file was changed after it was written; build again or restore it.",
        )
    return Manifest(folder=folder, id=parsed.id, core=parsed.core, run=parsed.run)


def _check_schema(document: Any, path: Path) -> None:
    core = document.get("core") if isinstance(document, dict) else None
    schema = core.get("schema") if isinstance(core, dict) else None
    if not isinstance(schema, dict) or schema.get("name") != SCHEMA_NAME:
        raise ManifestError(f"{path}: expected a {SCHEMA_NAME}, found another kind of JSON")
    if schema.get("version") != SCHEMA_VERSION:
        raise ManifestError(
            f"{path}: schema version {schema.get('version')}, this program reads version {SCHEMA_VERSION}",
            "Install the version of dataaudit that wrote it, or a newer one.",
        )


def _scope_row(scope: Scope) -> dict[str, Any]:
    return {name: getattr(scope, name) for name in Scope.__slots__}


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
